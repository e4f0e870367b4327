"""The mathematics against closed forms, naive loops and invariants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles import TINY, naive_missing_shares, naive_violations, naive_weights
from trainables.config import ConstraintConfig
from trainables.multipliers import Multipliers
from trainables.primal_dual import (
    Scales,
    allowed_losses,
    descent_constraints,
    dual_step,
    is_feasible,
    lagrangian,
    layer_weights,
    missing_shares,
    slack,
    violations,
)
from trainables.weighting import PrimalDual, on_device

UNIT = Scales(constant_loss=1.0, identity_loss=0.5)
REFERENCES = ("bound_first", "virtual_layer0")
losses_of_layers = st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=9)


def constraint(**fields: object) -> ConstraintConfig:
    return ConstraintConfig.from_json({"reference_unit": "constant", **fields})


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("scale", ["schedule", "none"])
@given(losses=losses_of_layers, alpha=st.floats(0.01, 0.9), f0=st.floats(0.01, 10))
def test_violations_equal_the_naive_loop(
    reference: str, scale: str, losses: list[float], alpha: float, f0: float
) -> None:
    config = constraint(alpha=alpha, reference_loss=f0, reference=reference, scale=scale)
    constraints = descent_constraints(config, len(losses) - 1, UNIT)
    expected = naive_violations(losses, alpha=alpha, f0=f0, reference=reference, scale=scale)
    # 1e-9 of the largest term: the subtraction cancels
    np.testing.assert_allclose(
        violations(constraints, np.array(losses)),
        expected,
        rtol=1e-9,
        atol=1e-9 * max(losses) / min(constraints.scale_L),
    )


@pytest.mark.parametrize("reference", REFERENCES)
@given(losses=losses_of_layers, alpha=st.floats(0.01, 0.9), f0=st.floats(0.01, 10))
def test_missing_shares_equal_the_naive_loop(
    reference: str, losses: list[float], alpha: float, f0: float
) -> None:
    expected = naive_missing_shares(losses, alpha=alpha, f0=f0, reference=reference)
    for scale in ("schedule", "none"):  # judging does not depend on how the Lagrangian was scaled
        config = constraint(alpha=alpha, reference_loss=f0, reference=reference, scale=scale)
        constraints = descent_constraints(config, len(losses) - 1, UNIT)
        shares_L = missing_shares(constraints, np.array(losses))
        np.testing.assert_allclose(shares_L, expected, rtol=1e-6, atol=1e-6 * max(np.abs(expected)))


@pytest.mark.parametrize("detached", [False, True])
def test_layer_weights_equal_the_naive_loop(detached: bool) -> None:
    config = constraint(alpha=0.3, scale="none", grad_through_previous=not detached)
    multipliers = [0.5, 0.0, 2.0, 1.0]
    weights_F = layer_weights(descent_constraints(config, 4, UNIT), np.array(multipliers))
    np.testing.assert_allclose(
        weights_F, naive_weights(multipliers, alpha=0.3, detached=detached), rtol=1e-12
    )


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("scale", ["schedule", "none"])
def test_the_lagrangians_gradient_is_that_of_weighted_deep_supervision(
    reference: str, scale: str
) -> None:
    torch.manual_seed(0)
    x_L = torch.rand(5, dtype=torch.float64, requires_grad=True)
    multipliers_L = torch.rand(4, dtype=torch.float64)
    config = constraint(alpha=0.2, reference=reference, scale=scale)
    constraints = descent_constraints(config, 4, UNIT)
    constraints = on_device(constraints, torch.device("cpu"), torch.float64)
    # every loss depends on the parameters of the layers before it
    losses_F = x_L.cumsum(0).square()
    (by_lagrangian,) = torch.autograd.grad(
        lagrangian(constraints, losses_F, multipliers_L), x_L, retain_graph=True
    )
    (by_weights,) = torch.autograd.grad(
        (layer_weights(constraints, multipliers_L) * losses_F).sum(), x_L
    )
    torch.testing.assert_close(by_lagrangian, by_weights, rtol=1e-12, atol=1e-12)


@given(losses=losses_of_layers, factor=st.floats(1e-3, 1e3))
def test_missing_shares_do_not_depend_on_the_losss_unit(losses: list[float], factor: float) -> None:
    config = constraint(alpha=0.2, reference_loss=1.5, reference_unit="identity")
    shares = []
    for unit in (1.0, factor):
        scales = Scales(constant_loss=2.0 * unit, identity_loss=0.5 * unit)
        constraints = descent_constraints(config, len(losses) - 1, scales)
        measured = np.array(losses) * unit  # in the task's unit
        shares.append(missing_shares(constraints, measured / scales.constant_loss))
    np.testing.assert_allclose(*shares, rtol=1e-9, atol=1e-9 * np.abs(shares[0]).max())


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("unit", ["constant", "identity", "absolute"])
@pytest.mark.parametrize("alpha", [0.05, 0.22, 0.5])
def test_a_network_that_returns_its_input_is_infeasible(
    reference: str, unit: str, alpha: float
) -> None:
    scales = Scales(constant_loss=8.17, identity_loss=0.184)
    config = ConstraintConfig.from_json(
        {"alpha": alpha, "reference": reference, "reference_unit": unit, "reference_loss": 5.5}
    )
    constraints = descent_constraints(config, 5, scales)
    nothing_done_F = np.full(6, scales.identity_loss / scales.constant_loss)
    shares_L = missing_shares(constraints, nothing_done_F)
    np.testing.assert_allclose(shares_L[1:], 1.0)  # no descent at all
    assert not is_feasible(shares_L)


def test_an_unmeasured_or_diverged_layer_is_never_feasible() -> None:
    assert not is_feasible(np.array([]))
    assert not is_feasible(np.array([-1.0, np.nan]))
    assert not is_feasible(np.array([-1.0, np.inf]))
    assert is_feasible(np.array([-1.0, 0.10]))
    assert not is_feasible(np.array([-1.0, 0.1000001]))


def test_a_layer_after_a_loss_of_zero_is_met_only_by_staying_there() -> None:
    constraints = descent_constraints(constraint(alpha=0.2), 2, UNIT)
    assert missing_shares(constraints, np.array([1.0, 0.0, 0.0]))[1] == 0.0
    assert missing_shares(constraints, np.array([1.0, 0.0, 0.1]))[1] == np.inf


def test_slack_relaxes_the_missing_share() -> None:
    config = constraint(alpha=0.5, scale="none", dual_signal="violation", resilience=0.05)
    constraints = descent_constraints(config, 2, UNIT)
    losses_F = np.array([1.0, 1.0, 0.6])
    strict_L = missing_shares(constraints, losses_F)
    slack_L = slack(config, constraints, np.array([0.0, 1.0]), losses_F)
    relaxed_L = missing_shares(constraints, losses_F, slack_L)
    assert strict_L[1] == pytest.approx(0.2)
    assert relaxed_L[1] == pytest.approx(0.1)


@pytest.mark.parametrize("signal", ["violation", "relative"])
@pytest.mark.parametrize("scale", ["schedule", "none"])
def test_at_rest_the_violation_equals_the_slack(signal: str, scale: str) -> None:
    """Losses that do not move: the multipliers settle where resilience grants what is missed."""
    config = constraint(
        alpha=0.3, scale=scale, dual_signal=signal, resilience=0.5, dual_lr=0.1, signal_clip=None
    )
    run = TINY.with_fields({"dtype": "float64"})
    constraints = descent_constraints(config, 3, UNIT)
    weighting = PrimalDual(
        replace(run, constraint=config), constraints, torch.device("cpu"), torch.float64
    )
    losses_F = torch.tensor([1.0, 1.2, 0.9, 0.8], dtype=torch.float64)  # every layer misses
    for step in range(2_000):
        weighting.observe(step, losses_F, 1.0)
    series = weighting.series()
    expected = violations(constraints, losses_F.numpy())
    assert (expected > 0).all()
    np.testing.assert_allclose(series["slacks"].numpy(), expected, rtol=1e-9)


def test_a_loss_of_zero_moves_no_multiplier() -> None:
    config = constraint(alpha=0.3)
    constraints = descent_constraints(config, 3, UNIT)
    weighting = PrimalDual(
        replace(TINY, constraint=config), constraints, torch.device("cpu"), torch.float32
    )
    weighting.observe(0, torch.zeros(4), 1.0)
    assert (weighting.multipliers.values_L == 0).all()


def test_what_is_allowed_is_the_loss_less_its_violation() -> None:
    constraints = descent_constraints(
        constraint(alpha=0.5, scale="none", reference_loss=2.0), 2, UNIT
    )
    np.testing.assert_allclose(allowed_losses(constraints, np.array([9.0, 1.0, 0.7])), [2.0, 0.5])


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=3))
def test_projection_is_idempotent_and_keeps_multipliers_nonnegative(signal: list[float]) -> None:
    once = dual_step(np.ones(3), np.array(signal), dual_lr=0.7, resilience=0.1)
    assert (once >= 0).all()
    np.testing.assert_array_equal(dual_step(once, np.zeros(3), dual_lr=0.0), once)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("resilience", [0.0, 0.1, 1.0, 4.0])
def test_multipliers_reach_the_closed_form(optimizer: str, resilience: float) -> None:
    """Minimise x^2 subject to 1 - x <= u at cost u^2 / (2c).

    x* = 1 / (1 + 2c), lambda* = 2 / (1 + 2c), u* = c lambda*.
    """
    config = ConstraintConfig.from_json(
        {
            "dual_lr": 0.01,
            "resilience": resilience,
            "dual_optimizer": optimizer,
            "signal_clip": None,
        }
    )
    multipliers = Multipliers(1, config, torch.device("cpu"), torch.float64)
    x = torch.zeros(1, dtype=torch.float64)
    steps = 20_000
    for step in range(steps):
        lam = multipliers.values_L.clone()
        gradient = 2 * x - lam  # of x^2 + lambda (1 - x); simultaneous: the dual sees the same x
        # at a constant rate Adam ends in a limit cycle on a hard constraint, so both rates decay
        factor = min(1.0, (steps - step) / (0.5 * steps))
        multipliers.ascend(1 - x, factor)
        x = x - 0.05 * factor * gradient
    expected_x, expected_lam = 1 / (1 + 2 * resilience), 2 / (1 + 2 * resilience)
    assert float(x) == pytest.approx(expected_x, abs=1e-4)
    assert float(multipliers.values_L) == pytest.approx(expected_lam, abs=2e-4)
    granted = resilience * float(multipliers.values_L)
    assert granted == pytest.approx(1 - float(x), abs=2e-3)  # u* = 1 - x*
