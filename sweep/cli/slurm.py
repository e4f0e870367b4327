"""What verbs do with a slurm.yaml in the place of a cluster's address."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.options import given_storage
from sweep.slurm.folder import SlurmFolder
from sweep.slurm.slurm_yaml import SlurmYaml, read
from sweep.study.advice import ASKED_FROM, SEES_STORAGE, note, place
from sweep.study.opening import find_sweep, open_store
from trainables.errors import Misuse

if TYPE_CHECKING:  # numpy and pyarrow
    from sweep.cluster.submission import Submission
    from trainables.records.objects import ObjectStore

FOLLOW_S = 1.0
SETTLE_LOOKS = 15  # of FOLLOW_S, between two looks whether anything drives the sweep


def root_of(file: str) -> str:
    """The storage of a slurm.yaml; verbs of this process know what its jobs drive from now on."""
    from sweep.cluster import slurm_submit

    given = _given(file)
    root = slurm_submit.root_of(given)
    os.environ |= {ASKED_FROM: place(file, None), SEES_STORAGE: "1"}
    if Path(root).is_dir():
        slurm_submit.tell_drivers(given, open_store(root))
    return root


def store_of(file: str) -> ObjectStore:
    """The store of a slurm.yaml."""
    return open_store(root_of(file))


def submit(file: str, sent: Submission) -> str:
    """Submit a sweep; who drives it."""
    from sweep.cluster import slurm_submit

    return slurm_submit.submit(Path(file), sent, note)


def cancel_waiting(file: str, objects: ObjectStore, name: str) -> str:
    """Take a sweep's jobs out of the queue where none has begun; what was done, in words."""
    from sweep.cluster import slurm_submit

    return slurm_submit.cancel_waiting(_given(file), objects, name)


def tell_problem(storage: str, name: str) -> None:
    """Say on standard error how the sweep's jobs ended, if not well."""
    from sweep.cluster import slurm_submit

    if problem := slurm_submit.last_problem(SlurmFolder(storage, name)):
        note(f"its jobs on Slurm ended: {problem}")


def print_log(file: str, storage: str, name: str, *, follow: bool) -> None:
    """Print the log that a sweep's head jobs write, and go on until none is left to write it."""
    from sweep.cluster import slurm_submit

    objects = open_store(storage)
    find_sweep(objects, name)
    folder = SlurmFolder(objects.root, name)
    log, given = folder.head_log, _given(file)
    if not folder.path.exists():
        raise Misuse(f"{name} was not submitted to Slurm: it has no job whose log could be shown.")
    if not log.exists():
        heads = slurm_submit.living_heads(folder, given)
        job = slurm_submit.job_in_words(heads[0], given) if heads else ""
        note(f"no head job of {name} has begun" + (f": job {job}." if job else "."))
        if not follow or not heads:
            return
    position = looks = 0
    is_last = False
    while True:
        if log.exists():
            with log.open(errors="replace") as lines:
                lines.seek(position)
                click.echo(lines.read(), nl=False)
                position = lines.tell()
        if not follow or is_last:
            return
        looks += 1
        if looks % SETTLE_LOOKS == 0 or folder.over() is not None:
            is_last = not slurm_submit.living_heads(folder, given)
        time.sleep(FOLLOW_S)


def _given(file: str) -> SlurmYaml:
    given, named = read(file), given_storage()
    if named is not None and Path(named).expanduser() != Path(given.storage):
        raise Misuse(
            f"--storage must be left out with {file}, which names {given.storage}, got {named}."
        )
    return given
