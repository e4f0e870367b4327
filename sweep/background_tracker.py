"""A writer thread in front of a Tracker: training never waits for MLflow, nor fails with it.

The newest state of each arm waits its turn, a running arm's for a few seconds after it was last
sent: reports that come faster go in one request. What MLflow could not take stays and is sent
again, first after a second, then less and less often. Nothing is lost when the process ends before
MLflow is back: `sweep sync` completes it from the records.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from sweep.tracking import Tracker
from sweep.tracking_place import shown
from sweep.tracking_rows import TrackedArm

logger = logging.getLogger(__name__)

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
PACE_S = 5.0  # one request costs the server as much as several reports; the UI polls less often


class BackgroundTracker:
    """Takes offers, sends them in turn. Not to be pickled: create it after Tune made its copies."""

    def __init__(
        self,
        tracker: Tracker,
        *,
        first_wait_s: float = FIRST_WAIT_S,
        longest_wait_s: float = LONGEST_WAIT_S,
        pace_s: float = PACE_S,
        warn: Callable[[str], None] = logger.warning,
    ) -> None:
        """Take over ``tracker``; the thread starts with the first offer.

        Args:
            tracker: used by the writer thread alone from now on.
            first_wait_s: pause after the first failure; doubled after each further one.
            longest_wait_s: no pause is longer.
            pace_s: between two requests of one running arm; its end is sent at once.
            warn: told once when MLflow cannot be written, and once when nothing is behind any more.
        """
        self._tracker = tracker
        self._first_wait_s = first_wait_s
        self._longest_wait_s = longest_wait_s
        self._pace_s = pace_s
        self._warn = warn
        self._waiting: dict[str, TrackedArm] = {}  # by signature; who waits longest comes first
        self._due: dict[str, float] = {}  # when a running arm may be sent again; monotonic seconds
        self._changed = threading.Condition()
        self._closing = False
        self._stopped = False
        self._failures = 0  # in a row
        self._has_warned = False
        self._thread: threading.Thread | None = None

    def __reduce__(self) -> str | tuple[object, ...]:
        """Refuse to be copied, with the reason."""
        raise TypeError(
            "a BackgroundTracker holds a thread and cannot be pickled: create it after Tuner() has "
            "made its copies of the searcher and callbacks."
        )

    def offer(self, arm: TrackedArm) -> None:
        """Have this state of the arm sent; an older one that waits is dropped. Never blocks."""
        with self._changed:
            self._waiting[arm.signature] = arm
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="mlflow", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def behind(self) -> list[str]:
        """Signatures whose newest state MLflow does not have yet."""
        with self._changed:
            return list(self._waiting)

    def close(self, timeout_s: float) -> list[str]:
        """Send what waits, for at most ``timeout_s``; return the signatures still behind."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            return list(self._waiting)

    def _write(self) -> None:
        while (arm := self._next()) is not None:
            try:
                self._tracker.sync(arm)
            except Exception as error:  # kept, said, and tried again: it must not end the thread
                self._failed(arm, error)
            else:
                self._sent(arm)

    def _next(self) -> TrackedArm | None:
        """Wait for the arm that is due and waits longest; None to end."""
        with self._changed:
            if self._failures:
                self._pause(self._wait_s())
            while not self._stopped:
                if self._closing:
                    return next(iter(self._waiting.values()), None)
                now = time.monotonic()
                waits_s = {name: self._due_in_s(arm, now) for name, arm in self._waiting.items()}
                ready = next((name for name, wait_s in waits_s.items() if wait_s <= 0), None)
                if ready is not None:
                    return self._waiting[ready]
                self._changed.wait(min(waits_s.values(), default=None))
            return None

    def _due_in_s(self, arm: TrackedArm, now: float) -> float:
        """Seconds until the arm may be sent; 0 for one that is final or was not sent lately."""
        return 0.0 if arm.record.is_final else self._due.get(arm.signature, now) - now

    def _wait_s(self) -> float:
        wait_s: float = self._first_wait_s * 2.0 ** min(self._failures - 1, 30)
        return min(wait_s, self._longest_wait_s)

    def _pause(self, wait_s: float) -> None:
        """Wait, also while offers come in; not after the end was announced and then passed."""
        until = time.monotonic() + wait_s
        was_closing = self._closing
        while (left := until - time.monotonic()) > 0 and not self._stopped:
            if self._closing and not was_closing:
                return  # one more try at once, now that the end has come
            self._changed.wait(left)

    def _sent(self, arm: TrackedArm) -> None:
        with self._changed:
            self._failures = 0
            self._due.pop(arm.signature, None)
            if not arm.record.is_final:
                self._due[arm.signature] = time.monotonic() + self._pace_s
            if self._waiting.get(arm.signature) is arm:
                del self._waiting[arm.signature]
            is_back = self._has_warned and not self._waiting
            if is_back:
                self._has_warned = False
        if is_back:
            place = shown(self._tracker.uri)
            self._warn(f"MLflow at {place} is back, and has everything it missed.")

    def _failed(self, arm: TrackedArm, error: Exception) -> None:
        with self._changed:
            self._failures += 1
            if self._waiting.get(arm.signature) is arm:  # to the end of the queue
                self._waiting[arm.signature] = self._waiting.pop(arm.signature)
            behind = list(self._waiting)
            is_first, self._has_warned = not self._has_warned, True
        if is_first:
            names = ", ".join(behind[:3]) + (f" and {len(behind) - 3} more" if behind[3:] else "")
            self._warn(
                f"{error} Training goes on and nothing is lost. Behind in MLflow: {names}, and "
                "what follows. It is tried again until it works; later, "
                f"`sweep sync {arm.sweep}` completes it."
            )
