"""Head job on Slurm, which drives a sweep and comes back after its limit.

Started by a batch script as ``python -m sweep.cluster.slurm_head STORAGE SWEEP JOB``. Its successor
is in the queue from the beginning, to start once this job has ended, however that came. Two never
drive at once: the later one puts its name into head.json, where the earlier one looks, and waits
for its lock on the sweep.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TypeVar

from sweep.cluster.submission import Submission
from sweep.cluster.supervise import drive, supervise
from sweep.executors.slurm_cluster import VARIABLE
from sweep.run import notifications
from sweep.run.signals import stop_request
from sweep.slurm import scripts
from sweep.slurm.folder import (
    JOIN_FAILURES,
    SlurmFolder,
    failures_to_join,
    settings_of,
    trouble,
)
from sweep.slurm.jobs import Head
from sweep.slurm.ray_node import RayNode, head_node, own_address, scratch_folder, secret
from sweep.study import advice
from sweep.study.advice import ASKED_FROM, SEES_STORAGE
from sweep.study.lock import driver_of
from sweep.study.opening import open_store
from trainables.errors import Failure, Misuse, StoreError, SweepError

LOOK_S = 1.0
PATIENCE_S = 600.0  # with files that cannot be reached
T = TypeVar("T")
TOLD_EVERY_S = 60.0
END_S = 30.0  # of the time to leave: for a driver whose arms have not reported, and for its end
SUCCESSOR_EVERY_S = 60.0  # between two looks whether it is in the queue still
WORKERS_END_S = 20.0  # that worker jobs get to end by themselves


def main() -> None:
    """Drive the sweep for as long as this job may run."""
    storage, sweep, name = sys.argv[1:]
    folder = SlurmFolder(storage, sweep)
    job = os.environ.get("SLURM_JOB_ID", "")
    if folder.over() is not None or not patiently(
        lambda: folder.claim(name, job, socket.gethostname())
    ):
        _say("this job was given up for lost, or the sweep's jobs have ended.")
        return
    head = patiently(lambda: _HeadJob(folder, name, job))
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, head.leave)
    try:
        why, is_good = head.run(), True
    except SweepError as error:
        why, is_good = str(error), False
    except Exception as error:
        traceback.print_exc()
        why, is_good = f"{type(error).__name__}: {error}", False
    _say(why)
    folder.ended(name, f"job {job} on {socket.gethostname()}: {why}", is_good=is_good)
    raise SystemExit(0 if is_good else 1)


def patiently(action: Callable[[], T]) -> T:
    """The result of an action, which is tried again for a while where files cannot be reached."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            return action()
        except (OSError, StoreError):
            if time.monotonic() > give_up:
                raise
        time.sleep(LOOK_S)


class _Leave(Exception):
    """The job is to end, and the sweep is not over."""


class _NoWorkers(Failure):
    """No worker job comes, and none will."""


class _HeadJob:
    def __init__(self, folder: SlurmFolder, name: str, job: str) -> None:
        self._folder, self._name, self._job = folder, name, job
        about = folder.about()
        if about is None:
            raise Failure(f"{folder.path} has no submission: `sweep submit` makes one.")
        self._given = settings_of(about)
        self._sent = Submission.from_json(about["submission"])
        self._known: str = about["known"]
        self._head = Head(uuid.uuid4().hex, name, job, socket.gethostname())
        self._ray: RayNode | None = None
        self._has_lost_ray = self._is_urgent = False
        self._has_put_head = False
        self._submitting = threading.Lock()
        self._driver: subprocess.Popen[bytes] | None = None
        self._leaves = ""  # why this job ends and the sweep does not
        self._end_driver_at = 0.0
        self._began_s = time.time()

    def leave(self, number: int, frame: FrameType | None) -> None:
        """Leave at a signal, whose handler this is."""
        self._is_urgent = is_urgent = number == signal.SIGTERM
        self._leaves = self._leaves or (
            f"{signal.Signals(number).name} came (time limit, or preemption); the next job goes on"
        )
        wait_s = 0.0 if is_urgent else max(0.0, self._given.head.lead_s - END_S)
        self._end_driver_at = time.monotonic() + wait_s
        self._signal_driver(signal.SIGTERM if is_urgent else signal.SIGINT)

    def run(self) -> str:
        """Drive; why this job ends."""
        failed = failures_to_join(patiently(lambda: self._folder.jobs("head")))
        if len(failed) >= JOIN_FAILURES:
            end = failed[-1].end
            why = f"{len(failed)} head jobs in a row failed: {end.why if end else ''}"
            self._end_all(why, is_good=False)
            raise Failure(why)
        self._keep_successor()
        threading.Thread(target=self._look_after_successor, daemon=True).start()
        self._submit_first_worker()
        log = self._folder.logs / f"head-{self._job}.ray.log"
        # An earlier head, whose node was declared dead, ends when it sees this.
        patiently(lambda: self._folder.put_head(self._head))
        self._has_put_head = True
        try:
            self._wait_for_lock()
            with (
                scratch_folder() as scratch,
                head_node(own_address(), self._folder.token, scratch, log) as (self._ray, address),
            ):
                os.environ.update(secret(self._folder.token))
                os.environ["RAY_ADDRESS"] = address
                os.environ[VARIABLE] = f"{self._folder.storage}\n{self._folder.sweep}"
                os.environ |= {ASKED_FROM: self._sent.client_options, SEES_STORAGE: "1"}
                self._head = replace(self._head, address=address)
                if self._is_replaced():
                    raise _Leave
                self._folder.put_head(self._head)
                code = self._drive()
        except _Leave:
            if self._is_replaced():
                return "another head drives the sweep now, or it was deleted"
            if not self._is_urgent:  # else whoever cancelled all jobs would get another one
                self._keep_successor()
            if self._has_lost_ray:
                raise Failure(self._leaves) from None
            return self._leaves
        except _NoWorkers as error:
            self._end_all(str(error), is_good=False)
            raise
        why, is_good = self._end_of(code)
        self._end_all(why, is_good=is_good)
        return why

    def _end_all(self, why: str, *, is_good: bool) -> None:
        with self._submitting:  # no successor is submitted after this
            self._folder.end_all(why, is_good=is_good)
        self._end_jobs()

    def _end_of(self, code: int) -> tuple[str, bool]:
        """The meaning of a driver's exit code in words, and True where all is well."""
        if code == 0:
            return "the sweep is finished", True
        if stop_request(open_store(self._folder.storage), self._sent.name) not in ("", self._known):
            return "the sweep was stopped", True
        return f"its driver ended with exit code {code}: `sweep logs` says why", False

    def _drive(self) -> int:
        watch = threading.Thread(target=self._watch, name="head-watch", daemon=True)
        watch.start()
        objects, sent = open_store(self._folder.storage), self._sent
        target = sent.notify or os.environ.get(notifications.VARIABLE)
        resume = advice.resume(sent.name, objects.root)
        heads = [one.claim.at_s for one in self._folder.jobs("head") if one.has_begun and one.claim]
        begun_s = min(heads, default=self._began_s)

        def run_driver(known: str) -> int:
            if self._leaves:
                raise _Leave
            code = drive(
                objects, sent, known,
                begun_s=begun_s, on_start=self._take_driver, folder=Path(self._folder.storage),
            )  # fmt: skip
            if code and self._leaves:
                raise _Leave
            if code and trouble(self._folder, self._folder.jobs("worker"), self._began_s):
                raise _NoWorkers(f"{sent.name} ends: no worker job joins it. See above why.")
            return code

        with (
            notifications.notifying(target, sent.name, resume, warn=_say) as on_event,
            suppress(_Leave),  # here: it is no news of a failure
        ):
            return supervise(
                objects, sent.name, run_driver,
                known=self._known, on_event=on_event,
                sigterm_stops=False, is_first=len(heads) == 1,
            )  # fmt: skip
        raise _Leave

    def _take_driver(self, driver: subprocess.Popen[bytes]) -> None:
        self._driver = driver
        if self._leaves:  # the signal came before
            self._signal_driver(signal.SIGTERM)

    def _signal_driver(self, number: signal.Signals) -> None:
        if self._driver is not None and self._driver.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._driver.pid, number)

    def _watch(self) -> None:
        """End the driver when it is late, when another head has come, or the sweep was deleted."""
        while True:
            time.sleep(LOOK_S)
            if self._leaves and time.monotonic() > self._end_driver_at:
                self._end_driver_at = float("inf")
                self._signal_driver(signal.SIGTERM)
            if self._ray is not None and self._ray.is_over and not self._leaves:
                self._has_lost_ray, self._leaves = True, "Ray's head ended; the next job goes on"
                self._end_driver_at = 0.0
            if self._is_replaced():
                self._leaves = "it was replaced"
                self._signal_driver(signal.SIGKILL)
                return

    def _is_replaced(self) -> bool:
        there = self._folder.head()
        if there is None:
            return not self._folder.knows(self._name)
        return there.owner != self._head.owner

    def _wait_for_lock(self) -> None:
        """Wait until no other driver has the sweep: one that another head left behind, say."""
        objects = open_store(self._folder.storage)
        told_s = 0.0
        while (driver := driver_of(objects, self._sent.name)) is not None:
            if time.monotonic() > told_s + TOLD_EVERY_S:
                told_s = time.monotonic()
                _say(f"{driver} drives {self._sent.name} still. Waiting for its end. {driver.hint}")
            time.sleep(LOOK_S)
            if self._leaves or self._is_replaced():
                raise _Leave

    def _look_after_successor(self) -> None:
        while True:
            time.sleep(SUCCESSOR_EVERY_S)
            if not self._leaves:
                self._keep_successor()

    def _keep_successor(self) -> None:
        with self._submitting, suppress(SweepError, OSError):  # the next look will do
            if self._folder.over() is None and not (self._has_put_head and self._is_replaced()):
                self._submit_successor()

    def _submit_successor(self) -> None:
        """Have the next head in the queue; where Slurm does not take it, say what that means."""
        self._folder.settle(self._given.poll_s)
        # One that has begun is no successor: it ended without a word a moment ago.
        heads = [one for one in self._folder.jobs("head") if one.name != self._name]
        if not self._job or any(not one.is_over and not one.has_begun for one in heads):
            return
        try:
            _, lost = scripts.submit(self._folder, self._given, "head", after=self._job)
        except (Misuse, Failure) as error:
            lost = error
        if lost is not None:
            resume = advice.resume(self._sent.name, self._folder.storage)
            _say(f"{lost} If no successor of this job comes, `{resume}` continues the sweep.")

    def _submit_first_worker(self) -> None:
        """Have a worker in the queue while Ray and the driver start; which asks for the others."""
        if all(one.is_over for one in self._folder.jobs("worker")):
            with suppress(SweepError, OSError):  # the driver asks again, and says why none comes
                scripts.submit(self._folder, self._given, "worker")

    def _end_jobs(self) -> None:
        """End what is left of the sweep's jobs: none is in the queue when this returns."""
        mine = {one.name for one in self._folder.jobs()} - {self._name}
        give_up = time.monotonic() + WORKERS_END_S
        while True:
            # By name: once this job has ended, others may be of the next submission.
            left = [o for o in self._folder.jobs() if o.name in mine and not o.is_over]
            self._folder.cancel([one for one in left if not one.has_begun])
            left = [one for one in left if one.has_begun]
            if not left or time.monotonic() > give_up:
                break
            time.sleep(LOOK_S)
        self._folder.cancel(left, begun=True)
        if self._folder.knows(self._name):
            self._folder.token.unlink(missing_ok=True)


def _say(text: str) -> None:
    print(f"sweep: {text}", flush=True)


if __name__ == "__main__":
    main()
