"""Open TCP ports of a host for `sweep doctor`, by connections from this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

CONNECT_S = 2.0

# On the head and beyond its loopback, each of these gives away the cluster or its results.
# Ray's own ports, which are open between the nodes, want the token.
NEVER_OPEN = {8265: "dashboard and job server", 5000: "MLflow"}


def find_open_ports(host: str, ports: Iterable[int], timeout_s: float = CONNECT_S) -> list[int]:
    """The ports of ``host`` that accept a connection from here, in order."""
    candidates = sorted(ports)

    def is_open(port: int) -> bool:
        try:
            socket.create_connection((host, port), timeout=timeout_s).close()
        except OSError:
            return False
        return True

    with ThreadPoolExecutor(len(candidates) or 1) as threads:
        answers = threads.map(is_open, candidates)
        return [port for port, answer in zip(candidates, answers, strict=True) if answer]
