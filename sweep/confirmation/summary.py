"""Typed summary of a confirmation: families, settings, arms, contrasts. Pure.

``to_json`` is what ``sweep best --json`` prints of a confirmation (docs/schemas/confirmed.json),
whose keys have the order of the fields. Numbers are None where nothing is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sweep.confirmation.controls import Question
from sweep.confirmation.plan import CONSTRAINED, UNCONSTRAINED, EqualTries, Measure
from sweep.statistics.design import Design, Outcome
from sweep.statistics.row import Row
from trainables.plain import Json, Plain

Marked = Outcome | Literal["not binding"]  # what may be claimed


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(Row):
    """One line of the table of decisions, and what may be claimed."""

    marked: Marked


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCounts(Plain):
    """Numbers of test units, and of groups of them."""

    units: int
    unit: str
    groups: int
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Variance(Plain):
    """Variance of a gain between seeds, between units, and of the rest."""

    seed: float | None
    unit: float | None
    rest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverUnits(Plain):
    """A contrast where test units are drawn anew, too."""

    mean: float | None
    low: float | None
    high: float | None
    name: str
    seeds: int
    variance: Variance
    units: int
    unit: str
    groups: int
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread(Plain):
    """A mean gain and its standard deviation over seeds."""

    mean: float | None
    sd: float | None


Means = Mapping[Measure, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast(Family):
    """The constrained arms of a setting against one other kind."""

    units: OverUnits | None
    question: Question
    per_seed: Mapping[str, float | None]
    means: Mapping[str, Means]  # by kind of arm
    beside: Mapping[Measure, Spread | None]  # the gain in every measure
    codes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts(Plain):
    """Numbers of arms by what the test units certify."""

    feasible: int
    infeasible: int
    undecided: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmsSummary(Plain):
    """One kind of arm over the seeds that its contrast counts."""

    seeds: int
    wanted: int
    mean: Means
    sd: Means
    ended: Mapping[str, int]  # by status, over all that have
    counted_as_constant: int
    certified: Verdicts
    certified_interval: Sequence[float] | None
    feasible_by_mean: int | None = None  # heads of an earlier version do not say it
    feasible: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedSetting(Plain):
    """One setting: its arms and contrasts, and what the search had seen."""

    setting: str
    family: str
    proposal: int
    chosen: Literal["winner", "named"]
    point: Mapping[str, Json]
    arms: Mapping[str, ArmsSummary]  # by kind
    test_units: UnitCounts | None
    contrasts: Mapping[str, Contrast]  # by kind of the other arm
    search_gain: float | None
    confirmed_gain: float | None
    shrinkage: float | None
    equal_tries: EqualTries | None
    not_binding: bool

    @property
    def constrained(self) -> ArmsSummary:
        """The arms that are confirmed."""
        return self.arms[CONSTRAINED]

    @property
    def against_plain(self) -> Contrast:
        """The contrast with plain training."""
        return self.contrasts[UNCONSTRAINED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds(Plain):
    """Seeds of a plan, and those that are trained so far."""

    planned: Sequence[int]
    requested: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationSummary(Plain):
    """A confirmation as far as it is."""

    name: str
    search: str
    plan: str  # digest
    measure: Measure
    metric: str
    unit: str
    design: Design
    worst_score: str
    seeds: Seeds
    families: Sequence[Family]
    settings: Sequence[ConfirmedSetting]
    controls: Mapping[str, str]  # what each is
    deviations: Sequence[str]

    @property
    def contrasts(self) -> list[Contrast]:
        """Every contrast of every setting."""
        return [contrast for one in self.settings for contrast in one.contrasts.values()]

    @property
    def whole_seeds(self) -> int:
        """How many seeds count in every setting."""
        return min((one.against_plain.counted for one in self.settings), default=0)


# --- replications of the tuning -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedFamily(Family):
    """A line of the table of decisions; ``seeds`` counts replications."""

    def to_json(self) -> dict[str, Json]:
        """Plain values; what is counted has the name of the unit."""
        plain = Plain.to_json(self)
        return {"replications" if name == "seeds" else name: value for name, value in plain.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedWinners(Plain):
    """Trained constrained winners, and how many the test units certify as feasible."""

    feasible: int
    trained: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedSetting(ReplicatedFamily):
    """One setting over the replications that it counts."""

    units: OverUnits | None
    no_winner: Mapping[str, int]  # by the kind whose search found none
    counted_as_constant: Mapping[str, int]  # by kind
    certified: CertifiedWinners
    per_replication: Mapping[str, float | None]

    def to_json(self) -> dict[str, Json]:
        """Plain values; the setting's name comes first."""
        return {"setting": self.name, **ReplicatedFamily.to_json(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationCounts(Plain):
    """Counts of replications, planned and complete, and what each is given."""

    planned: int
    complete: int
    n_proposals: int
    seeds: Sequence[int]
    search_seeds: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationsSummary(Plain):
    """Replications of a search as far as they are (docs/schemas/replicated.json)."""

    name: str
    search: str
    plan: str  # digest
    question: Question = "tuned"
    unit_of_statistics: Literal["replication"] = "replication"
    measure: Measure
    metric: str
    unit: str
    design: Design
    worst_score: str
    no_winner: str
    replications: ReplicationCounts
    families: Sequence[ReplicatedFamily]
    settings: Sequence[ReplicatedSetting]
    deviations: Sequence[str]
