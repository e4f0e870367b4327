"""Writer thread in front of a tracker, so that training never waits for MLflow.

Nor does it fail with it. What waits is which arms have changed; a record is read when its arm's
turn comes, so an outage costs no memory and the newest state is what is sent. A running arm waits a
few seconds after it was last sent: reports that come faster go in one request. What MLflow could
not take stays and is sent again, first after a second, then less and less often. Nothing is lost
when the process ends before MLflow is back: `sweep sync` completes it from the records.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sweep.study.advice import command
from sweep.study.arms import Arm
from sweep.tracking.address import shown
from trainables.errors import list_first
from trainables.retries import MLFLOW_FIRST_WAIT_S, MLFLOW_LONGEST_WAIT_S

log = logging.getLogger(__name__)

PACE_S = 5.0  # one request costs the server as much as several reports; the UI polls less often


@dataclass(frozen=True, eq=False)  # the same arm, offered again, is another offer
class _Offer:
    arm: Arm
    is_final: bool


class BackgroundTracker:
    """Queues changed arms and writes them to MLflow from one thread."""

    def __init__(
        self,
        send: Callable[[Arm, bool], None],
        uri: str,
        sweep: str,
        *,
        first_wait_s: float = MLFLOW_FIRST_WAIT_S,
        longest_wait_s: float = MLFLOW_LONGEST_WAIT_S,
        pace_s: float = PACE_S,
        warn: Callable[[str], None] = log.warning,
        storage: str | None = None,
    ) -> None:
        """The thread starts with the first offer, and alone calls ``send``.

        The pause after a failure starts at ``first_wait_s`` and doubles. Two requests of a running
        arm are ``pace_s`` apart; its end is sent at once. ``warn`` is called once when MLflow
        cannot be written, and once when nothing is behind any more. ``storage`` is for messages.
        """
        self._send = send
        self._uri = uri
        self._sync = command("sync", sweep, storage=storage)
        self._first_wait_s = first_wait_s
        self._longest_wait_s = longest_wait_s
        self._pace_s = pace_s
        self._warn = warn
        # By signature; who waits longest comes first. Thousands of final arms may wait for a server
        # that is away, running ones are as few as workers: the two queues take turns.
        self._final: dict[str, _Offer] = {}
        self._running: dict[str, _Offer] = {}
        self._is_turn_of_final = True
        self._due: dict[str, float] = {}  # when a running arm may be sent again; monotonic seconds
        self._changed = threading.Condition()  # guards the queues, due times and all fields below
        self._closing = False
        self._stopped = False
        self._failures = 0  # in a row
        self._has_warned = False
        self._thread: threading.Thread | None = None

    def offer(self, arm: Arm, is_final: bool) -> None:
        """Have the arm's stored state sent, whatever it is when its turn comes. Never blocks."""
        offer = _Offer(arm, is_final)
        with self._changed:
            if is_final:
                self._running.pop(arm.signature, None)
                self._due.pop(arm.signature, None)
            self._queue(offer)[arm.signature] = offer
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="mlflow", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def behind(self) -> list[str]:
        """Signatures whose newest state MLflow does not have yet."""
        with self._changed:
            return [*self._final, *self._running]

    def close(self, timeout_s: float) -> list[str]:
        """Send what waits, for at most ``timeout_s``; return the signatures still behind."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        try:
            if self._thread is not None:
                self._thread.join(timeout_s)
        finally:  # Ctrl-C ends the wait, too
            with self._changed:
                self._stopped = True
                self._changed.notify_all()
        return self.behind()

    def _write(self) -> None:
        while (offer := self._next()) is not None:
            try:
                self._send(offer.arm, offer.is_final)
            except Exception as error:  # kept, said, and tried again: it must not end the thread
                self._failed(offer, error)
            else:
                self._sent(offer)

    def _next(self) -> _Offer | None:
        """Wait for the arm that is due and waits longest; None to end."""
        with self._changed:
            if self._failures:
                wait_s = self._first_wait_s * 2.0 ** min(self._failures - 1, 30)
                self._pause(min(wait_s, self._longest_wait_s))
            while not self._stopped:
                final = next(iter(self._final.values()), None)
                if self._closing:
                    return final or next(iter(self._running.values()), None)
                now = time.monotonic()
                waits_s = {s: self._due.get(s, now) - now for s in self._running}
                ready = next((s for s, wait_s in waits_s.items() if wait_s <= 0), None)
                running = None if ready is None else self._running[ready]
                if final is not None and running is not None:
                    self._is_turn_of_final = not self._is_turn_of_final
                    return running if self._is_turn_of_final else final
                if final is not None or running is not None:
                    return final or running
                self._changed.wait(min(waits_s.values(), default=None))
            return None

    def _pause(self, wait_s: float) -> None:
        """Wait, also while offers come in; not after the end was announced and then passed."""
        until = time.monotonic() + wait_s
        was_closing = self._closing
        while (left := until - time.monotonic()) > 0 and not self._stopped:
            if self._closing and not was_closing:
                return  # one more try at once, now that the end has come
            self._changed.wait(left)

    def _sent(self, offer: _Offer) -> None:
        signature, queue = offer.arm.signature, self._queue(offer)
        with self._changed:
            self._failures = 0
            if not offer.is_final:
                self._due[signature] = time.monotonic() + self._pace_s
            if queue.get(signature) is offer:  # else a newer state came while this one was sent
                del queue[signature]
            is_back = self._has_warned and not self.behind()
            if is_back:
                self._has_warned = False
        if is_back:
            # Outside the lock: ``warn`` may print to a slow terminal, and offers must never wait.
            place = shown(self._uri)
            self._warn(f"MLflow at {place} is back, and has everything it missed.")

    def _failed(self, offer: _Offer, error: Exception) -> None:
        signature, queue = offer.arm.signature, self._queue(offer)
        with self._changed:
            self._failures += 1
            if queue.get(signature) is offer:  # to the end of the queue
                queue[signature] = queue.pop(signature)
            behind = self.behind()
            is_first, self._has_warned = not (self._has_warned or self._stopped), True
        if is_first:
            self._warn(
                f"{error} Training goes on and nothing is lost. Behind in MLflow: "
                f"{list_first(behind)}, and what follows. It is tried again until it works; later, "
                f"`{self._sync}` completes it."
            )

    def _queue(self, offer: _Offer) -> dict[str, _Offer]:
        return self._final if offer.is_final else self._running
