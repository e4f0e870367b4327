"""Fair share of a cluster among the drivers of several sweeps (max-min).

Ray has no fairness between drivers: whoever asks first keeps what it got. So every driver says once
a minute, on a board that all of them see, what its arms are like, how many it could train and how
many it trains, reads what the others say, and caps itself at its share. One that is silent for
three minutes, by the clock of who listens, is gone. Shares are max-min fair: equal, but nobody gets
more than it can use, and what one cannot use goes to the others. Nothing here knows Ray.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.executors.resources import ROUNDING, Machine, ResourceClass
from trainables.plain import StoredPlain

if TYPE_CHECKING:
    from sweep.executors.ray_cluster import RayCluster

BEAT_EVERY_S = 60.0
GONE_AFTER_S = 180.0


@dataclass(frozen=True)
class Beat(StoredPlain):
    """Heartbeat of one driver; its arms are counted in those of its standard class."""

    driver: str
    sweep: str
    since_s: float  # when it started: who came first gets what does not divide
    at_s: float  # when it said so, since 1970: what a driver that starts judges by
    cpus: int  # that one of its arms holds of a machine
    gpus: float  # the same
    wants: int  # arms that are left
    holds: int  # arms that are being trained
    processes: int = 1  # of each arm, which hold as much each


def fair_shares(wants: Sequence[float]) -> list[float]:
    """Max-min fair parts of one whole.

    >>> fair_shares([1.0, 1.0]), fair_shares([0.2, 1.0, 1.0]), fair_shares([0.1, 0.3])
    ([0.5, 0.5], [0.2, 0.4, 0.4], [0.1, 0.3])
    """
    shares = [0.0] * len(wants)
    left = 1.0
    poorest_first = sorted(range(len(wants)), key=lambda i: wants[i])
    for served, i in enumerate(poorest_first):
        shares[i] = min(wants[i], left / (len(wants) - served))
        left -= shares[i]
    return shares


def allowed(beats: Sequence[Beat], machines: Sequence[Machine]) -> dict[str, int]:
    """Arms that each driver may train at a time on these machines.

    At least one where any of its arms fits: with more drivers than places, Ray queues them. Drivers
    whose arms are alike come to places that together are all there are.

    >>> [allowed([Beat(name, "", 0, 0, 1, 0, wants=wants, holds=0) for name, wants in pair],
    ...          [{"CPU": 5.0}]) for pair in ((("a", 9), ("b", 9)), (("a", 9), ("b", 1)))]
    [{'a': 3, 'b': 2}, {'a': 4, 'b': 1}]
    """
    ordered = sorted(beats, key=lambda beat: (beat.since_s, beat.driver))
    slots = [ResourceClass(b.cpus, b.gpus, b.processes).slots(machines) for b in ordered]
    shares = fair_shares(
        [min(1.0, b.wants / s) if s else 0.0 for b, s in zip(ordered, slots, strict=True)]
    )
    ends = list(itertools.accumulate(shares, initial=0.0))
    arms = {}
    for beat, there, (start, end) in zip(ordered, slots, itertools.pairwise(ends), strict=True):
        # The ends are rounded and not the shares: what all get then adds up to what is there.
        count = _rounded(there * end) - _rounded(there * start)
        arms[beat.driver] = max(1, count) if there else 0
    return arms


def _rounded(places: float) -> int:
    return math.floor(places + 0.5 + ROUNDING)


def others_wait(beats: Sequence[Beat], me: str, machines: Sequence[Machine]) -> bool:
    """True if a driver other than ``me`` trains less than it may."""
    due = allowed(beats, machines)
    return any(b.holds < min(due[b.driver], b.wants) for b in beats if b.driver != me)


@dataclass(frozen=True)
class _Heard:
    """Last heartbeat of another driver."""

    content: bytes
    at_s: float  # when it was first read, by the clock here
    counts: bool


class Shares:
    """One driver's view of the sharing: its heartbeat, once a minute, and the others'."""

    def __init__(
        self, board: RayCluster, driver: str, sweep: str, arm: ResourceClass, *, since_s: float
    ) -> None:
        """Take a driver's facts; its first heartbeat is sent by ``look``.

        The sweep is for people who look at the board. ``since_s`` is when the driver started, since
        1970: who came first gets what does not divide.
        """
        self._board = board
        self._me = Beat(
            driver, sweep, since_s, since_s, arm.cpus, arm.gpus, 1, 0, processes=arm.processes
        )
        self._next_s = -math.inf
        self._beats = [self._me]
        self._heard: dict[str, _Heard] = {}

    def look(self, *, wants: int, holds: int, now_s: float) -> None:
        """Say where this driver stands and read the others, once a minute.

        ``wants`` counts the arms that are left, ``holds`` those of them that are in training.
        """
        self._me = dataclasses.replace(self._me, at_s=time.time(), wants=wants, holds=holds)
        if now_s >= self._next_s:
            self._next_s = now_s + BEAT_EVERY_S
            self._board.put(self._me.driver, json.dumps(self._me.to_json()).encode())
            self._beats = self._others(now_s)
        self._beats = [b for b in self._beats if b.driver != self._me.driver] + [self._me]

    def _others(self, now_s: float) -> list[Beat]:
        """Heartbeats of drivers that are alive: they changed in the last three minutes.

        What is read for the first time may be of a driver that died long ago, or of one whose clock
        is off: it counts where it looks young, else from when it changes.
        """
        beats = []
        for key, content in self._board.read().items():
            try:
                beat = Beat.from_json(json.loads(content))
            except (TypeError, ValueError):  # of another version
                continue
            heard = self._heard.get(key)
            if heard is None or heard.content != content:
                is_young = abs(time.time() - beat.at_s) < GONE_AFTER_S
                heard = _Heard(content, now_s, counts=heard is not None or is_young)
                self._heard[key] = heard
            if now_s >= heard.at_s + GONE_AFTER_S:
                self._board.drop(key)
                del self._heard[key]
            elif heard.counts:
                beats.append(beat)
        return beats

    def places(self, machines: Sequence[Machine]) -> int:
        """Arms that this driver may train at a time on these machines."""
        return allowed(self._beats, machines)[self._me.driver]

    def others_wait(self, machines: Sequence[Machine]) -> bool:
        """True if another driver has less than it may have."""
        return others_wait(self._beats, self._me.driver, machines)

    def leave(self) -> None:
        """Give the share back to the others now."""
        self._board.drop(self._me.driver)
