"""A winner is feasible, binding and better than trivial over seeds; else the closest."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sweep.study.pairs import Pair, ProposalResult, join
from sweep.study.proposals import ProposalOutcome
from sweep.study.sampler import constraint_of
from sweep.study.selection import frontier_of, select
from tests.support.proposals import FEASIBLE, INFEASIBLE, pair, proposal
from tests.support.records import ended, finished, pair_config
from trainables.records.arm_record import ArmRecord


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


def test_of_proposals_that_do_not_bind_the_one_that_asks_for_most_is_closest() -> None:
    """The least missing share is of the one that asks for least, which is furthest away."""

    def slack(number: int, alpha: float) -> ProposalResult:
        config = pair_config(0).with_fields({"constraint.alpha": alpha})
        arms = (finished(c, [0.5, 0.25, 0.12, 0.06]) for c in (config, config.unconstrained()))
        return ProposalResult(number, {"constraint.alpha": alpha}, (join(*arms),))

    result = select("s", [slack(0, 0.1), slack(1, 0.3), slack(2, 0.2)])
    assert result.shown is not None
    assert (result.shown.number, result.shown.hindrance) == (1, "not binding")


def test_of_equal_objectives_the_one_that_demands_more_wins() -> None:
    def even(number: int, alpha: float) -> ProposalResult:
        config = pair_config(0).with_fields({"constraint.alpha": alpha})
        arms = (finished(config, [0.5, 0.25, 0.12, 0.06], objective=-0.1),)
        plain = finished(config.unconstrained(), [0.5, 0.5, 0.5, 0.2])
        return ProposalResult(number, {"constraint.alpha": alpha}, (join(*arms, plain),))

    winner = select("s", [even(0, 0.2), even(1, 0.4), even(2, 0.4), even(3, 0.3)]).winner
    assert winner is not None
    assert winner.number == 1  # and of equal demands the first


def test_one_bad_seed_keeps_a_proposal_from_winning() -> None:
    good = pair(FEASIBLE, objective=-1.0)
    for worst, outcome in (
        (pair([0.5, 0.4, 0.5, 0.2], seed=1), "infeasible"),  # in the mean, too
        (bad("diverged", 1), "diverged"),
        (bad("failed", 1), "failed"),
        (bad("stopped", 1), "stopped"),
    ):
        two_seeds = proposal(0, good, worst)
        assert two_seeds.outcome == outcome
        assert not two_seeds.can_win
        assert select("s", [two_seeds]).winner is None


def test_seeds_are_averaged_in_the_objective_and_in_the_losses_that_are_judged() -> None:
    two = proposal(0, pair(FEASIBLE, objective=-0.1), pair(INFEASIBLE, seed=1, objective=-0.3))
    assert math.isclose(two.objective, -0.2)
    # layer 2: (0.34 - 0.32) / 0.08; the worse seed alone misses 0.75
    assert math.isclose(two.worst_missing_share, 0.25)
    assert math.isnan(proposal(0, pair(FEASIBLE), bad("diverged", 1)).worst_missing_share)


def test_more_seeds_do_not_make_a_proposal_less_feasible() -> None:
    """Shares of layer 2 that are 0 in the mean: with k seeds the worst one grows, the mean not."""
    rng = np.random.default_rng(0)
    pairs = [
        [pair([0.5, 0.4, 0.32 + 0.08 * share, 0.2], seed=s) for s, share in enumerate(shares)]
        for shares in rng.normal(0.0, 0.15, (60, 12))
    ]

    def feasible(seeds: int) -> float:
        found = [proposal(0, *of[:seeds]).outcome == "feasible" for of in pairs]
        return sum(found) / len(found)

    def every_seed(seeds: int) -> float:
        found = [all(p.outcome == "feasible" for p in of[:seeds]) for of in pairs]
        return sum(found) / len(found)

    assert feasible(1) < feasible(4) < feasible(12)
    assert feasible(12) > 0.95  # of 12 seeds that each meet it with probability .75, the median
    assert every_seed(12) < 0.1 < every_seed(1)


def test_networks_that_miss_in_different_layers_do_not_average_to_a_feasible_one() -> None:
    """Alpha 0.2: one misses all of layer 2, the other 1/6 of layer 3; their mean nothing."""
    one, two = [0.5, 0.4, 0.4, 0.2], [0.5, 0.4, 0.24, 0.2]
    assert pair([0.5, 0.4, 0.32, 0.2]).outcome == "feasible"
    assert pair(one).outcome == pair(two, seed=1).outcome == "infeasible"
    both = proposal(0, pair(one), pair(two, seed=1))
    assert both.outcome == "infeasible"
    assert both.worst_missing_share == pytest.approx(1 / 6)  # of two, the better one
    assert both.certificate != "feasible"


def test_a_pair_that_does_not_bind_never_wins() -> None:
    config = pair_config()
    ours = finished(config, FEASIBLE, objective=-9.0)
    idle = proposal(0, join(ours, finished(config.unconstrained(), FEASIBLE)))
    result = select("s", [idle, proposal(1, pair(FEASIBLE, objective=-0.1))])
    assert result.winner is not None
    assert result.winner.number == 1
    alone = select("s", [idle])
    assert alone.winner is None
    assert (
        "proposal 0 is feasible but not binding (plain training meets the constraint too)"
        in alone.why
    )
    assert alone.frontier == ()


@pytest.mark.parametrize("status", ["diverged", "stopped"])
def test_a_plain_arm_without_a_result_does_not_make_a_constraint_bind(status: str) -> None:
    one, two = pair_config(0), pair_config(1)
    lost = ended(two.unconstrained(), status, "the loss is nan")
    result = proposal(
        0,
        join(finished(one, FEASIBLE), finished(one.unconstrained(), FEASIBLE)),
        join(finished(two, FEASIBLE), lost),
    )
    assert result.hindrance == "not binding"


def test_a_pair_is_not_binding_by_the_mean_of_its_unconstrained_arms() -> None:
    def one(seed: int, theirs: list[float]) -> Pair:
        config = pair_config(seed)
        return join(finished(config, FEASIBLE), finished(config.unconstrained(), theirs))

    assert proposal(0, one(0, FEASIBLE), one(1, [0.5, 0.4, 0.33, 0.2])).not_binding
    assert not proposal(0, one(0, FEASIBLE), one(1, INFEASIBLE)).not_binding


def test_a_winner_asks_for_the_least_descent_that_its_setting_demands() -> None:
    whole = proposal(0, pair(FEASIBLE))  # alpha 0.2, two factors: 1 - 0.8^2
    assert math.isclose(whole.demanded_descent, 0.36)
    assert replace(whole, least_descent=0.36).can_win
    weak = replace(whole, least_descent=0.4)
    result = select("s", [weak])
    assert result.winner is None
    assert "remove 36 % of f0, and a winner here must ask for 40 % at least" in result.why
    assert [point.number for point in result.frontier] == [0]


def summary(number: int, **fields: Any) -> ProposalOutcome:
    """What is stored of a feasible proposal, with these fields instead of its own."""
    return replace(ProposalOutcome.from_result(proposal(number, pair(FEASIBLE))), **fields)


def test_the_frontier_holds_what_no_other_beats_in_objective_and_descent() -> None:
    rng = np.random.default_rng(1)
    points = [
        summary(k, demanded_descent=float(d), objective=float(o))
        for k, (d, o) in enumerate(rng.uniform(size=(60, 2)).round(1))
    ]
    kept_out = [
        summary(60 + k, demanded_descent=2.0, objective=-1.0, hindrance=why)
        for k, why in enumerate(("not binding", "beats no trivial predictor", "not feasible"))
    ]

    def beats(p: ProposalOutcome, q: ProposalOutcome) -> bool:
        as_good = p.demanded_descent >= q.demanded_descent and p.objective <= q.objective
        equal = (p.demanded_descent, p.objective) == (q.demanded_descent, q.objective)
        return as_good and (p.number < q.number if equal else True)

    by_hand = {q.number for q in points if not any(beats(p, q) for p in points if p != q)}
    found = frontier_of([*reversed(points), *kept_out])
    assert {point.number for point in found} == by_hand
    demands = [point.demanded_descent for point in found]
    assert demands == sorted(demands)


def test_without_a_winner_the_closest_and_its_worst_layer_are_named() -> None:
    worse = [0.5, 0.4, 0.4, 0.4]
    result = select("s", [proposal(0, pair(worse)), proposal(1, pair(INFEASIBLE))])
    assert result.winner is None
    assert result.shown is not None
    assert result.shown.number == 1
    assert "misses 0.75 of the reduction required of layer 2 (allowed 0.10)" in result.why
    grown = select("s", [proposal(0, pair([0.5, 0.4, 0.9, 1.2]))])
    assert "times the reduction required of layer" in grown.why


def test_feasible_but_not_useful_is_no_winner() -> None:
    not_useful = pair([0.9, 0.8, 0.64, 0.51])
    assert not_useful.outcome == "feasible"
    result = select("s", [proposal(0, not_useful), proposal(1, pair(INFEASIBLE))])
    assert result.winner is None
    assert result.shown is not None
    assert result.shown.number == 0
    assert (
        "proposal 0 is feasible but no better than trivial predictors: held-out loss 0.51 is not "
        "below the identity prediction's 0.5" in result.why
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


def control(number: int, losses: list[float], objective: float, **knobs: Any) -> ProposalResult:
    knobs = {"weights_by": "deep_supervision", "supervision": float(number + 1), **knobs}
    config = pair_config(**knobs)
    pairs = join(
        finished(config, losses, objective=objective, multipliers=[]),
        finished(config.unconstrained(), FEASIBLE),
    )
    return replace(proposal(number, pairs), least_descent=0.9)


def test_controls_are_ranked_by_their_objective_alone() -> None:
    """Neither feasibility, nor what the unconstrained arm meets, nor a demand is asked of them."""
    useless = [0.9, 0.8, 0.64, 0.51]
    tried = [
        control(0, FEASIBLE, -0.1),
        control(1, INFEASIBLE, -0.3),
        control(2, FEASIBLE, -0.2),
        control(3, useless, -9.0),
    ]
    assert [p.outcome for p in tried] == ["feasible", "infeasible", "feasible", "feasible"]
    assert [p.hindrance for p in tried] == ["", "", "", "beats no trivial predictor"]
    result = select("s", tried)
    assert result.winner is not None
    assert result.winner.number == 1
    judgement = result.winner.judgement
    assert judgement is not None
    assert judgement.relaxed is None
    assert judgement.worst == pytest.approx(0.75)
    assert result.winner.demanded_descent == 0.0
    assert not result.winner.not_binding
    assert not any(p.is_not_binding for p in result.winner.pairs)
    assert {
        constraint_of(ProposalOutcome.from_result(p).observation(p.point), 0.0) for p in tried
    } == {0.0}
    why = select("s", [control(0, [0.9, 0.8, 0.7, 0.8], -9.0)]).why
    assert why.startswith("proposal 0 is no better than trivial predictors: held-out loss")


def test_a_control_that_did_not_finish_or_has_nothing_beside_it_cannot_win() -> None:
    config = pair_config(weights_by="last_layer")
    for status in ("diverged", "stopped", "failed"):
        broken = proposal(0, join(ended(config, status, "why"), None))
        assert broken.hindrance == "not feasible"
        assert select("s", [broken]).winner is None
    alone = proposal(0, join(finished(config, FEASIBLE), None))
    assert alone.hindrance == "no unconstrained arm"
