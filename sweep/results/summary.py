"""Typed summary of a setting: its pair, the gain, and trivial predictors.

``to_json`` is the entry of ``sweep best --json`` (docs/schemas/best.json), whose keys have the
order of the fields. Scores, areas and gains are in the unit of the task's metric; everything is the
mean over the search seeds, and None where it was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, Self

from sweep.study.selection import FrontierPoint
from trainables.plain import Json, Plain
from trainables.primal_dual.certificate import Verdict
from trainables.records.arm_record import Outcome, Status

ArmName = Literal["constrained", "unconstrained"]
ByLayer = Sequence[float | None]
ByShift = Mapping[str, Mapping[str, float | None]]  # family: severity: metric
AT_GAMMA = "at_gamma_"  # before a test gamma, in a gain's keys


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary(Plain):
    """One arm over its search seeds; signature, configuration and run are those of the first."""

    signature: str | None = None
    config: Mapping[str, Json] = field(default_factory=dict)  # ``ArmConfig``
    status: Sequence[Status] = ()
    counted_as_constant: int | None = None  # seeds that count as the best constant prediction
    reason: str | None = None  # why the first seed that ended early did
    objective: float | None = None
    mean_over_gammas: float | None = None  # over all test gammas
    ood_auc: float | None = None
    ood_range: Sequence[float] | None = None
    ood_step: float | None = None
    seen_mean: float | None = None
    unseen_mean: float | None = None
    shifts: ByShift = field(default_factory=dict)
    held_out_loss: float | None = None  # last layer's, at train gamma
    feasible: bool | None = None
    beats_trivial: bool | None = None
    why_not_better: str | None = None
    worst_missing_share: float | None = None
    worst_layer: int | None = None
    first_layer: int | None = None  # of the constrained layers
    missing_share: ByLayer | None = None
    missing_share_training: ByLayer | None = None
    missing_share_relaxed: ByLayer | None = None
    certificate: Verdict | None = None
    certificate_units: int | None = None
    certificate_cluster: str | None = None
    certificate_held_out: int | None = None
    missing_share_upper: ByLayer | None = None
    missing_share_lower: ByLayer | None = None
    worst_missing_share_upper: float | None = None
    units_met: ByLayer | None = None
    least_units_met: float | None = None
    missing_share_seeds_upper: ByLayer | None = None
    worst_missing_share_seeds_upper: float | None = None
    scores: Mapping[str, float | None] | None = None  # by test gamma
    layer_losses: ByLayer | None = None
    layer_scores: ByLayer | None = None
    probe_losses: ByLayer | None = None
    probe_scores: ByLayer | None = None
    scales: Mapping[str, float | None] | None = None  # ``Scales``
    train_seconds: float | None = None
    eval_seconds: float | None = None
    peak_memory_mb: float | None = None
    mlflow_run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain(Plain):
    """How much better the constrained arm is than the unconstrained one; above 0 it is better."""

    selection_biased: bool
    objective: float | None = None
    mean_over_gammas: float | None = None
    ood_auc: float | None = None
    held_out_loss: float | None = None
    at_gamma: Mapping[str, float | None] = field(default_factory=dict)  # empty: not comparable yet
    seen_mean: float | None = None
    unseen_mean: float | None = None
    shifts: ByShift = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Each test gamma has a key of its own; without a comparison there is but the first key."""
        plain = Plain.to_json(self)
        if not self.at_gamma:
            return {"selection_biased": self.selection_biased}
        gammas = {f"{AT_GAMMA}{gamma}": gain for gamma, gain in plain.pop("at_gamma").items()}
        last = {name: plain.pop(name) for name in ("seen_mean", "unseen_mean", "shifts")}
        return {**plain, **gammas, **last}

    @classmethod
    def from_json(cls, plain: Mapping[str, Json]) -> Self:
        """Read what ``to_json`` writes."""
        gammas = {k.removeprefix(AT_GAMMA): v for k, v in plain.items() if k.startswith(AT_GAMMA)}
        return super(Gain, cls).from_json({**plain, "at_gamma": gammas})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference(Plain):
    """A predictor that needs no training."""

    mean_over_gammas: float | None = None
    ood_auc: float | None = None
    seen_mean: float | None = None
    unseen_mean: float | None = None
    shifts: ByShift = field(default_factory=dict)
    held_out_loss: float | None = None
    scores: Mapping[str, float | None] | None = None


NO_ARM, NO_REFERENCE = ArmSummary(), Reference()  # what was not measured has no numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSummary(Plain):
    """Both arms of a pair and the gain."""

    constrained: ArmSummary | None = None
    unconstrained: ArmSummary | None = None
    gain: Gain


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalCounts(Plain):
    """How many proposals a setting asks for, has, and has finished."""

    wanted: int
    stored: int = 0
    finished: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlations(Plain):
    """Rank correlations of one searched value; None of too few proposals."""

    objective: float | None
    worst_missing_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance(Plain):
    """Rank correlations of every searched value, and of how many proposals they are."""

    feasible: int
    finished: int
    by_field: Mapping[str, Correlations]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSummary(Plain):
    """One setting: its winner, or the closest pair and why there is no winner.

    Fields with a default are those that a cluster's head of an earlier version does not give.
    """

    setting: str
    task: str
    phase: Literal["search", "confirmation"]
    split: Literal["dev", "test"]
    model: str
    model_variant: str
    winner: bool
    why: str | None
    outcomes: Mapping[Outcome, int]
    lost: Mapping[str, int]  # by why proposals lost
    proposals: ProposalCounts
    proposal: int | None  # number of the pair shown
    point: Mapping[str, Json] | None
    point_name: str | None = None
    search_seeds: Sequence[int]
    matched_capacity: bool
    codes: Sequence[str] = ()
    tolerance: float
    is_control: bool = False
    demanded_descent: float | None
    least_descent: float
    edges: Sequence[str]
    frontier: Sequence[FrontierPoint]
    importance: Importance | None = None
    not_binding: bool
    plain_meets_up_to: float | None = None  # alpha, by the unconstrained arms; 0: no small one
    largest_alpha: float | None = None  # that a proposal may ask for
    constrained: ArmSummary | None
    unconstrained: ArmSummary | None
    gain: Gain
    references: Mapping[str, Reference]
    seeds: Mapping[str, PairSummary]

    def arm(self, name: ArmName) -> ArmSummary:
        """An arm of the pair; one without numbers where there is none."""
        return (self.constrained if name == "constrained" else self.unconstrained) or NO_ARM

    def reference(self, name: str) -> Reference:
        """A predictor that needs no training; one without numbers where it was not measured."""
        return self.references.get(name, NO_REFERENCE)


Scored = ArmSummary | Gain | Reference


def shift_mean(values: Scored, shift: str) -> float | None:
    """Mean over the severities of one family of shifts.

    None where the family was not measured, and where one of its values is missing.
    """
    scores = list(values.shifts.get(shift, {}).values())
    known = [score for score in scores if score is not None]
    return fmean(known) if known and len(known) == len(scores) else None
