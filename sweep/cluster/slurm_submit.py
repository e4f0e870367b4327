"""Submission of a sweep to Slurm from a login node, and what is known there of its jobs.

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
from sweep.cluster.supervise import accept
from sweep.executors.autoscaling import unused_gpus
from sweep.executors.resources import ResourceClasses
from sweep.run.signals import stop_request
from sweep.slurm import queue, scripts
from sweep.slurm.folder import FOLDER, KnownJob, SlurmFolder
from sweep.slurm.slurm_yaml import SlurmYaml, read
from sweep.study import advice
from sweep.study.definition import Definition, load_definition, sweep_names
from sweep.study.definition import folder as sweep_folder
from sweep.study.lock import driver_of, driving_jobs
from sweep.study.opening import open_store
from trainables.code_version import code_version
from trainables.errors import Failure, Misuse
from trainables.machine import file_locks
from trainables.records.objects import ObjectStore

SUBMIT_S = 60.0  # that another submission of the sweep is waited for


def submit(file: Path, sent: Submission, say: Callable[[str], None]) -> str:
    """Store a sweep and submit its head job, or attach to it where it is driven.

    Returns:
        Who drives it, or is to.

    Raises:
        Misuse: as `sweep run` and `sweep resume` refuse, and where Slurm takes no such jobs.
        Failure: Slurm's controller does not answer.
    """
    given = read(file)
    storage = root_of(given)
    objects = open_store(storage)
    folder = SlurmFolder(storage, sent.name)
    folder.path.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(file_locks.held(folder.path / ".submit.lock", SUBMIT_S))
        except BlockingIOError:
            raise Failure(
                f"another `sweep submit` of {sent.name} has been at work for {SUBMIT_S:.0f} s. "
                "Try again when it is through."
            ) from None
        heads = living_heads(folder, given)
        if heads:
            driving_jobs.set({sent.name: job_in_words(heads[0], given)})
            accept(objects, replace(sent, driven_by=heads[0].id or heads[0].name), say)
            return f"job {driving_jobs.get()[sent.name]}"
        _refuse_shapes(given)
        known = stop_request(objects, sent.name)
        accept(objects, sent, say)
        _refuse_small_jobs(given, load_definition(objects, sent.name), sent, say)
        driver = driver_of(objects, sent.name)
        if driver is not None:
            return str(driver)
        folder.begin(
            {"slurm": given.to_json(), "submission": sent.to_json(), "known": known,
             "version": code_version(), "at_s": time.time()}
        )  # fmt: skip
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


def root_of(given: SlurmYaml) -> str:
    """The storage root of a slurm.yaml; data and cache are this process's from now on, too."""
    for name, value in (("SWEEP_DATA", given.data), ("SWEEP_CACHE", given.cache)):
        if value is not None:
            os.environ[name] = value
    return given.storage


def _refuse_shapes(given: SlurmYaml) -> None:
    """Raise Misuse, with Slurm's words, where it would take no such jobs."""
    with TemporaryDirectory() as folder:
        for kind in ("head", "worker"):
            try:
                scripts.try_out(Path(folder), given, kind)
            except queue.Refused as error:
                raise queue.Refused(f"{kind} in slurm.yaml: {error}") from error


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
    folder.settle(queue.listing(given.poll_s))
    living = [known for known in folder.jobs("head") if not known.is_over]
    return sorted(living, key=lambda known: not known.has_begun)


def tell_drivers(given: SlurmYaml, objects: ObjectStore) -> None:
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
        return name
    listed = queue.listing(given.poll_s)
    job = None if listed is None else next((j for j in listed.jobs if j.id == known.id), None)
    return f"{name}, {'in the queue' if job is None else job}"


def cancel_waiting(given: SlurmYaml, objects: ObjectStore, sweep: str) -> str:
    """Take a sweep's jobs out of the queue where none drives it; what was done, in words."""
    folder = SlurmFolder(objects.root, sweep)
    heads = living_heads(folder, given)
    if not heads or any(head.has_begun for head in heads):
        return ""
    folder.end_all("it was stopped", is_good=True)
    folder.cancel(living := [known for known in folder.jobs() if not known.is_over])
    names = ", ".join(known.id or known.name for known in living)
    return f"{sweep}: took job {names} out of the queue."


def last_problem(folder: SlurmFolder) -> str:
    """How the sweep's jobs ended, if not well; empty: they are at work, or all went well."""
    over = folder.over()
    if over is not None:
        return "" if over.is_good else over.why
    heads = folder.jobs("head")
    if heads and all(head.is_over for head in heads) and heads[-1].end is not None:
        return "" if heads[-1].end.is_good else heads[-1].end.why
    return ""
