"""GPUs that a test runs on: an imitated one in the fast suite, a real one with `-m gpu`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from tests.support.gpu.cuda import imitated_cuda
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
    with imitated_cuda() as here:
        yield here
