"""A driver's own Ray: what it starts is gone when it ends."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from sweep.executors.ray_session import local_ray


def processes_of(folder: Path) -> list[int]:
    """Living ones that were told of a session's folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(str(folder) in w for w in words):
            found.append(process.pid)
    return found


def alive(processes: list[psutil.Process]) -> list[int]:
    return [p.pid for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.long("Ray starts and ends")
@pytest.mark.usefixtures("ray_home")
def test_nothing_that_ray_started_outlives_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processes block SIGTERM, as a whole group that is signalled must not end them.

    So none is asked to end, and a second waited for it.
    """
    import ray

    asked: list[int] = []
    monkeypatch.setattr(subprocess.Popen, "terminate", lambda process: asked.append(process.pid))

    with local_ray(cpus=1, gpus=0) as folder:

        @ray.remote(num_cpus=1)
        class Worker:
            def pid(self) -> int:
                return os.getpid()

        worker = Worker.remote()
        busy = psutil.Process(ray.get(worker.pid.remote()))
        started = processes_of(folder)
        raylet = next(p for p in map(psutil.Process, started) if p.name() == "raylet")
        agents = raylet.children(recursive=True)
        assert busy in agents
        assert len(agents) > 1  # Ray's agents beside it
    deadline = time.monotonic() + 10
    while (left := processes_of(folder) or alive(agents)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (left, asked) == ([], [])
