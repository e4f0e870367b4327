"""Jobs of a sweep: as they were submitted, as they began, and how they ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainables.plain import Plain

Kind = Literal["head", "worker"]
# States of a job that is not over, though a list may lack it: another cluster's, a hidden one.
ALIVE = frozenset(
    ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING")
)
# Ends that say nothing of the job itself: another one may do.
NOT_ITS_FAULT = frozenset(("COMPLETED", "CANCELLED", "PREEMPTED", "NODE_FAIL", "TIMEOUT", ""))


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

    by: str  # a name that no other claim has
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
    """How a job ended, or all of them."""

    why: str
    is_good: bool  # False: others of its kind would fail as well
    at_s: float = 0.0


@dataclass(frozen=True)
class KnownJob:
    """All that is known of a job."""

    job: SubmittedJob
    claim: Claim | None
    has_joined: bool  # the driver has seen its Ray node; of a head: a worker's
    is_leaving: bool  # it takes no more arms
    end: JobEnd | None
    memory_kills: bool  # its memory limit killed a process of it

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

    def end_in_words(self, state: str) -> str:
        """How it ended in this state of Slurm's, where it did not say so itself."""
        job = f"job {self.id}"
        where = f" on {self.claim.host}" if self.claim and self.claim.host else ""
        known = {
            "OUT_OF_MEMORY": f"was killed for memory{where}: raise {self.job.kind}.memory in "
            "slurm.yaml",
            "NODE_FAIL": f"lost its node{where}",
            "PREEMPTED": f"was preempted{where}",
            "TIMEOUT": f"reached its time limit{where}",
            "CANCELLED": f"was cancelled{where}",
        }
        return f"{job} {known.get(state, f'ended{where}' + (f' as {state}' if state else ''))}"
