"""Live Ray Tune trials and their arms: resource class, state, and who yields.

Between the coordinator, which knows what is to be trained, and Ray Tune, which knows workers.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection
from dataclasses import dataclass

from sweep.executors.capacity import Room
from sweep.executors.resources import ROUNDING, ResourceClass, ResourceClasses
from sweep.executors.stalls import FIRST_TAKES, Stall, Stalls
from sweep.run.coordinator import Coordinator
from sweep.study.arms import Arm
from trainables.errors import StoreError
from trainables.records.arm_record import ArmRecord, Report

log = logging.getLogger(__name__)
FETCH_TOLD_EVERY_S = 30.0


@dataclass
class Hand:
    """An arm in the hands of a trial."""

    arm: Arm
    kind: ResourceClass
    host: str = ""  # of its worker, once it has reported
    is_leaving: bool = False  # told to give way

    @property
    def signature(self) -> str:
        """The arm's."""
        return self.arm.signature


class Crew:
    """What the driver's trials train. Trials are known by their ids."""

    def __init__(
        self, coordinator: Coordinator, classes: ResourceClasses, room: Room, stalls: Stalls
    ) -> None:
        """No trial has an arm yet.

        Args:
            coordinator: hands out arms, and is told what became of them.
            classes: what each arm holds.
            room: how many may be handed out.
            stalls: which of them hang.
        """
        self.coordinator = coordinator
        self.hands: dict[str, Hand] = {}  # by trial
        self.lost_gpus: set[str] = set()  # machines on which CUDA did not start
        self._classes, self._room, self._stalls = classes, room, stalls
        self._training: set[str] = set()  # trials whose arm a worker has
        self._fetch_told: dict[str, float] = {}  # by host: when the log last heard of its fetch

    def hand_out(self, trial: str) -> Hand | None:
        """The next arm, for this trial; None when there is none now, or no place for it."""
        coordinator = self.coordinator
        coordinator.look_for_ended()
        if self._used() >= self._places() - ROUNDING:
            return None
        arm = coordinator.next_arm()
        if arm is None:
            return None
        try:
            kind = self._classes.of(arm, coordinator.plan.baselines[arm.setting])
        except StoreError as error:
            coordinator.unfinished(arm.signature)
            coordinator.store_trouble(str(error))
            return None
        self.hands[trial] = Hand(arm, kind)
        return self.hands[trial]

    def reported(self, trial: str, report: Report | None, host: str) -> None:
        """A trial's arm came to a report."""
        hand = self.hands[trial]
        hand.host = host
        self._stalls.reported(hand.signature)
        if report is not None:
            self.coordinator.report(hand.signature, report)

    def fetches(self, trial: str, how_far: str, host: str) -> None:
        """The machine of a trial fetches what its arm reads; the log hears of it now and then."""
        hand, now = self.hands[trial], time.monotonic()
        hand.host = host
        self._stalls.lives(hand.signature)
        self.coordinator.fetches(hand.signature, how_far)
        if now >= self._fetch_told.get(host, -math.inf) + FETCH_TOLD_EVERY_S:
            self._fetch_told[host] = now
            log.warning("%s", how_far)

    def gives_way(self, trial: str) -> bool:
        """Whether a trial that just reported is to end, because others wait for what it holds."""
        hand = self.hands.get(trial)
        if hand is None or hand.is_leaving or not self._room.others_wait:
            return False
        hand.is_leaving = self._used() - self._weight(hand.kind) >= self._places() - ROUNDING
        return hand.is_leaving

    def ended(self, trial: str) -> Hand:
        """A trial has no arm any more; the caller says to the coordinator what became of it."""
        hand = self.hands.pop(trial)
        self._training.discard(trial)
        self._stalls.ended(hand.signature)
        return hand

    def needs_whole_gpu(self, signature: str) -> None:
        """An arm outgrew its share: it is handed out again, with a GPU of its own."""
        log.warning("arm %s outgrew its share of a GPU; it goes on with one of its own", signature)
        self._classes.give_whole_gpu(signature)
        self.coordinator.lost(signature)

    def lost_gpu(self, signature: str, node: str, problem: str) -> None:
        """A machine cannot start CUDA: the arm is handed out again, and goes elsewhere."""
        if node not in self.lost_gpus:
            log.warning("%s Its arms go elsewhere, where there is another machine.", problem)
        self.lost_gpus.add(node)
        self.coordinator.lost(signature)

    def hanging(self, training: Collection[str]) -> list[str]:
        """Trials, of those whose arm a worker has now, whose worker is to be ended: it hangs."""
        self._training = {trial for trial in training if trial in self.hands}
        trials = {self.hands[trial].signature: trial for trial in self._training}
        stalls = self._stalls.hanging(trials)
        for stall in stalls:
            self._tell(stall, self.hands[trials[stall.signature]])
        return [trials[stall.signature] for stall in stalls]

    def _tell(self, stall: Stall, hand: Hand) -> None:
        """Say that an arm hangs; store that it is failed, when this was not the first time.

        The worker that takes it over finds the final record and ends at once.
        """
        live = self.coordinator.live.get(stall.signature)
        step = 0 if live is None or live.report is None else live.report.step
        where = f" on {hand.host}" if hand.host else ""
        what = f"no report for {stall.seconds:.0f} s, after step {step}{where}"
        then = "it is failed" if stall.is_last else "its worker is ended, and it is tried once more"
        log.warning("arm %s hangs: %s; %s", stall.signature, what, then)
        self.coordinator.stalled(stall.signature, f"{what}; {then}.")
        if not stall.is_last:
            return
        try:
            self._store_failure(hand, what)
        except StoreError as error:
            self.coordinator.store_trouble(str(error))

    def _store_failure(self, hand: Hand, what: str) -> None:
        runs = self.coordinator.runs
        record = runs.record(hand.signature) or ArmRecord(
            signature=hand.signature, config=hand.arm.config
        )
        record.status = "failed"
        record.reason = (
            f"it hangs: {what}, and as long before. Its reports must come within "
            f"{self._stalls.after_s:g} s, the first, for which data may be decoded, within "
            f"{FIRST_TAKES * self._stalls.after_s:g} s: lower report_every or raise --stall-after "
            "where it is slow, or see to that machine."
        )
        record.ended_ms = time.time_ns() // 1_000_000
        runs.put_record(record)

    # --- room ------------------------------------------------------------------------------------

    def _places(self) -> int:
        plan, live = self.coordinator.plan, round(self._used())
        training = [h for t, h in self.hands.items() if t in self._training]
        places = self._room.places(
            # A sweep that stops still says what it holds, and asks for no more machines.
            wanted=live if self.coordinator.stopping else plan.arms_total - plan.arms_done,
            live=live,
            training=round(sum(self._weight(hand.kind) for hand in training)),
        )
        self.coordinator.waits_for = self._room.waits_for
        return places

    def _used(self) -> float:
        """Places of the standard class that are taken."""
        return sum(self._weight(h.kind) for h in self.hands.values() if not h.is_leaving)

    def _weight(self, kind: ResourceClass) -> float:
        """How many places of the standard class an arm takes."""
        standard = self._classes.standard
        if kind == standard:
            return 1.0
        there, here = kind.slots(self._room.machines), standard.slots(self._room.machines)
        return here / there if there and here else 1.0
