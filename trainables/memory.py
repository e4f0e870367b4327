"""Memory of one arm: its peak, its share of a GPU, and running out of it.

The peak is that of the GPU where the arm trains there, else of this process. Actors are reused, so
it is reset when an arm starts. Linux can (``/proc/self/clear_refs``); where it cannot, the peak is
that of the process so far. torch is imported where it is used: drivers read the constant.
"""

from __future__ import annotations

import ctypes
import gc
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

_allowed_bytes = 0.0  # of its GPU, for tensors of this process; 0: not asked yet
_worked = False  # whether a tensor has been on the GPU of this process and back
KEPT_MB = 512  # of a GPU, at most, for what the next arms of a process read, too
CONTEXT_MB = 768  # of a GPU, taken by each process beside its tensors: CUDA's context and libraries

# Options of glibc's mallopt(3), and what they are set to. What is larger is given back at once, as
# ever; by themselves they follow the largest block that was freed.
MALLOC_OPTIONS = {
    -1: 64 * 2**20,  # M_TRIM_THRESHOLD: bytes free at the end of a heap that are kept
    -3: 4 * 2**20,  # M_MMAP_THRESHOLD: bytes of a block that gets pages of its own
}


def keep_freed_memory() -> None:
    """Have this process use freed memory again, where the C library is glibc.

    By itself glibc gives it back as soon as there is twice as much as the largest block that was
    freed, and a batch of evaluation spends up to two fifths of its time on getting the same pages
    anew. More than 64 MiB may stay where something live lies behind it, until
    ``reset_peak_memory``.
    """
    if (set_option := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        for option, value in MALLOC_OPTIONS.items():
            set_option(option, value)


def reset_peak_memory(device: torch.device) -> None:
    """Start measuring from here; memory that an arm before this one freed is given back."""
    if device.type == "cuda":
        import torch

        gc.collect()  # cycles may hold the last arm's tensors, which the cache cannot give back
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return
    if (give_back := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        give_back(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, see proc(5)
    except OSError:
        return


def peak_memory_mb(device: torch.device) -> float:
    """Peak since ``reset_peak_memory``, in MiB."""
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def hold_to_share(device: torch.device, share: float) -> None:
    """Let this process take no more of its GPU than its share, so that it can only hurt itself.

    The share is in (0, 1]; CUDA's context comes out of it. Nothing is done on the CPU.
    """
    global _allowed_bytes
    if device.type == "cuda":
        import torch

        total = torch.cuda.get_device_properties(device).total_memory
        tensors = share - CONTEXT_MB * 2**20 / total if share < 1 else 1.0
        torch.cuda.set_per_process_memory_fraction(max(tensors, 0.0))  # of the current device
        _allowed_bytes = max(tensors, 0.0) * total


def most_kept_bytes() -> float:
    """Bytes of its GPU that this process may keep for later arms; 0 before ``hold_to_share``."""
    return min(KEPT_MB * 2**20, _allowed_bytes / 16)


def gpu_is_lost() -> bool:
    """True if this process can no longer use its GPU, and could before.

    After an illegal access, a failed assertion or an error of the hardware, CUDA fails every later
    call of the process (see cudaErrorIllegalAddress), also those for the next arm.
    """
    import torch

    if not (_worked and torch.cuda.is_initialized()):  # type: ignore[no-untyped-call]
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        return exhausted(error) is None
    return False


def why_cuda_does_not_start() -> str:
    """The error, in one line; empty where a tensor can be put on the GPU and read back.

    A GPU whose memory is taken, by others or beyond this process's share, has started.
    """
    global _worked
    import torch

    try:
        torch.zeros(1, device="cuda").item()  # waits: CUDA reports errors later than the call
    except (RuntimeError, AssertionError) as error:
        if exhausted(error) is None:
            return (str(error).splitlines() or [type(error).__name__])[0]
    else:
        _worked = True
    return ""


_GPU_TEXTS = ("CUDA out of memory", "CUDA error: out of memory", "_STATUS_ALLOC_FAILED")
_CPU_TEXTS = ("can't allocate memory", "Cannot allocate memory")


def exhausted(error: BaseException) -> Literal["GPU", "CPU"] | None:
    """The memory that was too small, or None when the error is of another kind.

    Only PyTorch's allocator has a class for it; drivers and libraries say it in their texts.
    """
    import torch

    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "GPU"
    if isinstance(error, MemoryError):
        return "CPU"
    if isinstance(error, RuntimeError | OSError):
        text = str(error)
        if any(sign in text for sign in _GPU_TEXTS):
            return "GPU"
        if any(sign in text for sign in _CPU_TEXTS):
            return "CPU"
    return None
