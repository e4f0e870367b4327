"""Supervisor job of a sweep on the head, which restarts its driver.

Started as ``python -m sweep.cluster.supervise``. It reads the submission in its working folder,
puts the sweep into the store, answers the laptop, and starts the driver again until the sweep has
ended, somebody stops it, or the driver has died three times in a row without anything new in the
store. While the store cannot be written, it waits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import FrameType

from sweep.cluster.submission import (
    NOT_YET,
    Answer,
    Submission,
    find_root,
    is_same_root,
    refuse_other_version,
)
from sweep.executors.autoscaling import largest, unused_gpus
from sweep.executors.resources import ResourceClasses
from sweep.run import notifications
from sweep.run.alike import failed_alike
from sweep.run.budget import BEGUN, stored_budget
from sweep.run.events import OnEvent, driver_event, storage_event
from sweep.run.forget_failed import forget_failed, refuse_other_code
from sweep.run.signals import KNOWN, request_stop, stop_request
from sweep.study import advice
from sweep.study.advice import ADDRESS, ASKED_FROM
from sweep.study.arms import all_judged, arms_of_proposal, baselines
from sweep.study.definition import Definition, definition_name, load_definition
from sweep.study.lock import driver_lock, driver_of, driving_jobs
from sweep.study.opening import find_sweep, open_store, parse_seeds
from sweep.study.proposals import all_proposals, retired_settings
from sweep.study.registration import (
    extended,
    refuse_growing_plan,
    refuse_second_driver,
    registered,
    resolved,
)
from sweep.tracking.address import place_of, remember_place
from trainables.code_version import code_version
from trainables.errors import Failure, StoreError, SweepError
from trainables.plain import Json
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import few_at_once
from trainables.retries import DRIVER_DEATHS, DRIVER_WAITS_S, STORAGE_LOOK_S, STORAGE_WAIT_S

ACCEPTED = "accepted"  # on the command line, and the stop request of before: it is in the store
JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # what Ray tells the drivers that a job starts


def main() -> None:
    """Take up the submission in the current folder and see the sweep through."""
    if sys.argv[1:2] == [ACCEPTED]:
        known = sys.argv[2]
        sent = _taken_up()
        objects = open_store(find_root(sent.storage))
        target = sent.notify or os.environ.get(notifications.VARIABLE)
        resume = advice.resume(sent.name, objects.root)
        with notifications.notifying(target, sent.name, resume, warn=_say) as on_event:
            run_driver = partial(drive, objects, sent, begun_s=time.time())
            code = supervise(objects, sent.name, run_driver, known=known, on_event=on_event)
        raise SystemExit(code)
    notes: list[str] = []
    try:
        sent = _taken_up()
        objects = open_store(find_root(sent.storage))
        known = stop_request(objects, sent.name)  # what is asked while data are looked for counts
        accept(objects, sent, notes.append)
    except SweepError as error:
        answer = Answer(error.exit_code, err=f"sweep: {error}\n", version=code_version())
        print(answer.to_line(), flush=True)
        raise SystemExit(0 if isinstance(error, NotYet) else error.exit_code) from None
    driver = driver_of(objects, sent.name)
    if driver is not None and driver.hint:
        notes.append(driver.hint)
    err = "".join(f"sweep: {line}\n" for line in notes)
    answer = Answer(0, "" if driver is None else str(driver), err, code_version())
    print(answer.to_line(), flush=True)
    if driver is None:  # in a new process image: this one holds torch, by which data were found
        again = [sys.executable, "-m", "sweep.cluster.supervise", ACCEPTED, known]
        os.execv(sys.executable, again)


def _taken_up() -> Submission:
    """The submission in this folder; what is advised from now on is for whoever sent it."""
    sent = Submission.read(Path())
    os.environ[ASKED_FROM] = sent.client_options
    return sent


class NotYet(Failure):
    """The sweep that is driven is not stored yet, so that there is nothing to compare with."""

    exit_code = NOT_YET


def accept(objects: ObjectStore, sent: Submission, say: Callable[[str], None]) -> None:
    """Put into the store what is asked for, or refuse it; training has not begun after this.

    Raises:
        Failure: the code here is not the laptop's.
        Misuse: as `sweep run` and `sweep resume` refuse.
        NotYet: the job that drives the sweep still looks for its data. To store this submission's
            definition now would have that job refused, and nobody would train.
    """
    refuse_other_version(sent.version, any_version=sent.any_version)
    others = (job for job, root in sent.others if is_same_root(root, objects.root))
    driving = sent.driven_by or next(others, "")
    if driving:
        driving_jobs.set({sent.name: driving})
    if sent.definition is not None:
        if sent.driven_by and not objects.exists(definition_name(sent.name)):
            raise NotYet(f"job {sent.driven_by} has not stored {sent.name} yet.")
        given = Definition.from_json(sent.definition)
        uri = place_of(objects, given, sent.mlflow)  # refused before data are decoded
        given = resolved(given, say=_say)
        refuse_other_code(objects, given, accept_code=sent.accept_code)
        registered(objects, given, named=sent.named_fields, say=say)
        if not driving:
            remember_place(objects, sent.name, uri)
            tell_unused_gpus(objects, load_definition(objects, sent.name), say)
        return
    stored = find_sweep(objects, sent.name)
    if sent.retry_failed or sent.seeds is not None or sent.n_proposals is not None:
        refuse_growing_plan(stored)
    refuse_second_driver(objects, sent.name)
    seeds = None if sent.seeds is None else parse_seeds(sent.seeds, stored.space.search_seeds)
    grown = stored.extended(n_proposals=sent.n_proposals, search_seeds=seeds)
    refuse_other_code(objects, grown, accept_code=sent.accept_code)
    stored = extended(objects, stored, n_proposals=sent.n_proposals, search_seeds=seeds, say=say)
    if sent.retry_failed:  # once: a driver that starts again must not train them for ever
        with driver_lock(objects, sent.name):
            forget_failed(objects, stored)


def tell_unused_gpus(
    objects: ObjectStore, definition: Definition, say: Callable[[str], None]
) -> None:
    """Warn before a sweep of CPU arms makes a cluster of GPU machines grow."""
    arm = ResourceClasses(definition, lambda signature: None).standard
    stop = advice.command("stop", definition.name, storage=objects.root)
    if warning := unused_gpus(arm, largest(arm) or (), definition.name, stop=stop):
        say(warning)


def drive(
    objects: ObjectStore,
    sent: Submission,
    known: str,
    *,
    begun_s: float,
    on_start: Callable[[subprocess.Popen[bytes]], None] = lambda driver: None,
    folder: Path | None = None,
) -> int:
    """Run a driver of the stored sweep on this cluster to its end, and return its exit code.

    Where a signal ended it, that is 128 + the signal's number, as in a shell. Any request to stop
    but the ``known`` one stops it. A budget's hours count from ``begun_s``, when its job began.
    ``on_start`` is given the driver, which runs in ``folder``; None: this user's home.
    """
    resume = ["resume", sent.name, "--where", "cluster", "--storage", objects.root]
    environment = {**_for_driver(os.environ), KNOWN: known, BEGUN: str(begun_s)}
    if sent.notify is not None:
        environment[notifications.VARIABLE] = sent.notify
    resume += ["--accept-code"] * sent.accept_code
    command = [sys.executable, "-m", "sweep.cli", *resume, *sent.options]
    with subprocess.Popen(command, cwd=folder or Path.home(), env=environment) as driver:
        on_start(driver)
        code = driver.wait()
    return code if code >= 0 else 128 - code


def supervise(
    objects: ObjectStore,
    name: str,
    run_driver: Callable[[str], int],
    *,
    known: str | None = None,
    waits_s: Sequence[float] = DRIVER_WAITS_S,
    look_s: float = STORAGE_LOOK_S,
    on_event: OnEvent = lambda event: None,
    sigterm_stops: bool = True,
    is_first: bool = True,
) -> int:
    """Run the driver until the sweep has ended; the exit code of the last one.

    ``run_driver`` gets the request to stop that is of before, ``known``; None: the one that is
    there now. ``waits_s`` are pauses after a driver's first, second, ... death, ``look_s`` those
    between looks at a storage that is full or away. ``on_event`` hears when the sweep waits for its
    storage, and when it is left to a person; drivers report all else. SIGTERM is taken for
    `sweep stop`, unless ``sigterm_stops`` is false: then the caller handles it. A driver that
    refuses ends it only where ``is_first`` is true: else the sweep was driven before.
    """
    known = stop_request(objects, name) if known is None else known
    began_s = time.time()
    seen = Progress(objects, name)
    deaths = starts = 0
    none = nullcontext(list[int]())
    with _stop_on_sigterm(objects, name) if sigterm_stops else none as terminated:
        while True:
            code = run_driver(known)
            starts += 1
            if code == 0:
                return code
            if code == 2 and starts == 1 and is_first:  # later: data or storage are away
                what = "was refused: its job's log says why"
                on_event(driver_event(name, what, objects.root))
                return code
            if terminated or _is_stop_requested(objects, name, known):
                return code
            if code == 1 and (seen.is_over() or _gave_up(objects, name, began_s)):
                return code  # not all went well: its own last lines say what
            if _is_driven(objects, name):
                return code
            # Counted anew after progress: an arm that takes days may outlive many drivers.
            deaths = 1 if seen.is_new() else deaths + 1
            if deaths == DRIVER_DEATHS:
                what = f"died {DRIVER_DEATHS} times without progress and is not started again"
                again = advice.resume(name, objects.root)
                _say(f"the driver of {name} {what}. See above why; then `{again}` continues.")
                on_event(driver_event(name, what, objects.root))
                return code
            _say(f"the driver of {name} ended with exit code {code} and is started again.")
            time.sleep(waits_s[min(deaths, len(waits_s)) - 1])
            _await_storage(objects, terminated, look_s, lambda e: on_event(storage_event(name, e)))
            if terminated:
                return code


def _await_storage(
    objects: ObjectStore,
    terminated: Sequence[int],
    look_s: float,
    tell: Callable[[SweepError], None],
) -> None:
    """Return when the store can be written, at SIGTERM, or when it has been away for too long.

    A driver that is started before would only die of it, and three of them do in two minutes.
    """
    give_up = time.monotonic() + STORAGE_WAIT_S
    is_reported = False
    while not terminated:
        try:
            objects.check_writable()
            return
        except SweepError as error:
            if time.monotonic() > give_up:
                return
            if not is_reported:
                _say(f"{error} The driver is started when it can be written again.")
                tell(error)
                is_reported = True
        time.sleep(look_s)


def _is_driven(objects: ObjectStore, name: str) -> bool:
    """True when another driver has taken the sweep over: this job's has ended."""
    other = None
    with suppress(StoreError):
        other = driver_of(objects, name)
    if other is not None:
        _say(f"{name} is driven by {other} now: this job leaves it to that one.")
    return other is not None


def _gave_up(objects: ObjectStore, name: str, since_s: float) -> bool:
    """True when a driver ended since then at its budget, or as its first arms failed alike."""
    try:
        reached = stored_budget(objects, name, since_s=since_s)[1]
        return bool(reached or failed_alike(objects, name, since_s=since_s))
    except StoreError:
        return False


def _is_stop_requested(objects: ObjectStore, name: str, known: str) -> bool:
    """True when `sweep stop` was given after ``known``; the driver may not have seen it."""
    try:
        is_requested = stop_request(objects, name) not in ("", known)
    except StoreError:
        return False
    if is_requested:
        _say(f"{name} got a stop request. `{advice.resume(name, objects.root)}` continues it.")
    return is_requested


class Progress:
    """Progress of a sweep, by what the store holds; a store that is away shows none."""

    def __init__(self, objects: ObjectStore, name: str) -> None:
        self._objects, self._name = objects, name
        self._most: dict[str, int] = {}
        self.is_new()

    def is_new(self) -> bool:
        """True when anything has come about since the last look.

        An arm that was killed goes on from its last checkpoint: only what it had not reached
        before counts.
        """
        now: dict[str, int] = {}
        with suppress(StoreError):
            now = dict(_counts(self._objects, load_definition(self._objects, self._name)))
        new = {n: count for n, count in now.items() if count > self._most.get(n, 0)}
        self._most |= new
        return bool(new)

    def is_over(self) -> bool:
        """True when nothing is left to train: every setting is finished, or its search broke."""
        return is_over(self._objects, self._name)


def is_over(objects: ObjectStore, name: str) -> bool:
    """True when nothing of a sweep is left to train; a store that is away says nothing of it."""
    try:
        definition = load_definition(objects, name)
        return all_judged(objects, definition, but=retired_settings(objects, name))
    except StoreError:
        return False


def _counts(objects: ObjectStore, definition: Definition) -> Iterator[tuple[str, int]]:
    """Numbers that only grow: proposals and outcomes, and the steps of arms that are open.

    Of judged proposals no record is read: there may be ten thousand, each a request.
    """
    runs, names = ArmStore(objects), [setting.name for setting in definition.space.settings]
    for setting, proposals in all_proposals(objects, definition.name, names).items():
        open_ones = [proposal for proposal in proposals if proposal.outcome is None]
        yield f"{setting}/proposals", len(proposals)
        yield f"{setting}/outcomes", len(proposals) - len(open_ones)
        arms = baselines(definition, setting)
        for proposal in open_ones:
            arms += arms_of_proposal(definition, setting, proposal.number, proposal.point)
        for arm, record in few_at_once(lambda arm: runs.record(arm.signature), arms):
            if record is not None:
                steps = record.reports[-1].step if record.reports else 0
                yield arm.signature, steps + 1 + record.is_final


def _for_driver(here: Mapping[str, str]) -> dict[str, str]:
    """The driver's environment: its workers need no copy of the folder of the submission."""
    environment = {name: value for name, value in here.items() if name != ADDRESS}
    if JOB_CONFIG in environment:
        config: Json = json.loads(environment[JOB_CONFIG])
        environment[JOB_CONFIG] = json.dumps({**config, "runtime_env": {}})
    return environment


@contextmanager
def _stop_on_sigterm(objects: ObjectStore, name: str) -> Iterator[list[int]]:
    """Take SIGTERM, as of `ray job stop`, for `sweep stop`: drivers may get it, too, or not.

    Yields the list of signals that came: the store, where drivers look, may be away.
    """
    terminated: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        # A write in a handler: meanwhile the main thread only waits for its driver.
        terminated.append(number)
        with suppress(StoreError):
            request_stop(objects, name)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield terminated
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(text: str) -> None:
    print(f"sweep: {text}", flush=True)


if __name__ == "__main__":
    main()
