"""A worker job without Slurm: it joins a head, and leaves at a signal or without work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweep.slurm.folder import SlurmFolder
from sweep.slurm.jobs import Head, SubmittedJob
from sweep.slurm.ray_node import LABEL
from tests.support.drivers import wait_until
from tests.support.servers.ray_nodes import RayNodes, run_attached

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("ray_home"),
]

CODE = """
import sys
from sweep.slurm import worker
worker.IDLE_S = float(sys.argv.pop(1))
worker.LOOK_S, worker.SEEN_S = 0.2, 10.0
worker.main()
"""
LONG_S = 120.0
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[RayNodes]:
    there = RayNodes(tmp_path)
    yield there
    there.end()


@pytest.fixture
def folder(tmp_path: Path, nodes: RayNodes, monkeypatch: pytest.MonkeyPatch) -> SlurmFolder:
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "lab")
    there = SlurmFolder(str(tmp_path), "tiny")
    worker = {"cpus": 1, "time": 4}
    slurm = {"storage": str(tmp_path), "worker": worker}
    there.begin({"slurm": slurm, "submission": {"name": "tiny"}, "known": ""})
    token = os.environ.get("RAY_AUTH_TOKEN") or Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text()
    there.token.write_text(token)
    there.put_head(Head("one", "head", "1", "here", nodes.address))
    return there


@pytest.fixture
def start(folder: SlurmFolder, nodes: RayNodes) -> Iterator[Start]:
    """Start a worker job, which counts as idle after so many seconds."""
    started: list[subprocess.Popen[str]] = []

    def begin(job: SubmittedJob, idle_s: float = 600.0) -> subprocess.Popen[str]:
        environment = {n: v for n, v in os.environ.items() if n != "RAY_AUTH_TOKEN"}
        words = [sys.executable, "-c", CODE, str(idle_s), folder.storage, "tiny", job.name]
        started.append(
            subprocess.Popen(
                words, env={**environment, "SLURM_JOB_ID": "7"}, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        )  # fmt: skip
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=LONG_S)
    return said


def end_of(folder: SlurmFolder, job: SubmittedJob) -> str:
    (known,) = [known for known in folder.jobs() if known.name == job.name]
    assert known.end is not None
    return known.end.why


def joined(nodes: RayNodes) -> list[str]:
    code = f"[n['Labels'].get('{LABEL}') for n in cluster.nodes() if n['Resources'].get('CPU')]"
    return list(run_attached(nodes.driver_environment(), code))


def test_a_worker_joins_and_leaves_at_the_signal(
    folder: SlurmFolder, nodes: RayNodes, start: Start
) -> None:
    job = folder.intend("worker")
    process = start(job)
    wait_until(lambda: joined(nodes) == [job.name], LONG_S)
    process.send_signal(signal.SIGUSR1)
    assert "left: SIGUSR1" in ended(process)
    (known,) = folder.jobs("worker")
    assert known.is_leaving
    assert end_of(folder, job).startswith("job 7 on ")
    wait_until(lambda: joined(nodes) == [], LONG_S)


def test_a_worker_without_work_ends_and_says_if_a_driver_that_looks_never_saw_it(
    folder: SlurmFolder, nodes: RayNodes, start: Start
) -> None:
    unseen, seen = folder.intend("worker"), folder.intend("worker")
    folder.mark(seen.name, "joined")
    first, second = start(unseen, idle_s=5.0), start(seen, idle_s=5.0)
    assert "left: nothing to train" in ended(second)
    assert first.poll() is None  # no driver has looked yet

    def is_over() -> bool:
        folder.look()
        return first.poll() is not None

    wait_until(is_over, LONG_S)
    assert "the driver has not seen this node within 10 s" in ended(first)
    assert (first.returncode, second.returncode) == (1, 0)


def test_a_worker_goes_on_with_the_next_head_and_ends_with_the_sweep(
    folder: SlurmFolder, nodes: RayNodes, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    job, late = folder.intend("worker"), folder.intend("worker")
    process = start(job)
    wait_until(lambda: joined(nodes) == [job.name], LONG_S)
    folder.mark(job.name, "joined")
    following = RayNodes(tmp_path / "other")
    try:
        folder.put_head(Head("two", "head", "2", "here", following.address))
        wait_until(lambda: joined(following) == [job.name], LONG_S)
        assert joined(nodes) == []
        folder.end_all("the sweep is finished", is_good=True)
        assert "the sweep's jobs have ended: the sweep is finished" in ended(process)
        assert "have ended" in ended(start(late))
    finally:
        following.end()


def test_a_job_that_was_given_up_for_lost_starts_nothing(folder: SlurmFolder, start: Start) -> None:
    job = folder.intend("worker")
    folder.withdraw(job.name)
    process = start(job)
    assert "given up for lost" in ended(process)
    assert process.returncode == 0
