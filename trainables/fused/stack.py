"""Stack of arms: one network whose parameters have a row for each of them.

``torch.vmap`` makes that network of any model as it is. On a GPU a stack has ``ROWS`` rows, however
few arms there are: the others repeat the first arm. So products are of one size, and in one kernel,
for an arm alone and in any company, and an arm's bits are its own.

Shape suffixes: K arms of a stack, H its rows, F predictions 0..L.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.func import functional_call

from trainables.fused.graph import CapturedPasses, can_capture, captured, is_worth_capturing
from trainables.fused.update import JointUpdate, Parameters
from trainables.tasks.base import Batch
from trainables.training import StepLosses, Training


class Stack:
    """Trainings at one step as rows of one network, until they are given back."""

    def __init__(self, trainings: Sequence[Training], losses: StepLosses, rows: int) -> None:
        """Copy parameters and moments into at least ``rows`` rows.

        ``losses`` are of a network whose parameters every row takes the place of. Raises
        RuntimeError as ``JointUpdate``.
        """
        first, self._losses, self._count = trainings[0], losses, len(trainings)
        self._task = first.task
        self._config, self._constant_loss = first.config, first.task.scales.constant_loss
        arms = [trained_parameters(training) for training in trainings]
        optimizers = [training.optimizer for training in trainings]
        self._repeats = max(rows - len(arms), 0)
        self._update = JointUpdate(
            [*arms, *arms[:1] * self._repeats],
            [*optimizers, *optimizers[:1] * self._repeats],
            len(arms),
        )
        self._passed: Tensor | None = None  # losses of the last pass, with their graph
        self._captured: CapturedPasses | None = None
        self._is_to_capture = is_worth_capturing(self._config)
        self._is_replayed = False  # the pass whose gradient is next

    @property
    def arms(self) -> int:
        """K."""
        return self._count

    @property
    def parameters(self) -> Parameters:
        """Parameters by name, each [H, ...]."""
        return self._update.stack

    def forward(self, part: Batch) -> Tensor:
        """Mean losses over f_c of every arm and layer, [K, F], detached."""
        if self._is_to_capture and can_capture(self._losses.model, self._task, part):
            self._is_to_capture = False
            parameters, most = list(self.parameters.values()), self._config.largest_gradient
            self._captured = captured(
                lambda: CapturedPasses(self._losses_of, parameters, part, most)
            )
        self._is_replayed = self._captured is not None and self._captured.takes(part)
        if self._captured is not None and self._is_replayed:
            return self._captured.forward(part)[: self._count]
        self._passed = self._losses_of(part)
        return self._passed.detach()[: self._count]

    def backward(self, weights_KF: Tensor, parts: int) -> None:
        """The gradient of all arms' weighted losses, of one of ``parts`` parts of the batch.

        Each row of the sum's gradient is that of its arm alone.
        """
        weights_HF = torch.cat([weights_KF, weights_KF[:1].expand(self._repeats, -1)])
        if self._captured is not None and self._is_replayed:
            self._captured.backward(weights_HF)
            return
        assert self._passed is not None
        objective = (weights_HF * self._passed).sum()
        (objective / parts if parts > 1 else objective).backward()  # type: ignore[no-untyped-call]
        self._passed = None

    def step(self, lrs: Sequence[float]) -> Tensor:
        """Clip every arm's gradient and step; the norms before, [K]."""
        if self._captured is None or not self._is_replayed:
            return self._update.step(self._config.largest_gradient, lrs)[: self._count]
        for parameter, gradient in zip(
            self.parameters.values(), self._captured.gradients, strict=True
        ):
            parameter.grad = gradient
        self._update.step_clipped(lrs)
        return self._captured.norms_H[: self._count]

    def give_weights(self) -> None:
        """Copy each row into its arm's parameters."""
        self._update.give_weights()

    def give_back(self) -> None:
        """Copy each row into its arm's parameters and moments, in memory of its own."""
        self._update.give_back()

    def _losses_of(self, part: Batch) -> Tensor:
        """Mean losses over f_c of every row, [H, F]."""
        return row_losses(self._losses, self.parameters, part, self._constant_loss)


def trained_parameters(training: Training) -> Parameters:
    """Trained parameters of an arm by their names in ``StepLosses``."""
    named = training.model.named_parameters()
    return {f"model.{name}": p for name, p in named if p.requires_grad}


def row_losses(losses: StepLosses, rows: Parameters, part: Batch, constant_loss: float) -> Tensor:
    """Mean losses over f_c with the parameters of every row, [H, F]."""

    def of_row(arm: Mapping[str, Tensor]) -> Tensor:
        losses_FB: Tensor = functional_call(losses, dict(arm), (part, "all layers"))
        return losses_FB.mean(dim=1) / constant_loss

    losses_HF: Tensor = torch.vmap(of_row)(rows)
    return losses_HF
