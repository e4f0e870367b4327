"""Checks a cluster from a laptop, for `sweep doctor --address`.

First the cluster.yaml, then what a stranger gets to, then the way in; the head looks at its nodes
itself (`doctor_cluster.py`). A cluster that answers strangers is refused: nothing is run on it.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sweep import remote, tunnel
from sweep.doctor_check import Check
from sweep.doctor_data import Need
from sweep.doctor_ports import NEVER_OPEN, answering
from sweep.submission import code_version
from trainables.errors import SweepError

Json = Any

TIMEOUT_S = 10.0  # of one request
WRONG_TOKEN = "0" * 64
# What a stranger could read results, secrets or logs from, or run code through.
ENDPOINTS = (
    *("/api/version", "/api/jobs/", "/api/cluster_status", "/api/v0/nodes", "/api/v0/logs"),
    *("/nodes?view=summary", "/logical/actors", "/api/packages/gcs/none.zip", "/events"),
)
RAY_PORTS = {6379: "Ray's control service"}  # open between the nodes, and nowhere else
REFUSED = (401, 403)
TOKEN_ADVICE = "Take it down, and start it again with a token on every node (docs/cluster.md)."


def checks(
    address: str,
    *,
    storage: str | None,
    mlflow: str | None,
    data: str | None,
    needs: Sequence[Need],
) -> Iterator[Check]:
    """Every check of the cluster at an address, in the order in which a sweep would trip over them.

    Args:
        address: the URL of its dashboard, or its cluster.yaml.
        storage: the root as the cluster sees it; None: the cluster's own.
        mlflow: as the cluster sees it.
        data: a folder of the nodes to look for data sets in; None: none.
        needs: the data sets and checkpoints of a search space, at their places on the nodes.
    """
    if not tunnel.is_url(address):
        from sweep import cluster_files

        for finding in cluster_files.check(address):
            yield Check(f"{Path(address).name}: {finding.name}", finding.ok, "", finding.advice)
    try:
        secret = tunnel.token(address)
    except SweepError as error:
        yield Check("token", False, str(error))
        return
    yield token_file(secret is not None)
    host = None
    try:
        host = _host(address)
        with tunnel.reached(address) as url:
            yield Check("head", True, f"reached through ssh to {host}" if host else url)
            refusal = strangers(url)
            yield refusal
            if not refusal.passed:
                return
            if host is not None:
                yield from ports_from_here(host)
            yield from _on_head(address, _words(mlflow, data, needs), storage)
    except SweepError as error:
        yield Check("head", False, str(error), "Is the cluster up? `ray up cluster.yaml`.")


def _host(address: str) -> str | None:
    """The head's address, where it can be probed from here; None for a tunnel of the user's own."""
    if not tunnel.is_url(address):
        return tunnel.route(Path(address)).host
    host = urlsplit(address).hostname or ""
    return None if host in ("localhost", "127.0.0.1", "::1") else host


# --- the token ------------------------------------------------------------------------------------


def token_file(is_there: bool) -> Check:
    """Whether this laptop has a token that no other user of it can read."""
    if not is_there:
        return Check(
            "token here",
            False,
            "none was found",
            "`ray get-auth-token --generate && chmod 600 ~/.ray/auth_token` makes one; the cluster "
            "needs the same (docs/cluster.md).",
        )
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or tunnel.TOKEN_FILE).expanduser()
    if "RAY_AUTH_TOKEN" not in os.environ and file.is_file() and file.stat().st_mode & 0o077:
        found = f"other users of this machine can read {file}"
        return Check("token here", False, found, f"chmod 600 {file}")
    return Check("token here", True, "found, and nobody else can read it")


def strangers(url: str) -> Check:
    """Whether the job server refuses those without a token, and those with a wrong one."""
    answers = {
        f"{endpoint} {who}": _status(url + endpoint, header)
        for who, header in (
            ("without a token", None),
            ("with a wrong token", f"Bearer {WRONG_TOKEN}"),
        )
        for endpoint in ENDPOINTS
    }
    silent = [asked for asked, status in answers.items() if status is None]
    if silent:
        found = f"no answer to {silent[0]}"
        return Check("token", False, found, f"Is {url} the cluster's dashboard?")
    let_in = [f"{asked} ({s})" for asked, s in answers.items() if s not in REFUSED]
    if let_in:
        more = f" and {len(let_in) - 1} more" if let_in[1:] else ""
        found = f"the job server answers {let_in[0]}{more}, so nothing was run on this cluster"
        return Check("token", False, found, TOKEN_ADVICE)
    return Check("token", True, "who has none, or a wrong one, is refused by the job server")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer, too."""

    def redirect_request(self, *args: Json, **kwargs: Json) -> None:
        """None: it is not followed."""


def _status(url: str, authorization: str | None) -> int | None:
    """How a server answers; None where nothing does, or no HTTP."""
    headers = {} if authorization is None else {"Authorization": authorization}
    request = urllib.request.Request(url, headers=headers)
    direct = urllib.request.ProxyHandler({})  # a proxy's 403 would look like a refusal
    try:
        opener = urllib.request.build_opener(_NoRedirect, direct)
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except Exception:  # a server that is none fails in many ways
        return None


# --- ports ----------------------------------------------------------------------------------------


def ports_from_here(host: str) -> Iterator[Check]:
    """Whether this machine, a stranger to the cluster's network, gets to what it should not."""
    known = {**NEVER_OPEN, **RAY_PORTS}
    found = [f"{port} ({known[port]})" for port in answering(host, known)]
    yield Check(
        "closed from here",
        not found,
        f"{host} answers here on {', '.join(found)}"
        if found
        else f"{host}: {', '.join(map(str, sorted(known)))}",
        "Allow only ssh from outside: close the rest in the security group or firewall.",
    )


# --- the head -------------------------------------------------------------------------------------


def _words(mlflow: str | None, data: str | None, needs: Sequence[Need]) -> list[str]:
    words = ["doctor", "--where", "cluster", "--json"]
    if mlflow is not None:
        words += ["--mlflow", mlflow]
    if data is not None:
        words += ["--data", data]
    if needs:
        words += ["--needs", json.dumps([need.to_json() for need in needs])]
    return words


def _on_head(address: str, words: Sequence[str], storage: str | None) -> Iterator[Check]:
    """What the head says of itself and its nodes."""
    with remote.cluster(address) as jobs:
        answer = remote.ask(jobs, words, storage)
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
        last = (answer.err.strip().splitlines() or ["no message"])[-1]
        yield Check("nodes", False, f"the head could not look at them: {last}")
