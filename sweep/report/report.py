"""The report of a stored sweep as files: the page, and each figure for a paper."""

from __future__ import annotations

import io
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from search_spaces import catalog
from sweep.report import hover
from sweep.report.figures import FIGURES, draw
from sweep.report.measured import Measured, measured
from sweep.report.pages.markup import Picture
from sweep.report.pages.search import page
from sweep.report.pages.svg import inlined
from sweep.report.style import style
from sweep.results import provenance
from sweep.results.status import status_entry
from sweep.results.sweep_view import ReadRecord, SweepView
from sweep.results.tables.frontier import frontier_table
from sweep.results.tables.hyperparameters import hyperparameters_table
from sweep.results.tables.layers import layers_table
from sweep.results.tables.results import results_table
from sweep.study import advice
from trainables.errors import Failure, Misuse, StoreError, UnknownName
from trainables.plain import Json
from trainables.records.objects import ObjectStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "report.html"
FORMATS = ("pdf", "png")  # of a figure, beside the page
MOST_DRAWN = 32  # settings that a report draws: each has a dozen panels
FEW = 8  # settings that one process draws sooner than others have started


def report(
    objects: ObjectStore,
    view: SweepView,
    run_ids: Mapping[str, str],
    out: Path,
    *,
    read: ReadRecord,
    formats: Sequence[str] = FORMATS,
    patterns: Sequence[str] = (),
    is_running: bool = False,
) -> list[str]:
    """Write the report below ``out``, over one that is there, and return the names of its files.

    Args:
        objects: the storage root.
        view: the sweep; a search or a confirmation.
        run_ids: MLflow run by signature, as far as they are known.
        out: a folder, or where one is to be.
        read: how the record of a signature is read.
        formats: of the figures as files; the page has its own.
        patterns: of settings; all, without any.
        is_running: whether a driver works on it.

    Raises:
        Misuse: ``out`` is a file.
    """
    _refuse_file(out)
    status = {
        **status_entry(view, is_running=is_running),
        "name": view.definition.name,
        "space": view.definition.space.name,
        "summary": view.definition.space.summary,
    }
    if view.definition.space.phase == "confirmation":
        files = _of_confirmation(objects, view, run_ids, read, status, patterns)
    else:
        files = _of_search(objects, view, run_ids, read, status, patterns, formats)
    return _write(out, files)


def figure_files(
    view: SweepView,
    run_ids: Mapping[str, str],
    out: Path,
    keys: Sequence[str],
    *,
    read: ReadRecord,
    patterns: Sequence[str] = (),
) -> list[str]:
    """Write these figures alone, as ``report`` does, and return the names of their files.

    Raises:
        UnknownName: a figure is called otherwise.
        Failure: the sweep has nothing yet that one of them could show.
    """
    for key in keys:
        if key not in FIGURES:
            raise UnknownName.of("figure", key, FIGURES)
    _refuse_file(out)
    found = drawn(measured(view, read, run_ids, _kept(view, patterns)), keys, FORMATS)
    if empty := [key for key in keys if key not in found]:
        raise Failure(
            f"{view.definition.name} has nothing measured that the figure "
            f"{' or '.join(empty)} could show."
        )
    return _write(out, _as_files(found))


def write_files(out: Path, sweep: str, files: Mapping[str, bytes]) -> list[str]:
    """Write a report, or figures, that were made elsewhere as it is done here."""
    outside = [n for n in files if n.startswith("/") or ".." in PurePosixPath(n).parts]
    if outside or not files:
        raise StoreError(f"this is no report of {sweep}: {', '.join(outside) or 'no file'}.")
    _refuse_file(out)
    return _write(out, files)


@dataclass(frozen=True)
class Drawn:
    """A figure of the report: as the page has it, and as files by their format."""

    picture: Picture
    files: Mapping[str, bytes]


def drawn(
    data: Measured, keys: Sequence[str] = tuple(FIGURES), formats: Sequence[str] = FORMATS
) -> dict[str, Drawn]:
    """The figures that there is anything for, drawn on all CPUs where there is much to draw."""
    one = partial(_drawn, data, formats)
    workers = min(len(os.sched_getaffinity(0)), len(keys))
    if len(data.entries) <= FEW or workers == 1:
        found = list(map(one, keys))
    else:
        # A fork would copy the locks of threads that read records.
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            found = list(pool.map(one, keys))
    return {key: figure for of in found for key, figure in of.items()}


def _drawn(data: Measured, formats: Sequence[str], key: str) -> dict[str, Drawn]:
    return {
        name: Drawn(
            Picture(
                FIGURES[key].title,
                FIGURES[key].caption,
                inlined(rendered(figure, "svg").decode(), name),
                hover.panels(figure),
            ),
            {form: rendered(figure, form) for form in formats},
        )
        for name, figure in draw(data, [key]).items()
    }


def rendered(figure: Figure, form: str) -> bytes:
    """A figure as a file's content; the same figure gives the same bytes."""
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
    stream = io.BytesIO()
    with style():
        figure.savefig(stream, format=form, dpi=200, metadata=undated)
    return stream.getvalue()


def _refuse_file(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise Misuse(f"--out must be a folder, got the file {out}. Give a folder.")


def _kept(view: SweepView, patterns: Sequence[str]) -> list[str]:
    """Settings of a pattern, in their order; all, without any."""
    names = [setting.setting.name for setting in view.settings]
    kept = catalog.matching(names, patterns, view.definition.name)
    return [name for name in names if name in kept]


def _of_search(
    objects: ObjectStore,
    view: SweepView,
    run_ids: Mapping[str, str],
    read: ReadRecord,
    status: Mapping[str, Json],
    patterns: Sequence[str],
    formats: Sequence[str],
) -> dict[str, bytes]:
    from sweep.report.pages.confirmation import confirmations_of  # scipy: two seconds

    name, space = view.definition.name, view.definition.space
    data = measured(view, read, run_ids, _kept(view, patterns))
    entries = list(data.entries.values())
    first = dict(list(data.entries.items())[:MOST_DRAWN])
    figures = drawn(replace(data, entries=first), formats=formats)
    notes = []
    if patterns:
        notes.append(
            f"Shown are {len(entries)} of {len(view.settings)} settings ({', '.join(patterns)})."
        )
    if len(first) < len(entries):
        notes.append(
            f"Figures are of the first {len(first)} settings; --only draws others, --figure one "
            "figure of all."
        )
    confirmations = confirmations_of(objects, name, cache(read))
    text = page(
        {**status, "notes": notes},
        entries,
        [  # more tables: a line each
            results_table(space, entries),
            layers_table(space, entries),
            hyperparameters_table(space, entries),
            frontier_table(space, entries),
        ],
        {key: figure.picture for key, figure in figures.items()},
        provenance.manifest(view, run_ids),
        _commands(view, status, entries, list(confirmations), objects.root),
        confirmations,
    )
    return {PAGE: text.encode(), **_as_files(figures)}


def _of_confirmation(
    objects: ObjectStore,
    view: SweepView,
    run_ids: Mapping[str, str],
    read: ReadRecord,
    status: Mapping[str, Json],
    patterns: Sequence[str],
) -> dict[str, bytes]:
    from sweep.confirmation.comparisons import confirmed  # scipy: two seconds
    from sweep.confirmation.stages import plan_of
    from sweep.report.pages.confirmation import confirmed_page

    name, kept = view.definition.name, _kept(view, patterns)
    plan = plan_of(objects, view.definition)
    entry = confirmed(objects, view.definition, plan, record=read)
    entry = {**entry, "settings": [s for s in entry["settings"] if s["setting"] in kept]}

    def say(*words: str) -> str:
        return advice.command(*words, storage=objects.root)

    is_whole = status["state"] in ("finished", "failed")
    commands = {
        "next": {"The search that it confirms.": say("report", plan.search)}
        if is_whole
        else {"Train what is missing.": say("confirm", plan.search, "--name", name)},
        "again": {
            "The table as CSV, Markdown and LaTeX; the plan.": say("export", name, "--out", name),
            "Each arm's curves.": say("ui", name),
        },
    }
    manifest = provenance.manifest(view, run_ids)
    text = confirmed_page(status, entry, plan, {}, manifest, commands)
    return {PAGE: text.encode()}


def _as_files(figures: Mapping[str, Drawn]) -> dict[str, bytes]:
    return {
        f"figures/{key}.{form}": content
        for key, figure in figures.items()
        for form, content in figure.files.items()
    }


def _write(out: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write all files; a page replaces the whole report that was there."""
    if PAGE in files:
        for stale in (out / f"figures/{key}.{form}" for key in FIGURES for form in FORMATS):
            stale.unlink(missing_ok=True)
    for file, content in files.items():
        path = out / file
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")  # a reader never sees half of one
        part.write_bytes(content)
        part.replace(path)
    return sorted(files)


def _commands(
    view: SweepView,
    status: Mapping[str, Json],
    entries: Sequence[Mapping[str, Json]],
    confirmations: Sequence[str],
    storage: str,
) -> dict[str, dict[str, str]]:
    """What to type next, to see it all again, and to train each setting's pair again."""
    name = view.definition.name

    def say(*words: str) -> str:
        return advice.command(*words, storage=storage)

    following: dict[str, str] = {}
    if status["state"] == "stopped":
        following["Train what is missing."] = say("resume", name)
    elif status["state"] == "running":
        following["See how far it is."] = say("status", name, "--watch")
    elif any(entry["winner"] for entry in entries) and not confirmations:
        what = "Test the winners on fresh seeds and the test split: what counts as a result."
        following[what] = say("confirm", name)
    for one in confirmations:
        following[f"The report of {one}."] = say("report", one)
    export = say("export", name, "--out", "results")
    every = say("export", name, "--out", "results", "--all")
    pairs = {
        entry["setting"]: {
            "Write its configuration, then train both arms again and compare what they come to.": (
                f"{export if entry['winner'] else every}\n"
                + say("run", f"results/configs/{entry['setting']}.json", "--reproduce")
            )
        }
        for entry in entries
        if entry["proposal"] is not None
    }
    again = {
        "Every table as CSV, Markdown and LaTeX; a configuration of every winner.": export,
        "One figure alone, for a paper.": say("report", name, "--figure", next(iter(FIGURES))),
        "Each arm's curves.": say("ui", name),
    }
    return {**pairs, "next": following or {"Every number.": export}, "again": again}
