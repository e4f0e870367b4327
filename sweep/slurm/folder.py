"""Jobs of a sweep as files: submissions, claims and ends.

sweeps/NAME/.slurm/sweep.json             what is driven: the file, the submission's options
                   token                  of its Ray, for this user alone
                   head.json              the head that drives now
                   over.json              how it ended; no job goes on after this
                   jobs/JOB.job.json      a submission: stored before sbatch is asked
                        JOB.claim.json    the job has begun, or is not to begin: who comes first
                        JOB.joined        its Ray node was seen by the driver
                        JOB.leaving       it takes no more arms
                        JOB.memory        its memory limit killed a process of it
                        JOB.idle-RANK     one of its several nodes has nothing to train
                        JOB.end.json      how it ended
                        looked            when the driver last looked for nodes
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
from dataclasses import replace
from pathlib import Path
from typing import Literal

from sweep.slurm import queue
from sweep.slurm.jobs import ALIVE, NOT_ITS_FAULT, Claim, Head, JobEnd, Kind, KnownJob, SubmittedJob
from sweep.slurm.queue import Listing
from sweep.slurm.slurm_yaml import SlurmYaml
from sweep.study.definition import folder as sweep_folder
from trainables.errors import StoreError, SweepError
from trainables.machine.atomic_files import write_atomically
from trainables.plain import Json

FOLDER = ".slurm"
CLOCKS_S = 5.0  # that clocks of two machines may differ by
LATE_S = 120.0  # a submission without an answer and a job is given up after this
JOIN_FAILURES = 3  # jobs in a row that ended before they joined: others would, too
LOG_LINES = 4  # of such a job's log, in a message


class SlurmFolder:
    """The files of one sweep's jobs."""

    def __init__(self, storage: str, sweep: str) -> None:
        self.storage, self.sweep = storage, sweep
        self.path = Path(storage, sweep_folder(sweep), FOLDER)
        self._jobs = self.path / "jobs"
        self._settled_s = 0.0  # the time of the list that jobs were last compared with
        self._over: dict[str, KnownJob] = {}  # by name: nothing of them changes any more

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
        """Prepare for the jobs of a new submission; those of an earlier one must have ended."""
        whose = {"cluster": queue.cluster_name(), "uid": os.getuid()}  # before anything is removed
        self._over.clear()
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
        about_file.write_text(json.dumps({**about, **whose}))

    def about(self) -> Json | None:
        """The submission as ``begin`` stored it; None: there is none."""
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
        return self.knows(name) and self._claim(name, has_begun=True, id=id, host=host)

    def knows(self, name: str) -> bool:
        """False for a job of an earlier submission, or of a sweep that was deleted."""
        try:
            return (self._jobs / f"{name}.job.json").exists()
        except OSError:  # a file server that is away says nothing of the kind
            return True

    def has_begun(self, name: str) -> bool:
        """True once the job of this name has begun."""
        plain = self._glance(f"jobs/{name}.claim.json")
        return plain is not None and Claim.from_json(plain).has_begun

    def is_idle(self, name: str, rank: int, ranks: int, *, idle: bool) -> bool:
        """Say whether one node of a job has nothing to train; True when none of its has."""
        if ranks == 1:
            return idle
        mark = self._jobs / f"{name}.idle-{rank}"
        with suppress(OSError):
            mark.touch() if idle else mark.unlink(missing_ok=True)
            return idle and len(list(self._jobs.glob(f"{name}.idle-*"))) >= ranks
        return False

    def has_joined(self, name: str) -> bool:
        """True once the driver has seen the job's Ray node."""
        return self._time_of(f"{name}.joined") is not None

    def look(self) -> None:
        """Say that the driver looks for nodes now."""
        with suppress(OSError):
            (self._jobs / "looked").touch()

    def looked_s(self) -> float:
        """When the driver last looked for nodes, since 1970; 0: never."""
        return self._time_of("looked") or 0.0

    def _time_of(self, mark: str) -> float | None:
        try:
            return (self._jobs / mark).stat().st_mtime
        except OSError:
            return None

    def withdraw(self, name: str) -> bool:
        """True when the job of this name will never begin, though Slurm may start its script."""
        return self._claim(name, has_begun=False)

    def _claim(self, name: str, *, has_begun: bool, id: str = "", host: str = "") -> bool:
        mine = Claim(secrets.token_hex(8), has_begun, id, host, time.time())
        file = f"jobs/{name}.claim.json"
        try:
            content = json.dumps(mine.to_json()).encode()
            write_atomically(self.path / file, content, replace=False)
        except FileExistsError:
            # A file server may answer so to its client's second try of what it has done.
            plain = self._read(file)
            return plain is not None and Claim.from_json(plain).by == mine.by
        return True

    def mark(self, name: str, what: Literal["joined", "leaving", "memory"]) -> None:
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
            one = None if name == file else self._over.get(name) or self._known_job(name, there)
            if one is not None and one.end is not None:
                one = self._over[name] = replace(one, has_joined=f"{name}.joined" in there)
            if one is not None and kind in (None, one.job.kind):
                known.append(one)
        return sorted(known, key=lambda one: (one.job.at_s, one.name))

    def _known_job(self, name: str, there: set[str]) -> KnownJob | None:
        plain = self._read(f"jobs/{name}.job.json")
        claim = self._read(f"jobs/{name}.claim.json") if f"{name}.claim.json" in there else None
        end = self._read(f"jobs/{name}.end.json") if f"{name}.end.json" in there else None
        if plain is None:
            return None
        return KnownJob(
            SubmittedJob.from_json(plain),
            None if claim is None else Claim.from_json(claim),
            f"{name}.joined" in there,
            f"{name}.leaving" in there,
            None if end is None else JobEnd.from_json(end),
            f"{name}.memory" in there,
        )

    def settle(self, poll_s: float) -> Listing | None:
        """Find out about submissions whose answer was lost, and jobs that ended without a word.

        Only the user who submitted them can, on the cluster that they are on. Returns the user's
        jobs, from a list that is not asked for more often than each ``poll_s``.
        """
        try:
            return self._settled(poll_s) if self.is_here() else None
        except queue.NoAnswer:
            return None
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read or written: {error}") from error

    def is_here(self) -> bool:
        """True where this user submitted the sweep on this cluster. Raises NoAnswer."""
        about = self.about() or {}
        whose = (about.get("uid"), about.get("cluster"))
        return whose == (os.getuid(), queue.cluster_name())

    def _settled(self, poll_s: float) -> Listing | None:
        listed = queue.listing(Path(self.storage), poll_s)
        if listed is not None and listed.at_s != self._settled_s:
            self._settled_s = listed.at_s
            for known in self.jobs():
                if not known.is_over:
                    self._settle(known, listed)
        return listed

    def _settle(self, known: KnownJob, listed: Listing) -> None:
        # A list would have the job if it were there: it was submitted, or began, before.
        since_s = known.claim.at_s if known.claim else known.job.at_s
        if not known.id:
            there = listed.named(known.name)
            if there is not None:
                self.submitted(known.job, there.id)
            elif listed.at_s > since_s + LATE_S:
                self.withdraw(known.name)
        elif known.id not in listed.ids and listed.at_s > since_s + CLOCKS_S:
            state = queue.end_of(known.id)
            if state in ALIVE or not (known.has_begun or self.withdraw(known.name)):
                return
            self.ended(known.name, known.end_in_words(state), is_good=state in NOT_ITS_FAULT)

    def cancel(self, which: Sequence[KnownJob], *, begun: bool = False) -> None:
        """Take jobs out of the queue; with ``begun`` end those that run, too."""
        gone = [known for known in which if self.withdraw(known.name) or begun]
        queue.cancel(gone)

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
    with suppress(SweepError, OSError):  # another user's
        if (about := folder.about()) is None or folder.over() is not None:
            return ""
        folder.settle(settings_of(about).poll_s)
    heads = [known for known in folder.jobs("head") if not known.is_over]
    return ", ".join(known.id or known.name for known in heads)


def failures_to_join(jobs: Sequence[KnownJob], since_s: float = 0.0) -> list[KnownJob]:
    """The last jobs of one kind in a row that ended badly, since then, and had not joined."""
    failed: list[KnownJob] = []
    for known in jobs:
        if known.has_joined:
            failed = []
        elif known.end is not None and not known.end.is_good and known.end.at_s > since_s:
            failed.append(known)
    return failed


def trouble(folder: SlurmFolder, jobs: Sequence[KnownJob], since_s: float) -> str:
    """Why worker ``jobs`` begin and never join; empty: some have since then, or one is to come."""
    if any(one.has_joined and (one.end is None or one.end.at_s > since_s) for one in jobs):
        return ""
    failed = failures_to_join(jobs, since_s)
    if len(failed) < JOIN_FAILURES or any(not one.is_over for one in jobs):
        return ""
    last = failed[-1]
    end = last.end.why if last.end is not None else ""
    log = quoted(folder.logs / f"worker-{last.id}.log")
    return f"{len(failed)} worker jobs in a row ended before they joined: {end}{log}"


def quoted(log: Path) -> str:
    """The end of a job's log, to go with what is said of the job."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:]
    except OSError:
        lines = []
    return f". The end of {log}:\n" + "\n".join(lines or ["(it is empty)"])


def settings_of(about: Json) -> SlurmYaml:
    """The slurm.yaml that a sweep was submitted with."""
    return SlurmYaml.from_json(about["slurm"])
