"""One driver per sweep: a lock that dies with its process.

Below a local root it is ``flock`` on sweeps/NAME/.driver.lock, which the kernel drops however the
driver ends; the file names its holder. Object storage has no such lock: there, two drivers would
train an arm twice and lose nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sweep.definition import folder
from sweep.errors import AlreadyRunning
from trainables.errors import StoreError
from trainables.object_store import ObjectStore

PATIENCE_S = 1.0  # readers hold the lock for an instant to see whether it is free
WAIT_S = 0.02


@dataclass(frozen=True)
class Driver:
    """The process that works on a sweep."""

    pid: int
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@contextmanager
def driver_lock(objects: ObjectStore, sweep: str) -> Iterator[None]:
    """Hold the sweep while the block runs; AlreadyRunning when another driver holds it."""
    if not objects.is_local:
        yield
        return
    path = _path(objects, sweep)
    with ExitStack() as stack:
        with _lock_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(open(path, "a+"))
            taken = _taken(file)
            if taken:
                _write_holder(file, {"pid": os.getpid(), "host": socket.gethostname()})
        if not taken:
            raise AlreadyRunning(
                f"{sweep} is running already: {_holder(path) or 'its driver just started'}. "
                f"Watch it with `sweep status {sweep}`, or end it with `sweep stop {sweep}`."
            )
        try:
            yield
        finally:
            with suppress(OSError):  # whoever reads it looks for the lock first
                _write_holder(file, {})


def driver_of(objects: ObjectStore, sweep: str) -> Driver | None:
    """Who works on the sweep right now, or None. Always None for a root that is not local."""
    if not objects.is_local:
        return None
    path = _path(objects, sweep)
    with _lock_errors(path):
        try:
            with open(path) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return None
        except BlockingIOError:
            return _holder(path) or Driver(0, "unknown")
    return None


def _path(objects: ObjectStore, sweep: str) -> Path:
    return Path(objects.root, folder(sweep), ".driver.lock")


def _taken(file: IO[str]) -> bool:
    """Take the lock; False when another driver holds it, and not just a reader."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > give_up:
                return False
        time.sleep(WAIT_S)


@contextmanager
def _lock_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} cannot be locked ({error}). Training needs a storage root of your own on a "
            "file system with locks: on NFS, mount it with them."
        ) from error


def _write_holder(file: IO[str], holder: dict[str, object]) -> None:
    file.truncate(0)
    file.write(json.dumps(holder))
    file.flush()


def _holder(path: Path) -> Driver | None:
    try:
        plain = json.loads(path.read_text())
        return Driver(plain["pid"], plain["host"])
    except (OSError, ValueError, KeyError):
        return None
