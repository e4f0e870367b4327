"""Selection of a winner: best objective among proposals that can win.

A proposal is trained on every search seed and judged by the mean of its losses over them. Nothing
measured is never a success: a missing or diverged seed keeps a proposal from winning. Nor does one
win whose constraint the unconstrained arm meets by itself (not binding), or that asks for less
descent than its setting demands. What keeps one from winning is ``ProposalResult.hindrance``, and
what is chosen among those that can is defined here and nowhere else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast, get_args

import numpy as np

from search_spaces.space import SearchSpace, Setting
from sweep.glossary import TERMS
from sweep.study.pairs import Hindrance, ProposalResult
from sweep.study.proposals import ProposalOutcome
from trainables.plain import Plain
from trainables.primal_dual.constraints import is_feasible
from trainables.records.arm_record import OUTCOMES, Outcome

# A judged proposal, as choosing among many sees it: whole, or the summary that is stored.
Judged = ProposalResult | ProposalOutcome
P = TypeVar("P", bound=Judged)
HINDRANCES: tuple[Hindrance, ...] = get_args(Hindrance)
OnProposal = Callable[[str, ProposalResult], None]  # the setting, and what became of a proposal


@dataclass(frozen=True)
class FrontierPoint(Plain):
    """A proposal that no other one beats in both its objective and the descent it demands."""

    number: int
    demanded_descent: float
    objective: float
    worst_missing_share: float
    certificate: str


@dataclass(frozen=True)
class SettingResult:
    """The result of a setting: a winner, or the closest proposal and why it lost."""

    setting: str
    outcomes: dict[Outcome, int]
    winner: ProposalResult | None
    shown: ProposalResult | None  # the winner, else the closest; None when nothing finished
    why: str  # empty when there is a winner
    frontier: tuple[FrontierPoint, ...] = ()  # from the least demand to the most


def winner_of(proposals: Iterable[P]) -> P | None:
    """The winner among judged proposals."""
    winners = (p for p in proposals if p.can_win)
    # Of equal objectives the one that demands more; by number, so that a resume names the same one.
    return min(winners, key=lambda p: (p.objective, -p.demanded_descent, p.number), default=None)


def beaten_by(winner: Judged | None, one: Judged) -> str:
    """Why a proposal that could have won did not."""
    is_equal = winner is not None and one.objective == winner.objective
    return "equal objective" if is_equal else "worse objective"


def closest_of(proposals: Iterable[P]) -> P | None:
    """The measured proposal that is least far from winning."""
    measured = (p for p in proposals if not math.isnan(p.worst_missing_share))
    asks_for_too_little = ("asks for too little", "not binding")  # the largest demand is nearest

    def distance(p: P) -> tuple[int, float, int]:
        is_weak = p.hindrance in asks_for_too_little
        away = -p.demanded_descent if is_weak else p.worst_missing_share
        return HINDRANCES.index(p.hindrance), away, p.number

    return min(measured, key=distance, default=None)


def frontier_of(proposals: Iterable[Judged]) -> tuple[FrontierPoint, ...]:
    """The proposals that no other beats in both objective and demanded descent, by their demand.

    Among proposals that are feasible, binding and better than trivial predictors; also those that
    ask for less than a winner must: they say what that costs. Of equal ones the first.
    """
    candidates = (p for p in proposals if p.hindrance in ("", "asks for too little"))
    kept: list[FrontierPoint] = []
    for p in sorted(candidates, key=lambda p: (-p.demanded_descent, p.objective, p.number)):
        if not kept or p.objective < kept[-1].objective:  # each demands less than the last
            shares = (p.worst_missing_share, p.certificate)
            kept.append(FrontierPoint(p.number, p.demanded_descent, p.objective, *shares))
    return tuple(reversed(kept))


def counted(proposals: Iterable[Judged]) -> dict[Outcome, int]:
    """The number of proposals of each outcome."""
    counts = Counter(p.outcome for p in proposals)
    return {o: counts[o] for o in OUTCOMES}


def outcome_text(outcomes: Mapping[Outcome, int] | Mapping[str, int]) -> str:
    """Counts above zero in words.

    >>> outcome_text({"feasible": 2, "infeasible": 1, "diverged": 0})
    '2 feasible, 1 infeasible'
    """
    return ", ".join(f"{count} {name}" for name, count in outcomes.items() if count) or "none yet"


def select(
    setting: str, judged: Sequence[P], load: Callable[[P], ProposalResult] | None = None
) -> SettingResult:
    """The winner of a setting, or the closest proposal and the reason there is no winner.

    ``load`` reads the records of the one that is shown; None: it has them.

    >>> select("nothing", []).why
    'no proposal has finished'
    """
    outcomes = counted(judged)
    frontier = frontier_of(judged)
    winner = winner_of(judged)
    best = winner or closest_of(judged)
    shown: ProposalResult | None = None
    if best is not None:
        shown = cast(ProposalResult, best) if load is None else load(best)
    if winner is not None:
        return SettingResult(setting, outcomes, shown, shown, "", frontier)
    reason = next((p.reason for p in judged if p.reason), "")
    why = _why_no_winner(shown, reason) if judged else "no proposal has finished"
    return SettingResult(setting, outcomes, None, shown, why, frontier)


def is_selected(space: SearchSpace, setting: Setting) -> bool:
    """True when the pair shown was chosen by its scores, so that its difference is biased.

    It was where it is one of several proposals, and where it was one of several elsewhere and is
    trained again on a seed that it was chosen on.
    """
    return space.points_tried(setting) > 1 or not set(space.search_seeds).isdisjoint(
        space.selected_seeds
    )


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
        return f"proposal {number} has no finished unconstrained arm to compare with" + (
            f": {reasons[0]}" if reasons else ""
        )
    if closest.hindrance == "asks for too little":
        return (
            f"proposal {number} is feasible, but its constraint asks all layers together to remove "
            f"{100 * closest.demanded_descent:.0f} % of f0, and a winner here must ask for "
            f"{100 * closest.least_descent:.0f} % at least: its alpha is too small"
        )
    if closest.hindrance == "not binding":
        why = TERMS["not binding"].brief
        return f"proposal {number} is feasible but not binding ({why}): ask for more"
    if closest.hindrance == "beats no trivial predictor":
        feasible = "feasible but " * judgement.feasible
        why = judgement.why_not_better
        return f"proposal {number} is {feasible}no better than trivial predictors: {why}"
    unit = "times" if judgement.worst > 1 else "of"
    text = (
        f"no proposal is feasible: the closest, proposal {number}, misses "
        f"{judgement.worst:.2f} {unit} the reduction required of layer {judgement.worst_layer} "
        f"(allowed {closest.tolerance:.2f})"
    )
    if is_feasible(np.array(judgement.training), closest.tolerance):
        samples = closest.pairs[0].constrained.config.facts.samples
        text += f"; on training {samples} it meets every constraint"
    return text
