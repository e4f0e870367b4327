"""The verbs that train: run, reproduce, resume, stop."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from functools import partial

import click

from search_spaces import catalog
from sweep.api import training
from sweep.cli.cluster import notify_option, refuse_relative, send
from sweep.cli.options import (
    accept_code_option,
    complete_cells,
    given_storage,
    json_option,
    name_argument,
    named_here,
    open_sweep,
    print_json,
    storage_option,
    tell_that_it_is_here,
)
from sweep.cli.sweep_options import Place, SweepOptions, SweepRequest, collected
from sweep.cli.text.done import print_done
from sweep.cluster import ask
from sweep.cluster.submission import NOT_YET, Submission
from sweep.executors.executor import Executor
from sweep.results.reproduction import Reproduction
from sweep.run.budget import Budget
from sweep.run.forget_failed import refuse_other_code
from sweep.run.signals import request_stop
from sweep.study import advice
from sweep.study.advice import note
from sweep.study.definition import (
    Definition,
    definition_name,
    definition_of_any_version,
    sweep_names,
)
from sweep.study.lock import driver_of, driving_jobs
from sweep.study.opening import find_sweep, named_place, open_store, parse_seeds
from sweep.study.registration import (
    extended,
    refuse_confirmation,
    refuse_growing_plan,
    refuse_second_driver,
    registered,
)
from sweep.study.requirements import (
    absolute,
    fetch,
    require_device,
    require_torch,
    resolve_checkpoints,
    resolve_data,
    with_folder,
)
from trainables.errors import Misuse
from trainables.records.objects import ObjectStore


@click.command()
@collected(request=SweepRequest)
@storage_option
@collected(executor=Executor, budget=Budget)
@accept_code_option
@click.option(
    "--reproduce", is_flag=True,
    help="Train again in a scratch area, and compare with the stored results.",
)  # fmt: skip
@click.option(
    "--mlflow", metavar="URI", help="MLflow server. Default: SQLite below the storage root."
)
@notify_option
@click.option(
    "--dry-run", is_flag=True, help="Print settings, first candidates and cost, and train nothing."
)
def run(
    request: SweepRequest,
    storage: str,
    executor: Executor,
    budget: Budget,
    accept_code: bool,
    reproduce: bool,
    mlflow: str | None,
    notify: str | None,
    dry_run: bool,
) -> None:
    """Run a sweep of SPACE here, in the foreground.

    SPACE is a built-in search space, a .py or .json file of your own, or an exported
    configuration. Running the same definition again under the same name continues it; a different
    definition under an existing name is refused.
    """
    tell_that_it_is_here("`sweep submit` sends a sweep to the cluster.")
    require_torch()
    objects = open_store(storage)
    named_space, definition, named_fields = request.definition(objects)
    refuse_confirmation(named_space)
    budget.refuse_without_gpu(definition.space)
    if dry_run and reproduce:
        raise Misuse("--dry-run trains nothing, and --reproduce trains again: give one of them.")
    if dry_run:
        _print_plan(definition, objects)
        return
    if reproduce and (budget or mlflow is not None or named_here("notify")):
        raise Misuse(
            "--reproduce trains a few arms and compares them at once: leave out --max-arms, "
            "--max-hours, --max-gpu-hours, --mlflow and --notify."
        )
    definition = training.ready(objects, definition, executor, mlflow)
    if reproduce:
        from sweep.run.reproduce import reproduce_definition

        entry = reproduce_definition(objects, definition, named_space.expected, executor)
        raise SystemExit(_print_reproduction(entry, as_json=False))
    refuse_other_code(objects, definition, accept_code=accept_code)
    stored = registered(objects, definition, named=named_fields, say=note)
    refuse_second_driver(objects, definition.name)
    code = training.train(
        objects, stored, executor, on_done=partial(print_done, objects),
        accept_code=accept_code, budget=budget, mlflow=mlflow, notify=notify,
    )  # fmt: skip
    raise SystemExit(code)


def _print_plan(definition: Definition, objects: ObjectStore) -> None:
    """Settings, first candidates and cost of a sweep that is not run; its data are not opened."""
    from sweep.cli.spaces import estimated, print_cost, print_space

    print_space(definition.space)
    print_cost(*estimated(definition.space))
    name = definition.name
    there = ""
    if name in sweep_names(objects):
        there = " That name is taken: `sweep run` continues an equal definition, refuses another."
    note(
        "a dry run: nothing is trained or stored, and data and MLflow are not opened. It would be "
        f"{name} in {objects.root}.{there}"
    )


@click.command()
@name_argument
@click.argument("cell", shell_complete=complete_cells)
@click.option("--data", metavar="DIR", help="Folder that now holds the sweep's data.")
@storage_option
@collected(executor=Executor)
@json_option
def reproduce(
    name: str, cell: str, data: str | None, storage: str, executor: Executor, as_json: bool
) -> None:
    """Train one cell of a table again, and print old and new numbers side by side.

    CELL is SETTING (both arms of the pair that tables show) or SETTING/ARM, where ARM is
    constrained, unconstrained, or in a confirmation a control. Append
    #PROPOSAL for another proposal and @SEED for a single seed. The sweep is not changed. Exit 1 if
    a number differs by more than a relative 1e-6.
    """
    tell_that_it_is_here("it trains here. Its storage root is that of --storage.")
    from sweep.results.cells import find_cell, parse_cell
    from sweep.results.provenance import device_s
    from sweep.results.status import time_text
    from sweep.run.reproduce import records_of_cell, reproduce_cell

    cell_name = parse_cell(cell)
    require_torch()
    objects, view = open_sweep(storage, name, "outcomes")
    run = find_cell(view, cell_name)
    before = records_of_cell(objects, run)
    if data is not None:
        run = replace(run, definition=with_folder(run.definition, absolute(_folder(data))))
    if executor.where != "cluster":
        require_device(run.definition.space)
    resolve_data(
        resolve_checkpoints(fetch(run.definition.space, note))
    )  # they must exist unchanged
    took_s = sum(map(device_s, before.values()))
    arms = advice.counted(len(before), "arm")
    note(
        f"{name}, {run.definition.space.settings[0].name}, proposal {run.proposal} "
        f"({run.role}): {arms}, which took {time_text(took_s)} last time"
    )
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        entry = reproduce_cell(objects, run, before, executor)
    raise SystemExit(_print_reproduction(entry, as_json=as_json))


def _print_reproduction(entry: Reproduction, *, as_json: bool) -> int:
    """Print the result of a reproduction; the exit code."""
    from sweep.cli.text.reproduced import print_reproduced

    if as_json:
        print_json(entry.to_json())
    else:
        print_reproduced(entry)
    return int(entry.verdict == "differs")


@click.command()
@name_argument
@collected(options=SweepOptions)
@click.option("--retry-failed", is_flag=True, help="Train failed arms again.")
@collected(place=Place)
@collected(executor=Executor, budget=Budget)
@accept_code_option
@notify_option
def resume(
    name: str,
    options: SweepOptions,
    retry_failed: bool,
    place: Place,
    executor: Executor,
    budget: Budget,
    accept_code: bool,
    notify: str | None,
) -> None:
    """Continue a sweep; options add candidates and seeds, or retry failed arms.

    Finished arms are not trained again. Proposals and seeds can only be added.
    """
    if place.cluster is not None:
        if named_here("where") and executor.where != "cluster":
            raise Misuse(
                f"--where must be cluster with --address, got {executor.where}: leave it out."
            )
        if options.data is not None:
            refuse_relative(_folder(options.data))
        sent = Submission(
            name,
            any_version=True,  # no definition is sent: the cluster continues what it has
            n_proposals=options.proposals,
            seeds=options.seeds,
            retry_failed=retry_failed,
            accept_code=accept_code,
        )
        send(place.cluster, sent, options, executor, notify, budget)
        return
    require_torch()
    objects = open_store(place.storage)
    definition = find_sweep(objects, name)
    budget.refuse_without_gpu(definition.space)
    grown = options.seeds is not None or options.proposals is not None
    if grown or retry_failed:
        refuse_growing_plan(definition)
    if options.stall_after is not None:
        definition = replace(
            definition, space=replace(definition.space, stall_after_s=options.stall_after)
        )
    if options.data is not None:
        definition = with_folder(definition, absolute(_folder(options.data)))
    present = definition.space.search_seeds
    seeds = None if options.seeds is None else parse_seeds(options.seeds, present)
    grown_to = definition.extended(n_proposals=options.proposals, search_seeds=seeds)
    refuse_second_driver(objects, name)
    refuse_other_code(objects, grown_to, accept_code=accept_code)  # before data are read
    resolve_data(resolve_checkpoints(fetch(definition.space, note)))  # they must exist unchanged
    objects.check_writable()
    definition = extended(
        objects, definition, n_proposals=options.proposals, search_seeds=seeds, say=note
    )
    code = training.train(
        objects, definition, executor, on_done=partial(print_done, objects),
        retry_failed=retry_failed, accept_code=accept_code, budget=budget, notify=notify,
    )  # fmt: skip
    raise SystemExit(code)


def _folder(data: str) -> str:
    """The folder of --data; Misuse for a data set, since a stored sweep keeps its own."""
    if catalog.is_data_set(data):
        raise Misuse(f"--data must be a folder here, got {data}: the sweep keeps its data set.")
    return data


@click.command()
@name_argument
@collected(place=Place)
def stop(name: str, place: Place) -> None:
    """Stop a running sweep: its arms end at their next report, and `sweep resume` continues it."""
    if place.address is not None:
        click.echo(ask.stop(place.address, given_storage(), name), nl=False)
        return
    objects = open_store(place.storage)
    driver = driver_of(objects, name)
    if driver is not None and driver.job and not objects.exists(definition_name(name)):
        click.echo(driver.job)  # whoever stops it for a laptop ends this job: no sweep exists yet
        raise SystemExit(NOT_YET)
    with named_place(objects):  # a driver of another version is stopped, too
        definition_of_any_version(objects, name)
    if driver is None and (objects.is_local or driving_jobs.get(None) is not None):
        raise Misuse(f"{name} is not running, so there is nothing to stop.")
    request_stop(objects, name)
    if place.slurm is not None:
        from sweep.cluster.slurm_submit import cancel_waiting

        if done := cancel_waiting(place.slurm, objects, name):
            again = advice.resume(name, objects.root)
            click.echo(f"{done} `{again}` continues.")
            return
    how = (
        f"sent a stop request to {driver}"
        if driver
        else "no running driver was found; a stop request was stored, so no job will restart one"
    )
    click.echo(
        f"{name}: {how}. Running arms end at their next report; "
        f"`{advice.command('status', name, storage=objects.root)}` shows when, "
        f"`{advice.resume(name, objects.root)}` continues."
    )
