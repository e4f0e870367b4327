"""The executor on a local Ray cluster, with real arms, and how it is stopped."""

from __future__ import annotations

import gc
import os
import pty
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private.ray_constants import DEFAULT_DASHBOARD_AGENT_LISTEN_PORT
from ray.tune.experiment import Trial

from sweep.executors.executor import Executor
from sweep.run.events import Observer
from sweep.run.run_sweep import run_sweep
from sweep.run.signals import request_stop
from sweep.study.arms import Arm
from sweep.study.definition import put_definition
from sweep.study.lock import driver_of
from tests.support.drivers import Driver, records, steps, table, tiny, undisturbed, wait_until
from tests.support.faults import Faults
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_home")]


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "store")


@pytest.fixture
def start(objects: ObjectStore) -> Iterator[Callable[..., Driver]]:
    """Start drivers; what still runs at the end of the test is killed."""
    drivers: list[Driver] = []

    def start_driver(**options: Any) -> Driver:
        drivers.append(Driver(objects, **options))
        return drivers[-1]

    yield start_driver
    for driver in drivers:
        driver.kill()


def test_ray_and_inline_come_to_the_same_numbers(
    objects: ObjectStore, trained_inline: ObjectStore
) -> None:
    asked = put_definition(objects, tiny())
    told: list[bool] = []
    agents: set[int] = set()

    def on_record(arm: Arm, is_final: bool) -> None:
        told.append(is_final)
        node = ray._private.worker._global_node
        agents.add(node.dashboard_agent_listen_port)

    summary = run_sweep(
        objects, asked, Executor(workers=2), display=False, observer=Observer(on_record)
    )
    assert (summary.is_done, summary.exit_code, summary.problems) == (True, 0, ())
    assert sum(told) == 6
    assert DEFAULT_DASHBOARD_AGENT_LISTEN_PORT not in agents  # the head of a cluster needs it
    assert table(objects, asked) == undisturbed(trained_inline, asked)
    # Nothing of it stays: no folder, no file in the home folder.
    assert not list(Path(os.environ["RAY_TMPDIR"]).glob("sweep-*"))
    assert not list(Path.home().iterdir())


def test_a_group_whose_workers_are_killed_comes_to_the_numbers_of_arms_alone(
    objects: ObjectStore, start: Callable[..., Driver], tmp_path: Path, trained_inline: ObjectStore
) -> None:
    """Killed between the checkpoints of a group's arms, and as one arm of it puts its weights."""
    asked = put_definition(objects, tiny(n_proposals=3, steps=60, report_every=10))
    faults = Faults(tmp_path / "faults")
    faults.kill("checkpoint", "after", skip=5)
    faults.kill("weights", "half", skip=1)
    code, out, err = start(fuse=4, environment=faults.environment()).wait()
    assert code == 0, out + err
    assert sorted(death.split()[0] for death in faults.deaths()) == ["checkpoint", "weights"]
    assert "arms go on from their last checkpoints" in err
    assert table(objects, asked) == undisturbed(trained_inline, asked)


def test_tune_keeps_no_trials_that_are_over(objects: ObjectStore) -> None:
    """It would keep 50 KB of every arm, and ask each of them at every step whether it is over."""
    asked = put_definition(objects, tiny(n_proposals=24))
    gc.collect()  # what other tests left
    most = finished = 0

    def on_record(arm: Arm, is_final: bool) -> None:
        nonlocal most, finished
        finished += is_final
        if is_final:
            most = max(most, sum(isinstance(one, Trial) for one in gc.get_objects()))

    assert run_sweep(
        objects, asked, Executor(workers=2), display=False, observer=Observer(on_record)
    ).is_done
    assert finished == 50
    assert most < finished / 2  # live ones, and those that ended within the last second


def test_a_stopped_sweep_checkpoints_says_how_to_resume_and_resumes(
    objects: ObjectStore, start: Callable[..., Driver]
) -> None:
    put_definition(objects, tiny(steps=100_000, report_every=100))
    reached: dict[str, int] = {}
    for how in ("sweep stop", "SIGINT", "SIGTERM", "SIGHUP"):
        driver = start()
        wait_until(partial(both_go_on, objects, reached))
        for name, step in reached.items():
            assert objects.get_json(f"arms/{name}/attempts.json")["resumed_from"] == step
        if how == "sweep stop":
            request_stop(objects, "tiny")
        elif how == "SIGINT":
            driver.process.send_signal(signal.SIGINT)
        else:  # as batch systems do, and `timeout`: to Ray's processes, too, and twice
            os.killpg(driver.process.pid, getattr(signal, how))
            driver.process.send_signal(getattr(signal, how))
        code, out, err = driver.wait()
        assert code == 1, err
        assert "GCS" not in err  # what Ray's client says of a cluster that died before it
        assert "stopped=" in out
        assert how == "sweep stop" or "`sweep resume tiny --workers 2 --storage" in err
        assert "Traceback" not in err
        assert driver_of(objects, "tiny") is None
        assert not any(record.is_final for record in records(objects).values())
        reached = steps(objects)
        for name, step in reached.items():
            newest = ArmStore(objects).newest_checkpoint(name)
            assert newest is not None
            assert newest[0] == step  # nothing that was reported is lost


def both_go_on(objects: ObjectStore, reached: dict[str, int]) -> bool:
    """Two arms train, each beyond the step that it had reached."""
    now = steps(objects)
    return len(now) == 2 and all(step > reached.get(name, 0) for name, step in now.items())


def test_a_second_interrupt_ends_now(objects: ObjectStore, start: Callable[..., Driver]) -> None:
    put_definition(objects, tiny(steps=1_000_000, report_every=500_000))
    driver = start(where="inline")
    wait_until(lambda: bool(objects.names("arms")))
    time.sleep(0.5)
    driver.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert driver.process.poll() is None  # it would end at its report, hours away
    driver.process.send_signal(signal.SIGINT)
    code, out, err = driver.wait(timeout_s=20)
    assert code == 1
    assert "stopped='Ctrl-C'" in out
    assert "Traceback" not in err


def test_sigterm_does_not_wait_for_reports_that_do_not_come(
    objects: ObjectStore, start: Callable[..., Driver]
) -> None:
    put_definition(objects, tiny(steps=1_000_000, report_every=500_000))
    driver = start(where="inline", grace_s=0.5)
    wait_until(lambda: bool(objects.names("arms")))
    driver.process.send_signal(signal.SIGTERM)
    code, out, err = driver.wait()
    assert code == 1
    assert "stopped='SIGTERM'" in out
    assert "`sweep resume tiny --workers 2 --where inline" in err
    assert "Traceback" not in err


def test_a_closed_terminal_is_no_crash(objects: ObjectStore) -> None:
    put_definition(objects, tiny(steps=1_000_000, report_every=10))
    ours, its = pty.openpty()
    driver = Driver(objects, where="inline", terminal=its)
    os.close(its)
    wait_until(lambda: bool(steps(objects)))
    os.close(ours)  # every write to it fails from now on
    os.killpg(driver.process.pid, signal.SIGHUP)
    try:
        assert driver.process.wait(timeout=150) == 1  # 128 + 1, or -1, would be a death
    finally:
        driver.kill()
    [(name, step), *_] = steps(objects).items()
    newest = ArmStore(objects).newest_checkpoint(name)
    assert newest is not None
    assert newest[0] == step


def test_a_full_disk_ends_the_sweep_loudly_and_loses_nothing(
    objects: ObjectStore, start: Callable[..., Driver], tmp_path: Path
) -> None:
    asked = put_definition(objects, tiny(steps=400, report_every=20))
    faults = Faults(tmp_path / "faults")
    driver = start(patience_s=1, environment=faults.environment())
    wait_until(lambda: any(record.is_final for record in records(objects).values()))
    faults.full(True)
    code, out, err = driver.wait()
    assert code == 1, err
    assert "No space left on device" in out
    assert "nothing that is finished is lost" in out
    kept = {name: record for name, record in records(objects).items() if record.is_final}
    assert kept
    faults.full(False)
    code, out, err = start(environment=faults.environment()).wait()
    assert code == 0, out + err
    now = records(objects)
    assert len(now) == 6
    assert {name: now[name] for name in kept} == kept
    assert asked == put_definition(objects, asked)
