"""Training loops of two leads: constraints under a shift, or per group of clips.

Both replace only how a batch becomes a gradient and what the multipliers are shown; order, noise,
optimiser, schedules and evaluation are the product's. Arms of these loops have the signature of the
product's arm with the same configuration, so they go into stores of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.arm_run import ArmRun
from trainables.begun_arm import BegunArm
from trainables.build import build_task, parameter_dtype, weighting_of
from trainables.config.arm import ArmConfig
from trainables.datasets.video.clips import Pixels
from trainables.layer_losses import last_loss, layer_losses
from trainables.primal_dual.lagrangian import PrimalDual
from trainables.primal_dual.weighting import Watched, Weighting
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.tasks.base import Task
from trainables.tasks.video_denoising import VideoDenoising
from trainables.training import Training

Indices = NDArray[np.int64]
GROUPS = 4  # of training clips, neighbours by name
SHIFTED_BY = 3.0  # constraints see noise of train_gamma to so many times as much
OTHER_BATCHES = 1_000_000  # added to the seed: those batches are of other samples, noise and gammas


class UnderShift(Training):
    """f_L on a batch at train_gamma, the constraints on another batch at gamma' above it."""

    def __init__(
        self, config: ArmConfig, task: Task, model: nn.Module, weighting: Weighting
    ) -> None:
        """As ``Training``; the shifted batches come from a task with more noise."""
        super().__init__(config, task, model, weighting)
        more = {
            "seed": config.seed + OTHER_BATCHES,
            "train_gamma_low": config.train_gamma,
            "train_gamma_high": round(SHIFTED_BY * config.train_gamma, 3),
        }
        device = torch.device(config.device)
        self._shifted = build_task(config.with_fields(more), device, parameter_dtype(config))

    def _backward(self, step: int) -> Tensor:
        """The gradient of f_L(near) + sum_l lambda_l g_l(shifted); the shifted losses, detached."""
        unit = self.task.scales.constant_loss
        near = last_loss(self.model, self.task, self.task.train_batch(step)).mean() / unit
        batch = self._shifted.train_batch(step)
        shifted_F = layer_losses(self.model, self.task, batch).mean(dim=1) / unit
        seen_F = shifted_F.detach()
        pushes_F = without_objective(self.weighting.weights(step, seen_F))
        (near + pushes_F @ shifted_F).backward()  # type: ignore[no-untyped-call]
        return seen_F


class PerGroup(Training):
    """The constraints of every group of clips with multipliers of its own; f_L over the batch.

    A group that a batch has no sample of takes no dual step. Each group's constraints count for
    one over the number of groups, so that one group trains as the product does.
    """

    def __init__(
        self,
        config: ArmConfig,
        task: Task,
        model: nn.Module,
        weighting: Weighting,
        groups: int = GROUPS,
    ) -> None:
        """As ``Training``; a weighting per group instead of ``weighting``."""
        device, dtype = torch.device(config.device), parameter_dtype(config)
        self._video = Remembering(config, device, dtype)
        super().__init__(config, self._video, model, weighting)
        self._groups = [
            weighting_of(
                config, task.scales, device, dtype, steps_per_epoch=self._video.steps_per_epoch
            )
            for _ in range(groups)
        ]
        self.weighting = OfGroups(self._groups, weighting)

    def _backward(self, step: int) -> Tensor:
        """The gradient of f_L + 1/G sum_g sum_l lambda_gl g_gl; the batch's losses, detached."""
        batch = self._video.train_batch(step)
        losses_FB = layer_losses(self.model, self._video, batch)
        losses_FB = losses_FB / self._video.scales.constant_loss
        objective = losses_FB[-1].mean()
        groups_B = torch.from_numpy(self._video.groups_of_last_batch(len(self._groups)))
        seen: dict[int, Tensor] = {}
        for group, weighting in enumerate(self._groups):
            is_here = groups_B == group
            if is_here.any():
                of_group_F = losses_FB[:, is_here].mean(dim=1)
                seen[group] = of_group_F.detach()
                pushes_F = without_objective(weighting.weights(step, seen[group]))
                objective = objective + pushes_F @ of_group_F / len(self._groups)
        objective.backward()  # type: ignore[no-untyped-call]
        assert isinstance(self.weighting, OfGroups)
        self.weighting.seen = seen
        return losses_FB.detach().mean(dim=1)


class OfGroups(PrimalDual):
    """Shows every group's weighting its own losses; reports what the whole batch's would."""

    def __init__(self, groups: list[Weighting], whole: Weighting) -> None:
        """``whole`` gives the names and constraints of reports; its multipliers stay at zero."""
        assert isinstance(whole, PrimalDual)
        self.__dict__.update(whole.__dict__)
        self._groups = groups
        self.seen: Mapping[int, Tensor] = {}

    def observe(self, step: int, losses_F: Tensor, lr_factor: float) -> None:
        """A dual step of every group that the batch had samples of."""
        Watched.observe(self, step, losses_F, lr_factor)
        for group, of_group_F in self.seen.items():
            self._groups[group].observe(step, of_group_F, lr_factor)

    def series(self) -> dict[str, Tensor]:
        """The mean over the groups of their multipliers and weights; violations of the whole."""
        shown = [group.series() for group in self._groups]
        means = {name: torch.stack([s[name] for s in shown]).mean(dim=0) for name in shown[0]}
        return {**means, "violations": Watched.series(self)["violations"]}


class Remembering(VideoDenoising):
    """The task, and the group of clips that each sample of the last training batch is of."""

    def clean_train_samples(self, indices_B: Indices) -> Pixels:
        """As the task; the indices are kept."""
        self._last_B = indices_B
        return super().clean_train_samples(indices_B)

    def groups_of_last_batch(self, count: int) -> Indices:
        """[B] in 0..count - 1: neighbouring clips are one group."""
        firsts = np.sort(np.fromiter(self.video.first_frames("train").values(), dtype=np.int64))
        windows_B = self._last_B // self._split("train").positions
        clips_B = np.searchsorted(firsts, self._train_starts[windows_B], side="right") - 1
        groups: Indices = clips_B * count // len(firsts)
        return groups


def without_objective(weights_F: Tensor) -> Tensor:
    """The multipliers' part of layer weights: the objective's 1 on the last layer taken off."""
    pushes_F = weights_F.clone()
    pushes_F[-1] -= 1.0
    return pushes_F


Loop = Callable[[ArmConfig, Task, nn.Module, Weighting], Training]
LOOPS: Mapping[str, Loop] = {"under_shift": UnderShift, "per_group": PerGroup}


class _OwnRun(ArmRun):
    """The product's run of an arm with another training loop; it cannot resume within an arm."""

    def __init__(self, config: ArmConfig, store: ArmStore, loop: Loop) -> None:
        """One report, at the end: there is no checkpoint to resume from."""
        assert config.report_every == config.steps
        super().__init__(config, store)
        self._loop = loop

    def _start(self, like: BegunArm | None) -> BegunArm | None:
        arm = super()._start(like)
        if arm is not None:
            started = arm.training
            arm.training = self._loop(self.config, arm.task, started.model, started.weighting)
        return arm


def trained_by(loop: str, config: ArmConfig, runs: ArmStore) -> ArmRecord:
    """The final record of an arm that one of these loops trains; ``runs`` is that loop's own."""
    run = _OwnRun(config, runs, LOOPS[loop])
    while not run.record.is_final:
        run.advance()
    return run.record
