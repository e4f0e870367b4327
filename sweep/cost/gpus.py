"""GPUs whose cost is estimated, by their data sheets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Gpu:
    """A GPU by its data sheet."""

    tflops: float  # float32, no tensor cores: what torch uses unless it is told otherwise
    tflops_bfloat16: float  # tensor cores, dense
    memory_gb: float


GPUS: Mapping[str, Gpu] = {
    "rtx3080ti": Gpu(34.1, 68.0, 12),
    "rtx3090": Gpu(35.6, 71.0, 24),
    "rtx4090": Gpu(82.6, 165.0, 24),
    "t4": Gpu(8.1, 8.1, 16),  # bfloat16 is emulated
    "v100": Gpu(15.7, 15.7, 32),
    "a10g": Gpu(31.2, 70.0, 24),
    "l4": Gpu(30.3, 121.0, 24),
    "a100": Gpu(19.5, 312.0, 80),
    "h100": Gpu(66.9, 989.0, 80),
    "h200": Gpu(66.9, 989.0, 141),
}


def gpu_here() -> str:
    """Name of this machine's GPU; empty: there is none."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def gpu_called(name: str) -> str | None:
    """The GPU of GPUS that calls itself so; None: none of them.

    >>> gpu_called("NVIDIA GeForce RTX 3080 Ti"), gpu_called("NVIDIA H100 80GB HBM3")
    ('rtx3080ti', 'h100')
    >>> gpu_called("NVIDIA L40S") is None
    True
    """
    words = re.findall(r"[a-z0-9]+", name.lower())
    spans = {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
    return max(spans & GPUS.keys(), key=len, default=None)
