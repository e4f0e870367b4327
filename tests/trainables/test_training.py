"""The one loop: pairing and resuming bit for bit, units, and the whole algorithm against cooper."""

from __future__ import annotations

from dataclasses import replace

import cooper
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.support.oracles import TINY
from tests.support.training.trainings import CPU, Louder, task_of, training_of, weighting_for
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.layer_losses import layer_losses
from trainables.primal_dual.constraints import descent_constraints, violations
from trainables.primal_dual.lagrangian import PrimalDual
from trainables.primal_dual.weighting import LastLayer
from trainables.tasks.base import Batch
from trainables.tasks.video_denoising import VideoDenoising
from trainables.training import Training, from_bytes, to_bytes

DOUBLE = replace(TINY, dtype="float64")


def weights_of(training: Training) -> list[Tensor]:
    return [p.detach().clone() for p in training.parameters]


def test_multipliers_held_at_zero_give_the_unconstrained_weights_bit_for_bit() -> None:
    assert TINY.constraint is not None
    held = replace(TINY, constraint=replace(TINY.constraint, dual_lr=0.0))
    ours, plain = training_of(held), training_of(TINY.unconstrained())
    assert isinstance(ours.weighting, PrimalDual)
    assert isinstance(plain.weighting, LastLayer)
    ours.run_to(40)
    plain.run_to(40)
    assert all((a == b).all() for a, b in zip(weights_of(ours), weights_of(plain), strict=True))
    moved = training_of(TINY)
    moved.run_to(40)
    assert not all(
        (a == b).all() for a, b in zip(weights_of(moved), weights_of(plain), strict=True)
    )


def test_the_warm_up_is_bit_identical_in_both_arms_and_leaves_the_dual_state_untouched() -> None:
    assert TINY.constraint is not None
    for optimizer in ("sgd", "adam"):
        warm = replace(
            TINY, constraint=replace(TINY.constraint, warmup_steps=15, dual_optimizer=optimizer)
        )
        ours, plain = training_of(warm), training_of(TINY.unconstrained())
        ours.run_to(15)
        plain.run_to(15)
        assert all((a == b).all() for a, b in zip(weights_of(ours), weights_of(plain), strict=True))
        state = ours.weighting.state_dict()
        assert (state["values"] == 0).all()
        assert optimizer == "sgd" or state["adam"]["state"] == {}
        ours.run_to(17)
        plain.run_to(17)
        assert not all(
            (a == b).all() for a, b in zip(weights_of(ours), weights_of(plain), strict=True)
        )


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_save_and_resume_equals_never_stopped_bit_for_bit(optimizer: str) -> None:
    assert TINY.constraint is not None
    config = replace(
        TINY, constraint=replace(TINY.constraint, dual_optimizer=optimizer, resilience=0.1)
    )
    whole = training_of(config)
    whole.run_to(20)
    whole.measured()
    saved = to_bytes(whole.state_dict())
    whole.run_to(40)
    torch.manual_seed(123)  # a global draw must not matter
    resumed = training_of(config)
    resumed.load_state_dict(from_bytes(saved, CPU))
    resumed.run_to(40)
    assert all((a == b).all() for a, b in zip(weights_of(whole), weights_of(resumed), strict=True))
    _, ours = whole.measured()
    _, theirs = resumed.measured()
    assert ours == theirs


@pytest.mark.parametrize("factor", [256.0, 1 / 3])
def test_the_losss_unit_does_not_change_the_scaled_trajectory(factor: float) -> None:
    assert DOUBLE.constraint is not None
    config = replace(DOUBLE, constraint=replace(DOUBLE.constraint, resilience=0.1))
    task = task_of(config)
    ours = training_of(config, task)
    theirs = Training(
        config,
        Louder(task, factor),
        training_of(config, task).model,
        weighting_for(config, Louder(task, factor), torch.float64),
    )  # type: ignore[arg-type]
    ours.run_to(40)
    theirs.run_to(40)
    for (_, a), (_, b) in zip([ours.measured()], [theirs.measured()], strict=True):
        for name in a:
            np.testing.assert_allclose(a[name], b[name], rtol=1e-9, atol=1e-9, err_msg=name)
    for a, b in zip(weights_of(ours), weights_of(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


class DescentProblem(cooper.ConstrainedMinimizationProblem):
    """The same problem, written for cooper from docs/method.md's formulas, not from our matrix."""

    def __init__(self, config: ArmConfig, task: VideoDenoising, model: nn.Module) -> None:
        super().__init__()
        assert config.constraint is not None
        self.config, self.task, self.model = config.constraint, task, model
        multiplier = cooper.multipliers.DenseMultiplier(
            num_constraints=config.model.layers, dtype=torch.float64
        )
        self.descent = cooper.Constraint(
            constraint_type=cooper.ConstraintType.INEQUALITY,
            formulation_type=cooper.formulations.Lagrangian,
            multiplier=multiplier,
        )

    def compute_cmp_state(self, batch: Batch) -> cooper.CMPState:
        predictions = self.model(batch.inputs)
        unit = self.task.scales.constant_loss
        losses = [((p - batch.targets) ** 2).sum(-1).mean() / unit for p in predictions]
        keep = 1 - self.config.alpha
        f0 = self.config.reference_loss * self.task.scales.identity_loss / unit
        gaps = [losses[1] - f0] + [losses[i] - keep * losses[i - 1] for i in range(2, len(losses))]
        if self.config.scale == "schedule":
            gaps = [gap / (f0 * keep**i) for i, gap in enumerate(gaps)]
        state = cooper.ConstraintState(violation=torch.stack(gaps))
        return cooper.CMPState(loss=losses[-1], observed_constraints={self.descent: state})


@pytest.mark.parametrize("scale", ["schedule", "none"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("resilience", [0.0, 0.3])
def test_fifty_steps_agree_with_cooper(optimizer: str, resilience: float, scale: str) -> None:
    # unscaled violations are 1/30 as large
    dual_lr = 1.0 if (optimizer, scale) == ("sgd", "none") else 0.01
    constraint = ConstraintConfig(
        alpha=0.2,
        reference_loss=0.8,
        dual_lr=dual_lr,
        dual_optimizer=optimizer,
        dual_signal="violation",
        signal_clip=None,
        resilience=resilience,
        scale=scale,
    )
    config = replace(DOUBLE, steps=50, decay_fraction=0.5, grad_clip=1e9, constraint=constraint)
    ours = training_of(config)
    task, model = task_of(config), training_of(config).model
    problem = DescentProblem(config, task, model)
    primal = torch.optim.Adam(model.parameters(), lr=config.primal_lr)
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
    dual = kind(
        problem.dual_parameters(), lr=constraint.dual_lr, maximize=True, weight_decay=resilience
    )
    roller = cooper.optim.SimultaneousOptimizer(problem, primal, dual)
    ours.run_to(50)
    for step in range(50):
        factor = min(1.0, (50 - step) / 25)  # both rates fall over the last half
        primal.param_groups[0]["lr"] = config.primal_lr * factor
        dual.param_groups[0]["lr"] = constraint.dual_lr * factor
        roller.roll(compute_cmp_state_kwargs={"batch": task.train_batch(step)})
    assert isinstance(ours.weighting, PrimalDual)
    theirs_L = problem.descent.multiplier.weight.detach()
    assert float(theirs_L.max()) > 1e-3  # the comparison is about multipliers that moved
    torch.testing.assert_close(ours.weighting.multipliers.values_L, theirs_L, rtol=1e-6, atol=1e-9)
    for a, b in zip(weights_of(ours), model.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("reference", ["bound_first", "virtual_layer0"])
@pytest.mark.parametrize("detached", [False, True])
@pytest.mark.parametrize("resilience", [0.0, 0.3])
def test_the_shipped_form_equals_a_loop_written_by_hand(
    reference: str, detached: bool, resilience: float
) -> None:
    """Relative clipped signal, SGD duals: 30 steps of the formulas, layer by layer."""
    fields = {
        "alpha": 0.3, "reference": reference, "reference_loss": 0.8, "dual_lr": 0.05,
        "grad_through_previous": not detached, "resilience": resilience, "signal_clip": 0.4,
    }  # fmt: skip
    config = replace(DOUBLE, constraint=ConstraintConfig.from_json(fields), grad_clip=1e9)
    config = replace(config, steps=30, decay_fraction=0.0)
    ours = training_of(config)
    ours.run_to(30)
    task, model = task_of(config), training_of(config).model
    optimizer = torch.optim.Adam(model.parameters(), lr=config.primal_lr)
    unit = task.scales.constant_loss
    f0 = 0.8 * task.scales.identity_loss / unit
    first = f0 if reference == "bound_first" else 0.7 * f0
    targets = [first, 0.7 * first, 0.49 * first]
    multipliers = [0.0, 0.0, 0.0]
    for step in range(30):
        batch = task.train_batch(step)
        f = [((p - batch.targets) ** 2).sum(-1).mean() / unit for p in model(batch.inputs)]
        allowed = [torch.tensor(first), 0.7 * f[1], 0.7 * f[2]]
        floor = [a.detach() for a in allowed] if detached else allowed
        value = f[3] + sum(
            m * (f[i + 1] - floor[i]) / targets[i] for i, m in enumerate(multipliers)
        )
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        for i in range(3):
            signal = ((f[i + 1] - allowed[i]) / allowed[i]).item()
            signal = min(max(signal, -0.4), 0.4)
            multipliers[i] = max(0.0, (1 - 0.05 * resilience) * multipliers[i] + 0.05 * signal)
    assert isinstance(ours.weighting, PrimalDual)
    assert max(multipliers) > 1e-3
    torch.testing.assert_close(
        ours.weighting.multipliers.values_L,
        torch.tensor(multipliers, dtype=torch.float64),
        rtol=1e-6,
        atol=1e-9,
    )
    for a, b in zip(weights_of(ours), model.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-6, atol=1e-6)


def test_one_constrained_step_is_the_gradient_of_the_lagrangian() -> None:
    """The loop's gradient, against autograd on f_L + lambda . g through the whole network."""
    assert DOUBLE.constraint is not None
    loud = replace(DOUBLE.constraint, dual_lr=0.05)
    training = training_of(replace(DOUBLE, constraint=loud, grad_clip=1e9))
    training.run_to(20)
    assert isinstance(training.weighting, PrimalDual)
    multipliers_L = training.weighting.multipliers.values_L.clone()
    assert (multipliers_L > 0).any()
    losses_F = layer_losses(training.model, training.task, training.task.train_batch(20)).mean(1)
    losses_F = losses_F / training.task.scales.constant_loss
    constraints = training.weighting.constraints
    value = losses_F[-1] + multipliers_L @ violations(constraints, losses_F)
    by_lagrangian = torch.autograd.grad(value, training.parameters, retain_graph=True)
    training.run_to(21)
    for a, p in zip(by_lagrangian, training.parameters, strict=True):
        assert p.grad is not None
        torch.testing.assert_close(a, p.grad, rtol=1e-9, atol=1e-12)


def test_detached_differs_from_the_lagrangian_and_never_pays_a_layer_to_rise() -> None:
    assert TINY.constraint is not None
    detached = training_of(
        replace(TINY, constraint=replace(TINY.constraint, grad_through_previous=False))
    )
    lagrangian = training_of(TINY)
    detached.run_to(40)
    lagrangian.run_to(40)
    assert isinstance(detached.weighting, PrimalDual)
    assert (detached.weighting.weights(40, torch.ones(4)) >= 0).all()
    assert not all(
        (a == b).all() for a, b in zip(weights_of(detached), weights_of(lagrangian), strict=True)
    )


def test_the_unconstrained_arm_ignores_every_field_of_the_constraint() -> None:
    assert TINY.constraint is not None
    other = replace(TINY, constraint=replace(TINY.constraint, alpha=0.7, dual_lr=0.9))
    assert other.unconstrained() == TINY.unconstrained()
    assert other.unconstrained().signature() == TINY.unconstrained().signature()
    assert other.signature() != TINY.signature()


@pytest.mark.parametrize("signal", ["violation", "relative"])
def test_the_dual_signal_is_clipped_and_scaled_as_named(signal: str) -> None:
    assert DOUBLE.constraint is not None
    config = replace(
        DOUBLE,
        constraint=replace(DOUBLE.constraint, dual_signal=signal, signal_clip=0.5, alpha=0.5),
    )
    task = task_of(config)
    scales, weighting = task.scales, weighting_for(config, task, torch.float64)
    assert isinstance(weighting, PrimalDual)
    assert config.constraint is not None
    f0 = config.constraint.reference_loss * scales.identity_loss / scales.constant_loss
    losses_F = f0 * torch.tensor([1.0, 1.1, 0.5, 2.0], dtype=torch.float64)
    violations_L = torch.as_tensor(violations(weighting.constraints, losses_F))
    torch.testing.assert_close(violations_L, torch.tensor([0.1, -0.1, 7.0], dtype=torch.float64))
    # over what is allowed now, f0, 0.55 f0 and 0.25 f0; the last is clipped
    relative = [0.1, -0.05 / 0.55, 0.5]
    expected = [0.1, -0.1, 0.5] if signal == "violation" else relative
    torch.testing.assert_close(
        weighting.signal(losses_F),
        torch.tensor(expected, dtype=torch.float64),
    )


def test_constraints_built_for_training_equal_those_for_judging() -> None:
    assert DOUBLE.constraint is not None
    task = task_of(DOUBLE)
    scales, weighting = task.scales, weighting_for(DOUBLE, task, torch.float64)
    assert isinstance(weighting, PrimalDual)
    judged = descent_constraints(DOUBLE.constraint, 3, scales)
    np.testing.assert_array_equal(np.asarray(weighting.constraints.matrix_LF), judged.matrix_LF)


def test_a_thread_count_is_part_of_the_signature() -> None:
    assert replace(TINY, threads=2).signature() != TINY.signature()


@pytest.mark.parametrize("gamma", [0.0, 0.15])
@pytest.mark.parametrize(
    "scored",
    [
        {"test_gammas": [0.0, 0.05, 0.1]},
        {"test_gammas": [0.0, 0.5]},
        {"eval_windows": 2},
        {"eval_draws": 1},
        {"score_draws": 2},
        {"shifts": ["blur"]},
        {"measured_on": "test"},
    ],
    ids=str,
)
def test_what_an_arm_is_scored_at_does_not_move_what_it_trains(
    gamma: float, scored: dict[str, object]
) -> None:
    """UT's temperature and f0 are stated at train_gamma, or at a constant where that is 0."""

    def weights(fields: dict[str, object]) -> list[Tensor]:
        training = training_of(TINY.with_fields({"train_gamma": gamma, **fields}))
        training.run_to(3)
        return weights_of(training)

    assert all((a == b).all() for a, b in zip(weights({}), weights(scored), strict=True))
