"""Gentle stop of a running sweep: Ctrl-C, SIGTERM, SIGHUP, and `sweep stop`.

Each lets running arms go on to their next report, which is checkpointed. A second Ctrl-C ends now.
Who sends SIGTERM or SIGHUP (a batch system, a closed terminal) often sends it twice and soon kills:
GRACE_S after the first, arms that have not reported end where they are, at their last checkpoint.
A stop object stays until the next one replaces it, so that whoever started the driver sees why it
ended; a start passes over the one that is there, which it knows by its random name: clocks differ.
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
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from sweep.run.watching import polling
from sweep.study.definition import folder
from trainables.errors import StoreError, UnreadableObject
from trainables.plain import Plain
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


@dataclass(frozen=True)
class _StopRequest(Plain):
    request: str  # a random name


def request_stop(objects: ObjectStore, sweep: str) -> None:
    """Ask the driver of a sweep, wherever it runs, to stop."""
    objects.put_json(_name(sweep), _StopRequest(uuid.uuid4().hex).to_json())


def stop_request(objects: ObjectStore, sweep: str) -> str:
    """The random name of the last `sweep stop`; empty: none was given."""
    try:
        stored = objects.get_value(_name(sweep), _StopRequest.from_json)
    except UnreadableObject:
        return UNREADABLE
    return "" if stored is None else stored.request


@contextmanager
def stop_on_request(coordinator: Coordinator, *, known: str) -> Iterator[None]:
    """Stop the coordinator at a `sweep stop`, while the block runs; it need not have been started.

    ``known`` is the request that was there before: it was not meant for this driver.
    """
    sweep = coordinator.definition.name
    objects = ObjectStore(coordinator.objects.root)  # one that does not wait: the next poll will do
    known = os.environ.get(KNOWN, known)

    def poll_requests() -> bool:
        try:
            request = stop_request(objects, sweep)
        except StoreError:
            return False  # unreadable for a moment is no request; writers report real trouble
        is_new = request not in ("", known)
        if is_new:
            coordinator.stop(f"`sweep stop {sweep}`")
        return is_new

    with polling(poll_requests, POLL_S, "stop-watch"):
        yield


@contextmanager
def stop_on_signals(coordinator: Coordinator) -> Iterator[None]:
    """Stop gently at Ctrl-C, SIGTERM and SIGHUP; raise KeyboardInterrupt at a second Ctrl-C.

    KeyboardInterrupt is raised, too, when the block has not ended GRACE_S after the first SIGTERM
    or SIGHUP, or by ``coordinator.ends_by``.
    """
    if threading.current_thread() is not threading.main_thread():  # Python lets no other set them
        yield
        return
    main = threading.get_ident()
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    # A handler runs between two steps of the main thread: it sets fields, takes no lock, waits for
    # nothing. What is to happen later is done by the thread below.
    def handle(number: int, frame: FrameType | None) -> None:
        _redirect_closed(terminals)
        if number in FROM_OUTSIDE:
            coordinator.ends_by = min(coordinator.ends_by, time.monotonic() + GRACE_S)
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

    # A signal that is ignored from the start, for example by `nohup`, stays ignored.
    handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in handled}

    def end_when_late() -> bool:
        is_late = time.monotonic() > coordinator.ends_by
        # Any but Ctrl-C: a shell ignores it in what a script starts with `&`.
        if is_late and handled:
            ending = signal.SIGTERM if signal.SIGTERM in handled else handled[0]
            # A signal to the main thread interrupts a call that waits; an exception raised here
            # would end this thread alone.
            signal.pthread_kill(main, ending)
        return is_late

    try:
        with polling(end_when_late, POLL_S, "end-watch"):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _redirect_closed(terminals: Sequence[int]) -> None:
    """Send the output of a terminal that is gone to nowhere: every write there would fail."""
    for descriptor in terminals:
        if not os.isatty(descriptor):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


def _name(sweep: str) -> str:
    return f"{folder(sweep)}/stop"
