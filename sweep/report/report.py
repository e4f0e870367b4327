"""The report of a stored sweep as files: the page, and each figure for a paper."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sweep.confirmation.summary import ConfirmationSummary
from sweep.report.drawing import FORMATS, drawn
from sweep.report.figures import FIGURES
from sweep.report.pages.markup import Pages, subject_of
from sweep.report.pages.search import page
from sweep.report.source import Reported, confirmation_commands, search_commands
from sweep.results import provenance
from sweep.results.export import sweep_tables
from sweep.results.export_folder import outside, refuse_less
from sweep.results.status import SweepStatus, status_of
from trainables.errors import Failure, Misuse, StoreError, UnknownName
from trainables.machine.atomic_files import atomic_file, remove_temporary_files

PAGE = "report.html"
OF_CONFIRMATION = ("forest", "search-gain")  # figures that a confirmation has
MOST_DRAWN = 16  # settings that a report draws: each has some fifteen panels


def report(
    source: Reported, out: Path, *, formats: Sequence[str] = FORMATS, replace: bool = False
) -> list[str]:
    """Write the report below ``out``, over one that is there, and return the names of its files.

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
    there = subject_of((out / PAGE).read_text(encoding="utf-8", errors="replace"))
    this = subject_of(page)
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
        figures,
        provenance.manifest(source.view, source.run_ids),
        search_commands(source, status, entries),
        [_only(confirmed, data.entries) for confirmed in source.confirmations],
    )
    return text, figures


def _of_confirmation(
    source: Reported, status: SweepStatus, formats: Sequence[str]
) -> tuple[str, dict[str, Pages]]:
    from sweep.confirmation.stages import plan_of  # scipy: two seconds
    from sweep.report.pages.confirmation import confirmed_page

    plan = plan_of(source.objects, source.view.definition)
    (entry,) = source.confirmations
    entry = _only(entry, source.data.entries)
    figures = drawn(source.data, OF_CONFIRMATION, formats)
    manifest = provenance.manifest(source.view, source.run_ids)
    settings = [one.setting for one in entry.settings]
    commands = confirmation_commands(source, status, plan.search, settings)
    return confirmed_page(status, entry, plan, figures, manifest, commands), figures


def _only(confirmed: ConfirmationSummary, settings: Iterable[str]) -> ConfirmationSummary:
    """The results of a confirmation in these settings."""
    kept = [one for one in confirmed.settings if one.setting in settings]
    return replace(confirmed, settings=kept)
