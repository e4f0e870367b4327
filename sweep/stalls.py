"""Arms that hang: in training, and without a report for too long. Pure, but for a clock.

Such an arm's worker is ended, and the arm goes on from its last checkpoint. When it hangs again
before it has come to another report, it is failed: something of its own hangs it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

MOST_STALLS = 2  # without a report in between


@dataclass(frozen=True)
class Stall:
    """An arm that hangs."""

    signature: str
    seconds: float  # since its last report, or since its worker has it
    count: int  # since its last report

    @property
    def is_last(self) -> bool:
        """Whether the arm is not to be tried again."""
        return self.count >= MOST_STALLS


class Stalls:
    """Watches the arms of one driver."""

    def __init__(self, after_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is in training yet.

        Args:
            after_s: how long an arm may be without a report.
            clock: seconds.
        """
        self.after_s = after_s
        self._clock = clock
        self._since: dict[str, float] = {}  # by signature: the last sign of life
        self._counts: dict[str, int] = {}
        self._looked = -math.inf

    def reported(self, signature: str) -> None:
        """An arm came to a report."""
        self._since[signature] = self._clock()
        self._counts.pop(signature, None)

    def ended(self, signature: str) -> None:
        """An arm is done with, or given back."""
        self._since.pop(signature, None)
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
        for signature in set(self._since) - set(training):
            del self._since[signature]
        stalls = []
        for signature in training:
            seconds = now - self._since.setdefault(signature, now)
            if seconds > self.after_s:
                self._since[signature] = now  # its next worker gets as long
                self._counts[signature] = self._counts.get(signature, 0) + 1
                stalls.append(Stall(signature, seconds, self._counts[signature]))
        return stalls
