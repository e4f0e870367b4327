"""Fused training: arms that differ in their constraint, in one forward pass.

Arms of one configuration and seed see the same batches, and their networks have the same shape: K
of them are rows of one network (horizontal fusion; Wang et al. 2021, arXiv 2102.02344; stack.py).
Forward pass, backward pass and primal update are the stack's (update.py), and so are layer weights
and dual steps of arms whose constraints differ in numbers alone (weighting.py). An arm's own
``Training`` is complete again at every report: there it may leave, be stored, and go on alone.

The numbers are those of an arm alone, bit for bit. On a CPU an arm alone is in no stack, and there
is no fusion where bits differ (agreement.py). On a GPU an arm alone is a stack, too, of as many
rows as any.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from trainables.fused.agreement import may_fuse
from trainables.fused.stack import Stack
from trainables.fused.update import ROWS
from trainables.fused.weighting import JointWeighting, has_same_bits
from trainables.tasks.base import Batch
from trainables.training import StepLosses, Training


class FusedTraining:
    """Trainings of one task at one step that advance together; each stays complete by itself."""

    def __init__(self, trainings: Sequence[Training]) -> None:
        """Take trainings whose configurations differ in ``constraint`` alone, at the same step."""
        self.trainings = list(trainings)
        self._first = trainings[0]
        self._losses = StepLosses(self._first.model, self._first.task)
        self._rows = ROWS if self._first.parameters[0].is_cuda else 0
        self._stacks: list[Stack] = []
        self._stacked_at = -1  # the step that the stacks are at
        self._weightings = [training.weighting for training in trainings]
        self._weighs_jointly = has_same_bits(self._weightings, self._first.config.model.layers)

    @property
    def on_gpu(self) -> bool:
        """True where the arms are rows of stacks on a GPU."""
        return self._rows > 0

    def run_to(self, step: int) -> None:
        """Take primal steps until ``step`` are done; each arm counts its share of the time."""
        started = time.perf_counter()
        first = self._first.step
        for training in self.trainings:
            training.model.train()  # evaluation left all of them in eval mode
        stacks = self._stacks_at(first)
        weighting = JointWeighting(self._weightings, is_joint=self._weighs_jointly)
        sums_KS = torch.stack([training.sums for training in self.trainings])
        for current in range(first, step):
            seen_KF, norms_K = self._one_step(current, stacks, weighting)
            sums_KS += torch.stack([seen_KF[:, -1], norms_K], dim=1)
        for stack in stacks:
            stack.give_back()
        self._stacked_at = step
        if not self.on_gpu:  # where passes are captured with its tensors
            self._stacks, self._stacked_at = [], -1
        weighting.give_back()
        for sums_S, training in zip(sums_KS, self.trainings, strict=True):
            training.count(sums_S, max(step - first, 0))
        if self.on_gpu:
            torch.cuda.synchronize()
        seconds = (time.perf_counter() - started) / len(self.trainings)
        for training in self.trainings:
            training.took(max(step - first, 0), seconds)
            training.stack_rows = self._rows

    def _stacks_at(self, step: int) -> list[Stack]:
        """The arms in stacks: all in one, or ``ROWS`` at most on a GPU."""
        if self._stacked_at != step:
            at_once = self._rows or len(self.trainings)
            self._stacks = [
                Stack(self.trainings[start : start + at_once], self._losses, self._rows)
                for start in range(0, len(self.trainings), at_once)
            ]
        self._stacked_at = -1  # until all steps are taken
        return self._stacks

    def _one_step(
        self, step: int, stacks: list[Stack], weighting: JointWeighting
    ) -> tuple[Tensor, Tensor]:
        """The losses (over f_c) [K, L + 1] and norms of gradients [K] of primal step ``step``."""
        config, lrs = self._first.config, self._first.lrs(step)
        seen_KF = self._backward(step, stacks, weighting)
        norms_K = torch.cat([stack.step(lrs) for stack in stacks])
        if config.weight_ema > 0:  # which is of an arm's own parameters
            for stack in stacks:
                stack.give_weights()
            for training in self.trainings:
                training.average_weights(step)
        weighting.observe(step, seen_KF, self._first.lr_factor(step))
        return seen_KF, norms_K

    def _backward(self, step: int, stacks: list[Stack], weighting: JointWeighting) -> Tensor:
        """The gradients of all arms' weighted losses; the losses (over f_c) [K, L + 1]."""
        parts = self._parts(step)
        seen = []
        for part in parts:
            # a copy: rows as alone, and not in memory that the next pass writes to
            seen.append(torch.cat([stack.forward(part) for stack in stacks]))
            weights_KF = weighting.weights(step, seen[-1])
            of_stacks = torch.split(weights_KF, [stack.arms for stack in stacks])
            for stack, rows_KF in zip(stacks, of_stacks, strict=True):
                stack.backward(rows_KF, len(parts))
        return seen[0] if len(parts) == 1 else torch.stack(seen).mean(dim=0)

    def _parts(self, step: int) -> list[Batch]:
        return self._first.task.train_batch(step).parts(self._first.config.accumulate)


def alone(training: Training) -> Training | FusedTraining:
    """Training that takes an arm's steps without company: on a GPU in a stack, if it may be."""
    on_gpu = training.parameters[0].is_cuda
    return FusedTraining([training]) if on_gpu and may_fuse([training]) else training
