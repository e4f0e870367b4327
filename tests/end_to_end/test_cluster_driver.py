"""Drivers on a running Ray cluster: machines come and go, and sweeps share them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep.study.definition import put_definition
from sweep.study.lock import driver_of
from tests.support.drivers import Driver, records, steps, table, tiny, undisturbed, wait_until
from tests.support.faults import Faults
from tests.support.servers.ray_nodes import NO_CLUSTER, RayNodes, run_attached
from trainables.records.objects import ObjectStore

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("ray_home"),
]
ARM: dict[str, Any] = {"steps": 400, "report_every": 20}
REST_S = 1.0  # after each report, until enough has been done to a sweep
PATIENCE_S = 400  # of a test: what starts here are whole clusters, on a machine that others use


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path / "faults")


@pytest.fixture
def nodes(tmp_path: Path, faults: Faults) -> Iterator[RayNodes]:
    """A cluster of a head; its processes execute the orders of ``faults``."""
    there = RayNodes(tmp_path, faults.environment())
    yield there
    there.end()


@pytest.fixture
def start(nodes: RayNodes, objects: ObjectStore) -> Iterator[Callable[..., Driver]]:
    """Start drivers on the cluster; what still runs at the end of the test is killed."""
    drivers: list[Driver] = []

    def start_driver(**options: Any) -> Driver:
        environment = nodes.driver_environment(**options.pop("environment", {}))
        plain = {"where": "cluster", "workers": None, "environment": environment}
        drivers.append(Driver(objects, **(plain | options)))
        return drivers[-1]

    yield start_driver
    for driver in drivers:
        driver.kill()


def test_a_sweep_starts_without_workers_loses_one_and_comes_to_the_same_table(
    nodes: RayNodes,
    objects: ObjectStore,
    start: Callable[..., Driver],
    faults: Faults,
    trained_inline: ObjectStore,
) -> None:
    asked = put_definition(objects, tiny(n_proposals=4, **ARM))
    faults.rest(REST_S)
    driver = start()

    def waits_for() -> str:
        there = driver_of(objects, asked.name)
        return "" if there is None else there.waits_for

    wait_until(lambda: "no machine of the cluster holds" in waits_for(), timeout_s=PATIENCE_S)
    first = nodes.add(cpus=2)
    nodes.add(cpus=1)
    wait_until(lambda: len(running(objects)) >= 3, timeout_s=PATIENCE_S)
    nodes.power_off(first)
    faults.rest(0)
    nodes.add(cpus=2)
    code, out, err = driver.wait(timeout_s=PATIENCE_S)
    assert code == 0, out + err
    assert "no machine of the cluster holds an arm" in err  # told while there was none
    assert "goes on from its last checkpoint" in err
    assert table(objects, asked) == undisturbed(trained_inline, asked)


def running(objects: ObjectStore) -> list[str]:
    """Arms that have reported and are not final."""
    return [n for n, r in records(objects).items() if r.reports and not r.is_final]


def test_a_stopped_sweep_ends_also_while_its_arms_wait_for_a_worker(
    nodes: RayNodes, objects: ObjectStore, start: Callable[..., Driver]
) -> None:
    put_definition(objects, tiny(steps=100_000, report_every=100))
    node = nodes.add(cpus=2)
    driver = start()
    wait_until(lambda: len(steps(objects)) == 2, timeout_s=PATIENCE_S)
    nodes.power_off(node)
    wait_until(lambda: count_of(nodes) == 1, timeout_s=PATIENCE_S)  # the head
    driver.process.send_signal(signal.SIGTERM)
    code, out, err = driver.wait(timeout_s=PATIENCE_S)
    assert code == 1, out + err
    assert "stopped='SIGTERM'" in out
    assert "problems=()" in out


def count_of(nodes: RayNodes) -> int:
    there: list[Any] = run_attached(nodes.driver_environment(), "cluster.machines()")
    return len(there)


def test_two_sweeps_share_the_cluster_and_the_first_gives_way(
    nodes: RayNodes,
    objects: ObjectStore,
    start: Callable[..., Driver],
    faults: Faults,
    trained_inline: ObjectStore,
) -> None:
    one = put_definition(objects, tiny(n_proposals=5, name="one", **ARM))
    two = put_definition(objects, tiny(n_proposals=2, name="two", **ARM, train_gamma=0.2))
    faults.rest(REST_S)
    nodes.add(cpus=2)
    nodes.add(cpus=2)
    first = start(name="one", beat_s=1)
    wait_until(lambda: len(running(objects)) >= 3, timeout_s=PATIENCE_S)
    second = start(name="two", beat_s=1)
    mine = {arm.signature for arm in every_arm(two)}
    wait_until(lambda: len(mine & set(steps(objects))) >= 2, timeout_s=PATIENCE_S)
    assert first.process.poll() is None  # it was not done: it gave way
    faults.rest(0)
    for driver in (first, second):
        code, out, err = driver.wait(timeout_s=PATIENCE_S)
        assert code == 0, out + err
    ones, twos = (undisturbed(trained_inline, asked) for asked in (one, two))
    assert (table(objects, one)[0], table(objects, two)[0]) == (ones[0], twos[0])
    assert table(objects, one)[1] == ones[1] | twos[1]  # both are in one store
    assert run_attached(nodes.driver_environment(), "len(cluster.read())") == 0  # both left


def every_arm(asked: Any) -> Any:
    from sweep.study.plan import Plan

    return Plan(asked).remaining()


def test_without_a_cluster_the_driver_says_what_to_do(objects: ObjectStore) -> None:
    put_definition(objects, tiny())
    environment = {**os.environ, **NO_CLUSTER}
    driver = Driver(objects, where="cluster", environment=environment)
    code, _, err = driver.wait(timeout_s=150)
    assert code == 1
    assert "no Ray cluster answers here" in err
    assert "RAY_ADDRESS" in err
