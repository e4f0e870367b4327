"""Ray cluster of one sweep on Slurm, which grows by worker jobs."""

from __future__ import annotations

import logging
import math
import os
import time
from dataclasses import replace

from sweep.executors.autoscaling import counted
from sweep.executors.ray_cluster import RayCluster
from sweep.executors.resources import Machine, ResourceClass
from sweep.slurm import scripts
from sweep.slurm.folder import SlurmFolder, failures_to_join, settings_of, trouble
from sweep.slurm.jobs import KnownJob
from sweep.slurm.queue import Listing
from sweep.slurm.ray_node import LABEL
from trainables.errors import Failure, Misuse

log = logging.getLogger(__name__)

VARIABLE = "SWEEP_SLURM"  # of a driver that a head job starts: STORAGE and SWEEP, each a line
MARK_EVERY_S = 30.0
BACK_OFF_S = (30.0, 1800.0)  # after a job that ended before it joined; doubled, at most
SUBMIT_AGAIN_S = 60.0  # after Slurm did not take a job


def own_cluster() -> RayCluster:
    """The cluster of the sweep that this process drives: on Slurm its own, else one of Ray's."""
    given = os.environ.get(VARIABLE)
    return RayCluster() if given is None else SlurmCluster(SlurmFolder(*given.split("\n")))


class SlurmCluster(RayCluster):
    """The cluster, as jobs come and go."""

    def __init__(self, folder: SlurmFolder) -> None:
        super().__init__()
        self._folder, self._since_s = folder, time.time()
        self._given = settings_of(folder.about())
        self._listed: Listing | None = None
        self._pending: list[KnownJob] = []  # worker jobs that have not joined
        self._living: list[KnownJob] = []  # these, and those that train
        self._failed: list[KnownJob] = []  # the last in a row that ended before they joined
        self._warned: set[str] = set()  # jobs whose memory limit the log has heard of
        self._marked_s = -math.inf  # when the folder last heard that this driver looks
        self._wait_until_s, self._refused = 0.0, ""

    def machines(self) -> list[Machine]:
        """The resources of every machine that is there, and stays."""
        nodes = self.nodes()
        jobs = self._look({str(node["Labels"].get(LABEL, "")) for node in nodes})
        # Ray misses a node some time after its job is over.
        going = {known.name for known in jobs if known.is_leaving or known.is_over}
        self.leaving = [str(n["NodeID"]) for n in nodes if n["Labels"].get(LABEL) in going]
        return [counted(n["Resources"]) for n in nodes if str(n["NodeID"]) not in self.leaving]

    def _look(self, joined: set[str]) -> list[KnownJob]:
        self._listed = self._folder.settle(self._given.poll_s) or self._listed
        jobs = self._folder.jobs("worker")
        self._living = [known for known in jobs if not known.is_over]
        self._pending = [known for known in self._living if known.name not in joined]
        for known in jobs:
            if known.name in joined and not known.has_joined:
                self._folder.mark(known.name, "joined")
            if known.memory_kills and known.name not in self._warned:
                self._warned.add(known.name)
                log.warning(
                    "worker job %s: its memory limit killed a process: raise worker.memory in "
                    "slurm.yaml", known.id,
                )  # fmt: skip
        if time.monotonic() >= self._marked_s + MARK_EVERY_S:
            self._marked_s = time.monotonic()
            self._folder.look()
            head = self._folder.head()
            if head is not None and len(self._living) > len(self._pending):
                self._folder.mark(head.job, "joined")
        self.why_waiting = self._why()
        self.trouble = trouble(self._folder, jobs, self._since_s)
        self._failed = failures_to_join(jobs, self._since_s)
        return jobs

    def largest(self, arm: ResourceClass) -> list[Machine] | None:
        """The machines of as many jobs as there may be at a time."""
        shape = self._given.worker
        return [shape.machine] * (shape.nodes * shape.most)

    def waiting(self) -> int:
        """Count the places of jobs that have not joined yet."""
        return sum(not known.is_leaving for known in self._pending)

    def ask(self, arm: ResourceClass, count: int) -> None:
        """Have so many jobs wait that they hold ``count`` arms of this class."""
        shape = self._given.worker
        process = replace(arm, processes=1)
        each = max(1, process.slots([shape.machine] * shape.nodes))
        needed = math.ceil(count * arm.processes / each)
        coming = [known for known in self._pending if not known.is_leaving]
        not_begun = [known for known in coming if not known.has_begun]
        if len(coming) > needed:
            # The newest: the others have waited longest.
            self._folder.cancel(not_begun[-(len(coming) - needed) :])
            return
        room = shape.most - sum(not known.is_leaving for known in self._living)
        if time.monotonic() < self._wait_until_s or self.trouble or self._backs_off():
            return
        for _ in range(min(needed - len(coming), room)):
            try:
                _, lost = scripts.submit(self._folder, self._given, "worker")
            except (Misuse, Failure) as error:
                lost = error
            if lost is not None:
                self._refused = str(lost)
                self._wait_until_s = time.monotonic() + SUBMIT_AGAIN_S
                return
            self._refused = ""

    def _backs_off(self) -> bool:
        """True for a while after jobs that never joined: a node that fails them is free at once."""
        first_s, most_s = BACK_OFF_S
        ends = [one.end.at_s for one in self._failed if one.end is not None]
        return bool(ends) and time.time() < ends[-1] + min(most_s, first_s * 2 ** (len(ends) - 1))

    def _why(self) -> str:
        """The state of jobs that have not come, in one line."""
        listed = {} if self._listed is None else {job.id: job for job in self._listed.jobs}
        reasons = [
            f"worker job {known.id} is {job}"
            for known in self._pending
            if not known.has_begun and (job := listed.get(known.id)) is not None
        ]
        waiting = [known.id or known.name for known in self._pending]
        if reasons:
            more = len(waiting) - 1
            return reasons[0] + (f", and {more} more wait" if more else "")
        if waiting:
            return f"worker job {waiting[0]} is to join"
        return self._refused
