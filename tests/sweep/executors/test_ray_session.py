"""A driver's own Ray: what it starts is gone when it ends."""

from __future__ import annotations

import os
import subprocess
import time
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from sweep.executors import ray_session
from sweep.executors.ray_session import local_ray
from trainables.errors import Failure
from trainables.machine import scratch


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


@pytest.mark.long("Ray starts and ends")
@pytest.mark.usefixtures("ray_home")
def test_rays_folder_is_this_users_alone_and_lies_where_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray opens what it is given to all users; and its sockets' names leave room for 24 letters."""
    import ray

    asked = tmp_path / "scratch-of-a-batch-system"
    asked.mkdir(mode=0o755)
    monkeypatch.setenv("RAY_TMPDIR", str(asked))
    with local_ray(cpus=1, gpus=0) as folder:
        (mine,) = asked.iterdir()
        sessions = list(mine.glob("r/session_*/sockets"))
        assert sessions, "Ray's own folder"
        probe = ray.remote(num_cpus=1)(lambda: os.getpid())
        assert ray.get(probe.remote()) != os.getpid()
        assert [f.stat().st_mode & 0o777 for f in (folder, mine)] == [0o700, 0o700]
    assert not list(asked.iterdir())
    assert not folder.exists()


@pytest.mark.long("Ray starts and ends")
@pytest.mark.usefixtures("ray_home")
def test_no_port_of_a_sweeps_own_ray_tells_anything_without_the_token() -> None:
    """Ray's metrics name processes, memory and load of the machine."""
    with local_ray(cpus=1, gpus=0):
        started = psutil.Process().children(recursive=True)
        children = {p.pid for p in started}
        scripts = {Path(word).name for p in started for word in p.cmdline()[1:4]}
        assert not scripts & {"dashboard.py", "monitor.py", "log_monitor.py"}  # each takes a second
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:  # its monitors open theirs a little later
            ports = {
                c.laddr.port
                for c in psutil.net_connections("tcp")
                if c.status == psutil.CONN_LISTEN and c.pid in children
            }
            told = [port for port in ports if answers(port)]
            assert not told
            time.sleep(0.5)
        assert ports


def test_a_trial_asks_for_no_environment_of_its_own() -> None:
    """Ray would start its worker twice."""
    from ray.tune.execution.class_cache import _ActorClassCache

    with ray_session._environment(), ray_session._inherited_environment():
        actor = _ActorClassCache().get(type("Trial", (), {}))
    assert actor._default_options["runtime_env"] == {}


def answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1) as reply:
            return bool(reply.read(1))
    except (OSError, HTTPException):
        return False


def test_what_a_killed_driver_left_behind_a_link_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, far = tmp_path / "short", tmp_path / "far"
    short.mkdir()
    far.mkdir()
    monkeypatch.setattr(ray_session, "_short_folder", lambda: str(short))
    monkeypatch.setenv("RAY_TMPDIR", str(far))
    monkeypatch.setattr(scratch, "remove", lambda folder: None)  # as if it was killed
    with ray_session._scratch_folder():
        pass
    monkeypatch.undo()
    assert (len(list(short.iterdir())), len(list(far.iterdir()))) == (1, 1)
    scratch.remove_abandoned_folders(str(short))
    assert (list(short.iterdir()), list(far.iterdir())) == ([], [])


def test_a_long_folder_beside_a_short_one_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    monkeypatch.setattr(ray_session, "_short_folder", lambda: str(tmp_path / "none"))
    monkeypatch.setenv("RAY_TMPDIR", str(far))
    told = rf"{len(str(far))} characters 24 at most.*RAY_TMPDIR, of at most 24 characters"
    with pytest.raises(Failure, match=told), ray_session._scratch_folder():
        pass
