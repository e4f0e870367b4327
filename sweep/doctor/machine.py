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

from sweep.doctor.check import Check, check_writable, last_line, nearest_folder, run_python
from sweep.doctor.data import check_folder, check_requirement
from sweep.doctor.scope import Scope
from sweep.tracking.address import NO_LOCKS, shown, sqlite_path, tracking_uri, without_locks
from trainables.code_version import DISTRIBUTION
from trainables.errors import SweepError
from trainables.fetching.cache import cache_root
from trainables.machine import cores
from trainables.machine.file_locks import binds_here_alone, has_locks
from trainables.records.objects import ObjectStore

NEEDED_GB = 2.0  # of free disk: checkpoints of running arms, records, MLflow; Ray's logs
IMPORT_S = 120  # an import that takes longer is reported as a failure
OWN_FOLDERS = ("sweep", "search_spaces", "trainables", "trainables_testing")


def checks(storage: str, scope: Scope) -> Iterator[Check]:
    """Every check of this machine, in the order in which a sweep would trip over them."""
    yield Check("Python", True, platform.python_version())  # an older one imports none of this
    yield check_packages()
    yield check_own_files()
    yield _check_torch()
    yield count_cores()
    yield check_storage(storage)
    yield check_disk(storage)
    yield check_cache()
    yield check_tracking(storage, scope.mlflow)
    yield _check_ray()
    if scope.folder is not None:
        yield check_folder(scope.folder)
    yield from map(check_requirement, scope.requirements)


def count_cores() -> Check:
    """The number of cores that this process may use, and what limits it; never a failure."""
    number, reason = cores.counted()
    return Check("cores", True, f"{number} for this process" + (f": {reason}" if reason else ""))


def _reinstall_advice() -> str:
    """The command that installs this package and its requirements again, from where it came."""
    checkout = Path(__file__).parents[2]
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    if (checkout / "Makefile").is_file():
        place = shlex.quote(str(checkout))
        return f"Install it again: `make -C {place} setup`, or `{pip} -e {place}`."
    return f"Install it again: `{pip} --force-reinstall`, with the wheel that this came from."


def check_packages() -> Check:
    """Check installed versions against the requirements of this package."""
    from packaging.requirements import Requirement

    advice = _reinstall_advice()
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
    finding = "; ".join(wrong) or f"{len(needed)} requirements met"
    return Check("packages", not wrong, finding, advice)


def check_own_files() -> Check:
    """Check that no other distribution brings a folder of this package's names.

    A package on PyPI is called sweep, too: of two that are installed, the later one silently
    replaces files of the other, and removing either removes both.
    """
    distributions = importlib.metadata.packages_distributions()
    claims = {
        (name, folder)
        for folder in OWN_FOLDERS
        for name in distributions.get(folder, ())
        if name.lower().replace("_", "-") != DISTRIBUTION
    }
    if not claims:
        return Check("own files", True, "no other package has folders of these names")
    others, folders = (sorted(set(names)) for names in zip(*claims, strict=True))
    return Check(
        "own files",
        False,
        f"{', '.join(others)} is installed too, with a folder {', '.join(folders)}",
        f"`pip uninstall {' '.join(others)}`, or use an environment for each. Then: "
        f"{_reinstall_advice()}",
    )


def _check_torch() -> Check:
    try:
        import torch
    except Exception as error:  # a broken installation fails in many ways
        return Check("torch", False, f"does not import: {error}", _reinstall_advice())
    if torch.cuda.is_available():
        return Check("torch", True, f"{torch.__version__}, {torch.cuda.get_device_name()}")
    return Check("torch", True, f"{torch.__version__}, no GPU: trains on the CPU")


def check_storage(storage: str) -> Check:
    """Check that the storage root can be written; nothing stays behind."""
    objects = ObjectStore(storage)
    advice = "Give a folder you own with --storage or SWEEP_STORAGE."
    if objects.is_local and not Path(objects.root).exists():
        return check_writable("storage", Path(objects.root), advice)
    try:
        objects.check_writable()
    except SweepError as error:
        return Check("storage", False, str(error))
    finding = f"{objects.root} can be written"
    root = Path(objects.root)
    if objects.is_local and (not has_locks(root) or binds_here_alone(root)):
        finding += "; it has no locks between machines: drivers know each other by a heartbeat"
    return Check("storage", True, finding)


def check_cache() -> Check:
    """Check that data sets can be decoded here, and that there is room for one."""
    advice = (
        f"Set SWEEP_CACHE to a folder you own with {NEEDED_GB:g} GB free; on a cluster's node, "
        "where `ray start` runs."
    )
    folder = cache_root()
    check = check_writable("cache", folder, advice)
    if not check.passed:
        return check
    free_gb = shutil.disk_usage(nearest_folder(folder)).free / 1e9
    finding = f"{check.finding}; {free_gb:.0f} GB are free"
    return Check("cache", free_gb >= NEEDED_GB, finding, advice)


def check_disk(storage: str) -> Check:
    """Check free space where Ray keeps its sessions, and below the storage root if local."""
    objects = ObjectStore(storage)
    sessions = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    folders = [Path(sessions).absolute()]  # of logs, and objects that memory does not hold
    if objects.is_local:
        folders.append(Path(objects.root))
    by_disk = {place.stat().st_dev: place for place in map(nearest_folder, folders)}
    free_gb = {place: shutil.disk_usage(place).free / 1e9 for place in by_disk.values()}
    finding = ", ".join(f"{gb:.1f} GB free at {place}" for place, gb in free_gb.items())
    advice = f"Free some space: a sweep needs {NEEDED_GB:g} GB to start with."
    return Check("disk", min(free_gb.values()) >= NEEDED_GB, finding, advice)


def check_tracking(storage: str, mlflow: str | None) -> Check:
    """Check that MLflow answers and accepts writes where sweeps are tracked."""
    from sweep.tracking.client import takes_writes
    from sweep.tracking.database import OtherSchema

    without = "Sweeps run without MLflow, too; `sweep sync NAME` sends what it missed."
    try:
        uri = tracking_uri(ObjectStore(storage).root, mlflow)
        file = sqlite_path(uri)
        if without_locks(uri):
            return Check("MLflow", False, shown(uri), f"{NO_LOCKS} {without}")
        if file is not None and not file.exists():
            return Check("MLflow", True, f"{shown(uri)} is created by the first sweep")
        is_written = takes_writes(uri)
    except OtherSchema as error:
        return Check("MLflow", False, str(error), without)
    except SweepError as error:
        advice = f"Start the server, free its disk, or give another with --mlflow. {without}"
        return Check("MLflow", False, str(error), advice)
    finding = f"{shown(uri)} answers" + (" and can be written" if is_written else "")
    return Check("MLflow", True, finding)


def _check_ray() -> Check:
    """Check that Ray imports, in a process of its own: here the import would stay in memory."""
    advice = f"{_reinstall_advice()} `sweep run --where inline` works without it."
    ran = run_python("import ray.tune; print(ray.__version__)", timeout_s=IMPORT_S)
    if ran is None:
        return Check("Ray", False, f"did not import within {IMPORT_S} s", advice)
    if ran.returncode != 0:
        return Check("Ray", False, f"does not import: {last_line(ran.stderr)}", advice)
    return Check("Ray", True, f"{ran.stdout.split()[-1]} imports")


def check_notification(target: str) -> Check:
    """Check that a test notification is delivered. Misuse when ``target`` is no URL or command."""
    from sweep.run.events import Event
    from sweep.run.notifications import Undelivered, check_target, deliver, redact

    try:
        deliver(
            check_target(target),
            Event("test", "none", "`sweep doctor` tests this notification target."),
        )
    except Undelivered as error:
        return Check("notify", False, str(error), "Correct the address or the command.")
    return Check("notify", True, f"{redact(target)} accepted a test notification")
