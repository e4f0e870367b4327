"""Connection from a laptop to a cluster's job server: a URL, or an SSH tunnel.

The job server listens on the head's loopback only. What ssh needs (head, user, key, proxy) is asked
of Ray, which knows it from `ray up`; the options are those Ray connects with.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from sweep.cluster.cluster_yaml import read
from sweep.tracking.address import shown
from trainables.errors import Failure, Misuse

DASHBOARD_PORT = 8265
READER_PORT = 8266  # of the head's loopback, for sweep/cli/reader.py
READER_VARIABLE = "SWEEP_READER_PORT"  # of the head's environment: another port than that
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
CONNECT_S = 30.0
WAIT_S = 0.05
READY = "sweep-tunnel-is-open"  # said by the head's shell, which starts once ssh has the port here
TOKEN_FILE = "~/.ray/auth_token"
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


@contextmanager
def reached(address: str) -> Iterator[str]:
    """The URL of a cluster's job server, which can be asked while the block runs.

    Args:
        address: the URL itself, or the path of a cluster.yaml.

    Raises:
        Misuse: it is neither.
        Failure: the cluster is not up, or ssh does not get there.
    """
    if is_url(address):
        yield address.rstrip("/")
        return
    with tunnel(route(Path(address))) as way:
        yield f"http://127.0.0.1:{way.port}"


def is_url(address: str) -> bool:
    """True for an address, False for a file. Misuse when it is neither."""
    if re.match(r"https?://[^/]", address):
        if "@" in urlsplit(address).netloc:
            raise Misuse(
                f"--address must be without user and password, got {shown(address)}: it is shown. "
                "The cluster's token is looked for in RAY_AUTH_TOKEN and ~/.ray/auth_token."
            )
        return True
    if address.endswith((".yaml", ".yml")) and Path(address).is_file():
        return False
    raise Misuse(
        "--address must be the URL of a cluster's dashboard, like http://127.0.0.1:8265, or "
        f"an existing cluster.yaml, got {shown(address)!r}."
    )


def token(address: str | None) -> str | None:
    """The cluster's token, from where Ray looks for it; None when there is none.

    An address of None is the cluster that this machine belongs to.

    The environment comes first (RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH), then the file that a
    cluster.yaml mounts as the head's token, then ~/.ray/auth_token.
    """
    given = os.environ.get("RAY_AUTH_TOKEN", "").strip()
    if given:
        return given
    named = os.environ.get("RAY_AUTH_TOKEN_PATH") or _mounted_token(address)
    file = Path(named or TOKEN_FILE).expanduser()
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        if named is None:
            return None
        raise Misuse(
            f"the token file {file} does not exist. `ray get-auth-token --generate` makes "
            f"{TOKEN_FILE}; RAY_AUTH_TOKEN_PATH names another."
        ) from None
    except OSError as error:
        raise Misuse(f"the token file {file} cannot be read: {error}.") from error


def _mounted_token(address: str | None) -> str | None:
    mounts = {} if address is None or is_url(address) else read(address).get("file_mounts") or {}
    return next((str(here) for remote, here in mounts.items() if remote == TOKEN_FILE), None)


def route(file: Path) -> Route:
    """The way to the head of a cluster.yaml, from what Ray knows of it.

    A head with a fixed address is not looked up: only the laptop of `ray up` has a note of it.
    """
    config = read(file)
    provider, auth = config.get("provider") or {}, config.get("auth") or {}
    start = " ".join(map(str, config.get("head_start_ray_commands") or ()))
    port = re.search(r"--dashboard-port[= ](\d+)", start)
    lists = ("setup_commands", "head_setup_commands", "head_start_ray_commands")
    commands = " ".join(str(command) for name in lists for command in config.get(name) or ())
    reader_port = re.findall(rf"{READER_VARIABLE}=[\"']?(\d+)", commands)
    is_fixed = provider.get("type") == "local" and bool(provider.get("head_ip"))
    try:
        if is_fixed:
            host = str(provider["head_ip"])
        else:
            if not auth.get("ssh_private_key"):
                raise Misuse(
                    f"{file} lacks auth.ssh_private_key: only Ray knows the key of its head, "
                    "and makes a new key pair where it finds none. Name yours; one that Ray made "
                    "on AWS lies in ~/.ssh, as ray-autoscaler_*.pem."
                )
            host = _head_of(file)
        user = str(auth["ssh_user"])
    except KeyError as error:
        raise Misuse(f"{file} lacks {error}, which ssh to its head needs.") from error
    return Route(
        host,
        user,
        auth.get("ssh_private_key"),
        auth.get("ssh_proxy_command"),
        int(port.group(1)) if port else DASHBOARD_PORT,
        is_fixed,
        int(reader_port[-1]) if reader_port else READER_PORT,
    )


def way_in(file: Path) -> str:
    """The way that ``route`` takes, in words, without a request to anybody."""
    config = read(file)
    provider, auth = config["provider"], config.get("auth") or {}
    user = auth.get("ssh_user", "?")
    if provider.get("type") == "local" and provider.get("head_ip"):
        way = f"ssh to {user}@{provider['head_ip']}, which {file.name} names"
    else:
        way = (
            f"ssh as {user} to the head of {config.get('cluster_name')}, which Ray asks the "
            f"provider of {file.name} for ({provider.get('type')})"
        )
    return way + (", through its ssh_proxy_command" if auth.get("ssh_proxy_command") else "")


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


@dataclass(frozen=True)
class Tunnel:
    """A tunnel that is open."""

    port: int  # on this machine's loopback
    ssh: subprocess.Popen[bytes]
    reader_port: int = 0  # the same, for the head's reader; 0: it was not asked for


@contextmanager
def tunnel(to: Route, port: int | None = None, *, with_reader: bool = False) -> Iterator[Tunnel]:
    """An ssh tunnel to a port of the head's loopback while the block runs.

    Args:
        to: the head, and that port.
        port: on this machine; None: a free one.
        with_reader: reach the port of the head's reader, too.

    Raises:
        Misuse: the port is taken.
        Failure: it cannot be opened; with ssh's own words.
    """
    ports = _free_ports(port or 0, *([0] if with_reader else []))
    with tempfile.TemporaryFile() as errors:
        try:
            ssh = subprocess.Popen(
                to.command(*ports),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for the verb, which ends the tunnel after it
            )
        except FileNotFoundError as error:
            raise Failure("ssh is not installed here; it reaches the cluster's head.") from error
        with ssh:
            try:
                _wait(ssh, to, errors)
                yield Tunnel(ports[0], ssh, *ports[1:])
            finally:
                ssh.kill()


def _wait(ssh: subprocess.Popen[bytes], to: Route, errors: IO[bytes]) -> None:
    """Wait until ssh has the tunnel's port. Failure, with ssh's own words, when it gets none.

    A port that takes connections proves nothing: another program of this machine may have taken it
    before ssh did, and would be sent the token.
    """
    assert ssh.stdout is not None
    os.set_blocking(ssh.stdout.fileno(), False)
    give_up = time.monotonic() + CONNECT_S
    heard = b""
    while READY.encode() not in heard:
        ended = ssh.poll() is not None
        heard += ssh.stdout.read() or b""
        if READY.encode() not in heard and (ended or time.monotonic() > give_up):
            errors.seek(0)
            text = errors.read().decode(errors="replace").strip() or "no word from ssh"
            if to.is_fixed and "host key" in text.lower():
                forget = shlex.join(["ssh-keygen", "-R", to.host, "-f"])
                text += (
                    f" Its key is not the one that it had before. If the machine was set up anew: "
                    f"`{forget} {KNOWN_HOSTS}`; else somebody else answers at its address."
                )
            raise Failure(f"ssh to the head {to.user}@{to.host} failed: {text}")
        time.sleep(WAIT_S)


def _free_ports(*wanted: int) -> list[int]:
    """The ports, if nobody listens on them here; 0: any such. Misuse when somebody does."""
    ports = []
    with ExitStack() as probes:  # together, so that they differ
        for port in wanted:
            probe = probes.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise Misuse(
                    f"port {port} of this machine is taken ({error}): give another --port."
                ) from error
            ports.append(int(probe.getsockname()[1]))
    return ports
