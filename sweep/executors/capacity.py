"""Capacity: how many arms a driver may train at once, here or on a shared cluster.

Arms are handed out only where there is a place for them, so that a driver can always be told to
hold less. Machines that an autoscaler could add are asked for beside the arms, by empty placement
groups of an arm's size, which die with the driver: ``request_resources`` of Ray would be remembered
by a cluster whose driver was killed, and keep its machines for ever.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.executors.fair_share import Shares
from sweep.executors.resources import Machine, ResourceClass
from trainables.errors import Failure, Misuse

if TYPE_CHECKING:
    from sweep.executors.ray_cluster import RayCluster

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0  # at the cluster's machines
LIMITS_EVERY_S = 60.0  # at how far it may grow: `ray up` with other limits leaves drivers alone
ASK_AGAIN_S = 10.0  # for machines that did not come: a place that was free for a moment ended it
MOST_ASKED = 200  # placement groups at a time
TELL_EVERY_S = 600.0  # what keeps this driver from handing out arms


@dataclass(frozen=True)
class FixedCapacity:
    """One machine, and a number of arms at a time; what a cluster's capacity has as well."""

    workers: int
    machines: Sequence[Machine]
    others_wait = False
    waits_for = ""
    leaving: Sequence[str] = ()
    trouble = ""

    def places(self, *, wanted: int, live: int, training: int) -> int:
        """The number of workers, whatever is wanted."""
        return self.workers


class ClusterCapacity:
    """This driver's share of a cluster, as machines come and go and other drivers too."""

    def __init__(
        self,
        cluster: RayCluster,
        shares: Shares,
        arm: ResourceClass,
        *,
        most: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at the cluster for the first time; places are counted in the class ``arm``.

        At most ``most`` places, to which a cluster of unknown limits is also asked to grow. Raises
        Misuse where no machine that can ever be there holds an arm.
        """
        self._cluster, self._shares, self._arm = cluster, shares, arm
        self._most, self._clock = most, clock
        self._largest = cluster.largest(arm)
        self.machines: Sequence[Machine] = cluster.machines()
        if self._largest is not None and not arm.slots([*self._largest, *self.machines]):
            raise Misuse(
                f"no machine{_s(arm)} of this cluster can hold an arm, which needs {arm}; it has "
                f"{_counted([*self.machines, *self._largest])}. Add a node type with as much, or "
                "ask for less with threads, device or gpus_per_arm."
            )
        self.waits_for = ""  # what keeps arms from being trained, in one line; empty: nothing
        self._looked_s = self._told_s = -math.inf
        self._limits_s = self._clock()
        # Use existing machines first: a pending placement group would occupy them for a moment.
        self._asked_s = self._clock() if arm.slots(self.machines) else -math.inf

    @property
    def leaving(self) -> Sequence[str]:
        """Machines that take no more arms, by Ray's ids."""
        return self._cluster.leaving

    @property
    def trouble(self) -> str:
        """Why no machine will ever come; empty: one may."""
        return self._cluster.trouble

    @property
    def others_wait(self) -> bool:
        """True if arms beyond the number of places should end at their next report."""
        return self._shares.others_wait(self.machines)

    def places(self, *, wanted: int, live: int, training: int) -> int:
        """Arms that may be handed out at a time now: a share, looked up every LOOK_EVERY_S.

        All counts are of the standard class.
        """
        now_s = self._clock()
        if now_s >= self._looked_s + LOOK_EVERY_S:
            self._looked_s = now_s
            try:
                self._look(wanted, live, training, now_s)
            except Failure as error:  # its head does not answer for the moment: all stays as it was
                self.waits_for = f"the cluster's head: {error}"
                self._tell(str(error), now_s)
        return self._capped(self._shares.places(self.machines))

    def _look(self, wanted: int, live: int, training: int, now_s: float) -> None:
        before, self.machines = self.machines, self._cluster.machines()
        if now_s >= self._limits_s + LIMITS_EVERY_S:
            self._limits_s = now_s
            largest = self._cluster.largest(self._arm)
            self._largest = self._largest if largest is None else largest  # it may be half written
        self._shares.look(wants=self._capped(wanted), holds=training, now_s=now_s)
        more, waiting = self._growth(wanted, live), self._cluster.waiting()
        has_changed = len(self.machines) != len(before)
        if more < waiting or has_changed or now_s >= self._asked_s + ASK_AGAIN_S:
            self._asked_s = now_s
            self._cluster.ask(self._arm, more)
        self.waits_for = ""
        if not self._arm.slots(self.machines):
            hold = (
                "machines of the cluster hold" if _s(self._arm) else "machine of the cluster holds"
            )
            what = f"no {hold} an arm, which needs {self._arm}"
            request = f"; {more} places were requested from the cluster" if more else ""
            why = self._cluster.why_waiting
            self.waits_for = f"a machine: {why or what + request}"
            self._tell(f"waits for a machine: {why}" if why else f"{what}; waiting for one", now_s)

    def _tell(self, what: str, now_s: float) -> None:
        if now_s >= self._told_s + TELL_EVERY_S:
            self._told_s = now_s
            log.warning(what)

    def _growth(self, wanted: int, live: int) -> int:
        """Places beyond the existing ones that this driver could use and may have."""
        here = self._capped(self._shares.places(self.machines))
        if self._largest is not None:
            grown = self._capped(self._shares.places(self._largest))
        else:
            grown = here + 1 if self._most is None else self._most
        return min(max(0, min(wanted, grown) - max(here, live)), MOST_ASKED)

    def _capped(self, places: int) -> int:
        return places if self._most is None else min(places, self._most)


Capacity = FixedCapacity | ClusterCapacity


def _s(arm: ResourceClass) -> str:
    """The plural of what holds an arm, whose processes may be on several machines."""
    return "s" if arm.processes > 1 else ""


def _counted(machines: Sequence[Machine]) -> str:
    kinds = sorted({tuple(sorted(m.items())) for m in machines})
    return ", ".join(str(dict(kind)) for kind in kinds[:4]) or "none at all"
