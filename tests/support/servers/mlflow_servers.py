"""Real MLflow servers on loopback, and everything that an experiment holds, for comparison."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from sweep.tracking.client import make_client
from sweep.tracking.ui import server_environment, ui_command

VOLATILE = ("created_ns", "mlflow.user", "mlflow.source.name", "mlflow.source.type")


def content(uri: str, sweep: str) -> dict[str, Any]:
    """Everything the experiment holds, but for run ids and what else no two servers share."""
    client = make_client(uri)
    experiment = client.get_experiment_by_name(sweep)
    assert experiment is not None
    runs = list(client.search_runs([experiment.experiment_id], max_results=1000))
    signatures = {r.info.run_id: r.data.tags.get("signature", "sweep") for r in runs}
    everything: dict[str, Any] = {"kind": experiment.tags["mlflow.experimentKind"]}
    for run in runs:
        tags = {k: v for k, v in run.data.tags.items() if k not in VOLATILE}
        if "unconstrained_run_id" in tags:
            tags["unconstrained_run_id"] = signatures[tags["unconstrained_run_id"]]
        signature = signatures[run.info.run_id]
        assert signature not in everything, "one active run per arm"
        everything[signature] = {
            "tags": tags,
            "params": run.data.params,
            "rows": rows_of(uri, run.info.run_id),
            "latest": {k: repr(v) for k, v in run.data.metrics.items()},
            "info": (
                run.info.run_name,
                run.info.status,
                run.info.start_time,
                run.info.end_time or None,
            ),
            "artifacts": [a.path for a in client.list_artifacts(run.info.run_id)],
        }
    return everything


def rows_of(uri: str, run_id: str) -> list[tuple[str, str, int, int]]:
    client = make_client(uri)
    keys = client.get_run(run_id).data.metrics
    rows = [m for key in keys for m in client.get_metric_history(run_id, key)]
    return sorted((m.key, repr(m.value), m.timestamp, m.step) for m in rows)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A real MLflow server on loopback, with a home of its own."""

    def __init__(self, folder: Path, database: str | None = None) -> None:
        """Not started yet; ``database`` is an address, None an SQLite file in the folder."""
        self.folder, self.port = folder, free_port()
        self.database = database or f"sqlite:///{folder}/mlflow.db"
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ui_command(self.database, f"{self.folder}/mlartifacts", self.port)
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                command,
                env=server_environment() | {"HOME": str(home)},
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                assert self.process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.2)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
