"""Imitated CUDA for a process without one: what torch's C++ part answers below ``torch.cuda``.

The functions of ``torch.cuda`` are torch's own, with their signatures, checks and errors; only the
calls below them, which a build for CPUs lacks, are answered here, from one ``Gpu`` (tensors.py).
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.utils._foreach_utils
from torch import Tensor
from torch.utils._pytree import tree_map

from tests.support.gpu import tensors
from tests.support.gpu.tensors import DeviceTensor, Gpu, gpu

_NARROW = (
    "matmul", "mm", "bmm", "mv", "addmm", "baddbmm", "linear", "conv2d", "conv1d",
    "scaled_dot_product_attention",
)  # fmt: skip
_WIDE = (
    "softmax.int", "log_softmax.int", "layer_norm", "native_layer_norm", "exp", "log", "log1p",
    "rsqrt", "reciprocal", "pow.Tensor_Scalar", "softplus", "nll_loss", "cross_entropy_loss",
    "mse_loss", "cumsum", "prod", "sum", "sum.dim_IntList", "norm.Scalar", "linalg_vector_norm",
    "logsumexp",
)  # fmt: skip


class DeviceGenerator(torch.Generator):
    """A generator of the device: other numbers than the CPU's of the same seed."""

    device = torch.device("cuda", 0)  # type: ignore[assignment]
    as_cpu = False  # whether it draws what one of the CPU draws

    def __init__(self) -> None:
        tensors.generators.add(self._cdata)
        weakref.finalize(self, tensors.generators.discard, self._cdata).atexit = False

    def manual_seed(self, seed: int) -> DeviceGenerator:
        super().manual_seed(seed if self.as_cpu else seed ^ 0x5EED)
        return self


class _Generators(type(torch.Generator)):  # type: ignore[misc]
    """``torch.Generator`` that knows the device."""

    def __call__(cls, device: Any = "cpu") -> torch.Generator:
        if torch.device(device).type == "cpu":
            return _real_generator(device)
        torch.cuda._lazy_init()
        return DeviceGenerator()

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _real_generator)


_real_generator = torch.Generator
_real_grouped = torch._C._group_tensors_by_device_and_dtype
_real_load, _real_save = torch.load, torch.save


class _AnyGenerator(metaclass=_Generators):
    pass


class Event:
    """An event that was reached once the host has waited."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self.enable_timing = enable_timing

    def record(self, stream: object = None) -> None:
        gpu().require_alive()

    def wait(self, stream: object = None) -> None:
        gpu().require_alive()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        gpu().synchronize("event")

    def elapsed_time(self, end: Event) -> float:
        if not (self.enable_timing and end.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        return 1.0


class Stream:
    """A stream: work on it is done in order, as on all streams here."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        torch.cuda._lazy_init()
        self.device, self.device_index, self.cuda_stream = torch.device("cuda", 0), 0, id(self)

    def wait_stream(self, other: Stream) -> None:
        gpu().require_alive()

    def synchronize(self) -> None:
        gpu().synchronize("stream")


class CUDAGraph:
    """Operations that were captured, to be done again on the same memory."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._operations: list[Any] = []

    def capture_begin(self, *pool: Any, **_: Any) -> None:
        gpu().capture = []

    def pool(self) -> tuple[int, int]:
        return (0, id(self))

    def capture_end(self) -> None:
        self._operations, gpu().capture = gpu().capture or [], None

    def replay(self) -> None:
        gpu().require_alive()
        for func, args, kwargs, made in self._operations:
            found = func(*args, **kwargs)
            results = found if isinstance(found, list | tuple) else [found]
            for target, result in zip(made, [r for r in results if r is not None], strict=False):
                if target.held is not result:
                    target.held.copy_(result)


def load(file: Any, map_location: Any = None, **options: Any) -> Any:
    """``torch.load``: what goes to the device arrives there, the rest on the CPU."""
    assert map_location is not None, "say where a state goes: it may come from another device"
    found = _real_load(file, map_location="cpu", **options)
    to = torch.device(map_location)
    return tree_map(lambda x: x.to(to) if isinstance(x, Tensor) else x, found)


def save(state: Any, file: Any, **options: Any) -> None:
    """``torch.save``, whose copies from the device make the host wait."""

    def on_host(value: Any) -> Any:
        return value.cpu() if isinstance(value, DeviceTensor) else value

    _real_save(tree_map(on_host, state), file, **options)


def _drawing(draw: Any) -> Any:
    """A function that draws, whose generator must be of the device that it draws on."""

    def checked(*args: Any, generator: Any = None, device: Any = None, **kwargs: Any) -> Tensor:
        kind = torch.device(device or "cpu").type
        if generator is not None and generator.device.type != kind:
            raise RuntimeError(
                f"Expected a '{kind}' device type for generator but found '{generator.device.type}'"
            )
        found: Tensor = draw(*args, generator=generator, device=device, **kwargs)
        return found

    return checked


def _grouped(tensors: Any, indices: bool) -> Any:
    """Groups of tensors for one kernel, by their device as Python sees it."""
    found = _real_grouped(tensors, indices)
    return {(of[0][0].device, kind): (of, at) for (_, kind), (of, at) in found.items()}


def _fraction(fraction: float, device: int) -> None:
    gpu().fraction = fraction


def _memory_stats(device: int) -> dict[str, Any]:
    here = gpu()

    def of(current: int, peak: int) -> dict[str, Any]:
        return {"all": {"current": current, "peak": peak, "allocated": 0, "freed": 0}}

    return {
        "allocated_bytes": of(here.used, here.peak),
        "reserved_bytes": of(here.reserved, here.reserved_peak),
    }


def _reset_peak(device: int) -> None:
    here = gpu()
    here.peak, here.reserved_peak = here.used, here.reserved


def _empty_cache() -> None:
    here = gpu()
    here.require_alive()
    here.reserved = -(-here.used // tensors.SEGMENT) * tensors.SEGMENT


def _visible() -> int:
    """GPUs of this process: one, unless CUDA_VISIBLE_DEVICES hides it."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return 1 if named is None else int(named.split(",")[0].strip() not in ("", "-1"))


def _init() -> None:
    """There is no context yet: what keeps it away fails the first operation."""
    if not _visible():
        raise RuntimeError("No CUDA GPUs are available")


def _set_mode(mode: int) -> None:
    gpu().sync_mode = mode


def _device_of(index: int) -> int:
    if index >= _visible():
        raise torch.AcceleratorError("CUDA error: invalid device ordinal")
    return 0


def _calls(here: Gpu) -> dict[str, Any]:
    """What ``torch._C`` lacks, by name."""
    stream = (0, 0, 1)
    return {
        "_cuda_getDeviceCount": _visible,
        "_cuda_init": _init,
        "_cuda_getDevice": lambda: 0,
        "_cuda_setDevice": _device_of,
        "_cuda_synchronize": lambda: gpu().synchronize(asked=True),
        "_cuda_emptyCache": _empty_cache,
        "_cuda_memoryStats": _memory_stats,
        "_cuda_resetPeakMemoryStats": _reset_peak,
        "_cuda_setMemoryFraction": _fraction,
        "_cuda_getMemoryFraction": lambda device: gpu().fraction,
        "_cuda_set_sync_debug_mode": _set_mode,
        "_cuda_get_sync_debug_mode": lambda: gpu().sync_mode,
        "_cuda_isCurrentStreamCapturing": lambda: gpu().capture is not None,
        "_cuda_getCurrentStream": lambda device: stream,
        "_cuda_getCurrentRawStream": lambda device: 0,
        "_cuda_setStream": lambda **_: None,
        "_cuda_isInBadFork": lambda: False,
        "_group_tensors_by_device_and_dtype": _grouped,
        "_cuda_ipc_collect": lambda: None,
        "_host_emptyCache": lambda: None,
    }


def _casting(op: Any, to: torch.dtype | None) -> Any:
    """An operation under ``torch.autocast("cuda")``, whose kernels ask torch's C++ for the device.

    ``to`` is the type that it is cast to, None: autocast's own.
    """
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)

    def cast(*args: Any, **kwargs: Any) -> Any:
        wanted = to or torch.get_autocast_dtype("cuda")

        def as_wanted(value: Any) -> Any:
            is_float = isinstance(value, Tensor) and value.is_floating_point()
            return value.to(wanted) if is_float and value.dtype != torch.float64 else value

        with torch._C._ExcludeDispatchKeyGuard(key):
            return op(*tree_map(as_wanted, args), **tree_map(as_wanted, kwargs))

    return cast


def _autocasts(library: torch.library.Library) -> None:
    """Lists of operations: docs.pytorch.org, Automatic Mixed Precision, Autocast Op Reference."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own kernels come back when the library goes
        for names, to in ((_NARROW, None), (_WIDE, torch.float32)):
            for name in names:
                packet, _, overload = name.partition(".")
                op = getattr(getattr(torch.ops.aten, packet), overload or "default")
                library.impl(name, _casting(op, to))


@contextmanager
def imitated_cuda(
    total: int = 8 << 30, *, pinned: int = 64 << 20, draws_as_cpu: bool = False
) -> Iterator[Gpu]:
    """One imitated GPU in this process, as long as the block lasts.

    Args:
        total: bytes of its memory.
        pinned: bytes of the host's memory that may be pinned.
        draws_as_cpu: seeds mean the numbers that they mean on the CPU, so that what is trained can
            be compared; on a real GPU they never do.
    """
    here = Gpu(total, pinned)
    library = torch.library.Library("aten", "IMPL", "CUDA")
    library.impl("empty.memory_format", tensors.empty)
    library.impl("empty_strided", tensors.empty_strided)
    autocast = torch.library.Library("aten", "IMPL", "AutocastCUDA")
    _autocasts(autocast)
    properties = SimpleNamespace(
        name="Imitated GPU", total_memory=total, major=9, minor=0, multi_processor_count=132
    )
    runtime = SimpleNamespace(cudaMemGetInfo=lambda device: (total - here.used, total))
    cuda, generator = torch.cuda, DeviceGenerator()
    patched: list[tuple[Any, str, Any]] = [
        *((torch._C, name, call) for name, call in _calls(here).items()),
        (cuda, "_cudart", runtime),
        (cuda, "_initialized", False),
        (cuda, "_get_device_properties", lambda device: properties),
        (cuda, "_exchange_device", _device_of),
        (cuda, "_maybe_exchange_device", lambda index: 0),
        (cuda, "_is_in_bad_fork", lambda: False),
        (cuda, "default_generators", (generator,)),
        (cuda, "Event", Event),
        (cuda, "Stream", Stream),
        (cuda, "CUDAGraph", CUDAGraph),
        (cuda.graphs, "_cuda_isCurrentStreamCapturing", lambda: here.capture is not None),
        (cuda, "current_stream", lambda device=None: Stream()),
        (cuda, "stream", lambda stream: ExitStack()),
        (cuda.graph, "default_capture_stream", None),
        (DeviceGenerator, "as_cpu", draws_as_cpu),
        (torch, "Generator", _AnyGenerator),
        (torch, "load", load),
        (torch, "save", save),
        (Tensor, "to", tensors.to_device),
        (Tensor, "pin_memory", lambda self, device=None: here.pin(self)),
        (Tensor, "is_pinned", lambda self, device=None: getattr(self, "_is_pinned", False)),
        *((torch, n, _drawing(getattr(torch, n))) for n in ("rand", "randn", "randperm")),
    ]
    foreach = torch.utils._foreach_utils._foreach_supported_types
    with ExitStack() as undo:
        for owner, name, value in patched:
            undo.enter_context(mock.patch.object(owner, name, value, create=True))
        tensors._current.append(here)
        undo.callback(tensors._current.remove, here)
        undo.callback(library._destroy)
        undo.callback(autocast._destroy)
        foreach.append(DeviceTensor)
        undo.callback(foreach.remove, DeviceTensor)
        yield here
