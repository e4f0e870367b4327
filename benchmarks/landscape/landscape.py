"""Recorded landscape: a box, and what real arms at points of it came to."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from search_spaces.catalog import find
from search_spaces.ranges import Choice, Range, Uniform, range_from_json
from search_spaces.space import SearchSpace, Setting
from sweep.study.pairs import ROUNDING
from sweep.study.proposals import Observation, Point
from trainables.config.arm import ArmConfig
from trainables.plain import Json
from trainables.records.arm_record import Outcome

FOLDER = Path(__file__).parent
EARLY = ("stopped", "diverged")
Arm = Mapping[str, Json]  # an entry of benchmarks/landscape/record.py


def share_of(values: Range, coordinate: float) -> float:
    """At which share of a range a coordinate lies: the inverse of ``at_fraction``.

    >>> round(share_of(Uniform(1.0, 3.0), 1.5), 9)
    0.25
    """
    assert not isinstance(values, Choice)
    at, low, high = coordinate, values.low, values.high
    if not isinstance(values, Uniform):
        at, low, high = math.log(at), math.log(low), math.log(high)
    return (at - low) / (high - low)


class Landscape:
    """The recorded arms of one setting, in the coordinates of their box."""

    def __init__(self, recorded: Mapping[str, Json]) -> None:
        """Of the content of one file."""
        self.arms: list[Arm] = recorded["arms"]
        self.steps: int = recorded["base"]["steps"]
        self.plain_objective: float = recorded["unconstrained"]["objective"]
        self.space = SearchSpace(
            name="landscape",
            base=ArmConfig.from_json(recorded["base"]),
            settings=(Setting("only", {}),),
            ranges={name: range_from_json(name, r) for name, r in recorded["ranges"].items()},
            tolerance=recorded["tolerance"],
        )
        self.cube = np.array([arm["shares"] for arm in self.arms])
        self.least = find(recorded["space"]).space.setting(recorded["setting"]).least_descent

    @classmethod
    def of_file(cls, path: Path) -> Landscape:
        """The landscape that a recorder wrote."""
        return cls(json.loads(path.read_text(encoding="utf-8")))

    def shares(self, point: Point) -> list[float]:
        """Where a point lies in the box, every coordinate from 0 to 1."""
        at = self.space.coordinates_of(self.space.settings[0], point)
        return [share_of(values, at[name]) for name, values in self.space.ranges.items()]

    def nearest(self, point: Point, taken: Collection[int] = ()) -> int:
        """The index of the recorded arm that lies nearest in the box, of those not taken."""
        return self.nearest_to(self.shares(point), taken)

    def nearest_to(self, shares: Sequence[float], taken: Collection[int] = ()) -> int:
        """``nearest``, of the point at these shares of the box."""
        distance = np.square(self.cube - np.array(shares)).sum(axis=1)
        distance[list(taken)] = math.inf
        return int(distance.argmin())

    def wins(self, arm: Arm) -> bool:
        """Whether an arm that was trained to its end could win its setting."""
        asks = arm["demanded_descent"] >= self.least - ROUNDING
        return bool(arm["feasible"] and arm["beats_trivial"] and not arm["not_binding"] and asks)

    def best(self, arms: Sequence[Arm]) -> float:
        """The least objective of those that could win; infinite where none could."""
        return min((arm["objective"] for arm in arms if self.wins(arm)), default=math.inf)


def report_at(arm: Arm, step: int) -> Arm:
    """What an arm last reported by ``step``."""
    return max((r for r in arm["reports"] if r["step"] <= step), key=lambda r: int(r["step"]))


def missing_share(report: Arm) -> float:
    """The worst layer's, as reported; NaN where it is infinite."""
    share = report["worst_missing_share"]
    return math.nan if share is None else float(share)


def told_of(number: int, arm: Arm) -> Observation:
    """What a search with early stopping is told of an arm."""
    end, status = arm["would_end"], arm["status"]
    if end is not None:
        seen = missing_share(report_at(arm, end["step"]))
        return Observation(number, arm["point"], "stopped", math.nan, seen)
    if status in EARLY:
        seen = missing_share(arm["reports"][-1])
        return Observation(number, arm["point"], status, math.nan, seen)
    outcome: Outcome = "feasible" if arm["feasible"] else "infeasible"
    return Observation(number, arm["point"], outcome, arm["objective"], arm["worst_missing_share"])
