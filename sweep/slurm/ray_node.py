"""Ray node of a job, from its start to the end of all its processes.

Several users, and several jobs of one, may have Ray on one machine: every port is a free one, and
nothing ends a process that it has not started (`ray stop` would end all that it can see).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from trainables.errors import Failure
from trainables.machine import scratch

OBJECT_STORE_BYTES = 128 * 2**20  # nothing travels through it
START_S = 300.0  # within which a head answers
LABEL = "sweep-slurm-job"  # of a node: its job's name
HEAD_PORT_TRIES = 3
# Of the head: a vanished worker is missed after five checks, each a period and a timeout apart.
HEALTH = {
    "RAY_health_check_period_ms": "2000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "5",
}
# Blocked in Ray's processes: a batch system signals all of a job's, and arms are to go on to their
# next report.
KEPT_FROM_RAY = {signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT}
RAYS_OWN = tuple(
    f"ray::{name}"
    for name in ("IDLE", "DashboardAgent", "RuntimeEnvAgent", "SPILL", "RESTORE", "DELETE")
)
STARTED = "Ray runtime started."  # in the words of `ray start`
_COMMON = (
    "--block",
    "--disable-usage-stats",
    "--dashboard-agent-listen-port=0",
    "--dashboard-agent-grpc-port=0",
    "--metrics-export-port=0",
    "--runtime-env-agent-port=0",
    "--node-manager-port=0",
    "--object-manager-port=0",
    "--min-worker-port=0",
    "--max-worker-port=0",
    f"--object-store-memory={OBJECT_STORE_BYTES}",
    "--log-style=record",
    "--log-color=false",
)


class RayNode:
    """The processes of one `ray start`."""

    def __init__(self, options: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start them; what they say is appended to ``log``."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, KEPT_FROM_RAY)
        try:
            with log.open("ab") as words:
                self._start = subprocess.Popen(
                    [sys.executable, "-m", "ray.scripts.scripts", "start", *options, *_COMMON],
                    stdin=subprocess.DEVNULL,
                    stdout=words,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **environment},
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @property
    def is_over(self) -> bool:
        """True when it has ended by itself."""
        return self._start.poll() is not None

    def trains(self) -> bool:
        """True while something of a driver is on it: Ray's own processes have titles, too."""
        for process in self._processes():
            with suppress(psutil.Error):
                title = " ".join(process.cmdline()[:1])
                if title.startswith("ray::") and not title.startswith(RAYS_OWN):
                    return True
        return False

    def end(self) -> None:
        """Kill all its processes; none is left when this returns."""
        processes = self._processes()  # before any is killed: later nobody knows whose they were
        if self._start.poll() is None:
            self._start.kill()
        self._start.wait()
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=10)

    def _processes(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            return list(psutil.Process(self._start.pid).children(recursive=True))
        return []


def own_address() -> str:
    """The address by which other nodes reach this one."""
    import ray.util

    address = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
    if not address.startswith("127."):
        return address
    # Without a way to other networks Ray takes the address of the node's name, which Debian's
    # /etc/hosts has on loopback; Slurm's name for the node may have another.
    for name in (os.environ.get("SLURMD_NODENAME", ""), socket.getfqdn()):
        with suppress(OSError):
            for info in socket.getaddrinfo(name, None, socket.AF_INET):
                if not str(info[4][0]).startswith("127."):
                    return str(info[4][0])
    raise Failure(
        f"{socket.gethostname()} knows no address of its own but {address}, by which no other node "
        "reaches it: its name must resolve to one, in /etc/hosts or by DNS."
    )


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for Ray's sockets and logs on this node, which goes with the job."""
    with scratch.held_folder(os.environ.get("RAY_TMPDIR", "/tmp"), "slurm-") as folder:
        below = folder / "r"
        below.mkdir()
        yield below


@contextmanager
def head_node(address: str, token: Path, folder: Path, log: Path) -> Iterator[tuple[RayNode, str]]:
    """A Ray head that trains nothing; yields it and its address, once it answers.

    Raises Failure where it does not start.
    """
    for _ in range(HEAD_PORT_TRIES):  # a free port may be another's a moment later
        port, clients = _free_ports(2)
        options = (
            "--head",
            f"--node-ip-address={address}",
            f"--port={port}",
            f"--ray-client-server-port={clients}",
            "--num-cpus=0",
            "--num-gpus=0",
            "--include-dashboard=false",
            f"--temp-dir={folder}",
        )
        before = log.stat().st_size if log.exists() else 0
        node = RayNode(options, {**HEALTH, **secret(token)}, log)
        try:
            if _has_started(node, log, before):
                yield node, f"{address}:{port}"
                return
        finally:
            node.end()
    raise Failure(f"no Ray head answers on {address}: {log} says why.")


def worker_node(
    head: str, token: Path, folder: Path, job: str, log: Path, *, cpus: int, gpus: int
) -> RayNode:
    """A Ray node that joins a head and trains."""
    options = (
        f"--address={head}",
        f"--labels={LABEL}={job}",
        f"--num-cpus={cpus}",
        f"--num-gpus={gpus}",
        f"--temp-dir={folder}",
    )
    return RayNode(options, secret(token), log)


def secret(token: Path) -> dict[str, str]:
    """The environment of a process that talks to the Ray of this token."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}


def _has_started(node: RayNode, log: Path, position: int) -> bool:
    """True once Ray says so; a port that answers may be another program's."""
    give_up = time.monotonic() + START_S
    while not node.is_over and time.monotonic() < give_up:
        if STARTED.encode() in log.read_bytes()[position:]:
            return True
        time.sleep(0.2)
    return False


def _free_ports(count: int) -> list[int]:
    with ExitStack() as probes:  # together, so that they differ
        ports = []
        for _ in range(count):
            probe = probes.enter_context(socket.socket())
            probe.bind(("", 0))
            ports.append(int(probe.getsockname()[1]))
        return ports
