"""Checks of a Slurm cluster from its login node, before anything queues."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from sweep.doctor import machine
from sweep.doctor.check import Check, check_writable, nearest_folder
from sweep.doctor.data import check_folder, check_requirement
from sweep.doctor.scope import Scope
from sweep.slurm import queue, scripts
from sweep.slurm.jobs import Kind
from sweep.slurm.slurm_yaml import SlurmYaml, read
from trainables.errors import SweepError
from trainables.fetching.remote_folders import is_address
from trainables.machine.file_locks import binds_here_alone, has_locks

PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol")


def checks(file: str, scope: Scope) -> Iterator[Check]:
    """Every check, in the order in which a sweep would trip over them; Misuse of a wrong file."""
    given = read(file)
    yield Check("slurm.yaml", True, f"{file}: up to {given.worker.most} worker jobs")
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    yield Check(
        "Slurm's commands",
        not missing,
        f"not installed: {', '.join(missing)}" if missing else "are here",
        "Give this command on a login node of the cluster.",
    )
    if missing:
        return
    kinds: tuple[Kind, ...] = ("head", "worker")
    for kind in kinds:
        yield check_shape(given, kind)
    yield check_python(given)
    storage = Path(given.storage)
    yield check_writable(
        "storage", storage, "Name a folder of yours on the shared file system as storage."
    )
    yield check_locks(nearest_folder(storage))
    if given.data is not None and not is_address(given.data):
        there = Path(given.data).is_dir()
        finding = given.data if there else f"{given.data} is no folder"
        yield Check("data", there, finding, "Correct data in slurm.yaml.")
    yield machine.check_disk(given.storage)
    yield machine.check_packages()
    yield machine.check_tracking(given.storage, scope.mlflow)
    if scope.folder is not None:
        yield check_folder(scope.folder)
    yield from map(check_requirement, scope.requirements)


def check_shape(given: SlurmYaml, kind: Kind) -> Check:
    """Check that Slurm would take a job of this kind; nothing is submitted."""
    name = f"{kind} job"
    with TemporaryDirectory() as folder:
        try:
            answer = scripts.try_out(Path(folder), given, kind)
        except queue.QueueFull as error:
            return Check(name, True, f"{error}; submit again when one of your jobs has ended")
        except SweepError as error:
            advice = f"Correct {kind} in slurm.yaml: `sinfo -o '%P %l %c %m'` shows what there is."
            return Check(name, False, str(error), advice)
    return Check(name, True, f"Slurm would take it: {answer}")


def check_python(given: SlurmYaml) -> Check:
    """Check that the Python of the jobs has this version, after the lines of setup."""
    try:
        return Check("Python of jobs", True, scripts.try_python(given))
    except SweepError as error:
        advice = "Correct setup, container or python in slurm.yaml."
        return Check("Python of jobs", False, str(error), advice)


def check_locks(storage: Path) -> Check:
    """Tell how the storage keeps two drivers apart; never a failure."""
    if not has_locks(storage):
        return Check("locks", True, "the storage has none: drivers are kept apart by a heartbeat")
    if binds_here_alone(storage):
        how = "bind one machine alone, by its mount options: a heartbeat is kept as well"
        return Check("locks", True, how)
    return Check("locks", True, "the storage has them")
