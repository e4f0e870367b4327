"""Lines of a table of decisions; numbers are None where nothing is measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sweep.statistics.design import Outcome
from trainables.plain import Plain


@dataclass(frozen=True, slots=True)
class ExactTest(Plain):
    """A two-sided test whose p-values are steps."""

    p: float
    least_p: float  # the smallest that so many seeds can give, whatever their values


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Plain):
    """A mean difference over some seeds, with its interval."""

    mean: float | None
    low: float | None
    high: float | None
    interval: str  # its name and level


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Plain):
    """One line of the table of a confirmation."""

    name: str
    family: str
    settings: int  # how many it is the mean of; a setting's own line: 0
    seeds: int  # that have ended
    counted: int  # of those, how many the numbers are of
    mean: float | None
    low: float | None
    high: float | None
    interval: str  # its name and level
    p: float | None
    p_adjusted: float | None
    p_equivalent: float | None
    e_value: float | None  # the smaller one, which decides; None but with any_time
    d_z: float | None
    outcome: Outcome
    decided_at: int | None
    ended: Estimate  # over all whole seeds: what is decided early is reported too large
    sign_flip: ExactTest  # over the counted seeds, also where t alone decides
