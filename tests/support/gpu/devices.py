"""GPUs that a test runs on: an imitated one in the fast suite, a real one with `-m gpu`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch

from trainables import memory
from trainables.environment import environment

if TYPE_CHECKING:  # the imitation leans on torch's internals, and a real GPU does without
    from tests.support.gpu.tensors import Gpu

GPUS = (
    pytest.param(
        "imitated",
        marks=pytest.mark.skipif(
            torch.backends.cuda.is_built(), reason="this torch has CUDA of its own: see -m gpu"
        ),
    ),
    pytest.param(
        "real",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
        ],
    ),
)


@contextmanager
def gpu_of(kind: str) -> Iterator[Gpu | None]:
    """A GPU of that kind as long as the block lasts; None for a real one."""
    if kind == "real":
        yield None
        return
    with imitated_gpu() as here:
        yield here


@contextmanager
def imitated_gpu(*given: Any, **options: Any) -> Iterator[Gpu]:
    """An imitated GPU, as in a process that has seen no other; arguments as ``imitated_cuda``'s."""
    from tests.support.gpu.cuda import imitated_cuda

    environment.cache_clear()
    memory._worked = False
    try:
        with imitated_cuda(*given, **options) as here:
            yield here
    finally:
        environment.cache_clear()
        memory._worked = False
