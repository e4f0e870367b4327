"""Self-description of one cluster node for `sweep doctor`, run there without Ray."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweep.cluster.tunnel import LOOPBACK, TOKEN_FILE
from sweep.doctor import machine as doctor
from sweep.doctor.check import Check, last_line, nearest, run_python, writable
from sweep.doctor.data import Requirement, folder_check, look, need_check
from sweep.doctor.ports import NEVER_OPEN, find_open_ports
from trainables.code_version import DISTRIBUTION, code_version
from trainables.environment import package_versions
from trainables.errors import SweepError
from trainables.records.objects import ObjectStore

SHARED_ADVICE = (
    "Give a root that is one and the same on every node: s3://bucket/path, or a folder of a shared "
    "file system that is mounted at the same place everywhere."
)
# Without the variable by which Ray hides GPUs from tasks that did not ask for one.
_HIDES = "CUDA_VISIBLE_DEVICES"
_SEEN_GPUS = (
    "import json, torch; n = torch.cuda.device_count(); "
    "print(json.dumps([torch.cuda.get_device_name(i) for i in range(n)]))"
)


@dataclass(frozen=True)
class Request:
    """What a node is asked to look at."""

    storage: str  # the storage root, as every node should see it
    probe: str | None  # what the head put there; each node puts something beside it; None: nothing
    head: str  # the head's address
    needs: tuple[Requirement, ...] = ()  # the data sets and checkpoints of a search space
    folder: str | None = None  # to look for data sets in


@dataclass(frozen=True)
class NodeReport:
    """What a node answered."""

    host: str
    facts: dict[str, str]  # what must be the same on every node
    checks: tuple[Check, ...]


def report(request: Request, node: str, gpus: float, is_head: bool) -> NodeReport:
    """Look at everything.

    Args:
        request: what to look at.
        node: the node's id; names what it writes.
        gpus: how many Ray offers here.
        is_head: whether this is the head.
    """
    checks = tuple(_checks(request, node, gpus, is_head=is_head))
    return NodeReport(socket.gethostname(), dict(_facts(request.needs)), checks)


def _checks(request: Request, node: str, gpus: float, *, is_head: bool) -> Iterator[Check]:
    yield doctor.packages()
    yield _gpus(gpus, is_head)
    yield doctor.disk(request.storage)
    yield _cache()
    yield token_file()
    yield check_closed_ports(request.head)
    if request.probe is not None:
        yield shared_storage(request.storage, request.probe, node)
    if request.folder is not None:
        yield folder_check(request.folder)
    # The head trains nothing, but it is where a sweep's data and weights get their fingerprints.
    yield from map(need_check, request.needs)


def clock() -> float:
    """This node's time, in seconds since 1970."""
    return time.time()


def _facts(needs: tuple[Requirement, ...]) -> Iterator[tuple[str, str]]:
    yield DISTRIBUTION, code_version()
    yield "Python", platform.python_version()
    for name, version in package_versions().items():
        if name != DISTRIBUTION:
            # CPU and CUDA builds of one version differ in what follows the plus sign.
            yield name, "missing" if version is None else version.partition("+")[0]
    for need in needs:
        try:
            yield need.name, look(need).digest
        except SweepError:
            continue  # a line of its own says so


def token_file() -> Check:
    """Whether other users of this machine can read the cluster's token."""
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or TOKEN_FILE).expanduser()
    if "RAY_AUTH_TOKEN" not in os.environ and file.is_file() and file.stat().st_mode & 0o077:
        found = f"other users of this machine can read {file}"
        return Check("token file", False, found, f"chmod 600 {file}")
    return Check("token file", True, "no other user can read it")


def shared_storage(storage: str, probe: str, node: str) -> Check:
    """Whether this node sees what the head put below the storage root, and can write beside it."""
    objects = ObjectStore(storage)
    try:
        if objects.get(probe) is None:
            there = f"{objects.root} is not the head's: what the head put there is not here"
            return Check("storage", False, there, SHARED_ADVICE)
        objects.put(f"{probe}.{node}", b"")
    except SweepError as error:
        return Check("storage", False, str(error), SHARED_ADVICE)
    return Check("storage", True, f"{objects.root} is shared and can be written")


def _cache() -> Check:
    """Whether data sets can be decoded here, and whether there is room for one."""
    from trainables.fetching.cache import cache_root

    advice = "Set SWEEP_CACHE, where `ray start` runs, to a folder with room on the node's disk."
    folder = cache_root()
    check = writable("cache", folder, advice)
    if not check.passed:
        return check
    free_gb = shutil.disk_usage(nearest(folder)).free / 1e9
    found = f"{folder} with {free_gb:.0f} GB free"
    return Check("cache", free_gb >= doctor.NEEDED_GB, found, advice)


def _gpus(offered: float, is_head: bool) -> Check:
    """The GPUs that Ray offers to arms against those that torch can use."""
    environment = {name: value for name, value in os.environ.items() if name != _HIDES}
    ran = run_python(_SEEN_GPUS, wait_s=doctor.IMPORT_S, environment=environment)
    if ran is None:
        found = f"torch did not answer within {doctor.IMPORT_S} s"
        advice = "Does `nvidia-smi` answer there? Else restart the machine, or mend its driver."
        return Check("GPUs", False, found, advice)
    if ran.returncode != 0:
        found = f"torch does not run: {last_line(ran.stderr)}"
        return Check("GPUs", False, found, "Install it again.")
    return compared_gpus(offered, json.loads(ran.stdout.splitlines()[-1]), is_head=is_head)


def compared_gpus(offered: float, seen: list[str], *, is_head: bool) -> Check:
    """The line about GPUs: ``seen`` are the names of those that torch can use."""
    names = ", ".join(f"{seen.count(name)} {name}" for name in dict.fromkeys(seen))
    if offered > len(seen):
        return Check(
            "GPUs",
            False,
            f"Ray offers {offered:g}, torch can use {len(seen)}",
            "Install a CUDA build of torch and a driver that fits it, or start Ray there with the "
            "right --num-gpus: arms would fail, or wait for a GPU that is none.",
        )
    if seen and not offered and not is_head:
        return Check(
            "GPUs",
            False,
            f"torch can use {names}, Ray offers none",
            "Start Ray there with --num-gpus, or give the node type its GPU resource.",
        )
    return Check("GPUs", True, names or "none")


def check_closed_ports(head: str) -> Check:
    """Check that this node does not reach what gives away the cluster or its results.

    The head looks at its own address, too: what is on its loopback alone does not answer there.
    """
    is_visible = head not in LOOPBACK  # else every node is this machine
    open_ports = find_open_ports(head, NEVER_OPEN) if is_visible else []
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
