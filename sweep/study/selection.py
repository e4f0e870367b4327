"""Selection of a winner: best objective among feasible and useful proposals.

A proposal is trained on every search seed and judged by the mean of its losses over them. Nothing
measured is never a success: a missing or diverged seed keeps a proposal from winning. Nor does one
win whose constraint the unconstrained arm meets by itself (vacuous), or that asks for less descent
than its setting demands. Defined here and nowhere else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, cast, get_args

import numpy as np

from search_spaces.space import SearchSpace, Setting
from sweep.study.feasibility import Judgement, judge
from sweep.study.pairs import Pair
from trainables.config.arm import ConstraintConfig
from trainables.plain import Json
from trainables.primal_dual.constraints import demanded_descent, is_feasible
from trainables.records.arm_record import OUTCOMES, Outcome

if TYPE_CHECKING:
    from sweep.study.proposals import ProposalOutcome

# A judged proposal, as choosing among many sees it: whole, or the summary that is stored.
Judged: TypeAlias = "ProposalResult | ProposalOutcome"
P = TypeVar("P", bound=Judged)
# What keeps a feasible proposal from winning; those that are least far from winning come first.
Hindrance = Literal[
    "", "no unconstrained arm", "asks for too little", "vacuous", "not useful", "not feasible"
]
HINDRANCES: tuple[Hindrance, ...] = get_args(Hindrance)
ROUNDING = 1e-9  # by which a demand may miss the least one


@dataclass(frozen=True)
class ProposalResult:
    """One proposal over its search seeds; ``pairs`` are in the order of the seeds."""

    number: int
    point: dict[str, Json]
    pairs: tuple[Pair, ...]
    least_descent: float = 0.0  # what the setting demands of a winner, over all layers

    @cached_property
    def judgement(self) -> Judgement | None:
        """Of its mean losses over the seeds; None unless every seed finished."""
        arms = [p.constrained for p in self.pairs]
        return judge(arms, self.constraint, self.tolerance)

    @cached_property
    def unconstrained_judgement(self) -> Judgement | None:
        """Of its baselines' mean losses, under its constraint; None unless every one finished."""
        arms = [p.unconstrained for p in self.pairs if p.unconstrained is not None]
        whole = len(arms) == len(self.pairs)
        return judge(arms, self.constraint, self.tolerance) if whole else None

    @property
    def constraint(self) -> ConstraintConfig:
        """What it asks, on every seed."""
        constraint = self.pairs[0].constrained.config.constraint
        assert constraint is not None  # of a constrained arm
        return constraint

    @property
    def tolerance(self) -> float:
        """The missing share that is still feasible."""
        return self.pairs[0].tolerance

    @property
    def demanded_descent(self) -> float:
        """The share of f0 that all layers together are asked to remove."""
        return demanded_descent(self.constraint, self.pairs[0].constrained.config.model.layers)

    @property
    def outcome(self) -> Outcome:
        """The worst way in which a seed ended; of finished ones whether their mean is feasible."""
        worst_first: tuple[Outcome, ...] = ("failed", "diverged", "stopped")
        ended = (o for o in worst_first if any(p.outcome == o for p in self.pairs))
        is_feasible = self.judgement is not None and self.judgement.feasible
        return next(ended, "feasible" if is_feasible else "infeasible")

    @property
    def objective(self) -> float:
        """Mean objective over the seeds, lower is better; NaN unless every seed finished."""
        values = [
            p.constrained.evaluation.objective if p.constrained.evaluation else math.nan
            for p in self.pairs
        ]
        return math.fsum(values) / len(values)

    @property
    def worst_missing_share(self) -> float:
        """The worst layer's share of the mean losses; NaN unless every seed finished."""
        return math.nan if self.judgement is None else self.judgement.worst

    @property
    def difference(self) -> float:
        """Constrained minus unconstrained mean of the metric over the test gammas and the seeds.

        NaN unless both arms finished on every seed: what stands for an unconstrained arm that
        diverged is told where there is room to say so.
        """
        plain = [pair.unconstrained for pair in self.pairs]
        if any(arm is None or arm.status != "finished" for arm in plain):
            return math.nan
        values = [pair.differences.get("ood_mean", math.nan) for pair in self.pairs]
        return math.fsum(values) / len(values)

    @property
    def told_objective(self) -> float:
        """Mean objective over the seeds that finished; NaN when none did."""
        finished = [p.constrained.evaluation for p in self.pairs if p.constrained.evaluation]
        values = [evaluation.objective for evaluation in finished]
        return math.fsum(values) / len(values) if values else math.nan

    @property
    def told_missing_share(self) -> float:
        """``worst_missing_share``; without it the worst of the seeds that measured one.

        A stopped seed measured it in its last report: one noise draw, and before its end.
        """
        if not math.isnan(self.worst_missing_share):
            return self.worst_missing_share
        shares = [
            p.judgement.worst if p.judgement else p.constrained.reported_missing_share
            for p in self.pairs
            if p.outcome != "diverged"
        ]
        return max((share for share in shares if not math.isnan(share)), default=math.nan)

    @property
    def useful(self) -> bool:
        """The mean of its constrained arms is useful."""
        return self.judgement is not None and self.judgement.useful

    @property
    def vacuous(self) -> bool:
        """The unconstrained arms meet the constraint by themselves, in the mean."""
        return self.unconstrained_judgement is not None and self.unconstrained_judgement.feasible

    @property
    def hindrance(self) -> Hindrance:
        """What keeps it from winning, the most basic thing first; empty where it can win."""
        if self.outcome != "feasible" or not math.isfinite(self.objective):
            return "not feasible"
        if not self.useful:
            return "not useful"
        if self.vacuous:
            return "vacuous"
        if self.demanded_descent < self.least_descent - ROUNDING:
            return "asks for too little"
        if any(p.compared is None for p in self.pairs):
            return "no unconstrained arm"
        return ""

    @property
    def can_win(self) -> bool:
        """Whether it may be a winner at all."""
        return not self.hindrance

    @property
    def reason(self) -> str:
        """Why the first of its arms that says so ended as it did; empty when they finished."""
        return next((p.constrained.reason for p in self.pairs if p.constrained.reason), "")

    @property
    def certificate(self) -> str:
        """What the held-out units say of the verdict; empty where nothing was judged."""
        return "" if self.judgement is None else self.judgement.certificate.verdict


OnProposal = Callable[[str, ProposalResult], None]  # the setting, and what became of a proposal


@dataclass(frozen=True)
class FrontierPoint:
    """A proposal that no other one beats in both its objective and the descent it demands."""

    number: int
    demanded_descent: float
    objective: float
    worst_missing_share: float
    certificate: str


@dataclass(frozen=True)
class SettingResult:
    """What a setting came to: a winner, or the closest proposal and why it lost."""

    setting: str
    outcomes: dict[Outcome, int]
    winner: ProposalResult | None
    shown: ProposalResult | None  # the winner, else the closest; None when nothing finished
    why: str  # empty when there is a winner
    frontier: tuple[FrontierPoint, ...] = ()  # from the least demand to the most


def winner_of(proposals: Iterable[P]) -> P | None:
    """The winner among judged proposals."""
    winners = (p for p in proposals if p.can_win)
    return min(winners, key=lambda p: (p.objective, p.number), default=None)


def closest_of(proposals: Iterable[P]) -> P | None:
    """The measured proposal that is least far from winning."""
    measured = (p for p in proposals if not math.isnan(p.worst_missing_share))
    return min(
        measured,
        key=lambda p: (HINDRANCES.index(p.hindrance), p.worst_missing_share, p.number),
        default=None,
    )


def frontier_of(proposals: Iterable[Judged]) -> tuple[FrontierPoint, ...]:
    """Those that no other beats in both objective and demanded descent, by their demand.

    Among proposals that are feasible, useful and not vacuous; also those that ask for less than a
    winner must: they say what that costs. Of equal ones the first.
    """
    candidates = (p for p in proposals if p.hindrance in ("", "asks for too little"))
    kept: list[FrontierPoint] = []
    for p in sorted(candidates, key=lambda p: (-p.demanded_descent, p.objective, p.number)):
        if not kept or p.objective < kept[-1].objective:  # each demands less than the last
            shares = (p.worst_missing_share, p.certificate)
            kept.append(FrontierPoint(p.number, p.demanded_descent, p.objective, *shares))
    return tuple(reversed(kept))


def counted(proposals: Iterable[Judged]) -> dict[Outcome, int]:
    """How many proposals came to each outcome."""
    counts = Counter(p.outcome for p in proposals)
    return {o: counts[o] for o in OUTCOMES}


def select(
    setting: str, judged: Sequence[P], whole: Callable[[P], ProposalResult] | None = None
) -> SettingResult:
    """The winner of a setting, or the closest proposal and the reason there is no winner.

    Args:
        setting: its name.
        judged: every judged proposal.
        whole: reads the one that is shown, with its records; None: they have them.

    >>> select("nothing", []).why
    'no proposal has finished'
    """
    outcomes = counted(judged)
    frontier = frontier_of(judged)
    winner = winner_of(judged)
    found = winner or closest_of(judged)
    shown: ProposalResult | None = None
    if found is not None:
        shown = cast(ProposalResult, found) if whole is None else whole(found)
    if winner is not None:
        return SettingResult(setting, outcomes, shown, shown, "", frontier)
    reason = next((p.reason for p in judged if p.reason), "")
    why = _why_no_winner(shown, reason) if judged else "no proposal has finished"
    return SettingResult(setting, outcomes, None, shown, why, frontier)


def is_selected(space: SearchSpace, setting: Setting) -> bool:
    """Whether the pair shown was chosen by its scores, so that its difference is biased.

    It was where it is one of several proposals, and where it was one of several elsewhere and is
    trained again on a seed that it was chosen on.
    """
    tried = space.proposals_of(setting) if space.ranges else 1
    return tried > 1 or not set(space.search_seeds).isdisjoint(space.selected_seeds)


def _why_no_winner(closest: ProposalResult | None, reason: str) -> str:
    if closest is None:
        return "every proposal failed, diverged or was stopped" + (
            f"; the first: {reason}" if reason else ""
        )
    judgement, number = closest.judgement, closest.number
    assert judgement is not None  # a worst missing share was measured
    if closest.hindrance == "no unconstrained arm":
        baselines = [p.unconstrained for p in closest.pairs if p.compared is None]
        reasons = [arm.reason for arm in baselines if arm is not None and arm.reason]
        return f"proposal {number} has no finished unconstrained arm to stand beside" + (
            f": {reasons[0]}" if reasons else ""
        )
    if closest.hindrance == "asks for too little":
        return (
            f"proposal {number} is feasible, but its constraint asks all layers together to remove "
            f"{closest.demanded_descent:.0%} of f0, and a winner here must ask for "
            f"{closest.least_descent:.0%} at least: its alpha is too small"
        )
    if closest.hindrance == "vacuous":
        return (
            f"proposal {number} is feasible but vacuous: the unconstrained arm meets its "
            "constraint by itself, so the pair says nothing about constraining: ask for more"
        )
    if closest.hindrance == "not useful":
        return f"proposal {number} is feasible but not useful: {judgement.why_not_useful}"
    text = (
        f"no proposal is feasible: the closest, proposal {number}, misses "
        f"{judgement.worst:.2f} of the reduction asked of layer {judgement.worst_layer} "
        f"(allowed {closest.tolerance:.2f})"
    )
    if is_feasible(np.array(judgement.training), closest.tolerance):
        samples = closest.pairs[0].constrained.config.facts.samples
        text += (
            f"; on training {samples} it meets every constraint, so the gap is one of "
            "generalisation"
        )
    return text
