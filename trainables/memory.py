"""Peak memory of one arm: on the GPU where it trains there, else of this process.

Actors are reused, so the peak is reset when an arm starts. Linux can (``/proc/self/clear_refs``);
where it cannot, the peak is that of the process so far.
"""

from __future__ import annotations

import resource
from pathlib import Path

import torch


def reset_peak_memory(device: torch.device) -> None:
    """Start measuring from here."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, see proc(5)
    except OSError:
        return


def peak_memory_mb(device: torch.device) -> float:
    """Peak since ``reset_peak_memory``, in MiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
