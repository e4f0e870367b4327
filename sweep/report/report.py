"""The report of a stored sweep as files: the page, and each figure for a paper."""

from __future__ import annotations

import errno
import io
import multiprocessing
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces import catalog
from sweep.confirmation.plan import load_replications, replications_name
from sweep.confirmation.summary import ConfirmationSummary
from sweep.report import hover
from sweep.report.figures import FIGURES, draw, drawing_of
from sweep.report.measured import Measured, confirmations, measured
from sweep.report.pages.markup import Commands, Picture, manifest_of
from sweep.report.pages.search import page
from sweep.report.pages.svg import inlined
from sweep.report.style import cells, style
from sweep.results import provenance
from sweep.results.export import sweep_tables
from sweep.results.export_folder import outside, refuse_less
from sweep.results.findings import next_step
from sweep.results.status import SweepStatus, status_of
from sweep.results.summary import SettingSummary
from sweep.results.sweep_view import SweepView
from sweep.study import advice
from sweep.study.pairs import ReadRecord
from trainables.errors import Failure, Misuse, StoreError, UnknownName
from trainables.machine.atomic_files import atomic_file, remove_temporary_files
from trainables.machine.cores import usable_cores
from trainables.machine.parent_process import end_with_parent
from trainables.records.objects import ObjectStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "report.html"
FORMATS = ("pdf", "png")  # of a figure, beside the page
DPI = 200  # of a PNG
OF_CONFIRMATION = ("forest", "search-gain")  # figures that a confirmation has
MOST_DRAWN = 16  # settings that a report draws: each has some fifteen panels
FEW = 4  # settings that one process draws sooner than others have started

Pages = Mapping[str, "Drawn"]  # of one figure, by the names of their files


@dataclass(frozen=True)
class Reported:
    """A stored sweep that a report is of."""

    objects: ObjectStore
    view: SweepView
    run_ids: Mapping[str, str]  # MLflow run by signature, as far as they are known
    read: ReadRecord  # the record of a signature
    patterns: Sequence[str] = ()  # of settings; all, without any
    is_running: bool = False  # whether a driver works on it

    @property
    def name(self) -> str:
        """The sweep's."""
        return self.view.definition.name

    @property
    def is_confirmation(self) -> bool:
        """True for a confirmation, False for a search."""
        return self.view.definition.space.phase == "confirmation"

    @cached_property
    def confirmed(self) -> list[ConfirmationSummary]:
        """Entries of the search's confirmations; of a confirmation its own."""
        if not self.is_confirmation:
            return confirmations(self.objects, self.name)
        from sweep.confirmation.stages import summarize_stored  # scipy: two seconds

        return [summarize_stored(self.objects, self.view.definition)]

    @cached_property
    def data(self) -> Measured:
        """Data of its figures, of the requested settings."""
        names = [setting.setting.name for setting in self.view.settings]
        kept = catalog.matching(names, self.patterns, self.name)
        shown = [name for name in names if name in kept]
        return measured(self.view, self.read, self.run_ids, shown, self.confirmed)

    def say(self, *words: str) -> str:
        """A command about it, to be pasted."""
        return advice.command(*words, storage=self.objects.root)


def report(
    source: Reported, out: Path, *, formats: Sequence[str] = FORMATS, replace: bool = False
) -> list[str]:
    """Write the report below ``out``, over one that is there, and return the names of its files.

    Args:
        source: the sweep; a search or a confirmation.
        out: a folder, or where one is to be.
        formats: of the figures as files; the page has its own.
        replace: one that is there goes also where it is of more arms.

    Raises:
        Misuse: ``out`` is a file, or has the report of another sweep or of more arms.
    """
    _refuse_file(out)
    status = status_of(source.view, is_running=source.is_running)
    make = _of_confirmation if source.is_confirmation else _of_search
    text, figures = make(source, status, formats)
    return _write(out, {PAGE: text.encode(), **_as_files(figures)}, replace=replace)


def figure_files(source: Reported, out: Path, keys: Sequence[str]) -> list[str]:
    """Write these figures alone, as ``report`` does, and return the names of their files.

    Raises:
        UnknownName: a figure is called otherwise.
        Failure: the sweep has nothing yet that one of them could show.
    """
    known = OF_CONFIRMATION if source.is_confirmation else FIGURES
    for key in keys:
        if key not in known:
            raise UnknownName.among("figure", key, known)
    _refuse_file(out)
    figures = drawn(source.data, keys)
    if empty := [key for key in keys if key not in figures]:
        raise Failure(
            f"{source.name} has nothing measured that the figure {' or '.join(empty)} could show. "
            + " ".join(f"{key}: {FIGURES[key].caption}" for key in empty)
        )
    return _write(out, _as_files(figures))


def write_files(
    out: Path, sweep: str, files: Mapping[str, bytes], *, replace: bool = False
) -> list[str]:
    """Write a report, or figures, that were made elsewhere as it is done here."""
    if outside(files) or not files:
        names = ", ".join(outside(files)) or "no file"
        raise StoreError(f"this is no report of {sweep}: {names}.")
    _refuse_file(out)
    return _write(out, files, replace=replace)


# --- figures --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """A figure of the report: as the page has it, and as files by their format."""

    picture: Picture
    files: Mapping[str, bytes]


def drawn(
    data: Measured, keys: Sequence[str] = tuple(FIGURES), formats: Sequence[str] = FORMATS
) -> dict[str, Pages]:
    """The figures that there is anything for, drawn on all CPUs where there is much to draw."""
    one = partial(_drawn, data, formats)
    workers = min(usable_cores(), len(keys))
    if len(data.entries) <= FEW or workers == 1:
        drawn_pages = list(map(one, keys))
    else:
        # A fork would copy the locks of threads that read records.
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, spawn, end_with_parent, (os.getpid(),)) as pool:
            drawn_pages = list(pool.map(one, keys))
    return {key: pages for key, pages in zip(keys, drawn_pages, strict=True) if pages}


def _drawn(data: Measured, formats: Sequence[str], key: str) -> Pages:
    return {
        name: Drawn(
            Picture(
                drawing_of(name).title,
                drawing_of(name).caption,
                inlined(rendered(figure, "svg").decode(), name, cells(figure)),
                hover.panels(figure),
            ),
            {form: rendered(figure, form) for form in formats},
        )
        for name, figure in draw(data, [key]).items()
    }


def rendered(figure: Figure, form: str) -> bytes:
    """A figure as a file's content; the same figure gives the same bytes.

    It is drawn once: ``savefig`` would draw it a first time for a layout that it has.
    """
    from matplotlib.backends import backend_agg, backend_pdf, backend_svg

    canvases: Mapping[str, Any] = {
        "svg": backend_svg.FigureCanvasSVG,
        "pdf": backend_pdf.FigureCanvasPdf,
        "png": backend_agg.FigureCanvasAgg,
    }
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
    stream, dpi, canvas = io.BytesIO(), figure.dpi, figure.canvas
    with style():
        figure.set_dpi(DPI)
        draw_into = getattr(canvases[form](figure), f"print_{form}")
        draw_into(stream, metadata={"Title": figure.get_label(), **undated})
    figure.set_dpi(dpi)
    figure.set_canvas(canvas)
    return stream.getvalue()


def _pictures(figures: Mapping[str, Pages]) -> dict[str, dict[str, Picture]]:
    return {
        key: {name: figure.picture for name, figure in pages.items()}
        for key, pages in figures.items()
    }


# --- files ----------------------------------------------------------------------------------------


def _refuse_file(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise Misuse(f"--out must be a folder, got the file {out}. Give a folder.")


def _as_files(figures: Mapping[str, Pages]) -> dict[str, bytes]:
    return {
        f"figures/{name}.{form}": content
        for pages in figures.values()
        for name, figure in pages.items()
        for form, content in figure.files.items()
    }


def _write(out: Path, files: Mapping[str, bytes], *, replace: bool = False) -> list[str]:
    """Write all files; they replace all pages of these figures, a page the whole report."""
    if PAGE in files and (out / PAGE).is_file() and not replace:
        _refuse_less(out, files[PAGE].decode())
    keys = FIGURES if PAGE in files else {key for key in FIGURES if _pages_of([key], files)}
    try:
        there = [f"figures/{path.name}" for path in (out / "figures").glob("*")]
        for stale in _pages_of(keys, there):
            (out / stale).unlink()
        for file, content in files.items():
            remove_temporary_files(out / file)  # of a report that was killed
            with atomic_file(out / file) as part:
                part.write_bytes(content)
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise (StoreError if is_full else Misuse)(
            f"the report could not be written below {out}: {error}. Give another folder with --out."
        ) from error
    return sorted(files)


def _refuse_less(out: Path, page: str) -> None:
    """Raise Misuse where the page in the folder is of another sweep, or of more arms."""
    there = manifest_of((out / PAGE).read_text(encoding="utf-8", errors="replace"))
    this = manifest_of(page)
    if there is None:
        return
    if this is None or there.sweep != this.sweep:
        raise Misuse(
            f"the folder {out} holds the report of sweep {there.sweep!r}, not of "
            f"{this and this.sweep!r}; nothing was changed. Give another folder with --out."
        )
    refuse_less("report", out, there, this)


def _pages_of(keys: Iterable[str], files: Iterable[str]) -> list[str]:
    """The files that are a page of such a figure; others in the folder are the user's.

    >>> _pages_of(["scores"], ["figures/scores-2.pdf", "figures/scores-mine.pdf"])
    ['figures/scores-2.pdf']
    """
    names = "|".join(map(re.escape, keys)) or "(?!)"
    page = re.compile(rf"figures/(?:{names})(?:-\d+)?\.(?:{'|'.join(FORMATS)})")
    return [file for file in files if page.fullmatch(file)]


# --- pages ----------------------------------------------------------------------------------------


def _of_search(
    source: Reported, status: SweepStatus, formats: Sequence[str]
) -> tuple[str, dict[str, Pages]]:
    space, data = source.view.definition.space, source.data
    entries = list(data.entries.values())
    first = dict(list(data.entries.items())[:MOST_DRAWN])
    figures = drawn(replace(data, entries=first), formats=formats)
    notes = []
    if source.patterns:
        shown, every = len(entries), len(source.view.settings)
        notes.append(f"Shown are {shown} of {every} settings ({', '.join(source.patterns)}).")
    if len(first) < len(entries):
        notes.append(
            f"Figures are of the first {len(first)} settings; --only draws others, --figure one "
            "figure of all."
        )
    text = page(
        status,
        space,
        notes,
        entries,
        sweep_tables(space, entries),
        _pictures(figures),
        provenance.manifest(source.view, source.run_ids),
        _commands(source, status, entries),
        [_only(confirmed, data.entries) for confirmed in source.confirmed],
    )
    return text, figures


def _of_confirmation(
    source: Reported, status: SweepStatus, formats: Sequence[str]
) -> tuple[str, dict[str, Pages]]:
    from sweep.confirmation.stages import plan_of  # scipy: two seconds
    from sweep.report.pages.confirmation import confirmed_page

    plan = plan_of(source.objects, source.view.definition)
    (entry,) = source.confirmed
    entry = _only(entry, source.data.entries)
    figures = drawn(source.data, OF_CONFIRMATION, formats)
    commands = Commands(
        following={"The search that it confirms.": source.say("report", plan.search)}
        if status.state in ("finished", "failed")
        else {"Train what is missing.": source.say("confirm", plan.search, "--name", source.name)},
        again={
            "The table as CSV, Markdown and LaTeX; the plan.": source.say(
                "export", source.name, "--out", "results"
            ),
            "Each arm's curves.": source.say("ui", source.name),
            **{
                f"Both arms of {one.setting} again, old and new numbers side by side.": source.say(
                    "reproduce", source.name, one.setting
                )
                for one in entry.settings
            },
        },
    )
    manifest = provenance.manifest(source.view, source.run_ids)
    return confirmed_page(status, entry, plan, _pictures(figures), manifest, commands), figures


def _only(confirmed: ConfirmationSummary, settings: Iterable[str]) -> ConfirmationSummary:
    """The results of a confirmation in these settings."""
    kept = [one for one in confirmed.settings if one.setting in settings]
    return replace(confirmed, settings=kept)


def _commands(source: Reported, status: SweepStatus, entries: Sequence[SettingSummary]) -> Commands:
    """Commands: the next one, one that shows all again, one that trains a pair again."""
    following: dict[str, str] = {}
    if status.state == "stopped":
        following["Train what is missing."] = source.say("resume", source.name)
    elif status.state == "running":
        following["See how far it is."] = source.say("status", source.name, "--watch")
    elif any(entry.winner for entry in entries) and not source.confirmed:
        what = "Test the winners on fresh seeds and the test split: what counts as a result."
        following[what] = source.say("confirm", source.name)
    elif step := next_step(entries):
        verb, *options = step.words or ("",)
        following[step.text] = source.say(verb, source.name, *options) if verb else ""
    for one in source.confirmed:
        following[f"The report of {one.name}."] = source.say("report", one.name)
    replications = load_replications(source.objects, replications_name(source.name))
    if replications is not None:
        following["Results of its replications."] = source.say(
            "confirm", source.name, "--replications", str(replications.count)
        )
    export = source.say("export", source.name, "--out", "results")
    pairs = {
        entry.setting: {
            "Train both arms again, and see old and new numbers side by side.": source.say(
                "reproduce", source.name, entry.setting
            )
        }
        for entry in entries
        if entry.proposal is not None
    }
    again = {
        "Every table as CSV, Markdown and LaTeX; a configuration of every winner.": export,
        "One figure alone, for a paper.": source.say("report", source.name, "--figure", "scores"),
        "Each arm's curves.": source.say("ui", source.name),
    }
    return Commands(following or {"Every number.": export}, again, pairs)
