"""The verbs that read a sweep: list, status, best. They need no driver and change nothing."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from sweep import advice, remote, score_entries, table_columns, views
from sweep.cli_options import (
    address_option,
    console,
    given_storage,
    json_option,
    name_argument,
    note,
    only_option,
    open_store,
    open_sweep,
    print_json,
    storage_option,
    table,
)
from sweep.definition import Definition, folder, sweep_names
from sweep.findings import findings
from sweep.lock import Driver, driver_of
from sweep.names import model_text, short_names
from sweep.tracking_place import known_id, place_of
from sweep.verdict_text import verdict_lines
from trainables.errors import SweepError, UnknownName
from trainables.object_store import ObjectStore
from trainables.shifts import FAMILIES
from trainables.task_facts import facts_of, reference_label

Json = Any
_NOTHING = "—"
FEW_SETTINGS = 4  # of more, each gets a line
full_option = click.option(
    "--full", is_flag=True, help="Show every setting whole, however many there are."
)
DIFFERENCE = "difference"  # with a star where the pair was selected by it
WATCH_S = 5.0  # between two looks of `status --watch`
SHOWN_FAILURES = 6  # arms whose reason `status` prints; a sweep can stop hundreds for one


# --- list, status ---------------------------------------------------------------------------------


@click.command("list")
@storage_option
@address_option
@json_option
def list_(storage: str, address: str | None, as_json: bool) -> None:
    """List the sweeps below the storage root, newest first.

    The state is running (a driver works on it), finished, failed (finished, and every proposal
    failed), stopped (`sweep resume` continues it), or damaged (`sweep rm` removes it).
    """
    if address is None:
        objects = open_store(storage)
        entries = [_list_entry(objects, name) for name in newest_first(objects)]
        place = f"below {objects.root}"
        first = advice.command("run", "quickstart", storage=objects.root)
    else:
        entries = remote.json_of(address, "list")
        place = f"on the cluster at {address}"
        first = advice.command("submit", "quickstart", storage=given_storage(), address=address)
    if as_json:
        print_json(entries)
        return
    with remote.readable("its sweeps", is_remote=address is not None):
        _print_list(entries, place, first)


def _print_list(entries: Sequence[Mapping[str, Json]], place: str, first: str) -> None:
    if entries:
        shown = ("name", "space", "state", "proposals")
        rows = [{key: e[key] or "" for key in shown} for e in entries]
        for row, entry in zip(rows, entries, strict=True):
            row["proposals"] += f" ({len(entry['retired'])} retired)" * bool(entry["retired"])
        console().print(table(rows))
    else:
        note(f"no sweeps {place}. Start one with `{first}`.")


def _list_entry(objects: ObjectStore, name: str) -> dict[str, Json]:
    entry: dict[str, Json] = {"name": name, "space": None, "state": "damaged", "proposals": None}
    entry["retired"] = []  # settings whose search ended early
    try:
        view = views.load_sweep(objects, name, "outcomes")
    except SweepError as error:  # the other sweeps can still be listed
        note(str(error))
    else:
        space = view.definition.space
        wanted = sum(map(space.proposals_of, space.settings))
        is_running = driver_of(objects, name) is not None
        entry["space"] = space.name
        entry["state"] = views.state(view, is_running=is_running)
        entry["proposals"] = f"{views.proposals_done(view)} of {wanted}"
        entry["retired"] = sorted(view.retired)
    return {**entry, "storage": objects.root}


def newest_first(objects: ObjectStore) -> list[str]:
    """Every sweep below the root, the one defined last first."""
    return sorted(sweep_names(objects), key=lambda name: _put_at(objects, name), reverse=True)


def _put_at(objects: ObjectStore, name: str) -> tuple[float, str]:
    """When the sweep was defined, for ordering; its name alone where the store is not local."""
    if not objects.is_local:
        return 0.0, name
    return Path(objects.root, folder(name), "definition.json").stat().st_mtime, name


@click.command()
@name_argument
@only_option
@full_option
@storage_option
@address_option
@click.option("--watch", is_flag=True, help="Show it again every 5 s while a driver works on it.")
@json_option
def status(
    name: str,
    patterns: Sequence[str],
    full: bool,
    storage: str,
    address: str | None,
    watch: bool,
    as_json: bool,
) -> None:
    """Show how far a sweep is: arms, outcomes, what trains now."""
    if watch and as_json:
        raise click.UsageError("--watch is for people and --json for programs: give one of them.")
    while True:
        if address is None:
            entry = _status_entry(*open_sweep(storage, name, "outcomes"))
        else:
            entry = remote.json_of(address, "status", name)
        if as_json:
            print_json(entry)
            return
        with remote.readable(name, is_remote=address is not None):
            entry["settings"] = chosen(name, entry["settings"], patterns)
            _print_status(entry, address, is_short=not full and not patterns)
        if not watch or entry["state"] != "running":
            return
        time.sleep(WATCH_S)
        click.clear()  # nothing where the output is no terminal


def _status_entry(objects: ObjectStore, view: views.SweepView) -> dict[str, Json]:
    driver = driver_of(objects, view.definition.name)
    return {
        "name": view.definition.name,
        "space": view.definition.space.name,
        "driver": None if driver is None else vars(driver),
        "storage": objects.root,
        **views.status(view, is_running=driver is not None),
    }


def chosen(
    sweep: str, entries: Sequence[Mapping[str, Json]], patterns: Sequence[str]
) -> list[Mapping[str, Json]]:
    """The entries of settings that match a pattern of --only; all, without any.

    Raises:
        UnknownName: a pattern matches none.
    """
    names = [entry["setting"] for entry in entries]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise UnknownName.of(f"setting of {sweep}", pattern, names)
    return [
        entry
        for entry, name in zip(entries, names, strict=True)
        if not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]


def _print_status(entry: Mapping[str, Json], address: str | None, *, is_short: bool) -> None:
    name, state, arms, driver = (entry[key] for key in ("name", "state", "arms", "driver"))
    by = "" if driver is None else f", by {Driver(**driver)}"
    out = console()
    out.print(f"[bold]{name}[/bold] is {state}{by}")
    if driver is not None and driver["waits_for"]:
        out.print(escape(f"waits for {driver['waits_for']}"), style="yellow")
    begun = "in training" if driver is not None else "interrupted"
    count = arms["training"] + arms["interrupted"]
    out.print(f"{arms['final']} of {arms['wanted']} arms final, {count} {begun}")
    out.print()
    settings = entry["settings"]
    begun_ones = [s for s in settings if s["proposals"]["finished"]]
    rows = begun_ones if is_short and len(settings) > FEW_SETTINGS else settings
    if rows:
        out.print(table([_status_row(s) for s in rows]))
    if len(rows) < len(settings):
        rest = len(settings) - len(rows)
        out.print(f"{rest} of {len(settings)} settings have no finished proposal (--full).")
    out.print("Objective: lower is better, and of use within one setting alone.")
    _print_training(entry)
    if state == "stopped":
        storage = entry["storage"] if address is None else given_storage()
        again = advice.command("resume", name, storage=storage, address=address)
        click.echo(f"\nContinue with `{again}`.")


def _status_row(setting: Mapping[str, Json]) -> dict[str, str]:
    proposals = setting["proposals"]
    winner = setting["winner"]
    objective = setting["objective"]
    return {
        "setting": setting["setting"],
        "proposals": f"{proposals['finished']} of {proposals['wanted']}",
        "outcomes": views.outcome_text(setting["outcomes"]),
        "winner (objective)": _NOTHING if winner is None else f"{winner} ({objective:.3f})",
    }


def _print_training(entry: Mapping[str, Json]) -> None:
    out = console()
    for arm in (*entry["in_training"], *entry["interrupted"]):
        place = "unconstrained" if arm["proposal"] is None else f"proposal {arm['proposal']}"
        out.print(
            f"  {arm['signature']}  {arm['setting']}, {place}, seed {arm['seed']}: "
            f"step {arm['step']} of {arm['steps']}"
        )
    failures = entry["failures"]
    for failure in failures[:SHOWN_FAILURES]:
        text = f"  {failure['signature']}  {failure['setting']}: {failure['reason']}"
        out.print(escape(text), style="red")
    if len(failures) > SHOWN_FAILURES:
        out.print(f"  and {len(failures) - SHOWN_FAILURES} more arms: `--json` has every reason")
    for setting, why in entry["retired"].items():
        out.print(escape(f"  {setting}: its search ended early: {why}"), style="red")
    if entry["warnings"]:
        out.print(f"\n{len(entry['warnings'])} early signs; the first:")
        first = entry["warnings"][0]
        out.print(escape(f"  {first['signature']}  {first['setting']}: {first['warning']}"))


# --- best -----------------------------------------------------------------------------------------


@click.command()
@name_argument
@only_option
@full_option
@storage_option
@address_option
@json_option
def best(
    name: str,
    patterns: Sequence[str],
    full: bool,
    storage: str,
    address: str | None,
    as_json: bool,
) -> None:
    """Show the best feasible pair of every setting, and why the others lost.

    Of many settings each gets a line; --only or --full shows them whole. Over several search seeds
    numbers are means, and verdicts are those of the mean losses.
    """
    if address is not None:
        entries = remote.json_of(address, "best", name)
    else:
        objects, view = open_sweep(storage, name, "pairs")
        entries = views.best(view, run_ids(objects, view.definition) if as_json else {})
    entries = chosen(name, entries, patterns)
    if as_json:
        print_json(entries)
        return
    with remote.readable(name, is_remote=address is not None):
        if len(entries) > FEW_SETTINGS and not full and not patterns:
            print_overview(entries)
        else:
            print_best(entries)


def print_overview(entries: Sequence[Mapping[str, Json]]) -> None:
    """A line for each setting that has a finished proposal, and a count of the others."""
    metric = facts_of(entries[0]["task"]).metric
    judged = [entry for entry in entries if entry["proposals"]["finished"]]
    out = console()
    names = short_names([entry["setting"] for entry in entries])
    rows = [_overview_row(entry, names[entry["setting"]]) for entry in judged]
    if rows:
        out.print(table(rows, right=tuple(rows[0])[2:5], whole=tuple(rows[0])))
    if len(judged) < len(entries):
        out.print(f"{len(entries) - len(judged)} settings have no finished proposal.")
    out.print(
        f"{metric.label}: {metric.unit}, {metric.direction}; constrained minus unconstrained in "
        "the column after it. Miss: worst missing share, feasible up to "
        f"{entries[0]['tolerance']:.2f}. --only SETTING or --full shows pairs whole."
    )
    out.print("\n" + " ".join(findings(entries)))


def _overview_row(entry: Mapping[str, Json], name: str) -> dict[str, str]:
    ours = entry["constrained"] or {}
    counts = {outcome: count for outcome, count in entry["outcomes"].items() if count}
    return {
        "setting": name,
        "pair": ("winner" if entry["winner"] else "closest") + f" {entry['proposal']}"
        if entry["proposal"] is not None
        else _NOTHING,
        "mean": _text(ours.get("ood_mean"), ".3f"),
        "diff.": _text(entry["difference"].get("ood_mean"), "+.3f"),
        "miss": _text(ours.get("worst_missing_share"), "+.2f"),
        "proposals": ", ".join(f"{n} {outcome[:5]}." for outcome, n in counts.items()),
    }


def print_best(entries: Sequence[Mapping[str, Json]]) -> None:
    """The entries of ``views.best`` for people, with what the numbers mean below."""
    for entry in entries:
        _print_best(entry)
    facts = facts_of(entries[0]["task"])
    metric = facts.metric
    biased = (
        f"* of a pair selected on these very {facts.samples}: selection-biased, no result before "
        "fresh seeds confirm it. "
        if any(entry["difference"]["selection_biased"] for entry in entries)
        else ""
    )
    console().print(
        f"{biased}Missing share: held out, worst layer, mean over the seeds or the median "
        "seed where that misses more; "
        f"feasible up to {entries[0]['tolerance']:.2f}. "
        f"{metric.label}: mean over the test gammas (or severities), {metric.unit}, "
        f"{metric.direction}; seen: what "
        "training or selection looked at; unseen: all else, the only rows on OOD robustness."
        + "".join(f" {note}" for note in table_columns.reference_notes(metric))
    )
    console().print("\n" + " ".join(findings(entries)))


def run_ids(objects: ObjectStore, definition: Definition) -> dict[str, str]:
    """MLflow run by signature; empty, with a note, while MLflow cannot be asked."""
    from sweep import tracking_client

    sweep_id = known_id(objects, definition.name)
    if sweep_id is None:
        note(f"without MLflow run ids: {definition.name} was not tracked yet.")
        return {}
    try:
        uri = place_of(objects, definition)
    except SweepError as error:
        note(f"without MLflow run ids: {error}")
        return {}
    found = tracking_client.run_ids(uri, definition.name, sweep_id, storage=objects.root)
    if found.reason:
        note(f"without MLflow run ids: {found.reason}")
    return found.ids


def _print_best(entry: Mapping[str, Json]) -> None:
    out = console()
    seeds = len(entry["search_seeds"])
    place = f"proposal {entry['proposal']}, {seeds} search seed{'s' * (seeds > 1)}"
    model = model_text(entry["model"], entry["model_variant"])
    name = f"[bold]{entry['setting']}[/bold], {escape(model)}"
    if entry["winner"]:
        out.print(f"{name}: winner, {place}")
    else:
        out.print(f"{name}: no winner: {escape(entry['why'])}")
        if entry["proposal"] is not None:
            out.print(f"  closest: {place}")
    if entry["point"]:
        fields = (
            f"{n.removeprefix('constraint.')} {v:.4g}"
            if isinstance(v, float)
            else f"{n.removeprefix('constraint.')} {v}"
            for n, v in entry["point"].items()
        )
        out.print("  " + ", ".join(fields))
    if entry["constrained"] or entry["unconstrained"]:
        for rows in filter(None, (_best_rows(entry), _shift_rows(entry))):
            out.print(table(rows, right=tuple(rows[0])[1:], whole=("",)))
        seconds = [(entry[arm] or {}).get("train_seconds") for arm in score_entries.ARMS]
        ours, theirs = (_text(s, ".0f") for s in seconds)
        out.print(f"  training: {ours} s constrained, {theirs} s unconstrained")
    for line in verdict_lines(entry):
        out.print(f"  {line}", highlight=False)
    if entry["vacuous"]:
        out.print("  vacuous: the unconstrained arm meets the constraint by itself")
    if not entry["matched_capacity"]:
        out.print(
            "  unmatched capacity: the unconstrained arm has one dictionary, the constrained one "
            "per layer, so the difference is not that of constraining alone"
        )
    if entry["winner"] and entry["lost"]:
        out.print(f"  the others: {views.outcome_text(entry['lost'])}")
    elif entry["proposals"]["finished"]:
        out.print(f"  outcomes: {views.outcome_text(entry['outcomes'])}")
    out.print()


def _best_rows(entry: Mapping[str, Json]) -> list[dict[str, str]]:
    """Who is compared, line by line: both arms, their difference, and what needs no training."""
    metric = facts_of(entry["task"]).metric
    rows = []
    for who, values in _compared(entry).items():
        form = "+.3f" if who.startswith(DIFFERENCE) else ".3f"
        row = {"": f"  {who}"}
        row |= {
            header: _text(values.get(key), form)
            for header, key in (
                (f"mean\n{metric.label}", "ood_mean"),
                ("ood_auc", "ood_auc"),
                ("seen", "seen_mean"),
                ("unseen", "unseen_mean"),
            )
        }
        row["held-out\nloss"] = _text(
            values.get("held_out_loss"), "+.2g" if who.startswith(DIFFERENCE) else ".3g"
        )
        is_arm = who in score_entries.ARMS
        row["missing\nshare"] = _text(values.get("worst_missing_share"), ".2f") if is_arm else ""
        claims = (_yes(values.get(claim)) for claim in ("feasible", "useful"))
        row["feasible,\nuseful"] = ", ".join(claims) if is_arm else ""
        rows.append(row)
    return rows


def _shift_rows(entry: Mapping[str, Json]) -> list[dict[str, str]]:
    """The same lines as ``_best_rows``, under shifts beside Gaussian noise; empty without any."""
    shown = entry["constrained"] or entry["unconstrained"]
    shifts = [shift for shift in FAMILIES if shift in shown["shifts"]]
    rows = []
    for who, values in _compared(entry).items():
        form = "+.3f" if who.startswith(DIFFERENCE) else ".3f"
        means = {shift: score_entries.shift_mean(values, shift) for shift in shifts}
        if any(mean is not None for mean in means.values()):
            cells = {f"unseen\n{_short(shift)}": _text(mean, form) for shift, mean in means.items()}
            rows.append({"": f"  {who}", **cells})
    return rows


def _compared(entry: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    shown = facts_of(entry["task"]).metric.shown
    return {
        **{arm: entry[arm] or {} for arm in score_entries.ARMS},
        DIFFERENCE + "*" * entry["difference"]["selection_biased"]: entry["difference"],
        **{reference_label(name): entry["references"].get(name, {}) for name in shown},
    }


def _short(shift: str) -> str:
    """A family's name in the width that a terminal leaves: salt+pepper, frame drop."""
    return shift.replace("_and_", "+").replace("_", " ")


def _text(value: float | None, form: str) -> str:
    return _NOTHING if value is None else format(value, form)


def _yes(value: bool | None) -> str:
    return _NOTHING if value is None else "yes" if value else "no"
