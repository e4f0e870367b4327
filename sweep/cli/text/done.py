"""Results of a sweep, printed when it is done or has reached its budget."""

from __future__ import annotations

import click

from sweep.cli.options import console
from sweep.cli.text.best import print_answer, print_best
from sweep.results.best import best_summaries
from sweep.results.findings import answer
from sweep.results.sweep_view import SweepView
from sweep.study import advice
from trainables.records.objects import ObjectStore

SHOWN_SETTINGS = 8  # more are left to `sweep best`


def print_done(objects: ObjectStore, view: SweepView, line: str) -> None:
    """Print the results of a sweep that is done or has reached its budget."""
    console().print(f"\n{line}\n")
    if view.definition.space.phase == "confirmation":
        from sweep.cli.text.confirmed import print_confirmed, print_outcome
        from sweep.confirmation.stages import summarize_stored

        shown = summarize_stored(objects, view.definition)
        print_confirmed(shown)
        click.echo()
        print_outcome(shown)
        return
    entries = best_summaries(view, {})
    if len(entries) <= SHOWN_SETTINGS:
        print_best(entries)
        click.echo()
        print_answer(entries)
    else:
        show = advice.command("best", view.definition.name, storage=objects.root)
        click.echo(f"{answer(entries)} `{show}` shows them.")
