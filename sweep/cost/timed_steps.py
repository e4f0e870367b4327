"""Timed training steps on noise, for estimates: an arm's loop without its data."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from trainables.build import build_model, parameter_dtype
from trainables.config.arm import RunConfig
from trainables.primal_dual.constraints import Scales
from trainables.primal_dual.weighting import weighting_of
from trainables.random_keys import keyed_generator
from trainables.tasks.base import Batch, autocast_of
from trainables.tasks.perturbations import gaussian
from trainables.training import Training

CPU = torch.device("cpu")
FEWEST, MOST = 3, 30  # steps that are timed, after one that is not


class NoiseTask:
    """A task whose clean sequences are noise; what costs time in a step is there, the data not."""

    steps_per_epoch = 1000

    def __init__(self, config: RunConfig) -> None:
        """Draw the clean pixels once."""
        shape = (config.batch_size, config.data.frames, config.data.patch_size**2)
        self.autocast = autocast_of(config)
        self.scales = Scales(constant_loss=float(shape[2]), identity_loss=0.02 * shape[2])
        self._pixels = torch.randint(0, 256, shape, dtype=torch.uint8)
        self.dtype = parameter_dtype(config)

    def train_batch(self, step: int) -> Batch:
        """The same clean sequences with new noise."""
        targets = self._pixels.to(self.dtype).div_(255)
        return Batch(gaussian(targets, 0.02, keyed_generator(CPU, "timed", step)), targets)

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """As in video denoising: [B] from two of [B, T, D]."""
        return (prediction - targets).square().sum(-1).mean(-1)


def step_times(config: RunConfig, most_s: float) -> list[float]:
    """Seconds of single training steps of ``config``, on this CPU with its threads.

    At least FEWEST, at most MOST, and no more once they took ``most_s``.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        task, dtype = NoiseTask(config), parameter_dtype(config)
        training = Training(
            config,
            task,
            build_model(config, task).to(dtype),
            weighting_of(config, task.scales, CPU, dtype, steps_per_epoch=task.steps_per_epoch),
        )
        training.run_to(1)  # allocates Adam's moments
        seconds: list[float] = []
        while len(seconds) < FEWEST or (len(seconds) < MOST and sum(seconds) < most_s):
            started = time.perf_counter()
            training.run_to(training.step + 1)
            seconds.append(time.perf_counter() - started)
        return seconds
    finally:
        torch.set_num_threads(threads)
