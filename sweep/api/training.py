"""Tracked training of a stored sweep, for `sweep run` and ``sweep.run``."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from search_spaces.space import SearchSpace
from sweep.cost.spent import put_estimate, stored_estimate
from sweep.executors.executor import Executor
from sweep.results.best import best_summaries
from sweep.results.findings import findings
from sweep.results.sweep_view import SweepView, load_sweep
from sweep.run import notifications
from sweep.run.budget import NO_LIMIT, ArmHours, Budget, summarize_spending, took_text
from sweep.run.retention import keep_winners_weights
from sweep.run.signals import KNOWN
from sweep.study import advice
from sweep.study.advice import note
from sweep.study.arms import all_judged
from sweep.study.definition import Definition
from sweep.study.registration import extended, resolved
from sweep.study.requirements import require_device
from sweep.study.selection import outcome_text
from sweep.tracking.address import place_of, remember_place, shown, sweep_id
from sweep.tracking.marks import SweepPages, Verdicts
from trainables.errors import StoreError, SweepError
from trainables.plain import Json
from trainables.records.objects import ObjectStore

if TYPE_CHECKING:
    from sweep.run.summary import RunSummary

ESTIMATE_S = 30.0  # how long the start of a sweep waits for its estimate
TRACKING_END_S = 30.0  # how long the end of a sweep waits for MLflow
URGENT_END_S = 4.0  # the same, of a sweep that is killed when it does not end
OnDone = Callable[[SweepView, str], None]  # the sweep, and a line on how it ended


def ready(
    objects: ObjectStore, definition: Definition, executor: Executor, mlflow: str | None
) -> Definition:
    """The definition with its data found, where it can be trained and tracked; nothing is written.

    Raises:
        Misuse: it cannot.
    """
    place_of(objects, definition, mlflow)  # refused before data are decoded or anything is written
    if executor.where != "cluster":  # its head needs no GPU
        require_device(definition.space)
    return resolved(definition, say=note)


def train(
    objects: ObjectStore,
    definition: Definition,
    executor: Executor,
    *,
    on_done: OnDone,
    retry_failed: bool = False,
    accept_code: bool = False,
    budget: Budget = NO_LIMIT,
    mlflow: str | None = None,
    notify: str | None = None,
) -> int:
    """Train what is missing, track it, say what it came to; the exit code.

    A confirmation that trains until it is decided goes on with more seeds until then.
    """
    _tell_idle_share(definition.space, executor)
    _estimate(objects, definition)
    while True:
        code = _train_once(
            objects, definition, executor, on_done=on_done, retry_failed=retry_failed,
            accept_code=accept_code, budget=budget, mlflow=mlflow, notify=notify,
        )  # fmt: skip
        if definition.space.phase != "confirmation" or not all_judged(objects, definition):
            return code  # arms that failed count there: it goes on
        from sweep.confirmation.stages import next_seeds  # scipy, statsmodels: two seconds

        more = next_seeds(objects, definition)
        if not more:
            return code
        definition = extended(objects, definition, n_proposals=None, search_seeds=more, say=note)


def _tell_idle_share(space: SearchSpace, executor: Executor) -> None:
    """Say where a share of a GPU was asked for that no arm can be given."""
    runs = [space.base.with_fields(setting.fields) for setting in space.settings]
    why = (
        "all arms train on the CPU" if all(run.device == "cpu" for run in runs)
        else "with --where inline one arm trains at a time" if executor.where == "inline"
        else "each of several processes has a GPU of its own" if (executor.processes or 1) > 1
        else ""
    )  # fmt: skip
    if why and space.gpus_per_arm != 1.0:
        note(f"gpus_per_arm={space.gpus_per_arm} does nothing here: {why}.")


def _estimate(objects: ObjectStore, definition: Definition, gpu: str | None = None) -> None:
    """Store what a sweep is thought to cost, once: before its arms make this machine busy.

    Args:
        objects: the storage root.
        definition: the sweep.
        gpu: what the GPU that it trains on calls itself; None: that of this machine, if any.
    """
    if stored_estimate(objects, definition.name) is not None:
        return
    from sweep.cost.estimate import estimate_entry  # torch
    from sweep.cost.gpus import gpu_called, gpu_here

    on_gpu = definition.space.base.device == "cuda"
    known = gpu_called(gpu or gpu_here()) if on_gpu else None
    if known is None and on_gpu:
        return
    estimates: list[dict[str, Json]] = []
    # a step of a plug-in can hang: in an arm that is seen, here it must not keep all from starting
    timing = threading.Thread(
        target=lambda: estimates.append(estimate_entry(definition.space, known)), daemon=True
    )
    timing.start()
    timing.join(ESTIMATE_S)
    late = {"not_counted": f"a few steps took more than {ESTIMATE_S:.0f} s"}
    put_estimate(objects, definition.name, estimates[0] if estimates else late)


def _train_once(
    objects: ObjectStore,
    definition: Definition,
    executor: Executor,
    *,
    on_done: OnDone,
    retry_failed: bool,
    accept_code: bool,
    budget: Budget,
    mlflow: str | None,
    notify: str | None,
) -> int:
    from sweep.run.events import Observer
    from sweep.run.run_sweep import command_to_resume, run_sweep
    from sweep.tracking.process import TrackerProcess
    from sweep.tracking.sources import listeners
    from sweep.tracking.writer import BackgroundTracker

    started_ms = time.time_ns() // 1_000_000
    uri = place_of(objects, definition, mlflow)
    remember_place(objects, definition.name, uri)
    send = advice.command("sync", definition.name, storage=objects.root)
    number = sweep_id(objects, definition.name)
    with closing(TrackerProcess(uri, objects, definition, number)) as tracker:
        background = BackgroundTracker(
            tracker.send, uri, definition.name, warn=note, storage=objects.root
        )
        on_record, on_proposal = listeners(background.offer)
        tracking_end_s = TRACKING_END_S
        try:
            again = command_to_resume(objects, definition, executor, budget, accept_code)
            with notifications.notifying(notify, definition.name, again, warn=note) as on_event:
                summary = run_sweep(
                    objects,
                    definition,
                    executor,
                    observer=Observer(on_record, on_proposal, on_event=on_event),
                    retry_failed=retry_failed,
                    accept_code=accept_code,
                    budget=budget,
                )
                tracking_end_s = URGENT_END_S if summary.is_urgent else TRACKING_END_S
        finally:
            behind = background.close(tracking_end_s)
        view = load_sweep(objects, definition.name)
        if behind:
            note(f"MLflow at {shown(uri)} lacks {advice.counted(len(behind), 'arm')}: `{send}`.")
        elif not summary.is_urgent:
            try:
                tracker.sync_sweep(sweep_pages(view, started_ms, objects.root))
            except SweepError as error:
                note(f"{error} `{send}` completes it.")
    if not summary.is_urgent:
        names = [a.record.environment.get("gpu") for a in view.arms.values() if a.record]
        _estimate(objects, definition, next(filter(None, names), None))
    tell_end(view, summary, on_done, summarize_spending(objects, view).spent)
    if not summary.is_done:
        return summary.exit_code
    unread = sum(not arm.is_final for arm in view.arms.values())
    if unread:
        note(f"{unread} final records cannot be read: `{again}` trains their arms again.")
        return 1
    if view.definition.space.phase == "confirmation":
        return summary.exit_code  # it has no winners: all weights stay
    try:
        keep_winners_weights(objects, view)
    except StoreError as error:  # the results stand: only space on the disk is not freed
        note(f"the weights of arms that did not win could not all be deleted: {error}")
        return 1
    return summary.exit_code


def sweep_pages(view: SweepView, fallback_ms: int, storage: str) -> SweepPages:
    """The content of the sweep's pages in MLflow; its times are those of the records.

    Args:
        view: the sweep.
        fallback_ms: its time where no arm has a record.
        storage: the root that its records lie below.
    """
    records = [a.record for a in view.arms.values() if a.record is not None]
    ended_ms = max((r.ended_ms for r in records), default=fallback_ms)
    judged = {s.setting.name: (s.chosen, s.results) for s in view.settings}
    is_confirmation = view.definition.space.phase == "confirmation"
    return SweepPages(
        definition=view.definition,
        verdicts=Verdicts.from_settings(view.definition.space, judged),
        settings={name: chosen for name, (chosen, _) in judged.items()},
        findings=[] if is_confirmation else findings(best_summaries(view, {})),
        storage=storage,
        started_ms=min((r.started_ms for r in records), default=fallback_ms),
        ended_ms=ended_ms if view.is_finished else None,
    )


def tell_end(view: SweepView, summary: RunSummary, on_done: OnDone, spent: ArmHours) -> None:
    """Say what went wrong and how a run goes on; of one that is done, ``on_done`` says more."""
    for setting, why in summary.retired.items():
        note(f"{setting}: its search ended early: {why}")
    for problem in summary.problems:
        note(problem)
    name = view.definition.name
    done = f"{summary.arms_done} of {summary.arms_total} arms are final"
    if line := summary.budget_line(took_text(spent)):
        on_done(view, line)
    elif not summary.is_done:
        stopped = f" ({summary.stopped})" if summary.stopped else ""
        goes_on = KNOWN in os.environ and not summary.was_asked_to_stop
        what_next = "Its job sees whether it goes on." if goes_on else summary.advice
        note(f"{name} is not done{stopped}: {done}. {what_next}")
    else:
        outcomes = outcome_text(summary.outcomes)
        on_done(view, f"{name}: {done}; proposals: {outcomes}; {took_text(spent)}")
