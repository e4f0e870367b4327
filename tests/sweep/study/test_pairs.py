"""Joining arms: by identity, judged under the pair's own constraint, never feasible by absence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.study.pairs import join
from tests.support.records import ended, finished, pair_config
from trainables.errors import InvalidValue

FEASIBLE = [0.5, 0.4, 0.3, 0.2]  # ratios 0.75 and 0.67 against the allowed 0.8
FLAT = [0.5, 0.4, 0.4, 0.4]


def test_a_pair_carries_both_arms_judged_by_its_own_constraint() -> None:
    config = pair_config()
    pair = join(finished(config, FEASIBLE), finished(config.unconstrained(), FLAT))
    assert pair.outcome == "feasible"
    assert pair.judgement is not None
    assert pair.unconstrained_judgement is not None
    assert pair.judgement.held_out == pytest.approx(
        [(0.4 - 1) / 0.2, (0.3 - 0.32) / 0.08, (0.2 - 0.24) / 0.06]
    )
    assert pair.unconstrained_judgement.held_out[1:] == pytest.approx([1.0, 1.0])
    assert pair.unconstrained_judgement.worst == pytest.approx(1.0)
    assert not pair.is_not_binding


def test_a_constraint_that_the_unconstrained_arm_meets_is_not_binding() -> None:
    config = pair_config()
    assert join(
        finished(config, FEASIBLE), finished(config.unconstrained(), FEASIBLE)
    ).is_not_binding


def test_arms_that_are_no_pair_are_refused() -> None:
    ours, other = pair_config(seed=0), pair_config(seed=1)
    with pytest.raises(InvalidValue, match="is not the baseline"):
        join(finished(ours, FEASIBLE), finished(other.unconstrained(), FLAT))
    with pytest.raises(InvalidValue, match="has no constraint"):
        join(finished(ours.unconstrained(), FEASIBLE), None)
    with pytest.raises(InvalidValue, match="still running"):
        join(replace(finished(ours, FEASIBLE), status="running"), None)


def test_arms_may_differ_in_what_the_proposal_sets_and_in_nothing_else() -> None:
    theirs = finished(pair_config().unconstrained(), FLAT)
    point = {"steps": 20, "weight_decay": 0.1, "constraint.alpha": 0.3}
    ours = finished(pair_config().with_fields(point), FEASIBLE)
    assert join(ours, theirs, sets=point).unconstrained == theirs
    for sets in ((), ("steps",), ("steps", "constraint.alpha")):
        with pytest.raises(InvalidValue, match="is not the baseline"):
            join(ours, theirs, sets=sets)
    other = finished(pair_config(seed=1).with_fields(point), FEASIBLE)
    with pytest.raises(InvalidValue, match="is not the baseline"):
        join(other, theirs, sets=point)


@pytest.mark.parametrize("status", ["diverged", "stopped", "failed"])
def test_an_arm_that_did_not_finish_is_never_feasible(status: str) -> None:
    pair = join(ended(pair_config(), status, "why"), finished(pair_config().unconstrained(), FLAT))
    assert pair.outcome == status
    assert pair.judgement is None
    assert pair.gains is None


def test_a_finished_arm_without_measurements_is_failed() -> None:
    assert (
        join(replace(finished(pair_config(), FEASIBLE), evaluation=None), None).outcome == "failed"
    )


def test_a_gain_is_above_0_where_the_constrained_arm_is_better() -> None:
    config = pair_config()
    ours = finished(config, FEASIBLE, scores={"0.00": 0.5, "0.20": 4.0}, objective=-0.3)
    theirs = finished(
        config.unconstrained(), FLAT, scores={"0.00": 1.5, "0.20": 4.0}, objective=-0.2
    )
    gains = join(ours, theirs).gains
    assert gains is not None
    assert gains.mean_over_gammas == pytest.approx(0.5)
    assert gains.objective == pytest.approx(0.1)
    assert gains.held_out_loss == pytest.approx(0.2)
    assert gains.at_gamma["0.20"] == 0.0
