"""Slurm's commands: sbatch, squeue, scancel, scontrol, sinfo; never sacct.

All of a user's sweeps below a storage share one list of jobs, asked for once in a while: sites end
accounts that ask squeue in a loop (https://slurm.schedmd.com/squeue.html, "Performance").
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sweep.slurm.jobs import KnownJob
from trainables.errors import Failure, Misuse
from trainables.machine.atomic_files import write_atomically
from trainables.plain import Plain

ANSWER_S = 30.0  # within which Slurm's controller answers, or is taken for away
# The controller may have done what it was asked for, or not: its answer was lost.
_LOST = re.compile(
    r"timed out|unable to contact|zero bytes|connection (?:refused|reset)"
    r"|communication connection failure|not responding|socket error",
    re.IGNORECASE,
)
# Room comes by itself: the user or the site has as many jobs as it may.
_FULL = re.compile(
    r"max\w*submit\w*|maximum number of .*jobs|job count limit|queue is full"
    r"|unable to accept job|resource temporarily unavailable",  # at MaxJobCount
    re.IGNORECASE,
)
# Of this environment, for no job: what Slurm says of another job, Ray of another cluster.
_NOT_FOR_JOBS = re.compile(r"(?:SLURMD?|SBATCH|SRUN|SQUEUE|SCANCEL|SCONTROL|RAY|PMIX?|SWEEP)_")
_KEPT = ("SLURM_CONF", "SWEEP_CACHE", "SWEEP_DATA", "SWEEP_PLUGINS", "RAY_TMPDIR")


# https://slurm.schedmd.com/job_reason_codes.html
MEANINGS = {
    "Resources": "it waits for nodes to be free",
    "Priority": "jobs of a higher priority come first",
    "Dependency": "it waits for another job to end",
    "BeginTime": "Slurm starts it a little later",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "PartitionDown": "the partition is down",
    "PartitionTimeLimit": "its time in slurm.yaml is more than the partition allows",
    "PartitionNodeLimit": "it asks for more nodes than the partition has",
    "QOSMaxJobsPerUserLimit": "you have as many jobs running as your qos allows",
    "QOSMaxGRESPerUser": "you hold as many GPUs as your qos allows",
    "QOSMaxCpuPerUserLimit": "you hold as many cores as your qos allows",
    "AssocGrpGRES": "your account holds as many GPUs as it may",
    "AssocGrpCpuLimit": "your account holds as many cores as it may",
    "AssocMaxJobsLimit": "you have as many jobs running as your account allows",
    "InvalidAccount": "the account is not yours: correct account in slurm.yaml",
    "InvalidQOS": "the qos is not yours: correct qos in slurm.yaml",
    "JobHeldUser": "you hold it: `scontrol release` lets it go",
    "JobHeldAdmin": "an administrator holds it",
}


class Refused(Misuse):
    """Slurm will not take such a job."""


class QueueFull(Failure):
    """Slurm takes no more jobs of this user for the moment."""


class NoAnswer(Failure):
    """Slurm's controller did not answer: it may have done what it was asked for."""


@dataclass(frozen=True)
class QueuedJob(Plain):
    """A job that Slurm has not ended yet."""

    id: str
    name: str
    state: str  # PENDING, RUNNING, COMPLETING, ...
    reason: str  # why it pends

    def __str__(self) -> str:
        state = self.state.lower()
        if self.state != "PENDING" or self.reason in ("", "None"):
            return state
        meaning = next((m for code, m in MEANINGS.items() if self.reason.startswith(code)), "")
        return f"{state} ({self.reason}{': ' if meaning else ''}{meaning})"


@dataclass(frozen=True)
class Listing(Plain):
    """All jobs of this user at one time."""

    at_s: float  # since 1970, by the clock here, before squeue was asked
    jobs: tuple[QueuedJob, ...]

    @property
    def ids(self) -> set[str]:
        """Ids of the jobs that have not ended."""
        return {job.id for job in self.jobs}

    def named(self, name: str) -> QueuedJob | None:
        """The job of this name, or None."""
        return next((job for job in self.jobs if job.name == name), None)


def submit(options: Sequence[str], script: Path) -> str:
    """Submit a script; the job's id.

    Raises:
        Refused: Slurm takes no such job; its words are in the message.
        QueueFull: it takes none for the moment.
        NoAnswer: whether it took it is not known.
    """
    ran = _run("sbatch", "--parsable", *options, str(script))
    if ran.returncode:
        raise _refusal(ran)
    # Filters and wrappers of a site may print lines of their own.
    id = re.search(r"^(\d+)(?:;\S*)?$", ran.stdout, re.MULTILINE)
    if id is None:
        raise NoAnswer(f"sbatch printed no job's id: {_words(ran.stdout)}")
    return id.group(1)


def try_out(options: Sequence[str], script: Path) -> str:
    """The answer of Slurm to such a job, which is not submitted. Raises as ``submit``."""
    ran = _run("sbatch", "--test-only", *options, str(script))
    if ran.returncode == 0:
        return _words(ran.stderr) or _words(ran.stdout)
    raise _refusal(ran)


@dataclass(frozen=True)
class Partition:
    """A partition as sinfo describes it; nodes may differ."""

    name: str
    is_default: bool
    time: str  # the most that a job may ask for
    cpus: str  # of a node; 8+: some have more
    memory_mb: str

    def __str__(self) -> str:
        nodes = f"nodes of {self.cpus} cores and {self.memory_mb} MB"
        return f"partition {self.name} has {nodes}, for {self.time} at most"


def partitions() -> list[Partition]:
    """The partitions that this user may see; empty where Slurm does not say."""
    try:
        ran = _run("sinfo", "--noheader", "--format=%P|%l|%c|%m")
    except (NoAnswer, Misuse):
        return []
    rows = [line.split("|") for line in ran.stdout.splitlines()]
    return [
        Partition(row[0].rstrip("*"), row[0].endswith("*"), *(word.strip() for word in row[1:]))
        for row in rows
        if len(row) == 4
    ]


def cancel(jobs: Sequence[KnownJob]) -> None:
    """End jobs, or take them out of the queue; those that have ended are passed over."""
    with suppress(NoAnswer):
        for job in jobs:  # by name, too: another cluster has jobs of the same numbers
            _run("scancel", "--quiet", f"--name={job.name}", *([job.id] if job.id else []))


def end_of(job: str) -> str:
    """The state of a job that has ended a moment ago, like OUT_OF_MEMORY; empty: not known."""
    with suppress(NoAnswer):
        ran = _run("scontrol", "--oneliner", "show", "job", job)
        matched = re.search(r"\bJobState=(\w+)", ran.stdout)
        return matched.group(1) if matched else ""
    return ""


def listing(storage: Path, every_s: float) -> Listing | None:
    """The user's jobs, from a list that all sweeps below a storage share; None: it is not known.

    Args:
        storage: the storage root, which all nodes see.
        every_s: least time between two questions to Slurm, by whoever asks.
    """
    global _last_s
    try:
        file = storage / ".slurm" / f"squeue-{cluster_name()}-{os.getuid()}.json"
    except (NoAnswer, Misuse):
        return None
    known, now_s = _stored(file), time.time()
    is_due = known is None or not 0 <= now_s - known.at_s < every_s
    # By this process, too: files may not be written for a while.
    if is_due and time.monotonic() >= _last_s + every_s and _may_ask(file, every_s):
        _last_s = time.monotonic()
        with suppress(NoAnswer, Misuse, OSError):
            known = _fresh()
            write_atomically(file, json.dumps(known.to_json()).encode())
    return known


_last_s = -math.inf  # when this process last asked


@cache
def cluster_name() -> str:
    """Slurm's name of this cluster: one home may be that of several. Raises NoAnswer."""
    named = os.environ.get("SLURM_CLUSTER_NAME", "")
    if named:
        return named
    ran = _run("scontrol", "show", "config")
    matched = re.search(r"^ClusterName\s*=\s*(\S+)", ran.stdout, re.MULTILINE)
    if matched is None:
        raise NoAnswer(f"scontrol names no cluster: {_words(ran.stderr)}")
    return matched.group(1)


def _fresh() -> Listing:
    at_s = time.time()
    ran = _run("squeue", "--me", "--all", "--noheader", "--format=%i|%j|%T|%r")
    if ran.returncode:
        raise NoAnswer(f"squeue does not answer: {_words(ran.stderr)}")
    rows = [line.split("|", 3) for line in ran.stdout.splitlines()]
    jobs = [QueuedJob(*(word.strip() for word in row)) for row in rows if len(row) == 4]
    return Listing(at_s, tuple(jobs))


def _stored(file: Path) -> Listing | None:
    with suppress(OSError, ValueError, TypeError, LookupError):
        plain = json.loads(file.read_text())
        return Listing(plain["at_s"], tuple(QueuedJob(**job) for job in plain["jobs"]))
    return None


def _may_ask(file: Path, every_s: float) -> bool:
    """True for one of several processes, once in a while: its mark's age is the last question's."""
    mark = file.with_suffix(".asked")
    with suppress(OSError):
        mark.parent.mkdir(parents=True, exist_ok=True)
        if mark.exists() and 0 <= time.time() - mark.stat().st_mtime < every_s:
            return False
        mark.touch()
    return True


def _run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            env=job_environment(os.environ),
        )
    except FileNotFoundError as error:
        raise Misuse(
            f"{program} is not installed here. Give this command on a login node of the cluster, "
            "where Slurm's commands are; in a container, bind them (docs/slurm.md)."
        ) from error
    except subprocess.TimeoutExpired as error:
        # Bytes, whatever was asked for: what was read until then is not decoded.
        partial = _words(bytes(error.stderr or b"").decode(errors="replace"))
        if _FULL.search(partial):  # it tries again and again, and has submitted nothing
            raise QueueFull(f"Slurm takes no more jobs now: {partial}") from error
        raise NoAnswer(f"{program} has not answered within {ANSWER_S:.0f} s.") from error


def job_environment(here: Mapping[str, str]) -> dict[str, str]:
    """This environment as a job may have it, without what is about other jobs or clusters."""
    return {n: v for n, v in here.items() if n in _KEPT or not _NOT_FOR_JOBS.match(n)}


def _refusal(ran: subprocess.CompletedProcess[str]) -> Misuse | Failure:
    words = _words(ran.stderr) or f"exit code {ran.returncode}"
    if _LOST.search(words):
        return NoAnswer(f"Slurm's controller does not answer: {words}")
    if _FULL.search(words):
        return QueueFull(f"Slurm takes no more of your jobs now: {words}")
    return Refused(f"Slurm refuses such a job: {words}")


def _words(text: str) -> str:
    """Slurm's messages in one line, without the names of its programs."""
    lines = [re.sub(r"^\w+: (?:error: )?", "", line).strip() for line in text.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))
