"""Open TCP ports of a host, tried from another one, and the programs behind them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from tests.lab.hosts import Host

# Needs Python alone: a stranger has nothing of ours. Closed ports answer at once.
SCAN = """
import errno, json, select, socket, sys
host, open_ports = sys.argv[1], []
for first in range(1, 65536, 500):
    tried = {}
    for port in range(first, min(first + 500, 65536)):
        one = socket.socket()
        one.setblocking(False)
        code = one.connect_ex((host, port))
        if code == 0:
            open_ports.append(port)
        elif code == errno.EINPROGRESS:
            tried[one.fileno()] = (one, port)
    waiting = select.poll()
    for number in tried:
        waiting.register(number, select.POLLOUT)
    while tried:
        ready = waiting.poll(5000)
        if not ready:
            sys.exit(f"no answer from {host}: {len(tried)} ports")
        for number, _ in ready:
            one, port = tried.pop(number)
            waiting.unregister(number)
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                open_ports.append(port)
            one.close()
print(json.dumps(sorted(open_ports)))
"""


# What a browser without a token is told at each port: a status, or nothing where none is spoken.
BROWSE = """
import http.client, json, sys
told = {}
for port in sys.argv[2:]:
    page = http.client.HTTPConnection(sys.argv[1], int(port), timeout=20)
    try:
        page.request("GET", "/metrics")
        answer = page.getresponse()
        told[port] = [answer.status, "# HELP" in answer.read(100000).decode(errors="replace")]
    except (OSError, http.client.HTTPException):
        told[port] = [0, False]
    page.close()
print(json.dumps(told))
"""

# Harmless calls of Ray's gRPC services, with empty requests; see ray/core/generated. It prints the
# status of each call at each port: UNAUTHENTICATED, UNIMPLEMENTED where another service is, or OK.
CALL = """
import grpc, json, sys
told = {}
for port in sys.argv[3:]:
    with grpc.insecure_channel(f"{sys.argv[1]}:{port}") as channel:
        told[port] = []
        for method in METHODS:
            secret = () if sys.argv[2] == "-" else (("authorization", f"Bearer {sys.argv[2]}"),)
            try:
                channel.unary_unary(f"/ray.rpc.{method}")(b"", timeout=20, metadata=secret)
                told[port].append("OK")
            except grpc.RpcError as error:
                told[port].append(error.code().name)
print(json.dumps(told))
"""
METHODS = (
    "NodeInfoGcsService/GetAllNodeInfo",
    "NodeManagerService/GetNodeStats",
    "ObjectManagerService/Pull",
    "ReporterService/HealthCheck",
    "RayletDriver/ClusterInfo",
)


def open_ports(of: Host, seen_from: Host) -> list[int]:
    """TCP ports of a host on which something answers from another host."""
    found: list[int] = json.loads(_on(seen_from, SCAN, of.address))
    return found


def shown(of: Host, ports: Iterable[int], seen_from: Host) -> dict[int, tuple[int, bool]]:
    """Port -> HTTP status without a token (0: no HTTP), and whether metrics were shown."""
    told = json.loads(_on(seen_from, BROWSE, of.address, *map(str, ports)))
    return {int(port): (status, metrics) for port, (status, metrics) in told.items()}


def called(of: Host, ports: Iterable[int], seen_from: Host, token: str) -> dict[int, set[str]]:
    """Port -> what gRPC answers to METHODS with this token; "-" sends none."""
    code = CALL.replace("METHODS", repr(METHODS))
    told = json.loads(_on(seen_from, code, of.address, token, *map(str, ports)))
    return {int(port): set(codes) for port, codes in told.items()}


def _on(host: Host, code: str, *words: str) -> str:
    return host.run(f"python3 - {' '.join(words)} <<'END'\n{code}\nEND", timeout_s=300).stdout


def listening(host: Host) -> dict[int, tuple[str, str]]:
    """Port -> (address, program) of every TCP socket that listens on a host.

    The program of a Python process is the file that it runs, or what Ray calls it.
    """
    found = {}
    for line in host.run("ss -Hltnp").stdout.splitlines():
        address, _, port = line.split()[3].rpartition(":")
        pid = re.search(r"pid=(\d+)", line)
        found[int(port)] = (address.strip("[]"), _program(host, pid[1]) if pid else "")
    return found


def _program(host: Host, pid: str) -> str:
    words = host.path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    if re.fullmatch(r"(.*/)?python[0-9.]*", words[0]):
        words = [word for word in words[1:] if not re.fullmatch(r"-[ucm]", word)]
    return words[0].split()[0].rstrip(":").rpartition("/")[2]
