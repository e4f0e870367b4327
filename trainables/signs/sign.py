"""Sign that a training run goes wrong, and the run whose reports show it."""

from __future__ import annotations

from dataclasses import dataclass

from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.config.constraint import TOLERANCE
from trainables.primal_dual.constraints import Scales
from trainables.records.arm_record import Report
from trainables.signs import limits


@dataclass(frozen=True)
class Sign:
    """One thing that goes wrong in one layer, or in the output."""

    text: str  # what is seen and what to do, in words that do not change
    badness: float  # how wrong it is: a run in which this falls is on its way
    ends: bool = False  # whether a run that keeps it can be ended
    of_constraint: bool = False  # it is about multipliers, which a feasible run may keep


@dataclass(frozen=True)
class WatchedRun:
    """A training run that is watched for signs."""

    config: ArmConfig
    scales: Scales
    steps_per_epoch: int
    tolerance: float = TOLERANCE  # the missing share up to which a layer meets its constraint

    @property
    def constraint(self) -> ConstraintConfig:
        """The constraint of a run that has one."""
        assert self.config.constraint is not None
        return self.config.constraint

    def is_settled(self, report: Report) -> bool:
        """True when a run is expected to have found its feet."""
        return report.step >= limits.SETTLED * self.config.steps

    def is_past_half(self, report: Report) -> bool:
        """True when half of the steps that follow the warm-up are over."""
        warmup = self.constraint.warmup_steps
        return report.step >= warmup + limits.HALFWAY * (self.config.steps - warmup)
