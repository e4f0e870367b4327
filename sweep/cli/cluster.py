"""The verbs of a laptop that uses a cluster: submit, logs; and resume there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from search_spaces import catalog
from search_spaces.space import SearchSpace
from sweep.cli.asked import OPTIONS, Asked, Place, SweepOptions, collected
from sweep.cli.options import (
    accept_code_option,
    address_option,
    given_storage,
    name_argument,
    named_here,
    storage_option,
)
from sweep.cluster import ask
from sweep.cluster.submission import ANSWER, Submission
from sweep.executors.executor import Executor
from sweep.run import notifications
from sweep.run.budget import NO_LIMIT, Budget
from sweep.study import advice
from sweep.study.advice import ADDRESS, note
from sweep.study.registration import refuse_confirmation
from sweep.study.requirements import refuse_keys
from sweep.tracking.address import tracking_uri
from trainables.code_version import code_version
from trainables.errors import Failure, Misuse, UnknownName
from trainables.fetching.remote_folders import is_address

if TYPE_CHECKING:
    from sweep.cluster.jobs import Jobs

ACCEPT_S = 120.0  # that a submission waits for the head, which may have data to decode
RECONNECT_S = (1.0, 5.0, 30.0, 60.0)  # before each try after the connection of `logs -f` broke

notify_option = click.option(
    "--notify",
    metavar="URL|COMMAND",
    envvar=notifications.VARIABLE,
    callback=lambda _, __, target: None if target is None else notifications.check_target(target),
    help="URL or command that receives JSON at the first winner, at the end and when arms hang. "
    "Default: $SWEEP_NOTIFY.",
)


@click.command()
@address_option
@collected(asked=Asked)
@storage_option
@OPTIONS["workers"]
@OPTIONS["fuse"]
@OPTIONS["processes"]
@collected(budget=Budget)
@accept_code_option
@click.option("--mlflow", metavar="URI", help="MLflow server, as seen from the cluster.")
@notify_option
@click.option("--any-version", is_flag=True, help="Submit even if the cluster has another version.")
def submit(
    address: str | None,
    asked: Asked,
    storage: str,
    workers: int | None,
    fuse: int | None,
    processes: int | None,
    budget: Budget,
    accept_code: bool,
    mlflow: str | None,
    notify: str | None,
    any_version: bool,
) -> None:
    """Run a sweep of SPACE on a cluster, and return at once with its name.

    SPACE is as for `sweep run`; what is sent is its JSON. --data, --storage and --mlflow are places
    as the cluster's nodes see them; by default they are the cluster's own. Submitting the same
    definition again attaches to it; a different one under a name that is taken is refused.
    """
    where = _required(address)
    found, definition, wanted = asked.definition(None)
    refuse_confirmation(found)
    budget.refuse_without_gpu(definition.space)
    _refuse_places_of_here(definition.space, mlflow)
    sent = Submission(
        definition.name,
        any_version=any_version,
        definition=definition.to_json(),
        asked=tuple(wanted),
        mlflow=mlflow,
        accept_code=accept_code,
    )
    send(where, sent, asked, Executor("cluster", workers, fuse, processes), notify, budget)


def send(
    address: str,
    sent: Submission,
    options: SweepOptions,
    executor: Executor,
    notify: str | None,
    budget: Budget = NO_LIMIT,
) -> None:
    """Have a cluster train a sweep, or continue one, as this command line asks for it."""
    sent = replace(
        sent,
        version=code_version(),
        storage=given_storage(),
        asked_from=advice.place(address, given_storage()),
        notify=_for_the_head(notify),
        options=(*_driver_options(options, executor), *budget.options),
    )
    with ask.cluster(address) as jobs:
        job, answer = ask.submit(jobs, sent, ACCEPT_S)
    driver = f"job {job}"
    if answer is None:
        note(f"the head is still preparing {sent.name}, for example its data.")
    else:
        driver = ask.output_of(answer) or driver
    look, follow = (
        advice.command(*words, storage=sent.storage, address=address)
        for words in (("status", sent.name), ("logs", sent.name, "-f"))
    )
    note(f"{sent.name} is driven by {driver}. Watch it with `{look}` and `{follow}`.")
    click.echo(sent.name)


def _required(address: str | None) -> str:
    if address is None:
        raise Misuse(
            "which cluster? Give --address the URL of its dashboard or its cluster.yaml, or set "
            f"{ADDRESS}. `sweep run` trains here."
        )
    return address


def _for_the_head(notify: str | None) -> str | None:
    """Whom the head tells: no command that was set up for this machine, unless it is given."""
    if notify is None or named_here("notify") or notifications.is_webhook(notify):
        return notify
    note(
        f"{notifications.VARIABLE} is a command of this machine and is not sent. The cluster's own "
        "counts; --notify gives one that its head runs."
    )
    return None


def _driver_options(of: SweepOptions, executor: Executor) -> tuple[str, ...]:
    folder = None if of.data is None or catalog.is_data_set(of.data) else of.data
    given = {"--data": folder, "--stall-after": of.stall_after}
    named = ((name, str(value)) for name, value in given.items() if value is not None)
    return (*(word for option in named for word in option), *executor.options)


def _refuse_places_of_here(space: SearchSpace, mlflow: str | None) -> None:
    """Raise Misuse for places that mean something else on a cluster, and for passwords."""
    if mlflow is not None and tracking_uri("/", mlflow) != mlflow:
        raise Misuse(f"an MLflow address for a cluster must be absolute, got {mlflow!r}.")
    refuse_keys(space)
    for setting in space.settings:
        run = space.base.with_fields(setting.fields)
        folder, checkpoint = run.data.folder, run.model.checkpoint
        if folder is not None:
            refuse_relative(folder)
        if checkpoint and not checkpoint.startswith(("/", "~")) and Path(checkpoint).is_dir():
            raise Misuse(
                f"model.checkpoint {checkpoint!r} is a folder here. Give its absolute path on the "
                "cluster, or the name of what `hf download` fetched there."
            )


def refuse_relative(folder: str) -> None:
    """Raise Misuse for a folder of data that means something else on a cluster."""
    if not folder.startswith(("/", "~", "file:///")) and not is_address(folder):
        raise Misuse(
            "data on a cluster must be given by an address such as s3://bucket/path, or by "
            f"an absolute path there, got {folder!r}. Change --data or data.folder."
        )


# --- logs -----------------------------------------------------------------------------------------


@click.command()
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the sweep's job ends.")
@collected(at=Place)
def logs(name: str, follow: bool, at: Place) -> None:
    """Print the log of a sweep's newest job on a cluster."""
    where = _required(at.address)
    lines = LogLines(lambda line: click.echo(line, nl=False))
    job = ""
    broken = 0  # connections since the last one that brought something
    while True:
        before = lines.passed_on
        try:
            with ask.cluster(where) as jobs:
                job = job or _newest_job(jobs, name, given_storage())
                lines.begin_again()
                if follow:
                    jobs.follow(job, lines)
                else:
                    lines(jobs.log(job))
            lines.end()
            return
        except Failure as error:
            broken = 0 if lines.passed_on > before else broken
            if not follow or broken == len(RECONNECT_S):
                raise
            note(f"{error} Trying again in {RECONNECT_S[broken]:.0f} s.")
            time.sleep(RECONNECT_S[broken])
            broken += 1


def _newest_job(jobs: Jobs, name: str, storage: str | None) -> str:
    root = (storage or "").rstrip("/")
    found = [job.id for job in jobs.of_sweep(name) if job.storage.rstrip("/") == root]
    if not found:
        known = {job.sweep for job in jobs.drivers()}
        raise UnknownName.among("sweep among the cluster's jobs:", name, known)
    return found[0]


class LogLines:
    """Passes on a log line by line, each once however often it is read, and without answers."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self.passed_on = 0  # characters
        self._read = 0  # characters, since the log was begun
        self._rest = ""  # of a line that is not whole yet

    def begin_again(self) -> None:
        """The log is read from its beginning."""
        self._read, self._rest = 0, ""

    def __call__(self, text: str) -> None:
        """What comes next in the log."""
        self._rest += text
        *whole, self._rest = self._rest.split("\n")
        for line in whole:
            self._pass_on(line + "\n")

    def end(self) -> None:
        """Nothing follows: what is left is a line, too."""
        if self._rest:
            self._pass_on(self._rest)

    def _pass_on(self, line: str) -> None:
        self._read += len(line)
        if self._read > self.passed_on:
            self.passed_on = self._read
            if not line.startswith(ANSWER):
                self._write(line)
