"""Confirmations whose arms get records written by hand, scored as a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from sweep.confirmation.chosen import Wanted, plan_confirmation
from sweep.confirmation.plan import Plan, put_plan
from sweep.results.sweep_view import load_sweep
from sweep.statistics.design import Design, Rule
from sweep.study.arms import arms_of_proposal, baselines
from sweep.study.definition import Definition, put_definition
from tests.support.records import ended, finished
from tests.support.sweeps import FEASIBLE, FIRST, PLAIN, SECOND, store_sweep
from trainables.config.arm import ArmConfig
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.unit_scores import UnitScores, at_gamma

NAME = "tiny.confirmation"
GREY = 255 / 4  # RMSE of patches of 4 x 4 over the root of their mean loss
# The metric at every gamma of an arm of this setting, kind and seed, lower is better; or
# how the arm ended instead; None: not yet.
ScoreOf = Callable[[str, str, int], float | str | None]


def searched(objects: ObjectStore, **options: Any) -> Definition:
    """A finished search with a winner, proposal 1, in both of its settings."""
    came_to = [FEASIBLE] * 3
    best = {(setting, 1): -0.9 for setting in (FIRST, SECOND)}
    return store_sweep(objects, {FIRST: came_to, SECOND: came_to}, objectives=best, **options)


def of_before(
    families: Mapping[str, tuple[str, ...]], smallest_effect: float | None = None
) -> Design:
    """The design of ten seeds that plans of before have: a first look at five, by t tests alone."""
    return Design(
        dict(families), looks=(5, 10), spending=(0.25, 0.75), smallest_effect=smallest_effect
    )


def wanted(
    seeds: int = 10,
    rule: Rule | Literal["of before"] = "fixed",
    smallest_effect: float | None = 0.2,
    **fields: Any,
) -> Wanted:
    design = (
        partial(of_before, smallest_effect=smallest_effect)
        if rule == "of before"
        else partial(Design.planned, seeds=seeds, rule=rule, smallest_effect=smallest_effect)
    )
    return Wanted(name=NAME, seeds=seeds, design=design, **fields)


def planned_of(objects: ObjectStore, of: Wanted, search: str = "tiny") -> tuple[Plan, Definition]:
    """The plan and the definition of a confirmation of the search; nothing stored."""
    return plan_confirmation(load_sweep(objects, search, "pairs"), of, {}, ArmStore(objects).record)


def stored(
    objects: ObjectStore, of: Wanted | None = None, search: str = "tiny"
) -> tuple[Plan, Definition]:
    """The same, stored; nothing trained."""
    plan, definition = planned_of(objects, of or wanted(), search)
    return put_plan(objects, plan), put_definition(objects, definition)


def trained(
    objects: ObjectStore,
    definition: Definition,
    score_of: ScoreOf,
    losses: Sequence[float] = FEASIBLE,
    plain: Sequence[float] = PLAIN,
) -> None:
    """Give every arm its record."""
    store = ArmStore(objects)
    for setting, kind, config in every_arm(definition):
        score = score_of(setting, kind, config.seed)
        if score is None:
            continue
        if isinstance(score, str):
            store.put_record(ended(config, score, "the loss is nan."))
            continue
        scores = dict.fromkeys(("0.00", "0.20", "0.40"), score)
        own = list(plain if kind == "unconstrained" else losses)
        units = {"dev_units": [f"c{i}:0" for i in range(12)], "dev_losses": [own] * 12}
        store.put_record(finished(config, own, scores=scores, split="test", **units))


def clip_each(units: int) -> list[str]:
    """Names of windows that each are all of a clip."""
    return [f"c{u}:0" for u in range(units)]


# Losses of every test unit of such an arm, or how it ended instead; None: not yet.
LossesOf = Callable[[str, str, int], "np.ndarray[Any, Any] | str | None"]


def measured(
    objects: ObjectStore,
    definition: Definition,
    losses_of: LossesOf,
    plain: Sequence[float] = PLAIN,
    names_of: Callable[[int], list[str]] = clip_each,
) -> None:
    """Give every arm its record and its unit scores: the last layer's loss, at every gamma."""
    store = ArmStore(objects)
    for setting, kind, config in every_arm(definition):
        losses_U = losses_of(setting, kind, config.seed)
        if losses_U is None:
            continue
        if isinstance(losses_U, str):
            store.put_record(ended(config, losses_U, "the loss is nan."))
            continue
        last_U = losses_U.astype(np.float32)
        names, gammas = names_of(len(last_U)), config.test_gammas
        own = list(plain if kind == "unconstrained" else FEASIBLE)
        mean = float(last_U.astype(np.float64).mean())
        unit_losses = np.column_stack([np.ones((len(last_U), len(own) - 1)), last_U])
        losses = {at_gamma(gamma): unit_losses.astype(np.float32) for gamma in gammas}
        scores = UnitScores("test", names, [1] * len(names), losses)
        store.put_unit_scores(config.signature(), scores)
        store.put_record(
            finished(
                config,
                own,
                split="test",
                dev_units=names,
                dev_losses=[own] * len(names),
                scores={f"{gamma:.2f}": GREY * mean**0.5 for gamma in gammas},
                references={"constant": {f"{gamma:.2f}": 50.0 for gamma in gammas}},
                layer_losses_by_gamma={f"{g:.2f}": [*own[:-1], mean] for g in gammas},
            )
        )


def every_arm(definition: Definition) -> Iterator[tuple[str, str, ArmConfig]]:
    """All arms with their setting and kind."""
    for setting in definition.space.settings:
        of = {"unconstrained": baselines(definition, setting.name)}
        for number, (kind, point) in enumerate(setting.points.items()):
            of[kind] = arms_of_proposal(definition, setting.name, number, point)
        for kind, arms in of.items():
            for arm in arms:
                yield setting.name, kind, arm.config
