"""The verbs that read a sweep and change nothing: list, status, best."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import click
from rich.live import Live
from rich.markup import escape

from search_spaces import catalog
from sweep.api.listed import ListedSweep, listed_sweeps, newest_first
from sweep.cli.options import (
    console,
    given_storage,
    json_option,
    newest_argument,
    open_sweep,
    print_json,
)
from sweep.cli.sweep_options import Place, ShownSettings, collected
from sweep.cli.text.best import (
    FEW_SETTINGS,
    print_answer,
    print_best,
    print_overview,
    print_settings,
)
from sweep.cli.text.live import StatusAnswer, status_view
from sweep.cluster import ask
from sweep.confirmation.chosen import confirmation_name
from sweep.render.table import NOTHING, number
from sweep.render.terminal import Paragraph, phrases, table
from sweep.results.best import best_entries
from sweep.results.findings import next_step
from sweep.results.status import SettingStatus, state_of, status_of
from sweep.results.summary import SettingSummary
from sweep.results.sweep_view import SweepView
from sweep.run.alike import failed_alike
from sweep.run.budget import Budget, summarize_spending, took_text
from sweep.run.forget_failed import failure_time_text
from sweep.study import advice
from sweep.study.advice import note
from sweep.study.definition import (
    Definition,
    definition_name,
)
from sweep.study.lock import driver_of
from sweep.study.opening import find_sweep, open_store
from sweep.study.selection import outcome_text
from sweep.tracking.address import TrackingError, known_id, place_of
from trainables.errors import Misuse, SweepError
from trainables.plain import Json
from trainables.records.objects import ObjectStore
from trainables.signs.early_signs import WENT

WATCH_S = 5.0  # between two refreshes of `status --watch`
SHOWN_FAILURES = 6  # arms whose reason `status` prints; a sweep can stop hundreds for one


# --- list, status ---------------------------------------------------------------------------------


@click.command("list")
@collected(place=Place)
@json_option
def list_(place: Place, as_json: bool) -> None:
    """List the sweeps below the storage root, newest first.

    The state is running (a driver works on it), finished, failed (finished, and every proposal
    failed), stopped (`sweep resume` continues it), other version (only the version of this
    program that trained it can read it), damaged (`sweep rm` removes it), or needs a plug-in
    that is not installed here.
    """
    if place.address is None:
        objects = open_store(place.storage)
        entries = [one.to_json() for one in listed_sweeps(objects, say=note)]
    else:
        entries = ask.json_of(place.address, given_storage(), "list")
    if as_json:
        print_json(entries)
        return
    with ask.readable("its sweeps", is_remote=place.address is not None):
        _print_list([ListedSweep.from_json(entry) for entry in entries], place)


def _no_sweeps_text(place: Place) -> str:
    """Message that there are no sweeps here, and how to start one."""
    if place.cluster is None:
        root = open_store(place.storage).root
        first = advice.command("run", "quickstart", storage=root)
        return f"no sweeps below {root}. Start one with `{first}`."
    first = advice.command("submit", "quickstart", storage=given_storage(), address=place.cluster)
    return f"no sweeps on the cluster at {place.cluster}. Start one with `{first}`."


def name_or_newest(name: str | None, place: Place) -> str:
    """The given name of a sweep, or the newest one, which a note names."""
    if name is not None:
        return name
    if place.address is None:
        names = newest_first(open_store(place.storage))
    else:
        entries = ask.json_of(place.address, given_storage(), "list")
        names = [ListedSweep.from_json(entry).name for entry in entries]
    if not names:
        raise Misuse(_no_sweeps_text(place))
    note(f"{names[0]}, the newest sweep:")
    return names[0]


def _print_list(sweeps: Sequence[ListedSweep], place: Place) -> None:
    if not sweeps:
        note(_no_sweeps_text(place))
        return
    rows = [
        {
            "name": one.name,
            "space": one.space or "",
            "state": one.state + (f": {one.plug_in}" if one.plug_in else ""),
            "proposals": (one.proposals or "")
            + f" ({len(one.retired)} retired)" * bool(one.retired),
        }
        for one in sweeps
    ]
    console().print(table(rows, unbroken=("name", "space")))


@click.command()
@newest_argument
@collected(place=ShownSettings)
@click.option(
    "--watch", is_flag=True,
    help="Refresh every 5 s while the sweep runs; with bars on a terminal.",
)  # fmt: skip
@json_option
def status(name: str | None, place: ShownSettings, watch: bool, as_json: bool) -> None:
    """Show a sweep's progress: arms, outcomes, and what is training.

    Default NAME: the newest sweep.
    """
    if watch and as_json:
        raise click.UsageError("--watch and --json exclude each other: give one of them.")
    name = name_or_newest(name, place)
    with ExitStack() as stack:
        live: Live | None = None
        while True:
            if place.slurm is not None:
                from sweep.cluster import slurm_submit

                slurm_submit.enter(place.slurm)  # what its jobs do now
            if place.address is None:
                entry = _status_entry(*open_sweep(place.storage, name, "outcomes"))
            else:
                entry = ask.json_of(place.address, given_storage(), "status", name)
            if as_json:
                print_json(entry)
                return
            out = console()
            with ask.readable(name, is_remote=place.address is not None):
                now = StatusAnswer.from_json(entry)
                kept = catalog.matching([s.setting for s in now.settings], place.patterns, name)
                now = replace(now, settings=[s for s in now.settings if s.setting in kept])
                goes_on = watch and now.state == "running"
                if goes_on and out.is_terminal:
                    live = live or stack.enter_context(Live(auto_refresh=False, transient=True))
                    live.update(status_view(now, out.width, out.height), refresh=True)
                else:
                    stack.close()  # the view is replaced by the last status
                    _print_status(now, place)
                    if place.slurm is not None and now.state == "stopped":
                        slurm_submit.tell_problem(place.storage, name)
            if not goes_on:
                return
            try:
                time.sleep(WATCH_S)
            except KeyboardInterrupt:  # ends the view
                return


def _status_entry(objects: ObjectStore, view: SweepView) -> dict[str, Json]:
    driver = driver_of(objects, view.definition.name)
    return {
        "name": view.definition.name,
        "space": view.definition.space.name,
        "driver": None if driver is None else driver.to_json(),
        "storage": objects.root,
        **status_of(view, is_running=driver is not None).to_json(),
        **summarize_spending(objects, view).to_json(),
        "failed_alike": failed_alike(objects, view.definition.name) or None,
    }


def _confirmed_text(name: str, place: ShownSettings) -> str:
    """Command that shows the confirmation of a local sweep; '' where there is none."""
    if place.address is not None:
        return ""
    objects, other = open_store(place.storage), confirmation_name(name)
    if not objects.exists(definition_name(other)):
        return ""
    shown = advice.command("best", other, storage=objects.root)
    return f"Results of its pairs on fresh seeds: `{shown}`."


def _print_status(entry: StatusAnswer, place: ShownSettings) -> None:
    name, state, arms, driver = entry.name, entry.state, entry.arms, entry.driver
    by = "" if driver is None else f", by {driver}"
    out = console()
    out.print(f"[bold]{name}[/bold] is {state}{by}")
    if driver is not None and driver.waits_for:
        out.print(escape(f"waits for {driver.waits_for}"), style="yellow")
    begun = "in training" if driver is not None else "interrupted"
    count = arms.training + arms.interrupted
    is_early = driver is not None and not count and arms.final < arms.wanted
    note = " (an arm counts from its first report on)" * is_early
    out.print(f"{arms.final} of {arms.wanted} arms final, {count} {begun}{note}")
    _print_spent(entry)
    out.print()
    settings = entry.settings
    begun_ones = [s for s in settings if s.proposals.finished]
    rows = begun_ones if place.is_short and len(settings) > FEW_SETTINGS else settings
    if rows:
        print_settings(out, {s.setting: _status_row(s) for s in rows}, right=("objective",))
    if len(rows) < len(settings):
        rest = advice.counted(len(settings) - len(rows), "setting")
        out.print(f"Without a finished proposal: {rest} of {len(settings)} (--full).")
    out.print("Objective: lower is better; compare it only within a setting.")
    _print_training(entry)
    if confirmed := _confirmed_text(name, place):
        out.print(Paragraph(confirmed))
    if state == "stopped":
        storage = entry.storage if place.address is None else given_storage()
        again = advice.command("resume", name, storage=storage, address=place.address)
        click.echo(f"\nContinue with `{again}`.")


def _print_spent(entry: StatusAnswer) -> None:
    """Print the hours that a sweep used, its budget, and why its last run gave up."""
    out, budget = console(), entry.budget
    if entry.spent.arm_hours:
        out.print(Paragraph(took_text(entry.spent)))
    if budget is not None and entry.state in ("running", "stopped"):
        limits = Budget(budget.max_arms, budget.max_hours, budget.max_gpu_hours)
        reached = ", reached" if budget.reached else ""
        out.print(f"budget of its last run: {' '.join(limits.options)}{reached}")
    if entry.failed_alike:
        out.print(Paragraph(f"its last run ended: {entry.failed_alike}", style="red"))


def _status_row(setting: SettingStatus) -> dict[str, str]:
    proposals, winner = setting.proposals, setting.winner
    return {
        "tried": phrases(f"{proposals.finished} of {proposals.wanted}"),
        "outcomes": phrases(outcome_text(setting.outcomes)),
        "winner": NOTHING if winner is None else phrases(f"proposal {winner}"),
        "objective": number(setting.objective, ".3f"),
    }


def _print_training(entry: StatusAnswer) -> None:
    out = console()
    for arm in (*entry.in_training, *entry.interrupted):
        place = "unconstrained" if arm.proposal is None else f"proposal {arm.proposal}"
        where = f"{arm.signature}  {arm.setting}, {place}, seed {arm.seed}"
        out.print(Paragraph(f"{where}: step {arm.step} of {arm.steps}", 2))
    failures = entry.failures
    for failure in failures[:SHOWN_FAILURES]:
        text = f"{failure.signature}  {failure.setting}: {failure.reason}"
        if failure.ended_ms and failure.trained_for != entry.name:
            text += f" ({failure_time_text(failure.ended_ms, failure.trained_for)})"
        out.print(Paragraph(text, 2, "red"))
    if len(failures) > SHOWN_FAILURES:
        out.print(f"  and {len(failures) - SHOWN_FAILURES} more arms: `--json` has every reason")
    for setting, why in entry.retired.items():
        out.print(Paragraph(f"{setting}: its search ended early: {why}", 2, "red"))
    if entry.warnings:
        past = sum(one.warning.startswith(WENT) for one in entry.warnings)
        standing = len(entry.warnings) - past
        signs = f"{advice.counted(standing, 'early sign')} of arms that train badly"
        signs += f", and {past} that no longer held later" * bool(past)
        out.print(f"\n{signs} (`--json` has all); the first:")
        first = entry.warnings[0]
        out.print(Paragraph(f"{first.signature}  {first.setting}: {first.warning}", 2))


def _next_text(name: str, place: ShownSettings, summaries: Sequence[SettingSummary]) -> str:
    """Command that follows on the findings of a local sweep that has ended; '' where none does."""
    step = next_step(summaries)
    words = step.words if step else ()
    if any(one.winner for one in summaries):
        words = ("confirm",)  # what counts as a result
    if not words:
        return ""
    command = advice.command(words[0], name, *words[1:], storage=open_store(place.storage).root)
    return f"Next: `{command}`."


# --- best -----------------------------------------------------------------------------------------


@click.command()
@newest_argument
@collected(place=ShownSettings)
@json_option
def best(name: str | None, place: ShownSettings, as_json: bool) -> None:
    """Show the winner of every setting, and why its other candidates lost.

    The overall finding comes first. Many settings get one line each; --only or --full shows them in
    full. With several search seeds, numbers are means, and verdicts are judged on mean losses.
    For a confirmation, its table is shown. Default NAME: the newest sweep.
    """
    name, has_ended = name_or_newest(name, place), False
    if place.address is not None:
        entries = ask.json_of(place.address, given_storage(), "best", name)
    else:
        objects = open_store(place.storage)
        definition = find_sweep(objects, name)
        if definition.space.phase == "confirmation":
            from sweep.confirmation.stages import summarize_stored  # scipy

            entries = summarize_stored(objects, definition).to_json()
        else:
            _, view = open_sweep(place.storage, name, "pairs")
            entries = best_entries(view, run_ids(objects, view.definition) if as_json else {})
            is_running = driver_of(objects, name) is not None
            has_ended = state_of(view, is_running=is_running) == "finished"
    is_confirmation = isinstance(entries, Mapping)
    settings = entries["settings"] if is_confirmation else entries
    kept = catalog.matching([one["setting"] for one in settings], place.patterns, name)
    settings = [one for one in settings if one["setting"] in kept]
    shown: Json = {**entries, "settings": settings} if is_confirmation else settings
    if as_json:
        print_json(shown)
        return
    with ask.readable(name, is_remote=place.address is not None):
        if is_confirmation:
            from sweep.cli.text.confirmed import print_confirmed, print_outcome
            from sweep.confirmation.summary import ConfirmationSummary

            confirmation = ConfirmationSummary.from_json(shown)
            print_outcome(confirmation)
            click.echo()
            print_confirmed(confirmation)
            return
        summaries = [SettingSummary.from_json(entry) for entry in settings]
        print_answer(summaries)
        confirmed = _confirmed_text(name, place)
        following = _next_text(name, place, summaries) if has_ended else ""
        if confirmed or following:
            console().print(Paragraph(confirmed or following))
        click.echo()
        if len(summaries) > FEW_SETTINGS and place.is_short:
            print_overview(summaries)
        else:
            print_best(summaries, confirmed)


def run_ids(objects: ObjectStore, definition: Definition) -> dict[str, str]:
    """MLflow runs by signature; empty, with a note, while MLflow does not answer."""
    from sweep.tracking import client

    try:
        if (sweep_id := known_id(objects, definition.name)) is None:
            raise TrackingError(f"{definition.name} was not tracked yet.")
        uri = place_of(objects, definition)
        return client.run_ids(uri, definition.name, sweep_id, storage=objects.root)
    except SweepError as error:
        note(f"without MLflow run ids: {error}")
        return {}
