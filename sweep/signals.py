"""Ways to end a running sweep gently: Ctrl-C, SIGTERM, and the stop object that `sweep stop` puts.

Each lets running arms go on to their next report, which is checkpointed. A second Ctrl-C ends now.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sweep.coordinator import Coordinator
from sweep.definition import folder
from trainables.errors import StoreError
from trainables.object_store import ObjectStore

POLL_S = 1.0
SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


def request_stop(objects: ObjectStore, sweep: str) -> None:
    """Ask the driver of a sweep, wherever it runs, to stop."""
    objects.put_json(_name(sweep), {"requested_ms": time.time_ns() // 1_000_000})


@contextmanager
def stop_on_request(coordinator: Coordinator) -> Iterator[None]:
    """Watch for the stop object while the block runs; an old one is removed first."""
    objects, name = coordinator.objects, _name(coordinator.definition.name)
    objects.delete(name)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(POLL_S):
            try:
                requested = objects.get(name) is not None
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
        objects.delete(name)


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
            f"`sweep resume {coordinator.definition.name}` continues either way.",
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
