"""The command line: ``sweep VERB``. Its verbs live beside this file.

Exit 0: done. 1: something outside the request failed. 2: the request cannot be met as it was made.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from sweep.study.advice import ADDRESS, ASKED_FROM, BY_ADDRESS, command
from trainables.errors import SweepError

# The module of each verb, and its line in `sweep --help`, which loads none of them.
VERBS = {
    "spaces": ("spaces", "List search spaces, or show one: settings, ranges, arms, cost."),
    "init": ("starts.init", "Write a search space, or a plug-in package, to begin from."),
    "run": ("running", "Run a sweep of SPACE here, in the foreground."),
    "submit": (
        "cluster",
        "Run a sweep of SPACE on a cluster, and return at once with its name.",
    ),
    "status": ("reading", "Show a sweep's progress: arms, outcomes, and what is training."),
    "logs": ("cluster", "Print the log of a sweep's newest job on a cluster."),
    "stop": (
        "running",
        "Stop a running sweep: its arms end at their next report, and `sweep resume` continues it.",
    ),
    "resume": (
        "running",
        "Continue a sweep; options add candidates and seeds, or retry failed arms.",
    ),
    "list": ("reading", "List the sweeps below the storage root, newest first."),
    "best": (
        "reading",
        "Show the winner of every setting, and why its other candidates lost.",
    ),
    "reproduce": (
        "running",
        "Train one cell of a table again, and print old and new numbers side by side.",
    ),
    "confirm": (
        "confirm",
        "Train the winners of a finished sweep on fresh seeds, and test them on the test split.",
    ),
    "export": (
        "written_files",
        "Write tables (CSV, Markdown, LaTeX), configurations that re-run exactly, and a manifest.",
    ),
    "answers": (
        "written_files",
        "Let both arms of the winners answer prompts; a judge can compare the answers.",
    ),
    "report": (
        "written_files",
        "Write an HTML report with findings, tables and figures (PDF and PNG).",
    ),
    "ui": (
        "upkeep",
        "Serve MLflow locally and print the URL of a sweep's page.",
    ),
    "sync": (
        "upkeep",
        "Write to MLflow the stored records that it lacks.",
    ),
    "register": (
        "upkeep",
        "Register the winners' networks in MLflow, as models that load without this store.",
    ),
    "rm": ("upkeep", "Show, then delete, a sweep and the arms that no other sweep uses."),
    "doctor": (
        "doctor",
        "Check what a sweep needs: versions, devices, storage, disk, MLflow, Ray, a cluster's "
        "nodes.",
    ),
    "completion": (
        "main",
        "Print a shell script that completes verbs, options, sweeps and settings.",
    ),
}


class _Verbs(click.Group):
    """Group of verbs in the order of their use, whose errors are shown without a traceback."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """``sweep help VERB`` is ``sweep VERB --help``."""
        return super().parse_args(ctx, [*args[1:2], "--help"] if args[:1] == ["help"] else args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order above."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of this name; only its own module is loaded."""
        if cmd_name not in VERBS:
            return None
        holder, _ = VERBS[cmd_name]
        commands = vars(import_module(f"sweep.cli.{holder}")).values()
        return next(c for c in commands if isinstance(c, click.Command) and c.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List every verb with one complete sentence."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in VERBS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        words = list(ctx.args)  # which click takes away
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if error.message.startswith("Got unexpected extra argument"):
                once = f". Call `sweep {ctx.invoked_subcommand}` once for each."
                raise click.UsageError(error.message + once, error.ctx) from error
            raise
        except SweepError as error:
            click.echo(f"sweep: {error}{_sent_away(ctx.invoked_subcommand or '', words)}", err=True)
            raise SystemExit(error.exit_code) from error


def _sent_away(verb: str, words: Sequence[str]) -> str:
    """A hint for a verb that SWEEP_ADDRESS, and no option, sent to a cluster."""
    cluster = os.environ.get(ADDRESS)
    is_given = any(word.partition("=")[0] == "--address" for word in words)
    if not cluster or is_given or verb not in BY_ADDRESS:
        return ""
    from sweep.tracking.address import shown

    sent = f" {ADDRESS}={shown(cluster)} sent `sweep {verb}` to that cluster"
    if verb in ("submit", "logs"):
        return f"{sent}."
    os.environ.pop(ASKED_FROM, None)  # of a slurm.yaml: the next command is not to be sent there
    masked = [shown(word) if "://" in word else word for word in words]  # it may hold a key
    return f"{sent}; `{command(verb, *masked)}` is about this machine."


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="descent-sweep", prog_name="sweep")
def main() -> None:
    """Search, train and compare transformers under layerwise descent constraints.

    Begin with `sweep run quickstart`. `sweep COMMAND --help` says more about a command.
    """
    logging.basicConfig(level=logging.WARNING, format="sweep: %(message)s")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell script that completes verbs, options, sweeps and settings."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, shell
    click.echo(kind(main, {}, "sweep", "_SWEEP_COMPLETE").source())


for verb, (_, summary) in VERBS.items():  # names alone, by which click corrects misspelt verbs
    main.add_command(click.Command(verb, help=summary))
