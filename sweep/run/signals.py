"""Gentle stop of a running sweep: Ctrl-C, SIGTERM, SIGHUP, and `sweep stop`.

Each lets running arms go on to their next report, which is checkpointed. A second Ctrl-C ends now.
Who sends SIGTERM or SIGHUP (a batch system, a closed terminal) often sends it twice and soon kills:
GRACE_S after the first, arms that have not reported end where they are, at their last checkpoint.
A stop object stays until the next one replaces it, so that whoever started the driver sees why it
ended; a start passes over the one that is there. Which one that is is told by its name for itself:
clocks differ.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from sweep.run.watching import watching
from sweep.study.definition import folder
from trainables.errors import StoreError, UnreadableObject
from trainables.records.objects import ObjectStore

if TYPE_CHECKING:
    from sweep.run.coordinator import Coordinator

POLL_S = 1.0
# The request that was there when this driver's supervisor began: later ones count, also those from
# before this driver was started. Empty: none was there.
KNOWN = "SWEEP_STOP_KNOWN"
UNREADABLE = "unreadable"
SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
FROM_OUTSIDE = frozenset({signal.SIGTERM, signal.SIGHUP})
GRACE_S = 12.0  # of the 30 s that batch systems give; ending Ray and MLflow's last rows need some


def request_stop(objects: ObjectStore, sweep: str) -> None:
    """Ask the driver of a sweep, wherever it runs, to stop."""
    objects.put_json(_name(sweep), {"request": uuid.uuid4().hex})


def stop_request(objects: ObjectStore, sweep: str) -> str:
    """Which `sweep stop` was given last; empty: none was."""
    try:
        return objects.get_value(_name(sweep), lambda plain: str(plain["request"])) or ""
    except UnreadableObject:
        return UNREADABLE


@contextmanager
def stop_on_request(coordinator: Coordinator, *, known: str) -> Iterator[None]:
    """Watch for requests to stop while the block runs.

    Args:
        coordinator: what to stop; it need not have been started.
        known: the request that was there before: it was not meant for this driver.
    """
    sweep = coordinator.definition.name
    objects = ObjectStore(coordinator.objects.root)  # one that does not wait: the next look will do
    known = os.environ.get(KNOWN, known)

    def look() -> bool:
        try:
            request = stop_request(objects, sweep)
        except StoreError:
            return False  # unreadable for a moment is no request; writers report real trouble
        is_new = request not in ("", known)
        if is_new:
            coordinator.stop(f"`sweep stop {sweep}`")
        return is_new

    with watching(look, POLL_S, "stop-watch"):
        yield


@contextmanager
def stop_on_signals(coordinator: Coordinator) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP stop gently; a second Ctrl-C raises KeyboardInterrupt.

    So do SIGTERM and SIGHUP when the block has not ended GRACE_S after the first of them, and a
    coordinator that says by when it is to end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    main = threading.get_ident()
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]
    overdue: list[threading.Timer] = []

    def end_now() -> None:
        coordinator.ends_by = min(coordinator.ends_by, time.monotonic())

    def handle(number: int, frame: FrameType | None) -> None:
        _let_go_of_closed(terminals)
        if number in FROM_OUTSIDE and not overdue:
            overdue.append(threading.Timer(GRACE_S, end_now))
            overdue[0].daemon = True
            overdue[0].start()
        if coordinator.stopping:
            if number == signal.SIGINT or time.monotonic() > coordinator.ends_by:
                raise KeyboardInterrupt
            return
        coordinator.stop(SIGNALS[signal.Signals(number)], is_urgent=number in FROM_OUTSIDE)
        within = f", within {GRACE_S:.0f} s" if number in FROM_OUTSIDE else ". Once more to end now"
        with suppress(OSError):
            print(
                f"\nStopping: running arms end at their next report{within}; "
                f"`{coordinator.resume_command}` continues either way.",
                file=sys.stderr,
            )

    # What is ignored from the start, by `nohup` say, stays so.
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heard}

    def look() -> bool:
        is_late = time.monotonic() > coordinator.ends_by
        # Any but Ctrl-C: a shell ignores it in what a script starts with `&`.
        if is_late and heard:
            ending = signal.SIGTERM if signal.SIGTERM in heard else heard[0]
            signal.pthread_kill(main, ending)  # also out of a call that waits
        return is_late

    try:
        with watching(look, POLL_S, "end-watch"):
            yield
    finally:
        for timer in overdue:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _let_go_of_closed(terminals: Sequence[int]) -> None:
    """Write to nowhere what went to a terminal that is gone: every write there would fail."""
    for descriptor in terminals:
        if not os.isatty(descriptor):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


def _name(sweep: str) -> str:
    return f"{folder(sweep)}/stop"
