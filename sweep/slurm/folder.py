"""A sweep's jobs, as files below its folder: what was submitted, what has begun, what has ended.

sweeps/NAME/.slurm/sweep.json             what is driven: the file, the submission's options
                   token                  of its Ray, for this user alone
                   head.json              the head that drives now
                   over.json              how it ended; no job goes on after this
                   jobs/JOB.job.json      a submission: stored before sbatch is asked
                        JOB.claim.json    the job has begun, or is not to begin: who comes first
                        JOB.joined        its Ray node was seen by the driver
                        JOB.leaving       it takes no more arms
                        JOB.end.json      how it ended
                   logs/

A job is known by its name, which is random. Slurm's answer may be lost: a job that it has is found
by its name, and one that was given up for lost ends at once when it comes after all.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from sweep.slurm import queue
from sweep.slurm.queue import Listing
from sweep.slurm.slurm_yaml import SlurmYaml
from sweep.study.definition import folder as sweep_folder
from trainables.errors import Failure, Misuse, StoreError
from trainables.machine.atomic_files import write_atomically
from trainables.plain import Json, Plain

Kind = Literal["head", "worker"]
FOLDER = ".slurm"
CLOCKS_S = 5.0  # that clocks of two machines may differ by
JOIN_FAILURES = 3  # jobs in a row that ended before they joined: others would, too
LOG_LINES = 4  # of such a job's log, in a message
LATE_S = 120.0  # a submission without an answer and a job is given up after this


@dataclass(frozen=True)
class SubmittedJob(Plain):
    """A job that was submitted, or is about to be."""

    name: str
    kind: Kind
    at_s: float  # since 1970
    id: str = ""  # Slurm's; empty: its answer is not here (yet)


@dataclass(frozen=True)
class Claim(Plain):
    """Who came first: the job itself, or whoever gave it up."""

    has_begun: bool
    id: str = ""
    host: str = ""
    at_s: float = 0.0


@dataclass(frozen=True)
class Head(Plain):
    """The head that drives a sweep."""

    owner: str  # this run of a head: a name that no other has
    job: str  # its job's name
    id: str
    host: str
    address: str = ""  # of its Ray, HOST:PORT; empty: it starts


@dataclass(frozen=True)
class JobEnd(Plain):
    """How a job ended."""

    why: str
    is_good: bool  # as it should
    at_s: float = 0.0


@dataclass(frozen=True)
class KnownJob:
    """All that is known of a job."""

    job: SubmittedJob
    claim: Claim | None
    has_joined: bool
    is_leaving: bool
    end: JobEnd | None

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.name

    @property
    def id(self) -> str:
        """Slurm's id; empty: not known."""
        return self.job.id or (self.claim.id if self.claim else "")

    @property
    def has_begun(self) -> bool:
        """True when its script has begun."""
        return self.claim is not None and self.claim.has_begun

    @property
    def is_over(self) -> bool:
        """True when it has ended, or is not to begin."""
        return self.end is not None or (self.claim is not None and not self.claim.has_begun)


class SlurmFolder:
    """The files of one sweep's jobs."""

    def __init__(self, storage: str, sweep: str) -> None:
        self.storage, self.sweep = storage, sweep
        self.path = Path(storage, sweep_folder(sweep), FOLDER)
        self._jobs = self.path / "jobs"

    @property
    def token(self) -> Path:
        """The file of its Ray's token."""
        return self.path / "token"

    @property
    def logs(self) -> Path:
        """The folder of its jobs' logs."""
        return self.path / "logs"

    @property
    def head_log(self) -> Path:
        """The log that all its heads append to."""
        return self.logs / "head.log"

    def begin(self, about: Json) -> None:
        """Prepare for the jobs of a new submission; those of an earlier one have ended."""
        shutil.rmtree(self._jobs, ignore_errors=True)
        self._jobs.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(exist_ok=True)
        for name in ("over.json", "head.json"):
            (self.path / name).unlink(missing_ok=True)
        self.token.unlink(missing_ok=True)
        self.token.touch(mode=0o600)  # before the secret is in it
        self.token.write_text(secrets.token_hex(32))
        about_file = self.path / "sweep.json"
        about_file.unlink(missing_ok=True)
        about_file.touch(mode=0o600)  # a webhook is a secret
        about_file.write_text(json.dumps(about))

    def about(self) -> Json | None:
        """What ``begin`` stored; None: nothing."""
        return self._read("sweep.json")

    # --- the head, and the end --------------------------------------------------------------------

    def head(self) -> Head | None:
        """The head that drives now, or did last; None also while it cannot be read."""
        plain = self._glance("head.json")
        return None if plain is None else Head.from_json(plain)

    def put_head(self, head: Head) -> None:
        """Say that this head drives from now on; an earlier one ends when it sees that."""
        self._write("head.json", head.to_json())

    def over(self) -> JobEnd | None:
        """How the sweep's jobs ended; None: they go on, as far as can be read."""
        plain = self._glance("over.json")
        return None if plain is None else JobEnd.from_json(plain)

    def end_all(self, why: str, *, is_good: bool) -> None:
        """Say that no job is to go on."""
        self._write("over.json", JobEnd(why, is_good, time.time()).to_json())

    # --- jobs -------------------------------------------------------------------------------------

    def intend(self, kind: Kind) -> SubmittedJob:
        """Store that a job is about to be submitted."""
        name = f"sweep-{self.sweep[:40]}-{kind}-{secrets.token_hex(4)}"
        job = SubmittedJob(name, kind, time.time())
        self._write(f"jobs/{name}.job.json", job.to_json())
        return job

    def submitted(self, job: SubmittedJob, id: str) -> SubmittedJob:
        """Store Slurm's answer."""
        job = replace(job, id=id, at_s=time.time())
        self._write(f"jobs/{job.name}.job.json", job.to_json())
        return job

    def claim(self, name: str, id: str, host: str) -> bool:
        """True when the job of this name may begin; whoever gave it up came first otherwise."""
        return self.knows(name) and self._claim(
            name, Claim(has_begun=True, id=id, host=host, at_s=time.time())
        )

    def knows(self, name: str) -> bool:
        """False for a job of an earlier submission, or of a sweep that was deleted."""
        try:
            return (self._jobs / f"{name}.job.json").exists()
        except OSError:  # a file server that is away says nothing of the kind
            return True

    def has_joined(self, name: str) -> bool:
        """True once the driver has seen the job's Ray node."""
        return (self._jobs / f"{name}.joined").exists()

    def withdraw(self, name: str) -> bool:
        """True when the job of this name will never begin, though Slurm may start its script."""
        return self._claim(name, Claim(has_begun=False, at_s=time.time()))

    def _claim(self, name: str, claim: Claim) -> bool:
        content = json.dumps(claim.to_json()).encode()
        try:
            write_atomically(self._jobs / f"{name}.claim.json", content, replace=False)
        except FileExistsError:
            return False
        return True

    def mark(self, name: str, what: Literal["joined", "leaving"]) -> None:
        """Mark a job, for all who look."""
        with suppress(OSError):  # the next look marks it
            (self._jobs / f"{name}.{what}").touch()

    def ended(self, name: str, why: str, *, is_good: bool) -> None:
        """Store how a job ended; the first who says it is right."""
        content = json.dumps(JobEnd(why, is_good, time.time()).to_json()).encode()
        with suppress(OSError):  # FileExistsError, too
            write_atomically(self._jobs / f"{name}.end.json", content, replace=False)

    def jobs(self, kind: Kind | None = None) -> list[KnownJob]:
        """All jobs of the sweep, the oldest first. StoreError where they cannot be read."""
        try:
            return self._known(set(os.listdir(self._jobs)), kind)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"{self._jobs} cannot be read: {error}") from error

    def _known(self, there: set[str], kind: Kind | None) -> list[KnownJob]:
        known = []
        for file in there:
            name = file.removesuffix(".job.json")
            plain = self._read(f"jobs/{file}") if name != file else None
            if plain is None or kind not in (None, plain["kind"]):
                continue
            claim = self._read(f"jobs/{name}.claim.json") if f"{name}.claim.json" in there else None
            end = self._read(f"jobs/{name}.end.json") if f"{name}.end.json" in there else None
            known.append(
                KnownJob(
                    SubmittedJob.from_json(plain),
                    None if claim is None else Claim.from_json(claim),
                    f"{name}.joined" in there,
                    f"{name}.leaving" in there,
                    None if end is None else JobEnd.from_json(end),
                )
            )
        return sorted(known, key=lambda one: (one.job.at_s, one.name))

    def settle(self, listed: Listing | None) -> None:
        """Find out about submissions whose answer was lost, and jobs that ended without a word."""
        if listed is None:
            return
        for known in self.jobs():
            if known.is_over:
                continue
            if not known.id:
                there = listed.named(known.name)
                if there is not None:
                    self.submitted(known.job, there.id)
                elif listed.at_s > known.job.at_s + LATE_S:
                    self.withdraw(known.name)
            elif known.id not in listed.ids and self._is_long_ago(known, listed):
                self._ended_silently(known)

    def _is_long_ago(self, known: KnownJob, listed: Listing) -> bool:
        """True where a list would have the job if it were there: it was begun before."""
        since_s = known.claim.at_s if known.claim else known.job.at_s
        return listed.at_s > since_s + CLOCKS_S

    def _ended_silently(self, known: KnownJob) -> None:
        if not known.has_begun and not self.withdraw(known.name):
            return  # it has begun meanwhile
        state = queue.end_of(known.id)
        self.ended(known.name, _in_words(known, state), is_good=state == "COMPLETED")

    def cancel(self, which: Sequence[KnownJob]) -> None:
        """Take jobs out of the queue, and end those that run."""
        for known in which:
            self.withdraw(known.name)
        queue.cancel([known.id for known in which if known.id])

    def _read(self, name: str) -> Json | None:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None

    def _glance(self, name: str) -> Json | None:
        """A file that is looked at again and again: a server that is away for once is no matter."""
        try:
            return self._read(name)
        except OSError:
            return None

    def _write(self, name: str, plain: Json) -> None:
        write_atomically(self.path / name, json.dumps(plain).encode())


def waiting_jobs(folder: SlurmFolder) -> str:
    """Ids of the head jobs that drive the sweep, or will; empty: none is known."""
    about = folder.about()
    if about is None or folder.over() is not None:
        return ""
    with suppress(Misuse, Failure):
        folder.settle(queue.listing(settings_of(about).poll_s))
    return ", ".join(known.id or known.name for known in folder.jobs("head") if not known.is_over)


def failures_to_join(folder: SlurmFolder, kind: Kind, since_s: float = 0.0) -> list[KnownJob]:
    """The last jobs in a row that ended badly, since then, and had not joined."""
    failed: list[KnownJob] = []
    for known in folder.jobs(kind):
        if known.has_joined:
            failed = []
        elif known.end is not None and not known.end.is_good and known.end.at_s > since_s:
            failed.append(known)
    return failed


def trouble(folder: SlurmFolder, since_s: float) -> str:
    """Why worker jobs begin and never join; empty: they may."""
    failed = failures_to_join(folder, "worker", since_s)
    if len(failed) < JOIN_FAILURES:
        return ""
    last = failed[-1]
    log = folder.logs / f"{last.name}.log"
    try:
        lines = log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:]
    except OSError:
        lines = ["(there is none)"]
    end = last.end.why if last.end is not None else ""
    return (
        f"{len(failed)} worker jobs in a row ended before they joined: {end}. The end of {log}:\n"
        + "\n".join(lines)
    )


def settings_of(about: Json) -> SlurmYaml:
    """The slurm.yaml that a sweep was submitted with."""
    return SlurmYaml.from_json(about["slurm"])


def _in_words(known: KnownJob, state: str) -> str:
    """How a job ended that did not say it itself, and what to do."""
    job = f"job {known.id}"
    where = f" on {known.claim.host}" if known.claim and known.claim.host else ""
    if state == "OUT_OF_MEMORY":
        return f"{job} was killed for memory{where}: raise {known.job.kind}.memory in slurm.yaml"
    if state == "NODE_FAIL":
        return f"{job}: its node was lost{where}"
    if state == "PREEMPTED":
        return f"{job} was preempted{where}"
    if state == "TIMEOUT":
        return f"{job} came to its time limit{where}"
    if state == "CANCELLED":
        return f"{job} was cancelled{where}"
    return f"{job} ended{where}" + (f" as {state}" if state else "")
