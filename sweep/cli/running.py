"""The verbs that train: run, resume, stop."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from search_spaces import catalog
from sweep.cli.asked import Asked, Place, SweepOptions, collected, refuse_confirmation
from sweep.cli.cluster import notify_option, send
from sweep.cli.options import (
    console,
    given_storage,
    name_argument,
    named_here,
    storage_option,
    tell_that_it_is_here,
)
from sweep.cli.text.best import print_best
from sweep.cluster import ask
from sweep.cluster.submission import NOT_YET, Submission
from sweep.executors.executor import Executor
from sweep.results.best import best_entries
from sweep.results.findings import findings
from sweep.results.sweep_view import SweepView, load_sweep
from sweep.run import notifications
from sweep.run.retention import keep_winners_weights
from sweep.run.signals import KNOWN, request_stop
from sweep.study import advice
from sweep.study.advice import note
from sweep.study.arms import all_judged
from sweep.study.definition import Definition, definition_name
from sweep.study.lock import driver_of, driving_jobs
from sweep.study.opening import find_sweep, open_store, parse_seeds
from sweep.study.registration import extended, refuse_second_driver, registered, resolved
from sweep.study.requirements import (
    absolute,
    fetch,
    require_device,
    require_torch,
    resolve_checkpoints,
    resolve_data,
    with_folder,
)
from sweep.study.selection import outcome_text
from sweep.tracking.address import place_of, remember_place, shown, sweep_id
from trainables.errors import Misuse, StoreError, SweepError
from trainables.records.objects import ObjectStore

if TYPE_CHECKING:
    from sweep.run.summary import RunSummary
    from sweep.tracking.tracker import Tracker

SHOWN_SETTINGS = 8  # more are left to `sweep best`
TRACKING_END_S = 30.0  # how long the end of a sweep waits for MLflow
URGENT_END_S = 4.0  # the same, of a sweep that is killed when it does not end


@click.command()
@collected(asked=Asked)
@storage_option
@collected(executor=Executor)
@click.option(
    "--reproduce", "--fresh", "reproduce", is_flag=True,
    help="Train again in a scratch area, and compare with the stored records.",
)  # fmt: skip
@click.option("--mlflow", metavar="URI", help="MLflow server; default: SQLite below the storage.")
@notify_option
def run(
    asked: Asked,
    storage: str,
    executor: Executor,
    reproduce: bool,
    mlflow: str | None,
    notify: str | None,
) -> None:
    """Run a sweep of SPACE here, in the foreground.

    SPACE is a built-in search space, a .py or .json file of your own, or an exported
    configuration. Running the same definition again under the same name continues it; a different
    definition under a name that is taken is refused.
    """
    tell_that_it_is_here("`sweep submit` sends a sweep to the cluster.")
    require_torch()
    found, definition, wanted = asked.definition()
    refuse_confirmation(found)
    objects = open_store(storage)
    place_of(objects, definition, mlflow)  # refused before data are decoded or anything is written
    if executor.where != "cluster":  # its head needs no GPU
        require_device(definition.space)
    definition = resolved(definition, say=note)
    if reproduce:
        from sweep.run.reproduce import reproduced

        same = reproduced(objects, definition, found.expected, executor)
        raise SystemExit(0 if same else 1)
    there = registered(objects, definition, asked=wanted, say=note)
    refuse_second_driver(objects, definition.name)
    raise SystemExit(train(objects, there, executor, mlflow=mlflow, notify=notify))


@click.command()
@name_argument
@collected(options=SweepOptions)
@click.option("--retry-failed", is_flag=True, help="Train arms that failed once more.")
@collected(at=Place)
@collected(executor=Executor)
@notify_option
def resume(
    name: str,
    options: SweepOptions,
    retry_failed: bool,
    at: Place,
    executor: Executor,
    notify: str | None,
) -> None:
    """Continue a sweep; if asked, with more proposals or failed arms again.

    Finished arms are not trained again. Proposals and seeds can only be added.
    """
    if at.address is not None:
        if named_here("where") and executor.where != "cluster":
            raise Misuse(f"--address trains on a cluster, and --where {executor.where} does not.")
        sent = Submission(
            name,
            any_version=True,  # no definition is sent: the cluster continues what it has
            n_proposals=options.proposals,
            seeds=options.seeds,
            retry_failed=retry_failed,
        )
        send(at.address, sent, options, executor.workers, notify)
        return
    require_torch()
    objects = open_store(at.storage)
    there = find_sweep(objects, name)
    grown = options.seeds is not None or options.proposals is not None
    if there.space.phase == "confirmation" and (grown or retry_failed):
        raise Misuse(
            f"{name} is a confirmation: its seeds and arms are those of its plan, and an arm that "
            "failed counts as planned, so --seeds, --proposals and --retry-failed are not for it. "
            "Leave them out, or confirm again with `sweep confirm` under another --name."
        )
    if options.stall_after is not None:
        there = replace(there, space=replace(there.space, stall_after_s=options.stall_after))
    if options.data is not None:
        there = with_folder(there, _folder(options.data))
    present = there.space.search_seeds
    seeds = None if options.seeds is None else parse_seeds(options.seeds, present)
    there.extended(n_proposals=options.proposals, search_seeds=seeds)  # before data are read
    refuse_second_driver(objects, name)
    resolve_data(resolve_checkpoints(fetch(there.space, note)))  # still there, still the same
    objects.check_writable()
    there = extended(objects, there, n_proposals=options.proposals, search_seeds=seeds, say=note)
    raise SystemExit(train(objects, there, executor, retry_failed=retry_failed, notify=notify))


def _folder(data: str) -> str | None:
    """Where the data of a stored sweep lie now; which data they are does not change."""
    if catalog.is_data_set(data):
        raise Misuse(f"--data must be a folder here, got {data}: the sweep keeps its data set.")
    return absolute(data)


@click.command()
@name_argument
@collected(at=Place)
def stop(name: str, at: Place) -> None:
    """Stop a running sweep: its arms end at their next report, and `sweep resume` continues it."""
    if at.address is not None:
        click.echo(ask.stop(at.address, given_storage(), name), nl=False)
        return
    objects = open_store(at.storage)
    driver = driver_of(objects, name)
    if driver is not None and driver.job and not objects.exists(definition_name(name)):
        click.echo(driver.job)  # who asks for the laptop can end it; nothing else is there to end
        raise SystemExit(NOT_YET)
    find_sweep(objects, name)
    if driver is None and (objects.is_local or driving_jobs.get(None) is not None):
        raise Misuse(f"{name} is not running, so there is nothing to stop.")
    request_stop(objects, name)
    whom = driver or "any job that would start its driver again (none gives a sign of life)"
    click.echo(
        f"{name}: asked {whom} to stop. Running arms end at their next report; "
        f"`{advice.command('status', name, storage=objects.root)}` shows when, "
        f"`{advice.resume(name, objects.root)}` continues."
    )


# --- training -------------------------------------------------------------------------------------


def train(
    objects: ObjectStore,
    definition: Definition,
    executor: Executor,
    *,
    retry_failed: bool = False,
    mlflow: str | None = None,
    notify: str | None = None,
) -> int:
    """Train what is missing, track it, print what it came to; the exit code.

    A confirmation that trains until it is decided goes on with more seeds until then.
    """
    while True:
        code = _train_once(
            objects, definition, executor,
            retry_failed=retry_failed, mlflow=mlflow, notify=notify,
        )  # fmt: skip
        if definition.space.phase != "confirmation" or not all_judged(objects, definition):
            return code  # arms that failed count there: it goes on
        from sweep.confirmation.stages import next_seeds  # scipy, statsmodels: two seconds

        more = next_seeds(objects, definition)
        if not more:
            return code
        definition = extended(objects, definition, n_proposals=None, search_seeds=more, say=note)


def _train_once(
    objects: ObjectStore,
    definition: Definition,
    executor: Executor,
    *,
    retry_failed: bool,
    mlflow: str | None,
    notify: str | None,
) -> int:
    from sweep.run.run_sweep import run_again, run_sweep
    from sweep.tracking import sources
    from sweep.tracking import tracker as tracking
    from sweep.tracking.writer import BackgroundTracker

    started_ms = time.time_ns() // 1_000_000
    uri = place_of(objects, definition, mlflow)
    remember_place(objects, definition.name, uri)
    tracker = partial(tracking.Tracker, uri, sweep_id=sweep_id(objects, definition.name))
    read = sources.StoredArms(objects, definition)
    send = advice.command("sync", definition.name, storage=objects.root)
    background = BackgroundTracker(
        tracker(), definition.name, read, warn=note, storage=objects.root
    )
    on_record, on_proposal = sources.listeners(background.offer)
    tracking_end_s = TRACKING_END_S
    try:
        again = run_again(objects, definition, executor)
        with notifications.notifying(notify, definition.name, again, warn=note) as on_event:
            summary = run_sweep(
                objects,
                definition,
                executor,
                on_record=on_record,
                on_proposal=on_proposal,
                on_event=on_event,
                retry_failed=retry_failed,
            )
            tracking_end_s = URGENT_END_S if summary.is_urgent else TRACKING_END_S
    finally:
        behind = background.close(tracking_end_s)
    view = load_sweep(objects, definition.name)
    if behind:
        note(f"MLflow at {shown(uri)} lacks {len(behind)} arms; `{send}` sends them.")
    elif not summary.is_urgent:
        try:
            track_sweep(tracker(), view, started_ms, objects.root)
        except SweepError as error:
            note(f"{error} `{send}` completes it.")
    _print_summary(objects, view, summary)
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


def track_sweep(tracker: Tracker, view: SweepView, fallback_ms: int, storage: str) -> None:
    """Bring MLflow's pages of the sweep up to date; its times are those of the records."""
    records = [a.record for a in view.arms.values() if a.record is not None]
    started_ms = min((r.started_ms for r in records), default=fallback_ms)
    tracker.sync_sweep_summary(
        view.definition.name,
        definition={n: v for n, v in view.definition.to_json().items() if n != "mlflow_uri"},
        outcomes={s.setting.name: s.chosen.outcomes for s in view.settings},
        started_ms=started_ms,
        ended_ms=max((r.ended_ms for r in records), default=fallback_ms)
        if view.is_finished
        else None,
    )
    tracker.present(
        view.definition,
        {s.setting.name: (s.chosen, s.results) for s in view.settings},
        storage=storage,
        started_ms=started_ms,
    )


def _print_summary(objects: ObjectStore, view: SweepView, summary: RunSummary) -> None:
    name = view.definition.name
    for setting, why in summary.retired.items():
        note(f"{setting}: its search ended early: {why}")
    for problem in summary.problems:
        note(problem)
    done = f"{summary.arms_done} of {summary.arms_total} arms are final"
    if not summary.is_done:
        stopped = f" ({summary.stopped})" if summary.stopped else ""
        goes_on = KNOWN in os.environ and not summary.was_asked_to_stop
        what_next = "Its job sees whether it goes on." if goes_on else summary.advice
        note(f"{name} is not done{stopped}: {done}. {what_next}")
        return
    out = console()
    out.print(f"\n{name}: {done}; proposals: {outcome_text(summary.outcomes)}\n")
    if view.definition.space.phase == "confirmation":
        from sweep.cli.text.confirmed import print_confirmed
        from sweep.confirmation.stages import shown_now

        print_confirmed(shown_now(objects, view.definition))
        return
    entries = best_entries(view, {})
    if len(entries) <= SHOWN_SETTINGS:
        print_best(entries)
    else:
        show = advice.command("best", name, storage=objects.root)
        click.echo(f"{' '.join(findings(entries))} `{show}` shows them.")
