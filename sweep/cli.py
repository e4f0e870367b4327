"""The command line: ``sweep VERB``. Verbs live in cli_*.py.

Exit 0: done. 1: something outside the request failed. 2: the request cannot be met as it was made.
"""

from __future__ import annotations

import logging
import sys
from typing import IO, Any

import click

from sweep import cli_cluster, cli_doctor, cli_reading, cli_running, cli_spaces, cli_upkeep
from trainables.errors import Misuse, SweepError


class _Reported(click.ClickException):
    """An error of ours as click ends on it: message, no traceback, the exit code of its kind."""

    def __init__(self, error: SweepError) -> None:
        super().__init__(str(error))
        self.misuse = isinstance(error, Misuse)

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """2 for misuse, else 1."""
        return 2 if self.misuse else 1

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message as one block on standard error."""
        click.echo(f"sweep: {self.message}", file=file or sys.stderr)


class _Verbs(click.Group):
    """Verbs in the order of a study, with our errors reported without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As they were added."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except SweepError as error:
            raise _Reported(error) from error


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="descent-sweep", prog_name="sweep")
def main() -> None:
    """Search, train and compare transformers under layerwise descent constraints."""
    logging.basicConfig(level=logging.WARNING, format="sweep: %(message)s")


for verb in (
    cli_spaces.spaces,
    cli_running.run,
    cli_cluster.submit,
    cli_reading.status,
    cli_cluster.logs,
    cli_running.stop,
    cli_running.resume,
    cli_reading.list_,
    cli_reading.best,
    cli_upkeep.export_,
    cli_upkeep.ui,
    cli_upkeep.sync,
    cli_upkeep.rm,
    cli_doctor.doctor,
):
    main.add_command(verb)

if __name__ == "__main__":
    main()
