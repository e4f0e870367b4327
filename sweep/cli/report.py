"""The verb ``report``: a sweep as one page and as figures."""

from __future__ import annotations

from pathlib import Path

import click

from sweep.cli.asked import Place, collected
from sweep.cli.options import given_storage, name_argument, only_option, open_sweep
from sweep.cli.reading import run_ids
from sweep.cluster import ask
from sweep.study.lock import driver_of
from trainables.errors import Misuse
from trainables.records.arms import ArmStore


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
