"""Cluster checks from a laptop, for `sweep doctor --address`.

First the cluster.yaml, then what a stranger gets to, then the way in; the head looks at its nodes
itself (`cluster.py`). A cluster that answers strangers is refused: nothing is run on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import requests

from sweep.cluster import ask, tunnel
from sweep.cluster.cluster_yaml import read
from sweep.cluster.jobs import Jobs
from sweep.doctor import yaml_check
from sweep.doctor.check import Check, last_line
from sweep.doctor.data import Scope
from sweep.doctor.node import token_file
from sweep.doctor.ports import NEVER_OPEN, find_open_ports
from sweep.tracking.address import refuse_password
from trainables.code_version import code_version
from trainables.errors import SweepError

TIMEOUT_S = 10.0  # of one request
HEAD_ANSWER_S = 300.0  # the head asks every node
STRANGERS = {"without a token": None, "with a wrong token": f"Bearer {'0' * 64}"}
# What a stranger could read results, secrets or logs from, or run code through.
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
SILENT = (
    "Is the head up, and has it memory and CPU left? dashboard.log and gcs_server.out in its "
    "/tmp/ray/session_latest/logs say more; `ray up` again starts Ray anew."
)
TOKEN_ADVICE = "Take it down, and start it again with a token on every node (docs/cluster.md)."


def checks(address: str, storage: str | None, scope: Scope) -> Iterator[Check]:
    """Every check of the cluster at an address, in the order in which a sweep would trip over them.

    Args:
        address: the URL of its dashboard, or its cluster.yaml.
        storage: the root as the cluster sees it; None: the cluster's own.
        scope: what its head is to look at; machines come from the file.

    Raises:
        Misuse: the address of MLflow carries a password, which the head's list of jobs would show.
    """
    if scope.mlflow is not None:
        refuse_password(scope.mlflow)
    inside = None if tunnel.is_url(address) else Path(address)
    if inside is not None:
        for check in yaml_check.check(inside):
            yield replace(check, name=f"{inside.name}: {check.name}")
    try:
        secret = tunnel.token(address)
        yield NO_TOKEN if secret is None else replace(token_file(), name="token here")
        if inside is not None:
            scope = replace(scope, machines=_machines(inside))
        yield from _reached(address, secret, inside, storage, scope)
    except SweepError as error:
        yield Check("head", False, str(error))


def _reached(
    address: str, secret: str | None, inside: Path | None, storage: str | None, scope: Scope
) -> Iterator[Check]:
    """What is seen of the cluster once there is a way to it."""
    if inside is not None:  # before anything is asked of an address that a file names
        yield Check("way in", True, tunnel.way_in(inside))
    host = urlsplit(address).hostname if inside is None else tunnel.route(inside).host
    with tunnel.reached(address) as url:
        yield Check("head", True, f"{host} is reached" + (" through ssh" if inside else ""))
        refusal = strangers(url)
        yield refusal
        if not refusal.passed:
            return
        if host in tunnel.LOOPBACK:
            found = f"not looked at: {host} may be a tunnel's end here, with the head behind it"
            yield Check("closed from here", True, found)
        else:
            is_filtered = inside is None or read(inside)["provider"].get("type") != "local"
            yield from ports_from_here(str(host), is_filtered=is_filtered)
        yield from _on_head(Jobs(url, secret), scope.words(), storage)


def _machines(file: Path) -> tuple[str, ...]:
    """The machines that a cluster.yaml wants as workers all the time; in a cloud, none by name."""
    plain = read(file)
    machines = plain["provider"].get("worker_ips")
    if not isinstance(machines, list):
        return ()
    wanted = [plain.get(key, len(machines)) for key in ("min_workers", "max_workers")]
    return tuple(map(str, machines)) if wanted == [len(machines)] * 2 else ()


# --- the token ------------------------------------------------------------------------------------


def strangers(url: str) -> Check:
    """Whether the job server refuses those without a token, and those with a wrong one."""
    let_in = []
    for endpoint in ENDPOINTS:
        for who, header in STRANGERS.items():
            status = _status(url + endpoint, header)
            if status is None:
                found = f"no answer to {endpoint} {who}"
                return Check("token", False, found, f"Is {url} the cluster's dashboard? {SILENT}")
            if status not in REFUSED:
                let_in.append(f"{endpoint} {who} ({status})")
    if let_in:
        more = f" and {len(let_in) - 1} more" if let_in[1:] else ""
        found = f"the job server answers {let_in[0]}{more}, so nothing was run on this cluster"
        return Check("token", False, found, TOKEN_ADVICE)
    return Check("token", True, "who has none, or a wrong one, is refused by the job server")


def _status(url: str, authorization: str | None) -> int | None:
    """How a server answers; None where nothing does, or no HTTP."""
    with requests.Session() as stranger:
        stranger.trust_env = False  # a proxy's 403 would look like a refusal
        headers = {} if authorization is None else {"Authorization": authorization}
        try:
            return stranger.get(url, headers=headers, timeout=TIMEOUT_S).status_code
        except Exception:  # a server that is none fails in many ways
            return None


# --- ports ----------------------------------------------------------------------------------------


def ports_from_here(host: str, *, is_filtered: bool) -> Iterator[Check]:
    """Whether this machine, a stranger to the cluster's nodes, gets to what it should not.

    Args:
        host: the head's address.
        is_filtered: whether a firewall should keep strangers from Ray's own ports, too; else the
            token alone does.
    """
    known = {**NEVER_OPEN, **RAY_PORTS}
    found = find_open_ports(host, known)
    wrong = [port for port in found if port in NEVER_OPEN or is_filtered]
    if wrong:
        named = ", ".join(f"{port} ({known[port]})" for port in wrong)
        advice = "Allow only ssh from outside: close the rest in the security group or firewall."
        yield Check("closed from here", False, f"{host} answers here on {named}", advice)
        return
    text = f"{host}: {', '.join(map(str, NEVER_OPEN))} are closed"
    if found:
        named = ", ".join(map(str, found))
        text += f"; {named} answers, to the token alone: better, let a firewall close it"
    yield Check("closed from here", True, text)


# --- the head -------------------------------------------------------------------------------------


def _on_head(jobs: Jobs, words: Sequence[str], storage: str | None) -> Iterator[Check]:
    """What the head says of itself and its nodes."""
    answer = ask.ask(jobs, words, storage, wait_s=HEAD_ANSWER_S)
    same = answer.version == code_version()
    yield Check(
        "version",
        same,
        answer.version if same else f"{answer.version} there, {code_version()} here",
        "Install the same on both: `ray up cluster.yaml` installs this checkout. `sweep submit` "
        "refuses until then.",
    )
    try:
        for plain in json.loads(answer.out):
            yield Check(plain["name"], plain["passed"], plain["found"], plain["advice"])
    except (ValueError, KeyError, TypeError):
        found = f"the head could not look at them: {last_line(answer.err)}"
        advice = "Call `sweep doctor --where cluster` on the head (`ray attach cluster.yaml`)."
        yield Check("nodes", False, found, advice)
