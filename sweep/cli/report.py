"""The verb ``report``: a sweep as one page and as figures."""

from __future__ import annotations

from pathlib import Path

import click

from sweep.cli.options import (
    name_argument,
    only_option,
    open_sweep,
    storage_option,
    tell_that_it_is_here,
)
from sweep.cli.reading import run_ids
from sweep.study import advice
from sweep.study.lock import driver_of
from sweep.study.opening import find_sweep, open_store
from trainables.errors import Misuse
from trainables.records.arms import ArmStore


@click.command("report")
@name_argument
@click.option(
    "--out", metavar="DIR",
    help="Where to write; a report that is there is replaced. Default: NAME-report.",
)  # fmt: skip
@click.option("--page", "page_alone", is_flag=True, help="Write the page, and no figure beside it.")
@only_option
@storage_option
def report_(
    name: str, out: str | None, page_alone: bool, patterns: tuple[str, ...], storage: str
) -> None:
    """Write a page that opens from disk: what was found, tables, figures (PDF and PNG).

    Of a sweep that still runs it says how far it is.
    """
    tell_that_it_is_here("give its storage root with --storage, or run it on the cluster's head.")
    from sweep.report.measured import confirmations
    from sweep.report.report import FORMATS, PAGE, report

    objects = open_store(storage)
    if find_sweep(objects, name).space.phase == "confirmation":
        shown = advice.command("best", name, storage=objects.root)
        raise Misuse(
            f"{name} is a confirmation, which has no report yet. `{shown}` shows its table; the "
            "report is of the sweep that was searched."
        )
    _, view = open_sweep(storage, name)
    folder = Path(out or f"{name}-report").expanduser().resolve()
    report(
        view,
        run_ids(objects, view.definition),
        folder,
        read=ArmStore(objects).record,
        formats=() if page_alone else FORMATS,
        patterns=patterns,
        is_running=driver_of(objects, name) is not None,
        storage=objects.root,
        confirmed=confirmations(objects, name),
    )
    click.echo(str(folder / PAGE))
