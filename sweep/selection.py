"""Which proposal wins a setting: the best objective among those that are feasible and useful.

A proposal is trained on every search seed; it is feasible when each of its pairs is, and useful
likewise. Nothing measured is never a success: a missing or diverged seed keeps a proposal from
winning. Defined here and nowhere else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from sweep.pairs import Judgement, Pair
from trainables.primal_dual import TOLERANCE, is_feasible
from trainables.results import OUTCOMES, Outcome

Json = Any
P = TypeVar("P", bound="Judged")


@dataclass(frozen=True)
class ProposalResult:
    """One proposal over its search seeds; ``pairs`` are in the order of the seeds."""

    number: int
    point: dict[str, Json]
    pairs: tuple[Pair, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of its seeds."""
        worst_first: tuple[Outcome, ...] = (
            "failed",
            "diverged",
            "stopped",
            "infeasible",
            "feasible",
        )
        return next(o for o in worst_first if any(p.outcome == o for p in self.pairs))

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
        """The worst missing share over seeds and layers; NaN unless every seed finished."""
        shares = [p.judgement.worst if p.judgement else math.nan for p in self.pairs]
        return math.nan if any(map(math.isnan, shares)) else max(shares)

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
        """Every seed's constrained arm is useful."""
        return all(p.judgement is not None and p.judgement.useful for p in self.pairs)

    @property
    def has_twins(self) -> bool:
        """Every seed's unconstrained arm finished: there is something to compare with."""
        return all(p.unconstrained_judgement is not None for p in self.pairs)

    @property
    def can_win(self) -> bool:
        """Feasible and useful on every seed, beside an unconstrained arm that finished."""
        measured = self.has_twins and math.isfinite(self.objective)
        return self.outcome == "feasible" and self.useful and measured

    @property
    def reason(self) -> str:
        """Why the first of its arms that says so ended as it did; empty when they finished."""
        return next((p.constrained.reason for p in self.pairs if p.constrained.reason), "")

    def worst_judgement(self) -> Judgement | None:
        """The judgement of the seed that misses most; None when no seed finished."""
        judged = [p.judgement for p in self.pairs if p.judgement is not None]
        return max(judged, key=lambda j: j.worst, default=None)


@dataclass(frozen=True)
class SettingResult:
    """What a setting came to: a winner, or the closest proposal and why it lost."""

    setting: str
    outcomes: dict[Outcome, int]
    winner: ProposalResult | None
    shown: ProposalResult | None  # the winner, else the closest; None when nothing finished
    why: str  # empty when there is a winner


class Judged(Protocol):
    """A judged proposal, as choosing among many sees it: whole, or the summary that is stored."""

    @property
    def number(self) -> int:
        """Its place in the search."""

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of its seeds."""

    @property
    def objective(self) -> float:
        """Lower is better; NaN unless every seed finished."""

    @property
    def worst_missing_share(self) -> float:
        """NaN unless every seed finished."""

    @property
    def can_win(self) -> bool:
        """Whether it may be a winner at all."""

    @property
    def reason(self) -> str:
        """Why the first of its arms that says so ended as it did."""


def winner_of(proposals: Iterable[P]) -> P | None:
    """The winner among judged proposals."""
    winners = (p for p in proposals if p.can_win)
    return min(winners, key=lambda p: (p.objective, p.number), default=None)


def closest_of(proposals: Iterable[P]) -> P | None:
    """The measured proposal that is least far from winning."""
    measured = (p for p in proposals if not math.isnan(p.worst_missing_share))
    return min(
        measured,
        key=lambda p: (p.outcome != "feasible", p.worst_missing_share, p.number),
        default=None,
    )


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
    winner = winner_of(judged)
    found = winner or closest_of(judged)
    shown: ProposalResult | None = None
    if found is not None:
        shown = cast(ProposalResult, found) if whole is None else whole(found)
    if winner is not None:
        return SettingResult(setting, outcomes, shown, shown, "")
    reason = next((p.reason for p in judged if p.reason), "")
    why = _why_no_winner(shown, reason) if judged else "no proposal has finished"
    return SettingResult(setting, outcomes, None, shown, why)


def _why_no_winner(closest: ProposalResult | None, reason: str) -> str:
    if closest is None:
        return "every proposal failed, diverged or was stopped" + (
            f"; the first: {reason}" if reason else ""
        )
    judgement = closest.worst_judgement()
    assert judgement is not None  # a worst missing share was measured
    if closest.outcome == "feasible" and closest.useful:
        twins = [p.unconstrained for p in closest.pairs if p.unconstrained_judgement is None]
        reasons = [twin.reason for twin in twins if twin is not None and twin.reason]
        return f"proposal {closest.number} has no finished unconstrained arm to stand beside" + (
            f": {reasons[0]}" if reasons else ""
        )
    if closest.outcome == "feasible":
        why = next(
            p.judgement.why_not_useful
            for p in closest.pairs
            if p.judgement and not p.judgement.useful
        )
        return f"feasible but not useful: {why} (closest: proposal {closest.number})"
    text = (
        f"no proposal is feasible: the closest, proposal {closest.number}, misses "
        f"{judgement.worst:.2f} of the reduction asked of layer {judgement.worst_layer} "
        f"(allowed {TOLERANCE:.2f})"
    )
    if is_feasible(np.array(judgement.training)):
        samples = closest.pairs[0].constrained.config.facts.samples
        text += (
            f"; on training {samples} it meets every constraint, so the gap is one of "
            "generalisation"
        )
    return text
