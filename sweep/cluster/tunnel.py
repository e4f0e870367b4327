"""Connection from a laptop to a cluster's job server: a URL, or an SSH tunnel.

The job server listens on the head's loopback only.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from sweep.cluster.cluster_yaml import read
from sweep.cluster.route import KNOWN_HOSTS, READY, Route, find_route
from sweep.tracking.address import shown
from trainables.errors import Failure, Misuse

LOOPBACK = {"127.0.0.1", "localhost", "::1"}
CONNECT_S = 30.0
WAIT_S = 0.05
TOKEN_FILE = "~/.ray/auth_token"


@contextmanager
def reached(address: str) -> Iterator[str]:
    """The URL of a cluster's job server, which can be asked while the block runs.

    Raises Misuse for what is no URL and no cluster.yaml, Failure where ssh does not get there.
    """
    if is_url(address):
        yield address.rstrip("/")
        return
    with tunnel(find_route(Path(address))) as way:
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
        f"an existing cluster.yaml or slurm.yaml, got {shown(address)!r}."
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


@dataclass(frozen=True)
class Tunnel:
    """A tunnel that is open."""

    port: int  # on this machine's loopback
    ssh: subprocess.Popen[bytes]
    reader_port: int = 0  # the same, for the head's reader; 0: it was not asked for


@contextmanager
def tunnel(to: Route, port: int | None = None, *, with_reader: bool = False) -> Iterator[Tunnel]:
    """An ssh tunnel to a port of the head's loopback, and its reader's, while the block runs.

    ``port`` is of this machine, None: a free one; Misuse where it is taken. Raises Failure, with
    ssh's own words, where the tunnel cannot be opened.
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
    # Else a read would wait for an ssh that hangs, beyond CONNECT_S.
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
