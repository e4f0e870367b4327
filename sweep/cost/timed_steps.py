"""Speed of this CPU, for estimates: training steps on noise, and matrix products."""

from __future__ import annotations

import time
import timeit
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

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


@lru_cache(maxsize=8)
def matrix_rate(threads: int, in_bfloat16: bool) -> float:
    """Operations a second of a transformer's linear layer, forward and backward, here.

    In float32, or in bfloat16. A product's transpose matters where bfloat16 is emulated.
    """
    dtype = torch.bfloat16 if in_bfloat16 else torch.float32
    inputs, weight, gradient = (
        torch.ones(shape, dtype=dtype) for shape in ((128, 768), (3072, 768), (128, 3072))
    )

    def products() -> tuple[torch.Tensor, ...]:
        return inputs @ weight.mT, gradient @ weight, gradient.mT @ inputs

    with torch_threads(threads):
        seconds = timeit.repeat(products, number=1, repeat=3)
    return 3 * 2.0 * 128 * 768 * 3072 / min(seconds)


def slow_bfloat16(config: ArmConfig) -> str:
    """How many times slower a run's bfloat16 is than float32 here, in words; '' below 2."""
    if config.dtype != "bfloat16":
        return ""
    slower = matrix_rate(config.threads, False) / matrix_rate(config.threads, True)
    if slower < 2:
        return ""
    return (
        f"bfloat16, which this CPU computes {slower:.0f} times slower than float32: consider "
        "`--set dtype=float32`, which trains new arms"
    )
