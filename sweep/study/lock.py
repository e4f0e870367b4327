"""Lock of a sweep: one driver, by a file lock or by a heartbeat on object storage.

Below a local root it is ``flock`` on sweeps/NAME/.driver.lock, which the kernel drops however the
driver ends; the file names its holder. Object storage has no such lock, nor has every file system:
there a driver holds its sweep by its heartbeat, and by both where a lock binds one machine alone.
On a cluster the job server knows of drivers, too.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO

from sweep.errors import AlreadyRunning
from sweep.study import heartbeat
from sweep.study.advice import command
from sweep.study.definition import folder
from sweep.study.heartbeat import Beat, Heartbeat
from trainables.errors import StoreError
from trainables.machine import file_locks
from trainables.machine.file_locks import NoLocks
from trainables.plain import Plain
from trainables.records.objects import ObjectStore

log = logging.getLogger(__name__)
PATIENCE_S = 1.0  # readers hold the lock for an instant to see whether it is free


@dataclass(frozen=True)
class Driver(Plain):
    """The process that works on a sweep."""

    pid: int  # 0: not known
    host: str
    job: str = ""  # of a cluster, that drives the sweep; empty: none that is known
    waits_for: str = ""  # what keeps it from training, in one line; empty: nothing
    gone_after_s: float = 0.0  # of silence it is taken for gone; 0: a lock says whether it is there

    @property
    def hint(self) -> str:
        """Advice about a driver on another machine, whose lock or heartbeat may outlive it."""
        if self.job or not self.pid or self.host == socket.gethostname():
            return ""
        if self.gone_after_s:
            return (
                f"If {self.host} is gone, try again: after {self.gone_after_s:.0f} s without a "
                "heartbeat another driver may take over."
            )
        return (
            f"If {self.host} is gone, its lock ends when the file server notices: try again then."
        )

    def __str__(self) -> str:
        return f"job {self.job}" if self.job else f"process {self.pid} on {self.host}"


# The job that drives each sweep, where a cluster's job server was asked: also between two drivers.
driving_jobs: ContextVar[Mapping[str, str]] = ContextVar(
    "driving_jobs", default=MappingProxyType({})
)


@contextmanager
def driver_lock(objects: ObjectStore, sweep: str) -> Iterator[Heartbeat]:
    """Hold the sweep while the block runs; AlreadyRunning when another driver holds it.

    Yields the heartbeat that the driver gives meanwhile.
    """
    beats = Heartbeat(objects, sweep)
    with ExitStack() as stack:
        is_kept = objects.is_local and stack.enter_context(_file_lock(objects, sweep))
        stack.callback(beats.end)  # first: a driver may be interrupted while it claims or starts
        other = None if is_kept else beats.claim()
        if other is not None:
            raise already_running(sweep, _driver(other), objects.root)
        beats.start()
        yield beats


@contextmanager
def _file_lock(objects: ObjectStore, sweep: str) -> Iterator[bool]:
    """Yields True when every machine that sees the sweep is kept from it."""
    path = _path(objects, sweep)
    with ExitStack() as stack:
        with _lock_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(file_locks.open_lock(path))
            # Not removed at the end: a rival with the old file open would lock another inode.
            try:
                file_locks.wait_for_lock(file, PATIENCE_S)
            except BlockingIOError:
                raise already_running(sweep, _holder(path), objects.root) from None
            except NoLocks as error:
                log.warning(
                    "%s is on a file system without locks (%s): %s is held by a heartbeat "
                    "every %.0f s instead, and a driver that is killed on another machine counts "
                    "as gone after %.0f s",
                    objects.root, error.strerror, sweep, heartbeat.BEAT_EVERY_S,
                    heartbeat.BEAT_EVERY_S * heartbeat.SILENT_BEATS,
                )  # fmt: skip
                yield False
                return
            _write_holder(file, {"pid": os.getpid(), "host": socket.gethostname()})
        try:
            yield not file_locks.binds_here_alone(path)
        finally:
            with suppress(OSError):  # whoever reads it looks for the lock first
                _write_holder(file, {})


def already_running(sweep: str, driver: Driver | None, storage: str) -> AlreadyRunning:
    """The error for a sweep that another driver works on; None: nothing is known of it yet."""
    hint = driver.hint if driver is not None else ""
    look, end = (command(verb, sweep, storage=storage) for verb in ("status", "stop"))
    return AlreadyRunning(
        f"{sweep} is running already: {driver or 'its driver just started'}. Watch it with "
        f"`{look}`, or end it with `{end}`. {hint}".rstrip()
    )


def driver_of(objects: ObjectStore, sweep: str) -> Driver | None:
    """The driver that works on the sweep right now, or None."""
    job = driving_jobs.get().get(sweep, "")
    by_job = Driver(0, "the cluster", job) if job else None
    if objects.is_local:
        holder, is_certain = _lock_holder(objects, sweep)
        if holder is not None:
            return replace(holder, job=job, waits_for=heartbeat.waits_for(objects, sweep))
        if is_certain:
            return by_job
    beat = heartbeat.living(objects, sweep)
    return by_job if beat is None else replace(_driver(beat), job=job)


def _driver(beat: Beat) -> Driver:
    waits_for, gone_after_s = beat.waits_for, beat.gone_after_s
    return Driver(beat.pid, beat.host, waits_for=waits_for, gone_after_s=gone_after_s)


def _lock_holder(objects: ObjectStore, sweep: str) -> tuple[Driver | None, bool]:
    """The holder of the lock, and True when None means that nobody drives the sweep."""
    path = _path(objects, sweep)
    try:
        with open(path) as file:
            # Shared: readers that look in the same instant must not take each other for a driver.
            file_locks.lock(file, shared=True)
    except FileNotFoundError:
        return None, not file_locks.binds_here_alone(path)
    except BlockingIOError:
        return _holder(path) or Driver(0, "unknown"), True
    except OSError:  # no locks, or not for this user: reading needs none
        return None, False
    return None, not file_locks.binds_here_alone(path)


def _path(objects: ObjectStore, sweep: str) -> Path:
    return Path(objects.root, folder(sweep), ".driver.lock")


@contextmanager
def _lock_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} cannot be locked ({error}). Training needs a storage root that you can write: "
            "give another with --storage, or have its owner run the sweep."
        ) from error


def _write_holder(file: IO[str], holder: dict[str, object]) -> None:
    # Not atomic: a reader in between sees no holder, as of a driver that has just started.
    file.truncate(0)
    file.write(json.dumps(holder))
    file.flush()


def _holder(path: Path) -> Driver | None:
    try:
        plain = json.loads(path.read_text())
        return Driver(plain["pid"], plain["host"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
