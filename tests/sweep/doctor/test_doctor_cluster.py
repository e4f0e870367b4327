"""`sweep doctor` on real clusters of this machine: every node looks, strangers are not served."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sweep.cluster.jobs import Jobs
from tests.support.command_line import sweep
from tests.support.data.text_runs import tiny_text
from tests.support.drivers import wait_until
from tests.support.servers.cluster_heads import Head, head
from tests.support.servers.ray_nodes import NO_CLUSTER, RayNodes, run_attached
from trainables.config.arm import ArmConfig
from trainables.errors import Failure

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_home"), pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[3]
Checks = dict[str, dict[str, Any]]  # by name; of several with one name the first that failed

# A cluster of one node that asks nobody for a token.
OPEN = """
import ray, sys
ray.init(address="local", num_cpus=1, num_gpus=0, include_dashboard=False, _temp_dir=sys.argv[1],
         object_store_memory=100 * 2**20)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
ray.shutdown()
"""


def doctor(environment: Mapping[str, str], *words: str, code: int) -> Checks:
    """`sweep doctor --where cluster --json` as the head would run it."""
    ran = subprocess.run(
        [sys.executable, "-m", "sweep.cli", "doctor", "--where", "cluster", "--json", *words],
        cwd=ROOT,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert (ran.returncode, ran.stdout[:1]) == (code, "["), ran.stdout + ran.stderr
    return by_name(json.loads(ran.stdout))


def by_name(checks: list[dict[str, Any]]) -> Checks:
    found: Checks = {}
    for check in checks:
        if check["name"] not in found or not check["passed"]:
            found[check["name"]] = check
    return found


def failed(checks: Checks) -> set[str]:
    return {name for name, check in checks.items() if not check["passed"]}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[RayNodes]:
    cluster = RayNodes(tmp_path, environment={**os.environ, "SWEEP_STORAGE": str(tmp_path / "s")})
    try:
        yield cluster
    finally:
        cluster.end()


def wait_for_nodes(cluster: RayNodes, count: int) -> None:
    environment = cluster.driver_environment()
    wait_until(lambda: len(run_attached(environment, "cluster.machines()")) >= count)


def test_every_node_looks_at_itself_and_at_what_arms_will_read(
    nodes: RayNodes, tmp_path: Path
) -> None:
    environment = nodes.driver_environment()
    alone = doctor(environment, code=1)
    assert failed(alone) == {"workers"}  # nothing was looked at where arms run
    nodes.add(cpus=1)
    wait_for_nodes(nodes, 2)
    config = tiny_text(tmp_path)
    whole = doctor(environment, space_file(tmp_path, config), code=0)
    assert {
        *("token", "Ray", "workers", "the same everywhere", "packages", "GPUs", "disk", "cache"),
        *("storage", "closed ports", "clock", "MLflow"),
        *("data imdb", f"checkpoint {config.model.checkpoint}"),
    } <= set(whole)
    assert "is shared and can be written" in whole["storage"]["found"]
    assert not [p for p in (tmp_path / "s").rglob("*") if p.is_file()]  # nothing stays
    (tmp_path / "aclImdb" / "test" / "neg" / "0_2.txt").rename(tmp_path / "elsewhere")
    Path(str(config.model.checkpoint), "vocab.txt").unlink()
    nodes.add(cpus=1, gpus=2)  # that are none
    wait_for_nodes(nodes, 3)
    broken = doctor(environment, space_file(tmp_path, config), code=1)
    assert failed(broken) == {"GPUs", f"checkpoint {config.model.checkpoint}"}, broken["GPUs"]
    assert "Ray offers 2, torch can use 0" in broken["GPUs"]["found"]
    assert "3 nodes" in broken["the same everywhere"]["found"]  # though all have one address


def space_file(folder: Path, config: ArmConfig) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config.to_json()))
    return str(path)


def test_storage_of_each_nodes_own_and_full_storage_are_told(
    nodes: RayNodes, tmp_path: Path
) -> None:
    nodes.add(cpus=1)
    wait_for_nodes(nodes, 2)
    (tmp_path / "file").write_text("")
    checks = doctor(
        nodes.driver_environment(), "--storage", str(tmp_path / "file" / "below"), code=1
    )
    assert "storage of the head" in failed(checks)
    assert checks["the same everywhere"]["passed"]  # the rest was looked at nevertheless


@contextmanager
def open_cluster(tmp_path: Path) -> Iterator[str]:
    """A cluster that lets everybody in; yields its address."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN, f"{os.environ['RAY_TMPDIR']}/open"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment | {"RAY_AUTH_MODE": "disabled"},
    )
    with process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "the cluster did not start"
        try:
            yield address
        finally:
            process.communicate(timeout=60)


def test_a_cluster_without_a_token_is_refused_from_its_head(tmp_path: Path) -> None:
    with open_cluster(tmp_path) as address:
        checks = doctor({**os.environ, "RAY_ADDRESS": address}, code=1)
    assert set(checks) == {"token"}
    assert "takes commands from anybody" in checks["token"]["found"]


def test_no_cluster_is_no_success() -> None:
    checks = doctor({**os.environ, **NO_CLUSTER}, code=1)
    assert set(checks) == {"token"}


def takes_jobs(there: Head) -> bool:
    """Whether the head's agent, which starts last, is up: until then it refuses every job."""
    try:
        jobs = Jobs(there.url, there.token.read_text())
        return jobs.start(f"try-{uuid.uuid4().hex}", "true")
    except Failure:
        return False


def test_a_laptop_hears_what_the_head_and_its_nodes_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with head(tmp_path) as there:
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(there.token))
        there.token.chmod(0o600)
        wait_until(lambda: takes_jobs(there), timeout_s=120)
        ran = sweep("doctor", "quickstart", "--address", there.url, "--json", exits=1)
        found = by_name(json.loads(ran.stdout))
        assert failed(found) == {"workers"}, found["head"]  # this head is alone
        assert {"token here", "head", "token", "version", "storage", "MLflow"} <= set(found)
        secret = there.token.read_text()
        assert secret not in ran.output
        monkeypatch.setenv("RAY_AUTH_TOKEN", "f" * 64)
        ran = sweep("doctor", "--address", there.url, "--json", exits=1)
        assert "did not accept the token" in by_name(json.loads(ran.stdout))["head"]["found"]


def test_a_laptop_refuses_a_cluster_without_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with head(tmp_path, environment={"RAY_AUTH_MODE": "disabled"}) as there:
        monkeypatch.setenv("RAY_AUTH_TOKEN", "f" * 64)
        ran = sweep("doctor", "--address", there.url, "--json", exits=1)
    found = by_name(json.loads(ran.stdout))
    assert set(found) == {"token here", "head", "token"}
    assert "nothing was run" in found["token"]["found"]
