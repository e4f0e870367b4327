"""Cores of a process: the least of affinity, quotas and a job's share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainables.machine.cores import counted, memory_kills, usable_cores

NO_JOB: dict[str, str] = {}


@pytest.fixture(autouse=True)
def large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(96)), raising=False)


def machine(folder: Path, cgroup: str, root: str = "/", *, version: int = 2) -> Path:
    """/proc/self of a process in this group, with the hierarchy mounted from ``root`` on."""
    kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,cpu,cpuacct"
    proc, line = folder / "proc", "0::" if version == 2 else "4:cpu,cpuacct:"
    proc.mkdir()
    (proc / "cgroup").write_text(f"7:memory:/elsewhere\n{line}{cgroup}\n")
    other = f"30 1 0:2 / {folder}/none rw shared:1 - cgroup cgroup rw,memory\n"
    mount = f"31 1 0:3 {root} {folder}/groups rw,nosuid shared:2 - {kind}\n"
    (proc / "mountinfo").write_text("22 1 0:1 / / rw - ext4 /dev/x rw\n" + other + mount)
    return proc


def group(folder: Path, name: str, **files: str) -> None:
    place = folder / "groups" / name
    place.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (place / file.replace("__", ".")).write_text(text + "\n")


@pytest.mark.parametrize(
    ("maximum", "count"),
    [("max 100000", 96), ("400000 100000", 4), ("50000 100000", 1), ("150000 100000", 2)],
)
def test_a_pods_quota_counts(tmp_path: Path, maximum: str, count: int) -> None:
    group(tmp_path, "", cpu__max=maximum)
    assert counted(NO_JOB, machine(tmp_path, "/")).number == count


def test_the_least_quota_of_the_groups_above_counts(tmp_path: Path) -> None:
    group(tmp_path, "pods", cpu__max="300000 100000")
    group(tmp_path, "pods/one", cpu__max="max 100000")
    cores = counted(NO_JOB, machine(tmp_path, "/pods/one"))
    assert cores == (3, "a container's quota of 3")


@pytest.mark.parametrize("name", ["/docker/abc", "/../../other", "/docker/abc/inner"])
def test_a_container_that_sees_its_own_group_as_the_root(tmp_path: Path, name: str) -> None:
    group(tmp_path, "", cpu__max="200000 100000")
    assert counted(NO_JOB, machine(tmp_path, name, "/docker/abc")).number == 2


@pytest.mark.parametrize(("quota", "count"), [("-1", 96), ("250000", 3)])
def test_a_quota_of_the_first_version_counts(tmp_path: Path, quota: str, count: int) -> None:
    group(tmp_path, "job", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    assert counted(NO_JOB, machine(tmp_path, "/job", version=1)).number == count


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ({"SLURM_CPUS_PER_TASK": "1"}, 1),
        ({"SLURM_CPUS_PER_TASK": "4", "SLURM_CPUS_ON_NODE": "16"}, 4),
        ({"SLURM_CPUS_ON_NODE": "28"}, 28),
        ({"NSLOTS": "8"}, 8),
        ({"NCPUS": "8"}, 8),
        ({"SLURM_CPUS_PER_TASK": "200"}, 96),
        ({"SLURM_CPUS_PER_TASK": "0"}, 96),
        ({"SLURM_CPUS_PER_TASK": "many"}, 96),
    ],
)
def test_what_a_batch_system_gave_counts(tmp_path: Path, said: dict[str, str], count: int) -> None:
    assert counted(said, tmp_path).number == count


def test_broken_files_of_the_kernel_bind_nothing(tmp_path: Path) -> None:
    group(tmp_path, "", cpu__max="")
    proc = machine(tmp_path, "/")
    assert counted(NO_JOB, proc).number == 96
    (proc / "mountinfo").write_bytes(b"\xff\xfe\n - cgroup2\n")
    assert counted(NO_JOB, proc).number == 96


def test_a_system_without_affinity_counts_its_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert counted(NO_JOB, tmp_path).number == os.cpu_count()


def test_doctor_says_what_keeps_a_process_to_few_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    from sweep.doctor.machine import count_cores

    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    assert usable_cores() == 1
    assert count_cores().finding == "1 for this process: SLURM_CPUS_PER_TASK is 1"


def test_processes_that_a_memory_limit_killed_are_counted(tmp_path: Path) -> None:
    proc = machine(tmp_path, "/slurm/job_7/step_batch")
    assert memory_kills(proc) == 0
    group(tmp_path, "slurm/job_7/step_batch", memory__events="low 0\noom 3\noom_kill 2")
    assert memory_kills(proc) == 2


def test_so_are_those_of_the_first_version(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("4:cpu,cpuacct:/elsewhere\n9:memory:/slurm/job_7\n")
    mount = f"31 1 0:3 / {tmp_path}/groups rw shared:2 - cgroup cgroup rw,memory\n"
    (proc / "mountinfo").write_text(mount)
    files = {"memory__oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1"}
    group(tmp_path, "slurm/job_7", **files)
    assert memory_kills(proc) == 1
    assert isinstance(memory_kills(), int)  # of this process
