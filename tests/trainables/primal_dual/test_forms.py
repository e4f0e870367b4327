"""Every form of the method against one loop written from the formulas, and its neighbour."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.oracles import NaiveAdam
from tests.support.training.forms import EPOCH, FORMS, STEPS, config_of
from tests.support.training.trainings import CPU, Louder, task_of, training_of
from trainables.build import weighting_of
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.errors import InvalidValue
from trainables.models.ut import UT
from trainables.primal_dual.idle_options import require_effect
from trainables.primal_dual.lagrangian import PrimalDual
from trainables.tasks.base import Batch
from trainables.tasks.video_denoising import VideoDenoising
from trainables.training import Training, from_bytes, to_bytes


@functools.cache
def the_task() -> VideoDenoising:
    return task_of(config_of({}))


def ours(config: ArmConfig, task: Any = None) -> Training:
    task = task or the_task()
    weighting = weighting_of(config, task.scales, CPU, torch.float64, steps_per_epoch=EPOCH)
    return Training(config, task, model_of(config), weighting)


def model_of(config: ArmConfig) -> UT:
    model = training_of(config.unconstrained(), the_task()).model
    assert isinstance(model, UT)
    return model


def dual_of(training: Training) -> PrimalDual:
    assert isinstance(training.weighting, PrimalDual)
    return training.weighting


@dataclass
class ByHand:
    """The whole algorithm of docs/method.md for any form, in plain numbers but for the network."""

    config: ArmConfig
    multipliers: list[float] = field(default_factory=list)
    slacks: list[float] = field(default_factory=list)
    seen: list[list[float]] = field(default_factory=list)  # losses since the last dual step
    last_signal: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.config.constraint is not None
        self.c = self.config.constraint
        task = the_task()
        self.unit = task.scales.constant_loss
        self.f0 = self.c.reference_loss * task.scales.identity_loss / self.unit
        self.first = 0 if self.c.reference == "bound_zero" else 1
        count = self.config.model.layers + 1 - self.first
        self.multipliers, self.slacks = [0.0] * count, [0.0] * count
        self.last_signal = [0.0] * count
        self.adam = [NaiveAdam(self.c.dual_lr) for _ in range(count)]
        self.slack_adam = [NaiveAdam(self.c.dual_lr) for _ in range(count)]
        self.model = model_of(self.config)
        self.primal = torch.optim.Adam(self.model.parameters(), lr=self.config.primal_lr)
        self.averaged: list[Tensor] = []
        self.found: list[list[float]] = []  # violations of every step
        self.weights: list[list[float]] = []  # of every step: the slopes of what is minimised

    def allowed(self, f: list[Any]) -> list[Any]:
        """What every constrained layer may have: a fraction of the loss before it, or the bound."""
        keep = 1 - self.c.alpha
        bound = self.f0 * (keep if self.c.reference == "virtual_layer0" else 1.0)
        return [bound] + [keep * f[layer] for layer in range(self.first, len(f) - 1)]

    def violations(self, f: list[Any], before: list[Any]) -> list[Any]:
        """Every g_l; ``before`` are the losses that stand for f_{l-1}, perhaps detached."""
        constrained = f[self.first :]
        allowed = self.allowed(before)
        if self.c.form == "ratio":
            previous = [self.f0, *before[self.first : -1]]
            return [(a - b) / p for a, b, p in zip(constrained, allowed, previous, strict=True)]
        target = self.f0 * ((1 - self.c.alpha) if self.c.reference == "virtual_layer0" else 1.0)
        targets = [target * (1 - self.c.alpha) ** i for i in range(len(constrained))]
        return [(a - b) / s for a, b, s in zip(constrained, allowed, targets, strict=True)]

    def signals(self, f: list[float]) -> list[float]:
        if self.c.dual_signal == "violation":
            found = self.violations(f, f)
        else:
            pairs = zip(f[self.first :], self.allowed(f), strict=True)
            found = [(a - b) / b for a, b in pairs]
        clip = self.c.signal_clip or float("inf")
        return [min(max(s, -clip), clip) for s in found]

    def run(self, steps: int) -> ByHand:
        for step in range(steps):
            self.step(step)
        return self

    def step(self, step: int) -> None:
        batch: Batch = the_task().train_batch(step)
        predictions = self.model(batch.inputs)
        f = [((p - batch.targets) ** 2).sum(-1).mean() / self.unit for p in predictions]
        values = [x.item() for x in f]
        self.found.append(self.violations(values, values))
        f[0].requires_grad_()  # where layer 0 is the input, nothing else asks for its slope
        value = f[-1]
        if step >= self.c.warmup_steps:
            before = f if self.c.grad_through_previous else [x.detach() for x in f]
            found = self.violations(f, before)
            weighed = self.effective([x.item() for x in f])
            value = value + sum(m * g for m, g in zip(weighed, found, strict=True))
        rate = min(
            1.0, (self.config.steps - step) / (self.config.decay_fraction * self.config.steps)
        )
        self.primal.param_groups[0]["lr"] = self.config.primal_lr * rate
        slopes = torch.autograd.grad(value, f, retain_graph=True, allow_unused=True)
        self.weights.append([0.0 if s is None else s.item() for s in slopes])
        self.primal.zero_grad()
        value.backward()
        self.primal.step()
        kept, now = self.config.weight_ema, [p.detach().clone() for p in self.model.parameters()]
        pairs = zip(self.averaged or now, now, strict=True)
        self.averaged = [kept * a + (1 - kept) * b for a, b in pairs]
        if step >= self.c.warmup_steps:
            self.seen.append([x.item() for x in f])
            if self.is_due(step):
                self.dual_step(rate)
        if self.c.resilience_form == "slack_restart" and (step + 1) % EPOCH == 0:
            self.slacks = [0.0] * len(self.slacks)
            self.slack_adam = [NaiveAdam(self.c.dual_lr) for _ in self.slacks]

    def effective(self, f: list[float]) -> list[float]:
        """The multipliers that weigh these losses."""
        if self.c.dual_optimizer != "augmented":
            return self.multipliers
        pairs = zip(self.multipliers, self.signals(f), strict=True)
        return [max(0.0, mu + self.c.dual_penalty * s) for mu, s in pairs]

    def is_due(self, step: int) -> bool:
        if self.c.dual_every_unit == "epoch":
            return (step + 1) % (self.c.dual_every * EPOCH) == 0
        return (step + 1 - self.c.warmup_steps) % self.c.dual_every == 0

    def dual_step(self, rate: float) -> None:
        means = [sum(column) / len(self.seen) for column in zip(*self.seen, strict=True)]
        self.seen = []
        eta, c = self.c.dual_lr * rate, self.c.resilience
        for i, push in enumerate(self.signals(means)):
            relief = c * self.multipliers[i]
            if self.c.resilience_form != "decay":
                relief = self.slacks[i]
            moved = eta * (push - relief)
            if self.c.dual_optimizer == "adam":
                moved = self.adam[i].step(push - relief, rate)
            elif self.c.dual_optimizer == "adamw":
                moved = self.adam[i].step(push, rate) - eta * relief
            elif self.c.dual_optimizer == "bare_decay":
                moved = eta * push - relief
            elif self.c.dual_optimizer == "nupi":
                moved += self.c.dual_kp * (push - self.last_signal[i])
            self.multipliers[i] = max(0.0, self.multipliers[i] + moved)
            self.last_signal[i] = push
            if self.c.resilience_form != "decay":
                slope = self.slacks[i] / c - self.multipliers[i]
                moved = eta * slope
                if self.c.dual_optimizer == "adam":
                    moved = self.slack_adam[i].step(slope, rate)
                self.slacks[i] = max(0.0, self.slacks[i] - moved)


def the_same(training: Training, other: Training) -> bool:
    pairs = zip(training.parameters, other.parameters, strict=True)
    return all(bool((a == b).all()) for a, b in pairs)


@functools.cache
def trained(name: str = "") -> Training:
    """A form at the end of its run, or the neighbour of all: to be read, not to be trained."""
    training = ours(config_of(FORMS[name] if name else {}))
    training.run_to(STEPS)
    return training


@functools.cache
def measured(name: str) -> dict[str, list[float]]:
    """What the one report of ``trained`` shows by layer, whose means can be read once."""
    return trained(name).measured()[1]


@functools.cache
def plainly_trained(steps: int) -> Training:
    plain = ours(config_of({}))
    plain.weighting = weighting_of(
        plain.config.unconstrained(), the_task().scales, CPU, torch.float64, steps_per_epoch=EPOCH
    )
    plain.run_to(steps)
    return plain


@pytest.mark.parametrize("name", FORMS)
def test_a_form_equals_the_loop_written_by_hand_and_differs_from_its_neighbour(name: str) -> None:
    training, by_hand = trained(name), ByHand(config_of(FORMS[name])).run(STEPS)
    dual = dual_of(training)
    assert max(by_hand.multipliers) > 1e-3  # the comparison is about multipliers that moved
    found = [dual.multipliers.values_L.tolist()]
    expected = [by_hand.multipliers]
    if dual.slacks is not None:
        found.append(dual.slacks.values_L.tolist())
        expected.append(by_hand.slacks)
    # 1e-6: 48 steps of Adam amplify the last bits of sums taken in another order
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    for a, b in zip(training.parameters, by_hand.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    expected_F = np.mean(by_hand.weights, axis=0)
    np.testing.assert_allclose(measured(name)["weights"], expected_F, rtol=1e-6, atol=1e-9)
    noise_L = (np.diff(by_hand.found, axis=0) ** 2 / 2).mean(axis=0) ** 0.5
    np.testing.assert_allclose(measured(name)["violation_noise"], noise_L, rtol=1e-6, atol=1e-9)
    theirs = dual_of(trained()).multipliers.values_L
    mine = dual.multipliers.values_L[-len(theirs) :]
    assert float((mine - theirs).abs().max()) > 1e-3
    assert not the_same(training, trained())


@pytest.mark.parametrize("name", FORMS)
def test_a_form_resumes_bit_for_bit(name: str) -> None:
    """Saved in the middle of an epoch, of a ramp and between two dual steps; all of them end."""
    until = 30
    config = config_of(FORMS[name], weight_ema=0.9)
    whole = ours(config)
    whole.run_to(19)
    whole.measured()
    saved = to_bytes(whole.state_dict())
    whole.run_to(until)
    resumed = ours(config)
    resumed.load_state_dict(from_bytes(saved, CPU))
    resumed.run_to(until)
    assert the_same(whole, resumed)
    for a, b in zip(whole.evaluated.parameters(), resumed.evaluated.parameters(), strict=True):
        assert (a == b).all()
    assert whole.measured()[1] == resumed.measured()[1]


@pytest.mark.parametrize("name", FORMS)
def test_a_form_with_multipliers_held_at_zero_is_plain_training_bit_for_bit(name: str) -> None:
    form = {**FORMS[name], "dual_lr": 0.0}
    proportional = {"nupi": "dual_kp", "augmented": "dual_penalty"}
    if form.get("dual_optimizer") in proportional:
        form[proportional[form["dual_optimizer"]]] = 0.0
    held = ours(config_of(form))
    held.run_to(30)
    assert the_same(held, plainly_trained(30))
    assert (dual_of(held).multipliers.values_L == 0).all()


@pytest.mark.parametrize("name", FORMS)
def test_a_form_does_not_depend_on_the_losss_unit(name: str) -> None:
    louder: Any = Louder(the_task(), 256.0)
    one, other = trained(name), ours(config_of(FORMS[name]), louder)
    other.run_to(STEPS)
    for a, b in zip(one.parameters, other.parameters, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    of_other = other.measured()[1]
    for key, values in measured(name).items():
        np.testing.assert_allclose(values, of_other[key], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("constrained", [True, False], ids=["constrained", "unconstrained"])
def test_weight_ema_averages_what_is_evaluated_and_trains_the_same(constrained: bool) -> None:
    config = config_of({}, weight_ema=0.9)
    averaged, by_hand = ours(config), ByHand(config)
    if constrained:
        by_hand.run(STEPS)
    else:
        config = config.unconstrained()
        averaged = ours(config)
    plain = ours(replace(config, weight_ema=0.0))
    averaged.run_to(STEPS)
    plain.run_to(STEPS)
    assert the_same(averaged, plain)
    assert plain.evaluated is plain.model
    away = [
        float((a - b).abs().max().detach())
        for a, b in zip(averaged.evaluated.parameters(), averaged.parameters, strict=True)
    ]
    assert max(away) > 1e-4
    if constrained:
        pairs = zip(averaged.evaluated.parameters(), by_hand.averaged, strict=True)
        for a, b in pairs:
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_a_report_shows_the_slack_variable_and_not_its_resting_point() -> None:
    dual = dual_of(ours(config_of({**FORMS["slack"], "reference_unit": "constant"})))
    assert dual.slacks is not None
    for step in range(5):
        dual.observe(step, torch.tensor([1.0, 0.9, 0.8, 0.7], dtype=torch.float64), 1.0)
    slacks, series = dual.slacks.values_L.tolist(), dual.series()
    # relative signal: u is a fraction of what is allowed now, the violations are over the targets
    allowed, targets = [0.8, 0.7 * 0.9, 0.7 * 0.8], [0.8, 0.8 * 0.7, 0.8 * 0.49]
    expected = [u * f / s for u, f, s in zip(slacks, allowed, targets, strict=True)]
    np.testing.assert_allclose(series["slacks"], expected, rtol=1e-12)
    assert (dual.slacks.values_L > 0).all()
    # five steps in, it is still on its way
    assert (dual.slacks.values_L < 0.3 * dual.multipliers.values_L).all()


class NoHostReads(TorchDispatchMode):
    """Reading a number off a tensor raises: on CUDA it would wait for the device."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise AssertionError("a number was read off a tensor")
        return func(*args, **(kwargs or {}))


# Adam reads its step count unless it is capturable, as it is on CUDA: those are in test_gpu.py.
@pytest.mark.parametrize("name", [n for n in FORMS if not config_of(FORMS[n]).constraint.is_adam])  # type: ignore[union-attr]
def test_no_form_reads_a_number_off_the_device(name: str) -> None:
    training = ours(config_of(FORMS[name], weight_ema=0.9))
    losses_F = torch.tensor([0.5, 0.4, 0.35, 0.2], dtype=torch.float64)
    with NoHostReads():
        for step in range(3 * EPOCH):
            training.weighting.weights(step, losses_F)
            training.weighting.observe(step, losses_F, 0.5)
            training.average_weights(step)
        with pytest.raises(AssertionError, match="read off"):
            bool(losses_F[0] > 0)


def test_a_run_that_would_end_before_its_first_dual_step_is_refused() -> None:
    with pytest.raises(InvalidValue, match="dual_every must bring a dual step"):
        ours(config_of({"dual_every_unit": "epoch", "dual_every": 5}))
    for fields in ({"dual_every": STEPS + 1}, {"dual_every": 40, "warmup_steps": STEPS - 39}):
        with pytest.raises(InvalidValue, match="dual_every must be at most steps less warmup"):
            config_of(fields)
    with pytest.raises(InvalidValue, match="and before the last, got 48 step"):
        ours(config_of({"dual_every": STEPS}))
    with pytest.raises(InvalidValue, match="and before the last, got 4 epoch"):
        ours(config_of({"dual_every_unit": "epoch", "dual_every": STEPS // EPOCH}))
    assert ours(config_of({"dual_every": STEPS - 1}))
    assert ours(config_of({"dual_every": STEPS, "dual_optimizer": "augmented"}))
    assert ours(config_of({"warmup_steps": STEPS, "dual_every": 3}))  # plain to its end, as asked


@pytest.mark.parametrize("seldom", [{"dual_every_unit": "epoch"}, {"dual_every": EPOCH}])
def test_restarts_that_leave_no_slack_to_any_dual_step_are_refused(seldom: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=r"two dual steps within an epoch .12 steps., got"):
        ours(config_of({**seldom, "resilience_form": "slack_restart"}))
    assert ours(config_of({**seldom, "resilience_form": "slack"}))
    assert ours(config_of({"dual_every": EPOCH - 1, "resilience_form": "slack_restart"}))
    # why: the loop written by hand, restarted so, is that of a slack which costs everything
    restarted = {**seldom, "resilience_form": "slack_restart", "dual_lr": 0.2}
    hard = {**seldom, "resilience_form": "decay", "resilience": 0.0, "dual_lr": 0.2}
    found = [ByHand(config_of(form)).run(STEPS).multipliers for form in (restarted, hard)]
    assert found[0] == found[1]
    assert max(found[0]) > 0.01


@pytest.mark.parametrize(
    "fields",
    [
        {"steps": EPOCH},  # the only epoch ends with the run
        {"steps": EPOCH - 1},
        {"steps": 2 * EPOCH, "constraint.warmup_steps": EPOCH},
        {"steps": EPOCH + 4, "constraint.warmup_steps": 4, "constraint.dual_every": EPOCH - 3},
    ],
)
def test_restarts_that_no_step_would_feel_are_refused(fields: dict[str, Any]) -> None:
    """They would train as ``slack`` does, to the bit, under another name."""
    run = config_of({"resilience_form": "slack_restart"}).with_fields(fields)
    with pytest.raises(InvalidValue, match=r"needs the end of an epoch .12 steps. between its"):
        ours(run)
    longer = run.with_fields({"steps": run.steps + EPOCH + 1})
    ends = []
    for form in ("slack", "slack_restart"):
        training = ours(longer.with_fields({"constraint.resilience_form": form}))
        training.run_to(longer.steps)
        slacks = dual_of(training).slacks
        assert slacks is not None
        ends.append(slacks.values_L.tolist())
    assert ends[0] != ends[1]


@pytest.mark.parametrize(
    "fields",
    [{"form": "ratio"}, {"dual_optimizer": "augmented"}, {"weights_by": "penalty"}],
    ids=str,
)
def test_sampled_tokens_are_refused_where_they_would_bias_the_gradient(
    fields: dict[str, Any],
) -> None:
    drawn = ConstraintConfig(inner_tokens=0.5, **fields)
    with pytest.raises(InvalidValue, match="the gradient would be biased"):
        require_effect(ArmConfig(), drawn, EPOCH)
    require_effect(ArmConfig(), replace(drawn, inner_tokens=1.0), EPOCH)
    require_effect(ArmConfig(), ConstraintConfig(inner_tokens=0.5), EPOCH)


@pytest.mark.parametrize("form", ["slack", "slack_restart"])
def test_slacks_that_would_diverge_are_refused(form: str) -> None:
    fields = {"resilience_form": form, "dual_lr": 0.5}
    with pytest.raises(InvalidValue, match="below 1 and below resilience"):
        ConstraintConfig.from_json({**fields, "resilience": 0.5})
    with pytest.raises(InvalidValue, match="resilience must be positive"):
        ConstraintConfig.from_json({**fields, "resilience": 0.0})
    with pytest.raises(InvalidValue, match="below 1 and below resilience"):
        ConstraintConfig.from_json({**fields, "resilience": 9.0, "dual_lr": 1.0})
    # what is allowed shrinks to rest: spectral radius of (lambda, u) under one step with no signal
    for eta, c in ((0.5, 0.51), (0.99, 1.0), (0.99, 50.0), (1e-4, 2e-4)):
        ConstraintConfig.from_json({**fields, "resilience": c, "dual_lr": eta})
        step = np.array([[1.0, -eta], [eta, 1.0 - eta / c - eta * eta]])
        assert max(abs(np.linalg.eigvals(step))) < 1
    ConstraintConfig.from_json({**fields, "resilience": 0.1, "dual_optimizer": "adam"})
