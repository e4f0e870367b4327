"""A cluster's head with a job server, in a process of its own, with a token and storage."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers.mlflow_servers import free_port

ROOT = Path(__file__).parents[3]
CODE = """
import sys, ray
from sweep.executors.ray_session import ray_parameters
port, cpus, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with ray_parameters(dashboard_agent_listen_port=0):
    ray.init(address="local", num_cpus=cpus, num_gpus=0, include_dashboard=True, _temp_dir=folder,
             dashboard_host="127.0.0.1", dashboard_port=port, object_store_memory=100 * 2**20)
print("is up", flush=True)
sys.stdin.read()  # until whoever started this goes
ray.shutdown()
"""


@dataclass(frozen=True)
class Head:
    """A head that is up."""

    url: str  # of its job server
    token: Path  # the file that holds it
    storage: Path  # its SWEEP_STORAGE


@contextmanager
def head(
    folder: Path, *, cpus: int = 2, environment: Mapping[str, str] | None = None
) -> Iterator[Head]:
    """Start a head and end it, with every process of it.

    Args:
        folder: for its token, storage and home.
        cpus: that it offers.
        environment: of its processes, beside this one's.
    """
    port = free_port()
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    (folder / "home").mkdir()
    bin_folder = Path(sys.executable).parent  # `python` on a head is the one that runs Ray
    with tempfile.TemporaryDirectory(prefix="dsw-", dir="/tmp") as sockets:  # short paths
        process = subprocess.Popen(
            [sys.executable, "-c", CODE, str(port), str(cpus), sockets],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "HOME": str(folder / "home"),
                "PATH": f"{bin_folder}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN_PATH": str(token),
                "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "300",  # a busy machine
                "SWEEP_STORAGE": str(folder / "storage"),
                **(environment or {}),
            },
        )
        with process:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, b"")
            assert any(line == b"is up\n" for line in lines), "the head did not start"
            try:
                yield Head(f"http://127.0.0.1:{port}", token, folder / "storage")
            finally:
                process.communicate(timeout=60)  # closes its input
