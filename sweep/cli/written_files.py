"""The verbs that write a sweep's files: export and report."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import click

from sweep.cli.asked import Place, collected
from sweep.cli.options import given_storage, name_argument, only_option, open_sweep
from sweep.cli.reading import run_ids
from sweep.cluster import ask
from sweep.study.advice import note
from sweep.study.lock import driver_of
from sweep.study.opening import find_sweep, open_store
from trainables.errors import Misuse
from trainables.records.arms import ArmStore


@click.command("export")
@name_argument
@click.option(
    "--out", required=True, metavar="DIR",
    help="Where to write: a new folder, or one with an earlier export, which is replaced.",
)  # fmt: skip
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Write a configuration also of the closest pair where a setting has no winner.",
)
@click.option(
    "--published",
    "beside_paper",
    is_flag=True,
    help="Put the paper's published numbers into the tables that are arranged as its own.",
)
@collected(at=Place)
def export_(name: str, out: str, everything: bool, beside_paper: bool, at: Place) -> None:
    """Write tables (CSV, Markdown, LaTeX), configurations that re-run exactly, and a manifest."""
    from sweep.confirmation.files import files_of
    from sweep.results.export import export, write_files

    folder_out = Path(out).expanduser().resolve()
    if at.address is not None:
        words = ["--all"] * everything + ["--published"] * beside_paper
        there = ask.asked(at.address, given_storage(), "export", name, *words)
        ask.said(there)
        texts = {file: content.decode() for file, content in there.contents().items()}
        for file in write_files(folder_out, name, texts):
            click.echo(str(folder_out / file))
        return
    objects = open_store(at.storage)
    read = ArmStore(objects).record
    is_confirmation = find_sweep(objects, name).space.phase == "confirmation"
    if is_confirmation:
        read = cache(read)  # for the manifest and the table
    _, view = open_sweep(at.storage, name, record=read)
    ids = run_ids(objects, view.definition)
    instead = None
    if is_confirmation:
        instead = files_of(objects, view.definition, read, beside_paper=beside_paper)
    files = export(
        view, ids, folder_out, read=read, everything=everything, beside_paper=beside_paper,
        instead=instead,
    )  # fmt: skip
    for file in files:
        click.echo(str(folder_out / file))
    if is_confirmation:
        return
    closest = [s.setting.name for s in view.settings if not s.chosen.winner and s.chosen.shown]
    nothing = [s.setting.name for s in view.settings if not s.chosen.shown]
    if closest and not everything:
        note(
            f"no configuration for {', '.join(closest)}: no winner. --all writes the closest "
            "pair's."
        )
    if nothing:
        note(f"no configuration for {', '.join(nothing)}: no finished pair.")


@click.command("report")
@name_argument
@click.option(
    "--out", metavar="DIR",
    help="Where to write; a report that is there is replaced. Default: NAME-report.",
)  # fmt: skip
@click.option("--page", "page_alone", is_flag=True, help="Write the page, and no figure beside it.")
@click.option(
    "--figure", "figures", multiple=True, metavar="KEY",
    help="Write this figure alone, as PDF and PNG, like layers or progress; repeatable.",
)  # fmt: skip
@only_option
@collected(at=Place)
def report_(
    name: str,
    out: str | None,
    page_alone: bool,
    figures: tuple[str, ...],
    patterns: tuple[str, ...],
    at: Place,
) -> None:
    """Write a page that opens from disk: what was found, tables, figures (PDF and PNG).

    Of a sweep that still runs it says how far it is. Of a confirmation: its plan and comparisons.
    """
    from sweep.report.report import FORMATS, PAGE, Reported, figure_files, report, write_files

    if page_alone and figures:
        raise Misuse("--page writes the page alone and --figure figures alone: give one of them.")
    folder = Path(out or f"{name}-report").expanduser().resolve()
    if at.address is not None:
        words = [word for pattern in patterns for word in ("--only", pattern)]
        words += [word for key in figures for word in ("--figure", key)]
        words += ["--page"] * page_alone
        there = ask.asked(at.address, given_storage(), "report", name, *words)
        ask.said(there)
        files = write_files(folder, name, there.contents())
    else:
        objects, view = open_sweep(at.storage, name)
        sweep = Reported(
            objects,
            view,
            run_ids(objects, view.definition),
            ArmStore(objects).record,
            patterns,
            is_running=driver_of(objects, name) is not None,
        )
        if figures:
            files = figure_files(sweep, folder, figures)
        else:
            files = report(sweep, folder, formats=() if page_alone else FORMATS)
    for file in files if figures else [PAGE]:
        click.echo(str(folder / file))
