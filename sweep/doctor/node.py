"""Self-description of one cluster node for `sweep doctor`, run on it without Ray."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweep.cluster.tunnel import LOOPBACK, TOKEN_FILE
from sweep.doctor import machine
from sweep.doctor.check import Check, last_line, run_python
from sweep.doctor.data import check_folder, check_requirement, take_inventory
from sweep.doctor.ports import NEVER_OPEN, find_open_ports
from sweep.doctor.scope import Requirement
from trainables.code_version import DISTRIBUTION, code_version
from trainables.environment import package_versions
from trainables.errors import SweepError
from trainables.records.objects import ObjectStore

SHARED_ADVICE = (
    "Give a root that is the same place for every node: s3://bucket/path, or a folder of a shared "
    "file system that is mounted at the same path everywhere."
)
# Without the variable by which Ray hides GPUs from tasks that did not request one.
_HIDES = "CUDA_VISIBLE_DEVICES"
_LIST_GPUS = (
    "import json, torch; n = torch.cuda.device_count(); "
    "print(json.dumps([torch.cuda.get_device_name(i) for i in range(n)]))"
)


@dataclass(frozen=True)
class Node:
    """One node of the cluster, as Ray knows it."""

    id: str
    name: str  # host name and address
    address: str
    gpus: float  # offered to arms
    is_head: bool


@dataclass(frozen=True)
class Request:
    """Everything that the nodes look at."""

    storage: str  # the storage root, as every node should see it
    probe: str | None  # the head's file below it, next to which nodes put theirs; None: no probe
    head: str  # the head's address
    requirements: tuple[Requirement, ...] = ()  # data sets and checkpoints of a search space
    folder: str | None = None  # to look for data sets in


@dataclass(frozen=True)
class NodeReport:
    """A node's answer to a request."""

    facts: dict[str, str]  # versions and digests, which must be the same on every node
    checks: tuple[Check, ...]


def describe_node(request: Request, node: Node) -> NodeReport:
    """The report of ``node``, which is this machine."""
    return NodeReport(dict(_facts(request.requirements)), tuple(_checks(request, node)))


def _checks(request: Request, node: Node) -> Iterator[Check]:
    yield machine.check_packages()
    yield _check_gpus(node)
    yield machine.check_disk(request.storage)
    yield machine.check_cache()
    yield check_token_file()
    yield check_closed_ports(request.head)
    if request.probe is not None:
        yield check_shared_storage(request.storage, request.probe, node.id)
    if request.folder is not None:
        yield check_folder(request.folder)
    # The head trains nothing, but it is where a sweep's data and weights get their fingerprints.
    yield from map(check_requirement, request.requirements)


def read_clock() -> float:
    """This node's time, in seconds since 1970."""
    return time.time()


def _facts(requirements: tuple[Requirement, ...]) -> Iterator[tuple[str, str]]:
    yield DISTRIBUTION, code_version()
    yield "Python", platform.python_version()
    for name, version in package_versions().items():
        if name != DISTRIBUTION:
            # CPU and CUDA builds of one version differ after the plus sign.
            yield name, "missing" if version is None else version.partition("+")[0]
    for requirement in requirements:
        try:
            yield requirement.name, take_inventory(requirement).digest
        except SweepError:
            continue  # a check of its own fails


def check_token_file() -> Check:
    """Check that no other user of this machine can read the cluster's token."""
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or TOKEN_FILE).expanduser()
    if "RAY_AUTH_TOKEN" not in os.environ and file.is_file() and file.stat().st_mode & 0o077:
        finding = f"other users of this machine can read {file}"
        return Check("token file", False, finding, f"chmod 600 {file}")
    return Check("token file", True, "no other user can read it")


def check_shared_storage(storage: str, probe: str, node_id: str) -> Check:
    """Check that this node sees the head's ``probe`` below the storage root, and can write."""
    objects = ObjectStore(storage)
    try:
        if objects.get(probe) is None:
            finding = f"{objects.root} is not the head's: the head's probe is missing here"
            return Check("storage", False, finding, SHARED_ADVICE)
        objects.put(f"{probe}.{node_id}", b"")
    except SweepError as error:
        return Check("storage", False, str(error), SHARED_ADVICE)
    return Check("storage", True, f"{objects.root} is shared and can be written")


def _check_gpus(node: Node) -> Check:
    environment = {name: value for name, value in os.environ.items() if name != _HIDES}
    ran = run_python(_LIST_GPUS, timeout_s=machine.IMPORT_S, environment=environment)
    if ran is None:
        finding = f"torch did not answer within {machine.IMPORT_S} s"
        advice = "If `nvidia-smi` does not answer either, repair its driver or restart the machine."
        return Check("GPUs", False, finding, advice)
    if ran.returncode != 0:
        finding = f"torch does not run: {last_line(ran.stderr)}"
        return Check("GPUs", False, finding, "Install torch again.")
    return compare_gpus(node, json.loads(ran.stdout.splitlines()[-1]))


def compare_gpus(node: Node, usable: list[str]) -> Check:
    """Check the GPUs that Ray offers against those that torch can use, by their names."""
    names = ", ".join(f"{usable.count(name)} {name}" for name in dict.fromkeys(usable))
    if node.gpus > len(usable):
        return Check(
            "GPUs",
            False,
            f"Ray offers {node.gpus:g}, torch can use {len(usable)}",
            "Install a CUDA build of torch with a matching driver, or start the node's Ray with "
            "the right --num-gpus: arms would fail, or wait for a GPU that does not exist.",
        )
    if usable and not node.gpus and not node.is_head:
        return Check(
            "GPUs",
            False,
            f"torch can use {names}, Ray offers none",
            "Start the node's Ray with --num-gpus, or give the node type its GPU resource.",
        )
    return Check("GPUs", True, names or "none")


def check_closed_ports(head: str) -> Check:
    """Check that this node does not reach ports that give away the cluster or its results.

    The head looks at its own address, too: what is on its loopback alone does not answer there.
    """
    is_local = head in (*LOOPBACK, "")  # all nodes are this machine, or none is known as the head
    open_ports = [] if is_local else find_open_ports(head, NEVER_OPEN)
    if open_ports:
        return Check(
            "closed ports",
            False,
            f"ports {', '.join(map(str, open_ports))} of the head {head} answer here",
            "Start them on 127.0.0.1 (ray start --dashboard-host=127.0.0.1, mlflow server --host "
            "127.0.0.1) and reach them through ssh; close the rest in the firewall.",
        )
    ports = ", ".join(f"{port} ({service})" for port, service in NEVER_OPEN.items())
    return Check("closed ports", True, f"none of {ports} of the head {head} answers here")
