"""Ray clusters of several nodes on this machine, for tests: each node is a process of its own.

They answer to the token of the tests, listen on ports of their own, and end with the test. A node
is powered off by killing its process: Ray's processes share its fate.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.drivers import wait_until

ANSWER = "answer:"
ROOT = Path(__file__).parents[3]
STARTS, START_S = 3, 120.0
STARTED = "Ray runtime started."
# For a process that shall find no cluster, and not wait the 40 s that Ray waits for one.
NO_CLUSTER = {"RAY_ADDRESS": "127.0.0.1:1", "RAY_py_gcs_connect_timeout_s": "2"}
_QUIET = (
    "--block", "--disable-usage-stats", "--object-store-memory=80000000",
    "--dashboard-agent-listen-port=0", "--dashboard-agent-grpc-port=0", "--metrics-export-port=0",
    "--runtime-env-agent-port=0", "--min-worker-port=0", "--max-worker-port=0",
)  # fmt: skip


class RayNodes:
    """One cluster; the head trains nothing."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        *,
        address: str = "127.0.0.1",
        port: int | None = None,
        autoscaling: Path | None = None,
    ) -> None:
        """Start the head.

        Args:
            folder: for logs; Ray's own files lie in RAY_TMPDIR, whose path is short.
            environment: of all processes of the cluster.
            address: of this machine.
            port: of the head; one that is free if not given.
            autoscaling: the cluster.yaml of an autoscaler that is to run there.
        """
        self.folder = folder
        self.environment = {
            **(environment or os.environ),
            "RAY_AUTH_MODE": "token",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "1000",
            "RAY_health_check_failure_threshold": "5",
        }
        self.nodes: list[subprocess.Popen[bytes]] = []
        self._session = f"{os.environ['RAY_TMPDIR']}/{secrets.token_hex(2)}"
        port = port or free_port()
        self.host, self.address = address, f"{address}:{port}"
        scaled = [f"--autoscaling-config={autoscaling}"] if autoscaling is not None else []
        head = ("--head", f"--port={port}", "--num-cpus=0", "--num-gpus=0", *scaled)
        self._start(*head, "--include-dashboard=false", f"--temp-dir={self._session}")
        give_up = time.monotonic() + 120
        while not answers(address, port):
            assert self.nodes[0].poll() is None, self.log(0)
            assert time.monotonic() < give_up, self.log(0)
            time.sleep(0.1)

    def add(self, *, cpus: int, gpus: int = 0) -> int:
        """Start a worker node and wait until it is there; its number.

        One at a time, and again where Ray gives up waiting for its own processes: nodes of one
        machine that start together can miss each other's.
        """
        for _ in range(STARTS):
            self._start(f"--address={self.address}", f"--num-cpus={cpus}", f"--num-gpus={gpus}")
            wait_until(self._newest_is_up_or_ended, timeout_s=START_S)
            if self.nodes[-1].poll() is None:
                return len(self.nodes) - 1
        raise AssertionError(self.log(len(self.nodes) - 1))

    def _newest_is_up_or_ended(self) -> bool:
        return STARTED in self.log(len(self.nodes) - 1) or self.nodes[-1].poll() is not None

    def power_off(self, node: int) -> None:
        """End a node at once, and all that runs on it."""
        self.nodes[node].kill()
        self.nodes[node].wait()

    def driver_environment(self, **more: str) -> dict[str, str]:
        """For a driver that belongs to this cluster, as a job of it would."""
        return {**self.environment, "RAY_ADDRESS": self.address, **more}

    def log(self, node: int) -> str:
        """What a node printed."""
        return (self.folder / f"node-{node}.log").read_text()

    def autoscaler_log(self) -> str:
        """What the autoscaler of the head wrote."""
        logs = sorted(Path(self._session).glob("session_2*/logs/monitor*"))
        return "\n".join(log.read_text() for log in logs)

    def end(self) -> None:
        """End every node."""
        for node in reversed(range(len(self.nodes))):
            self.power_off(node)

    def _start(self, *options: str) -> None:
        ray = (sys.executable, "-m", "ray.scripts.scripts", "start")
        command = [*ray, f"--node-ip-address={self.host}", *options, *_QUIET]
        with open(self.folder / f"node-{len(self.nodes)}.log", "wb") as log:
            self.nodes.append(
                subprocess.Popen(
                    command, cwd=ROOT, env=self.environment, stdout=log, stderr=subprocess.STDOUT
                )
            )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0


def run_attached(environment: Mapping[str, str], code: str) -> Any:
    """What ``code`` prints as JSON in a process that is attached to the cluster."""
    preamble = "import json\nfrom sweep.executors.ray_session import attached_ray\n"
    preamble += "from sweep.executors.ray_cluster import RayCluster\n"
    tell = f"print('{ANSWER}', json.dumps({code}))"
    body = f"with attached_ray():\n    cluster = RayCluster()\n    {tell}\n"
    ran = subprocess.run(
        [sys.executable, "-c", preamble + body],
        cwd=ROOT,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    told = [line for line in ran.stdout.splitlines() if line.startswith(ANSWER)]
    return json.loads(told[-1].removeprefix(ANSWER))  # Ray prints there, too: of nodes that died
