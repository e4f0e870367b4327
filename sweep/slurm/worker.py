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

from sweep.slurm.folder import SlurmFolder, settings_of
from sweep.slurm.ray_node import RayNode, scratch_folder, worker_node
from sweep.slurm.slurm_yaml import Worker
from trainables.machine.cores import usable_cores
from trainables.machine.leaving import LEAVES

LOOK_S = 1.0
HEAD_S = 600.0  # that it waits for a head, or the next one
IDLE_S = 90.0  # without an arm, after which it ends
JOIN_S = 30.0  # a node that ends sooner did not join
JOIN_TRIES = 3
MARGIN_S = 10.0  # of the time to leave, for its end


def main() -> None:
    """Serve until there is nothing to do; the exit code is 0 unless it could not."""
    storage, sweep, name = sys.argv[1:]
    folder = SlurmFolder(storage, sweep)
    job, rank = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_PROCID", "0")
    if rank == "0" and not folder.claim(name, job, socket.gethostname()):
        print("sweep: this job was given up for lost, or is of an earlier submission.", flush=True)
        return
    worker = _Worker(folder, name)
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda number, frame: worker.leave(signal.Signals(number).name))
    try:
        why, is_good = worker.serve()
    except Exception as error:
        traceback.print_exc()
        why, is_good = f"{type(error).__name__}: {error}", False
    print(f"sweep: {why}", flush=True)
    if rank == "0":
        folder.ended(name, f"job {job} on {socket.gethostname()}: {why}", is_good=is_good)
    raise SystemExit(0 if is_good else 1)


class _Worker:
    def __init__(self, folder: SlurmFolder, name: str) -> None:
        self._folder, self._name = folder, name
        about = folder.about()
        self._shape: Worker = settings_of(about).worker if about else Worker()
        self._log = folder.logs / f"{name}.ray.log"
        self._leave_by = 0.0  # on the monotonic clock; 0: it stays
        self._why = ""

    def leave(self, why: str) -> None:
        """Leave at a signal, whose handler this is: it sets fields alone."""
        if not self._leave_by:
            self._leave_by = time.monotonic() + self._shape.lead_s - MARGIN_S
            self._why = why

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
                        return f"no head came within {HEAD_S:.0f} s", bool(last_owner)
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
                if since_s < began_s + JOIN_S and node.is_over:
                    tries += 1
                    if tries == JOIN_TRIES:
                        return f"Ray did not join {head.address}: {self._log} says why", False
                    time.sleep(LOOK_S * 2**tries)
                else:  # the head has gone: the next one is waited for
                    tries, last_owner = 0, head.owner

    def _joined(self, address: str, scratch: Path, marker: Path) -> RayNode:
        os.environ[LEAVES] = str(marker)
        return worker_node(
            address, self._folder.token, scratch, self._name, self._log,
            cpus=min(self._shape.cpus, usable_cores()), gpus=self._shape.gpus,
        )  # fmt: skip

    def _stay(self, node: RayNode, owner: str, marker: Path) -> tuple[str, bool] | None:
        """Watch the node; why the job is to end, and None where its head went, or the node did."""
        idle_since = time.monotonic()
        is_leaving = False
        while not node.is_over:
            if (over := self._over()) is not None:
                return over
            head = self._folder.head()
            if head is not None and head.owner != owner:
                return None
            now_s = time.monotonic()
            trains = node.trains()
            idle_since = now_s if trains else idle_since
            if not is_leaving and (self._leave_by or now_s > idle_since + IDLE_S):
                if not self._leave_by and not self._folder.has_joined(self._name):
                    why = f"the driver has not seen this node within {IDLE_S:.0f} s"
                    return f"{why}: may nodes reach each other's ports? {self._log} has more", False
                is_leaving = True
                marker.touch()  # arms see it at their next report
                self._folder.mark(self._name, "leaving")
                if not self._leave_by:
                    self._leave_by, self._why = now_s + self._shape.lead_s, "nothing to train"
                # An arm may be on its way: the driver sees the mark at its next look.
                time.sleep(3 * LOOK_S)
                continue
            if is_leaving and (not trains or now_s > self._leave_by):
                late = "" if not trains else ", before its arms came to a report"
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
