"""Profile of one training step of UT: kernels, gaps between them, floors by bytes and operations.

    python -m benchmarks.gpu.step_profile > build/gpu/step_profile.json

Busy is what torch.profiler adds up over the kernels of a step, the rest of the step's wall time is
gaps: the device waits for launches. The floors are a step's floating-point operations at the rate
of a large matrix product of this device in float32, and the bytes that its operations read and
write, each tensor as if it came from memory, at the rate of a large copy.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.fused_arms import training_of
from benchmarks.gpu.printed import NO_MEANING, parser, printed, waited
from benchmarks.gpu.shapes import shape
from trainables.build import build_task, parameter_dtype
from trainables.config.arm import ArmConfig
from trainables.training import Training

NOT_SEEN = "torch.profiler saw none: may this user read the device's counters?"
WARM = 10  # steps before anything is measured
PROFILED = 5  # steps
SIDE = {True: 256, False: 8192}  # of the matrices whose product and copy are timed


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of the tensors that operations read and write; views move none."""

    moved = 0
    operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As the operation, counted."""
        made = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = [t for t in tree_leaves((args, kwargs, made)) if isinstance(t, Tensor)]
            self.moved += sum(tensor.nbytes for tensor in tensors)
            self.operations += 1
        return made


def best_seconds(function: Callable[[], object], device: torch.device) -> float:
    """The fastest of a few calls."""
    seconds = []
    for _ in range(8):
        waited(device)
        started = time.perf_counter()
        function()
        waited(device)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def rates(device: torch.device, *, small: bool) -> tuple[float, float]:
    """Operations a second of a float32 matrix product, and bytes a second of a copy."""
    side = SIDE[small]
    left, right = (torch.randn(side, side, device=device) for _ in range(2))
    product_s = best_seconds(lambda: left @ right, device)
    copy_s = best_seconds(lambda: left.copy_(right), device)
    return 2 * side**3 / product_s, 2 * left.nbytes / copy_s


def kernels(training: Training) -> dict[str, Any]:
    """Of one step: how many kernels, and how long they were busy."""
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities) as profiled:
        training.run_to(training.step + PROFILED)
    ran = [
        event
        for event in profiled.events() or ()
        if event.device_type.name == "CUDA" and not event.is_user_annotation
    ]
    busiest: dict[str, float] = {}
    for event in ran:
        busiest[event.name] = busiest.get(event.name, 0.0) + event.time_range.elapsed_us()
    most = sorted(busiest.items(), key=lambda one: -one[1])[:8]
    return {
        "kernels": round(len(ran) / PROFILED, 1),
        "busy_ms": round(sum(busiest.values()) / PROFILED / 1e3, 4),
        "busiest_us": {name[:80]: round(us / PROFILED, 1) for name, us in most},
    }


def waits(training: Training) -> int:
    """How often the host waits for the device in one step."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            training.run_to(training.step + 1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(warning.message) for warning in warned)


def profiled(config: ArmConfig, *, small: bool) -> dict[str, Any]:
    """Everything of one arm's step."""
    device = torch.device(config.device)
    task = build_task(config, device, parameter_dtype(config))
    training = training_of(config, task)
    training.run_to(WARM)
    steps = 4 if small else 50
    started = time.perf_counter()
    training.run_to(WARM + steps)
    step_s = (time.perf_counter() - started) / steps
    counted, traffic = FlopCounterMode(display=False), Traffic()  # type: ignore[no-untyped-call]
    with counted:
        training.run_to(training.step + 1)
    with traffic:
        training.run_to(training.step + 1)
    per_s, bytes_per_s = rates(device, small=small)
    found: dict[str, Any] = {
        "step_ms": round(1e3 * step_s, 4),
        "operations": traffic.operations,
        "flops": counted.get_total_flops(),
        "bytes": traffic.moved,
        "tflops_of_a_product": round(per_s / 1e12, 2),
        "gb_per_s_of_a_copy": round(bytes_per_s / 1e9, 1),
        "floor_by_flops_ms": round(1e3 * counted.get_total_flops() / per_s, 4),
        "floor_by_bytes_ms": round(1e3 * traffic.moved / bytes_per_s, 4),
        "kernels": NO_MEANING,
        "waits_a_step": NO_MEANING,
    }
    if device.type == "cuda":
        found["waits_a_step"] = waits(training)
        of_device = kernels(training)
        found["kernels"] = NOT_SEEN
        if of_device["kernels"]:
            found |= of_device | {"gaps_ms": round(1e3 * step_s - of_device["busy_ms"], 4)}
    return found


def line_of(arm: str, found: dict[str, Any]) -> str:
    """What the table says of one arm."""
    text = f"{arm}: a step {found['step_ms']:.3g} ms, {found['operations']} operations"
    if "gaps_ms" in found:
        text += (
            f", {found['kernels']:g} kernels, busy {found['busy_ms']:.3g} ms, gaps "
            f"{found['gaps_ms']:.3g}, {found['waits_a_step']} waits"
        )
    return (
        f"{text}; floor {found['floor_by_flops_ms']:.2g} ms by operations, "
        f"{found['floor_by_bytes_ms']:.2g} by bytes"
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args(arguments)
    with printed("step_profile", options) as found, tempfile.TemporaryDirectory() as folder:
        config = shape("ut", Path(folder), device=options.device, small=options.small)
        config = config.with_fields({"steps": 10**6})
        for arm in (config, config.unconstrained()):
            found[arm.arm] = profiled(arm, small=options.small)
            found["lines"].append(line_of(arm.arm, found[arm.arm]))


if __name__ == "__main__":
    main()
