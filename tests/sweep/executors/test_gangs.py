"""Arms on several processes through Ray Tune: kills, a resume on one, refusals."""

from __future__ import annotations

import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweep.executors.executor import Executor
from sweep.run.run_sweep import run_sweep
from sweep.study.definition import put_definition
from tests.support.drivers import Driver, records, steps, tiny, wait_until
from tests.support.training.companies import farthest
from trainables.errors import InvalidValue
from trainables.records.objects import ObjectStore

LONG = {"steps": 60, "report_every": 10, "n_proposals": 1}


def peers(driver: Driver) -> list[int]:
    """Processes of its Ray cluster that train with a worker, and are no worker themselves."""
    below = psutil.Process(driver.process.pid).children(recursive=True)
    return [process.pid for process in below if "_Peer" in _title(process)]


def peers_after_a_report(driver: Driver, objects: ObjectStore) -> list[int]:
    before = sum(steps(objects).values())
    wait_until(lambda: sum(steps(objects).values()) > before and bool(peers(driver)))
    return peers(driver)


def is_gone(driver: Driver, pid: int) -> bool:
    return pid not in peers(driver)


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended
        return ""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("ray_home")
def test_a_sweep_whose_processes_are_killed_comes_to_the_numbers_of_one_and_resumes_on_one(
    objects: ObjectStore, tmp_path: Path
) -> None:
    """Killed twice, and stopped once an arm is final; the others go on in one process each."""
    asked = put_definition(objects, tiny(**LONG))
    inline = ObjectStore(tmp_path / "inline")
    assert run_sweep(inline, put_definition(inline, asked), Executor("inline"), display=False)
    driver = Driver(objects, workers=1, processes=2)
    try:
        for _ in range(2):
            (killed,) = peers_after_a_report(driver, objects)
            os.kill(killed, signal.SIGKILL)
            wait_until(partial(is_gone, driver, killed))
        wait_until(lambda: any(one.is_final for one in records(objects).values()))
        driver.process.send_signal(signal.SIGINT)
        code, out, err = driver.wait()
    finally:
        driver.kill()
    assert code != 0, out + err
    assert len(re.findall("a worker died .* goes on from its last checkpoint", err)) == 2
    assert f"--workers 1 --processes 2 --storage {objects.root}" in out
    ended = sum(one.is_final for one in records(objects).values())
    assert 1 <= ended < 4
    assert run_sweep(objects, asked, Executor(workers=2), display=False).is_done
    alone, found = records(inline), records(objects)
    assert found.keys() == alone.keys()
    assert max(farthest(alone[name], found[name]) for name in alone) < 1e-4
    counts = [one.environment.get("processes", 1) for one in found.values()]
    assert sorted(counts) == sorted([2] * ended + [1] * (4 - ended))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"processes": 0}, "processes must be at least 1, got 0"),
        ({"where": "inline", "processes": 2}, r"\(inline\), got 2: Ray starts the others"),
        ({"fuse": 4, "processes": 2}, "processes and fuse exclude each other, got 2 and 4"),
    ],
)
def test_processes_that_nothing_can_start_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidValue, match=why):
        Executor(**options)


def test_a_batch_that_is_too_small_is_told_before_anything_is_trained(objects: ObjectStore) -> None:
    asked = put_definition(objects, tiny(batch_size=2))
    with pytest.raises(InvalidValue, match="processes must be at most 2, the samples of a batch"):
        run_sweep(objects, asked, Executor(processes=3), display=False)
    assert records(objects) == {}
