"""Cluster checks from the head (`sweep doctor --where cluster`), node by node.

A cluster that lets strangers in is refused: nothing is run on it. A result that all nodes share is
one line; a node that differs gets its own.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweep.doctor import machine
from sweep.doctor.check import (
    OPEN_CLUSTER_ADVICE,
    SILENT_HEAD_ADVICE,
    TOKEN_ADVICE,
    Check,
    last_line,
    run_python,
)
from sweep.doctor.compare import check_clocks, check_machines, compare_reports, silent_report
from sweep.doctor.node import Node, NodeReport, Request, describe_node, read_clock
from sweep.doctor.scope import Scope
from sweep.executors.ray_session import attached_ray
from sweep.study.advice import counted
from trainables.errors import Failure
from trainables.plain import Json
from trainables.records.objects import ObjectStore

NODE_ANSWER_S = 120.0  # a node starts a process and imports torch
STRANGER_S = 60
CLOCK_CALLS = 3
HEAD = "node:__internal_head__"  # the resource by which Ray marks the head
UNTRIED = "so it is unknown who is let in, and nothing was run on this cluster"
AUTHENTICATION = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
# Reads the cluster's key-value store, through which anybody could run code on it.
STRANGER = """
import sys
from ray._raylet import GcsClient
GcsClient(address=sys.argv[1]).internal_kv_keys(b"", namespace=b"fun")
print("let in", flush=True)
"""
# How Ray says, in an exception or in the log of a client that gives up, that a token is missing.
REFUSALS = ("InvalidAuthToken", "Unauthenticated", "AuthenticationError")


def checks(storage: str, scope: Scope) -> Iterator[Check]:
    """Every check of the cluster that this machine belongs to; see ``machine.checks``."""
    try:
        address = _control_address()
    except Exception as error:
        finding = f"no cluster was found from this machine: {_reason(error)}"
        advice = "Run this on the head of a cluster that is up, or give --address from elsewhere."
        yield Check("Ray", False, finding, advice)
        return
    refusal = check_strangers(address)
    yield refusal
    if not refusal.passed:
        return
    try:
        with attached_ray():
            nodes = list_nodes()
            yield from _count_nodes(nodes)
            if scope.machines:
                yield check_machines(scope.machines, {node.address for node in nodes})
            yield from _check_nodes(nodes, storage, scope)
    except Failure as error:
        yield Check("Ray", False, str(error), TOKEN_ADVICE)


def _count_nodes(nodes: Sequence[Node]) -> Iterator[Check]:
    workers = sum(not node.is_head for node in nodes)
    gpus = sum(node.gpus for node in nodes)
    yield Check("Ray", True, f"{ray.__version__}, {counted(len(nodes), 'node')}, {gpus:g} GPUs")
    yield Check(
        "workers",
        workers > 0,
        f"{workers} are up",
        "Where arms will run, nothing was checked. Start a sweep or a node, and run this again "
        "while it is up.",
    )


def _check_nodes(nodes: Sequence[Node], storage: str, scope: Scope) -> Iterator[Check]:
    head = next((node.address for node in nodes if node.is_head), "")
    of_head = machine.check_storage(storage)
    yield replace(of_head, name="storage of the head")
    with _probe(storage) if of_head.passed else nullcontext() as probe:
        request = Request(storage, probe, head, scope.requirements, scope.folder)
        reports = collect_reports(nodes, request)
    yield from compare_reports(reports)
    yield check_clocks(_clock_offsets([node for node, report in reports.items() if report.facts]))
    yield machine.check_tracking(storage, scope.mlflow)


def check_strangers(address: str) -> Check:
    """Check that the cluster at ``address`` (host:port) refuses a process without a token."""
    environment = {name: v for name, v in os.environ.items() if name not in AUTHENTICATION}
    environment["RAY_AUTH_MODE"] = "disabled"
    ran = run_python(STRANGER, address, timeout_s=STRANGER_S, environment=environment)
    if ran is None:
        finding = f"no answer within {STRANGER_S} s, {UNTRIED}"
        return Check("token", False, finding, SILENT_HEAD_ADVICE)
    if "let in" in ran.stdout:
        finding = "the cluster takes commands from anybody who reaches it, so nothing was run on it"
        return Check("token", False, finding, OPEN_CLUSTER_ADVICE)
    if any(refusal in ran.stderr for refusal in REFUSALS):
        return Check("token", True, "a process without one is refused")
    reason = last_line(ran.stderr, f"exit code {ran.returncode}")
    return Check("token", False, f"{reason}, {UNTRIED}", SILENT_HEAD_ADVICE)


def list_nodes() -> list[Node]:
    """The nodes that are up, the head first; those of one machine have their ids in their names."""
    nodes = []
    up = [plain for plain in ray.nodes() if plain["Alive"]]  # type: ignore[no-untyped-call]
    nodes_at = Counter(plain["NodeManagerAddress"] for plain in up)
    for plain in up:
        resources = plain["Resources"]
        address = str(plain["NodeManagerAddress"])
        suffix = f", {plain['NodeID'][:8]}" if nodes_at[address] > 1 else ""
        nodes.append(
            Node(
                id=plain["NodeID"],
                name=f"{plain['NodeManagerHostname']} ({address}{suffix})",
                address=address,
                gpus=float(resources.get("GPU", 0)),
                is_head=HEAD in resources,
            )
        )
    return sorted(nodes, key=lambda node: (not node.is_head, node.name, node.id))


def collect_reports(
    nodes: Sequence[Node], request: Request, timeout_s: float = NODE_ANSWER_S
) -> dict[Node, NodeReport]:
    """Every node's report; all look at once, and take no CPU or GPU from running arms."""
    describe = ray.remote(num_cpus=0, max_retries=0)(describe_node)
    answers = {node: _on(describe, node).remote(request, node) for node in nodes}
    ray.wait(list(answers.values()), num_returns=len(answers), timeout=timeout_s)
    reports: dict[Node, NodeReport] = {}
    for node, answer in answers.items():
        try:
            reports[node] = ray.get(answer, timeout=0)
        except ray.exceptions.GetTimeoutError:
            reports[node] = silent_report(f"no answer within {timeout_s:g} s")
            ray.cancel(answer, force=True)
        except ray.exceptions.RayError as error:
            reports[node] = silent_report(_reason(error))
    return reports


def _on(task: Json, node: Node) -> Json:
    return task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False))


@contextmanager
def _probe(storage: str) -> Iterator[str]:
    """An object of a new name below the storage root: a node that sees it shares the storage."""
    objects = ObjectStore(storage)
    folder = f".doctor-{uuid.uuid4().hex}"
    objects.put(f"{folder}/probe", b"")
    try:
        yield f"{folder}/probe"
    finally:
        objects.delete_folder(folder)


def _clock_offsets(nodes: Sequence[Node]) -> dict[str, float]:
    """Seconds that each node's clock is ahead of this machine's, by its quickest answer."""
    read = ray.remote(num_cpus=0, max_retries=0)(read_clock)
    offsets_s: dict[str, float] = {}
    for node in nodes:
        answers = []  # how long each took, and the offset
        try:
            for _ in range(CLOCK_CALLS):
                before_s = time.time()
                clock_s = float(ray.get(_on(read, node).remote(), timeout=NODE_ANSWER_S))
                after_s = time.time()
                answers.append((after_s - before_s, clock_s - (before_s + after_s) / 2))
        except ray.exceptions.RayError:  # it went away meanwhile
            continue
        offsets_s[node.name] = min(answers)[1]
    return offsets_s


def _control_address() -> str:
    """The control service of the cluster that this machine belongs to: host:port."""
    from ray._private.services import canonicalize_bootstrap_address

    address = canonicalize_bootstrap_address("auto")
    if address is None:
        raise ConnectionError("RAY_ADDRESS names none, and none was started here")
    return str(address)


def _reason(error: Exception) -> str:
    """The last line of Ray's error, which is a traceback."""
    return last_line(str(error), type(error).__name__)
