"""Open TCP ports for `sweep doctor`: listeners here, and answers from elsewhere.

Read from /proc, so Linux only; elsewhere nothing is listed.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CONNECT_S = 2.0
_LISTEN = "0A"  # the state of a listening socket in /proc/net/tcp
_SOCKET = "socket:["

# On the head and beyond its loopback, each of these gives away the cluster or its results.
# Ray's own ports, which are open between the nodes, want the token.
NEVER_OPEN = {8265: "dashboard and job server", 5000: "MLflow"}


@dataclass(frozen=True, order=True)
class Listener:
    """One listening socket of this machine."""

    port: int
    address: str
    program: str  # its short name; empty where it is another user's

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine gets to it."""
        address = ipaddress.ip_address(self.address)
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback

    def __str__(self) -> str:
        return f"{self.port} {self.program}".strip()


def listeners(proc: Path = Path("/proc")) -> list[Listener]:
    """Every listening TCP socket that this network namespace has, by port."""
    programs = dict(_programs(proc))
    found = {
        Listener(port, address, programs.get(inode, ""))
        for name in ("tcp", "tcp6")
        for address, port, inode in _listening(proc / "net" / name)
    }
    return sorted(found)


def _listening(table: Path) -> Iterator[tuple[str, int, str]]:
    """Address, port and inode of the listening sockets of one table."""
    try:
        rows = table.read_text().splitlines()[1:]
    except OSError:  # no IPv6, or no Linux
        return
    for row in rows:
        fields = row.split()
        if fields[3] == _LISTEN:
            address, _, port = fields[1].partition(":")
            yield _address(address), int(port, 16), fields[9]


def _address(text: str) -> str:
    """An address as the kernel prints it: words in the machine's order.

    >>> _address("0100007F"), _address("00000000000000000000000001000000")
    ('127.0.0.1', '::1')
    """
    words = (int(text[i : i + 8], 16) for i in range(0, len(text), 8))
    return str(ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words)))


def _programs(proc: Path) -> Iterator[tuple[str, str]]:
    """Inode of a socket -> name of the program that holds it, as far as this user may look."""
    for process in proc.glob("[0-9]*"):
        with suppress(OSError):  # it ended, or is another user's
            name = (process / "comm").read_text().strip()
            for handle in (process / "fd").iterdir():
                with suppress(OSError):
                    target = os.readlink(handle)
                    if target.startswith(_SOCKET):
                        yield target.removeprefix(_SOCKET).rstrip("]"), name


def answering(host: str, ports: Iterable[int], timeout_s: float = CONNECT_S) -> list[int]:
    """Those of ``ports`` on which something answers from here, in order."""
    asked = sorted(ports)

    def answers(port: int) -> bool:
        try:
            socket.create_connection((host, port), timeout=timeout_s).close()
        except OSError:
            return False
        return True

    with ThreadPoolExecutor(len(asked) or 1) as threads:
        return [p for p, yes in zip(asked, threads.map(answers, asked), strict=True) if yes]
