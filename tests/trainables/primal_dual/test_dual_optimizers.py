"""Dual optimisers: where they rest, against two libraries, and two that are one on equalities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cooper
import numpy as np
import pytest
import torch
from humancompatible.train.dual_optim import ALM, nuPI
from torch import Tensor

from tests.support.oracles import TINY
from trainables.config.arm import ConstraintConfig
from trainables.errors import InvalidValue
from trainables.primal_dual.constraints import Scales, violations
from trainables.primal_dual.dual_steps import (
    augmented_multipliers,
    bare_decay_step,
    dual_step,
    nupi_step,
)
from trainables.primal_dual.dual_variables import Multipliers
from trainables.primal_dual.lagrangian import PrimalDual

CPU = torch.device("cpu")
UNIT = Scales(constant_loss=1.0, identity_loss=1.0)
STEPS = 100
ALPHA, F0 = 0.3, 0.9


def multipliers_of(count: int = 1, **fields: Any) -> Multipliers:
    config = ConstraintConfig.from_json({"signal_clip": None, **fields})
    return Multipliers(count, config, CPU, torch.float64)


def toy(steps: int, *, decays: bool, **fields: Any) -> tuple[float, float]:
    """(x, lambda) of: minimise x^2 subject to 1 - x <= 0, relaxed as the optimiser relaxes."""
    multipliers = multipliers_of(**{"dual_lr": 0.02, **fields})
    x = torch.zeros(1, dtype=torch.float64)
    for step in range(steps):
        gradient = 2 * x - multipliers.effective(1 - x)  # of x^2 + lambda (1 - x)
        factor = min(1.0, (steps - step) / (0.5 * steps)) if decays else 1.0
        multipliers.ascend(1 - x, factor)
        x = x - 0.1 * factor * gradient
    return float(x), float(multipliers.effective(1 - x))


AUGMENTED = {"dual_optimizer": "augmented"}
RESTS: list[tuple[dict[str, Any], float]] = [  # and lambda* = 2 x* in all of them
    ({"dual_optimizer": "adamw", "resilience": 2.0}, 1 / 4),  # lambda = 1 / c
    ({"dual_optimizer": "adamw", "resilience": 4.0}, 1 / 8),
    ({"dual_optimizer": "adamw", "resilience": 0.0}, 1.0),
    # s = kappa lambda with kappa = c / eta
    ({"dual_optimizer": "bare_decay", "resilience": 0.0}, 1.0),
    ({"dual_optimizer": "bare_decay", "resilience": 0.002}, 1 / (1 + 2 * 0.1)),
    ({"dual_optimizer": "bare_decay", "resilience": 0.02}, 1 / 3),
    # s = c lambda, whatever kappa_p
    ({"dual_optimizer": "nupi", "resilience": 0.0}, 1.0),
    ({"dual_optimizer": "nupi", "resilience": 1.0, "dual_kp": 0.3}, 1 / 3),
    ({"dual_optimizer": "nupi", "resilience": 1.0, "dual_kp": 3.0}, 1 / 3),
    # s = lambda / (1 / c + p)
    ({**AUGMENTED, "resilience": 0.0, "dual_penalty": 0.5}, 1.0),
    ({**AUGMENTED, "resilience": 1.0, "dual_penalty": 2.0}, 3 / 5),
    ({**AUGMENTED, "resilience": 0.5, "dual_penalty": 0.0}, 1 / 2),
]


@pytest.mark.parametrize(("fields", "x"), RESTS)
def test_each_rests_where_its_closed_form_says(fields: dict[str, Any], x: float) -> None:
    decays = fields["dual_optimizer"] != "bare_decay"  # which a rate of 0 takes to 0
    found = toy(2_000, decays=decays, **fields)
    # Adam's second moments are 1,000 steps behind
    error = 5e-3 if fields["dual_optimizer"] == "adamw" else 2e-4
    np.testing.assert_allclose(found, (x, 2 * x), atol=error)


@pytest.mark.parametrize("signal", [0.01, 3.0])
def test_adamw_rests_at_one_over_c_whatever_the_size_of_the_signal(signal: float) -> None:
    """With coupled decay the same signal rests at s = c lambda."""
    signal_L = torch.tensor([signal, -signal], dtype=torch.float64)
    adamw = multipliers_of(2, dual_optimizer="adamw", resilience=0.8, dual_lr=0.1)
    for _ in range(300):  # 0.92^300
        adamw.ascend(signal_L, 1.0)
    np.testing.assert_allclose(adamw.values_L, [1 / 0.8, 0.0], rtol=1e-5)


def test_a_rate_that_ends_takes_bare_multipliers_along() -> None:
    bare = {"dual_optimizer": "bare_decay", "resilience": 0.02}
    x, lam = toy(2_000, decays=True, **bare)
    assert lam < 0.05  # against 2 / 3 at the whole rate
    assert x < 1 / 3


class Problem:
    """Four losses, quadratic in three numbers, of which the last three must descend."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.matrices = torch.randn(4, 5, 3, generator=generator, dtype=torch.float64)
        self.targets = torch.randn(4, 5, generator=generator, dtype=torch.float64)
        self.x = torch.zeros(3, dtype=torch.float64, requires_grad=True)

    def losses(self) -> Tensor:
        return ((self.matrices @ self.x - self.targets) ** 2).mean(dim=1)


class Cooper(cooper.ConstrainedMinimizationProblem):
    """The same constraints, from docs/method.md's formulas."""

    def __init__(self, problem: Problem, penalty: float | None) -> None:
        super().__init__()
        self.problem = problem
        form = cooper.formulations.Lagrangian
        coefficient = None
        if penalty is not None:
            form = cooper.formulations.AugmentedLagrangian
            coefficient = cooper.penalty_coefficients.DensePenaltyCoefficient(
                torch.full((3,), penalty, dtype=torch.float64)
            )
        self.descent = cooper.Constraint(
            constraint_type=cooper.ConstraintType.INEQUALITY,
            formulation_type=form,
            multiplier=cooper.multipliers.DenseMultiplier(num_constraints=3, dtype=torch.float64),
            penalty_coefficient=coefficient,
        )

    def compute_cmp_state(self) -> cooper.CMPState:
        f = self.problem.losses()
        gaps = [f[1] - F0, f[2] - (1 - ALPHA) * f[1], f[3] - (1 - ALPHA) * f[2]]
        state = cooper.ConstraintState(violation=torch.stack(gaps))
        return cooper.CMPState(loss=f[3], observed_constraints={self.descent: state})


def dual_of(problem: Cooper, config: ConstraintConfig) -> torch.optim.Optimizer:
    """The optimiser of torch or of cooper that ours of the same name has to equal."""
    rates: dict[str, Any] = {"lr": config.dual_lr, "maximize": True}
    rates["weight_decay"] = config.resilience
    kinds: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    if config.dual_optimizer == "nupi":
        zeros = cooper.optim.torch_optimizers.nuPIInitType.ZEROS
        return cooper.optim.nuPI(problem.dual_parameters(), Kp=1.0, init_type=zeros, **rates)
    return kinds.get(config.dual_optimizer, torch.optim.SGD)(problem.dual_parameters(), **rates)


@pytest.mark.parametrize("resilience", [0.0, 0.3])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "nupi", "augmented"])
def test_a_hundred_steps_agree_with_cooper(optimizer: str, resilience: float) -> None:
    knobs = {"nupi": {"dual_kp": 0.7}, "augmented": {"dual_penalty": 0.7}}.get(optimizer, {})
    config = ConstraintConfig.from_json(
        {
            "alpha": ALPHA, "reference_loss": F0, "reference_unit": "constant", "scale": "none",
            "dual_optimizer": optimizer, "resilience": resilience, "dual_lr": 0.05,
            "dual_signal": "violation", "signal_clip": None, **knobs,
        }
    )  # fmt: skip
    mine, theirs = Problem(), Problem()
    run = replace(TINY, constraint=config, steps=STEPS)
    ours = PrimalDual(run, UNIT, CPU, torch.float64, steps_per_epoch=10)
    primal = torch.optim.SGD([mine.x], lr=0.02)
    problem = Cooper(theirs, config.dual_penalty if optimizer == "augmented" else None)
    their_primal, dual = torch.optim.SGD([theirs.x], lr=0.02), dual_of(problem, config)
    roller = cooper.optim.SimultaneousOptimizer(problem, their_primal, dual)
    largest = 0.0
    for step in range(STEPS):
        factor = min(1.0, (STEPS - step) / (0.5 * STEPS))
        losses_F = mine.losses()
        seen_F = losses_F.detach()
        primal.zero_grad()
        (ours.weights(step, seen_F) * losses_F).sum().backward()
        primal.step()
        ours.observe(step, seen_F, factor)
        dual.param_groups[0]["lr"] = config.dual_lr * factor
        if optimizer == "nupi":  # cooper multiplies kappa_p by the rate, too
            kp = config.dual_kp / (config.dual_lr * factor)
            dual.param_groups[0]["Kp"] = torch.tensor(kp, dtype=torch.float64)
        roller.roll()
        theirs_L = problem.descent.multiplier.weight.detach()
        largest = max(largest, float(theirs_L.max()))
        np.testing.assert_allclose(ours.multipliers.values_L, theirs_L, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(mine.x.detach(), theirs.x.detach(), rtol=1e-11, atol=1e-12)
    assert largest > 0.1
    assert (theirs_L == 0).any()  # a multiplier was projected


def their_dual(config: ConstraintConfig) -> ALM | nuPI:
    """The dual optimiser of humancompatible-train that ours of the same name has to equal."""
    common: dict[str, Any] = {"init_duals": torch.zeros(3, dtype=torch.float64), "is_ineq": True}
    common["dual_range"] = (0.0, 1e9)
    if config.dual_optimizer == "nupi":
        dual = nuPI(nu=0.0, ki=config.dual_lr, kp=config.dual_kp, **common)
        dual.param_groups[0]["_momentum_initialized"] = True  # kappa_p in its first step, too
        return dual
    is_augmented = config.dual_optimizer == "augmented"
    return ALM(lr=config.dual_lr, penalty=config.dual_penalty if is_augmented else 0.0, **common)


@pytest.mark.parametrize(
    ("optimizer", "knobs"),
    [
        ("sgd", {}),
        ("nupi", {"dual_kp": 0.7}),
        # Theirs ascends along ([mu + p s]_+ - mu) / p, which is our step where the rate is p.
        ("augmented", {"dual_penalty": 0.05}),
    ],
)
def test_a_hundred_steps_agree_with_humancompatible_train(
    optimizer: str, knobs: dict[str, float]
) -> None:
    config = ConstraintConfig.from_json(
        {
            "alpha": ALPHA, "reference_loss": F0, "reference_unit": "constant", "scale": "none",
            "dual_optimizer": optimizer, "dual_lr": 0.05, "dual_signal": "violation",
            "signal_clip": None, **knobs,
        }
    )  # fmt: skip
    mine, theirs = Problem(), Problem()
    run = replace(TINY, constraint=config, steps=STEPS)
    ours = PrimalDual(run, UNIT, CPU, torch.float64, steps_per_epoch=10)
    primal = torch.optim.SGD([mine.x], lr=0.02)
    their_primal, dual = torch.optim.SGD([theirs.x], lr=0.02), their_dual(config)
    largest = 0.0
    for step in range(STEPS):
        losses_F = mine.losses()
        primal.zero_grad()
        (ours.weights(step, losses_F.detach()) * losses_F).sum().backward()
        primal.step()
        ours.observe(step, losses_F.detach(), 1.0)
        f = theirs.losses()
        gaps = torch.stack([f[1] - F0, f[2] - (1 - ALPHA) * f[1], f[3] - (1 - ALPHA) * f[2]])
        their_primal.zero_grad()
        dual.forward(f[3], gaps).backward()
        their_primal.step()
        dual.update(gaps.detach())
        largest = max(largest, float(dual.duals.max()))
        np.testing.assert_allclose(ours.multipliers.values_L, dual.duals, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(mine.x.detach(), theirs.x.detach(), rtol=1e-11, atol=1e-12)
    assert largest > 0.1
    assert (dual.duals == 0).any()  # a multiplier was projected


def test_bare_decay_equals_a_loop_in_plain_numbers() -> None:
    multipliers = multipliers_of(2, dual_optimizer="bare_decay", resilience=0.1, dual_lr=0.05)
    rng = np.random.default_rng(0)
    expected = [0.0, 0.0]
    for step in range(STEPS):
        signals, factor = rng.normal(0.2, 1.0, 2).tolist(), 1.0 - step / STEPS
        multipliers.ascend(torch.tensor(signals, dtype=torch.float64), factor)
        pairs = zip(expected, signals, strict=True)
        expected = [max(0.0, 0.9 * lam + 0.05 * factor * s) for lam, s in pairs]
        np.testing.assert_allclose(multipliers.values_L, expected, rtol=1e-12, atol=1e-15)
    assert max(expected) > 0
    one = bare_decay_step(np.array([1.0]), np.array([0.5]), dual_lr=0.1, resilience=0.02)
    np.testing.assert_allclose(
        one, dual_step(np.ones(1), np.full(1, 0.5), dual_lr=0.1, resilience=0.2)
    )


@pytest.mark.parametrize("penalty", [0.5, 2.0])
def test_nupi_is_the_augmented_lagrangian_on_equalities(penalty: float) -> None:
    """arXiv 2509.22500: with kappa_p = p, and the primal step after the dual one.

    Equalities have no projection; multipliers far above 0 keep the steps from projecting.
    """
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=(2, 3)), generator.normal(size=2)
    far = 50.0  # in the place of the origin of the multipliers
    x = y = np.zeros(3)
    lam, mu, before = np.full(2, far), np.full(2, far), np.zeros(2)
    eta, rate = 0.05, 0.02
    history = []
    for _ in range(300):
        s = a @ x - b
        lam, before = nupi_step(lam, s, before, dual_lr=eta, kp=penalty), s
        x = x - rate * (2 * x + a.T @ (lam - far))
        s = a @ y - b
        mu = dual_step(mu, s, dual_lr=eta)
        effective = augmented_multipliers(mu, s, penalty=penalty)
        y = y - rate * (2 * y + a.T @ (effective - far))
        assert min(*lam, *mu, *effective) > 0
        np.testing.assert_allclose(lam, effective, rtol=1e-12)
        np.testing.assert_allclose(x, y, atol=1e-12)
        history.append(float(abs(s).max()))
    assert history[-1] < 0.05 * history[0]  # and both solve the problem


def test_only_nupi_keeps_a_multiplier_of_a_satisfied_layer_under_noise() -> None:
    """It projects the sum: kappa_p (s - the lowest s since), instead of [mu + p s]_+ = 0."""
    signals = np.random.default_rng(0).normal(-0.5, 0.1, 500).clip(max=-0.1)
    lam, mu, before = np.zeros(1), np.zeros(1), np.zeros(1)
    kept = []
    for s in signals.reshape(-1, 1):
        lam, before = nupi_step(lam, s, before, dual_lr=0.0, kp=1.0), s
        mu = dual_step(mu, s, dual_lr=0.0)
        assert augmented_multipliers(mu, s, penalty=1.0) == 0
        kept.append(float(lam[0]))
        np.testing.assert_allclose(kept[-1], s[0] - signals[: len(kept)].min(), atol=1e-12)
    assert np.mean(kept[250:]) > 0.2


@pytest.mark.parametrize("optimizer", ["sgd", "bare_decay", "nupi", "augmented"])
def test_a_report_says_what_is_granted_at_rest(optimizer: str) -> None:
    """Losses that do not move: at rest the violation equals the slack, lambda what weighs it."""
    penalty = {"augmented": {"dual_penalty": 0.4}}.get(optimizer, {})
    config = ConstraintConfig.from_json(
        {
            "alpha": 0.3, "reference_unit": "constant", "dual_lr": 0.1, "signal_clip": None,
            "resilience": 0.5 if optimizer != "bare_decay" else 0.05, "dual_optimizer": optimizer,
            "dual_signal": "violation", **penalty,
        }
    )  # fmt: skip
    ours = PrimalDual(
        replace(TINY, constraint=config, steps=9_999), UNIT, CPU, torch.float64, steps_per_epoch=10
    )
    losses_F = torch.tensor([1.0, 1.2, 0.9, 0.8], dtype=torch.float64)
    for step in range(800):
        ours.observe(step, losses_F, 1.0)
    weights_F, series = ours.weights(800, losses_F), ours.series()
    expected = violations(ours.constraints, losses_F)
    assert (expected > 0).all()
    np.testing.assert_allclose(series["slacks"], expected, rtol=1e-9)
    per_slack = 1 / 0.5 + (0.4 if optimizer == "augmented" else 0.0)
    np.testing.assert_allclose(series["multipliers"], expected * per_slack, rtol=1e-9)
    by_lambda = series["multipliers"] @ ours.constraints.gradient_LF
    by_lambda[-1] += 1.0
    np.testing.assert_allclose(weights_F, by_lambda, rtol=1e-12)


def test_a_checkpoint_of_before_the_other_optimisers_resumes() -> None:
    whole, resumed = multipliers_of(dual_lr=0.1), multipliers_of(dual_lr=0.1)
    whole.ascend(torch.ones(1, dtype=torch.float64), 1.0)
    older = {name: whole.state_dict()[name] for name in ("values", "adam")}
    resumed.load_state_dict(older)
    for multipliers in (whole, resumed):
        multipliers.ascend(torch.full((1,), 0.5, dtype=torch.float64), 1.0)
    assert resumed.values_L == whole.values_L


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dual_optimizer": "lion"}, "'nupi', 'augmented'"),
        ({"dual_kp": 0.5}, "dual_kp must be left at 0.01 with dual_optimizer 'sgd', got 0.5: only"),
        ({"dual_optimizer": "nupi", "dual_penalty": 0.5}, "only 'augmented' reads it"),
        ({"dual_optimizer": "nupi", "dual_kp": -1.0}, "dual_kp"),
        ({**AUGMENTED, "dual_kp": 0.5}, "only 'nupi' reads it"),
        ({"dual_optimizer": "bare_decay", "resilience": 1.0}, "below 1 with dual_optimizer"),
        ({"dual_optimizer": "adamw", "resilience": 9.0, "dual_lr": 0.2}, "decay a multiplier past"),
        ({"dual_optimizer": "nupi", "resilience": 9.0, "dual_lr": 0.2}, "decay a multiplier past"),
    ],
)
def test_what_an_optimiser_cannot_do_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        ConstraintConfig.from_json(fields)


@pytest.mark.parametrize("optimizer", ["adamw", "bare_decay", "nupi", "augmented"])
@pytest.mark.parametrize("form", ["slack", "slack_restart"])
def test_slacks_that_are_variables_need_sgd_or_adam(optimizer: str, form: str) -> None:
    fields = {"resilience_form": form, "resilience": 0.5, "dual_lr": 0.1}
    with pytest.raises(InvalidValue, match=f"'sgd' or 'adam' with resilience_form '{form}', got"):
        ConstraintConfig.from_json({**fields, "dual_optimizer": optimizer})
