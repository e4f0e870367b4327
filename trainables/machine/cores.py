"""Cores that this process may use: affinity, quota, a batch job's share.

The kernel keeps a process to its affinity. A quota of its control group (a pod's limit, ``docker
--cpus``) lets it run on all cores, and stops it most of the time; a batch system without control
groups only says what the job asked for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

# Slurm sets the second one where no --cpus-per-task was asked for; then SGE, PBS and LSF.
SHARES = ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "NSLOTS", "NCPUS", "LSB_DJOB_NUMPROC")
# A quota counts by its period, and each of the two files of version 1 holds one of them.
KILLS = ("memory.events", "memory.oom_control")  # of version 2, and of version 1
V2, V1 = "cpu.max", ("cpu.cfs_quota_us", "cpu.cfs_period_us")


class Cores(NamedTuple):
    """A number of cores, and the reason why there are no more."""

    number: int
    why: str  # empty: the machine, or the affinity


def usable_cores() -> int:
    """The number of cores that this process may use, at least 1."""
    return counted().number


def counted(environment: Mapping[str, str] | None = None, proc: Path = Path("/proc/self")) -> Cores:
    """The lowest limit on this process's cores, and its name.

    ``environment`` are the batch system's variables, this process's unless given.
    """
    limits = [Cores(_by_affinity(), "")]
    if (quota := _quota(proc)) is not None:
        limits.append(Cores(max(1, math.ceil(quota)), f"a container's quota of {quota:g}"))
    given = os.environ if environment is None else environment
    shares = ((name, given.get(name, "")) for name in SHARES)
    job = next(((n, text) for n, text in shares if text.isdecimal() and int(text) > 0), None)
    if job is not None:
        limits.append(Cores(int(job[1]), f"{job[0]} is {job[1]}"))
    return min(limits, key=lambda cores: cores.number)


def memory_kills(proc: Path = Path("/proc/self")) -> int:
    """Count the processes that a memory limit of this one's control groups has killed."""
    lines = (line.split() for g in _groups(proc, "memory") for n in KILLS for line in _lines(g / n))
    return max((int(words[1]) for words in lines if words[:1] == ["oom_kill"]), default=0)


def _by_affinity() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # of Linux alone
        return os.cpu_count() or 1


def _quota(proc: Path) -> float | None:
    """The least quota, in cores, of this process's control groups; None without one."""
    return min((quota for folder in _groups(proc) for quota in _quotas(folder)), default=None)


def _groups(proc: Path, controller: str = "cpu") -> Iterator[Path]:
    """The folders of the process's control groups under a controller, with all above them.

    A container may see its own group as the root of what is mounted, whatever the group's name.
    """
    mounts = list(_mounts(proc))
    lines = (line.split(":", 2) for line in _lines(proc / "cgroup"))
    for _, controllers, name in (words for words in lines if len(words) == 3):
        for kind, options, root, place in mounts:
            is_v2 = kind == "cgroup2" and not controllers
            is_v1 = kind == "cgroup" and {controller} <= {*options} & {*controllers.split(",")}
            if not is_v2 and not is_v1:
                continue
            inside = Path(name)
            below = inside.relative_to(root) if inside.is_relative_to(root) else Path()
            folder = place / str(below).lstrip("/")
            yield from (folder, *(up for up in folder.parents if up.is_relative_to(place)))


def _mounts(proc: Path) -> Iterator[tuple[str, list[str], str, Path]]:
    """Kind, options, root and place of each mounted hierarchy of control groups."""
    for line in _lines(proc / "mountinfo"):
        before, _, after = line.partition(" - ")
        words, kinds = before.split(), after.split()
        if len(words) > 4 and kinds and kinds[0] in ("cgroup", "cgroup2"):
            yield kinds[0], kinds[-1].split(","), words[3], Path(words[4])


def _quotas(folder: Path) -> Iterator[float]:
    for words in (
        " ".join(_lines(folder / V2)).split(),
        [line.strip() for name in V1 for line in _lines(folder / name)],
    ):
        numbers = [int(word) for word in words if word.isdecimal()]  # "max" and -1: no quota
        if len(numbers) == 2 and all(numbers):
            yield numbers[0] / numbers[1]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, ValueError):
        return []
