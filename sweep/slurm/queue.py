"""Slurm's commands: sbatch, squeue, scancel, scontrol; never sacct, which many sites lack.

All of a user's sweeps on a machine share one list of jobs, asked for once in a while: sites end
accounts that ask squeue in a loop (https://slurm.schedmd.com/squeue.html, "Performance").
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from trainables.errors import Failure, Misuse
from trainables.machine.atomic_files import write_atomically
from trainables.plain import Plain

ANSWER_S = 30.0  # within which Slurm's controller answers, or is taken for away
# The controller may have done what it was asked for, or not: its answer was lost.
_LOST = re.compile(
    r"timed out|unable to contact|zero bytes|temporarily unable|connection (?:refused|reset)"
    r"|communication connection failure|not responding|socket",
    re.IGNORECASE,
)
# Room comes by itself: the user or the site has as many jobs as it may.
_FULL = re.compile(
    r"submit ?limit|maxsubmit|maximum number of .*jobs|job (?:count )?limit|queue is full",
    re.IGNORECASE,
)
# Of this environment, for no job: what Slurm says of another job, Ray of another cluster.
_NOT_FOR_JOBS = re.compile(r"(?:SLURM|SLURMD|SBATCH|SRUN|RAY|PMIX?|SWEEP)_")
_KEPT = ("SLURM_CONF", "SWEEP_CACHE", "SWEEP_DATA", "SWEEP_PLUGINS", "RAY_TMPDIR")


# https://slurm.schedmd.com/job_reason_codes.html
MEANINGS = {
    "Resources": "it waits for nodes to be free",
    "Priority": "jobs of a higher priority come first",
    "Dependency": "it waits for another job to end",
    "BeginTime": "Slurm starts it a little later",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "PartitionDown": "the partition is down",
    "PartitionTimeLimit": "its time is more than the partition allows: lower worker.time",
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
    if ran.returncode == 0:
        return ran.stdout.strip().splitlines()[-1].partition(";")[0]
    raise _refusal(ran)


def try_out(options: Sequence[str], script: Path) -> str:
    """What Slurm says of such a job, which is not submitted. Raises as ``submit``."""
    ran = _run("sbatch", "--test-only", *options, str(script))
    if ran.returncode == 0:
        return _words(ran.stderr) or _words(ran.stdout)
    raise _refusal(ran)


def cancel(ids: Sequence[str]) -> None:
    """End jobs, or take them out of the queue; those that have ended are passed over."""
    if ids:
        with suppress(NoAnswer):
            _run("scancel", "--quiet", *ids)


def signal_job(job: str, name: str) -> None:
    """Send a signal to all processes of a job, its batch script's too."""
    with suppress(NoAnswer):
        _run("scancel", "--quiet", "--full", f"--signal={name}", job)


def end_of(job: str) -> str:
    """The state of a job that has ended a moment ago, like OUT_OF_MEMORY; empty: not known."""
    with suppress(NoAnswer):
        ran = _run("scontrol", "--oneliner", "show", "job", job)
        matched = re.search(r"\bJobState=(\w+)", ran.stdout)
        return matched.group(1) if matched else ""
    return ""


def listing(every_s: float, *, since_s: float = 0.0) -> Listing | None:
    """The user's jobs, from a list that all sweeps share; None while there is none to be had.

    Args:
        every_s: least time between two questions to Slurm, by whoever asks.
        since_s: a list from before this time, since 1970, will not do.
    """
    file = _shared_file()
    known = _stored(file)
    now_s = time.time()
    is_due = known is None or not 0 <= now_s - known.at_s < every_s
    if is_due and _may_ask(file.with_suffix(".asked"), every_s):
        with suppress(NoAnswer):
            known = _asked()
            with suppress(OSError):  # a full home: whoever asks next has waited as long
                write_atomically(file, json.dumps(known.to_json()).encode())
    return known if known is not None and known.at_s >= since_s else None


def _asked() -> Listing:
    at_s = time.time()
    ran = _run("squeue", "--me", "--noheader", "--format=%i|%j|%T|%r")
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


def _may_ask(mark: Path, every_s: float) -> bool:
    """True for one of several processes, once in a while: its mark's age is the last question's."""
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        if mark.exists() and 0 <= time.time() - mark.stat().st_mtime < every_s:
            return False
        mark.touch()
    except OSError:  # no home: then each asks for itself
        return True
    return True


def _shared_file() -> Path:
    """The list's file: one a user and a cluster, in the home that all nodes see."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    of = sha256(os.environ.get("SLURM_CONF", "").encode()).hexdigest()[:12]
    return cache / "descent-sweep" / f"squeue-{of}.json"


def _run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            env=job_environment(os.environ),
        )
    except FileNotFoundError as error:
        raise Misuse(
            f"{program} is not installed here. Give this command on a login node of the cluster, "
            "where Slurm's commands are."
        ) from error
    except subprocess.TimeoutExpired as error:
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
