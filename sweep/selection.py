"""Which proposal wins a setting: the best objective among those that are feasible and useful.

A proposal is trained on every search seed; it is feasible when each of its pairs is, and useful
likewise. Nothing measured is never a success: a missing or diverged seed keeps a proposal from
winning. Defined here and nowhere else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.pairs import Judgement, Pair
from trainables.primal_dual import TOLERANCE, is_feasible
from trainables.results import OUTCOMES, Outcome

Json = Any


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


def select(setting: str, proposals: Iterable[ProposalResult]) -> SettingResult:
    """The winner of a setting, or the closest proposal and the reason there is no winner.

    Goes through the proposals once and keeps two of them: they carry their whole records.

    >>> select("nothing", []).why
    'no proposal has finished'
    """
    counts: Counter[Outcome] = Counter()
    winner: ProposalResult | None = None
    closest: ProposalResult | None = None
    reason = ""  # why the first arm that has one ended as it did
    for proposal in proposals:
        counts[proposal.outcome] += 1
        reasons = (pair.constrained.reason for pair in proposal.pairs)
        reason = reason or next(filter(None, reasons), "")
        if proposal.can_win and (winner is None or _rank(proposal) < _rank(winner)):
            winner = proposal
        is_measured = not math.isnan(proposal.worst_missing_share)
        if is_measured and (closest is None or _distance(proposal) < _distance(closest)):
            closest = proposal
    outcomes: dict[Outcome, int] = {o: counts[o] for o in OUTCOMES}
    if winner is not None:
        return SettingResult(setting, outcomes, winner, winner, "")
    why = _why_no_winner(closest, reason) if counts else "no proposal has finished"
    return SettingResult(setting, outcomes, None, closest, why)


def _rank(proposal: ProposalResult) -> tuple[float, int]:
    return proposal.objective, proposal.number


def _distance(proposal: ProposalResult) -> tuple[bool, float, int]:
    """How far from winning: the least one is the closest."""
    return proposal.outcome != "feasible", proposal.worst_missing_share, proposal.number


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
