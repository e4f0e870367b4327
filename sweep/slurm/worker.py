"""A worker job: a Ray node that joins its sweep's head, and leaves in time.

Started by a batch script as ``python -m sweep.slurm.worker STORAGE SWEEP JOB``, once on each node
of the job. It joins the next head where one ends, and ends when the sweep does, when nothing was to
be trained for a while, and at the signal before its time limit or of a preemption: then it takes no
more arms, and those that it has end at their next report.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from types import FrameType

from sweep.slurm.folder import SlurmFolder, settings_of
from sweep.slurm.ray_node import RayNode, scratch_folder, worker_node
from sweep.slurm.slurm_yaml import Worker
from trainables.machine.cores import memory_kills, usable_cores
from trainables.machine.leaving import LEAVES

LOOK_S = 2.0  # at files of the shared file system, and at Ray's processes
CLAIM_S = 300.0  # that the other nodes of a job wait for its first one
HEAD_S = 300.0  # that it waits for a head, or the next one
SEEN_S = 300.0  # within which a driver that looks sees a node that has joined
TERM_S = 20.0  # after SIGTERM
IDLE_S = 90.0  # without an arm, after which it ends
STAYS_S = 600.0  # a node that ends sooner, JOIN_TRIES times in a row, has no head
JOIN_TRIES = 3
MARGIN_S = 10.0  # of the time to leave, for its end


def main() -> None:
    """Serve until there is nothing to do; the exit code is 0 unless it could not."""
    storage, sweep, name = sys.argv[1:]
    folder = SlurmFolder(storage, sweep)
    job, rank = os.environ.get("SLURM_JOB_ID", ""), int(os.environ.get("SLURM_PROCID", "0"))
    if not _may_begin(folder, name, job, rank):
        print("sweep: this job was given up for lost, or is of an earlier submission.", flush=True)
        return
    worker = _Worker(folder, name, rank)
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, worker.leave)
    try:
        why, is_good = worker.serve()
    except Exception as error:
        traceback.print_exc()
        why, is_good = f"{type(error).__name__}: {error}", False
    print(f"sweep: {why}", flush=True)
    worker.wait_for_others()
    if rank == 0:
        folder.ended(name, f"job {job} on {socket.gethostname()}: {why}", is_good=is_good)
    raise SystemExit(0 if is_good else 1)


def _may_begin(folder: SlurmFolder, name: str, job: str, rank: int) -> bool:
    """True where the job is wanted: its first node claims it, the others wait for that."""
    if rank == 0:
        return folder.claim(name, job, socket.gethostname())
    give_up = time.monotonic() + CLAIM_S
    while not (begins := folder.has_begun(name)) and time.monotonic() < give_up:
        time.sleep(LOOK_S)
    return begins


class _Worker:
    def __init__(self, folder: SlurmFolder, name: str, rank: int) -> None:
        self._folder, self._name, self._rank = folder, name, rank
        about = folder.about()
        self._shape: Worker = settings_of(about).worker if about else Worker()
        job = os.environ.get("SLURM_JOB_ID", name)
        self._log = folder.logs / f"worker-{job}{f'-{rank}' if rank else ''}.ray.log"
        self._leave_by = 0.0  # on the monotonic clock; 0: it stays
        self._why = ""
        self._memory_kills = memory_kills()

    def leave(self, number: int, frame: FrameType | None) -> None:
        """Leave at a signal, whose handler this is: it sets fields alone."""
        # After SIGTERM, as of a preemption, the site's KillWait or GraceTime is left: 30 s often.
        within_s = TERM_S if number == signal.SIGTERM else self._shape.lead_s - MARGIN_S
        leave_by = time.monotonic() + within_s
        self._leave_by = min(self._leave_by, leave_by) if self._leave_by else leave_by
        self._why = self._why or f"{signal.Signals(number).name} (time limit, or preemption)"

    def wait_for_others(self) -> None:
        """Wait until no node of the job trains: it is over with the last one."""
        while not self._folder.is_idle(self._name, self._rank, self._shape.nodes, idle=True):
            if self._rank or self._over() is not None:
                return
            time.sleep(LOOK_S)

    def serve(self) -> tuple[str, bool]:
        """Join heads until there is a reason to end; it, and whether it is a good one."""
        with scratch_folder() as scratch:
            marker = scratch.parent / "leaving"
            tries, last_owner = 0, ""
            since_s = time.monotonic()
            while True:
                if (over := self._over()) is not None:
                    return over
                head = self._folder.head()
                is_new = head is not None and head.address and head.owner != last_owner
                if head is None or not is_new:
                    if time.monotonic() > since_s + HEAD_S:
                        return f"no head came within {HEAD_S:.0f} s", True
                    time.sleep(LOOK_S)
                    continue
                began_s = time.monotonic()
                node = self._joined(head.address, scratch, marker)
                try:
                    end = self._stay(node, head.owner, marker)
                finally:
                    node.end()
                if end is not None:
                    return end
                since_s = time.monotonic()
                tries = tries + 1 if since_s < began_s + STAYS_S else 1
                if node.is_over and tries < JOIN_TRIES:  # the head may be there still
                    time.sleep(LOOK_S * 2**tries)
                elif self._folder.has_joined(self._name):  # it is not: the next one is waited for
                    tries, last_owner = 0, head.owner
                else:
                    return f"Ray did not join {head.address}: {self._log} says why", False

    def _joined(self, address: str, scratch: Path, marker: Path) -> RayNode:
        os.environ[LEAVES] = str(marker)
        return worker_node(
            address, self._folder.token, scratch, self._name, self._log,
            cpus=min(self._shape.cpus, usable_cores()), gpus=self._shape.gpus,
        )  # fmt: skip

    def _has_no_work(self, idle_s: float) -> bool:
        """True where no node of the job has had anything to train for a while."""
        is_idle = idle_s > IDLE_S
        if is_idle or self._shape.nodes > 1:
            return self._folder.is_idle(self._name, self._rank, self._shape.nodes, idle=is_idle)
        return False

    def _stay(self, node: RayNode, owner: str, marker: Path) -> tuple[str, bool] | None:
        """Watch the node; why the job is to end, and None where its head went, or the node did."""
        idle_since, looks_since_s = time.monotonic(), time.time()
        is_leaving = has_joined = False
        while not node.is_over:
            if (over := self._over()) is not None:
                return over
            head = self._folder.head()
            if head is not None and head.owner != owner:
                return None
            now_s, trains = time.monotonic(), node.trains()
            has_joined = has_joined or self._folder.has_joined(self._name)
            if trains or not has_joined:
                idle_since = now_s
            if not has_joined and self._folder.looked_s() > looks_since_s + SEEN_S:
                why = f"the driver has not seen this node within {SEEN_S:.0f} s"
                return f"{why}: may nodes reach each other's ports? {self._log} has more", False
            if memory_kills() > self._memory_kills:
                self._folder.mark(self._name, "memory")
            if not is_leaving and (self._leave_by or self._has_no_work(now_s - idle_since)):
                is_leaving = True
                marker.touch()  # arms see it at their next report
                self._folder.mark(self._name, "leaving")
                if not self._leave_by:
                    self._leave_by, self._why = now_s + self._shape.lead_s, "nothing to train"
                # An arm may be on its way: the driver sees the mark at its next look.
                time.sleep(2 * LOOK_S)
                continue
            if is_leaving and (not trains or now_s > self._leave_by):
                late = "" if not trains else ", before its arms reported"
                return f"left: {self._why}{late}", True
            time.sleep(LOOK_S)
        return None

    def _over(self) -> tuple[str, bool] | None:
        if not self._folder.knows(self._name):
            return "the sweep was deleted, or submitted anew", True
        over = self._folder.over()
        if over is not None:
            return f"the sweep's jobs have ended: {over.why}", True
        if self._leave_by and time.monotonic() > self._leave_by:
            return f"left: {self._why}", True
        return None


if __name__ == "__main__":
    main()
