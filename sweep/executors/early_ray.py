"""Ray cluster of this machine, started in a thread while data are looked for.

What takes seconds runs side by side then: Ray's processes, torch in the driver, torch and Tune in
the workers, which begin with their imports before there is an arm for them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from search_spaces import catalog
from sweep.executors.ray_session import local_ray, workers_as_they_are
from sweep.executors.resources import ResourceClasses
from sweep.study.definition import Definition

# Before a worker takes its first arm. On a GPU workers begin with their arms: which GPU is theirs
# must be known before torch is.
PRELOADED = ("trainables.trial", "trainables.arm_run", "trainables.fused.group")


@dataclass(frozen=True)
class Size:
    """What a local cluster is started with."""

    cpus: int
    gpus: int | None
    workers: int  # that begin with the cluster; 0: with their arms

    @property
    def variables(self) -> dict[str, str]:
        """What Ray reads of it from the environment."""
        begins = {"RAY_preload_python_modules": ",".join(PRELOADED)} if self.gpus == 0 else {}
        if self.workers:  # Ray starts as many as there are CPUs, or none
            begins["RAY_prestart_worker_first_driver"] = "1"
        return begins


def size_of(
    definition: Definition, classes: ResourceClasses, workers: int | None, most: int
) -> Size:
    """The cluster for a sweep on this machine.

    Args:
        definition: the sweep.
        classes: what its arms hold.
        workers: arms at a time; None: as many as there is room for.
        most: so many arms may be trained together.
    """
    here = len(os.sched_getaffinity(0))
    an_arm = classes.standard.cpus * classes.standard.processes
    cpus = max(here, (workers or 1) * an_arm)
    if classes.on_gpu:
        return Size(cpus, None, 0)
    at_once = workers or max(1, cpus // an_arm)
    all_used = at_once == cpus and catalog.arm_count(definition.space) >= most * cpus
    return Size(cpus, 0, cpus if all_used else 0)


@dataclass
class _Start:
    """A cluster that a thread starts, keeps, and ends once it is let go of."""

    size: Size
    folder: Path | None = None
    error: BaseException | None = None
    has_started: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        # not a daemon: an interpreter that ends waits until Ray's processes have ended
        self.thread = threading.Thread(target=self._keep, name="ray")
        self.thread.start()

    def _keep(self) -> None:
        """From start to end."""
        try:
            with local_ray(
                cpus=self.size.cpus, gpus=self.size.gpus, more=self.size.variables
            ) as self.folder:
                self.has_started.set()
                self.is_over.wait()
        except BaseException as error:
            self.error = error
        finally:
            self.has_started.set()

    def end(self) -> None:
        """End the cluster, and wait until it has ended."""
        self.is_over.set()
        self.thread.join()


_waiting: list[_Start] = []  # at most one that nobody has taken: Ray itself is one a process


@contextmanager
def early_ray(size: Size) -> Iterator[None]:
    """Start the cluster in a thread; ``started_ray`` in the block takes it.

    One that is not taken is ended by the thread alone, so that an error of the block is told at
    once.
    """
    start = _Start(size)
    _waiting.append(start)
    try:
        yield
    finally:
        start.is_over.set()
        if start in _waiting:
            _waiting.remove(start)


@contextmanager
def started_ray(size: Size) -> Iterator[Path]:
    """The cluster that was started for this size, or one that is started now; see ``local_ray``."""
    start = _waiting.pop() if _waiting else None
    if start is not None and (start.size.cpus, start.size.gpus) != (size.cpus, size.gpus):
        start.end()
        start = None
    if start is None:
        with (
            local_ray(cpus=size.cpus, gpus=size.gpus, more=size.variables) as folder,
            workers_as_they_are(),
        ):
            yield folder
        return
    start.has_started.wait()
    if start.error is not None:
        raise start.error
    assert start.folder is not None
    try:
        with workers_as_they_are():
            yield start.folder
    finally:
        start.end()
