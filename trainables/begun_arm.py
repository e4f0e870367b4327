"""Arm in the memory of a process: its task, its training, its evaluation."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from torch import nn

from trainables.build import build_model, placed, task_of_arm, weighting_of
from trainables.config.arm import ArmConfig
from trainables.evaluation.stacked import Row, StackedNetworks
from trainables.fused.training import FusedTraining, alone
from trainables.layer_losses import introduce
from trainables.sharding.ranks import ALONE, Ranks
from trainables.tasks.base import References, Task
from trainables.training import Training


@dataclass
class BegunArm:
    """State of an arm that has begun."""

    task: Task
    training: Training
    references: References
    device: torch.device
    eval_seconds: float = 0.0
    _alone: Training | FusedTraining | None = field(default=None, init=False)

    def run_to(self, step: int) -> None:
        """Take primal steps without company until ``step`` are done."""
        if self._alone is None:
            self._alone = alone(self.training)
        self._alone.run_to(step)

    def network(self) -> nn.Module | Row:
        """The network that is evaluated without company: in a stack where it was trained in one."""
        evaluated = self.training.evaluated
        return Row(StackedNetworks([evaluated], self.task), 0) if self.stack_rows else evaluated

    def join(self) -> None:
        """Let go of the stack of an arm that trains in company from now on."""
        self._alone = None

    @property
    def stack_rows(self) -> int:
        """Rows of the stack that took the last steps; 0: none."""
        return self.training.stack_rows

    def count_evaluation(self, started: float, network: nn.Module | Row) -> None:
        """Count the seconds since ``started``; of passes taken for several networks its part."""
        self.eval_seconds += time.perf_counter() - started
        if isinstance(network, Row):
            self.eval_seconds += network.owed_seconds()


def built(
    config: ArmConfig,
    device: torch.device,
    dtype: torch.dtype,
    *,
    ranks: Ranks = ALONE,
    shared: Task | None = None,
) -> tuple[Task, Training]:
    """An arm at its start: its task, unless another arm's is ``shared``, and its training."""
    task = task_of_arm(config, device, dtype) if shared is None else shared
    model = placed(config, build_model(config, task), device, complete=ranks is ALONE)
    if shared is None:
        introduce(model, task)
    weighting = weighting_of(
        config, task.scales, device, dtype, steps_per_epoch=task.steps_per_epoch
    )
    return task, Training(config, task, model, weighting, ranks)
