"""Stall detection: arms in training without a report for too long.

Pure, but for a clock. Such an arm's worker is ended, and the arm goes on from its last checkpoint.
When it hangs again before it has come to another report, it is failed: something of its own hangs
it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from trainables.retries import ARM_STALLS

FIRST_TAKES = 4  # times as long: its worker may have data to decode, which the next would again


@dataclass(frozen=True)
class Stall:
    """An arm that hangs."""

    signature: str
    seconds: float  # since its last report, or since its worker has it
    is_last: bool  # the arm is not to be tried again


class Stalls:
    """Watches the arms of one driver."""

    def __init__(self, after_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is in training yet.

        Args:
            after_s: how long an arm may be without a report; FIRST_TAKES times that before the
                first one to which its worker comes.
            clock: seconds.
        """
        self.after_s = after_s
        self._clock = clock
        self._since: dict[str, float] = {}  # by signature: the last sign of life
        self._have_reported: set[str] = set()  # that have reported since their worker has them
        self._counts: dict[str, int] = {}  # of stalls since the last report
        self._looked = -math.inf

    def reported(self, signature: str) -> None:
        """An arm came to a report."""
        self._since[signature] = self._clock()
        self._have_reported.add(signature)
        self._counts.pop(signature, None)

    def lives(self, signature: str) -> None:
        """An arm that has not reported shows that it gets on: its time begins anew."""
        self._since[signature] = self._clock()

    def ended(self, signature: str) -> None:
        """An arm is done with, or given back."""
        self._since.pop(signature, None)
        self._have_reported.discard(signature)
        self._counts.pop(signature, None)

    def hanging(self, training: Collection[str]) -> list[Stall]:
        """Those of ``training``, arms that a worker has now, that hang; each is counted.

        Time counts from when an arm is first seen here: what waits for a worker does not hang. To
        be called often: reports wait while nobody looks, so that an arm is not to blame for it.
        """
        now = self._clock()
        if now - self._looked > self.after_s / 2:
            self._since.clear()
        self._looked = now
        self._have_reported.intersection_update(training)
        for signature in set(self._since) - set(training):
            del self._since[signature]
        stalls = []
        for signature in training:
            seconds = now - self._since.setdefault(signature, now)
            if seconds > self.after_s * (1 if signature in self._have_reported else FIRST_TAKES):
                self._since[signature] = now  # its next worker gets its own time
                self._have_reported.discard(signature)
                self._counts[signature] = self._counts.get(signature, 0) + 1
                is_last = self._counts[signature] >= ARM_STALLS
                stalls.append(Stall(signature, seconds, is_last))
        return stalls
