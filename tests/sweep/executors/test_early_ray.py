"""The Ray cluster that starts while its driver still looks for data."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import ray
from ray.tune.execution import class_cache

from sweep.executors.early_ray import Size, early_ray, size_of, started_ray
from sweep.executors.executor import Executor
from sweep.executors.resources import ResourceClasses
from sweep.run.run_sweep import run_sweep
from sweep.study.arms import Arm
from sweep.study.definition import Definition, put_definition
from tests.support.drivers import tiny
from trainables.records.objects import ObjectStore

FOR_ONE = Size(cpus=1, gpus=0, workers=1)


def size(monkeypatch: pytest.MonkeyPatch, cpus: int, **asked: object) -> Size:
    """Of a sweep of 6 arms on a machine of so many CPUs."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cpus)))
    workers, most = asked.pop("workers", None), asked.pop("most", 1)
    definition = tiny(**asked)
    classes = ResourceClasses(definition, lambda _: None)
    return size_of(definition, classes, workers, most)  # type: ignore[arg-type]


def descendants(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            yield child
            yield from descendants(child)


def test_workers_begin_with_the_cluster_where_each_has_an_arm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert size(monkeypatch, 2) == Size(2, 0, 2)
    assert size(monkeypatch, 2, workers=4) == Size(4, 0, 4)
    assert size(monkeypatch, 64) == Size(64, 0, 0)  # for 6 arms
    assert size(monkeypatch, 4, workers=2) == Size(4, 0, 0)  # Ray would start four
    assert size(monkeypatch, 4, threads=2) == Size(4, 0, 0)
    assert size(monkeypatch, 2, most=4) == Size(2, 0, 0)  # two groups of four would be 8 arms
    assert size(monkeypatch, 2, device="cuda") == Size(2, None, 0)


def test_workers_import_ahead_on_cpus_alone() -> None:
    assert "RAY_preload_python_modules" in Size(2, 0, 0).variables
    assert "RAY_prestart_worker_first_driver" not in Size(2, 0, 0).variables
    assert Size(2, 0, 2).variables["RAY_prestart_worker_first_driver"] == "1"
    assert Size(2, None, 0).variables == {}


def begins(executor: Executor, definition: Definition, objects: ObjectStore) -> bool:
    with executor.early(definition, objects):
        return "ray" in {thread.name for thread in threading.enumerate()}


def test_nothing_begins_where_it_may_be_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = ObjectStore(tmp_path / "new")
    assert not begins(Executor("inline"), tiny(), new)
    assert not begins(Executor("cluster"), tiny(), new)
    nowhere = {"data.name": "ucsd_ped2", "data.folder": str(tmp_path / "nowhere")}
    assert not begins(Executor("local"), tiny(**nowhere), new)
    monkeypatch.delenv("SWEEP_DATA", raising=False)
    assert not begins(Executor("local"), tiny(**{"data.name": "ucsd_ped2"}), new)
    there = ObjectStore(tmp_path / "there")
    put_definition(there, tiny())
    assert not begins(Executor("local"), tiny(), there)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_home")
def test_an_error_beside_the_start_is_told_at_once_and_ray_ends() -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="no data"), early_ray(FOR_ONE):
        raise ValueError("no data")
    told_s = time.monotonic() - began
    (thread,) = (one for one in threading.enumerate() if one.name == "ray")
    thread.join(120)
    assert not thread.is_alive()
    assert told_s < (time.monotonic() - began) / 2
    assert not ray.is_initialized()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_home")
def test_workers_that_began_early_are_those_that_train(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """And Ray's processes are no more than are needed: no dashboard, autoscaler, reader of logs."""
    objects = ObjectStore(tmp_path_factory.mktemp("store"))
    asked = put_definition(objects, tiny(n_proposals=4))
    there: dict[int, str] = {}
    variables = class_cache.DEFAULT_ENV_VARS

    def on_record(arm: Arm, is_final: bool) -> None:
        for pid in descendants(os.getpid()):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                there[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")

    classes = ResourceClasses(asked, lambda _: None)
    wanted = size_of(asked, classes, 2, 1)
    with early_ray(wanted):
        summary = run_sweep(objects, asked, Executor(workers=2), display=False, on_record=on_record)
    assert summary.is_done
    workers = [line for line in there.values() if line.startswith("ray::") and "Agent" not in line]
    assert len(workers) == max(2, wanted.workers)
    for other in ("dashboard.py", "monitor.py"):  # log_monitor.py, too
        assert not [line for line in there.values() if f"{other} " in line]
    assert class_cache.DEFAULT_ENV_VARS is variables  # in later runs of this process
    assert not ray.is_initialized()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_home")
def test_a_cluster_of_another_size_is_not_taken() -> None:
    with early_ray(FOR_ONE), started_ray(Size(cpus=3, gpus=0, workers=0)):
        assert ray.cluster_resources()["CPU"] == 3
    assert not ray.is_initialized()
