"""Shared first columns, notes and number formats of a sweep's tables. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from search_spaces.paper.video import DEPARTURES
from search_spaces.space import SearchSpace
from sweep.glossary import brief, model_text, sentence
from sweep.render.table import Column, Row
from sweep.results.summary import SettingSummary
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.config.test_conditions import unseen_gammas
from trainables.registry.task_facts import Metric, TaskFacts

GAUSSIAN = "gaussian"  # noise alone, among the families of shifts
UNMATCHED = "†"  # beside a setting whose arms differ in what they can fit


@dataclass(frozen=True)
class SettingLine:
    """A line of a table about a setting's pair."""

    summary: SettingSummary


# The first columns of a short form: which setting, what it trains, which pair is shown.
HEADED: Sequence[Column[SettingLine]] = (
    Column(
        "setting",
        lambda one: one.summary.setting + UNMATCHED * (not one.summary.matched_capacity),
        name="",
    ),
    Column("model", lambda one: model_text(one.summary.model, one.summary.model_variant), name=""),
    Column("pair", lambda one: ", ".join(pair_words(one.summary)), name=""),
)


def pair_words(summary: SettingSummary) -> list[str]:
    """The kind of pair that is shown."""
    if summary.proposal is None:
        return ["none finished"]
    pair = "winner" if summary.winner else "closest, no winner"
    return [pair, *["not binding"] * summary.not_binding]


def pair_columns(space: SearchSpace) -> list[Column[SettingLine]]:
    """The pair of a line, in CSV: the first columns where a setting has several lines."""
    return [
        Column("", lambda one: one.summary.setting, name="setting"),
        Column("", lambda one: one.summary.model, name="model"),
        Column("", lambda one: one.summary.model_variant, name="model_variant"),
        Column("", lambda one: one.summary.winner, name="winner"),
        Column("", lambda one: one.summary.proposal, name="proposal"),
        Column("", lambda one: len(one.summary.search_seeds), name="n_seeds"),
        *[Column[SettingLine]("", lambda one: one.summary.split, name="split")]
        * (space.base.measured_on != "dev"),
    ]


def reference_notes(metric: Metric) -> list[str]:
    """The noise that each linear filter knows."""
    if "wiener_train" not in metric.shown:
        return []
    return [
        "Wiener: the best linear filter of a patch, fitted anew at every test gamma, so it knows "
        "the noise; Wiener (train): fitted at train gamma alone, as the models are."
    ]


def seen_note(facts: TaskFacts) -> str:
    """The test gammas that are seen, and those that are not."""
    return (
        f"seen, unseen: means over test gammas. {sentence(brief('seen', 'unseen'))} Seen "
        f"gammas end at train gamma + {facts.near_shift:.2f}, or at the next one where none is in "
        "that range."
    )


def measured_references(metric: Metric, summaries: Iterable[SettingSummary]) -> list[str]:
    """The predictors without training that any setting has; all where none of it is measured."""
    known = [summary.references or metric.references for summary in summaries]
    return [name for name in metric.references if any(name in names for names in known)]


def model_notes(models: Iterable[tuple[str, str, bool]]) -> list[str]:
    """Models that are not those that the paper describes, and the meaning of unmatched capacity.

    Args:
        models: names, variants, and whether both arms of the pair can fit the same.
    """
    every = list(dict.fromkeys(models))
    described = dict.fromkeys((name, variant) for name, variant, _ in every)
    notes = [f"{DEPARTURES[model]}." for model in described if model in DEPARTURES]
    if not all(matched for _, _, matched in every):
        notes.append(f"{UNMATCHED} {brief('unmatched capacity')}.")
    return notes


def summary_notes(summaries: Iterable[SettingSummary]) -> list[str]:
    """``model_notes`` of settings."""
    return model_notes((s.model, s.model_variant, s.matched_capacity) for s in summaries)


# Columns of CSV that need several search seeds, and those that need a gamma that nothing looked at.
_OF_SEEDS = re.compile(r"_seeds_upper_by_layer$")
_OF_UNSEEN = re.compile(r"(^|_)unseen_(gammas|mean)")


def without_idle(space: SearchSpace, rows: Sequence[Row]) -> list[Row]:
    """Rows without the columns that can hold nothing in this sweep, whatever it comes to.

    The one rule for every CSV: what follows from the definition alone and is empty is left out;
    what says how a sweep went (why, reason, edges) stays, also where nothing happened.
    """
    configs = [space.run(setting, {}, seed=space.search_seeds[0]) for setting in space.settings]
    idle = [] if len(space.search_seeds) > 1 else [_OF_SEEDS]
    idle += [] if any(map(unseen_gammas, configs)) else [_OF_UNSEEN]
    return [
        {name: value for name, value in row.items() if not any(i.search(name) for i in idle)}
        for row in rows
    ]


def seeds_text(space: SearchSpace) -> str:
    """The seeds that every setting is trained on."""
    seeds = ", ".join(map(str, space.search_seeds))
    return f"{space.phase} seed{'s' * (len(space.search_seeds) > 1)} {seeds}"


def config_of(space: SearchSpace, summary: SettingSummary) -> ArmConfig:
    """The constrained run of a setting; its default one while nothing is finished."""
    if summary.constrained is not None:
        return ArmConfig.from_json(summary.constrained.config)
    return space.run(space.setting(summary.setting), {}, seed=space.search_seeds[0])


def form_of(constraint: ConstraintConfig | None) -> str:
    """The form of the constraint in words, detached or not; for a control its setter."""
    if constraint is not None and constraint.is_control:
        return constraint.weights_by.replace("_", " ")
    is_ratio = constraint is not None and constraint.form == "ratio"
    is_detached = constraint is not None and not constraint.grad_through_previous
    return ", ".join(["ratio"] * is_ratio + ["detached"] * is_detached) or "Lagrangian"
