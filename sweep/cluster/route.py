"""Way of ssh to a cluster's head, as its cluster.yaml and Ray know it.

What ssh needs (head, user, key, proxy) is asked of Ray, which knows it from `ray up`; the options
are those Ray connects with.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from sweep.cluster.cluster_yaml import read
from trainables.errors import Failure, Misuse
from trainables.plain import Json, Plain

DASHBOARD_PORT = 8265
READER_PORT = 8266  # of the head's loopback, for sweep/cli/reader.py
READER_VARIABLE = "SWEEP_READER_PORT"  # of the head's environment: another port than that
READY = "sweep-tunnel-is-open"  # said by the head's shell, which starts once ssh has the port here
SSH_OPTIONS = {
    "BatchMode": "yes",  # a question that nobody sees would hang
    "ControlPath": "none",  # a connection that is shared would keep the tunnel
    "ConnectTimeout": "20",
    "ExitOnForwardFailure": "yes",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "LogLevel": "ERROR",
}
KNOWN_HOSTS = "~/.ssh/descent-sweep.known_hosts"  # heads with fixed addresses, as first met


@dataclass(frozen=True)
class Route:
    """The way of ssh to the head."""

    host: str
    user: str
    key: str | None  # path of the private key; None: what ssh finds by itself
    proxy_command: str | None
    port: int = DASHBOARD_PORT  # that is wanted of the head's loopback: the job server's
    is_fixed: bool = False  # the address is of one machine for good, not a cloud's
    reader_port: int = READER_PORT

    def command(self, local_port: int, local_reader_port: int = 0) -> list[str]:
        """The command of the tunnel, which ends with its standard input, and so with its owner."""
        options = SSH_OPTIONS | self._host_keys()
        if self.key is not None:
            options["IdentitiesOnly"] = "yes"
        if self.proxy_command is not None:
            options["ProxyCommand"] = self.proxy_command
        reader = ["-L", f"127.0.0.1:{local_reader_port}:127.0.0.1:{self.reader_port}"]
        return [
            "ssh",
            *(word for name, value in options.items() for word in ("-o", f"{name}={value}")),
            *(("-i", str(Path(self.key).expanduser())) if self.key is not None else ()),
            *("-L", f"127.0.0.1:{local_port}:127.0.0.1:{self.port}"),
            *(reader if local_reader_port else ()),
            f"{self.user}@{self.host}",
            f"echo {READY}; cat >/dev/null",
        ]

    def _host_keys(self) -> dict[str, str]:
        """Options that keep the first key of a fixed address; a cloud gives addresses anew."""
        if not self.is_fixed:
            return {"StrictHostKeyChecking": "no", "UserKnownHostsFile": os.devnull}  # as Ray
        file = f'"{Path(KNOWN_HOSTS).expanduser()}"'
        return {"StrictHostKeyChecking": "accept-new", "UserKnownHostsFile": file}


@dataclass(frozen=True)
class _Head(Plain):
    """The keys of a cluster.yaml's provider and auth that lead to its head, and its name."""

    cluster_name: str | None
    type: str | None = None
    head_ip: str | None = None
    ssh_user: str | None = None
    ssh_private_key: str | None = None
    ssh_proxy_command: str | None = None

    @property
    def fixed_address(self) -> str:
        """The address that the file names; empty where Ray asks the provider for it."""
        return str(self.head_ip or "") if self.type == "local" else ""


def find_route(file: Path) -> Route:
    """Find the way to the head of a cluster.yaml, from what Ray knows of it.

    A head with a fixed address is not looked up: only the laptop of `ray up` has a note of it.
    """
    config = read(file)
    head = _head_from(config)
    start = " ".join(map(str, config.get("head_start_ray_commands") or ()))
    port = re.search(r"--dashboard-port[= ](\d+)", start)
    lists = ("setup_commands", "head_setup_commands", "head_start_ray_commands")
    commands = " ".join(str(command) for name in lists for command in config.get(name) or ())
    reader_port = re.findall(rf"{READER_VARIABLE}=[\"']?(\d+)", commands)
    if not head.fixed_address and not head.ssh_private_key:
        raise Misuse(
            f"{file} lacks auth.ssh_private_key: only Ray knows the key of its head, and makes a "
            "new key pair where it finds none. Name yours; one that Ray made on AWS lies in "
            "~/.ssh, as ray-autoscaler_*.pem."
        )
    if head.ssh_user is None:
        raise Misuse(f"{file} lacks 'ssh_user', which ssh to its head needs.")
    return Route(
        head.fixed_address or _head_of(file),
        head.ssh_user,
        head.ssh_private_key,
        head.ssh_proxy_command,
        int(port.group(1)) if port else DASHBOARD_PORT,
        bool(head.fixed_address),
        int(reader_port[-1]) if reader_port else READER_PORT,
    )


def describe_route(file: Path) -> str:
    """The way that ``find_route`` finds, in words, without a request to anybody."""
    head = _head_from(read(file))
    user = head.ssh_user or "?"
    if head.fixed_address:
        way = f"ssh to {user}@{head.fixed_address}, which {file.name} names"
    else:
        way = (
            f"ssh as {user} to the head of {head.cluster_name}, which Ray asks the provider of "
            f"{file.name} for ({head.type})"
        )
    return way + (", through its ssh_proxy_command" if head.ssh_proxy_command else "")


def _head_from(config: Mapping[str, Json]) -> _Head:
    own = {"cluster_name": config.get("cluster_name")}
    return _Head.from_json({**config.get("provider", {}), **(config.get("auth") or {}), **own})


def _head_of(file: Path) -> str:
    """The head's address, as `ray get-head-ip` finds it."""
    from ray.autoscaler import sdk

    try:
        with redirect_stdout(io.StringIO()):  # Ray tells there what it does
            return str(sdk.get_head_node_ip(str(file)))
    except Exception as error:  # every provider has errors of its own
        raise Failure(
            f"Ray finds no head of {file}: {str(error).rstrip('.')}. Is the cluster up? "
            f"`ray up {file}` starts it."
        ) from error
