"""Timed training steps on noise, for estimates: an arm's loop without its data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sweep.cost.noise_task import noise_task
from trainables.build import build_model, parameter_dtype, placed, weighting_of
from trainables.config.arm import ArmConfig
from trainables.training import Training

CPU = torch.device("cpu")
FEWEST, MOST = 3, 30  # steps that are timed, after one that is not


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Use ``count`` threads of torch in the block; then again those of before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def step_times(config: ArmConfig, most_s: float) -> list[float]:
    """Seconds of single training steps of ``config``, on this CPU with its threads.

    At least FEWEST, at most MOST, and no more once they took ``most_s``.
    """
    with torch_threads(config.threads):
        task, dtype = noise_task(config), parameter_dtype(config)
        training = Training(
            config,
            task,
            placed(config, build_model(config, task), CPU),
            weighting_of(config, task.scales, CPU, dtype, steps_per_epoch=None),
        )
        training.run_to(1)  # allocates Adam's moments
        seconds: list[float] = []
        while len(seconds) < FEWEST or (len(seconds) < MOST and sum(seconds) < most_s):
            started = time.perf_counter()
            training.run_to(training.step + 1)
            seconds.append(time.perf_counter() - started)
        return seconds
