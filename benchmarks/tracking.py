"""Milliseconds to track one report of 60 metrics: ours against Ray's callback.

Ray's is its stock MLflow callback.

    python -m benchmarks.tracking > tracking.json

Starts a real MLflow server (one worker, SQLite, loopback) in a temporary folder and sends reports
of 60 metrics to it, alternately through

* ours: ``Tracker.sync`` of an arm whose record has grown by one report,
* together: the same after five reports, which is what the sweep's writer does with an arm that
  reports every second (``PACE_S``); its time is divided by five, and
* stock: ``MLflowLoggerCallback.log_trial_result``, the class that Ray Tune users get, which sends
  every metric in a request of its own.

All runs exist before anything is timed. What is timed returns when the server has answered; our
tracker is timed in the calling thread, although in a sweep it runs in a thread of its own.
Afterwards each run is read back: every metric must have arrived at every step, else there is no
result. Prints one JSON document; takes about a minute, less with fewer ``--repeats``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sweep.tracking.client import make_client
from sweep.tracking.rows import TrackedArm
from sweep.tracking.tracker import Tracker
from sweep.tracking.ui import server_environment, ui_command
from sweep.tracking.writer import PACE_S
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.records.arm_record import ArmRecord, Report

METRICS = 60
REPEATS = 15  # after one of each that is not counted
TOGETHER = int(PACE_S)  # reports of an arm that reports every second
START_TIMEOUT_S = 120
SWEEP = "benchmark"


class StockTrial:
    """What the callback looks at: a hashable trial with a name and a config."""

    def __init__(self) -> None:
        self.config = {"alpha": 0.1, "dual_lr": 0.02}

    def __str__(self) -> str:
        return "stock"


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """A server of our own on a free loopback port, ended with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    command = ui_command(f"sqlite:///{folder}/mlflow.db", None, port)
    environment = server_environment() | {"HOME": str(folder)}
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(f"{base}/health"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"no MLflow server: {(folder / 'server.log').read_text()[-2000:]}")
            time.sleep(0.2)
        yield base
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def values(step: int) -> dict[str, float]:
    """The metrics of one report."""
    return {f"train/metric_{i:02d}": step + i / METRICS for i in range(METRICS)}


def ours(uri: str, together: int = 1) -> tuple[Callable[[int], None], str]:
    """(send so many reports that end at a step, run id) through our tracker."""
    config = ArmConfig(seed=together, constraint=ConstraintConfig())
    record = ArmRecord(signature=config.signature(), config=config, started_ms=_now_ms())
    tracker = Tracker(uri)
    arm = TrackedArm(record=record, sweep=SWEEP, setting="benchmark", proposal=0)
    run_id = tracker.sync(arm)

    def send(step: int) -> None:
        for k in range((step - 1) * together + 1, step * together + 1):
            record.reports.append(Report(step=k, timestamp_ms=_now_ms(), scalars=values(k)))
        tracker.sync(arm)

    return send, run_id


def stock(uri: str) -> tuple[Callable[[int], None], str]:
    """(send the report of a step, run id) through Ray's callback."""
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    callback = MLflowLoggerCallback(tracking_uri=uri, experiment_name=SWEEP)
    callback.setup()  # type: ignore[no-untyped-call]
    trial: Any = StockTrial()
    callback.log_trial_start(trial)

    def send(step: int) -> None:
        # The callback sends the iteration too: one metric less, so that both send METRICS.
        result = dict(list(values(step).items())[1:]) | {"training_iteration": step}
        callback.log_trial_result(step, trial, result)

    return send, callback._trial_runs[trial]


def check_arrived(uri: str, run_id: str, together: int, repeats: int) -> None:
    """Every metric of the run has one value at every step, or there is no result."""
    client = make_client(uri)
    names = list(client.get_run(run_id).data.metrics)
    steps = [m.step for m in client.get_metric_history(run_id, names[-1])]
    if len(names) != METRICS or sorted(steps) != list(range(1, (repeats + 1) * together + 1)):
        raise SystemExit(f"run {run_id}: {len(names)} metrics, steps {steps}: not all arrived.")


def measure(uri: str, repeats: int) -> dict[str, Any]:
    """Alternate the three, the one that goes first too; medians in milliseconds."""
    senders = {"ours": ours(uri), "together": ours(uri, TOGETHER), "stock": stock(uri)}
    reports = {name: TOGETHER if name == "together" else 1 for name in senders}
    times_ms: dict[str, list[float]] = {name: [] for name in senders}
    for step in range(1, repeats + 2):
        for name in sorted(senders, reverse=step % 2 == 0):
            started = time.perf_counter()
            senders[name][0](step)
            if step > 1:
                times_ms[name].append(1000 * (time.perf_counter() - started) / reports[name])
    for name, (_, run_id) in senders.items():
        check_arrived(uri, run_id, reports[name], repeats)
    return {
        "reports_together": TOGETHER,
        "ms_per_report": {name: _spread(taken) for name, taken in times_ms.items()},
        "stock_over_ours": _ratios(times_ms["stock"], times_ms["ours"]),
        "stock_over_together": _ratios(times_ms["stock"], times_ms["together"]),
    }


def _ratios(theirs_ms: list[float], ours_ms: list[float]) -> dict[str, float]:
    return _spread([theirs / mine for theirs, mine in zip(theirs_ms, ours_ms, strict=True)])


def _spread(numbers: list[float]) -> dict[str, float]:
    digits = {"median": statistics.median(numbers), "min": min(numbers), "max": max(numbers)}
    return {name: round(value, 1) for name, value in digits.items()}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    """Run it and print the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder, mlflow_server(Path(folder)) as uri:
        result = measure(uri, repeats)
    about = {
        "benchmark": "tracking",
        "metrics_per_report": METRICS,
        "repeats": repeats,
        "server": "mlflow server, 1 worker, SQLite, loopback",
        "versions": {name: version(name) for name in ("mlflow", "ray", "sqlalchemy")},
        "cpus": os.cpu_count(),
        "load_at_end": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }
    print(json.dumps(about | result, indent=2))


if __name__ == "__main__":
    main()
