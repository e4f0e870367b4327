"""One loop for every arm: ask the weighting for w, step on sum_l w_l f_l, hand the losses back.

There is no branch for constrained or unconstrained. All losses are over f_c, the constant
prediction's loss (decision 0010), so the numbers do not depend on the task's unit. Within a report
interval nothing waits for the device: running means stay there and are read when a report is made.

With ``weight_ema`` what is evaluated and kept is an average of the weights over the steps; it never
touches the training itself.
"""

from __future__ import annotations

import copy
import io
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainables import results
from trainables.config import RunConfig
from trainables.layer_losses import layer_losses
from trainables.tasks.base import Task
from trainables.weighting import Weighting


def lr_factor(step: int, steps: int, decay_share: float) -> float:
    """What both learning rates are multiplied by at ``step``: 1, then linearly towards 0.

    Primal-dual last iterates oscillate at a constant rate; the decay lets them settle.

    >>> [round(lr_factor(s, 10, 0.4), 2) for s in (0, 6, 7, 9)]
    [1.0, 1.0, 0.75, 0.25]
    """
    decaying = decay_share * steps
    return 1.0 if decaying == 0 else min(1.0, (steps - step) / decaying)


class Training:
    """The state of one run between two primal steps: model, optimiser, weighting, step."""

    def __init__(
        self, config: RunConfig, task: Task, model: nn.Module, weighting: Weighting
    ) -> None:
        """Start at step 0 with the model as it is."""
        self.config = config
        self.task = task
        self.model = model
        self.weighting = weighting
        self.step = 0
        self.seconds = 0.0  # spent in steps, over all attempts
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.primal_lr, fused=True)
        self.evaluated = copy.deepcopy(model) if config.weight_ema > 0 else model
        # ^ the network that reports, the final result and the kept weights are of
        self._average = get_ema_multi_avg_fn(config.weight_ema)  # type: ignore[no-untyped-call]
        self._constant_loss = task.scales.constant_loss
        first = self.parameters[0]
        self._loss_sum = torch.zeros((), device=first.device, dtype=first.dtype)
        self._grad_norm_sum = torch.zeros_like(self._loss_sum)
        self._since_report = 0
        self._steps_timed = 0
        self._seconds_timed = 0.0

    def run_to(self, step: int) -> None:
        """Take primal steps until ``step`` are done."""
        started = time.perf_counter()
        first = self.step
        self.model.train()
        for current in range(first, step):
            self._one_step(current)
        self.step = max(step, first)
        if self._loss_sum.device.type == "cuda":
            torch.cuda.synchronize()
        self._seconds_timed = time.perf_counter() - started
        self._steps_timed = step - first
        self.seconds += self._seconds_timed

    def _one_step(self, step: int) -> None:
        factor = lr_factor(step, self.config.steps, self.config.decay_share)
        losses_F = (
            layer_losses(self.model, self.task, self.task.train_batch(step)).mean(dim=1)
            / self._constant_loss
        )
        seen_F = losses_F.detach()
        objective = (self.weighting.weights(step, seen_F) * losses_F).sum()
        self.optimizer.zero_grad(set_to_none=True)
        objective.backward()  # type: ignore[no-untyped-call]
        grad_norm = nn.utils.clip_grad_norm_(self.parameters, self.config.grad_clip)
        self.optimizer.param_groups[0]["lr"] = self.config.primal_lr * factor
        self.optimizer.step()
        if self.evaluated is not self.model:
            self._average_weights(step)
        self.weighting.observe(step, seen_F, factor)
        self._loss_sum += seen_F[-1]
        self._grad_norm_sum += grad_norm
        self._since_report += 1

    @torch.no_grad()
    def _average_weights(self, step: int) -> None:
        """theta_bar <- beta theta_bar + (1 - beta) theta, from the weights after step 0 on.

        Not ``AveragedModel``: it reads its count from the device at every step.
        """
        if step == 0:
            self.evaluated.load_state_dict(self.model.state_dict())
            return
        self._average(list(self.evaluated.parameters()), list(self.model.parameters()), step)
        for ours, theirs in zip(self.evaluated.buffers(), self.model.buffers(), strict=True):
            ours.copy_(theirs)

    def measured(self) -> tuple[dict[str, float], dict[str, list[float]]]:
        """(scalars, layer series) since the last call, named as in results.py; resets the means."""
        count = max(self._since_report, 1)
        scalars = {
            results.TRAIN_LOSS: float(self._loss_sum) / count,
            results.TRAIN_GRAD_NORM: float(self._grad_norm_sum) / count,
            results.TRAIN_STEPS_PER_S: self._steps_timed / max(self._seconds_timed, 1e-9),
            results.TRAIN_SECONDS: self.seconds,
        }
        self._loss_sum = torch.zeros_like(self._loss_sum)
        self._grad_norm_sum = torch.zeros_like(self._loss_sum)
        self._since_report = 0
        return scalars, {name: _plain(values) for name, values in self.weighting.series().items()}

    def state_dict(self) -> dict[str, Any]:
        """All a resumed run needs to continue bit for bit; taken right after ``measured``."""
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "weighting": self.weighting.state_dict(),
        }
        if self.evaluated is not self.model:
            state["evaluated"] = self.evaluated.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        self.step = state["step"]
        self.seconds = state["seconds"]
        self.model.load_state_dict(state["model"])
        if self.evaluated is not self.model:
            self.evaluated.load_state_dict(state["evaluated"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.weighting.load_state_dict(state["weighting"])


def to_bytes(state: dict[str, Any]) -> bytes:
    """A state as one whole object."""
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


def from_bytes(content: bytes, device: torch.device) -> dict[str, Any]:
    """The state that ``to_bytes`` wrote, on ``device``."""
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    return state


def _plain(values: Tensor) -> list[float]:
    plain: list[float] = values.double().tolist()
    return plain
