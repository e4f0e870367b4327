"""Judging arms: on unrelaxed held-out losses, by hand in every form, and against predictors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.study.feasibility import judge
from sweep.study.pairs import ProposalResult, join
from sweep.study.selection import select
from tests.support.records import finished, pair_config

FEASIBLE = [0.5, 0.4, 0.3, 0.2]  # ratios 0.75 and 0.67 against the allowed 0.8


def test_the_gate_is_unrelaxed_and_the_relaxed_share_is_beside_it() -> None:
    config = pair_config(resilience=0.5)
    losses = [0.5, 0.4, 0.34, 0.26]  # a little too high in layers 2 and 3
    judgement = judge([finished(config, losses)], config.constraint)  # type: ignore[arg-type]
    assert judgement is not None
    assert judgement.relaxed is not None
    assert not judgement.feasible
    # u = c lambda x what is allowed: 0.25 of 1, 0.32 and 0.272
    by_hand = [(0.4 - 1 - 0.25) / 0.2, (0.02 - 0.08) / 0.08, (-0.012 - 0.068) / 0.068]
    assert judgement.relaxed == pytest.approx(by_hand)


def test_an_arm_that_was_measured_and_then_failed_has_no_verdict() -> None:
    config = pair_config()
    measured = finished(config, FEASIBLE)
    assert judge([measured], config.constraint) is not None  # type: ignore[arg-type]
    for status in ("failed", "running"):
        assert judge([replace(measured, status=status)], config.constraint) is None  # type: ignore[arg-type]


def test_slack_on_the_violation_is_in_units_of_the_schedule() -> None:
    config = pair_config(resilience=0.5, dual_signal="violation")
    judgement = judge([finished(config, [0.5, 0.4, 0.34, 0.26])], config.constraint)  # type: ignore[arg-type]
    assert judgement is not None
    # u = c lambda s: 0.25 of 1, 0.8 and 0.64
    by_hand = [(0.4 - 1 - 0.25) / 0.2, (0.02 - 0.2) / 0.08, (-0.012 - 0.16) / 0.068]
    assert judgement.relaxed == pytest.approx(by_hand)


@pytest.mark.parametrize(
    "fields",
    [
        {"resilience_form": "slack"},
        {"resilience_form": "slack_restart"},
        {"dual_optimizer": "augmented"},  # c mu, where the multipliers are those of the last batch
    ],
)
def test_slack_variables_relax_by_what_they_are_and_not_by_c_lambda(fields: dict[str, str]) -> None:
    config = pair_config(resilience=0.5, **fields)
    arm = finished(config, [0.5, 0.4, 0.34, 0.26])
    last = replace(arm.reports[-1], layers={**arm.reports[-1].layers, "slacks": [0.1, 0.0, 0.01]})
    arm.reports[-1] = last
    judgement = judge([arm], config.constraint)  # type: ignore[arg-type]
    assert judgement is not None
    # in units of the schedule 1, 0.8, 0.64
    by_hand = [(0.4 - 1 - 0.1) / 0.2, 0.02 / 0.08, (-0.012 - 0.0064) / 0.068]
    assert judgement.relaxed == pytest.approx(by_hand)


@pytest.mark.parametrize("reference", ["bound_first", "virtual_layer0", "bound_zero"])
def test_ratios_are_judged_as_differences_are(reference: str) -> None:
    arms = [
        finished(pair_config(form=form, reference=reference, resilience=0.5), [0.5, 0.4, 0.34, 0.3],
                 multipliers=[0.4] * (4 if reference == "bound_zero" else 3))
        for form in ("difference", "ratio")
    ]  # fmt: skip
    difference, ratio = (judge([arm], arm.config.constraint) for arm in arms)  # type: ignore[arg-type]
    assert difference is not None
    assert ratio is not None
    assert ratio.held_out == pytest.approx(difference.held_out)
    assert ratio.training == pytest.approx(difference.training)
    # the signal is relative in both, and so is the slack c lambda
    assert ratio.relaxed == pytest.approx(difference.relaxed)
    assert ratio.worst_layer == difference.worst_layer == 3


def test_with_bound_zero_the_input_is_layer_0_of_the_judgement() -> None:
    config = pair_config(reference="bound_zero", reference_loss=0.4)
    judgement = judge([finished(config, [0.5, 0.4, 0.3, 0.2])], config.constraint)  # type: ignore[arg-type]
    assert judgement is not None
    # (f_0 - f0) / (alpha f0), then against 0.8 of the layer before
    by_hand = [0.1 / 0.08, 0.0, (0.3 - 0.32) / 0.08, (0.2 - 0.24) / 0.06]
    assert judgement.held_out == pytest.approx(by_hand)
    assert not judgement.feasible
    assert judgement.worst_layer == 0
    assert (
        "required of layer 0"
        in select(
            "s", [ProposalResult(0, {}, (join(finished(config, [0.5, 0.4, 0.3, 0.2]), None),))]
        ).why
    )


@pytest.mark.parametrize(
    ("losses", "gamma", "why"),
    [
        ([0.5, 0.4, 0.3, 0.2], 0.15, ""),
        ([0.5, 0.4, 0.5, 0.5], 0.15, "not below the identity"),
        ([0.5, 0.4, 0.5, float("nan")], 0.15, "not below the identity"),
        ([0.5, 0.4, 0.3, 0.2], 0.0, "train_gamma is 0"),
    ],
)
def test_useful_means_better_than_what_needs_no_training(
    losses: list[float], gamma: float, why: str
) -> None:
    config = replace(pair_config(), train_gamma=gamma)
    judgement = judge([finished(config, losses)], config.constraint)  # type: ignore[arg-type]
    assert judgement is not None
    assert judgement.beats_trivial == (not why)
    assert why in judgement.why_not_better


def test_a_constant_prediction_must_be_beaten_too() -> None:
    config = pair_config()
    references = {"identity": 0.5, "constant": 0.1, "wiener": 0.2}
    judgement = judge([finished(config, FEASIBLE, reference_losses=references)], config.constraint)  # type: ignore[arg-type]
    assert judgement is not None
    assert "not below the constant" in judgement.why_not_better
