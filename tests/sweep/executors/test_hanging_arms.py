"""Workers that hang under a real driver: ended, tried once more, and then failed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep.study.definition import put_definition
from tests.support.drivers import Driver, records, steps, table, tiny, undisturbed, wait_until
from tests.support.faults import Faults
from trainables.records.objects import ObjectStore

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_home")]


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path / "faults")


@pytest.fixture
def start(objects: ObjectStore, faults: Faults) -> Iterator[Callable[..., Driver]]:
    drivers: list[Driver] = []

    def start_driver(**options: Any) -> Driver:
        drivers.append(Driver(objects, environment=faults.environment(), **options))
        return drivers[-1]

    yield start_driver
    for driver in drivers:
        driver.kill()


def test_a_worker_that_hangs_once_costs_time_alone(
    objects: ObjectStore,
    faults: Faults,
    start: Callable[..., Driver],
    trained_inline: ObjectStore,
) -> None:
    asked = put_definition(objects, tiny(steps=400, report_every=20, stall_after_s=8))
    driver = start()
    wait_until(lambda: bool(faults.workers()) and bool(steps(objects)))
    faults.hang("checkpoint", "before", skip=1)  # in a call that never returns
    wait_until(lambda: not faults.pending())

    def others() -> list[int]:
        return [pid for pid in faults.workers() if pid not in faults.obeyed()]

    wait_until(lambda: bool(others()))
    os.kill(others()[0], signal.SIGSTOP)  # and a process that answers to nothing
    code, out, err = driver.wait(timeout_s=300)
    assert code == 0, out + err
    assert err.count("its worker is ended, and it is tried once more") == 2
    assert "a worker died" not in err
    assert table(objects, asked) == undisturbed(trained_inline, asked)


def test_an_arm_that_hangs_twice_is_failed_and_the_others_go_on(
    objects: ObjectStore, faults: Faults, start: Callable[..., Driver]
) -> None:
    put_definition(objects, tiny(steps=40, report_every=20, stall_after_s=5))
    for _ in range(2):
        faults.hang("attempts", "after")
    code, out, err = start(workers=1).wait(timeout_s=300)  # the first arm meets both orders
    assert code == 1, out + err
    assert "1 unconstrained arm failed; the first: it hangs: no report for" in out
    ended: dict[str, Any] = records(objects)
    assert Counter(r.status for r in ended.values()) == {"finished": 5, "failed": 1}
    (hung,) = [r for r in ended.values() if r.status == "failed"]
    assert "after step 0" in hung.reason
    assert hung.config.constraint is None
    assert err.count("it is tried once more") == err.count("it is failed") == 1
