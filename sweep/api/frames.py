"""Frames of a sweep: settings, arms, layers and curves, a row each. Pure.

Their columns are described in ``columns.py``. Where results.csv or proposals.csv has a quantity,
its column is called the same here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from search_spaces.space import SearchSpace
from sweep.render.table import Row
from sweep.report.numbers import VALUE, Column, Numbers
from sweep.results import facts
from sweep.results.aggregates import ARMS, arm_summary
from sweep.results.summary import NO_ARM, ArmSummary, SettingSummary
from sweep.results.sweep_view import SettingView, SweepView
from sweep.results.tables.columns import GAUSSIAN, config_of
from sweep.study.arms import Arm, arms_of_proposal, baselines
from sweep.study.pairs import ReadRecord
from trainables.config.test_conditions import seen_gammas
from trainables.records.parallel_reads import at_once
from trainables.registry.task_facts import Metric

if TYPE_CHECKING:
    import pandas as pd

INTEGERS = ("proposal", "seed", "layer", "layers", "step", "steps")  # numbers that may be missing
PAIR: tuple[Column, ...] = ("setting", "proposal", "shown", "arm", "seed")
OF_LAYER = (
    "held_out_loss", "training_loss", "probe_loss", "missing_share", "missing_share_training",
    "missing_share_relaxed", "multiplier", "descent_fraction", "hidden_norm",
)  # fmt: skip


def framed(rows: Iterable[Row], columns: list[str] | None = None) -> pd.DataFrame:
    """Rows as a frame."""
    import pandas as pd

    return with_integers(pd.DataFrame(list(rows), columns=columns))


def with_integers(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with columns of whole numbers as integers that may be missing."""
    return frame.astype({name: "Int64" for name in INTEGERS if name in frame})


def setting_rows(space: SearchSpace, summaries: Iterable[SettingSummary]) -> Iterator[Row]:
    """The pair shown of every setting, means over its seeds, from their summaries."""
    mean = f"mean_{space.base.facts.metric.key}"
    for summary in summaries:
        config = config_of(space, summary)
        row: Row = {
            "setting": summary.setting,
            "data": config.data.name,
            "model": config.model.name,
            "layers": config.model.layers,
            "train_gamma": config.train_gamma,
            "winner": summary.winner,
            "why": summary.why,
            "proposal": summary.proposal,
            **{n.removeprefix("constraint."): v for n, v in (summary.point or {}).items()},
            "n_proposals_finished": summary.proposals.finished,
            "n_seeds": len(summary.search_seeds),
            "not_binding": summary.not_binding,
            "demanded_descent": summary.demanded_descent,
            "tolerance": summary.tolerance,
            "selection_biased": summary.gain.selection_biased,
        }
        for name in ARMS:
            arm = summary.arm(name)
            row |= facts.score_columns(f"{name}_", mean, arm)
            row[f"{name}_feasible"] = arm.feasible
            row |= facts.verdict_columns(arm, f"{name}_") | _cost_columns(arm, f"{name}_")
        yield row | facts.score_columns("gain_", mean, summary.gain)


def _cost_columns(arm: ArmSummary, prefix: str = "") -> Row:
    return {
        f"{prefix}train_seconds": arm.train_seconds,
        f"{prefix}eval_seconds": arm.eval_seconds,
        f"{prefix}peak_memory_mb": arm.peak_memory_mb,
    }


def arm_rows(view: SweepView, read: ReadRecord) -> Iterator[Row]:
    """Every arm that is asked for so far; one that settings share has a row in each."""
    definition = view.definition
    for one in view.settings:
        name = one.setting.name
        arms = list(baselines(definition, name))
        for proposal in one.proposals:
            arms += arms_of_proposal(definition, name, proposal.number, proposal.point)
        yield from at_once(partial(_arm_row, one, read), arms)


def _arm_row(one: SettingView, read: ReadRecord, arm: Arm) -> Row:
    config, record = arm.config, read(arm.signature)
    mean = f"mean_{config.facts.metric.key}"
    summary = NO_ARM if record is None else arm_summary([record], None, {}) or NO_ARM
    last = record.reports[-1].step if record is not None and record.reports else 0
    ended = record is not None and record.is_final
    return {
        "setting": one.setting.name,
        "proposal": arm.proposal,
        "point": None if arm.proposal is None else one.setting.point_name(arm.proposal),
        "arm": config.arm,
        "seed": config.seed,
        "signature": arm.signature,
        "status": None if record is None else record.status,
        "reason": summary.reason,
        "step": last,
        "steps": config.steps,
        **facts.score_columns("", mean, summary),
        **_cost_columns(summary),
        "wall_seconds": (record.ended_ms - record.started_ms) / 1000 if record and ended else None,
    }


# --- every pair, one by one -----------------------------------------------------------------------


def pair_numbers(view: SweepView, read: ReadRecord, metrics: Collection[str]) -> Numbers:
    """Facts of every judged proposal, and whether its pair is the one shown."""
    rows: list[Row] = []
    for one in view.settings:
        number = None if one.chosen.shown is None else one.chosen.shown.number
        judged = {result.number for result in one.results}
        kept = replace(one, proposals=tuple(p for p in one.proposals if p.number in judged))
        every = facts.read_facts(replace(view, settings=(kept,)), read, metrics).numbers
        rows += [
            {**fact._asdict(), "shown": fact.proposal == number}
            for fact in (every if judged else facts.shown_facts(one))
            if fact.metric in metrics
        ]
    return Numbers(framed(rows, [*PAIR, "metric", "shift", "severity", "layer", VALUE]))


def layers_frame(every: Numbers, metric: Metric) -> pd.DataFrame:
    """A row a layer of both arms of every pair, from ``pair_numbers``."""
    names = [*OF_LAYER, f"probe_{metric.key}"]
    rows = every.among("metric", names).having("layer")
    wide = rows.indexed(*PAIR, "layer", "metric").unstack("metric")
    return wide.reindex(columns=[n for n in names if n in wide]).rename_axis(columns=None)


def curves_frame(every: Numbers, view: SweepView, metric: Metric) -> pd.DataFrame:
    """A row a test condition of both arms and the references of every pair, from the same rows."""
    space = view.definition.space
    seen = {
        one.setting.name: set(seen_gammas(space.run(one.setting, {}, seed=space.search_seeds[0])))
        for one in view.settings
    }
    rows = every.where(metric=metric.key).having("severity")
    scores = rows.indexed(*PAIR, "shift", "severity").rename(metric.key)
    places = rows.indexed("setting", "shift", "severity").index
    return scores.reset_index().assign(
        seen=[
            shift == GAUSSIAN and severity in seen[setting] for setting, shift, severity in places
        ]
    )
