"""Sweeps on a Ray cluster of imitated GPUs: packed arms, a machine without CUDA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sweep.study.definition import put_definition
from tests.support.drivers import Driver, records, table, tiny, wait_until
from tests.support.gpu.alone import trained_alone
from tests.support.gpu.in_workers import ImitatedGpus
from tests.support.servers.ray_nodes import RayNodes
from trainables.memory import CONTEXT_MB
from trainables.records.objects import ObjectStore

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("ray_home"),
    pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch has CUDA of its own"),
]
PATIENCE_S = 400  # of a test: what starts here are whole clusters, on a machine that others use


@pytest.fixture
def gpus(tmp_path: Path) -> ImitatedGpus:
    """Of every machine: two."""
    return ImitatedGpus(tmp_path / "gpus", count=2)


@pytest.fixture
def nodes(tmp_path: Path, gpus: ImitatedGpus) -> Iterator[RayNodes]:
    """A cluster of a head."""
    there = RayNodes(tmp_path, gpus.environment())
    yield there
    there.end()


def drive(nodes: RayNodes, objects: ObjectStore) -> Driver:
    environment = nodes.driver_environment()
    return Driver(objects, where="cluster", workers=None, environment=environment)


def test_arms_are_packed_on_gpus_by_their_share(
    nodes: RayNodes, objects: ObjectStore, gpus: ImitatedGpus, tmp_path: Path
) -> None:
    """All eight arms of a quarter are there at once."""
    asked = tiny(n_proposals=3, device="cuda", gpus_per_arm=0.25, steps=10, report_every=5)
    put_definition(objects, asked)
    gpus.meet(8, "attempts")
    nodes.add(cpus=8, gpus=2)
    driver = drive(nodes, objects)
    try:
        wait_until(lambda: len(gpus.met()) >= 8, timeout_s=PATIENCE_S)
        code, out, err = driver.wait(timeout_s=PATIENCE_S)
    finally:
        driver.kill()
    assert code == 0, out + err
    assert Counter(gpu for _, gpu in gpus.met()) == {"0": 4, "1": 4}
    started = [one for told in gpus.told("started").values() for one in told]
    assert Counter(one["sees"] == one["given"] for one in started) == {True: 8}
    quarter = pytest.approx(1 / 4 - CONTEXT_MB / 8192)
    assert [one for told in gpus.told("share").values() for one in told] == [quarter] * 8
    assert table(objects, asked) == trained_alone(asked, tmp_path / "alone")


def test_arms_leave_a_machine_on_which_cuda_does_not_start(
    nodes: RayNodes, objects: ObjectStore, gpus: ImitatedGpus, tmp_path: Path
) -> None:
    asked = tiny(n_proposals=3, device="cuda", gpus_per_arm=0.5, steps=10, report_every=5)
    put_definition(objects, asked)
    broken = nodes.nodes[nodes.add(cpus=2, gpus=1)].pid
    gpus.break_gpu(0, below=broken)
    nodes.add(cpus=2, gpus=1)
    driver = drive(nodes, objects)
    try:
        code, out, err = driver.wait(timeout_s=PATIENCE_S)
    finally:
        driver.kill()
    assert code == 0, out + err
    assert "CUDA does not start on" in err
    refused = [above for told in gpus.told("refused").values() for above in told]
    assert refused
    assert all(broken in above for above in refused)
    assert {one.status for one in records(objects).values()} == {"finished"}
    assert table(objects, asked) == trained_alone(asked, tmp_path / "alone")
