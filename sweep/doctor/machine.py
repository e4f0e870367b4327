"""Checks of this machine before a sweep; every failure says what to do."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from sweep.doctor.check import Check, last_line, nearest, run_python, writable
from sweep.doctor.data import Scope, folder_check, need_check
from sweep.doctor.installed import own_files
from sweep.tracking.address import shown, sqlite_path, tracking_uri
from trainables.code_version import DISTRIBUTION
from trainables.errors import SweepError
from trainables.machine import file_locks
from trainables.machine.cores import counted
from trainables.records.objects import ObjectStore

NEEDED_GB = 2.0  # of free disk: checkpoints of running arms, records, MLflow; Ray's logs
IMPORT_S = 120  # an import that takes longer is reported as a failure


def checks(storage: str, scope: Scope) -> Iterator[Check]:
    """Every check of this machine, in the order in which a sweep would trip over them."""
    is_new = sys.version_info >= (3, 11)
    yield Check("Python", is_new, platform.python_version(), "Install Python 3.11 or newer.")
    yield packages()
    yield own_files(_reinstall())
    yield _device()
    yield cores()
    yield storage_check(storage)
    yield disk(storage)
    yield cache()
    yield tracking(storage, scope.mlflow)
    yield _ray()
    if scope.folder is not None:
        yield folder_check(scope.folder)
    yield from map(need_check, scope.needs)


def cores() -> Check:
    """How many this process may use, and what keeps it to so few."""
    number, why = counted()
    return Check("cores", True, f"{number} for this process" + (f": {why}" if why else ""))


def _reinstall() -> str:
    """What installs this package and what it needs again, from where it came."""
    checkout = Path(__file__).parents[2]
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    if (checkout / "Makefile").is_file():
        place = shlex.quote(str(checkout))
        return f"Install it again: `make -C {place} setup`, or `{pip} -e {place}`."
    return f"Install it again: `{pip} --force-reinstall`, with the wheel that this came from."


def packages() -> Check:
    """Installed versions against the requirements of this package."""
    from packaging.requirements import Requirement

    advice = _reinstall()
    try:
        texts = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return Check("packages", False, f"{DISTRIBUTION} is not installed", advice)
    wrong = []
    needed = [Requirement(text) for text in texts]
    needed = [r for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    for requirement in needed:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} {version} is not {requirement.specifier}")
    found = "; ".join(wrong) or f"{len(needed)} requirements met"
    return Check("packages", not wrong, found, advice)


def _device() -> Check:
    try:
        import torch
    except Exception as error:  # a broken installation fails in many ways
        return Check("torch", False, f"does not import: {error}", _reinstall())
    if torch.cuda.is_available():
        return Check("torch", True, f"{torch.__version__}, {torch.cuda.get_device_name()}")
    return Check("torch", True, f"{torch.__version__}, no GPU: trains on the CPU")


def storage_check(storage: str) -> Check:
    """Whether the storage root can be written; nothing stays behind."""
    objects = ObjectStore(storage)
    advice = "Give a folder you own with --storage or SWEEP_STORAGE."
    if not objects.is_local or Path(objects.root).exists():
        try:
            objects.check_writable()
        except SweepError as error:
            return Check("storage", False, str(error))
        return Check("storage", True, f"{objects.root} can be written{_locks(objects)}")
    return writable("storage", Path(objects.root), advice)


def _locks(objects: ObjectStore) -> str:
    """What kind of file system it is where drivers know each other by signs of life."""
    if not objects.is_local:
        return ""
    root = Path(objects.root)
    kind = file_locks.file_system(root) or "a file system"
    if not file_locks.has_locks(root):
        return f"; {kind} without locks: drivers know each other by a heartbeat every 15 s"
    if file_locks.binds_here_alone(root):
        return f"; locks on {kind} bind only this machine: drivers write heartbeats, too"
    return ""


def cache() -> Check:
    """Whether the folder that data sets are decoded into can be written."""
    from trainables.fetching.cache import cache_root

    return writable("cache", cache_root(), "Set SWEEP_CACHE to a folder you own.")


def disk(storage: str) -> Check:
    """Free space where Ray keeps its sessions, and below the storage root if it is a folder."""
    objects = ObjectStore(storage)
    rays = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    folders = [Path(rays).absolute()]  # its sessions: logs, and objects that memory does not hold
    if objects.is_local:
        folders.append(Path(objects.root))
    places = {place.stat().st_dev: place for place in map(nearest, folders)}  # one of each disk
    free_gb = {place: shutil.disk_usage(place).free / 1e9 for place in places.values()}
    found = ", ".join(f"{gb:.1f} GB free at {place}" for place, gb in free_gb.items())
    advice = f"Free some space: a sweep wants {NEEDED_GB:g} GB to start with."
    return Check("disk", min(free_gb.values()) >= NEEDED_GB, found, advice)


def tracking(storage: str, mlflow: str | None) -> Check:
    """Whether MLflow answers, and takes what is written, where sweeps are tracked."""
    from sweep.tracking.client import NO_LOCKS, OtherSchema, takes_writes, without_locks

    without = "Sweeps run without it too; `sweep sync NAME` sends what it missed."
    try:
        uri = tracking_uri(ObjectStore(storage).root, mlflow)
        file = sqlite_path(uri)
        if without_locks(uri):
            return Check("MLflow", False, shown(uri), f"{NO_LOCKS} {without}")
        if file is not None and not file.exists():
            return Check("MLflow", True, f"{shown(uri)} is made by the first sweep")
        written = takes_writes(uri)
    except OtherSchema as error:
        return Check("MLflow", False, str(error), without)
    except SweepError as error:
        advice = f"Start the server, free its disk, or give another with --mlflow. {without}"
        return Check("MLflow", False, str(error), advice)
    found = f"{shown(uri)} answers" + (" and can be written" if written else "")
    return Check("MLflow", True, found)


def _ray() -> Check:
    """In a process of its own: an import of Ray here would stay for nothing."""
    advice = f"{_reinstall()} `sweep run --where inline` works without it."
    ran = run_python("import ray.tune; print(ray.__version__)", wait_s=IMPORT_S)
    if ran is None:
        return Check("Ray", False, f"did not import within {IMPORT_S} s", advice)
    if ran.returncode != 0:
        return Check("Ray", False, f"does not import: {last_line(ran.stderr)}", advice)
    return Check("Ray", True, f"{ran.stdout.split()[-1]} imports")
