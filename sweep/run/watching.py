"""Periodic looks, in a thread, while something else is done; one for a standstill.

A sweep stands still where no arm has reported or ended for longer than is allowed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sweep.run.events import Event
from sweep.study import advice

if TYPE_CHECKING:
    from sweep.run.coordinator import Coordinator

MARGIN_S = 300.0
LOOK_EVERY_S = 15.0


@contextmanager
def watching(look: Callable[[], bool | None], every_s: float, name: str) -> Iterator[None]:
    """Look every ``every_s`` seconds while the block runs, until a look is the last.

    Args:
        look: whether it was the last; what it raises ends the looks.
        every_s: before the first look, and between two.
        name: of the thread.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every_s) and not look():
            pass

    thread = threading.Thread(target=watch, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Standstill:
    """Notices when no arm has reported or ended for ``after_s`` seconds, once each time.

    An arm that hangs has been dealt with by then (``sweep/executors/stalls.py``): what is left are
    sweeps whose workers do not come, and executors that cannot end an arm.
    """

    def __init__(self, coordinator: Coordinator, after_s: float | None = None) -> None:
        """``after_s``: by default a little longer than an arm may be silent."""
        self._coordinator = coordinator
        patience_s = coordinator.definition.space.stall_after_s
        self._after_s = patience_s + MARGIN_S if after_s is None else after_s
        self._told_of = 0.0  # the moment of progress after which a standstill was told

    def look(self, now: float) -> None:
        """Tell where there is something to tell. ``now`` is of the monotonic clock."""
        last, live = self._coordinator.progressed_at, len(self._coordinator.live)
        # On a cluster no arm is handed out while no machine holds one: then none is live, either.
        waits = live or not (self._coordinator.begins_no_more or self._coordinator.plan.is_done)
        if not waits or now - last < self._after_s or self._told_of == last:
            return
        self._told_of = last
        sweep = self._coordinator.definition.name
        look = advice.command("status", sweep, storage=self._coordinator.objects.root)
        minutes = (now - last) / 60
        state = (
            f"Waiting for a worker, preparing data, or hanging: {advice.counted(live, 'arm')}"
            if live
            else "No arm is handed out: no machine has room for one"
        )
        self._coordinator.tell_news(
            Event(
                "stalled",
                sweep,
                f"{sweep}: no arm has reported for {minutes:.0f} minutes. {state}: see "
                f"`{look}` and the log of its driver.",
                {"live_arms": live, "silent_s": round(now - last)},
            )
        )


@contextmanager
def standstill_watch(coordinator: Coordinator) -> Iterator[None]:
    """Look for a standstill, in a thread, while the block runs."""
    standstill = Standstill(coordinator)
    with watching(lambda: standstill.look(time.monotonic()), LOOK_EVERY_S, "standstill"):
        yield
