"""`sweep doctor --address` from a laptop: who is let in, what is open, and what it then refuses."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from sweep.cli.doctor import doctor
from sweep.cluster import route
from sweep.doctor import cluster as doctor_cluster
from sweep.doctor import laptop as doctor_remote
from sweep.doctor.laptop import check_ports_from_here, check_strangers
from sweep.doctor.scope import Scope, list_requirements
from tests.support.command_line import refused, sweep
from tests.support.servers.mlflow_servers import free_port
from tests.support.sweeps import SPACE

TOKEN = "of-the-lab-1234567890"
Answers = Callable[[str, str | None], int]  # path, Authorization header -> status


def guarded(path: str, header: str | None) -> int:
    """As Ray's job server with token authentication."""
    if header is None:
        return 401
    return 200 if header == f"Bearer {TOKEN}" else 403


@pytest.fixture
def asked() -> list[tuple[str, str]]:
    """Every request that the job server got: method and path."""
    return []


@pytest.fixture
def serve(asked: list[tuple[str, str]]) -> Iterator[Callable[[Answers], str]]:
    """Start a job server with these answers; returns its URL."""
    servers = []

    def start(answers: Answers) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.command, self.path))
                self.send_response(answers(self.path, self.headers["Authorization"]))
                self.end_headers()

            do_POST = do_PUT = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


# --- who is let in --------------------------------------------------------------------------------


def test_a_job_server_that_refuses_strangers_everywhere_passes(
    serve: Callable[[Answers], str], asked: list[tuple[str, str]]
) -> None:
    check = check_strangers(serve(guarded))
    assert check.passed
    assert {path for _, path in asked} == set(doctor_remote.ENDPOINTS)
    assert len(asked) == 2 * len(doctor_remote.ENDPOINTS)


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (lambda path, header: 200, "/api/version without a token (200) and 17 more"),
        (lambda path, header: 401 if header is None else 200, "with a wrong token (200)"),
        (
            lambda path, header: 200 if path == "/api/jobs/" and not header else 401,
            "/api/jobs/ without a token (200), so nothing was run",
        ),
        (lambda path, header: 500, "(500)"),  # it was not refused
    ],
)
def test_a_job_server_that_lets_a_stranger_in_anywhere_fails(
    serve: Callable[[Answers], str], answers: Answers, found: str
) -> None:
    check = check_strangers(serve(answers))
    assert not check.passed
    assert found in check.finding
    assert "Take it down" in check.advice


def test_silence_is_no_refusal() -> None:
    check = check_strangers(f"http://127.0.0.1:{free_port()}")
    assert not check.passed
    assert "no answer" in check.finding
    assert "gcs_server.out" in check.advice


@pytest.mark.parametrize("stranger", ["import time; time.sleep(60)", "raise OSError('no route')"])
def test_silence_is_no_refusal_on_the_head_either(
    stranger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_cluster, "STRANGER", stranger)
    monkeypatch.setattr(doctor_cluster, "STRANGER_S", 0.5)
    check = doctor_cluster.check_strangers("10.0.0.7:6379")
    assert not check.passed
    assert "nothing was run" in check.finding
    assert "gcs_server.out" in check.advice


def test_a_proxy_of_this_machine_does_not_answer_for_the_cluster(
    serve: Callable[[Answers], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its 403 would look like a refusal."""
    monkeypatch.setenv("http_proxy", serve(lambda path, header: 403))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert not check_strangers(f"http://127.0.0.1:{free_port()}").passed


def test_nothing_is_run_on_a_cluster_that_lets_strangers_in(
    serve: Callable[[Answers], str], asked: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    url = serve(lambda path, header: 200)
    ran = sweep("doctor", "--address", url, "--json", exits=1)
    found = {check["name"]: check for check in json.loads(ran.stdout)}
    assert set(found) == {"token here", "head", "token"}
    assert not found["token"]["passed"]
    assert {method for method, _ in asked} == {"GET"}
    assert TOKEN not in ran.output


# --- ports ----------------------------------------------------------------------------------------


@pytest.fixture
def open_port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port that answers here; what is looked for is replaced by ports of this test."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("is_filtered", [True, False])
def test_a_dashboard_that_answers_from_here_fails(
    open_port: int, is_filtered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_remote, "NEVER_OPEN", {open_port: "dashboard"})
    monkeypatch.setattr(doctor_remote, "RAY_PORTS", {free_port(): "Ray"})
    check = check_ports_from_here("127.0.0.1", is_filtered=is_filtered)
    assert not check.passed
    assert f"{open_port} (dashboard)" in check.finding


def test_behind_a_tunnel_of_the_users_own_ports_are_said_not_to_be_looked_at(
    serve: Callable[[Answers], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    checks = json.loads(sweep("doctor", "--address", serve(guarded), "--json", exits=1).stdout)
    (check,) = (check for check in checks if check["name"] == "closed from here")
    assert check["passed"]
    assert "not checked: 127.0.0.1" in check["found"]


def test_ray_itself_may_answer_where_no_firewall_is_promised(
    open_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_remote, "NEVER_OPEN", {free_port(): "dashboard"})
    monkeypatch.setattr(doctor_remote, "RAY_PORTS", {open_port: "Ray"})
    check = check_ports_from_here("127.0.0.1", is_filtered=False)
    assert check.passed
    assert "to the token alone" in check.finding
    check = check_ports_from_here("127.0.0.1", is_filtered=True)
    assert not check.passed


# --- a cluster.yaml -------------------------------------------------------------------------------


def test_a_cluster_that_is_not_up_fails_after_its_file_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho no route to host >&2; exit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    file = tmp_path / "lab.yaml"
    file.write_text(
        "cluster_name: lab\n"
        "provider: {type: local, head_ip: 127.0.0.1, worker_ips: []}\n"
        "auth: {ssh_user: me, ssh_private_key: /gone}\n"
    )
    checks = json.loads(sweep("doctor", "--address", str(file), "--json", exits=1).stdout)
    names = [check["name"] for check in checks]
    assert "lab.yaml: Ray's validation" in names
    assert names[-3:] == ["token here", "way in", "head"]
    assert checks[-2]["found"] == "ssh to me@127.0.0.1, which lab.yaml names"
    assert not checks[-1]["passed"]
    assert "no route to host" in checks[-1]["found"]
    failed = [check for check in checks if not check["passed"] and check["name"] != "head"]
    assert all(check["advice"] for check in failed)


def test_of_a_cloud_it_is_said_whom_ray_asks_before_it_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "aws.yaml"
    file.write_text(
        "cluster_name: lab\nprovider: {type: aws, region: us-west-2}\n"
        "auth: {ssh_user: ubuntu, ssh_private_key: /gone, ssh_proxy_command: ssh -W %h:%p gate}\n"
    )
    assert route.describe_route(file) == (
        "ssh as ubuntu to the head of lab, which Ray asks the provider of aws.yaml for (aws), "
        "through its ssh_proxy_command"
    )


@pytest.mark.parametrize(
    ("workers", "wanted"),
    [
        ("10.0.0.8, lab-2]}", ["10.0.0.8", "lab-2"]),
        ("10.0.0.8, lab-2]}\nmin_workers: 0", []),  # they come and go
        ("]}", []),
    ],
)
def test_the_head_is_told_which_machines_should_be_its_workers(
    workers: str, wanted: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(f"provider: {{type: local, head_ip: 10.0.0.7, worker_ips: [{workers}\n")
    assert list(doctor_remote.list_machines(file)) == wanted


def test_the_head_gets_the_scope_of_a_laptop() -> None:
    requirements = list_requirements(SPACE)
    scope = Scope("http://mlflow:5000", "/data", requirements, ("10.0.0.8", "lab-2"))
    assert Scope.from_json(json.loads(json.dumps(scope.to_json()))) == scope
    context = doctor.make_context("doctor", ["--where", "cluster", "--json", "--scope", "{}"])
    assert (context.params["where"], context.params["scope_json"]) == ("cluster", "{}")


def test_a_laptop_without_a_token_is_told_how_to_make_one(
    serve: Callable[[Answers], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    url = serve(guarded)
    checks = json.loads(sweep("doctor", "--address", url, "--json", exits=1).stdout)
    assert [(check["name"], check["passed"]) for check in checks[:3]] == [
        *(("token here", False), ("head", True), ("token", True)),
    ]
    assert "ray get-auth-token --generate" in checks[0]["advice"]


def test_what_is_no_cluster_is_refused() -> None:
    assert "must be the URL" in refused("doctor", "--address", "gone.yaml")
    assert "give SPACE" in refused("doctor", "--set", "steps=2")
    message = refused("doctor", "--address", "http://h", "--notify", "true")
    assert "on the cluster's head" in message
