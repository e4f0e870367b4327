"""Imitated GPUs of a machine, for the processes that a test starts: drivers and Ray's workers.

A sitecustomize on PYTHONPATH waits for torch and puts the stand-in (cuda.py) below it, with what
the process sees of the machine's GPUs: what CUDA_VISIBLE_DEVICES says when CUDA starts. In drivers
Ray finds them by NVML. All processes share the folder of ``Faults``; there, besides:

    gpus            how many the machine has, and bytes of each
    gpu-<pid>       what a process did with its GPU, a line of JSON each: it started CUDA (what it
                    saw, what Ray had given it), was held to a share, lost the GPU, found it taken
    broken-<id>-<p> while it exists, CUDA does not start on that GPU in processes below process p
    lose-<n>        the first process that comes to n operations loses its GPU there: once
    take-<n>-<b>    the first process that comes to n operations finds b bytes taken: once
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import psutil

from tests.support.faults import Faults

if TYPE_CHECKING:
    from tests.support.gpu.tensors import Gpu

NAME = "Imitated GPU"
LOOKS_EVERY = 50  # operations between two looks for orders
ROOT = Path(__file__).parents[3]
# Also of Ray's own processes, which import neither: so nothing is imported here.
SOURCE = """
import importlib.util, sys

class _Awaited:
    waits_for = {"torch": "imitate_cuda", "ray._private.thirdparty.pynvml": "imitate_nvml"}

    def find_spec(self, name, path=None, target=None):
        if name not in self.waits_for:
            return None
        then = self.waits_for.pop(name)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def run_and_imitate(module):
            run(module)
            from tests.support.gpu import in_workers
            getattr(in_workers, then)()

        spec.loader.exec_module = run_and_imitate
        return spec

sys.meta_path.insert(0, _Awaited())
"""


class ImitatedGpus(Faults):
    """GPUs of this machine, and orders of one test."""

    def __init__(self, folder: Path, *, count: int = 1, total: int = 8 << 30) -> None:
        """In an empty folder.

        Args:
            folder: does not exist yet.
            count: of GPUs.
            total: bytes of each.
        """
        super().__init__(folder)
        with open(folder / "sitecustomize.py", "a") as file:
            file.write(SOURCE)
        (folder / "gpus").write_text(json.dumps({"count": count, "total": total}))

    def environment(self) -> dict[str, str]:
        """What the processes of the test are started with."""
        there = super().environment()
        return there | {"PYTHONPATH": os.pathsep.join((there["PYTHONPATH"], str(ROOT)))}

    def lose(self, operations: int) -> None:
        """Let one process lose its GPU, after so many operations."""
        (self.folder / f"lose-{operations}").touch()

    def take(self, operations: int, size: int) -> None:
        """Let one process find so many bytes of its GPU taken, after so many operations."""
        (self.folder / f"take-{operations}-{size}").touch()

    def break_gpu(self, number: int, *, below: int = 1) -> None:
        """Let CUDA start on this GPU no more, in processes that descend from this one."""
        (self.folder / f"broken-{number}-{below}").touch()

    def told(self, what: str) -> dict[int, list[Any]]:
        """What processes told of this kind, by process id."""
        found: dict[int, list[Any]] = {}
        for path in self.folder.glob("gpu-*"):
            lines = map(json.loads, path.read_text().splitlines())
            found[int(path.name.removeprefix("gpu-"))] = [x[what] for x in lines if what in x]
        return {process: told for process, told in found.items() if told}


@contextmanager
def imitated_gpus(
    folder: Path, *, count: int = 1, total: int = 8 << 30, visible: str | None = None
) -> Iterator[ImitatedGpus]:
    """GPUs for a driver that runs in this process, and for the workers that it starts.

    Args:
        folder: as of ``ImitatedGpus``.
        count: as of ``ImitatedGpus``.
        total: as of ``ImitatedGpus``.
        visible: CUDA_VISIBLE_DEVICES of this process.
    """
    there = ImitatedGpus(folder, count=count, total=total)
    environment = {k: v for k, v in there.environment().items() if k != "CUDA_VISIBLE_DEVICES"}
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    with mock.patch.dict(os.environ, environment, clear=True), nvml(count):
        yield there


def imitate_cuda() -> None:
    """Put the stand-in below torch, for as long as this process lives."""
    from tests.support.gpu import cuda

    folder = Path(os.environ["FAULTS"])
    there = json.loads((folder / "gpus").read_text())
    here = _for_ever.enter_context(cuda.imitated_cuda(there["total"]))
    _for_ever.enter_context(_Process(folder, here, there["count"]).seeing())


def imitate_nvml() -> None:
    """Put as many GPUs below NVML, for as long as this process lives."""
    there = json.loads((Path(os.environ["FAULTS"]) / "gpus").read_text())
    _for_ever.enter_context(nvml(there["count"]))


_for_ever = ExitStack()


@contextmanager
def nvml(count: int) -> Iterator[None]:
    """A driver of NVIDIA's that tells Ray of so many GPUs, as long as the block lasts."""
    pynvml = importlib.import_module("ray._private.thirdparty.pynvml")
    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: count,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: f"{NAME} {handle}",
    }
    with ExitStack() as undo:
        for name, answer in answers.items():
            undo.enter_context(mock.patch.object(pynvml, name, answer))
        yield


class _Process:
    """What one process sees of the machine's GPUs, and the orders that it executes."""

    def __init__(self, folder: Path, here: Gpu, count: int) -> None:
        self._folder, self._here, self._count = folder, here, count
        self._ids: list[int] | None = None  # of those that it sees, once CUDA has started

    @contextmanager
    def seeing(self) -> Iterator[None]:
        """As long as the block lasts."""
        import torch  # not in the processes that only Ray needs

        self._lost = torch.AcceleratorError
        init, hold = torch._C._cuda_init, torch._C._cuda_setMemoryFraction  # type: ignore[attr-defined]
        properties = torch.cuda._get_device_properties  # type: ignore[attr-defined]

        def start() -> None:
            self._start()
            init()

        def hold_to(fraction: float, device: int) -> None:
            self._tell(share=fraction)
            hold(fraction, device)

        def named(device: int) -> Any:
            one = copy(properties(device))
            one.name = f"{NAME} {self._visible()[device]}"
            return one

        self._here.fails_at = self._fails_at
        with ExitStack() as undo:
            for owner, name, call in (
                (torch._C, "_cuda_init", start),
                (torch._C, "_cuda_getDeviceCount", lambda: len(self._visible())),
                (torch._C, "_cuda_setMemoryFraction", hold_to),
                (torch.cuda, "_get_device_properties", named),
            ):
                undo.enter_context(mock.patch.object(owner, name, call))
            yield

    def _visible(self) -> list[int]:
        """GPUs that this process sees; CUDA reads the variable once, and to its first mistake."""
        if self._ids is not None:
            return self._ids
        every = list(range(self._count))
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        if named is None:
            return every
        ids = [int(one) if one.strip().isdecimal() else -1 for one in named.split(",")]
        return list(itertools.takewhile(every.__contains__, ids))

    def _start(self) -> None:
        ids = self._visible()
        above = [1, *(one.pid for one in psutil.Process().parents())]
        if ids and any((self._folder / f"broken-{ids[0]}-{one}").exists() for one in above):
            self._tell(refused=above)
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        self._ids = ids
        ray = sys.modules.get("ray")
        given = None
        if ray is not None and ray.is_initialized():
            given = [int(one) for one in ray.get_runtime_context().get_accelerator_ids()["GPU"]]
        self._tell(started={"sees": ids, "given": given})

    def _fails_at(self, operation: str) -> BaseException | None:
        done = self._here.launched
        if done % LOOKS_EVERY:
            return None
        for order in self._folder.glob("take-*"):
            _, at, size = order.name.split("-")
            if done >= int(at) and self._is_mine(order):
                self._tell(taken=int(size))
                self._here.used += int(size)
        for order in self._folder.glob("lose-*"):
            if done >= int(order.name.split("-")[1]) and self._is_mine(order):
                self._tell(lost=done)
                return self._lost("CUDA error: an illegal memory access was encountered")
        return None

    def _is_mine(self, order: Path) -> bool:
        """Whether nobody else was there first."""
        try:
            order.unlink()
        except FileNotFoundError:
            return False
        return True

    def _tell(self, **what: Any) -> None:
        with open(self._folder / f"gpu-{os.getpid()}", "a") as file:
            file.write(json.dumps(what) + "\n")
