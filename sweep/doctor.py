"""Checks that this machine can run a sweep; every failure says what to do."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from sweep.tracking_place import shown, sqlite_path, tracking_uri
from trainables.errors import BadData, Misuse, SweepError
from trainables.object_store import ObjectStore

if TYPE_CHECKING:
    from trainables.config import DataConfig

NEEDED_GB = 2.0  # of free disk: checkpoints of running arms, records, MLflow
DISTRIBUTION = "descent-sweep"
IMPORT_S = 120  # an import that takes longer is reported as a failure

Found = TypeVar("Found")  # what one data set is on disk, unread


@dataclass(frozen=True)
class Check:
    """One line of `sweep doctor`."""

    name: str
    passed: bool
    found: str
    advice: str = ""  # what to do when it failed


def checks(storage: str, mlflow: str | None, data: str | None) -> Iterator[Check]:
    """Every check, in the order in which a sweep would trip over them."""
    steps: list[Callable[[], Check]] = [
        _python,
        _packages,
        _device,
        _cores,
        lambda: _storage(storage),
        lambda: _disk(storage),
        _cache,
        lambda: _tracking(storage, mlflow),
        _ray,
    ]
    if data is not None:
        steps.append(lambda: _data(data))
    for step in steps:
        yield step()


def _python() -> Check:
    version = platform.python_version()
    passed = sys.version_info >= (3, 11)
    return Check("Python", passed, version, "Install Python 3.11 or newer.")


def _packages() -> Check:
    """Installed versions against the requirements of this package."""
    from packaging.requirements import Requirement

    advice = "Run `make setup`, or `pip install -e . -c constraints.txt`."
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
        return Check("torch", False, f"does not import: {error}", "Install it again: `make setup`.")
    if torch.cuda.is_available():
        return Check("torch", True, f"{torch.__version__}, {torch.cuda.get_device_name()}")
    return Check("torch", True, f"{torch.__version__}, no GPU: trains on the CPU")


def _cores() -> Check:
    cores = len(os.sched_getaffinity(0))
    return Check("cores", cores >= 1, f"{cores} for this process")


def _storage(storage: str) -> Check:
    objects = ObjectStore(storage)
    advice = "Give a folder you own with --storage or SWEEP_STORAGE."
    if not objects.is_local or Path(objects.root).exists():
        try:
            objects.check_writable()
        except SweepError as error:
            return Check("storage", False, str(error))
        return Check("storage", True, f"{objects.root} can be written")
    return _writable("storage", Path(objects.root), advice)


def _cache() -> Check:
    from trainables.datasets.cache import cache_root

    return _writable("cache", cache_root(), "Set SWEEP_CACHE to a folder you own.")


def _writable(name: str, folder: Path, advice: str) -> Check:
    """Whether ``folder`` can be written, or made; nothing stays behind."""
    place = _nearest(folder)
    probe = place / f".probe-{uuid4().hex}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return Check(name, False, f"{folder} cannot be written: {error}", advice)
    state = "can be written" if place == folder else "can be created"
    return Check(name, True, f"{folder} {state}")


def _nearest(folder: Path) -> Path:
    """The folder itself, or the closest one above it that exists."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def _disk(storage: str) -> Check:
    objects = ObjectStore(storage)
    if not objects.is_local:
        return Check("disk", True, "object storage: not measured")
    free_gb = shutil.disk_usage(_nearest(Path(objects.root))).free / 1e9
    advice = f"Free some space: a sweep wants {NEEDED_GB:g} GB to start with."
    return Check("disk", free_gb >= NEEDED_GB, f"{free_gb:.1f} GB free", advice)


def _tracking(storage: str, mlflow: str | None) -> Check:
    from sweep.tracking_client import experiment_id

    try:
        uri = tracking_uri(ObjectStore(storage).root, mlflow)
        file = sqlite_path(uri)
        if file is not None and not file.exists():
            return Check("MLflow", True, f"{shown(uri)} is made by the first sweep")
        experiment_id(uri, DISTRIBUTION)
    except SweepError as error:
        advice = "Start the server, or give another with --mlflow. Sweeps run without it too."
        return Check("MLflow", False, str(error), advice)
    return Check("MLflow", True, f"{shown(uri)} answers")


def _ray() -> Check:
    """In a process of its own: an import of Ray here would stay for nothing."""
    advice = "Install it again: `make setup`. `sweep run --where inline` works without it."
    command = [sys.executable, "-c", "import ray.tune; print(ray.__version__)"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_S)
    except subprocess.TimeoutExpired:
        return Check("Ray", False, f"did not import within {IMPORT_S} s", advice)
    if ran.returncode != 0:
        last = (ran.stderr.strip().splitlines() or ["no message"])[-1]
        return Check("Ray", False, f"does not import: {last}", advice)
    return Check("Ray", True, f"{ran.stdout.split()[-1]} imports")


def _data(folder: str) -> Check:
    """Whether some data set can be listed in the folder; nothing of it is decoded or read."""
    from trainables.datasets import text, video

    videos, problems = _listed(video.PUBLISHED, video.list_clips, folder)
    texts, more = _listed(text.PUBLISHED, text.list_text, folder)
    problems += more
    if not (videos or texts or problems):  # the user's own, which almost any folder could be
        videos, problems = _listed(["clips"], video.list_clips, folder)
    roots = [clips.root for clips in videos.values()] + [raw.root for raw in texts.values()]
    elsewhere = [p for p in problems if not any(root in p for root in roots)]
    wrong = elsewhere if roots else problems[:1]
    names: dict[str, list[str]] = {}
    for name, clips in videos.items():
        counts = f"{len(clips.train)} training and {len(clips.test)} test clips in {clips.root}"
        names.setdefault(counts, []).append(name)
    for name, raw in texts.items():
        names.setdefault(f"texts in {len(raw.listing)} files in {raw.root}", []).append(name)
    found = [f"{' or '.join(those)}: {counts}" for counts, those in names.items()]
    advice = "docs/data.md says how each data set must lie on disk."
    return Check("data", not wrong, "; ".join(found + wrong), advice)


def _listed(
    names: Iterable[str], reader: Callable[[DataConfig], Found], folder: str
) -> tuple[dict[str, Found], list[str]]:
    """What lies in the folder of those data sets, and what is wrong with others it looks like."""
    from trainables.config import DataConfig
    from trainables.datasets.layouts import OtherLayout

    fits, problems = {}, []
    for name in names:
        try:
            fits[name] = reader(DataConfig(name=name, folder=folder))
        except OtherLayout:
            continue
        except (BadData, Misuse) as error:  # it looks like this one, and something in it is wrong;
            problems.append(str(error))  # or it is another whose folders have the same names
    return fits, problems
