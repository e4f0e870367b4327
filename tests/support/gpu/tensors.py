"""Tensors of an imitated CUDA device: their numbers lie on the CPU, their rules are a GPU's.

A tensor on "cuda:0" is a subclass that holds a CPU tensor. Every operation on one comes by
``launch``, which checks what a GPU checks (devices, generators, types, captures, memory), computes
on the CPU and wraps what came out. Autograd, autocast and vmap see a tensor of a CUDA device.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

BLOCK = 512  # bytes: what CUDA's allocator rounds up to
SEGMENT = 2 << 20  # bytes that it takes from the driver at once, at least
_CUDA, _PRIVATE = 1, 20  # of c10::DeviceType
_ATEN, _DEVICE = torch.ops.aten, torch.device("cuda", 0)
_COPIES = (_ATEN.copy_.default, _ATEN._to_copy.default)
_INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
# Read back what their results depend on, without a tag of torch's that says so.
_READS_BACK = {"nonzero", "masked_select", "_unique2", "unique_dim", "is_nonzero", "equal"}
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot"}
_real_to = Tensor.to
_LOST = "CUDA error: an illegal memory access was encountered"


class _Guard(torch._C._acc.DeviceGuard):  # type: ignore[misc]
    """What torch's C++ asks of a device; torch takes such an object for PrivateUse1 alone."""

    def type_(self) -> Any:
        return torch._C._autograd.DeviceType.CUDA  # type: ignore[attr-defined]


def _guard_cuda() -> _Guard | None:
    """Give torch's C++ a device guard of CUDA, which a build for CPUs has none of.

    When this file is imported, since the threads of the backward pass are counted once, at the
    first backward pass of the process.
    """
    if torch.backends.cuda.is_built():
        return None
    guard = _Guard()
    torch._C._acc.register_python_privateuseone_device_guard(guard)  # type: ignore[attr-defined]
    c10 = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libc10.so"))
    symbol = "_ZN3c104impl26device_guard_impl_registryE"
    registry = (ctypes.c_void_p * (_PRIVATE + 1)).in_dll(c10, symbol)
    registry[_CUDA] = registry[_PRIVATE]
    return guard


_GUARD = _guard_cuda()


class Gpu:
    """One imitated GPU: its memory, its streams' state, and whether it still answers."""

    def __init__(self, total: int = 8 << 30, pinned: int = 64 << 20) -> None:
        """Of so many bytes of memory, with so many of the host's that may be pinned."""
        self.total, self.pinned_most = total, pinned
        self.fraction = 1.0
        self.used = self.peak = self.reserved = self.reserved_peak = self.pinned = 0
        self.lost = False
        self.sync_mode = 0  # of set_sync_debug_mode: 0, 1 (warn), 2 (error)
        self.synced: list[str] = []  # what waited for the device
        self.launched = 0  # operations
        self.capture: list[tuple[Any, Any, Any, list[DeviceTensor]]] | None = None
        self._arriving: list[Callable[[], object]] = []  # copies that the host must not read yet
        self._known: set[int] = set()  # addresses of storages that are counted
        self.fails_at: Callable[[str], BaseException | None] = lambda name: None

    # --- memory -----------------------------------------------------------------------------------

    def take(self, storage: torch.UntypedStorage) -> None:
        """Count a storage until it is freed. OutOfMemoryError where it does not fit."""
        key = storage._cdata
        if key in self._known:
            return
        size = -(-storage.nbytes() // BLOCK) * BLOCK
        if -(-(self.used + size) // SEGMENT) * SEGMENT > self.fraction * self.total:
            raise torch.cuda.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {size / 2**20:.2f} MiB. GPU 0 has a total "
                f"capacity of {self.total / 2**30:.2f} GiB of which "
                f"{(self.total - self.used) / 2**30:.2f} GiB is free."
            )
        self._known.add(key)
        self.used += size
        self.peak = max(self.peak, self.used)
        self.reserved = max(self.reserved, -(-self.used // SEGMENT) * SEGMENT)
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        weakref.finalize(storage, self._free, key, size).atexit = False

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.used -= size

    def pin(self, tensor: Tensor) -> Tensor:
        """A copy in pinned memory, of which there is little."""
        if self.pinned + tensor.nbytes > self.pinned_most:
            raise RuntimeError("CUDA error: out of memory")  # cudaHostAlloc's, not the allocator's
        pinned = tensor.clone()
        pinned._is_pinned = True  # type: ignore[attr-defined]
        self.pinned += tensor.nbytes
        weakref.finalize(pinned, self._unpin, tensor.nbytes).atexit = False
        return pinned

    def _unpin(self, size: int) -> None:
        self.pinned -= size

    # --- time -------------------------------------------------------------------------------------

    def require_alive(self) -> None:
        """CUDA fails every call of a process after the first that it could not survive."""
        if self.lost:
            raise torch.AcceleratorError(_LOST)

    def synchronize(self, why: str = "synchronize", *, asked: bool = False) -> None:
        """The host waits: what is on its way arrives; refused while a stream is captured."""
        self.require_alive()
        if self.capture is not None:
            raise torch.AcceleratorError(
                "CUDA error: operation not permitted when stream is capturing"
            )
        if not asked:
            self.synced.append(why)
            if self.sync_mode == 2:
                raise RuntimeError("called a synchronizing CUDA operation")
        arriving, self._arriving = self._arriving, []
        for arrive in arriving:
            arrive()

    def arrives(self, target: Tensor, source: Tensor) -> None:
        """``target`` on the host holds nothing of use until the host has waited."""
        copy = source.clone()
        target.fill_(torch.nan if target.is_floating_point() else 77)
        self._arriving.append(lambda: target.copy_(copy))


_current: list[Gpu] = []
generators: set[int] = set()  # addresses of those that draw on the device


def gpu() -> Gpu:
    """The imitated GPU that is installed."""
    if not _current:
        raise AssertionError("Torch not compiled with CUDA enabled")
    return _current[-1]


class DeviceTensor(Tensor):
    """A tensor on cuda:0."""

    held: Tensor  # its numbers, on the CPU
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: Tensor) -> DeviceTensor:
        gpu().take(held.untyped_storage())
        made = Tensor._make_subclass(  # type: ignore[attr-defined]
            cls, held.detach(), device_for_backend_keys=_DEVICE
        )
        made.held = held
        return made  # type: ignore[no-any-return]

    # torch's C++ takes it for a CPU tensor with CUDA's kernels: what looks at the device before any
    # operation is answered here.
    device, is_cuda, is_cpu = _DEVICE, True, False  # type: ignore[assignment]

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        copy, (device, dtype, later, layout) = kwargs.pop("copy", False), _asked(args, kwargs)
        if device is not None and device.type == "cpu":
            return _to_host(gpu(), self, dtype or self.dtype, later=later)
        if dtype in (None, self.dtype) and not copy:
            return self
        made: Tensor = _ATEN._to_copy.default(self, dtype=dtype, memory_format=layout)
        return made

    def cpu(self, *_: Any) -> Tensor:
        return self.to("cpu")

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return launch(func, args, kwargs or {})

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """So that modules that move to the device swap their parameters for such tensors."""
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], *_: object) -> DeviceTensor:
        return DeviceTensor(inner["held"])

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceTensor:
        copied = self.detach().clone().requires_grad_(self.requires_grad)
        copied.__dict__.update({k: v for k, v in vars(self).items() if k != "held"})
        memo[id(self)] = copied
        return copied  # type: ignore[return-value]

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"{self.held!r:.60} on {self.device}"


def held_of(value: Any) -> Any:
    """What holds the numbers of a tensor of the device; anything else as it is."""
    return value.held if isinstance(value, DeviceTensor) else value


def launch(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation, as the device does it."""
    here, name = gpu(), func.overloadpacket.__name__
    here.require_alive()
    if (error := here.fails_at(name)) is not None:
        here.lost = not isinstance(error, torch.cuda.OutOfMemoryError)
        raise error
    here.launched += 1
    given: list[Any] = []
    if func in _COPIES:
        return _copied(here, func, args, kwargs)
    plain_args, plain_kwargs = _held(args, given), _held(kwargs, given)
    _check(here, func, name, args, given)
    if kwargs.get("device") is not None:
        plain_kwargs["device"] = torch.device("cpu")
    if name == "_foreach_norm":  # by another kernel than one norm, in another order of sums
        plain_args = [[x.flip(0) if x.dim() else x for x in plain_args[0]], *plain_args[1:]]
    found = func(*plain_args, **plain_kwargs)
    wrapped = _wrapped(found, {id(x.held): x for x in given if isinstance(x, DeviceTensor)})
    if here.capture is not None:
        made = [x for x in tree_flatten(wrapped)[0] if isinstance(x, DeviceTensor)]
        here.capture.append((func, plain_args, plain_kwargs, made))
    return wrapped


def _held(value: Any, given: list[Any]) -> Any:
    """Arguments with the CPU's tensors in place of the device's; what was there is ``given``."""
    if isinstance(value, Tensor | torch.Generator):
        given.append(value)
        return held_of(value)
    if isinstance(value, list | tuple):
        return [_held(part, given) for part in value]
    if isinstance(value, dict):
        return {name: _held(part, given) for name, part in value.items()}
    return value


def _wrapped(found: Any, same: dict[int, DeviceTensor]) -> Any:
    """Results on the device; what was changed in place is the tensor that was given."""
    if isinstance(found, Tensor):
        return same[id(found)] if id(found) in same else DeviceTensor(found)
    if isinstance(found, list | tuple):
        return type(found)(_wrapped(part, same) for part in found)
    return found


def to_device(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """``Tensor.to`` of a tensor on the CPU, also ``to`` a tensor of the device."""
    if args and isinstance(args[0], DeviceTensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    found: Tensor = _real_to(self, *args, **kwargs)
    return found


def _asked(args: Any, kwargs: Any) -> Any:
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    return torch._C._nn._parse_to(*args, **kwargs)


def _to_host(here: Gpu, source: DeviceTensor, dtype: torch.dtype, *, later: bool) -> Tensor:
    """A copy on the CPU, without a gradient; ``later``: once the host has waited."""
    here.require_alive()
    if not later:
        here.synchronize("copy to the host")
        return source.held.detach().to(dtype, copy=True)
    target = torch.empty_like(source.held, dtype=dtype)
    here.arrives(target, source.held)
    return target


def _copied(here: Gpu, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A copy on the device or to it, for which the host may have to wait.

    ``_to_copy`` with device "cpu" is autograd's, which takes the tensor for one of the CPU.
    """
    if func is _ATEN._to_copy.default:
        plain = {k: v for k, v in kwargs.items() if k not in ("device", "non_blocking")}
        target = DeviceTensor(func(args[0].held, **plain))
    else:
        target, source = args[0], args[1]
        later = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
        if not isinstance(target, DeviceTensor):
            target.copy_(_to_host(here, source, target.dtype, later=False))
            return target
        if not isinstance(source, DeviceTensor):
            is_pageable = not getattr(source, "_is_pinned", False)
            if not later or (is_pageable and here.capture is not None):
                here.synchronize("copy from the host")
        target.held.copy_(held_of(source))
    if here.capture is not None:
        here.capture.append((func, tree_map(held_of, args), {}, [target]))
    return target


def _check(here: Gpu, func: Any, name: str, args: Any, given: list[Any]) -> None:
    """Raise what CUDA raises: mixed devices, foreign generators, types without a kernel."""
    tensors = [x for x in given if isinstance(x, Tensor)]
    in_list = {id(x) for a in args if isinstance(a, list | tuple) for x in a}
    for tensor in tensors:
        if isinstance(tensor, DeviceTensor):
            continue
        if name in _INDEXED and id(tensor) in in_list:
            here.synchronize("copy of places from the host")
            continue
        if torch._C._current_graph_task_id() >= 0 and not tensor.any():
            continue  # the zeros of autograd, which takes tensors of the device for the CPU's
        if tensor.dim() > 0 or tensor is tensors[0] or id(tensor) in in_list:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"cuda:0 and cpu! (when checking argument in method {func})"
            )
    for generator in (x for x in given if isinstance(x, torch.Generator)):
        if generator._cdata not in generators:  # torch hands on another object for it
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        if here.capture is not None:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
    integers = [t for t in tensors if not (t.is_floating_point() or t.is_complex())]
    if name in _PRODUCTS and integers:
        kind = str(integers[0].dtype).removeprefix("torch.int").replace("64", "Long")
        raise NotImplementedError(f"\"addmm_cuda\" not implemented for '{kind}'")
    by_mask = name in _INDEXED and any(
        isinstance(x, Tensor) and x.dtype in (torch.bool, torch.uint8) for x in given[1:]
    )
    data_dependent = torch.Tag.data_dependent_output in func.tags
    is_itself = name == "equal" and given[0] is given[1]
    if (name in _READS_BACK or data_dependent or by_mask) and not is_itself:
        here.synchronize(name)


def empty(size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None) -> Tensor:  # fmt: skip  # noqa: E501
    """``torch.empty`` on the device: what every other new tensor is made of."""
    torch.cuda._lazy_init()  # torch's C++ asks once a process, and this one may get another GPU
    gpu().require_alive()
    return DeviceTensor(torch.empty(size, dtype=dtype))


def empty_strided(size: Any, stride: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Tensor:  # fmt: skip  # noqa: E501
    """The same with strides."""
    torch.cuda._lazy_init()
    gpu().require_alive()
    return DeviceTensor(torch.empty_strided(size, stride, dtype=dtype))
