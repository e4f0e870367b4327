"""The verbs of a laptop that uses a cluster: submit, logs; and resume on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from search_spaces import catalog
from search_spaces.space import SearchSpace
from sweep.cli.options import (
    accept_code_option,
    address_option,
    given_storage,
    name_argument,
    named_here,
    storage_option,
)
from sweep.cli.sweep_options import Place, SweepOptions, SweepRequest, collected
from sweep.cluster import ask, slurm_submit
from sweep.cluster.submission import ANSWER, Submission
from sweep.executors.executor import Executor, Where
from sweep.run import notifications
from sweep.run.budget import NO_LIMIT, Budget
from sweep.slurm.folder import SlurmFolder
from sweep.slurm.slurm_yaml import SlurmYaml, is_slurm_yaml, read
from sweep.study import advice
from sweep.study.advice import ADDRESS, note
from sweep.study.opening import find_sweep, open_store
from sweep.study.registration import refuse_confirmation
from sweep.study.requirements import refuse_keys
from sweep.tracking.address import tracking_uri
from trainables.code_version import code_version
from trainables.errors import Failure, Misuse, UnknownName
from trainables.fetching.remote_folders import is_address

if TYPE_CHECKING:
    from sweep.cluster.jobs import Jobs
    from trainables.records.objects import ObjectStore

ACCEPT_S = 120.0  # for the head to accept a submission, which may take decoding data
FOLLOW_S = 1.0  # between two looks at a log that lies on this machine's disks
RECONNECT_S = (1.0, 5.0, 30.0, 60.0)  # before each new try of `logs -f` to connect


@dataclass(frozen=True)
class _Cluster(Executor):
    """The cluster that a sweep is submitted to."""

    where: Where = field(default="cluster", init=False)


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
@collected(request=SweepRequest)
@storage_option
@collected(executor=_Cluster, budget=Budget)
@accept_code_option
@click.option("--mlflow", metavar="URI", help="MLflow server, as seen from the cluster.")
@notify_option
@click.option("--any-version", is_flag=True, help="Submit even if the cluster has another version.")
def submit(
    address: str | None,
    request: SweepRequest,
    storage: str,
    executor: _Cluster,
    budget: Budget,
    accept_code: bool,
    mlflow: str | None,
    notify: str | None,
    any_version: bool,
) -> None:
    """Run a sweep of SPACE on a cluster, and return at once with its name.

    SPACE is as for `sweep run`; what is sent is its JSON. --data, --storage and --mlflow are places
    as the cluster's nodes see them; by default they are the cluster's own. Submitting the same
    definition again attaches to it; a different one under an existing name is refused.
    """
    address = _require_address(address)
    there = None
    if is_slurm_yaml(address):
        there = open_store(slurm_submit.enter(address, given_storage()))
    named_space, definition, named_fields = request.definition(there)
    refuse_confirmation(named_space)
    budget.refuse_without_gpu(definition.space)
    _refuse_local_places(definition.space, mlflow)
    sent = Submission(
        definition.name,
        any_version=any_version,
        definition=definition.to_json(),
        named_fields=tuple(named_fields),
        mlflow=mlflow,
        accept_code=accept_code,
    )
    send(address, sent, request, executor, notify, budget)


def send(
    address: str,
    sent: Submission,
    options: SweepOptions,
    executor: Executor,
    notify: str | None,
    budget: Budget = NO_LIMIT,
) -> None:
    """Have a cluster train a sweep, or continue one, with the options of this command line."""
    sent = replace(
        sent,
        version=code_version(),
        storage=given_storage(),
        client_options=advice.place(address, given_storage()),
        notify=_notification_target(notify),
        options=(*_driver_options(options, executor), *budget.options),
    )
    if is_slurm_yaml(address):
        driver = slurm_submit.submit(address, sent, note)
    else:
        driver = _driver_on(address, sent)
    if not driver:
        note(f"{sent.name} has nothing left to train: no job was added.")
        click.echo(sent.name)
        return
    status, logs = (
        advice.command(*words, storage=sent.storage, address=address)
        for words in (("status", sent.name), ("logs", sent.name, "-f"))
    )
    note(f"{sent.name} is driven by {driver}. Watch it with `{status}` and `{logs}`.")
    click.echo(sent.name)


def _driver_on(address: str, sent: Submission) -> str:
    """Have a Ray cluster take a submission; who drives the sweep."""
    with ask.cluster(address) as jobs:
        job, answer = ask.submit(jobs, sent, ACCEPT_S)
    if answer is None:
        note(f"the head is still preparing {sent.name}, for example its data.")
        return f"job {job}"
    return ask.output_of(answer) or f"job {job}"


def send_stored(
    address: str,
    name: str,
    executor: Executor,
    notify: str | None,
    budget: Budget,
    *,
    accept_code: bool,
) -> None:
    """Have a cluster train a sweep that its storage has."""
    sent = Submission(name, any_version=True, accept_code=accept_code)
    send(address, sent, SweepOptions(None, None, None, None), executor, notify, budget)


def _require_address(address: str | None) -> str:
    if address is None:
        raise Misuse(
            "no cluster is named: give --address the URL of its dashboard, its cluster.yaml or a "
            f"slurm.yaml, or set {ADDRESS}. `sweep run` trains here."
        )
    return address


def _notification_target(notify: str | None) -> str | None:
    """The URL or command for the head: a command of this machine only if this line names it."""
    if notify is None or named_here("notify") or notifications.is_webhook(notify):
        return notify
    note(
        f"{notifications.VARIABLE} is a command of this machine and is not sent: the cluster uses "
        "its own. Give --notify a command that its head can run."
    )
    return None


def _driver_options(options: SweepOptions, executor: Executor) -> tuple[str, ...]:
    data = options.data
    folder = None if data is None or catalog.is_data_set(data) else data
    given = {"--data": folder, "--stall-after": options.stall_after}
    named = ((name, str(value)) for name, value in given.items() if value is not None)
    return (*(word for option in named for word in option), *executor.options)


def _refuse_local_places(space: SearchSpace, mlflow: str | None) -> None:
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
                f"model.checkpoint {checkpoint!r} is a folder of this machine. Give its absolute "
                "path on the cluster, or the name of a model that its nodes have by `hf download`."
            )


def refuse_relative(folder: str) -> None:
    """Raise Misuse for a folder of data that means something else on a cluster."""
    if not folder.startswith(("/", "~", "file:///")) and not is_address(folder):
        raise Misuse(
            "data on a cluster must be given by an address such as s3://bucket/path, or by "
            f"an absolute path on its nodes, got {folder!r}. Change --data or data.folder."
        )


# --- logs -----------------------------------------------------------------------------------------


@click.command()
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the sweep's job ends.")
@collected(place=Place)
def logs(name: str, follow: bool, place: Place) -> None:
    """Print the log of a sweep's newest job on a cluster."""
    if place.slurm is not None:
        _print_head_log(place.slurm, open_store(place.storage), name, follow=follow)
        return
    address = _require_address(place.address)
    lines = LogLines(lambda line: click.echo(line, nl=False))
    job = ""
    failures = 0  # connections since the last one that brought a new line
    while True:
        before = lines.printed
        try:
            with ask.cluster(address) as jobs:
                job = job or _newest_job(jobs, name, given_storage())
                lines.restart()
                if follow:
                    jobs.follow(job, lines.read)
                else:
                    lines.read(jobs.log(job))
            lines.finish()
            return
        except Failure as error:
            failures = 0 if lines.printed > before else failures
            if not follow or failures == len(RECONNECT_S):
                raise
            note(f"{error} Trying again in {RECONNECT_S[failures]:.0f} s.")
            time.sleep(RECONNECT_S[failures])
            failures += 1


def _newest_job(jobs: Jobs, name: str, storage: str | None) -> str:
    root = (storage or "").rstrip("/")
    ids = [job.id for job in jobs.of_sweep(name) if job.storage.rstrip("/") == root]
    if not ids:
        known = {job.sweep for job in jobs.drivers()}
        raise UnknownName.among("sweep among the cluster's jobs:", name, known)
    return ids[0]


def _print_head_log(file: str, objects: ObjectStore, name: str, *, follow: bool) -> None:
    """Print the log of a sweep's head jobs on Slurm; follow it until none is left to write it."""
    find_sweep(objects, name)
    folder, given = SlurmFolder(objects.root, name), read(file)
    if not folder.path.exists():
        raise Misuse(f"{name} was not submitted to Slurm: it has no job whose log could be shown.")
    log, heads = folder.head_log, slurm_submit.living_heads(folder, given)
    if not log.exists() or not log.stat().st_size:
        job = f": job {slurm_submit.job_in_words(heads[0], given)}" if heads else ""
        note(f"no head job of {name} has written to its log yet{job}.")
    with suppress(KeyboardInterrupt):  # the way to leave it
        _follow(log, folder, given, follow=follow)


def _follow(log: Path, folder: SlurmFolder, given: SlurmYaml, *, follow: bool) -> None:
    position, next_look_s, goes_on = 0, time.monotonic(), True
    while True:
        if log.exists():
            with log.open("rb") as lines:
                lines.seek(position)
                click.echo((new := lines.read()).decode(errors="replace"), nl=False)
                position += len(new)
        if not (follow and goes_on):
            return
        if time.monotonic() >= next_look_s:
            next_look_s = time.monotonic() + given.poll_s
            goes_on = bool(slurm_submit.living_heads(folder, given))
        time.sleep(FOLLOW_S if goes_on else 0.0)


class LogLines:
    """Printer of a log that may be read several times: each line once, and no answers."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self.printed = 0  # characters of the log, with those of answers
        self._position = 0  # of the next line, since the log was last begun
        self._rest = ""  # of a line that is not complete yet

    def restart(self) -> None:
        """Expect the log from its beginning."""
        self._position, self._rest = 0, ""

    def read(self, text: str) -> None:
        """Print the new lines in the next part of the log."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._print(line + "\n")

    def finish(self) -> None:
        """Print the rest of the log, which has no newline."""
        if self._rest:
            self._print(self._rest)

    def _print(self, line: str) -> None:
        self._position += len(line)
        if self._position > self.printed:
            self.printed = self._position
            if not line.startswith(ANSWER):
                self._write(line)
