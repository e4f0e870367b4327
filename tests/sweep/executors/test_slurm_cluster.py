"""The cluster of a sweep on Slurm: how many jobs are asked for, and which machines count."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sweep.executors import slurm_cluster
from sweep.executors.resources import ResourceClass
from sweep.executors.slurm_cluster import VARIABLE, SlurmCluster, own_cluster
from sweep.slurm.folder import SlurmFolder
from sweep.slurm.ray_node import LABEL
from tests.support.servers.slurm_programs import SlurmPrograms

ONE = ResourceClass(1)


class Cluster(SlurmCluster):
    """With nodes that a test names in place of Ray's."""

    def __init__(self, folder: SlurmFolder) -> None:
        super().__init__(folder)
        self.there: list[dict[str, Any]] = [{"NodeID": "head", "Labels": {}, "Resources": {}}]

    def nodes(self) -> list[dict[str, Any]]:
        return self.there

    def look_and_ask(self, arm: ResourceClass, count: int) -> None:
        """As a driver does every few seconds."""
        self.machines()
        self.ask(arm, count)

    def join(self, job: str, cpus: float = 2.0) -> None:
        labels, resources = {LABEL: job}, {"CPU": cpus, "memory": 1e9}
        self.there.append({"NodeID": f"id-{job}", "Labels": labels, "Resources": resources})


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmPrograms:
    return SlurmPrograms(tmp_path / "programs", monkeypatch)


def started(tmp_path: Path, **worker: Any) -> tuple[SlurmFolder, Cluster]:
    folder = SlurmFolder(str(tmp_path), "tiny")
    shape = {"cpus": 2, "most": 3, **worker}
    slurm = {"storage": str(tmp_path), "worker": shape, "poll_s": 1.0}
    folder.begin({"slurm": slurm, "submission": {"name": "tiny"}, "known": ""})
    return folder, Cluster(folder)


@pytest.mark.parametrize(
    ("shape", "arm", "count", "jobs"),
    [
        ({}, ONE, 1, 1),
        ({}, ONE, 2, 1),  # two arms of one core in a job of two
        ({}, ONE, 3, 2),
        ({}, ONE, 100, 3),  # no more than `most`
        ({}, ONE, 0, 0),
        ({"nodes": 2}, ONE, 5, 2),
        ({"gpus": 1}, ResourceClass(1, 0.5), 3, 2),
        ({"gpus": 1}, ResourceClass(1, 1.0), 3, 3),
        ({"gpus": 1}, ResourceClass(1, 1.0, processes=2), 1, 2),  # an arm over two jobs
    ],
)
def test_as_many_jobs_are_asked_for_as_hold_the_arms(
    tmp_path: Path,
    programs: SlurmPrograms,
    shape: dict[str, int],
    arm: ResourceClass,
    count: int,
    jobs: int,
) -> None:
    _, cluster = started(tmp_path, **shape)
    cluster.look_and_ask(arm, count)
    assert len(programs.queue()) == jobs
    cluster.look_and_ask(arm, count)  # they are on their way
    assert len(programs.queue()) == jobs


def test_jobs_that_are_not_wanted_any_more_leave_the_queue(
    tmp_path: Path, programs: SlurmPrograms
) -> None:
    _, cluster = started(tmp_path)
    cluster.look_and_ask(ONE, 6)
    cluster.machines()
    assert cluster.waiting() == 3
    cluster.ask(ONE, 2)
    assert programs.cancelled() == ["3", "2"] or programs.cancelled() == ["2", "3"]
    assert list(programs.queue()) == ["1"]


def test_a_job_that_begins_is_not_cancelled_but_waited_for(
    tmp_path: Path, programs: SlurmPrograms
) -> None:
    folder, cluster = started(tmp_path)
    cluster.look_and_ask(ONE, 2)
    (job,) = folder.jobs("worker")
    assert folder.claim(job.name, job.id, "node1")
    cluster.machines()
    assert cluster.why_waiting == "worker job 1 is to join"
    cluster.ask(ONE, 0)
    assert programs.cancelled() == []


def test_machines_that_leave_do_not_count_and_make_room_for_the_next_job(
    tmp_path: Path, programs: SlurmPrograms
) -> None:
    folder, cluster = started(tmp_path, most=1)
    cluster.look_and_ask(ONE, 2)
    (job,) = folder.jobs("worker")
    folder.claim(job.name, job.id, "node1")
    programs.put_state(job.id, "RUNNING")
    cluster.join(job.name)
    assert cluster.machines() == [{}, {"CPU": 2.0}]
    assert folder.has_joined(job.name)
    cluster.ask(ONE, 2)
    assert len(programs.queue()) == 1  # one at a time
    folder.mark(job.name, "leaving")
    assert cluster.machines() == [{}]
    assert cluster.leaving == [f"id-{job.name}"]
    cluster.ask(ONE, 2)
    assert len(programs.queue()) == 2


def test_the_queues_reason_is_what_the_sweep_waits_for(
    tmp_path: Path, programs: SlurmPrograms
) -> None:
    _, cluster = started(tmp_path)
    cluster.look_and_ask(ONE, 4)
    time.sleep(1.1)  # the queue is asked once a second here
    cluster.machines()
    assert cluster.why_waiting == (
        "worker job 1 is pending (Resources: it waits for nodes to be free), and 1 more wait"
    )


def test_a_lost_answer_makes_no_second_job(tmp_path: Path, programs: SlurmPrograms) -> None:
    folder, cluster = started(tmp_path)
    cluster.machines()
    programs.lose()
    cluster.ask(ONE, 2)
    cluster.look_and_ask(ONE, 2)
    time.sleep(1.1)
    cluster.look_and_ask(ONE, 2)
    assert list(programs.queue()) == ["1"]
    assert [known.id for known in folder.jobs("worker")] == ["1"]


def test_a_refusal_is_told_and_tried_again_later(tmp_path: Path, programs: SlurmPrograms) -> None:
    folder, cluster = started(tmp_path)
    cluster.machines()
    programs.refuse("sbatch: error: QOSMaxSubmitJobPerUserLimit")
    cluster.ask(ONE, 2)
    cluster.machines()
    assert "Slurm takes no more of your jobs now" in cluster.why_waiting
    programs.refuse("")
    cluster.ask(ONE, 2)
    assert programs.queue() == {}  # not at once
    assert all(known.is_over for known in folder.jobs("worker"))


def test_jobs_that_never_join_end_the_sweep_in_words(
    tmp_path: Path, programs: SlurmPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_cluster, "BACK_OFF_S", (0.0, 0.0))
    folder, cluster = started(tmp_path)
    for _ in range(3):
        cluster.machines()
        assert not cluster.trouble
        cluster.ask(ONE, 1)
        known = folder.jobs("worker")[-1]
        folder.claim(known.name, known.id, "node1")
        folder.ended(known.name, f"job {known.id} ended as FAILED", is_good=False)
        programs.end(known.id, "FAILED")
    cluster.machines()
    assert "3 worker jobs in a row ended before they joined" in cluster.trouble
    cluster.ask(ONE, 1)
    assert len(programs.submitted()) == 3


def test_another_job_is_asked_for_some_time_after_one_that_never_joined(
    tmp_path: Path, programs: SlurmPrograms
) -> None:
    """A node that fails each job at once is free for the next one."""
    folder, cluster = started(tmp_path)
    cluster.look_and_ask(ONE, 1)
    (known,) = folder.jobs("worker")
    folder.ended(known.name, "a node without a disk", is_good=False)
    cluster.look_and_ask(ONE, 1)
    assert len(programs.submitted()) == 1


def test_the_cluster_of_a_driver_is_the_one_that_its_head_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(tmp_path)
    assert type(own_cluster()).__name__ == "RayCluster"
    monkeypatch.setenv(VARIABLE, f"{tmp_path}\ntiny")
    assert isinstance(own_cluster(), SlurmCluster)


def test_as_many_machines_may_come_as_all_jobs_have(tmp_path: Path) -> None:
    _, cluster = started(tmp_path, nodes=2, gpus=4)
    assert cluster.largest(ONE) == [{"CPU": 2.0, "GPU": 4.0}] * 6
