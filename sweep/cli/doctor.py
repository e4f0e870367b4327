"""The verb `sweep doctor`: checks of this machine or of a cluster before a sweep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain

import click
from rich.markup import escape

from search_spaces.space import SearchSpace
from sweep.cli.options import complete_spaces, console, given_storage, json_option, print_json
from sweep.cli.sweep_options import Place, SpaceOptions, collected
from sweep.doctor.check import Check
from sweep.doctor.scope import Requirement, Scope, list_requirements
from sweep.study.opening import open_store
from trainables.errors import Misuse


@click.command()
@click.argument("space", metavar="[SPACE]", required=False, shell_complete=complete_spaces)
@click.option(
    "--data",
    metavar="DIR|ADDRESS",
    help="Folder or address of SPACE's data; without SPACE, list the data sets found there.",
)
@collected(options=SpaceOptions)
@click.option("--mlflow", metavar="URI", help="MLflow server. Default: where sweeps are tracked.")
@click.option("--notify", metavar="URL|COMMAND", help="Also send a test notification.")
@collected(place=Place)
@click.option(
    "--where",
    type=click.Choice(["local", "cluster"]),
    default="local",
    show_default=True,
    help="Check this machine (local), or every node of its cluster (cluster).",
)
@click.option("--scope", "scope_json", hidden=True, help="All to check, as a laptop's JSON.")
@json_option
def doctor(
    space: str | None,
    data: str | None,
    options: SpaceOptions,
    mlflow: str | None,
    notify: str | None,
    place: Place,
    where: str,
    scope_json: str | None,
    as_json: bool,
) -> None:
    """Check what a sweep needs: versions, devices, storage, disk, MLflow, Ray, a cluster's nodes.

    With SPACE, and the options of `sweep run`, it also checks data and checkpoints on the machines
    where arms will run. --address checks a cluster from a laptop: its cluster.yaml, who is let in,
    ports, and every node. Exit 1 if a check fails.
    """
    scope = Scope(mlflow, data if space is None else None, _requirements(space, data, options))
    if scope_json is not None:
        scope = Scope.from_json(json.loads(scope_json))
    if place.slurm is not None:
        from sweep.doctor import slurm

        checks = slurm.checks(place.slurm, scope)
    elif place.address is not None:
        if notify is not None:
            raise Misuse(
                "--notify tests what the driver would do, so it cannot be given with --address: "
                "give it on the cluster's head."
            )
        from sweep.doctor import laptop

        checks = laptop.checks(place.address, given_storage(), scope)
    elif where == "cluster":
        from sweep.doctor import cluster

        checks = cluster.checks(open_store(place.storage).root, scope)
    else:
        from sweep.doctor import machine

        checks = machine.checks(open_store(place.storage).root, scope)
        if space is not None:
            checks = chain(checks, _check_device(options.space_of(space, {})))
    if notify is not None:
        from sweep.doctor.machine import check_notification

        checks = chain(checks, map(check_notification, [notify]))  # last, and as it is printed
    raise SystemExit(_print(checks, as_json=as_json))


def _check_device(space: SearchSpace) -> Iterator[Check]:
    """Check that this machine has the device that a space trains on."""
    from sweep.study.requirements import require_device

    try:
        require_device(space)
    except Misuse as error:
        yield Check("device", False, str(error))


def _requirements(
    space: str | None, data: str | None, options: SpaceOptions
) -> tuple[Requirement, ...]:
    if space is not None:
        fields = {} if data is None else {"data.folder": data}
        return list_requirements(options.space_of(space, fields))
    if options:
        raise Misuse("--set, --only and --full change a space, and none is given: give SPACE.")
    return ()


def _print(checks: Iterator[Check], *, as_json: bool) -> int:
    """Print the checks as they are made; the exit code."""
    out, printed = console(), []
    for check in checks:
        printed.append(check)
        if not as_json:
            mark = "[green]pass[/green]" if check.passed else "[red]FAIL[/red]"
            colon = ": " if check.finding else ""
            text = f"{escape(check.name)}{colon}{escape(check.finding)}"
            out.print(f"{mark}  {text}", soft_wrap=True)
            if not check.passed and check.advice:
                out.print(f"      {escape(check.advice)}", soft_wrap=True)
    if as_json:
        print_json([check.to_json() for check in printed])
    return 0 if all(check.passed for check in printed) else 1
