"""Cluster checks from a laptop, for `sweep doctor --address`.

First the cluster.yaml, then the access of a stranger, then the way in; the head checks its nodes
itself (`cluster.py`). A cluster that lets strangers in is refused: nothing is run on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import requests

from sweep.cluster import ask, route, tunnel
from sweep.cluster.cluster_yaml import read
from sweep.cluster.jobs import Jobs
from sweep.doctor.check import OPEN_CLUSTER_ADVICE, SILENT_HEAD_ADVICE, Check, last_line
from sweep.doctor.node import check_token_file
from sweep.doctor.ports import NEVER_OPEN, find_open_ports
from sweep.doctor.scope import Scope
from sweep.doctor.yaml_check import check_cluster_file
from sweep.tracking.address import refuse_password
from trainables.code_version import code_version
from trainables.errors import SweepError, list_first

TIMEOUT_S = 10.0  # of one request
HEAD_ANSWER_S = 300.0  # the head waits for every node
STRANGERS = {"without a token": None, "with a wrong token": f"Bearer {'0' * 64}"}
# Through these a stranger could read results, secrets or logs, or run code.
ENDPOINTS = (
    *("/api/version", "/api/jobs/", "/api/cluster_status", "/api/v0/nodes", "/api/v0/logs"),
    *("/nodes?view=summary", "/logical/actors", "/api/packages/gcs/none.zip", "/events"),
)
# Open between the nodes, and nowhere else.
RAY_PORTS = {6379: "Ray's control service", 10001: "Ray's client server"}
REFUSED = (401, 403)
NO_TOKEN = Check(
    "token here",
    False,
    "none was found",
    "`ray get-auth-token --generate && chmod 600 ~/.ray/auth_token` makes one; the cluster needs "
    "the same (docs/cluster.md).",
)


def checks(address: str, storage: str | None, scope: Scope) -> Iterator[Check]:
    """Every check of the cluster at an address, in the order in which a sweep would trip over them.

    Args:
        address: the URL of its dashboard, or its cluster.yaml.
        storage: the root as the cluster sees it; None: the cluster's own.
        scope: for its head to check; machines come from the file.

    Raises:
        Misuse: the address of MLflow carries a password, which the head's list of jobs would show.
    """
    if scope.mlflow is not None:
        refuse_password(scope.mlflow)
    file = None if tunnel.is_url(address) else Path(address)
    if file is not None:
        for check in check_cluster_file(file):
            yield replace(check, name=f"{file.name}: {check.name}")
    try:
        secret = tunnel.token(address)
        yield NO_TOKEN if secret is None else replace(check_token_file(), name="token here")
        if file is not None:
            scope = replace(scope, machines=list_machines(file))
        yield from _check_reached(address, secret, file, storage, scope)
    except SweepError as error:
        yield Check("head", False, str(error))


def _check_reached(
    address: str, secret: str | None, file: Path | None, storage: str | None, scope: Scope
) -> Iterator[Check]:
    """Every check that needs a way to the cluster."""
    if file is not None:  # before a connection to an address that a file names
        yield Check("way in", True, route.describe_route(file))
    host = urlsplit(address).hostname if file is None else route.find_route(file).host
    with tunnel.reached(address) as url:
        yield Check("head", True, f"{host} is reached" + (" through ssh" if file else ""))
        refusal = check_strangers(url)
        yield refusal
        if not refusal.passed:
            return
        if host in tunnel.LOOPBACK:
            finding = f"not checked: {host} may be the end of a tunnel, with the head behind it"
            yield Check("closed from here", True, finding)
        else:
            is_filtered = file is None or read(file)["provider"].get("type") != "local"
            yield check_ports_from_here(str(host), is_filtered=is_filtered)
        words = ("doctor", "--where", "cluster", "--json", "--scope", json.dumps(scope.to_json()))
        yield from _check_from_head(Jobs(url, secret), words, storage)


def list_machines(file: Path) -> tuple[str, ...]:
    """The machines that a cluster.yaml always has as workers; in a cloud, none by name."""
    plain = read(file)
    machines = plain["provider"].get("worker_ips")
    if not isinstance(machines, list):
        return ()
    limits = [plain.get(key, len(machines)) for key in ("min_workers", "max_workers")]
    return tuple(map(str, machines)) if limits == [len(machines)] * 2 else ()


def check_strangers(url: str) -> Check:
    """Check that the job server refuses requests without a token, and with a wrong one."""
    let_in = []
    for endpoint in ENDPOINTS:
        for stranger, header in STRANGERS.items():
            status = _request_status(url + endpoint, header)
            if status is None:
                finding = f"no answer to {endpoint} {stranger}"
                advice = f"Check that {url} is the cluster's dashboard. {SILENT_HEAD_ADVICE}"
                return Check("token", False, finding, advice)
            if status not in REFUSED:
                let_in.append(f"{endpoint} {stranger} ({status})")
    if let_in:
        answered = list_first(let_in, 1)
        finding = f"the job server answers {answered}, so nothing was run on this cluster"
        return Check("token", False, finding, OPEN_CLUSTER_ADVICE)
    return Check("token", True, "the job server refuses a missing token and a wrong one")


def _request_status(url: str, authorization: str | None) -> int | None:
    """The status of a server's answer; None without an answer in HTTP."""
    with requests.Session() as stranger:
        stranger.trust_env = False  # a proxy's 403 would look like a refusal
        headers = {} if authorization is None else {"Authorization": authorization}
        try:
            return stranger.get(url, headers=headers, timeout=TIMEOUT_S).status_code
        except Exception:  # a server of another protocol fails in many ways
            return None


def check_ports_from_here(host: str, *, is_filtered: bool) -> Check:
    """Check that this machine, a stranger to the cluster's nodes, finds the head's ports closed.

    Args:
        host: the head's address.
        is_filtered: True when a firewall should keep strangers from Ray's own ports, too; else the
            token alone does.
    """
    services = {**NEVER_OPEN, **RAY_PORTS}
    open_ports = find_open_ports(host, services)
    wrong = [port for port in open_ports if port in NEVER_OPEN or is_filtered]
    if wrong:
        named = ", ".join(f"{port} ({services[port]})" for port in wrong)
        advice = "Allow only ssh from outside: close the rest in the security group or firewall."
        return Check("closed from here", False, f"{host} answers here on {named}", advice)
    finding = f"{host}: {', '.join(map(str, NEVER_OPEN))} are closed"
    if open_ports:
        named = ", ".join(map(str, open_ports))
        finding += f"; {named} answers, to the token alone: better close it by a firewall"
    return Check("closed from here", True, finding)


def _check_from_head(jobs: Jobs, words: Sequence[str], storage: str | None) -> Iterator[Check]:
    """The head's checks of itself and its nodes."""
    answer = ask.ask(jobs, words, storage, wait_s=HEAD_ANSWER_S)
    is_same = answer.version == code_version()
    yield Check(
        "version",
        is_same,
        answer.version if is_same else f"{answer.version} on the head, {code_version()} here",
        "Install the same on both: `ray up cluster.yaml` installs this checkout. `sweep submit` "
        "refuses until then.",
    )
    try:
        yield from [Check.from_json(plain) for plain in json.loads(answer.out)]
    except (ValueError, KeyError, TypeError):
        finding = f"the head could not check its nodes: {last_line(answer.err)}"
        advice = "Run `sweep doctor --where cluster` on the head (`ray attach cluster.yaml`)."
        yield Check("nodes", False, finding, advice)
