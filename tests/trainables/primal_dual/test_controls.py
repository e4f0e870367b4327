"""Controls: every other setter of the layer weights, against its formula written by hand."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.oracles import naive_violations
from tests.support.training.forms import STEPS, config_of
from tests.support.training.trainings import CPU, task_of, training_of
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.errors import InvalidValue
from trainables.primal_dual.constraints import Scales, demanded_descent
from trainables.primal_dual.weighting import Control
from trainables.records.arm_record import Report
from trainables.signs.early_signs import EarlySigns
from trainables.tasks.video_denoising import VideoDenoising
from trainables.training import Training, from_bytes, to_bytes

LAST = {"weights_by": "last_layer"}
SUPERVISED = {"weights_by": "deep_supervision", "supervision": 0.7, "supervision_decay": 0.5}
REPLAYED = {"weights_by": "replayed", "replayed_weights": [0.0, 0.2, -0.1, 1.4]}
PENALTY = {"weights_by": "penalty", "penalty": 3.0}
CONTROLS: dict[str, dict[str, Any]] = {
    "last layer": LAST,
    "deep supervision": SUPERVISED,
    "deep supervision, warm-up": {**SUPERVISED, "warmup_steps": 7},
    "replayed": REPLAYED,
    "penalty": PENALTY,
    "penalty, warm-up": {**PENALTY, "warmup_steps": 4},
}
FIXED = {"deep supervision": [0.0, 0.7 * 0.25, 0.7 * 0.5, 1.0], "replayed": [0.0, 0.2, -0.1, 1.4]}


@functools.cache
def the_task() -> VideoDenoising:
    return task_of(config_of({}))


def trained(config: ArmConfig, steps: int = STEPS) -> Training:
    training = training_of(config, the_task())
    training.run_to(steps)
    return training


@functools.cache
def ended(config: ArmConfig) -> Training:
    """The same at its end: to be read, not to be trained."""
    return trained(config)


def by_hand(config: ArmConfig, objective: Any, steps: int = STEPS) -> list[torch.Tensor]:
    """Adam on ``objective`` of the layer losses over f_c, with the schedule written out."""
    model = training_of(config, the_task()).model
    adam = torch.optim.Adam(model.parameters(), lr=config.primal_lr, fused=True)
    for step in range(steps):
        batch = the_task().train_batch(step)
        per_sample = [((p - batch.targets) ** 2).sum(-1).mean(-1) for p in model(batch.inputs)]
        losses = torch.stack(per_sample).mean(dim=1) / the_task().scales.constant_loss
        adam.zero_grad()
        objective(step, losses).backward()
        torch.nn.utils.clip_grad_norm_(list(model.parameters()), config.grad_clip)
        rate = min(1.0, (config.steps - step) / (config.decay_fraction * config.steps))
        adam.param_groups[0]["lr"] = config.primal_lr * rate
        adam.step()
    return [p.detach() for p in model.parameters()]


def same(training: Training, weights: list[torch.Tensor]) -> bool:
    pairs = zip(training.parameters, weights, strict=True)
    return all(bool((a == b).all()) for a, b in pairs)


@pytest.mark.parametrize("name", FIXED)
def test_fixed_weights_train_as_a_loop_written_by_hand_bit_for_bit(name: str) -> None:
    weights_F = torch.tensor(FIXED[name], dtype=torch.float64)
    config = config_of(CONTROLS[name])
    assert same(ended(config), by_hand(config, lambda step, losses: (weights_F * losses).sum()))


def test_the_warm_up_of_a_control_is_plain() -> None:
    config = config_of(CONTROLS["deep supervision, warm-up"])
    weights_F = torch.tensor(FIXED["deep supervision"], dtype=torch.float64)

    def objective(step: int, losses: torch.Tensor) -> torch.Tensor:
        return losses[-1] if step < 7 else (weights_F * losses).sum()

    # 1e-9: the last loss alone sums its gradient in another order than one of four of weight 0
    for a, b in zip(ended(config).parameters, by_hand(config, objective), strict=True):
        torch.testing.assert_close(a.detach(), b, rtol=1e-9, atol=1e-9)


def test_the_last_layer_alone_trains_to_the_unconstrained_arms_weights_bit_for_bit() -> None:
    config = config_of(LAST)
    control, plain = ended(config), ended(config.unconstrained())
    assert same(control, [p.detach() for p in plain.parameters])
    (scalars, layers), (of_plain, nothing) = control.measured(), plain.measured()
    assert scalars["train/loss"] == of_plain["train/loss"]
    assert len(layers["violations"]) == 3
    assert layers["weights"] == [0.0, 0.0, 0.0, 1.0]
    assert "multipliers" not in layers
    assert nothing == {}


@pytest.mark.parametrize("form", ["difference", "ratio"])
@pytest.mark.parametrize("reference", ["bound_first", "virtual_layer0", "bound_zero"])
@pytest.mark.parametrize("detached", [False, True])
def test_a_penaltys_weights_are_its_gradient(form: str, reference: str, detached: bool) -> None:
    """f_L + mu sum_l max(g_l, 0)^2 by autograd through losses, some violated and some met."""
    config = config_of(
        {**PENALTY, "form": form, "reference": reference, "grad_through_previous": not detached}
    )
    constraint, task = config.constraint, the_task()
    assert constraint is not None
    f0 = constraint.reference_loss * task.scales.identity_loss / task.scales.constant_loss
    losses = torch.tensor([1.1, 0.8, 0.9, 0.1], dtype=torch.float64) * f0
    variables = losses.clone().requires_grad_()
    before = losses if detached else variables
    keep = 1 - constraint.alpha
    first = 0 if reference == "bound_zero" else 1
    start = f0 * keep if reference == "virtual_layer0" else f0
    target, value = start, variables[-1]
    for layer in range(first, 4):
        previous = f0 if layer == first else before[layer - 1]
        allowed = start if layer == first else keep * previous
        gap = variables[layer] - allowed
        violation = gap / previous if form == "ratio" else gap / target
        value = value + 3.0 * violation.clamp(min=0) ** 2
        target *= keep
    value.backward()  # type: ignore[no-untyped-call]
    control = training_of(config, task).weighting
    assert isinstance(control, Control)
    assert variables.grad is not None
    # 1e-12: the same sums in another order, in float64
    torch.testing.assert_close(control.weights(9, losses), variables.grad, rtol=1e-12, atol=1e-12)


def test_a_penalty_trains_on_its_objective() -> None:
    config = config_of(PENALTY)
    constraint = config.constraint
    assert constraint is not None
    scales = the_task().scales
    f0 = constraint.reference_loss * scales.identity_loss / scales.constant_loss

    def objective(step: int, losses: torch.Tensor) -> torch.Tensor:
        found = naive_violations(
            list(losses),  # type: ignore[arg-type]
            alpha=constraint.alpha,
            f0=f0,
            reference="bound_first",
            scale="schedule",
        )
        return losses[-1] + 3.0 * sum(g.clamp(min=0) ** 2 for g in found)  # type: ignore[attr-defined]

    # 1e-6: 48 steps of Adam amplify the last bits of gradients summed in another order
    for a, b in zip(ended(config).parameters, by_hand(config, objective), strict=True):
        torch.testing.assert_close(a.detach(), b, rtol=1e-6, atol=1e-6)
    assert not same(ended(config), [p.detach() for p in ended(config_of(LAST)).parameters])


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_measures_its_violations(name: str) -> None:
    config = config_of(CONTROLS[name])
    assert config.constraint is not None
    plain = replace(config.constraint, warmup_steps=0)
    config = replace(config, constraint=plain)
    training, scales = trained(config, 1), the_task().scales
    _, layers = training.measured()
    model = training_of(config, the_task()).model
    batch = the_task().train_batch(0)
    losses = [
        ((p - batch.targets) ** 2).sum(-1).mean().item() / scales.constant_loss
        for p in model(batch.inputs)
    ]
    f0 = plain.reference_loss * scales.identity_loss / scales.constant_loss
    expected = naive_violations(
        losses, alpha=plain.alpha, f0=f0, reference=plain.reference, scale=plain.scale
    )
    np.testing.assert_allclose(layers["violations"], expected, rtol=1e-9)
    assert set(layers) == {"violations", "violation_noise", "weights"}
    assert layers["violation_noise"] == [0.0] * len(expected)  # one step tells of no change


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_resumes_bit_for_bit(name: str) -> None:
    config = config_of(CONTROLS[name], weight_ema=0.9)
    whole = trained(config, 19)
    whole.measured()
    saved = to_bytes(whole.state_dict())
    whole.run_to(30)
    resumed = training_of(config, the_task())
    resumed.load_state_dict(from_bytes(saved, CPU))
    resumed.run_to(30)
    assert same(whole, [p.detach() for p in resumed.parameters])
    assert whole.measured()[1] == resumed.measured()[1]


def test_controls_differ_from_each_other_and_from_multipliers() -> None:
    runs = [{}, *(CONTROLS[name] for name in CONTROLS)]
    ends = [[p.detach() for p in ended(config_of(run)).parameters] for run in runs]
    for i, one in enumerate(ends):
        for other in ends[i + 1 :]:
            assert any(bool((a != b).any()) for a, b in zip(one, other, strict=True))


def test_a_control_is_never_ended_for_its_constraint() -> None:
    scales = Scales(constant_loss=1.0, identity_loss=0.5)
    layers = {
        "losses": [0.5, 1.6, 1.7, 0.2],
        "missing_shares": [3.0, 2.0, 0.0],
        "violations": [0.1, 0.1, -0.1],
        "weights": [0.0, -0.1, -0.1, 1.0],
    }
    config = config_of(PENALTY)
    for losses, ends in ((layers["losses"], False), ([0.5, 2.0, 2.0, 2.0], True)):
        shown = {**layers, "losses": losses}
        reports = [Report(step=s, timestamp_ms=s, layers=shown) for s in (35, 40)]
        signs = EarlySigns(config, scales, steps_per_epoch=10)
        assert bool(signs.reason_to_stop(reports)) == ends
        assert len(signs.warnings(reports)) == ends


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"supervision": 0.5}, "supervision must be left at 1.0 with weights_by 'multipliers'"),
        ({**LAST, "penalty": 2.0}, "only 'penalty' reads it"),
        ({**PENALTY, "replayed_weights": [0, 0, 0, 1]}, "replayed_weights must be left at"),
        ({"weights_by": "replayed"}, "a weight for each of the layers"),
        ({**REPLAYED, "replayed_weights": [0.0, 1.0]}, r"4 weights, of layers 0\.\.3"),
        ({"weights_by": "nobody"}, "one of 'multipliers', 'deep_supervision', 'penalty'"),
        ({**SUPERVISED, "supervision_decay": 0.0}, r"in \(0, 1\]"),
    ],
)
def test_a_knob_that_nothing_reads_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        config_of(fields)


def test_a_control_of_a_winner_keeps_what_the_winner_says_of_multipliers() -> None:
    winner = config_of({"resilience_form": "slack", "dual_optimizer": "adam", "dual_every": 40})
    assert winner.constraint is not None
    for control in (LAST, SUPERVISED, REPLAYED, PENALTY):
        fields = {f"constraint.{name}": value for name, value in control.items()}
        at = winner.with_fields(fields).constraint
        assert at is not None
        assert replace(at, **_knobs(winner.constraint)) == winner.constraint
    with pytest.raises(InvalidValue, match="accumulate must be 1 with form 'difference'"):
        config_of(PENALTY, accumulate=2)
    with pytest.raises(InvalidValue, match=r"accumulate must be 1 .* dual_optimizer 'augmented'"):
        config_of({"dual_optimizer": "augmented"}, accumulate=2)
    assert config_of(SUPERVISED, accumulate=2).accumulate == 2
    assert demanded_descent(winner.constraint, 3) > 0
    assert demanded_descent(replace(winner.constraint, weights_by="last_layer"), 3) == 0


def _knobs(constraint: ConstraintConfig) -> dict[str, Any]:
    names = ("weights_by", "supervision", "supervision_decay", "penalty", "replayed_weights")
    return {name: getattr(constraint, name) for name in names}
