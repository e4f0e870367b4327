"""Ways to end a running sweep gently: Ctrl-C, SIGTERM, and the stop object that `sweep stop` puts.

Each lets running arms go on to their next report, which is checkpointed. A second Ctrl-C ends now.
A stop object stays until the next start, so that whoever started the driver sees why it ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from sweep.definition import folder
from trainables.errors import StoreError
from trainables.object_store import ObjectStore

if TYPE_CHECKING:
    from sweep.coordinator import Coordinator

POLL_S = 1.0
# What was asked since then counts, also before this driver was started: its supervisor's own start.
SINCE = "SWEEP_STOP_SINCE_MS"
SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


def request_stop(objects: ObjectStore, sweep: str) -> None:
    """Ask the driver of a sweep, wherever it runs, to stop."""
    objects.put_json(_name(sweep), {"requested_ms": time.time_ns() // 1_000_000})


def stop_requested_ms(objects: ObjectStore, sweep: str) -> int:
    """When `sweep stop` was last given, in ms since 1970; 0: not since the driver started."""
    requested = objects.get_value(_name(sweep), lambda plain: int(plain["requested_ms"]))
    return requested or 0


@contextmanager
def stop_on_request(coordinator: Coordinator, *, since_ms: int) -> Iterator[None]:
    """Watch for the stop object while the block runs.

    Args:
        coordinator: what to stop; it need not have been started.
        since_ms: when this driver took its lock: what was requested before was not meant for it.
    """
    name = _name(coordinator.definition.name)
    objects = ObjectStore(coordinator.objects.root)  # one that does not wait: the next look will do
    since_ms = min(since_ms, int(os.environ.get(SINCE, since_ms)))
    if 0 < stop_requested_ms(objects, coordinator.definition.name) <= since_ms:
        objects.delete(name)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(POLL_S):
            try:
                requested = objects.exists(name)
            except StoreError:
                continue  # being unreadable for a moment is no request; writers report real trouble
            if requested:
                coordinator.stop(f"`sweep stop {coordinator.definition.name}`")
                return

    thread = threading.Thread(target=watch, name="stop-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def stop_on_signals(coordinator: Coordinator) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM stops gently, the second raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if coordinator.stopping:
            raise KeyboardInterrupt
        coordinator.stop(SIGNALS[signal.Signals(number)])
        print(
            "\nStopping: running arms end at their next report. Once more to end now; "
            f"`{coordinator.again}` continues either way.",
            file=sys.stderr,
        )

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _name(sweep: str) -> str:
    return f"{folder(sweep)}/stop"
