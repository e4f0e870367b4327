"""Submission of sweeps to Slurm from a login node, and the state of their jobs.

What can be refused is refused here, before anything queues: data are looked for, the definition is
stored or compared, and Slurm is asked whether it would take such jobs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from sweep.cluster.submission import Submission
from sweep.cluster.supervise import accept, is_over
from sweep.executors.autoscaling import unused_gpus
from sweep.executors.resources import ResourceClasses
from sweep.run.signals import stop_request
from sweep.slurm import queue, scripts
from sweep.slurm.folder import FOLDER, SlurmFolder, quoted
from sweep.slurm.jobs import KnownJob
from sweep.slurm.slurm_yaml import SlurmYaml, read
from sweep.study import advice
from sweep.study.definition import Definition, sweep_names
from sweep.study.definition import folder as sweep_folder
from sweep.study.lock import driver_of, driving_jobs
from sweep.study.opening import find_sweep, open_store
from trainables.errors import Failure, Misuse
from trainables.machine import file_locks
from trainables.records.objects import ObjectStore

END_S, LOOK_S = 90.0, 1.0  # that an earlier head may take to end, and between two looks
SUBMIT_S = 60.0  # that another submission of the sweep is waited for


def submit(file: str, sent: Submission, say: Callable[[str], None]) -> str:
    """Store a sweep and submit its head job, or attach to it where it is driven.

    Returns:
        Who drives it, or is to; empty: nothing is left to train.

    Raises:
        Misuse: as `sweep run` and `sweep resume` refuse, and where Slurm takes no such jobs.
        Failure: Slurm's controller does not answer.
    """
    given = read(file)
    objects = open_store(given.storage)
    folder = SlurmFolder(objects.root, sent.name)
    lock = Path(objects.root, FOLDER, f"submit-{sent.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misuse(f"{file}: the storage {given.storage} cannot be written: {error}.") from error
    with ExitStack() as stack:
        try:
            stack.enter_context(file_locks.held(lock, SUBMIT_S))
        except BlockingIOError:
            raise Failure(
                f"another `sweep submit` of {sent.name} has been at work for {SUBMIT_S:.0f} s. "
                "Try again when it is through."
            ) from None
        heads = living_heads(folder, given)
        about = folder.about()
        if heads and about and stop_request(objects, sent.name) not in ("", about["known"]):
            say(f"{sent.name} is still stopping; this waits for its end.")
            _wait(lambda: not living_heads(folder, given), given)
            heads = living_heads(folder, given)
        if heads:
            driving_jobs.set({sent.name: job_in_words(heads[0], given)})
            accept(objects, replace(sent, driven_by=heads[0].id or heads[0].name), say)
            say(f"{sent.name} was submitted before: no job was added.")
            return f"job {driving_jobs.get()[sent.name]}"
        driving_jobs.set({n: j for n, j in driving_jobs.get().items() if n != sent.name})
        _end_earlier_jobs(folder, given)
        _refuse_shapes(given, Path(file).name)
        plain = sent.definition
        definition = (
            find_sweep(objects, sent.name) if plain is None else Definition.from_json(plain)
        )
        _refuse_small_jobs(given, definition, sent, say)
        known = stop_request(objects, sent.name)
        accept(objects, sent, say)
        driver = driver_of(objects, sent.name)
        if driver is not None and not driver.gone_after_s:  # else its head waits for that
            return str(driver)
        if is_over(objects, sent.name):
            return ""
        folder.begin({"slurm": given.to_json(), "submission": sent.to_json(), "known": known})
        try:
            job, lost = scripts.submit(folder, given, "head")
        except (Misuse, Failure) as error:
            folder.end_all(str(error), is_good=False)
            raise
        if lost is not None:
            say(
                f"{lost} If Slurm took the job, {job.name}, it is found; else submit again in a "
                "few minutes."
            )
        return f"job {job.id or job.name}"


def enter(file: str, named: str | None = None) -> str:
    """Have verbs of this process be about a slurm.yaml's sweeps; its storage root.

    Its data and cache are this process's from now on, and it knows what jobs drive. Raises Misuse
    where the file is wrong, or a storage that is ``named`` beside it is another one.
    """
    given = read(file)
    if named is not None and Path(named).expanduser() != Path(given.storage):
        raise Misuse(
            f"--storage must be left out with {file}, which names {given.storage}, got {named}."
        )
    for name, value in (("SWEEP_DATA", given.data), ("SWEEP_CACHE", given.cache)):
        if value is not None:
            os.environ[name] = value
    os.environ |= {advice.ASKED_FROM: advice.place(file, None), advice.SEES_STORAGE: "1"}
    if Path(given.storage).is_dir():
        _tell_drivers(given, open_store(given.storage))
    return given.storage


def _end_earlier_jobs(folder: SlurmFolder, given: SlurmYaml) -> None:
    """Take what an earlier submission has left out of the queue, and wait for its head's end.

    Raises Failure where it does not end: its jobs would take those of the next one for theirs.
    """

    def left() -> list[KnownJob]:
        folder.settle(given.poll_s)
        return [known for known in folder.jobs() if not known.is_over]

    def heads() -> list[KnownJob]:
        return [known for known in left() if known.has_begun and known.job.kind == "head"]

    if left() and not folder.is_here():
        raise Misuse(
            f"{folder.sweep} has jobs of another user, or on another cluster: end it there with "
            "`sweep stop`, or give this sweep another --name."
        )
    folder.cancel([known for known in left() if not known.has_begun])
    _wait(lambda: not heads(), given)
    if ending := heads():
        raise Failure(
            f"job {ending[0].id} of {folder.sweep} is still ending. Try again in a minute."
        )
    folder.cancel(left(), begun=True)


def _wait(condition: Callable[[], bool], given: SlurmYaml) -> None:
    """Wait until a condition holds, at most for as long as an end may take to be noticed."""
    give_up = time.monotonic() + max(END_S, given.poll_s + END_S / 2)
    while not condition() and time.monotonic() < give_up:
        time.sleep(LOOK_S)


def _refuse_shapes(given: SlurmYaml, file: str) -> None:
    """Raise Misuse, with Slurm's words, where it would take no such jobs."""
    with TemporaryDirectory() as folder:
        for kind in ("head", "worker"):
            try:
                scripts.try_out(Path(folder), given, kind)
            except queue.QueueFull:
                if kind == "head":  # workers are asked for again and again
                    raise
            except queue.Refused as error:
                raise queue.Refused(f"{kind} in {file}: {error}") from error
    try:
        scripts.try_python(given)
    except queue.Refused as error:
        raise queue.Refused(f"{file}: {error}. Correct setup, container or python.") from error


def _refuse_small_jobs(
    given: SlurmYaml, definition: Definition, sent: Submission, say: Callable[[str], None]
) -> None:
    """Raise Misuse where worker jobs hold no arm; say so where all their GPUs would be idle."""
    shape, options = given.worker, list(sent.options)
    processes = int(options[options.index("--processes") + 1]) if "--processes" in options else 1
    arm = ResourceClasses(definition, lambda signature: None, processes=processes).standard
    machines = [shape.machine] * (shape.nodes * shape.most)
    if not arm.slots(machines):
        one = f"has {shape.machine}, {advice.counted(shape.most, 'job')} of it at a time"
        raise Misuse(
            f"no worker job holds an arm of {definition.name}, which needs {arm}: worker in "
            f"slurm.yaml {one}. Raise its cpus, gpus or most, or ask for less with threads, device "
            "or gpus_per_arm."
        )
    stop = advice.command("stop", definition.name)
    if warning := unused_gpus(arm, machines, definition.name, stop=stop):
        say(warning)


def living_heads(folder: SlurmFolder, given: SlurmYaml) -> list[KnownJob]:
    """Head jobs that drive the sweep, or are to; the one that has begun first."""
    if folder.over() is not None:
        return []
    folder.settle(given.poll_s)
    living = [known for known in folder.jobs("head") if not known.is_over]
    return sorted(living, key=lambda known: not known.has_begun)


def _tell_drivers(given: SlurmYaml, objects: ObjectStore) -> None:
    """Have verbs of this process know which sweeps head jobs drive, or will."""
    jobs = {}
    for name in sweep_names(objects):
        folder = SlurmFolder(objects.root, name)
        if Path(objects.root, sweep_folder(name), FOLDER).exists():
            with suppress(Misuse, Failure, OSError):
                heads = living_heads(folder, given)
                if heads:
                    jobs[name] = job_in_words(heads[0], given)
    driving_jobs.set(jobs)


def job_in_words(known: KnownJob, given: SlurmYaml) -> str:
    """The id of a job, with Slurm's words on it while it waits."""
    name = known.id or known.name
    if known.has_begun:
        return f"{name} on {known.claim.host}" if known.claim else name
    listed = queue.listing(Path(given.storage), given.poll_s)
    job = None if listed is None else next((j for j in listed.jobs if j.id == known.id), None)
    if job is not None and job.state == "RUNNING":
        return f"{name}, starting"
    return f"{name}, {'in the queue' if job is None else job}"


def cancel_waiting(file: str, objects: ObjectStore, sweep: str) -> str:
    """Take a sweep's jobs out of the queue where none drives it; what was done, in words."""
    folder = SlurmFolder(objects.root, sweep)
    heads = living_heads(folder, read(file))
    if heads and not folder.is_here():
        raise Misuse(f"{sweep} has jobs of another user, or on another cluster: stop it there.")
    if not heads or any(head.has_begun for head in heads):
        return ""
    folder.end_all("it was stopped", is_good=True)
    folder.cancel(living := [known for known in folder.jobs() if not known.is_over], begun=True)
    names = ", ".join(known.id or known.name for known in living)
    return f"{sweep}: took job {names} out of the queue."


def tell_problem(storage: str, sweep: str) -> None:
    """Note how the sweep's jobs ended, if not well."""
    folder = SlurmFolder(storage, sweep)
    heads = folder.jobs("head")
    end = folder.over() or (heads[-1].end if heads and all(h.is_over for h in heads) else None)
    if end is not None and not (folder.over() and end.is_good):
        began_well = bool(heads) and heads[-1].has_joined
        log = "" if began_well else quoted(folder.head_log)
        advice.note(f"its jobs on Slurm ended: {end.why}{log}")
