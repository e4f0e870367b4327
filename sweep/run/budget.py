"""Budget of a sweep: when a run begins no more arms, and what was spent by then.

sweeps/NAME/budget.json     that of the last run, where it had one

Arms and GPU-hours are those of the sweep in all, counted from stored records, so that neither a
crash nor another call begins a new budget. Hours are of one call, or on a cluster of one job, which
may start several drivers.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from search_spaces.space import SearchSpace
from sweep.cost.spent import (
    HOUR_S,
    Held,
    Spent,
    estimated_seconds,
    gpus_held,
    held_text,
    stored_estimate,
)
from sweep.results.sweep_view import SweepView
from sweep.study.arms import LiveArm
from sweep.study.definition import Definition, folder
from trainables.errors import InvalidValue, Misuse
from trainables.plain import Json, Plain
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

LIMITS = ("max_arms", "max_hours", "max_gpu_hours")
BEGUN = "SWEEP_BEGUN"  # of a job on a cluster: when it began, in seconds since 1970


@dataclass(frozen=True)
class Budget:
    """How much a sweep may take; None: no limit. InvalidValue for a limit that is not above 0."""

    max_arms: int | None = None  # unconstrained ones, and what other sweeps trained of them, count
    max_hours: float | None = None  # of wall time, since the call
    max_gpu_hours: float | None = None  # seconds of each arm times the share of a GPU that it holds
    begun_s: float = field(
        default_factory=lambda: float(os.environ.get(BEGUN, time.time())), init=False, compare=False
    )

    def __post_init__(self) -> None:
        for name, value in self.limits.items():
            if not (math.isfinite(value) and value > 0):
                raise InvalidValue(f"{name} must be above 0, got {value}.")

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are given, by field."""
        return {name: getattr(self, name) for name in LIMITS if getattr(self, name) is not None}

    def __bool__(self) -> bool:
        return bool(self.limits)

    @property
    def options(self) -> tuple[str, ...]:
        """Words of a command line that set these limits."""
        return tuple(word for name in self.limits for word in self.option_text(name).split())

    def option_text(self, name: str) -> str:
        """The option of a command line that sets this limit.

        >>> Budget(max_gpu_hours=2.0).option_text("max_gpu_hours")
        '--max-gpu-hours 2'
        """
        return f"--{name.replace('_', '-')} {str(getattr(self, name)).removesuffix('.0')}"

    def refuse_without_gpu(self, space: SearchSpace) -> None:
        """Raise Misuse for GPU-hours of a sweep that trains on CPUs: they would never be spent."""
        runs = (space.run(setting, {}, seed=space.search_seeds[0]) for setting in space.settings)
        if self.max_gpu_hours is not None and not any(run.device == "cuda" for run in runs):
            raise Misuse(
                f"{self.option_text('max_gpu_hours')} is for arms on a GPU, and these train "
                "with device 'cpu'. Give --max-hours or --max-arms, or --set device=cuda."
            )


NO_LIMIT = Budget()


class Spending:
    """Hours of a sweep's arms beside its budget, in one run of a driver."""

    def __init__(
        self, objects: ObjectStore, definition: Definition, budget: Budget = NO_LIMIT
    ) -> None:
        self.budget = budget
        self._objects, self._name, self._space = objects, definition.name, definition.space
        self.spent = Spent()

    def start(self) -> None:
        """Store the budget, and read the hours that are stored."""
        put_budget(self._objects, self._name, self.budget)
        self.spent = Spent.stored(self._objects, self._name)

    def count(self, runs: ArmStore, judged: Iterable[str]) -> None:
        """Count those of the ``judged`` arms that no driver has counted, and store what is new."""
        self.spent.complete(runs, self._space, judged)
        self.spent.put(self._objects, self._name, now=True)

    def limit_arms(self, arms: int) -> int:
        """The number of these arms that the budget allows."""
        return min(arms, self.budget.max_arms or arms)

    def add_final(self, record: ArmRecord, gpus: float | None) -> None:
        """Count a final arm; ``gpus``: the share that each process held, None: the usual one."""
        if gpus is None:
            gpus = gpus_held(record, self._space)
        self.spent.add(record, gpus)
        self.spent.put(self._objects, self._name)

    def reached_limit(self, begun: int, live: Mapping[str, LiveArm]) -> str:
        """The option that is reached once this many arms are begun; '' where none is."""
        is_spent = self.budget.max_arms is not None and begun >= self.budget.max_arms
        arms = self.budget.option_text("max_arms") if is_spent else ""
        return self.reached_time_limit(live) or arms

    def reached_time_limit(self, live: Mapping[str, LiveArm]) -> str:
        """The option of hours or GPU-hours that is reached, however few arms are begun."""
        hours, gpu_hours = self.budget.max_hours, self.budget.max_gpu_hours
        if hours is not None and time.time() >= self.budget.begun_s + hours * HOUR_S:
            return self.budget.option_text("max_hours")
        if gpu_hours is not None:
            # A copy: the display's thread asks, too, while the driver's hands out arms.
            now = sum(arm.gpus * arm.held_s for arm in list(live.values()))
            if self.spent.all.gpu_seconds + now >= gpu_hours * HOUR_S:
                return self.budget.option_text("max_gpu_hours")
        return ""

    def close(self) -> None:
        """Store the hours that are not stored yet."""
        self.spent.put(self._objects, self._name, now=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBudget(Plain):
    """The limits of a sweep's last run, and the option of it that was reached."""

    max_arms: int | None
    max_hours: float | None
    max_gpu_hours: float | None
    reached: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmHours(Plain):
    """Hours of a sweep's arms, and of final ones beside their estimate."""

    arms: int  # final ones
    arm_hours: float
    gpu_hours: float
    estimated_arm_hours: float | None
    times_the_estimate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingSummary(Plain):
    """A sweep's budget, and the hours of its arms."""

    budget: LastBudget | None
    spent: ArmHours


def summarize_spending(objects: ObjectStore, view: SweepView) -> SpendingSummary:
    """Sum up the last run's budget, and the hours of the sweep's arms."""
    space, arms = view.definition.space, view.arms.values()
    spent = Spent.stored(objects, view.definition.name)
    final = [arm.signature for arm in arms if arm.is_final]
    spent.complete(ArmStore(objects), space, final)
    open_ones = [arm.record for arm in arms if arm.record is not None and not arm.is_final]
    for record in open_ones:  # by their last reports
        spent.add(record, gpus_held(record, space))
    held, done = spent.total(arm.signature for arm in arms), spent.total(final)
    kinds = [(arm.setting, arm.proposal is not None) for arm in arms if arm.is_final]
    estimate = stored_estimate(objects, view.definition.name)
    estimated_s = estimated_seconds(estimate, kinds) if kinds else None
    budget, reached = stored_budget(objects, view.definition.name)
    limits = {name: getattr(budget, name) for name in LIMITS}
    return SpendingSummary(
        budget=LastBudget(**limits, reached=reached or None) if budget else None,
        spent=ArmHours(
            arms=len(final),
            arm_hours=held.seconds / HOUR_S,
            gpu_hours=held.gpu_seconds / HOUR_S,
            estimated_arm_hours=None if not estimated_s else estimated_s / HOUR_S,
            times_the_estimate=None if not estimated_s else done.seconds / estimated_s,
        ),
    )


def took_text(spent: ArmHours) -> str:
    """Text on the hours of a sweep's arms, those of final ones beside their estimate."""
    held = Held(spent.arms, HOUR_S * spent.arm_hours, HOUR_S * spent.gpu_hours)
    text = f"its arms took {held_text(held)}"
    if spent.times_the_estimate is None or spent.estimated_arm_hours is None:
        return text
    estimated = held_text(Held(seconds=HOUR_S * spent.estimated_arm_hours))
    times = f"{spent.times_the_estimate:.2g} times their estimate of {estimated}"
    return f"{text}; those that are final took {times}"


def put_budget(objects: ObjectStore, sweep: str, budget: Budget, *, reached: str = "") -> None:
    """Store the budget of a run, and which option of it was reached; without a limit: forget it."""
    if budget:
        plain = {**budget.limits, "reached": reached, "put_s": time.time()}
        objects.put_json(_name(sweep), plain)
    else:
        objects.delete(_name(sweep))


def stored_budget(objects: ObjectStore, sweep: str, *, since_s: float = 0.0) -> tuple[Budget, str]:
    """The budget of the last run, and which option of it was reached; '' where none was.

    An option that was reached before ``since_s``, in seconds since 1970, does not count.
    """
    stored = objects.get_derived(_name(sweep), _from_json)
    budget, reached, put_s = stored or (NO_LIMIT, "", 0.0)
    return budget, reached if put_s >= since_s else ""


def _from_json(plain: Mapping[str, Json]) -> tuple[Budget, str, float]:
    values = dict(plain)
    reached, put_s = str(values.pop("reached")), float(values.pop("put_s", 0.0))
    return Budget(**values), reached, put_s


def _name(sweep: str) -> str:
    return f"{folder(sweep)}/budget.json"
