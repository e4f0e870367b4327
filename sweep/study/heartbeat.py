"""Heartbeat of a sweep's driver in the store, visible from every machine.

sweeps/NAME/driver.json    put every 15 s while a driver runs, deleted at its end

Its age is counted by the storage's own clock: those of two machines may differ. A driver that was
silent for four intervals is gone, and another one may take over; the first, should it wake up,
finds the other's name there and ends.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sweep.study.definition import definition_name, folder
from trainables.errors import StoreError
from trainables.records.objects import ObjectStore

log = logging.getLogger(__name__)
BEAT_EVERY_S = 15.0
SILENT_BEATS = 4  # intervals without a heartbeat after which a driver is gone
LOOK_EVERY_S = 1.0  # between two looks at what the driver waits for
END_S = 5.0  # to wait at the end for a heartbeat that is being written
SETTLE_S = 1.0  # after which a driver that started in the same instant has put its own name


@dataclass(frozen=True)
class Beat:
    """A driver's heartbeat as the store holds it."""

    owner: str  # this run of a driver
    pid: int
    host: str
    machine: str  # where the pid means something; empty: not known
    started_ms: int  # for people
    every_s: float  # until the next beat
    waits_for: str = ""  # what keeps it from training, in one line; empty: nothing

    @property
    def gone_after_s(self) -> float:
        """Seconds of silence after which the driver is taken for gone."""
        return SILENT_BEATS * self.every_s


def living(objects: ObjectStore, sweep: str) -> Beat | None:
    """The last heartbeat of the sweep's driver; None when there is none, or it is gone."""
    beat = _stored(objects, sweep)
    if beat is None or (beat.machine and beat.machine == _machine() and not _runs(beat.pid)):
        return None
    age_s = objects.age_s(_name(sweep))
    return beat if age_s is not None and age_s <= beat.gone_after_s else None


class Heartbeat:
    """The heartbeat of one driver, put from a thread of its own."""

    def __init__(self, objects: ObjectStore, sweep: str) -> None:
        self._objects = ObjectStore(objects.root)  # one that does not wait: the next beat will do
        self._sweep = sweep
        self._beat = Beat(
            owner=uuid.uuid4().hex,
            pid=os.getpid(),
            host=socket.gethostname(),
            machine=_machine(),
            started_ms=time.time_ns() // 1_000_000,
            every_s=BEAT_EVERY_S,
        )
        self._waits_for: Callable[[], str] = lambda: ""
        self._on_lost: Callable[[str], None] = lambda why: None
        self._lost = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="heartbeat", daemon=True)

    def claim(self) -> Beat | None:
        """Take the sweep where no lock says who drives it; returns the other driver that has it.

        None: it is taken. Of two that start in the same instant the one that wrote last has it.
        """
        other = living(self._objects, self._sweep)
        if other is not None:
            return other
        self._objects.delete_clocks(_name(self._sweep))
        # Write, wait, read: of two that start at once both see the last writer's name.
        self._put()
        time.sleep(SETTLE_S)
        beat = _stored(self._objects, self._sweep)
        return None if beat is None or beat.owner == self._beat.owner else beat

    def start(self) -> None:
        """Put a heartbeat now and until ``end``."""
        with suppress(StoreError):  # whoever must write reports a storage that is away
            self._put()
        self._thread.start()

    def watch(self, waits_for: Callable[[], str], on_lost: Callable[[str], None]) -> None:
        """Put what the driver waits for from now on; ``on_lost`` gets why it must end.

        Both are called from a thread.
        """
        self._waits_for, self._on_lost = waits_for, on_lost
        if self._lost:
            on_lost(self._lost)

    def end(self) -> None:
        """Remove the heartbeat, unless another driver took over; it may not have begun."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(END_S)
        with suppress(StoreError):
            beat = _stored(self._objects, self._sweep)
            if beat is not None and beat.owner == self._beat.owner:
                self._objects.delete(_name(self._sweep))

    def _go_on(self) -> None:
        last, put_s = "", time.monotonic()
        while not self._over.wait(min(LOOK_EVERY_S, self._beat.every_s)):
            waits_for = self._waits_for()
            if waits_for == last and time.monotonic() < put_s + self._beat.every_s:
                continue
            try:
                # Before each put: a driver that wakes up late must not overwrite its successor.
                self._lost = self._why_lost()
                if self._lost:
                    self._on_lost(self._lost)
                    return
                self._put(waits_for)
                last, put_s = waits_for, time.monotonic()
            except StoreError as error:
                # One beat that is missed harms nobody: a driver is gone after SILENT_BEATS of them.
                log.debug("no sign of life this time: %s", error)

    def _why_lost(self) -> str:
        # Not by the beat: one that was on its way comes back after its folder was deleted.
        if not self._objects.exists(definition_name(self._sweep)):
            return f"{self._sweep} was deleted"
        beat = _stored(self._objects, self._sweep)
        if beat is None or beat.owner == self._beat.owner:
            return ""
        return f"process {beat.pid} on {beat.host} took {self._sweep} over"

    def _put(self, waits_for: str = "") -> None:
        plain = {**asdict(self._beat), "waits_for": waits_for}
        self._objects.put_json(_name(self._sweep), plain)


def waits_for(objects: ObjectStore, sweep: str) -> str:
    """The thing that the sweep's driver, which is known to run, waits for; empty: nothing."""
    beat = _stored(objects, sweep)
    return "" if beat is None else beat.waits_for


def _stored(objects: ObjectStore, sweep: str) -> Beat | None:
    return objects.get_derived(_name(sweep), lambda plain: Beat(**plain))


def _machine() -> str:
    """A name of this boot of this machine and of its process namespace; empty if not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    return True


def _name(sweep: str) -> str:
    return f"{folder(sweep)}/driver.json"
