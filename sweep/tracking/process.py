"""Tracker in a process of its own, beside the driver.

To write one arm costs MLflow's own Python some 50 ms of processor, and its import two seconds. In
the driver's process they would share one interpreter lock with what hands out arms. The process
here is told which arm changed, and reads its record itself.

It ends with its driver, however that ends, and takes no signal that a terminal or a batch system
sends to all: a driver that is asked to stop has last rows to send.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from sweep.study.arms import Arm
from sweep.study.definition import Definition
from sweep.tracking.address import TrackingError, shown
from sweep.tracking.sources import StoredArms
from sweep.tracking.tracker import Tracker
from trainables.errors import SweepError
from trainables.machine.parent_process import end_with_parent
from trainables.records.objects import ObjectStore

if TYPE_CHECKING:
    from sweep.tracking.marks import SweepPages
    from sweep.tracking.rows import TrackedArm

WATCH_S = 1.0  # how often the process looks whether its driver is still there
_TO_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CLOSE_S = 5.0  # what hangs in its file system cannot even be killed
_START = """
import sys
fd, driver, *sys.path = sys.argv[1:]
from sweep.tracking.process import serve
serve(int(fd), int(driver))
"""


class TrackerProcess:
    """A tracker of one stored sweep; its process starts with the first call.

    Calls raise TrackingError when MLflow is away or refuses, or the process ended meanwhile; the
    next call starts another. Used by one thread at a time, but for ``close``. The process has the
    environment that its driver had when it started.
    """

    def __init__(self, uri: str, objects: ObjectStore, definition: Definition, sweep_id: str):
        self.uri = uri
        self._arguments = (uri, objects.root, definition, sweep_id)
        # Guards _running and _is_closed: ``close`` may come from another thread during a call, and
        # no process may start after it.
        self._starting = threading.Lock()
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._is_closed = False

    def send(self, arm: Arm, is_final: bool) -> None:
        """Bring the arm's run up to what the store holds of it."""
        self._call("send", arm, is_final)

    def sync_sweep(self, pages: SweepPages) -> None:
        """See ``Tracker.sync_sweep``."""
        self._call("sync_sweep", pages)

    def close(self) -> None:
        """End the process, also in the middle of a call, which then raises."""
        with self._starting:
            self._is_closed = True
            self._end()

    def _call(self, name: str, *args: object) -> None:
        process, connection = self._started()
        try:
            connection.send((name, args))
            # It may end and the pipe not: a process that was forked meanwhile can hold its end.
            while not connection.poll(WATCH_S):
                if process.poll() is not None and not connection.poll():
                    raise EOFError
            error, logs = connection.recv()
        # Whatever broke it, Ctrl-C too: the next call would take a late answer for its own.
        except BaseException as broken:
            with self._starting:
                self._end()
            if isinstance(broken, EOFError | OSError):
                raise TrackingError(
                    f"The process that writes to MLflow at {shown(self.uri)} ended before it "
                    f"answered (exit code {process.returncode})."
                ) from broken
            raise
        for logger, level, text in logs:
            logging.getLogger(logger).log(level, "%s", text)
        if error is not None:
            raise error

    def _started(self) -> tuple[subprocess.Popen[bytes], Connection]:
        """The process and the pipe to it; started if there is none, or none any more."""
        with self._starting:
            if self._is_closed:
                raise TrackingError(f"What writes to MLflow at {shown(self.uri)} is closed.")
            if self._running is None or self._running[0].poll() is not None:
                self._end()
                try:
                    process, connection = _start()
                    connection.send(self._arguments)
                except OSError as error:
                    raise TrackingError(
                        f"No process that writes to MLflow at {shown(self.uri)} could be started: "
                        f"{error}."
                    ) from error
                self._running = process, connection
            return self._running

    def _end(self) -> None:
        if self._running is not None:
            # SIGKILL: it was started with the signals that ask it to end blocked.
            self._running[0].kill()
            with suppress(subprocess.TimeoutExpired):
                self._running[0].wait(CLOSE_S)
            self._running = None


def _start() -> tuple[subprocess.Popen[bytes], Connection]:
    """A process that serves a pipe, and imports from where this one does."""
    paths = [str(path) or os.getcwd() for path in sys.path]
    local, remote = Pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _TO_ALL)  # for it to inherit
    try:
        with remote:
            arguments = [str(remote.fileno()), str(os.getpid()), *paths]
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a driver prints is for whoever reads it
                pass_fds=(remote.fileno(),),
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process, local


# --- in the process -------------------------------------------------------------------------------


def serve(fd: int, driver: int) -> None:
    """Run the calls that come through the pipe until the driver, a process id, ends."""
    end_with_parent(driver)  # the next one has a writer of its own
    kept = _KeptLogs()
    logging.getLogger().addHandler(kept)
    with Connection(fd) as connection:
        uri, root, definition, sweep_id = connection.recv()
        tracker = Tracker(uri, sweep_id=sweep_id)
        read = StoredArms(ObjectStore(root), definition)

        def send(arm: Arm, is_final: bool) -> None:
            send_stored(tracker, definition.name, read, arm, is_final)

        calls: dict[str, Callable[..., object]] = {"send": send, "sync_sweep": tracker.sync_sweep}
        with suppress(EOFError, ConnectionError):  # its driver is gone
            while True:
                name, args = connection.recv()
                error = _error_of(calls[name], args)
                connection.send((error, kept.taken()))


def _error_of(call: Callable[..., object], args: Sequence[object]) -> Exception | None:
    """Run a call and return its error, as one that can be pickled."""
    try:
        call(*args)
    except SweepError as error:
        return TrackingError(str(error))
    except Exception as error:
        failure = RuntimeError(f"{type(error).__name__}: {error}")
        failure.add_note(traceback.format_exc())
        return failure
    return None


class _KeptLogs(logging.Handler):
    """Buffers log records, which the driver emits again as its own."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Buffer a record as text: it is pickled to the driver."""
        self._kept.append((record.name, record.levelno, record.getMessage()))

    def taken(self) -> list[tuple[str, int, str]]:
        """Records since the last call."""
        kept, self._kept = self._kept, []
        return kept


def send_stored(
    tracker: Tracker, sweep: str, read: Callable[[Arm], TrackedArm | None], arm: Arm, is_final: bool
) -> None:
    """Read a changed arm and send it, unless MLflow has all there will ever be of it."""
    if is_final and tracker.is_whole(sweep, arm.signature):
        return
    tracked = read(arm)
    if tracked is not None:
        tracker.sync(tracked)
