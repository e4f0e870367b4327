"""Periodic polls, in a thread, while something else is done; one for a standstill.

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
POLL_STANDSTILL_S = 15.0


@contextmanager
def polling(poll: Callable[[], bool], every_s: float, name: str) -> Iterator[None]:
    """Poll in a thread while the block runs, or until ``poll`` returns True or raises an error."""
    over = threading.Event()

    def poll_until_over() -> None:
        while not over.wait(every_s) and not poll():
            pass

    thread = threading.Thread(target=poll_until_over, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        # Joined: a poll must not run beside whatever closes the sweep after this block.
        over.set()
        thread.join()


class Standstill:
    """Notice when no arm has reported or ended for a while, once each time.

    The while is MARGIN_S longer than an arm may be silent. An arm that hangs has been dealt with by
    then (``sweep/executors/stalls.py``): what is left are sweeps whose workers do not come, and
    executors that cannot end an arm.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._after_s = coordinator.definition.space.stall_after_s + MARGIN_S
        self._announced_at = 0.0  # ``progressed_at`` of the standstill that was announced last

    def poll(self, now: float | None = None) -> bool:
        """Announce a standstill that is new; False: the polls go on."""
        now = time.monotonic() if now is None else now
        last, live = self._coordinator.progressed_at, len(self._coordinator.live)
        # On a cluster no arm is handed out while no machine holds one: then none is live, either.
        waits = live or not (self._coordinator.begins_no_more or self._coordinator.plan.is_done)
        if not waits or now - last < self._after_s or self._announced_at == last:
            return False
        self._announced_at = last
        sweep = self._coordinator.definition.name
        status = advice.command("status", sweep, storage=self._coordinator.objects.root)
        state = (
            f"Waiting for a worker, preparing data, or hanging: {advice.counted(live, 'arm')}"
            if live
            else "No arm is handed out: no machine has room for one"
        )
        self._coordinator.announce(
            Event(
                "stalled",
                sweep,
                f"{sweep}: no arm has reported for {(now - last) / 60:.0f} minutes. {state}: see "
                f"`{status}` and the log of its driver.",
                {"live_arms": live, "silent_s": round(now - last)},
            )
        )
        return False
