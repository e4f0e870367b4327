"""Coordinator of a running sweep: its plan, proposals, and arms' outcomes.

The one place that holds a sweep while it runs. Every executor is a loop over it: take ``next_arm``,
train it, pass on each report and then call ``finish_arm`` or ``give_up_arm``. Nothing here is
state: all of it is rebuilt from the store at the next start. Errors of a search retire its setting,
those of the store stop the sweep. Neither is raised, for an executor would train finished arms
again: both are problems of the summary.
"""

from __future__ import annotations

import math
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from sweep.cost.spent import gpus_of
from sweep.errors import CodeDiffers
from sweep.run import events
from sweep.run.alike import FirstFailures, drop_failed_alike, failed_alike, put_failed_alike
from sweep.run.budget import Spending
from sweep.run.events import NOBODY, Event, Observer
from sweep.run.forget_failed import CodeOfArms, failure_problems, forget_failed
from sweep.run.judging import Judging
from sweep.run.searching import Search
from sweep.run.summary import RunSummary
from sweep.study import advice
from sweep.study.arms import Arm, LiveArm
from sweep.study.definition import Definition
from sweep.study.plan import Ask, Fits, Plan
from sweep.study.proposals import ProposalOutcome, all_proposals, put_retired
from sweep.study.selection import counted, winner_of
from trainables.errors import StoreError
from trainables.records.arm_record import ArmRecord, Report
from trainables.records.arms import ArmStore
from trainables.records.late_records import LateRecords, never_seen
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import few_at_once
from trainables.retries import ALIKE_ENDS_S


class Coordinator:
    """State of a running sweep.

    One thread changes it. Others may call ``stop`` and read, and so have to copy what they iterate
    over: the display, the watch for a standstill and handlers of signals do.
    """

    def __init__(
        self,
        objects: ObjectStore,
        definition: Definition,
        *,
        observer: Observer = NOBODY,
        ask_ahead: bool = False,
        resume_command: str | None = None,
        spending: Spending | None = None,
        accept_code: bool = False,
    ) -> None:
        """Build an empty state; ``start`` reads the store.

        Errors of the observer join the problems. ``ask_ahead`` prepares slow proposals (GP) in a
        thread while the last known arms train; ``accept_code`` takes arms that other code trained
        as they are, else they are refused.
        """
        self.objects = objects
        self.definition = definition
        self.resume_command = resume_command or advice.resume(definition.name, objects.root)
        self.spending = spending or Spending(objects, definition)
        self.runs = ArmStore(objects, driver=uuid.uuid4().hex, sweep=definition.name)
        self.codes = CodeOfArms(definition, accept_code=accept_code)
        self.plan = Plan(definition)
        self.live: dict[str, LiveArm] = {}
        self._ended: LateRecords[LiveArm] = LateRecords(self.runs)
        self.problems: list[str] = []
        self._observer = observer.guarded(self.problems)
        self.search = Search(objects, self.plan, ask_ahead=ask_ahead)
        self.outcomes = self.search.outcomes
        self._judging = Judging(
            self.search, self.runs, self.codes, self._observer, self.resume_command
        )
        self.stopping = ""  # why no more arms are handed out
        self.ends_by = math.inf  # monotonic clock: arms that have not reported end where they are
        self.waits_for = ""  # what keeps arms from being trained, in one line, for `sweep status`
        self._began_ms = time.time_ns() // 1_000_000
        self.durations: list[float] = []  # seconds of the last arms that ended in this run
        self.progressed_at = time.monotonic()  # when an arm last reported or ended
        self._is_urgent = self._has_stalled = False
        self._first_failures = FirstFailures()
        self._unfinished = 0  # arms that were begun in this run, and will not end in it
        self._given_back: set[str] = set()  # arms that were begun: no budget keeps them waiting

    def start(self, *, retry_failed: bool = False) -> None:
        """Fold what the store holds into the plan.

        Raises StoreError when it cannot be read, CodeDiffers where pairs would be of two codes.
        Starting costs a read for each setting and a check that the final records of judged
        proposals exist; records of failed ones are read. Incomplete judged.json and spent.json are
        completed. ``retry_failed`` forgets the records of failed arms, so that they train again.
        """
        put_retired(self.objects, self.definition.name, {})
        if retry_failed or failed_alike(self.objects, self.definition.name):
            forget_failed(self.objects, self.definition)
            drop_failed_alike(self.objects, self.definition.name)
        self.spending.start()
        for arm in self.plan.remaining():
            self.codes.current_code(arm.config)  # before a plug-in is edited while its arms train
        # Baselines come first: a verdict beside another record of one does not stand. The second
        # call is for the arms of the proposals that were restored in between.
        self._settle_stored()
        self._restore_proposals()
        self._settle_stored()
        if not self.plan.is_done:
            self.codes.refuse_others()
        self._judging.files.put(every=True)
        judged = (s for outcome in self.search.judged for s in outcome.signatures)
        self.spending.count(self.runs, judged)

    def next_arm(self, fits: Fits | None = None) -> Arm | None:
        """Hand out the next arm, or the next that ``fits``; None: none now. Raises nothing."""
        self.settle_ended()
        try:
            while not self.begins_no_more:
                begun = self._given_back  # the only arms that go on under a budget that is reached
                if fits is not None:
                    step = None if self.budget_reached else self.plan.next_fitting(fits)
                else:
                    step = self.plan.next_of(begun) if self.budget_reached else self.plan.next()
                if step is None:
                    return None
                if isinstance(step, Ask):
                    if arms := self.search.add_proposal(step):
                        self._judging.await_arms(step.setting, step.number, arms)
                elif record := self._stored_final(step, hands_out=True):
                    self.codes.refuse_others()
                    self._settle(step, record)
                else:
                    gpus = gpus_of(step.config, self.definition.space)
                    self.live[step.signature] = LiveArm(step, time.monotonic(), gpus)
                    self._given_back.discard(step.signature)
                    self.search.ask_ahead()
                    return step
        except CodeDiffers as error:
            self.stop_on_trouble(str(error), "other code trained what is next")
        except StoreError as error:
            self.stop_on_trouble(str(error))
        return None

    @property
    def is_over(self) -> bool:
        """True when no arm is live, all are settled, and none will be handed out in this run."""
        done = self.begins_no_more or self.plan.is_handed_out
        return done and not self.live and not self.awaits_records

    @property
    def begins_no_more(self) -> bool:
        """True when no arm is handed out, whatever is left."""
        return bool(self.stopping or (self.budget_reached and not self._given_back))

    @property
    def budget_reached(self) -> str:
        """The option of the budget that keeps arms from being begun; '' where none does."""
        if not self.spending.budget or self.plan.is_handed_out:
            return ""
        begun = self.plan.arms_done + len(self.live) + len(self._ended) + self._unfinished
        return self.spending.reached_limit(begun + len(self._given_back), self.live)

    def is_withdrawn(self, signature: str) -> bool:
        """True if a handed-out arm that waits for a worker is not to be begun after all."""
        live = self.live.get(signature)
        if live is not None and live.report is not None:
            return bool(self.stopping)
        return bool(self.stopping or self.spending.reached_time_limit(self.live))

    @property
    def awaits_records(self) -> bool:
        """True while the final record of an arm that ended cannot be seen yet."""
        return len(self._ended) > 0

    def record_report(self, signature: str, report: Report) -> None:
        """Take up the report of a handed-out arm, whose record is stored. Raises nothing."""
        if (live := self.live.get(signature)) is None:
            return
        live.report, live.fetching = report, ""
        live.reported = self.progressed_at = time.monotonic()
        self._first_failures.note_report(signature)
        self._observer.on_record(live.arm, False)

    def record_fetch(self, signature: str, how_far: str) -> None:
        """Take up how far a handed-out arm's machine is with the arm's data."""
        if (live := self.live.get(signature)) is not None:
            live.fetching, self.progressed_at = how_far, time.monotonic()

    def finish_arm(self, signature: str) -> None:
        """Take up that a handed-out arm has stored its final record. Raises nothing."""
        if (live := self.live.pop(signature, None)) is None:
            return
        self.progressed_at = time.monotonic()
        # Expected and not just read: NFS may show a record only a minute after it was put.
        self._ended.expect(signature, live)
        self.settle_ended()

    def settle_ended(self) -> None:
        """Settle the arms that ended and whose final records can be seen now. Raises nothing."""
        try:
            for live, record in self._ended.take_seen():
                if record is None:
                    self.problems.append(never_seen(live.arm.signature, self.objects.root))
                    continue
                # Never appended to: the display's thread may be summing up the old list.
                self.durations = [*self.durations[-63:], time.monotonic() - live.since]
                if self.codes.counts(live.arm, record):  # another sweep may have been the first
                    self.codes.refuse_others()
                self._settle(live.arm, record, live.gpus)
                if record.status == "failed":
                    self._take_failure(live.arm, record.reason)
                self._observer.on_final(live.arm, record)
            self._judging.files.put(every=self.is_over)
        except CodeDiffers as error:
            self.stop_on_trouble(str(error), "other code trained an arm of it meanwhile")
        except StoreError as error:
            self.stop_on_trouble(str(error))

    def give_up_arm(self, signature: str, problem: str = "") -> None:
        """Give up a handed-out arm for this run; it resumes at the next start of the sweep."""
        live = self.live.pop(signature, None)
        self._unfinished += 1
        if problem:
            self.problems.append(f"arm {signature} is not finished: {problem}")
            if live is not None:
                self._take_failure(live.arm, problem)

    def requeue_arm(self, signature: str) -> None:
        """Hand an arm out again whose worker is gone, where no other took it over."""
        if (live := self.live.pop(signature, None)) is not None:
            self.plan.give_back(live.arm)
            if live.report is not None:
                self._given_back.add(signature)

    def announce_stall(self, signature: str, what: str) -> None:
        """Announce the first handed-out arm without progress, and ``what`` is done about it."""
        live = self.live.get(signature)
        self.progressed_at = time.monotonic()  # it is being dealt with
        if live is not None and not self._has_stalled:
            self._has_stalled = True
            sweep, setting = self.definition.name, live.arm.setting
            self.announce(events.stalled_arm_event(sweep, signature, setting, what))

    def announce(self, news: Event) -> None:
        """Pass news to the observer. Raises nothing."""
        self._observer.on_event(news)

    def stop(self, why: str, *, is_urgent: bool = False) -> None:
        """Hand out no more arms. Running ones end at their next report."""
        # Handlers of signals and other threads call this: plain assignments, no lock, no output.
        self.stopping = self.stopping or why
        self._is_urgent |= is_urgent

    def lose_sweep(self, why: str) -> None:
        """Stop, since another driver took the sweep over: judged.json is that one's from now on."""
        self.problems.append(f"this driver ends: {why}.")
        self._judging.files.is_ours = False
        self.stop(why)

    def stop_on_trouble(self, problem: str, what: str = "the store cannot be used") -> None:
        """Stop for a ``problem`` that no arm can be trained with; ``what`` it is in a few words."""
        if problem not in self.problems:
            self.problems.append(problem)
        self.stop(what)

    def best_proposal(self, setting: str) -> ProposalOutcome | None:
        """The best proposal of a setting so far, of those that can win."""
        return winner_of(list(self.outcomes.get(setting, {}).values()))

    def summary(self) -> RunSummary:
        """Summary of this run, as it stands now."""
        failed = failure_problems(
            self.resume_command, self.outcomes, self._judging.failed_baselines, self._began_ms
        )
        return RunSummary(
            sweep=self.definition.name,
            outcomes=counted(self.search.judged),
            arms_done=self.plan.arms_done,
            arms_total=self.plan.arms_total,
            retired=dict(self.search.retired),
            problems=(*self.problems, *(() if self._first_failures.why else failed)),
            stopped=self.stopping,
            budget=self.budget_reached,
            spent=self.spending.spent.all,
            was_asked_to_stop=bool(self.stopping) and not self.problems,
            is_done=self.plan.is_done,
            is_urgent=self._is_urgent,
            resume_command=self.resume_command,
        )

    def close(self) -> None:
        """End the search thread; store what is not stored yet of verdicts and of hours spent."""
        with suppress(StoreError):  # both follow from the records
            self._judging.files.put(every=True)
            self.spending.close()
        self.search.close()

    # --- arms -----------------------------------------------------------------------------------

    def _restore_proposals(self) -> None:
        """Take up the stored proposals, with their verdicts where these stand."""
        stored = all_proposals(self.objects, self.definition.name, list(self.outcomes))
        proposals = [(setting, p) for setting, some in stored.items() for p in some]
        verdicts = [p.outcome for _, p in proposals if p.outcome and p.outcome.outcome != "failed"]
        with ThreadPoolExecutor(1) as thread:  # object storage answers while configs are built
            finals = thread.submit(self.runs.finals, {s for o in verdicts for s in o.signatures})
            arms = [self.plan.add_proposal(name, p.number, p.point) for name, p in proposals]
        # Every verdict that stands is restored before a proposal is judged: a sweep that has a
        # winner must not announce its first one again.
        unjudged = []
        for (setting, p), own in zip(proposals, arms, strict=True):
            outcome = self._judging.restore_verdict(setting, p, own, finals.result())
            if outcome is None:
                unjudged.append((setting, p, own))
            for arm, end in zip(own, outcome.arms, strict=True) if outcome is not None else ():
                self.plan.arm_is_final(arm.signature)
                self._first_failures.note_end(arm.signature, end.status)
                self._observer.on_record(arm, True)
        for setting, p, own in unjudged:
            if p.outcome is not None:
                self._judging.files.changed(setting)
            self._judging.await_arms(setting, p.number, own)

    def _stored_final(self, arm: Arm, *, hands_out: bool = False) -> ArmRecord | None:
        """The final record of an arm, whoever trained it; what it needed in training is dropped.

        None: it has none that counts. One that does not count is forgotten only as the arm is
        handed out.
        """
        record = self.runs.record(arm.signature) if self.runs.has_final(arm.signature) else None
        if record is None or not record.is_final:  # it was damaged
            return None
        self.runs.drop_training(arm.signature)
        if self.codes.counts(arm, record):
            return record
        if hands_out:
            self.runs.forget(arm.signature)
        return None

    def _settle_stored(self) -> None:
        for arm, record in few_at_once(self._stored_final, list(self.plan.remaining())):
            if record is not None:
                self._settle(arm, record)

    def _settle(self, arm: Arm, record: ArmRecord, gpus: float | None = None) -> None:
        self.plan.arm_is_final(arm.signature)
        self._given_back.discard(arm.signature)
        self._first_failures.note_end(arm.signature, record.status)
        self.spending.add_final(record, gpus)
        if arm.proposal is None:  # kept first: the proposals that are judged below read it
            self._judging.keep_baseline(record)
        self._observer.on_record(arm, True)
        self._judging.settle_arm(record)

    def _take_failure(self, arm: Arm, reason: str) -> None:
        """Take up that an arm failed in this run; the first ones, all alike, end the run."""
        if self.plan.is_done or self.stopping:
            return
        why = self._first_failures.note_failure(arm, reason)
        if not why:
            return
        # In place: the observer's guard appends to this very list.
        self.problems[:] = self._first_failures.summarize(self.problems)
        self.stop("its first arms failed alike")
        self.ends_by = time.monotonic() + ALIKE_ENDS_S
        try:
            put_failed_alike(self.objects, self.definition.name, why)
        except StoreError as error:
            self.stop_on_trouble(str(error))
