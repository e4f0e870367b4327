"""Cluster checks from the head (`sweep doctor --where cluster`), node by node.

A cluster that answers strangers is refused: nothing is run on it. What all nodes agree on is one
line; a node that differs gets its own.
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

from sweep.doctor import machine as doctor
from sweep.doctor import node as doctor_nodes
from sweep.doctor.check import Check, last_line, run_python
from sweep.doctor.compare import Node, Reports, clock_check, compared, machines_check
from sweep.doctor.data import Scope
from sweep.doctor.node import SHARED_ADVICE, NodeReport, Request
from sweep.executors.ray_session import attached_ray
from trainables.errors import Failure
from trainables.plain import Json
from trainables.records.objects import ObjectStore

NODE_ANSWER_S = 120.0  # a node starts a process and imports torch
STRANGER_S = 60
CLOCK_CALLS = 3
HEAD = "node:__internal_head__"  # the resource by which Ray marks the head
UNSEEN = "it could not be seen who is let in, so nothing was run on this cluster"
TOKEN_ADVICE = (
    "Every node needs RAY_AUTH_MODE=token and the same token before `ray start` (docs/cluster.md)."
)
SILENT_HEAD = (
    "Is the head up, and has it memory and CPU left (`ray status`, `top`)? Its "
    "/tmp/ray/session_latest/logs/gcs_server.out says more; `ray up` again starts Ray anew."
)
AUTHENTICATION = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
# Looks at the cluster's key-value store, through which anybody could run code on it.
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
        address = _address()
    except Exception as error:
        why = f"no cluster was found from this machine: {_told(error)}"
        advice = "Run this on the head of a cluster that is up, or give --address from elsewhere."
        yield Check("Ray", False, why, advice)
        return
    refusal = strangers(address)
    yield refusal
    if not refusal.passed:
        return
    try:
        with attached_ray():
            found = nodes()
            yield from _counted(found, scope.machines)
            yield from _of_nodes(found, storage, scope)
    except Failure as error:
        yield Check("Ray", False, str(error), TOKEN_ADVICE)


def _counted(found: Sequence[Node], machines: Sequence[str]) -> Iterator[Check]:
    workers = sum(not node.is_head for node in found)
    gpus = sum(node.gpus for node in found)
    yield Check("Ray", True, f"{ray.__version__}, {len(found)} nodes, {gpus:g} GPUs")
    yield Check(
        "workers",
        workers > 0,
        f"{workers} are up",
        "Nothing below was looked at where arms will run. Start a sweep, or a node, and run this "
        "again while it is up.",
    )
    if machines:
        yield machines_check(machines, {node.address for node in found})


def _of_nodes(found: Sequence[Node], storage: str, scope: Scope) -> Iterator[Check]:
    head = next((node.address for node in found if node.is_head), "")
    own = doctor.storage_check(storage)
    yield replace(own, name="storage of the head")
    with _probe(storage) if own.passed else nullcontext() as probe:
        reports = asked(found, Request(storage, probe, head, scope.needs, scope.folder))
        yield from compared(reports)
        if probe is not None:
            yield _arrived(storage, probe, reports)
    yield clocks([node for node, said in reports.items() if isinstance(said, NodeReport)])
    yield doctor.tracking(storage, scope.mlflow)


# --- who gets in ----------------------------------------------------------------------------------


def strangers(address: str) -> Check:
    """Whether a process without a token is refused by the cluster at ``address`` (host:port)."""
    environment = {name: v for name, v in os.environ.items() if name not in AUTHENTICATION}
    environment["RAY_AUTH_MODE"] = "disabled"
    ran = run_python(STRANGER, address, wait_s=STRANGER_S, environment=environment)
    if ran is None:
        found = f"no answer within {STRANGER_S} s: {UNSEEN}"
        return Check("token", False, found, SILENT_HEAD)
    if "let in" in ran.stdout:
        return Check(
            "token",
            False,
            "the cluster takes commands from anybody who reaches it, so nothing was run on it",
            f"Take it down, and start it again with a token. {TOKEN_ADVICE}",
        )
    if any(refusal in ran.stderr for refusal in REFUSALS):
        return Check("token", True, "who has none is refused")
    why = last_line(ran.stderr, f"exit code {ran.returncode}")
    return Check("token", False, f"{why}: {UNSEEN}", SILENT_HEAD)


# --- nodes ----------------------------------------------------------------------------------------


def nodes() -> list[Node]:
    """The nodes that are up, the head first. Those of one machine are told apart by their ids."""
    found = []
    up = [plain for plain in ray.nodes() if plain["Alive"]]  # type: ignore[no-untyped-call]
    at = Counter(plain["NodeManagerAddress"] for plain in up)
    for plain in up:
        resources = plain["Resources"]
        address = str(plain["NodeManagerAddress"])
        which = f", {plain['NodeID'][:8]}" if at[address] > 1 else ""
        found.append(
            Node(
                id=plain["NodeID"],
                name=f"{plain['NodeManagerHostname']} ({address}{which})",
                address=address,
                gpus=float(resources.get("GPU", 0)),
                is_head=HEAD in resources,
            )
        )
    return sorted(found, key=lambda node: (not node.is_head, node.name, node.id))


def asked(found: Sequence[Node], request: Request, wait_s: float = NODE_ANSWER_S) -> Reports:
    """What every node says, all at once; takes no CPU or GPU from running arms."""
    look = ray.remote(num_cpus=0, max_retries=0)(doctor_nodes.report)
    answers = {
        node: _on(look, node).remote(request, node.id, node.gpus, node.is_head) for node in found
    }
    ray.wait(list(answers.values()), num_returns=len(answers), timeout=wait_s)
    reports: dict[Node, NodeReport | str] = {}
    for node, answer in answers.items():
        try:
            reports[node] = ray.get(answer, timeout=0)
        except ray.exceptions.GetTimeoutError:
            reports[node] = f"no answer within {wait_s:g} s"
            ray.cancel(answer, force=True)
        except ray.exceptions.RayError as error:
            reports[node] = _told(error)
    return reports


def _on(task: Json, node: Node) -> Json:
    return task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False))


@contextmanager
def _probe(storage: str) -> Iterator[str]:
    """An object below the storage root, and what nodes put beside it, while the block runs."""
    objects = ObjectStore(storage)
    folder = f".doctor-{uuid.uuid4().hex}"
    objects.put(f"{folder}/probe", b"")
    try:
        yield f"{folder}/probe"
    finally:
        objects.delete_folder(folder)


def _arrived(storage: str, probe: str, reports: Reports) -> Check:
    """Whether what the nodes wrote has arrived where the head reads."""
    objects = ObjectStore(storage)
    claimed = [
        node
        for node, said in reports.items()
        if isinstance(said, NodeReport)
        and any(check.name == "storage" and check.passed for check in said.checks)
    ]
    lost = [node.name for node in claimed if not objects.exists(f"{probe}.{node.id}")]
    if lost:
        found = f"the head does not see what {', '.join(lost)} wrote"
        return Check("shared storage", False, found, SHARED_ADVICE)
    return Check("shared storage", True, f"the head sees what {len(claimed)} nodes wrote")


def clocks(found: Sequence[Node]) -> Check:
    """How far the clock of each node is from this machine's."""
    read = ray.remote(num_cpus=0, max_retries=0)(doctor_nodes.clock)
    off: dict[str, float] = {}
    for node in found:
        try:
            seen = [_offset(read, node) for _ in range(CLOCK_CALLS)]
        except ray.exceptions.RayError:  # it went away meanwhile
            continue
        off[node.name] = min(seen, key=lambda offset_and_wait: offset_and_wait[1])[0]
    return clock_check(off)


def _offset(read: Json, node: Node) -> tuple[float, float]:
    """Seconds that the node's clock is ahead of ours, and how long the answer took."""
    before = time.time()
    theirs = float(ray.get(_on(read, node).remote(), timeout=NODE_ANSWER_S))
    after = time.time()
    return theirs - (before + after) / 2, after - before


def _address() -> str:
    """The control service of the cluster that this machine belongs to: host:port."""
    from ray._private.services import canonicalize_bootstrap_address

    address = canonicalize_bootstrap_address("auto")
    if address is None:
        raise ConnectionError("RAY_ADDRESS names none, and none was started here")
    return str(address)


def _told(error: Exception) -> str:
    """What Ray's errors, which are tracebacks, end with."""
    return last_line(str(error), type(error).__name__)
