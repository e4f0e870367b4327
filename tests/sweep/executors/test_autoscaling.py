"""A sweep makes a cluster grow from no GPU machine to two, packs them, and lets go of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from sweep.study.definition import put_definition
from tests.support.drivers import tiny
from tests.support.faults import Faults
from tests.support.servers.ray_nodes import ROOT
from trainables.records.objects import ObjectStore

OWN_NAMESPACES = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("ray_home"),
]


@pytest.fixture(scope="module", autouse=True)
def _namespaces() -> None:
    try:
        ran = subprocess.run([*OWN_NAMESPACES, "ip", "link"], capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"no namespaces here: {error}")
    if ran.returncode != 0:
        pytest.skip(f"namespaces of our own are not permitted: {ran.stderr.strip()}")


def test_a_sweep_makes_a_cluster_grow_to_two_gpu_machines_and_lets_go_of_them(
    objects: ObjectStore, tmp_path: Path
) -> None:
    """No machine has a GPU, but Ray believes so: the arms meet where they are put.

    They meet only when all eight are there at once: half a GPU each, two GPUs a machine.
    """
    put_definition(objects, tiny(n_proposals=3, device="cuda", gpus_per_arm=0.5))
    faults = Faults(tmp_path / "faults")
    faults.meet(8, "attempts")
    script = (
        sys.executable,
        "-m",
        "tests.support.autoscaled_sweep",
        objects.root,
        str(tmp_path),
        "2",
    )
    resources = json.dumps({"CPU": 4, "GPU": 2})
    ran = subprocess.run(
        [*OWN_NAMESPACES, *script, resources, "8"],
        cwd=ROOT,
        env=faults.environment(),
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["code"] == 1, told  # it was stopped
    placed = Counter((node, gpu) for node, gpu in told["met"])
    assert len({node for node, _ in placed}) == 2
    assert sorted(placed.values()) == [2, 2, 2, 2]
    assert {gpu for _, gpu in placed} == {"0", "1"}
    assert (told["peak"], told["left"]) == (3, 1), told["autoscaler"]
