"""A winner is feasible and useful on every seed; without one, the closest and the reason."""

from __future__ import annotations

import math

from sweep.pairs import Pair, join
from sweep.selection import ProposalResult, select
from tests.records import ended, finished, pair_config
from trainables.results import ArmRecord

FEASIBLE = [0.5, 0.4, 0.3, 0.2]
INFEASIBLE = [0.5, 0.4, 0.38, 0.2]  # layer 2 misses (0.38 - 0.32) / 0.08 = 0.75


def proposal(number: int, *pairs: Pair) -> ProposalResult:
    return ProposalResult(number, {"constraint.alpha": 0.2}, pairs)


def pair(
    losses: list[float], *, seed: int = 0, objective: float = 0.0, gamma: float = 0.15
) -> Pair:
    config = pair_config(seed).with_fields({"train_gamma": gamma})
    return join(
        finished(config, losses, objective=objective), finished(config.unconstrained(), INFEASIBLE)
    )


def bad(status: str, seed: int = 0) -> Pair:
    return join(ended(pair_config(seed), status, "the loss is nan"), None)


def test_the_best_feasible_objective_wins_whatever_infeasible_ones_reach() -> None:
    result = select(
        "s",
        [
            proposal(0, pair(FEASIBLE, objective=-0.1)),
            proposal(1, pair(FEASIBLE, objective=-0.2)),
            proposal(2, pair(INFEASIBLE, objective=-9.0)),
            proposal(3, bad("diverged")),
        ],
    )
    assert result.winner is not None
    assert result.winner.number == 1
    assert result.shown is result.winner
    assert result.why == ""
    assert result.outcomes == {
        "feasible": 2,
        "infeasible": 1,
        "diverged": 1,
        "stopped": 0,
        "failed": 0,
    }


def test_the_order_of_proposals_does_not_matter_and_ties_go_to_the_first() -> None:
    tied = [proposal(n, pair(FEASIBLE, objective=-0.1)) for n in (4, 2, 3)]
    winner = select("s", tied).winner
    assert winner is not None
    assert winner.number == 2


def test_one_bad_seed_keeps_a_proposal_from_winning() -> None:
    good = pair(FEASIBLE, objective=-1.0)
    for worst, outcome in (
        (pair(INFEASIBLE, seed=1), "infeasible"),
        (bad("diverged", 1), "diverged"),
        (bad("failed", 1), "failed"),
        (bad("stopped", 1), "stopped"),
    ):
        two_seeds = proposal(0, good, worst)
        assert two_seeds.outcome == outcome
        assert not two_seeds.can_win
        assert select("s", [two_seeds]).winner is None


def test_seeds_are_averaged_in_the_objective_and_the_worst_counts_for_the_share() -> None:
    two = proposal(0, pair(FEASIBLE, objective=-0.1), pair(INFEASIBLE, seed=1, objective=-0.3))
    assert math.isclose(two.objective, -0.2)
    assert math.isclose(two.worst_missing_share, 0.75)
    assert math.isnan(proposal(0, pair(FEASIBLE), bad("diverged", 1)).worst_missing_share)


def test_without_a_winner_the_closest_and_its_worst_layer_are_named() -> None:
    worse = [0.5, 0.4, 0.4, 0.4]
    result = select("s", [proposal(0, pair(worse)), proposal(1, pair(INFEASIBLE))])
    assert result.winner is None
    assert result.shown is not None
    assert result.shown.number == 1
    assert "proposal 1, misses 0.75 of the reduction asked of layer 2 (allowed 0.10)" in result.why


def test_feasible_but_not_useful_is_no_winner() -> None:
    not_useful = pair([0.9, 0.8, 0.64, 0.51])
    assert not_useful.outcome == "feasible"
    result = select("s", [proposal(0, not_useful), proposal(1, pair(INFEASIBLE))])
    assert result.winner is None
    assert result.shown is not None
    assert result.shown.number == 0
    assert (
        "feasible but not useful: held-out loss 0.51 is not below the identity prediction's 0.5"
        in result.why
    )


def test_a_setting_at_gamma_zero_has_no_winner() -> None:
    result = select("s", [proposal(0, pair(FEASIBLE, gamma=0.0))])
    assert result.winner is None
    assert "train_gamma is 0" in result.why


def test_when_everything_broke_the_first_reason_is_given() -> None:
    result = select("s", [proposal(0, bad("failed")), proposal(1, bad("diverged"))])
    assert result.shown is None
    assert "the first: the loss is nan" in result.why


def test_a_record_without_evaluation_cannot_win() -> None:
    config = pair_config()
    empty: ArmRecord = ended(config, "failed", "")
    assert not proposal(0, join(empty, None)).can_win
