"""MLflow UI: the command that serves a database on loopback, and a sweep's page."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import IO

from sweep.study.advice import command
from sweep.tracking.address import ENVIRONMENT, TrackingError, is_server, shown, sqlite_path
from sweep.tracking.client import experiment_of
from sweep.tracking.tracker import Tracker
from sweep.tracking.views import ARMS, MODEL_TRAINING, views
from trainables.errors import Failure, Misuse
from trainables.records.arm_record import OBJECTIVE

HOST = "127.0.0.1"
START_S = 180.0  # that a server has to answer; it takes 10 to 20 on two busy cores
END_S = 5.0  # from SIGTERM to SIGKILL
LAST_LINES = 3  # of a server's output, shown when it ends by itself


def refuse_taken_port(port: int) -> None:
    """Raise Misuse where something listens on the port of this machine: its page is not ours."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server will
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError as error:
            raise Misuse(
                f"port {port} of this machine cannot be served ({error.strerror}): another program "
                "has it, or it is not yours to use. Give another one with --port."
            ) from error


def refuse_damaged(uri: str, again: str) -> None:
    """Raise Misuse where an SQLite database is none; ``again`` makes it anew."""
    file = sqlite_path(uri)
    if file is None or not file.exists():
        return
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as there:
            there.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            return  # a running sweep writes it
        raise Misuse(
            f"the MLflow database {shown(uri)} cannot be read ({error}). Move it away: `{again}` "
            "makes it anew from the records."
        ) from error


def serve(uri: str, port: int, ready: Callable[[], None]) -> None:
    """Serve a database on loopback until Ctrl-C, SIGTERM or SIGHUP; ``ready`` once it answers.

    Raises Failure where the server ends by itself, or does not answer.
    """
    with tempfile.TemporaryFile("w+") as output, _ending_on_signals():
        server = subprocess.Popen(
            ui_command(uri, None, port),
            env=server_environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # it is ended by us, whoever gets the signal
        )
        try:
            give_up = time.monotonic() + START_S
            while not _answers(port):
                _refuse_ended(server, output, uri)
                if time.monotonic() > give_up:
                    raise Failure(f"the MLflow server does not answer within {START_S:.0f} s.")
                time.sleep(0.1)
            _refuse_ended(server, output, uri)  # else somebody else answers
            ready()
            server.wait()
            _refuse_ended(server, output, uri)
        except KeyboardInterrupt:
            pass
        finally:
            _end(server)


def _answers(port: int) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with suppress(OSError), opener.open(f"http://{HOST}:{port}/health", timeout=5) as reply:
        return bool(reply.status == 200)
    return False


def _refuse_ended(server: subprocess.Popen[bytes], output: IO[str], uri: str) -> None:
    code = server.poll()
    if code is None:
        return
    output.seek(0)
    lines = [line.strip() for line in output if line.strip()]
    raise Failure(
        f"the MLflow server of {shown(uri)} ended with exit code {code}: "
        + " | ".join(lines[-LAST_LINES:])
    )


def _end(server: subprocess.Popen[bytes]) -> None:
    # Its group: the command runs the server as a child, which outlives it if killed alone.
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            server.wait(END_S)
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ui_command(uri: str, artifact_root: str | None, port: int) -> list[str]:
    """The command that serves a database on loopback. Run it in ``server_environment()``.

    Raises Misuse when ``uri`` is a server already: it is its own UI.
    """
    if is_server(uri):
        raise Misuse(f"{shown(uri)} is an MLflow server already: open it in a browser.")
    root = Tracker(uri, artifact_root).artifact_root
    words = [sys.executable, "-m", "mlflow", "server", "--host", HOST]
    words += ["--port", str(port), "--workers", "1", "--backend-store-uri", uri]
    return words + ([] if root is None else ["--artifacts-destination", root])


def server_environment() -> dict[str, str]:
    """Environment for ``ui_command``: no telemetry, and no processes that serve other features."""
    return {**os.environ, **ENVIRONMENT, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def experiment_urls(
    base: str, uri: str, sweep: str, sweep_id: str | None = "", *, storage: str | None = None
) -> dict[str, str]:
    """The sweep's pages in the UI at ``base``, by name; the first is what a reader starts with.

    Its saved views; of a sweep that has none yet all its arms as charts, best objective first.
    ``sweep_id`` is None for a sweep that was never tracked; ``storage`` is the root it lies below.

    Raises TrackingError when MLflow at ``uri`` is away or has no such experiment.
    """
    there = None if sweep_id is None else experiment_of(uri, sweep, sweep_id)
    if there is None:
        raise TrackingError(
            f"MLflow at {shown(uri)} has no experiment of {sweep!r}: "
            f"run `{command('sync', sweep, storage=storage)}` first."
        )
    number = there.experiment_id
    pages = {view.name: view.address(number) for view in views([]) if view.tag in there.tags}
    if not pages:
        query = {
            "searchFilter": ARMS,
            "orderByKey": f"metrics.`{OBJECTIVE}`",
            "orderByAsc": "true",
            "compareRunsMode": "CHART",
            **MODEL_TRAINING,
        }
        text = urllib.parse.urlencode(query, quote_via=urllib.parse.quote)
        pages = {"All arms": f"#/experiments/{number}/runs?{text}"}
    return {name: f"{base.rstrip('/')}/{address}" for name, address in pages.items()}
