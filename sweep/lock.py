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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sweep.definition import folder
from sweep.errors import AlreadyRunning
from trainables.object_store import ObjectStore


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
    path = Path(objects.root, folder(sweep), ".driver.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"{sweep} is running already: {_holder(file.name) or 'its driver just started'}. "
                f"Watch it with `sweep status {sweep}`, or end it with `sweep stop {sweep}`."
            ) from None
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        file.flush()
        yield


def driver_of(objects: ObjectStore, sweep: str) -> Driver | None:
    """Who works on the sweep right now, or None. Always None for a root that is not local."""
    if not objects.is_local:
        return None
    path = Path(objects.root, folder(sweep), ".driver.lock")
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return _holder(path) or Driver(0, "unknown")
    return None


def _holder(path: str | Path) -> Driver | None:
    try:
        plain = json.loads(Path(path).read_text())
        return Driver(plain["pid"], plain["host"])
    except (OSError, ValueError, KeyError):
        return None
