"""Training loop of every arm: steps on the weighted layer losses sum_l w_l f_l.

One code path for constrained and plain arms: the weighting gives w and is shown the losses. Losses
whose weight is 0 by construction are left out, which changes no bit of the rest. All are over f_c,
the constant prediction's loss (docs/decisions/0010).

With ``weight_ema`` an average of the weights is evaluated and kept; it never touches the training.
With ``accumulate`` a batch passes the network in equal parts, whose gradients add up. With
``ranks`` several processes train the arm, each on rows of every batch (sharding/ranks.py).
"""

from __future__ import annotations

import copy
import io
import itertools
import time
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainables.config.arm import ArmConfig
from trainables.heads.loss_estimators import estimated_losses, updated_controls
from trainables.layer_losses import last_loss, layer_losses, require_every_layer
from trainables.optimizers import optimizer_of
from trainables.primal_dual.schedule import lr_factor
from trainables.primal_dual.weighting import Weighting
from trainables.records import arm_record as results
from trainables.sharding.ranks import ALONE, Ranks
from trainables.tasks.base import Batch, Tokens, TrainingTask

GAP_RATE = 0.2  # of the running means of layers that are not read at every step


# What a step's gradient is of; where it is of the last loss, the others are measured, or not even.
Kind = Literal["all layers", "last layer", "last layer alone"]


class StepLosses(nn.Module):
    """Losses of one step as a module: sharding calls it, and fusion exchanges its parameters."""

    def __init__(self, model: nn.Module, task: TrainingTask) -> None:
        super().__init__()
        self.model = model
        self._task = (task,)  # a task that is a module adds no parameters

    def forward(self, part: Batch, kind: Kind) -> Tensor:
        """Per-sample losses [L + 1, B] or [1, B]."""
        if kind == "last layer alone":
            return last_loss(self.model, self._task[0], part)
        return layer_losses(self.model, self._task[0], part, trains_last_alone=kind == "last layer")


class Training:
    """The state of one run between two primal steps: model, optimiser, weighting, step."""

    def __init__(
        self,
        config: ArmConfig,
        task: TrainingTask,
        model: nn.Module,
        weighting: Weighting,
        ranks: Ranks = ALONE,
    ) -> None:
        """Start at step 0 with the model as it is, of which ``ranks`` may keep a part here."""
        self.config = config
        self.task = task
        self.model = model
        self.weighting = weighting
        self.step = 0
        self.seconds = 0.0  # spent in steps, over all attempts
        self.stack_rows = 0  # of the stack on a GPU that took the last steps; 0: none
        self._ranks = ranks
        # Copied before, and the optimiser made after: sharding replaces parameters in place.
        self._averaged = copy.deepcopy(model) if config.weight_ema > 0 else model
        self.evaluated = ranks.copied(self._averaged)
        # ^ the network that reports, the final result and the kept weights are of
        self._losses = StepLosses(model, task)
        ranks.shard(self._losses, model)
        if self._averaged is not model:
            ranks.shard(self._averaged, self._averaged)
        self._full_state: dict[str, Any] | None = None  # of several processes, at the last report
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = optimizer_of(config, model)
        self._constant_loss = task.scales.constant_loss
        self._base_lrs = [group["lr"] for group in self.optimizer.param_groups]
        self._average = get_ema_multi_avg_fn(config.weight_ema)  # type: ignore[no-untyped-call]
        first = self.parameters[0]
        self._gaps_M: Tensor | None = None
        constraint = config.constraint
        if constraint is not None and constraint.inner_layers is not None:
            among = config.model.layers - constraint.first_layer
            self._gaps_M = torch.zeros(among, device=first.device, dtype=first.dtype)
            # ^ of inner layers' losses to the last one's, over f_c: running means
        self._loss_sum = torch.zeros((), device=first.device, dtype=first.dtype)
        self._grad_norm_sum = torch.zeros_like(self._loss_sum)
        self._since_report = 0
        self._steps_timed, self._seconds_timed = 0, 0.0

    def kind(self, step: int) -> Kind:
        """Losses that primal step ``step`` needs."""
        if not self.weighting.is_plain(step):
            return "all layers"
        return "last layer" if self.weighting.watches_layers else "last layer alone"

    def run_to(self, step: int) -> None:
        """Take primal steps until ``step`` are done; with ``ranks`` a report is due then."""
        self._ranks.say(step)
        self._full_state = None
        started = time.perf_counter()
        steps = range(self.step, step)
        self.model.train()
        for current in steps:
            # None, not 0: Adam would move what took no part in a step by its momentum.
            self.optimizer.zero_grad(set_to_none=True)
            self.finish_step(current, self._backward(current))
        if self._loss_sum.device.type == "cuda":
            torch.cuda.synchronize()  # else the seconds would be those of launching kernels
        self.took(len(steps), time.perf_counter() - started)
        if self._ranks.count > 1:
            self._full_state = self._ranks.full_state(self._networks())
            if self._ranks.is_first:
                part = "model" if self._averaged is self.model else "evaluated"
                self.evaluated.load_state_dict(self._full_state[part])

    def finish_step(self, step: int, seen_F: Tensor) -> None:
        """Take primal and dual step ``step``, from 0, by the gradients of the losses ``seen_F``."""
        grad_norm = self._ranks.clipped(self.parameters, self.config.largest_gradient)
        for group, lr in zip(self.optimizer.param_groups, self.lrs(step), strict=True):
            group["lr"] = lr
        self.optimizer.step()
        self.average_weights(step)
        # The dual step last: it follows this step's losses, and weighs those of the next.
        self.weighting.observe(step, seen_F, self.lr_factor(step))
        self._loss_sum += seen_F[-1]  # on the device: nothing waits for it between two reports
        self._grad_norm_sum += grad_norm
        self._since_report += 1

    def lrs(self, step: int) -> list[float]:
        """The learning rate of every parameter group at primal step ``step``."""
        factor = self.lr_factor(step)
        return [lr * factor for lr in self._base_lrs]

    def lr_factor(self, step: int) -> float:
        """Factor of all learning rates at primal step ``step``."""
        config = self.config
        return lr_factor(step, config.steps, config.decay_fraction, config.warmup_fraction)

    @property
    def is_whole(self) -> bool:
        """True where no other process keeps a part of the network."""
        return self._ranks.count == 1

    @property
    def sums(self) -> Tensor:
        """Sums [2] of the last layer's loss and of the gradient's norm since the last report."""
        return torch.stack([self._loss_sum, self._grad_norm_sum])

    def count(self, sums_S: Tensor, steps: int) -> None:
        """Take these sums [2] after ``steps`` more steps that were taken elsewhere."""
        self._loss_sum, self._grad_norm_sum = sums_S.clone().unbind()
        self._since_report += steps

    def took(self, steps: int, seconds: float) -> None:
        """Count ``steps`` more primal steps, and the seconds that they took."""
        self.step += steps
        self._steps_timed, self._seconds_timed = steps, seconds
        self.seconds += seconds

    def _backward(self, step: int) -> Tensor:
        """The gradient of the weighted sum over the whole batch; its losses, detached."""
        parts = self.task.train_batch(step).parts(self.config.accumulate)
        seen, gaps_M = [], self._gaps_M  # one draw for all parts: their controls are of before it
        for part in parts:
            losses_FB = self._losses(self._ranks.share(part), self.kind(step))
            if self.kind(step) != "last layer alone":
                require_every_layer(self.config, len(losses_FB))
            losses_F = self._ranks.mean(losses_FB, len(part.targets)) / self._constant_loss
            if gaps_M is not None:
                losses_F = self._estimated(losses_F, part, gaps_M)
            seen.append(losses_F.detach())  # w is a constant of the step: no gradient flows into it
            # with several parts the weights follow no losses (ArmConfig.accumulate)
            objective = (self.weighting.weights(step, seen[-1]) * losses_F).sum()
            (objective / len(parts) if len(parts) > 1 else objective).backward()  # type: ignore[no-untyped-call]
        return seen[0] if len(parts) == 1 else torch.stack(seen).mean(dim=0)

    def _estimated(self, losses_F: Tensor, part: Batch, gaps_M: Tensor) -> Tensor:
        """All losses where some layers' were taken: unbiased estimates, with their gradient.

        The control variate of a layer is the last one's loss and the mean gap to it so far, which
        follows the drawn layers.
        """
        assert isinstance(part.inputs, Tokens)
        assert part.inputs.layers is not None
        assert self._gaps_M is not None
        *others, last = losses_F.unbind()
        first = len(others) - len(gaps_M)
        taken = {layer - first: others[layer] for layer in part.inputs.layers}
        gaps = {index: loss - last for index, loss in taken.items()}
        self._gaps_M = updated_controls(self._gaps_M, gaps, GAP_RATE)
        estimates_M = estimated_losses(taken, last.detach() + gaps_M)
        return torch.cat([losses_F[:first], estimates_M, last[None]])

    @torch.no_grad()
    def average_weights(self, step: int) -> None:
        """theta_bar <- beta theta_bar + (1 - beta) theta, from the weights after step 0 on.

        Without ``weight_ema`` there is none. Not ``AveragedModel``: it reads its count from the
        device at every step.
        """
        if self._averaged is self.model:
            return
        if step == 0:
            self._averaged.load_state_dict(self.model.state_dict())
            return
        self._average(list(self._averaged.parameters()), list(self.model.parameters()), step)
        for averaged, current in zip(self._averaged.buffers(), self.model.buffers(), strict=True):
            averaged.copy_(current)

    def measured(self) -> tuple[dict[str, float], dict[str, list[float]]]:
        """(scalars, layer series) since the last call, named as in results.py; resets the means."""
        count, series = max(self._since_report, 1), self.weighting.series()
        values = torch.cat([self.sums.double(), *(part.double() for part in series.values())])
        loss_sum, grad_norm_sum, *plain = values.tolist()  # the host waits once
        scalars = {
            results.TRAIN_LOSS: loss_sum / count,
            results.TRAIN_GRAD_NORM: grad_norm_sum / count,
            results.TRAIN_STEPS_PER_S: self._steps_timed / max(self._seconds_timed, 1e-9),
            results.TRAIN_SECONDS: self.seconds,
        }
        self._loss_sum = torch.zeros_like(self._loss_sum)
        self._grad_norm_sum = torch.zeros_like(self._loss_sum)
        self._since_report = 0
        cut = iter(plain)
        layers = {name: list(itertools.islice(cut, len(parts))) for name, parts in series.items()}
        return scalars, layers

    def state_dict(self) -> dict[str, Any]:
        """All a resumed run needs to continue bit for bit; taken right after ``measured``."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            **(self._networks() if self._full_state is None else self._full_state),
            "weighting": self.weighting.state_dict(),
            **({} if self._gaps_M is None else {"gaps": self._gaps_M}),
        }

    def _networks(self) -> dict[str, Any]:
        """State of networks and optimiser, which several processes keep in parts."""
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        if self._averaged is not self.model:
            state["evaluated"] = self._averaged.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        self.step = state["step"]
        self.seconds = state["seconds"]
        parts = self._ranks.parts
        self.model.load_state_dict(parts(state["model"], self.model.state_dict()))
        if self._gaps_M is not None:
            self._gaps_M = state["gaps"].clone()
        if self._averaged is not self.model:
            self._averaged.load_state_dict(parts(state["evaluated"], self._averaged.state_dict()))
        saved = state["optimizer"]
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        moments = parts(saved["state"], dict(enumerate(trained)))
        self.optimizer.load_state_dict({**saved, "state": moments})
        self.weighting.load_state_dict(state["weighting"])


def to_bytes(state: dict[str, Any]) -> bytes:
    """A state as one whole object."""
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


def from_bytes(content: bytes, device: torch.device) -> dict[str, Any]:
    """The state that ``to_bytes`` wrote, on ``device``."""
    # weights_only: what is stored may be another's, and a pickle can run code.
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    return state
