"""One node's self-description, and one line of what many nodes say."""

from __future__ import annotations

import math
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.doctor import machine
from sweep.doctor import node as doctor_nodes
from sweep.doctor.check import Check
from sweep.doctor.compare import (
    check_clocks,
    check_machines,
    compare_reports,
    silent_report,
)
from sweep.doctor.node import (
    Node,
    NodeReport,
    Request,
    check_closed_ports,
    check_shared_storage,
    check_token_file,
    compare_gpus,
    describe_node,
)
from sweep.doctor.scope import list_requirements
from tests.support.sweeps import SPACE
from trainables.code_version import code_version
from trainables.records.objects import ObjectStore

# --- one node -------------------------------------------------------------------------------------


def test_a_node_that_sees_what_the_head_put_shares_its_storage(objects: ObjectStore) -> None:
    objects.put("folder/probe", b"")
    check = check_shared_storage(objects.root, "folder/probe", "node-1")
    assert check.passed
    assert objects.exists("folder/probe.node-1")


def test_a_folder_of_the_nodes_own_is_not_the_shared_storage(
    objects: ObjectStore, tmp_path: Path
) -> None:
    """The mistake that loses a sweep: the same path on every node, on a disk of its own."""
    objects.put("folder/probe", b"")
    check = check_shared_storage(str(tmp_path / "own"), "folder/probe", "node-1")
    assert not check.passed
    assert "is not the head's" in check.finding
    assert "s3://" in check.advice
    assert not (tmp_path / "own").exists()


def test_storage_that_cannot_be_written_is_told(objects: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check = check_shared_storage(str(tmp_path / "file"), "folder/probe", "node-1")
    assert not check.passed


def gpu_node(gpus: float, *, is_head: bool = False) -> Node:
    return Node("id", "w (10.0.0.1)", "10.0.0.1", gpus, is_head)


@pytest.mark.parametrize(
    ("offered", "seen", "is_head", "found"),
    [
        (0, [], False, "none"),
        (2, ["H200", "H200"], False, "2 H200"),
        (2, ["H200", "L4", "H200"], False, "2 H200, 1 L4"),
        (0, ["L4"], True, "1 L4"),  # a head trains nothing
    ],
)
def test_gpus_that_ray_offers_and_torch_can_use_pass(
    offered: float, seen: list[str], is_head: bool, found: str
) -> None:
    assert compare_gpus(gpu_node(offered, is_head=is_head), seen) == Check("GPUs", True, found)


@pytest.mark.parametrize(
    ("offered", "seen", "found"),
    [
        (2, [], "Ray offers 2, torch can use 0"),
        (4, ["L4"], "Ray offers 4, torch can use 1"),
        (0, ["L4"], "torch can use 1 L4, Ray offers none"),
    ],
)
def test_gpus_that_only_one_of_them_knows_fail(offered: float, seen: list[str], found: str) -> None:
    check = compare_gpus(gpu_node(offered), seen)
    assert (check.passed, check.finding) == (False, found)
    assert check.advice


def test_gpus_are_looked_for_although_ray_hides_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray sets the variable to nothing for tasks that ask for no GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    seen = 'import json, os; print(json.dumps(["L4"] * ("CUDA_VISIBLE_DEVICES" not in os.environ)))'
    monkeypatch.setattr(doctor_nodes, "_LIST_GPUS", seen)
    assert doctor_nodes._check_gpus(gpu_node(1)).passed


@pytest.mark.parametrize("storage", ["s3://bucket/sweeps", "/"])
def test_the_disk_of_rays_sessions_is_looked_at_wherever_the_storage_is(
    storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room everywhere else: a full /tmp ends the node's Ray."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray"))
    own_disk = tmp_path.stat().st_dev != Path("/").stat().st_dev
    place = tmp_path if storage.startswith("s3:") or own_disk else Path("/")
    check = machine.check_disk(storage)
    assert f"GB free at {place}" in check.finding
    monkeypatch.setattr(machine, "NEEDED_GB", math.inf)
    check = machine.check_disk(storage)
    assert not check.passed
    assert "Free some space" in check.advice


def test_a_torch_that_does_not_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_nodes, "_LIST_GPUS", "raise OSError('libcudart.so: no such file')")
    check = doctor_nodes._check_gpus(gpu_node(1))
    assert not check.passed
    assert "libcudart.so" in check.finding


def test_a_torch_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_nodes, "_LIST_GPUS", "import time; time.sleep(60)")
    monkeypatch.setattr(machine, "IMPORT_S", 0.1)
    check = doctor_nodes._check_gpus(gpu_node(1))
    assert not check.passed
    assert "nvidia-smi" in check.advice


def test_a_token_that_others_can_read_is_told_without_showing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("of-the-lab")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    for mode, passes in ((0o600, True), (0o400, True), (0o644, False), (0o640, False)):
        file.chmod(mode)
        check = check_token_file()
        assert check.passed == passes
        assert passes or check.advice == f"chmod 600 {file}"
        assert "of-the-lab" not in str(check)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of-the-lab")  # the file is not read then
    assert check_token_file().passed


def test_ports_that_give_a_cluster_away_are_found_beyond_the_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of a head: 127.0.0.2 is this machine's, and what listens on 127.0.0.1 is not there."""
    with socket.create_server(("127.0.0.1", 0)) as near, socket.create_server(("", 0)) as far:
        near_port, far_port = (server.getsockname()[1] for server in (near, far))
        monkeypatch.setattr(doctor_nodes, "NEVER_OPEN", {near_port: "dashboard", far_port: "it"})
        check = check_closed_ports("127.0.0.2")
        assert not check.passed
        assert check.finding == f"ports {far_port} of the head 127.0.0.2 answer here"
        assert check_closed_ports("127.0.0.1").passed  # a cluster of this machine alone
    assert check_closed_ports("127.0.0.2").passed


@pytest.mark.slow
def test_a_node_reports_what_it_is_asked_for(objects: ObjectStore) -> None:
    objects.put("folder/probe", b"")
    needs = list_requirements(SPACE)
    request = Request(objects.root, "folder/probe", "127.0.0.1", needs)
    worker = describe_node(request, gpu_node(0))
    assert worker.facts["descent-sweep"] == code_version()
    assert "+" not in worker.facts["torch"]  # a CPU and a CUDA build are one version
    names = [check.name for check in worker.checks]
    assert {"packages", "GPUs", "storage", "disk", "cache", needs[0].name} <= set(names)
    assert needs[0].name in worker.facts
    head = describe_node(replace(request, probe=None), gpu_node(0, is_head=True))
    names = [check.name for check in head.checks]
    assert {"closed ports", needs[0].name} <= set(names)  # a submission is fingerprinted there
    assert "storage" not in names


# --- many nodes -----------------------------------------------------------------------------------

FACTS = {"descent-sweep": "1+ab", "Python": "3.12.1", "torch": "2.13.0", "data imdb": "f00d"}


def node(number: int) -> Node:
    name = f"w{number} (10.0.0.{number})"
    return Node(f"id-{number}", name, f"10.0.0.{number}", 1.0, is_head=not number)


def said(number: int, *checks: Check, **facts: str) -> NodeReport:
    return NodeReport(FACTS | facts, checks)


def lines(reports: dict[Node, NodeReport]) -> list[tuple[str, bool, str]]:
    return [(check.name, check.passed, check.finding) for check in compare_reports(reports)]


def test_what_all_nodes_agree_on_is_one_line() -> None:
    good = Check("cache", True, "/cache")
    told = lines({node(n): said(n, good) for n in range(5)})
    assert told == [
        ("the same everywhere", True, "5 nodes with descent-sweep 1+ab, Python 3.12.1, torch "
         "2.13.0"),
        ("cache", True, "w0 (10.0.0.0), w1 (10.0.0.1), w2 (10.0.0.2) and 2 more: /cache"),
    ]  # fmt: skip


def test_numbers_that_differ_are_still_one_line() -> None:
    told = lines({node(n): said(n, Check("disk", True, f"{n} GB")) for n in range(5)})
    assert told[1:] == [
        ("disk", True, "w0 (10.0.0.0): 0 GB; w1 (10.0.0.1): 1 GB; w2 (10.0.0.2): 2 GB; and 2 more"),
    ]


def test_a_node_that_fails_has_a_line_of_its_own_with_the_advice() -> None:
    bad = Check("cache", False, "full", "Free some space.")
    good = Check("cache", True, "/cache")
    checks = list(
        compare_reports({node(0): said(0, good), node(1): said(1, bad), node(2): said(2, bad)})
    )
    assert checks[1:] == [
        Check("cache", False, "w1 (10.0.0.1), w2 (10.0.0.2): full", "Free some space."),
        Check("cache", True, "w0 (10.0.0.0): /cache"),
    ]


@pytest.mark.parametrize("fact", FACTS)
def test_a_node_with_another_version_or_other_data_is_named(fact: str) -> None:
    (check,) = compare_reports(
        {node(n): said(n, **({fact: "other"} if n == 2 else {})) for n in range(4)}
    )
    assert not check.passed
    assert check.finding == (
        f"{fact}: {FACTS[fact]} on w0 (10.0.0.0), w1 (10.0.0.1), w3 (10.0.0.3), "
        "other on w2 (10.0.0.2)"
    )


def test_data_that_only_workers_have_are_not_missed_on_the_head() -> None:
    head = NodeReport({k: v for k, v in FACTS.items() if k != "data imdb"}, ())
    assert all(check.passed for check in compare_reports({node(0): head, node(1): said(1)}))


def test_a_silent_node_is_told_and_the_others_are_compared() -> None:
    reports: dict[Node, NodeReport] = {
        node(0): said(0),
        node(1): silent_report("No module named 'sweep'"),
    }
    (silent, versions) = compare_reports(reports)
    assert not silent.passed
    assert silent.finding == "w1 (10.0.0.1): No module named 'sweep'"
    assert "is installed on it in the head's version" in silent.advice
    assert versions.passed
    assert not any(
        check.passed
        for check in compare_reports({node(1): silent_report("no answer within 180 s")})
    )


def test_machines_of_the_file_that_are_not_in_the_cluster_are_named() -> None:
    assert check_machines(["127.0.0.1", "localhost"], {"127.0.0.1", "10.0.0.9"}).passed
    check = check_machines(["10.0.0.8", "localhost", "a" * 64], {"127.0.0.1"})
    assert not check.passed
    assert check.finding == f"worker_ips not in the cluster: 10.0.0.8, {'a' * 64}"
    assert "`ray up` again" in check.advice


def test_clocks_may_be_off_by_two_seconds() -> None:
    assert check_clocks({"w1": -1.9, "w2": 0.2}).finding == "at most 1.90 s off the head's"
    check = check_clocks({"w1": -2.5, "w2": 0.1, "w3": 3600.0})
    assert (check.passed, check.finding) == (False, "off the head's: w1 by -2.5 s, w3 by +3600.0 s")
    assert "NTP" in check.advice
    assert not check_clocks({}).passed  # nothing measured is no success
    assert not check_clocks({"w1": float("nan")}).passed
