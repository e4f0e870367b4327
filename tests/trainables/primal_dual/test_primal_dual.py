"""The mathematics against closed forms, naive loops and invariants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.oracles import (
    TINY,
    NaiveAdam,
    naive_missing_shares,
    naive_violations,
    naive_weights,
)
from trainables.config.arm import ConstraintConfig
from trainables.primal_dual.constraints import (
    Scales,
    allowed_losses,
    descent_constraints,
    is_feasible,
    layer_weights,
    missing_shares,
    violations,
)
from trainables.primal_dual.dual_steps import dual_step
from trainables.primal_dual.dual_variables import Multipliers, Slacks
from trainables.primal_dual.lagrangian import PrimalDual
from trainables.primal_dual.resilience import slack
from trainables.primal_dual.weighting import on_device

UNIT = Scales(constant_loss=1.0, identity_loss=0.5)
REFERENCES = ("bound_first", "virtual_layer0", "bound_zero")
FORMS = ("difference", "ratio")
losses_of_layers = st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=9)


def constraint(**fields: object) -> ConstraintConfig:
    return ConstraintConfig.from_json({"reference_unit": "constant", **fields})


def primal_dual(config: ConstraintConfig, dtype: torch.dtype) -> PrimalDual:
    run = replace(TINY, constraint=config, steps=100_000)
    return PrimalDual(run, UNIT, torch.device("cpu"), dtype, steps_per_epoch=10)


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("scale", ["schedule", "none"])
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=40)  # of each of twelve
@given(losses=losses_of_layers, alpha=st.floats(0.01, 0.9), f0=st.floats(0.01, 10))
def test_violations_equal_the_naive_loop(
    reference: str, scale: str, form: str, losses: list[float], alpha: float, f0: float
) -> None:
    asked = {"alpha": alpha, "reference": reference, "scale": scale, "form": form}
    config = constraint(reference_loss=f0, **asked)
    constraints = descent_constraints(config, len(losses) - 1, UNIT)
    expected = naive_violations(losses, f0=f0, **asked)  # type: ignore[arg-type]
    # 1e-9 of the largest term: the subtraction cancels
    largest = max(losses) / min(constraints.scale_L)
    if form == "ratio":
        largest = max(losses) / min(*losses, f0)
    np.testing.assert_allclose(
        violations(constraints, np.array(losses)), expected, rtol=1e-9, atol=1e-9 * largest
    )


@pytest.mark.parametrize("reference", REFERENCES)
@given(losses=losses_of_layers, alpha=st.floats(0.01, 0.9), f0=st.floats(0.01, 10))
def test_missing_shares_equal_the_naive_loop(
    reference: str, losses: list[float], alpha: float, f0: float
) -> None:
    expected = naive_missing_shares(losses, alpha=alpha, f0=f0, reference=reference)
    # judging does not depend on how the Lagrangian was scaled, nor on its form
    for scale, form in (("schedule", "difference"), ("none", "difference"), ("none", "ratio")):
        config = constraint(
            alpha=alpha, reference_loss=f0, reference=reference, scale=scale, form=form
        )
        constraints = descent_constraints(config, len(losses) - 1, UNIT)
        shares_L = missing_shares(constraints, np.array(losses))
        np.testing.assert_allclose(shares_L, expected, rtol=1e-6, atol=1e-6 * max(np.abs(expected)))
        assert len(shares_L) == len(losses) - constraints.first_layer
        if form == "ratio":  # the ratio form's violation is alpha times the missing share
            np.testing.assert_allclose(
                violations(constraints, np.array(losses)), alpha * shares_L, rtol=1e-9, atol=1e-12
            )


@pytest.mark.parametrize("detached", [False, True])
def test_layer_weights_equal_the_naive_loop(detached: bool) -> None:
    config = constraint(alpha=0.3, scale="none", grad_through_previous=not detached)
    multipliers = [0.5, 0.0, 2.0, 1.0]
    constraints = descent_constraints(config, 4, UNIT)
    weights_F = layer_weights(constraints, np.array(multipliers), np.ones(5))
    np.testing.assert_allclose(
        weights_F, naive_weights(multipliers, alpha=0.3, detached=detached), rtol=1e-12
    )


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("scale", ["schedule", "none"])
@pytest.mark.parametrize("form", FORMS)
def test_the_lagrangians_gradient_is_that_of_weighted_deep_supervision(
    reference: str, scale: str, form: str
) -> None:
    torch.manual_seed(0)
    x_L = torch.rand(5, dtype=torch.float64, requires_grad=True)
    config = constraint(alpha=0.2, reference=reference, scale=scale, form=form)
    constraints = descent_constraints(config, 4, UNIT)
    constraints = on_device(constraints, torch.device("cpu"), torch.float64)
    multipliers_L = torch.rand(len(constraints.bounds_L), dtype=torch.float64)
    # every loss depends on the parameters of the layers before it
    losses_F = x_L.cumsum(0).square()
    lagrangian = losses_F[-1] + multipliers_L @ violations(constraints, losses_F)  # eq. (5)
    (by_lagrangian,) = torch.autograd.grad(lagrangian, x_L, retain_graph=True)
    (by_weights,) = torch.autograd.grad(
        (layer_weights(constraints, multipliers_L, losses_F.detach()) * losses_F).sum(), x_L
    )
    torch.testing.assert_close(by_lagrangian, by_weights, rtol=1e-12, atol=1e-12)


def test_detached_ratios_never_pay_a_layer_to_rise() -> None:
    """d/df of sum lambda_l f_l / p_l with p held: lambda_l / p_l, whatever the losses."""
    config = constraint(alpha=0.3, form="ratio", grad_through_previous=False)
    losses_F, multipliers_L = np.array([9.0, 2.0, 4.0, 1.0]), np.array([0.5, 1.0, 3.0])
    weights_F = layer_weights(descent_constraints(config, 3, UNIT), multipliers_L, losses_F)
    np.testing.assert_allclose(weights_F, [0.0, 0.5 / 1.0, 1.0 / 2.0, 1.0 + 3.0 / 4.0])
    through = descent_constraints(replace(config, grad_through_previous=True), 3, UNIT)
    # less lambda_{l+1} f_{l+1} / f_l^2
    np.testing.assert_allclose(
        layer_weights(through, multipliers_L, losses_F),
        [0.0, 0.5 - 4.0 / 4.0, 0.5 - 3.0 / 16.0, 1.75],
    )


def test_a_ratio_to_a_loss_of_zero_stays_a_number() -> None:
    config = constraint(alpha=0.3, form="ratio", reference="bound_zero")
    constraints = on_device(
        descent_constraints(config, 3, UNIT), torch.device("cpu"), torch.float32
    )
    losses_F = torch.tensor([0.0, 1e4, 0.0, 0.0])
    weights_F = layer_weights(constraints, torch.zeros(4), losses_F)
    assert weights_F.tolist() == [0.0, 0.0, 0.0, 1.0]
    assert violations(constraints, losses_F)[3] == 0.0  # nothing is left to remove: met


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
    np.testing.assert_allclose(shares_L[1:], 1.0)  # no descent at all: layers 2..L, or 1..L
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
@pytest.mark.parametrize("resilience_form", ["decay", "slack"])
@pytest.mark.parametrize("form", FORMS)
def test_at_rest_the_violation_equals_the_slack(
    signal: str, scale: str, resilience_form: str, form: str
) -> None:
    """Losses that do not move: the multipliers settle where resilience grants what is missed."""
    config = constraint(
        alpha=0.3, scale=scale, dual_signal=signal, resilience=0.5, dual_lr=0.1, signal_clip=None,
        resilience_form=resilience_form, form=form,
    )  # fmt: skip
    constraints = descent_constraints(config, 3, UNIT)
    weighting = primal_dual(config, torch.float64)
    losses_F = torch.tensor([1.0, 1.2, 0.9, 0.8], dtype=torch.float64)  # every layer misses
    for step in range(600):  # 0.95^600 of the way is left, or less
        weighting.observe(step, losses_F, 1.0)
    series = weighting.series()
    expected = violations(constraints, losses_F.numpy())
    assert (expected > 0).all()
    np.testing.assert_allclose(series["slacks"].numpy(), expected, rtol=1e-9)


def test_a_loss_of_zero_moves_no_multiplier() -> None:
    config = constraint(alpha=0.3)
    weighting = primal_dual(config, torch.float32)
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


def toy(
    steps: int, restart_every: int | None = None, decay: bool = True, **fields: object
) -> tuple[float, float, float]:
    """(x, lambda, u) of: minimise x^2 subject to 1 - x <= u at cost u^2 / (2c)."""
    config = ConstraintConfig.from_json({"dual_lr": 0.02, "signal_clip": None, **fields})
    multipliers = Multipliers(1, config, torch.device("cpu"), torch.float64)
    slacks = Slacks(1, config, torch.device("cpu"), torch.float64)
    has_slacks = config.resilience_form != "decay"
    x = torch.zeros(1, dtype=torch.float64)
    for step in range(steps):
        lam = multipliers.values_L.clone()
        gradient = 2 * x - lam  # of x^2 + lambda (1 - x); simultaneous: the dual sees the same x
        # at a constant rate Adam ends in a limit cycle on a hard constraint, so both rates decay
        factor = min(1.0, (steps - step) / (0.5 * steps)) if decay else 1.0
        if has_slacks:
            multipliers.ascend(1 - x - slacks.values_L, factor)
            slacks.descend(multipliers.values_L, factor)
        else:
            multipliers.ascend(1 - x, factor)
        x = x - 0.1 * factor * gradient
        if restart_every is not None and (step + 1) % restart_every == 0:
            slacks.restart()
    granted = slacks.values_L if has_slacks else config.resilience * multipliers.values_L
    return float(x), float(multipliers.values_L), float(granted)


def naive_toy(steps: int, restart_every: int, optimizer: str) -> list[float]:
    """Every x of the same with c = 1, dual_lr 0.002 and restarts, in plain numbers."""
    x = lam = u = 0.0
    of_lam, of_u = NaiveAdam(0.002), NaiveAdam(0.002)
    history = []
    for step in range(steps):
        gradient, signal = 2 * x - lam, 1 - x - u
        if optimizer == "sgd":
            lam = max(0.0, lam + 0.002 * signal)
            u = max(0.0, u - 0.002 * (u - lam))
        else:
            lam = max(0.0, lam + of_lam.step(signal))
            u = max(0.0, u - of_u.step(u - lam))
        x -= 0.1 * gradient
        if (step + 1) % restart_every == 0:
            u, of_u = 0.0, NaiveAdam(0.002)
        history.append(x)
    return history


@pytest.mark.parametrize(
    ("optimizer", "form", "resilience"),
    [(optimizer, "decay", c) for optimizer in ("sgd", "adam") for c in (0.0, 0.1, 1.0, 4.0)]
    + [("sgd", "slack", c) for c in (0.1, 1.0, 4.0)]
    # at c = 4 the slack is large against Adam's steps, and the two Adams circle the solution
    + [("adam", "slack", c) for c in (0.1, 1.0)],
)
def test_multipliers_reach_the_closed_form(optimizer: str, form: str, resilience: float) -> None:
    """x* = 1 / (1 + 2c), lambda* = 2 / (1 + 2c), u* = c lambda*: both forms of resilience."""
    steps = 2_000 if form == "decay" else 1_500
    x, lam, granted = toy(
        steps, dual_optimizer=optimizer, resilience=resilience, resilience_form=form
    )
    expected_x, expected_lam = 1 / (1 + 2 * resilience), 2 / (1 + 2 * resilience)
    assert x == pytest.approx(expected_x, abs=1e-4)
    assert lam == pytest.approx(expected_lam, abs=2e-4)
    assert granted == pytest.approx(1 - expected_x, abs=2e-3)  # u* = 1 - x*


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_restarts_of_the_slack_equal_a_loop_in_plain_numbers(optimizer: str) -> None:
    x, _, _ = toy(
        420, 50, decay=False, dual_optimizer=optimizer, resilience=1.0, resilience_form="slack",
        dual_lr=0.002,
    )  # fmt: skip
    assert x == pytest.approx(naive_toy(420, 50, optimizer)[-1], rel=1e-9)


def test_restarts_of_the_slack_change_the_problem() -> None:
    """The solution is x* = 0.333: nearer to the hard constraint's 1 the oftener they come."""

    def settled(restart_every: int, optimizer: str) -> float:
        return float(np.mean(naive_toy(20_000, restart_every, optimizer)[10_000:]))

    assert settled(50, "sgd") == pytest.approx(0.913, abs=1e-3)
    assert settled(50, "adam") == pytest.approx(0.951, abs=1e-3)
    assert settled(500, "sgd") == pytest.approx(0.576, abs=2e-3)
    assert 0.4 < settled(500, "adam") < 0.6
    assert settled(100_000, "sgd") == pytest.approx(1 / 3, abs=1e-3)


def test_a_restart_forgets_the_slack_and_adams_memory_of_it() -> None:
    config = ConstraintConfig(resilience_form="slack", resilience=0.5, dual_optimizer="adam")
    fresh, restarted = (Slacks(2, config, torch.device("cpu"), torch.float64) for _ in range(2))
    for _ in range(5):
        restarted.descend(torch.tensor([3.0, -1.0]), 1.0)
    assert restarted.values_L[0] > 0
    restarted.restart()
    assert (restarted.values_L == 0).all()
    for slacks in (fresh, restarted):
        slacks.descend(torch.tensor([0.1, 0.2]), 1.0)
    assert (fresh.values_L == restarted.values_L).all()
