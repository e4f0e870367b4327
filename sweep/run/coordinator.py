"""Coordinator of a running sweep: its plan, proposals, and arms' outcomes.

The one place that holds a sweep while it runs. Every executor is a loop over it: take ``next_arm``,
train it, say ``report`` and then ``finished`` or ``unfinished``. Nothing here is state: all of it
is rebuilt from the store at the next start. Errors of a search retire its setting, those of the
store stop the sweep: told at the end, since an executor would train finished arms again.
"""

from __future__ import annotations

import math
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from sweep.cost.spent import gpus_of
from sweep.errors import CodeDiffers
from sweep.run import events
from sweep.run.alike import FirstFailures, put_failed_alike
from sweep.run.budget import Spending
from sweep.run.events import NOBODY, Event, Observer
from sweep.run.forget_failed import CodeOfArms, failures, forget_asked
from sweep.run.judging import Judging
from sweep.run.searching import Search
from sweep.run.summary import RunSummary
from sweep.study import advice
from sweep.study.arms import Arm, LiveArm
from sweep.study.definition import Definition
from sweep.study.plan import Ask, Fits, Plan
from sweep.study.proposals import ProposalOutcome, StoredProposal, all_proposals, put_retired
from sweep.study.selection import winner_of
from trainables.errors import StoreError
from trainables.records.arm_record import OUTCOMES, ArmRecord, Report
from trainables.records.arms import ArmStore
from trainables.records.late_records import LateRecords, never_seen
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import few_at_once
from trainables.retries import ALIKE_ENDS_S


class Coordinator:
    """One sweep in the making. Used by one thread; ``stop`` and reading may come from others."""

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
        """Nothing is read before ``start``.

        Args:
            objects: the storage root.
            definition: what is asked for.
            observer: follows the run; its errors join the problems.
            ask_ahead: prepare slow proposals (GP) in a thread while the last known arms train.
            resume_command: the command that continues the sweep; None: a plain `sweep resume`.
            spending: counts what is spent, and of how much; None: without a limit.
            accept_code: take arms that other code trained as they are; else they are refused.
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
        Starting costs a read for a setting and a look for each final record of a judged proposal;
        records of failed ones are read. judged.json and spent.json are put where not whole.

        Args:
            retry_failed: forget the records of failed arms, so that they train again.
        """
        put_retired(self.objects, self.definition.name, {})
        forget_asked(self.objects, self.definition, retry_failed)
        self.spending.start()
        for arm in self.plan.remaining():
            self.codes.here(arm.config)  # before a plug-in is edited while its arms train
        self._settle_found()  # unconstrained arms: what was judged beside some may not stand
        stored = all_proposals(self.objects, self.definition.name, list(self.outcomes))
        proposals = [(setting, p) for setting, of in stored.items() for p in of]
        verdicts = [p.outcome for _, p in proposals if p.outcome and p.outcome.outcome != "failed"]
        with ThreadPoolExecutor(1) as looking:  # meanwhile configurations are built
            finals = looking.submit(self.runs.finals, {s for o in verdicts for s in o.signatures})
            arms = [self.plan.add_proposal(of, p.number, p.point) for of, p in proposals]
        every = [(setting, p, its) for (setting, p), its in zip(proposals, arms, strict=True)]
        for setting, p, its in [one for one in every if not self._believes(*one, finals.result())]:
            if p.outcome is not None:
                self._judging.files.changed(setting)
            self._judging.expect(setting, p.number, its)
        self._settle_found()
        if not self.plan.is_done:
            self.codes.refuse()
        self._judging.files.put(every=True)
        judged = (outcome for of in self.outcomes.values() for outcome in of.values())
        self.spending.count(self.runs, (s for outcome in judged for s in outcome.signatures))

    def next_arm(self, fits: Fits | None = None) -> Arm | None:
        """The next arm to train, or the next that ``fits``; None: none now. Never raises."""
        self.look_for_ended()
        try:
            while not self.begins_no_more:
                begun = self._given_back  # all that goes on under a budget that is reached
                if fits is not None:
                    step = None if self.budget_reached else self.plan.next_fitting(fits)
                else:
                    step = self.plan.next_of(begun) if self.budget_reached else self.plan.next()
                if step is None:
                    return None
                if isinstance(step, Ask):
                    if arms := self.search.find(step):
                        self._judging.expect(step.setting, step.number, arms)
                elif record := self._found_final(step, hands_out=True):
                    self.codes.refuse()
                    self._settle(step, record)
                else:
                    gpus = gpus_of(step.config, self.definition.space)
                    self.live[step.signature] = LiveArm(step, time.monotonic(), gpus)
                    self._given_back.discard(step.signature)
                    self.search.ask_ahead()
                    return step
        except CodeDiffers as error:
            self.store_trouble(str(error), "other code trained what is next")
        except StoreError as error:
            self.store_trouble(str(error))
        return None

    @property
    def is_over(self) -> bool:
        """No arm is live, all that ended are settled, and none will be handed out in this run."""
        done = self.begins_no_more or self.plan.is_handed_out
        return done and not self.live and not self.looks_for_ended

    @property
    def begins_no_more(self) -> bool:
        """Whether no arm is handed out, whatever is left."""
        return bool(self.stopping or (self.budget_reached and not self._given_back))

    @property
    def budget_reached(self) -> str:
        """The option of the budget that keeps arms from being begun; '' where none does."""
        if not self.spending.budget or self.plan.is_handed_out:
            return ""
        begun = self.plan.arms_done + len(self.live) + len(self._ended) + self._unfinished
        return self.spending.reached(begun + len(self._given_back), self.live)

    def takes_back(self, signature: str) -> bool:
        """Whether a handed-out arm that waits for a worker is not to be begun after all."""
        live = self.live.get(signature)
        has_begun = live is not None and live.report is not None
        return bool(self.stopping or (self.spending.time_reached(self.live) and not has_begun))

    @property
    def looks_for_ended(self) -> bool:
        """Whether an arm has ended whose final record cannot be seen yet."""
        return len(self._ended) > 0

    def report(self, signature: str, report: Report) -> None:
        """A handed-out arm reported, and its record is stored. Never raises."""
        if (live := self.live.get(signature)) is None:
            return
        live.report, live.fetching = report, ""
        live.reported = self.progressed_at = time.monotonic()
        self._first_failures.reported(signature)
        self._observer.on_record(live.arm, False)

    def fetches(self, signature: str, how_far: str) -> None:
        """A handed-out arm waits for its data, which come."""
        if (live := self.live.get(signature)) is not None:
            live.fetching, self.progressed_at = how_far, time.monotonic()

    def finished(self, signature: str) -> None:
        """A handed-out arm has put its final record into the store. Never raises."""
        if (live := self.live.pop(signature, None)) is None:
            return
        self.progressed_at = time.monotonic()
        self._ended.expect(signature, live)
        self.look_for_ended()

    def look_for_ended(self) -> None:
        """Settle the arms that ended and whose final records can be seen by now. Never raises."""
        try:
            for live, record in self._ended.come():
                if record is None:
                    self.problems.append(never_seen(live.arm.signature, self.objects.root))
                    continue
                self.durations = [*self.durations[-63:], time.monotonic() - live.since]
                if self.codes.takes(live.arm, record):  # another sweep's may have come first
                    self.codes.refuse()
                self._settle(live.arm, record, live.gpus)
                if record.status == "failed":
                    self._fails(live.arm, record.reason)
                self._observer.on_final(live.arm, record)
            self._judging.files.put(every=self.is_over)
        except CodeDiffers as error:
            self.store_trouble(str(error), "other code trained an arm of it meanwhile")
        except StoreError as error:
            self.store_trouble(str(error))

    def unfinished(self, signature: str, problem: str = "") -> None:
        """A handed-out arm stopped before its end; it resumes at the next start of the sweep."""
        live = self.live.pop(signature, None)
        self._unfinished += 1
        if problem:
            self.problems.append(f"arm {signature} is not finished: {problem}")
            if live is not None:
                self._fails(live.arm, problem)

    def lost(self, signature: str) -> None:
        """A handed-out arm's worker is gone and no other took it over: hand it out again."""
        if (live := self.live.pop(signature, None)) is not None:
            self.plan.give_back(live.arm)
            if live.report is not None:
                self._given_back.add(signature)

    def stalled(self, signature: str, what: str) -> None:
        """A handed-out arm makes no progress, as ``what`` says; the first is news. Never raises."""
        live = self.live.get(signature)
        self.progressed_at = time.monotonic()  # it is being dealt with
        if live is not None and not self._has_stalled:
            self._has_stalled = True
            of = (self.definition.name, signature, live.arm.setting)
            self.tell_news(events.of_stalled_arm(*of, what))

    def tell_news(self, news: Event) -> None:
        """Pass news on. Never raises."""
        self._observer.on_event(news)

    def stop(self, why: str, *, is_urgent: bool = False) -> None:
        """Hand out no more arms. Running ones end at their next report."""
        self.stopping = self.stopping or why
        self._is_urgent |= is_urgent

    def lose_sweep(self, why: str) -> None:
        """The sweep is not this driver's any more: end as for a stop, and say why."""
        self.problems.append(f"this driver ends: {why}.")
        self._judging.files.is_ours = False
        self.stop(why)

    def store_trouble(self, problem: str, what: str = "the store cannot be used") -> None:
        """The store failed for longer than writers wait: stop. Nothing stored is lost.

        ``what`` says it in a few words; the data or the code of a machine may be at fault, too.
        """
        if problem not in self.problems:
            self.problems.append(problem)
        self.stop(what)

    def best(self, setting: str) -> ProposalOutcome | None:
        """The best feasible proposal of a setting so far."""
        return winner_of(list(self.outcomes.get(setting, {}).values()))

    def summary(self) -> RunSummary:
        """What this run came to."""
        failed = failures(
            self.resume_command, self.outcomes, self._judging.failed_baselines, self._began_ms
        )
        counts = Counter(o.outcome for of in self.outcomes.values() for o in of.values())
        return RunSummary(
            sweep=self.definition.name,
            outcomes={outcome: counts[outcome] for outcome in OUTCOMES},
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

    def _believes(
        self, setting: str, proposal: StoredProposal, arms: list[Arm], final: set[str]
    ) -> bool:
        outcome = self._judging.believe(setting, proposal, arms, final)
        for arm, end in zip(arms, outcome.arms, strict=True) if outcome is not None else ():
            self.plan.arm_is_final(arm.signature)
            self._first_failures.known(arm.signature, end.status)
            self._observer.on_record(arm, True)
        return outcome is not None

    def _found_final(self, arm: Arm, *, hands_out: bool = False) -> ArmRecord | None:
        """The final record of an arm, whoever trained it; what it needed in training goes.

        None: it has none that counts. One that does not goes as the arm is handed out.
        """
        record = self.runs.record(arm.signature) if self.runs.has_final(arm.signature) else None
        if record is None or not record.is_final:  # it was damaged
            return None
        self.runs.drop_training(arm.signature)
        if self.codes.takes(arm, record):
            return record
        if hands_out:
            self.runs.forget(arm.signature)
        return None

    def _settle_found(self) -> None:
        for arm, record in few_at_once(self._found_final, list(self.plan.remaining())):
            if record is not None:
                self._settle(arm, record)

    def _settle(self, arm: Arm, record: ArmRecord, gpus: float | None = None) -> None:
        self.plan.arm_is_final(arm.signature)
        self._given_back.discard(arm.signature)
        self._first_failures.known(arm.signature, record.status)
        self.spending.settled(record, gpus)
        if arm.proposal is None:
            self._judging.keep_baseline(record)
        self._observer.on_record(arm, True)
        self._judging.settle(record)

    def _fails(self, arm: Arm, reason: str) -> None:
        """An arm of this run has failed; the first ones, all alike, end the run."""
        if self.plan.is_done or self.stopping:
            return
        why = self._first_failures.failed(arm, reason)
        if not why:
            return
        self.problems[:] = self._first_failures.told(self.problems)
        self.stop("its first arms failed alike")
        self.ends_by = time.monotonic() + ALIKE_ENDS_S
        try:
            put_failed_alike(self.objects, self.definition.name, why)
        except StoreError as error:
            self.store_trouble(str(error))
