"""Environment of an arm's training: recorded, never part of its signature."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

from trainables.code_version import code_version
from trainables.plain import Json
from trainables.registry.find_plugins import installed

PACKAGES = (
    "descent-sweep", "torch", "numpy", "transformers", "peft", "av", "pillow", "ray", "optuna",
    "mlflow",
)  # fmt: skip

STACK_ROWS = "stack_rows"  # of the stack that an arm was trained in; missing: it was in none

_HERE = Path(__file__).resolve().parent


@functools.cache
def environment(device: str, processes: int = 1) -> dict[str, Json]:
    """Code, commit, dirty flag, versions, processor, GPU where one is used; None is unknown.

    ``code`` names the code where there is no git, as on the nodes of a cluster; with an arm goes
    ``training_code``, the digests of what trained it alone.

    ``plugins``, where there are any: package and version of all that are installed. ``processes``,
    where several train together: how many.
    """
    import torch

    on_gpu = device == "cuda" and torch.cuda.is_available()
    properties = torch.cuda.get_device_properties() if on_gpu else None
    plugins = installed()
    return {
        "code": code_version(),
        **source_commit(),
        "python": platform.python_version(),
        "packages": package_versions(),
        **({"plugins": plugins} if plugins else {}),
        **({"processes": processes} if processes > 1 else {}),
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "gpu": None if properties is None else properties.name,
        "gpu_memory_mb": None if properties is None else properties.total_memory // 2**20,
    }


def is_same_environment(one: Mapping[str, Json], other: Mapping[str, Json]) -> bool:
    """True if two are equal but for what is an arm's own, and what was before them."""
    apart = {"before": None, "sweep": None, STACK_ROWS: None}
    return {**one, **apart} == {**other, **apart}


def package_versions() -> dict[str, str | None]:
    """Installed versions of the packages that can move a number or a record."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions


@functools.cache
def source_commit() -> dict[str, Json]:
    """Git commit of this source tree, and whether it was dirty; None outside a checkout."""
    commit = _git(_HERE, "rev-parse", "HEAD")
    status = _git(_HERE, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if status is None else bool(status)}


def changed_since(commit: str, folder: Path = _HERE) -> list[str]:
    """Python files in ``folder`` that differ from those of a commit; none where git cannot tell."""
    return (_git(folder, "diff", "--relative", "--name-only", commit, "--", "*.py") or "").split()


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
