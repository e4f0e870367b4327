"""Stall detection: trials in training without a report for too long.

Pure, but for a clock. Such a trial's worker is ended, and its arm goes on from its last checkpoint.
When it hangs again before it has come to another report, it is failed: something of its own hangs
it. Trials are known by any name that stays.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainables.retries import ARM_STALLS

FIRST_TAKES = 4  # times as long: its worker may have data to decode, which the next would again


@dataclass(frozen=True)
class Stall:
    """A trial that hangs."""

    trial: str
    seconds: float  # since its last report, or since its worker has it
    is_last: bool  # what it trains is not to be tried again


class Stalls:
    """Watches the arms of one driver."""

    def __init__(self, after_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without any trial in training.

        An arm may be without a report for ``after_s``, and for FIRST_TAKES times that before the
        first one to which its worker comes.
        """
        self.after_s = after_s
        self._clock = clock
        self._since: dict[str, float] = {}  # by trial: the last sign of life
        self._have_reported: set[str] = set()  # that have reported since their worker has them
        self._counts: dict[str, int] = {}  # of stalls since the last report
        self._looked = -math.inf

    def reported(self, trial: str) -> None:
        """An arm came to a report."""
        self._since[trial] = self._clock()
        self._have_reported.add(trial)
        self._counts.pop(trial, None)

    def lives(self, trial: str) -> None:
        """An arm that has not reported shows that it gets on: its time begins anew."""
        self._since[trial] = self._clock()

    def ended(self, trial: str) -> None:
        """An arm is done with, or given back."""
        self._since.pop(trial, None)
        self._have_reported.discard(trial)
        self._counts.pop(trial, None)

    def hanging(self, training: Mapping[str, int]) -> list[Stall]:
        """Stalls of trials in ``training``, which a worker has now; each is counted.

        Time counts from when a trial is first seen here: what waits for a worker does not hang. To
        be called often: reports wait while nobody looks, so that an arm is not to blame for it. A
        report takes as many times as long as a worker trains arms together, which ``training``
        gives.
        """
        now = self._clock()
        if now - self._looked > self.after_s / 2:
            self._since.clear()
        self._looked = now
        self._have_reported.intersection_update(training)
        for trial in set(self._since) - set(training):
            del self._since[trial]
        stalls = []
        for trial, arms in training.items():
            patience_s = arms * self.after_s
            seconds = now - self._since.setdefault(trial, now)
            if seconds > patience_s * (1 if trial in self._have_reported else FIRST_TAKES):
                self._since[trial] = now  # its next worker gets its own time
                self._have_reported.discard(trial)
                self._counts[trial] = self._counts.get(trial, 0) + 1
                # the second worker of a group may still train it together, the third does not
                is_last = self._counts[trial] >= ARM_STALLS + (arms > 1)
                stalls.append(Stall(trial, seconds, is_last))
        return stalls
