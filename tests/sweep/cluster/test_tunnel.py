"""The way to a cluster: what a cluster.yaml says of its head, tokens, and ssh that fails or ends.

ssh itself is stood in for by a program of that name; a test of whole clusters uses the real one.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from sweep.cluster.route import Route, find_route
from sweep.cluster.tunnel import is_url, reached, token, tunnel
from tests.support.drivers import wait_until
from tests.support.servers.ssh_stand_in import stand_in
from trainables.errors import Failure, Misuse

ROOT = Path(__file__).parents[3]
ON_PREMISES = """
cluster_name: lab
provider: {type: local, head_ip: 10.0.0.7, worker_ips: [10.0.0.8]}
auth: {ssh_user: me, ssh_private_key: ~/.ssh/lab}
file_mounts: {"~/.ray/auth_token": "TOKEN"}
head_start_ray_commands: ["ray start --head --dashboard-port=8270"]
"""


@pytest.fixture
def cluster_file(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("of the lab\n")
    path = tmp_path / "cluster.yaml"
    path.write_text(ON_PREMISES.replace("TOKEN", str(tmp_path / "token")))
    return path


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called ssh that comes first on the path; returns where it writes its arguments."""
    said = stand_in(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return said


@pytest.fixture
def head() -> Iterator[int]:
    """What listens on the head's loopback: its port."""

    class Hello(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hello)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


# --- addresses ------------------------------------------------------------------------------------


def test_an_address_is_a_url_or_a_file_that_is_there(cluster_file: Path) -> None:
    assert is_url("http://127.0.0.1:8265")
    assert is_url("https://ray.example.org/")
    assert not is_url(str(cluster_file))
    for wrong in ("", "head:8265", "ray://head:10001", "http://", str(cluster_file.parent)):
        with pytest.raises(Misuse, match="must be the URL"):
            is_url(wrong)


def test_an_address_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(Misuse, match=r"must be without user and password") as refusal:
        is_url("https://me:secret@ray.example.org")
    assert "secret" not in str(refusal.value)


def test_a_url_is_used_as_it_is() -> None:
    with reached("http://127.0.0.1:8265/") as url:
        assert url == "http://127.0.0.1:8265"


def test_the_way_to_a_head_is_what_its_file_says(cluster_file: Path) -> None:
    assert find_route(cluster_file) == Route("10.0.0.7", "me", "~/.ssh/lab", None, 8270, True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Ray's open files
def test_a_cluster_that_is_not_up_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "cluster_name: gone\nauth: {ssh_user: me, ssh_private_key: /key}\n"
        "provider: {type: external, module: no_such_module.Provider}\n"
    )
    with pytest.raises(Failure, match=r"Ray finds no head of .*[^.]\. Is the cluster up\?"):
        find_route(path)


def test_a_file_without_a_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster_name: lab\nprovider: {type: local, head_ip: 10.0.0.7}\n")
    with pytest.raises(Misuse, match="lacks 'ssh_user'"):
        find_route(path)


# --- tokens ---------------------------------------------------------------------------------------


def test_tokens_are_looked_for_as_ray_does(
    cluster_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    assert token("http://127.0.0.1:8265") is None
    at_home = Path.home() / ".ray" / "auth_token"
    at_home.parent.mkdir()
    at_home.write_text(" at home \n")
    assert token("http://127.0.0.1:8265") == "at home"
    assert token(str(cluster_file)) == "of the lab"  # a home has many clusters
    (tmp_path / "named").write_text("named")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "named"))
    assert token(str(cluster_file)) == "named"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "given")
    assert token(str(cluster_file)) == "given"


def test_a_token_file_that_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere/token")
    with pytest.raises(Misuse, match="/nowhere/token does not exist"):
        token("http://127.0.0.1:8265")


# --- the tunnel -----------------------------------------------------------------------------------


def test_a_tunnel_leads_to_the_loopback_of_the_head_and_ends(ssh: Path, head: int) -> None:
    to = Route("10.0.0.7", "me", "/keys/lab", "nc %h %p", head)
    with tunnel(to) as way:
        port = way.port
        assert urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=10).read() == b"hello"
    words = ssh.read_text().splitlines()
    assert "me@10.0.0.7" in words
    assert words[words.index("-i") + 1] == "/keys/lab"
    assert {"ProxyCommand=nc %h %p", "BatchMode=yes", "ExitOnForwardFailure=yes"} <= set(words)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=10)


def test_ssh_that_fails_is_told_with_its_own_words(ssh: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "ssh").write_text("#!/bin/sh\necho Permission denied >&2\nexit 255\n")
    with (
        pytest.raises(Failure, match=r"me@head failed: Permission denied"),
        tunnel(Route("head", "me", None, None)),
    ):
        pass


def test_a_port_that_another_program_took_meanwhile_is_no_tunnel(ssh: Path, tmp_path: Path) -> None:
    """It takes connections, and would be sent the token."""
    thief = (
        f"#!{sys.executable}\nimport re, socket, sys\n"
        'here = re.search(r"-L 127.0.0.1:(\\d+)", " ".join(sys.argv)).group(1)\n'
        'thief = socket.create_server(("127.0.0.1", int(here)))\n'
        "thief.settimeout(0.5)\n"
        "try:\n    thief.accept()\nexcept TimeoutError:\n    pass\n"
        'sys.exit("bind: Address already in use")\n'
    )
    (tmp_path / "bin" / "ssh").write_text(thief)
    with (
        pytest.raises(Failure, match="Address already in use"),
        tunnel(Route("head", "me", None, None)),
    ):
        pass


def test_without_ssh_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(Failure, match="ssh is not installed"),
        tunnel(Route("head", "me", None, None)),
    ):
        pass


def test_a_port_that_is_taken_is_refused(ssh: Path, head: int) -> None:
    with (
        pytest.raises(Misuse, match=rf"port {head} .* is taken"),
        tunnel(Route("head", "me", None, None), head),
    ):
        pass


def test_a_tunnel_does_not_outlive_a_laptop_that_is_killed(ssh: Path, head: int) -> None:
    code = (
        "import sys\nfrom sweep.cluster.route import Route\n"
        "from sweep.cluster.tunnel import tunnel\n"
        f"with tunnel(Route('head', 'me', None, None, {head})) as way:\n"
        "    print(way.port, flush=True)\n    sys.stdin.read()\n"
    )
    laptop = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert laptop.stdout is not None
    port = int(laptop.stdout.readline())
    laptop.send_signal(signal.SIGKILL)
    laptop.communicate()

    def is_closed() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) != 0

    wait_until(is_closed)


def test_a_fixed_head_keeps_its_host_key_and_a_clouds_address_does_not() -> None:
    """On premises whoever answers at the address would be sent the token."""
    fixed, cloud = (
        Route("10.0.0.7", "me", None, None, is_fixed=is_fixed) for is_fixed in (True, False)
    )
    assert "StrictHostKeyChecking=accept-new" in fixed.command(1)
    ours = Path.home() / ".ssh" / "descent-sweep.known_hosts"
    assert f'UserKnownHostsFile="{ours}"' in fixed.command(1)
    assert "StrictHostKeyChecking=no" in cloud.command(1)


def test_another_host_key_is_told_with_what_to_do(ssh: Path) -> None:
    program = ssh.parent / "bin" / "ssh"
    program.write_text("#!/bin/sh\necho 'Host key verification failed.' >&2; exit 255\n")
    fixed = Route("10.0.0.7", "me", None, None, is_fixed=True)
    with pytest.raises(Failure, match=r"ssh-keygen -R 10.0.0.7 -f ~/.ssh/"), tunnel(fixed):
        pytest.fail("it was let in")
