"""The report of a stored sweep as files: the page, and each figure for a paper."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces import catalog
from sweep.report.figures import draw
from sweep.report.measured import measured
from sweep.report.page import page
from sweep.report.style import style
from sweep.results import provenance
from sweep.results.status import status_entry
from sweep.results.sweep_view import SweepView
from sweep.results.tables.frontier import frontier_table
from sweep.results.tables.hyperparameters import hyperparameters_table
from sweep.results.tables.layers import layers_table
from sweep.results.tables.proposals import Read
from sweep.results.tables.results import results_table
from sweep.study import advice
from trainables.errors import Misuse
from trainables.plain import Json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "report.html"
FORMATS = ("pdf", "png")  # of a figure, beside the page
MOST_DRAWN = 40  # settings: a second each, of some fifteen figures


def report(
    view: SweepView,
    run_ids: Mapping[str, str],
    out: Path,
    *,
    read: Read,
    formats: Sequence[str] = FORMATS,
    patterns: Sequence[str] = (),
    is_running: bool = False,
    storage: str = "",
    confirmed: Sequence[Mapping[str, Json]] = (),
) -> list[str]:
    """Write the report below ``out``, over one that is there, and return the names of its files.

    Args:
        view: the sweep.
        run_ids: MLflow run by signature, as far as they are known.
        out: a folder, or where one is to be.
        read: how the record of a signature is read.
        formats: of the figures as files; the page has its own.
        patterns: of settings; all, without any.
        is_running: whether a driver works on it.
        storage: the root, for the commands that the page shows.
        confirmed: what ``measured.confirmations`` says.

    Raises:
        Misuse: ``out`` is a file.
    """
    if out.exists() and not out.is_dir():
        raise Misuse(f"--out must be a folder, got the file {out}. Give a folder.")
    name, space = view.definition.name, view.definition.space
    kept = catalog.matching([s.setting.name for s in view.settings], patterns, name)
    names = [s.setting.name for s in view.settings if s.setting.name in kept]
    data = measured(view, read, run_ids, names, confirmed)
    entries = list(data.entries.values())
    first = dict(list(data.entries.items())[:MOST_DRAWN])
    figures = draw(replace(data, entries=first))
    notes = []
    if patterns:
        notes.append(
            f"Shown are {len(entries)} of {len(view.settings)} settings ({', '.join(patterns)})."
        )
    if len(first) < len(entries):
        notes.append(f"Figures are of the first {len(first)} settings; --only draws others.")
    text = page(
        {
            **status_entry(view, is_running=is_running),
            "name": name,
            "space": space.name,
            "summary": space.summary,
            "notes": notes,
        },
        entries,
        [
            results_table(space, entries),
            layers_table(space, entries),
            hyperparameters_table(space, entries),
            frontier_table(space, entries),
        ],
        {key: rendered(figure, "svg") for key, figure in figures.items()},
        provenance.manifest(view, run_ids),
        _commands(name, storage),
    )
    files = {PAGE: text.encode()}
    for key, figure in figures.items():
        for form in formats:
            files[f"figures/{key}.{form}"] = rendered(figure, form)
    for stale in (out / "figures").glob("*.p[dn][fg]"):
        stale.unlink()  # of a report that was there
    for file, content in files.items():
        path = out / file
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")  # a reader never sees half of one
        part.write_bytes(content)
        part.replace(path)
    return sorted(files)


def rendered(figure: Figure, form: str) -> bytes:
    """A figure as a file's content; the same figure gives the same bytes."""
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
    stream = io.BytesIO()
    with style():
        figure.savefig(stream, format=form, dpi=200, metadata=undated)
    return stream.getvalue()


def _commands(name: str, storage: str) -> dict[str, str]:
    def say(*words: str) -> str:
        return advice.command(*words, storage=storage)

    return {
        "Test the winners on fresh seeds and the test split: what counts as a result.": say(
            "confirm", name
        ),
        "Every table as CSV, Markdown and LaTeX; a configuration of every winner.": say(
            "export", name, "--out", "results"
        ),
        "Train one setting's pairs again, from the exported configuration.": say(
            "run", "results/configs/SETTING.json"
        ),
        "Each arm's curves.": say("ui", name),
    }
