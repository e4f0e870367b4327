"""Live Ray Tune trials and their arms: resource class, state, and who yields.

Between the coordinator, which knows what is to be trained, and Ray Tune, which knows workers.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from sweep.executors.capacity import Capacity
from sweep.executors.groups import next_group
from sweep.executors.resources import ROUNDING, ResourceClass, ResourceClasses
from sweep.executors.stalls import FIRST_TAKES, Stall, Stalls
from sweep.run.coordinator import Coordinator
from sweep.study.arms import Arm
from trainables.errors import StoreError
from trainables.records.arm_record import ArmRecord
from trainables.trial import ArmResult

log = logging.getLogger(__name__)
FETCH_TOLD_EVERY_S = 30.0


@dataclass
class LiveTrial:
    """Arms assigned to one Tune trial: one, or a group that its worker trains together."""

    # Those without an outcome; where a worker died, they are trained in this order. None where the
    # trial holds a GPU that is lost.
    arms: list[Arm]
    kind: ResourceClass
    host: str = ""  # of its worker, once it has reported
    is_leaving: bool = False  # told to give way
    # When it was handed out, or last asked whether it may hold a lost GPU: reports by host.
    reports_before: Counter[str] = field(default_factory=Counter)


class LiveTrials:
    """Arms of all trials of a driver. Trials are known by their ids."""

    def __init__(
        self,
        coordinator: Coordinator,
        classes: ResourceClasses,
        capacity: Capacity,
        stalls: Stalls,
        *,
        most: int = 1,
    ) -> None:
        self.coordinator = coordinator
        self._most = most
        self.assigned: dict[str, LiveTrial] = {}  # by trial
        self.lost_gpus: set[str] = set()  # machines on which CUDA did not start
        self._classes, self._capacity, self._stalls = classes, capacity, stalls
        self._training: set[str] = set()  # trials whose arm a worker has
        self._reports: Counter[str] = Counter()  # of this driver's arms, by host
        self._fetch_told: dict[str, float] = {}  # by host: when the log last heard of its fetch

    def assign(self, trial: str) -> LiveTrial | None:
        """The next arms, for this trial; None when there are none now, or no place for them."""
        coordinator = self.coordinator
        coordinator.settle_ended()
        free = self._places() - self._used()
        if free <= ROUNDING:
            return None
        arms = next_group(coordinator, most=self._most, places=free)
        if not arms:
            return None
        try:
            kind = self._classes.class_of(arms[0], coordinator.plan.baselines[arms[0].setting])
        except StoreError as error:
            for arm in arms:
                coordinator.give_up_arm(arm.signature)
            coordinator.stop_on_trouble(str(error))
            return None
        for arm in arms:
            live = coordinator.live[arm.signature]
            live.gpus, live.processes, live.together = kind.gpus, kind.processes, len(arms)
        self.assigned[trial] = LiveTrial(arms, kind, reports_before=self._reports.copy())
        return self.assigned[trial]

    def is_taken_back(self, trial: str) -> bool:
        """True if a trial that waits for a worker is to end without one."""
        assigned = self.assigned.get(trial)
        arms = [] if assigned is None else assigned.arms
        return all(self.coordinator.is_withdrawn(arm.signature) for arm in arms)

    def reported(self, trial: str, arms: Sequence[ArmResult], host: str) -> None:
        """Handle a trial's reports; finished arms are settled, the others keep training."""
        assigned = self.assigned[trial]
        assigned.host = host
        self._reports[host] += 1
        self._stalls.reported(trial)
        for arm in arms:
            if arm.report is not None:
                self.coordinator.record_report(arm.signature, arm.report)
        self._settle(assigned, arms)

    def fetches(self, trial: str, how_far: str, host: str) -> None:
        """The machine of a trial fetches what its arms read; the log hears of it now and then."""
        assigned, now = self.assigned[trial], time.monotonic()
        assigned.host = host
        self._stalls.lives(trial)
        for arm in assigned.arms:
            self.coordinator.record_fetch(arm.signature, how_far)
        if now >= self._fetch_told.get(host, -math.inf) + FETCH_TOLD_EVERY_S:
            self._fetch_told[host] = now
            log.warning("%s", how_far)

    def gives_way(self, trial: str) -> bool:
        """True if a trial that just reported is to end, because others wait for its resources."""
        assigned = self.assigned.get(trial)
        if assigned is None or assigned.is_leaving or not self._capacity.others_wait:
            return False
        assigned.is_leaving = (
            self._used() - self._weight(assigned.kind) >= self._places() - ROUNDING
        )
        return assigned.is_leaving

    def ended(self, trial: str, arms: Sequence[ArmResult] = (), host: str = "") -> list[str]:
        """A trial on ``host`` is over; its arms that have not finished, by signature.

        The caller says to the coordinator what became of those.
        """
        assigned = self.assigned.pop(trial)
        self._training.discard(trial)
        self._stalls.ended(trial)
        self._reports[host or assigned.host] += bool(arms)
        self._settle(assigned, arms)
        return [arm.signature for arm in assigned.arms]

    def _settle(self, assigned: LiveTrial, arms: Sequence[ArmResult]) -> None:
        finished = {arm.signature for arm in arms if arm.finished}
        for arm in [arm for arm in assigned.arms if arm.signature in finished]:
            assigned.arms.remove(arm)
            self.coordinator.finish_arm(arm.signature)
        for arm in assigned.arms:
            if (live := self.coordinator.live.get(arm.signature)) is not None:
                live.together = len(assigned.arms)

    def needs_whole_gpu(self, signature: str) -> None:
        """An arm outgrew its share: it is handed out again, with a GPU of its own."""
        log.warning("arm %s outgrew its share of a GPU; it goes on with one of its own", signature)
        self._classes.give_whole_gpu(signature)
        self.coordinator.requeue_arm(signature)

    def lost_gpu(self, signature: str, node: str, problem: str) -> None:
        """A machine cannot start CUDA: the arm is handed out again, and goes elsewhere."""
        if node not in self.lost_gpus:
            log.warning("%s Its arms go elsewhere, where there is another machine.", problem)
        self.lost_gpus.add(node)
        self.coordinator.requeue_arm(signature)

    def may_hold_lost_gpu(self, trial: str, host: str, *, elsewhere: bool) -> bool:
        """True if a trial on whose GPU CUDA does not start stays there, to keep arms from it.

        Only while others train: where none can, arms must come to their ends. Where arms can be
        kept from that machine (``elsewhere``), others must train beside it.
        """
        assigned = self.assigned[trial]
        new = self._reports - assigned.reports_before
        assigned.reports_before = self._reports.copy()
        here = [self.assigned[t] for t in self._training if t != trial and self.assigned[t].arms]
        hosts = {*new, *(one.host for one in here)}
        is_beside = host in hosts or "" in hosts  # where one trains that has not reported yet?
        return is_beside or bool(hosts and not elsewhere)

    def holds_lost_gpu(self, trial: str, problem: str) -> None:
        """A trial stays on a GPU on which CUDA does not start; its arms are handed out again."""
        assigned = self.assigned[trial]
        if assigned.arms:
            log.warning("%s Its arms go to other GPUs.", problem)
        arms, assigned.arms = assigned.arms, []
        for arm in arms:
            self.coordinator.requeue_arm(arm.signature)

    def hanging(self, training: Collection[str]) -> list[str]:
        """Trials, of those whose arm a worker has now, whose worker is to be ended: it hangs."""
        self._training = {trial for trial in training if trial in self.assigned}
        sizes = {t: len(arms) for t in self._training if (arms := self.assigned[t].arms)}
        stalls = self._stalls.hanging(sizes)
        for stall in stalls:
            self._tell(stall, self.assigned[stall.trial])
        return [stall.trial for stall in stalls]

    def _tell(self, stall: Stall, assigned: LiveTrial) -> None:
        """Say that an arm hangs; store that it is failed, when this was not the first time.

        The worker that takes it over finds the final record; of a group, it then trains the others.
        """
        signature = assigned.arms[0].signature
        live = self.coordinator.live.get(signature)
        step = 0 if live is None or live.report is None else live.report.step
        where = f" on {assigned.host}" if assigned.host else ""
        what = f"no report for {stall.seconds:.0f} s, after step {step}{where}"
        then = "it is failed" if stall.is_last else "its worker is ended, and it is tried once more"
        log.warning("arm %s hangs: %s; %s", signature, what, then)
        self.coordinator.announce_stall(signature, f"{what}; {then}.")
        if not stall.is_last:
            return
        self._stalls.ended(stall.trial)
        try:
            held_s = 0.0 if live is None else time.monotonic() - live.since
            self._store_failure(assigned.arms[0], what, held_s)
        except StoreError as error:
            self.coordinator.stop_on_trouble(str(error))

    def _store_failure(self, arm: Arm, what: str, held_s: float) -> None:
        """Store that the arm failed; one that never reported had its place for ``held_s``."""
        runs, now_ms = self.coordinator.runs, time.time_ns() // 1_000_000
        record = runs.record(arm.signature) or ArmRecord(
            signature=arm.signature, config=arm.config, started_ms=now_ms - round(1000 * held_s)
        )
        record.status = "failed"
        record.reason = (
            f"it hangs: {what}, and as long before. Its reports must come within "
            f"{self._stalls.after_s:g} s, the first, for which data may be decoded, within "
            f"{FIRST_TAKES * self._stalls.after_s:g} s: lower report_every or raise --stall-after "
            "where it is slow, or see to that machine."
        )
        record.ended_ms = now_ms
        runs.put_record(record)

    # --- room ------------------------------------------------------------------------------------

    def _places(self) -> int:
        plan, live = self.coordinator.plan, round(self._used())
        left = max(live, self.coordinator.spending.limit_arms(plan.arms_total) - plan.arms_done)
        training = [h for t, h in self.assigned.items() if t in self._training]
        places = self._capacity.places(
            # A sweep that stops still says what it holds, and asks for no more machines.
            wanted=live if self.coordinator.begins_no_more else left,
            live=live,
            training=round(sum(self._weight(assigned.kind) for assigned in training)),
        )
        self.coordinator.waits_for = self._capacity.waits_for
        if self._capacity.trouble:
            self.coordinator.stop_on_trouble(self._capacity.trouble, "no machine comes")
        return places

    @property
    def leaving(self) -> Sequence[str]:
        """Machines that take no more arms, by Ray's ids."""
        return self._capacity.leaving

    def _used(self) -> float:
        return sum(self._weight(h.kind) for h in self.assigned.values() if not h.is_leaving)

    def _weight(self, kind: ResourceClass) -> float:
        """Places of the standard class that an arm takes."""
        standard = self._classes.standard
        if kind == standard:
            return 1.0
        there, here = kind.slots(self._capacity.machines), standard.slots(self._capacity.machines)
        return here / there if there and here else 1.0
