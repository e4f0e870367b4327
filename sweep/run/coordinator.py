"""Coordinator of a running sweep: its plan, proposals, and arms' outcomes.

The one place that holds a sweep while it runs. Every executor is a loop over it: take ``next_arm``,
train it, say ``report`` and then ``finished`` or ``unfinished``. Nothing here is state: all of it
is rebuilt from the store at the next start. Errors of a search retire its setting, those of the
store stop the sweep: told at the end, since an executor would train finished arms again.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from search_spaces.space import ORDER_FREE, SearchSpace
from sweep.cost.spent import gpus_of
from sweep.errors import CodeDiffers
from sweep.run import events
from sweep.run.alike import FirstFailures, put_failed_alike
from sweep.run.budget import Spending
from sweep.run.forget_failed import CodeOfArms, failures, forget_asked
from sweep.run.late_records import LateRecords, never_seen
from sweep.run.summary import RunSummary
from sweep.study import advice
from sweep.study.arms import Arm, LiveArm, OnRecord, RecordReader, arms_of_proposal
from sweep.study.definition import Definition
from sweep.study.pairs import judge_proposal
from sweep.study.plan import Ask, Fits, Plan
from sweep.study.proposals import (
    JudgedFiles,
    Observation,
    Point,
    ProposalOutcome,
    StoredProposal,
    all_proposals,
    known_of,
    put_proposal,
    put_retired,
    told_apart,
)
from sweep.study.sampler import propose
from sweep.study.selection import OnProposal, winner_of
from trainables.errors import StoreError
from trainables.records.arm_record import OUTCOMES, ArmRecord, Report
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import few_at_once
from trainables.retries import ALIKE_ENDS_S

OnFinal = Callable[[Arm, ArmRecord], None]

log = logging.getLogger(__name__)
_Key = tuple[str, int]  # setting, proposal number
_Question = tuple[SearchSpace, str, int, list[Observation], list[Point]]


class Coordinator:
    """One sweep in the making. Used by one thread; ``stop`` and reading may come from others."""

    def __init__(
        self,
        objects: ObjectStore,
        definition: Definition,
        *,
        on_record: OnRecord | None = None,
        on_proposal: OnProposal | None = None,
        on_final: OnFinal | None = None,
        on_event: events.OnEvent | None = None,
        ask_ahead: bool = False,
        again: str | None = None,
        spending: Spending | None = None,
        accept_code: bool = False,
    ) -> None:
        """Nothing is read before ``start``.

        Args:
            objects: the storage root.
            definition: what is asked for.
            on_record: told of arms whose stored records grew, or are final, and reads these.
            on_proposal: told of every proposal whose arms are all final, once per run.
            on_final: told of arms that ended in this run, for the display.
            on_event: told of what somebody who does not look wants to know; may come from a thread.
            ask_ahead: prepare slow proposals (GP) in a thread while the last known arms train.
            again: the command that continues the sweep; None: a plain `sweep resume`.
            spending: counts what is spent, and of how much; None: without a limit.
            accept_code: take arms that other code trained as they are; else they are refused.
        """
        self.objects = objects
        self.definition = definition
        self.again = again or advice.resume(definition.name, objects.root)
        self.spending = spending or Spending(objects, definition)
        self.runs = ArmStore(objects, driver=uuid.uuid4().hex, sweep=definition.name)
        self.codes = CodeOfArms(definition, accept_code=accept_code)
        self.plan = Plan(definition)
        self.live: dict[str, LiveArm] = {}
        self._ended: LateRecords[LiveArm] = LateRecords(self.runs)
        settings = definition.space.settings
        self.outcomes: dict[str, dict[int, ProposalOutcome]] = {s.name: {} for s in settings}
        self.retired: dict[str, str] = {}
        self.problems: list[str] = []
        self.stopping = ""  # why no more arms are handed out
        self.ends_by = math.inf  # monotonic clock: arms that have not reported end where they are
        self.waits_for = ""  # what keeps arms from being trained, in one line, for `sweep status`
        self._began_ms = time.time_ns() // 1_000_000
        self.durations: list[float] = []  # seconds of the last arms that ended in this run
        self.progressed_at = time.monotonic()  # when an arm last reported or ended
        self._on_record, self._on_proposal, self._on_final = on_record, on_proposal, on_final
        self._on_event = on_event
        self._is_urgent = self._has_winner = self._has_stalled = False
        self._points: dict[str, dict[int, Point]] = {s.name: {} for s in settings}
        self._judged = JudgedFiles(objects, definition.name, self._points, self.outcomes)
        # Of proposals without an outcome: arms and baselines by seed, and what they wait for.
        self._open: dict[_Key, tuple[list[tuple[str, str]], set[str]]] = {}
        self._waiting: dict[str, list[_Key]] = {}  # signature -> proposals that wait for it
        self._read = RecordReader(self.runs)
        self._beside: dict[str, str] = {}  # unconstrained arms: ``told_apart``
        self._failed_baselines: dict[str, ArmRecord] = {}
        self._first_failures = FirstFailures()
        self._unfinished = 0  # arms that were begun in this run, and will not end in it
        self._given_back: set[str] = set()  # arms that were begun: no budget keeps them waiting
        self._ahead: dict[_Key, Future[Point]] = {}
        slow = definition.space.sampler == "gp"
        self._thread = ThreadPoolExecutor(1, "search") if ask_ahead and slow else None

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
        stored = all_proposals(self.objects, self.definition.name, list(self._points))
        proposals = [(setting, p) for setting, of in stored.items() for p in of]
        verdicts = [p.outcome for _, p in proposals if p.outcome and p.outcome.outcome != "failed"]
        with ThreadPoolExecutor(1) as looking:  # meanwhile configurations are built
            finals = looking.submit(self.runs.finals, {s for o in verdicts for s in o.signatures})
            arms = [self.plan.add_proposal(of, p.number, p.point) for of, p in proposals]
        every = [(setting, p, its) for (setting, p), its in zip(proposals, arms, strict=True)]
        for setting, p, its in [one for one in every if not self._believes(*one, finals.result())]:
            if p.outcome is not None:
                self._judged.changed(setting)
            self._await(setting, p.number, its)
        self._settle_found()
        if not self.plan.is_done:
            self.codes.refuse()
        self._judged.put(every=True)
        judged = (outcome for of in self.outcomes.values() for outcome in of.values())
        self.spending.count(self.runs, (s for outcome in judged for s in outcome.signatures))

    def next_arm(self, fits: Fits | None = None) -> Arm | None:
        """The next arm to train, or the next that ``fits``; None: none now. Never raises."""
        self.look_for_ended()
        try:
            while not self.begins_no_more:
                again = self._given_back  # all that goes on under a budget that is reached
                if fits is not None:
                    step = None if self.budget_reached else self.plan.next_fitting(fits)
                else:
                    step = self.plan.next_of(again) if self.budget_reached else self.plan.next()
                if step is None:
                    return None
                if isinstance(step, Ask):
                    self._search(step)
                elif record := self._found_final(step, hands_out=True):
                    self.codes.refuse()
                    self._settle(step, record)
                else:
                    gpus = gpus_of(step.config, self.definition.space)
                    self.live[step.signature] = LiveArm(step, time.monotonic(), gpus)
                    self._given_back.discard(step.signature)
                    self._ask_ahead()
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
        self._tell(self._on_record, live.arm, False)

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
                self._tell(self._on_final, live.arm, record)
            self._judged.put(every=self.is_over)
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

    def tell_news(self, told: events.Event) -> None:
        """Pass news on. Never raises."""
        self._tell(self._on_event, told)

    def stop(self, why: str, *, is_urgent: bool = False) -> None:
        """Hand out no more arms. Running ones end at their next report."""
        self.stopping = self.stopping or why
        self._is_urgent |= is_urgent

    def lose_sweep(self, why: str) -> None:
        """The sweep is not this driver's any more: end as for a stop, and say why."""
        self.problems.append(f"this driver ends: {why}.")
        self._judged.is_ours = False
        self.stop(why)

    def store_trouble(self, problem: str, what: str = "the store cannot be used") -> None:
        """The store failed for longer than writers wait: stop. Nothing stored is lost.

        ``what`` says it in a few words; the data or the code of a machine may be at fault, too.
        """
        if problem not in self.problems:
            self.problems.append(problem)
        self.stop(what)

    def best(self, setting: str) -> ProposalOutcome | None:
        """The best feasible and useful proposal of a setting so far."""
        return winner_of(list(self.outcomes.get(setting, {}).values()))

    def summary(self) -> RunSummary:
        """What this run came to."""
        failed = failures(self.again, self.outcomes, self._failed_baselines, self._began_ms)
        counts = Counter(o.outcome for of in self.outcomes.values() for o in of.values())
        return RunSummary(
            sweep=self.definition.name,
            outcomes={outcome: counts[outcome] for outcome in OUTCOMES},
            arms_done=self.plan.arms_done,
            arms_total=self.plan.arms_total,
            retired=dict(self.retired),
            problems=(*self.problems, *(() if self._first_failures.why else failed)),
            stopped=self.stopping,
            budget=self.budget_reached,
            spent=self.spending.spent.all,
            was_asked_to_stop=bool(self.stopping) and not self.problems,
            is_done=self.plan.is_done,
            is_urgent=self._is_urgent,
            again=self.again,
        )

    def close(self) -> None:
        """End the search thread; store what is not stored yet of verdicts and of hours spent."""
        with suppress(StoreError):  # both follow from the records
            self._judged.put(every=True)
            self.spending.close()
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    # --- proposals ------------------------------------------------------------------------------

    def _believes(
        self, setting: str, proposal: StoredProposal, arms: list[Arm], final: set[str]
    ) -> bool:
        """Whether a stored verdict stands: all its arms are final, and none was trained anew."""
        self._points[setting][proposal.number] = proposal.point
        outcome = proposal.verdict_on([arm.signature for arm in arms])
        beside = tuple(self._beside.get(arm.signature, "") for arm in self.plan.baselines[setting])
        if outcome is None or not (final >= {*outcome.signatures} and outcome.holds_beside(beside)):
            return False
        if not all([self.codes.takes(a, end) for a, end in zip(arms, outcome.arms, strict=True)]):
            return False
        self.outcomes[setting][proposal.number] = outcome
        self._has_winner |= outcome.can_win
        for arm, end in zip(arms, outcome.arms, strict=True):
            self.plan.arm_is_final(arm.signature)
            self._first_failures.known(arm.signature, end.status)
            self._tell(self._on_record, arm, True)
        return True

    def _await(self, setting: str, number: int, arms: list[Arm]) -> None:
        beside = zip(arms, self.plan.baselines[setting], strict=True)
        pairs = [(arm.signature, plain.signature) for arm, plain in beside]
        missing = {s for pair in pairs for s in pair if not self.plan.is_final(s)}
        self._open[setting, number] = (pairs, missing)
        for signature in missing:
            self._waiting.setdefault(signature, []).append((setting, number))
        if not missing:
            self._close(setting, number)

    def _search(self, ask: Ask) -> None:
        """Find the asked-for point and store it before anything trains it."""
        try:
            ahead = self._ahead.pop((ask.setting, ask.number), None)
            point = propose(*self._question(ask)) if ahead is None else ahead.result()
            # Built before it is stored: a point that no run accepts must not stay in the store.
            arms = arms_of_proposal(self.definition, ask.setting, ask.number, point)
        except Exception as error:
            log.exception("the search of setting %s failed", ask.setting)
            self._retire(ask.setting, f"the search failed at proposal {ask.number}", error)
            return
        stored = put_proposal(self.objects, self.definition.name, ask.setting, ask.number, point)
        if stored != point:  # somebody else stored one first: that is the proposal
            arms = arms_of_proposal(self.definition, ask.setting, ask.number, stored)
        self._points[ask.setting][ask.number] = stored
        self.plan.add_arms(ask.setting, ask.number, arms)
        self._await(ask.setting, ask.number, arms)

    def _question(self, ask: Ask) -> _Question:
        space, of = self.definition.space, ask.setting
        is_free = space.sampler in ORDER_FREE  # nothing is looked at then, and building it costs
        known = ([], []) if is_free else known_of(self._points[of], self.outcomes[of])
        return space, of, ask.number, *known

    def _ask_ahead(self) -> None:
        """When the next thing is a slow ask, start it now, with what is known now."""
        ask = self.plan.upcoming() if self._thread is not None else None
        if ask is None or self._thread is None or (ask.setting, ask.number) in self._ahead:
            return
        self._ahead[ask.setting, ask.number] = self._thread.submit(propose, *self._question(ask))

    def _retire(self, setting: str, what: str, error: Exception) -> None:
        self.retired[setting] = f"{what}: {type(error).__name__}: {error}"
        self.plan.retire(setting)
        put_retired(self.objects, self.definition.name, self.retired)

    # --- arms -----------------------------------------------------------------------------------

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
            self._read.keep(record)
            self._beside[arm.signature] = told_apart(record)
            if record.status == "failed":
                self._failed_baselines[arm.signature] = record
        self._tell(self._on_record, arm, True)
        for setting, number in self._waiting.pop(arm.signature, ()):
            _, missing = self._open[setting, number]
            missing.discard(arm.signature)
            if not missing:
                self._close(setting, number, record)

    def _fails(self, arm: Arm, reason: str) -> None:
        """An arm of this run has failed; the first ones, all alike, end the run."""
        if self.plan.is_done or self.stopping:
            return
        if not (why := self._first_failures.failed(arm, reason)):
            return
        self.problems = self._first_failures.told(self.problems)
        self.stop("its first arms failed alike")
        self.ends_by = time.monotonic() + ALIKE_ENDS_S
        try:
            put_failed_alike(self.objects, self.definition.name, why)
        except StoreError as error:
            self.store_trouble(str(error))

    def _close(self, setting: str, number: int, last: ArmRecord | None = None) -> None:
        """All arms of a proposal are final: judge it, and let the search and the store know."""
        arms, _ = self._open.pop((setting, number))
        space = self.definition.space
        try:
            least, point = space.setting(setting).least_descent, self._points[setting][number]
            read = partial(self._final, last)
            result = judge_proposal(number, point, arms, read, space.tolerance, least)
            assert result is not None, "an arm of it is running again"
            outcome = ProposalOutcome.of(result)
        except StoreError:
            raise
        except Exception as error:
            log.exception("proposal %s of setting %s could not be judged", number, setting)
            self._retire(setting, f"proposal {number} could not be judged", error)
            return
        self.outcomes[setting][number] = outcome
        self._judged.changed(setting)
        self._tell(self._on_proposal, setting, result)
        if outcome.can_win and not self._has_winner:
            self._has_winner = True
            self.tell_news(events.of_first_winner(self.definition.name, setting, outcome))

    def _final(self, last: ArmRecord | None, signature: str) -> ArmRecord:
        record = last if last and last.signature == signature else self._read(signature)
        if record is None:
            raise StoreError(
                f"the record of arm {signature} is gone below {self.objects.root}. "
                f"`{self.again}` trains it again."
            )
        return record

    def _tell(self, listener: Callable[..., None] | None, *args: object) -> None:
        events.tell(listener, *args, problems=self.problems)
