"""The MLflow UI: the command that serves a database on loopback, and a sweep's page in it."""

from __future__ import annotations

import os
import sys
import urllib.parse

from sweep.advice import command
from sweep.tracking import Tracker
from sweep.tracking_client import experiment_id
from sweep.tracking_place import ENVIRONMENT, TrackingError, is_server, shown
from trainables.errors import Misuse
from trainables.results import OBJECTIVE


def ui_command(uri: str, artifact_root: str | None, port: int) -> list[str]:
    """The command that serves a database on loopback. Run it in ``server_environment()``.

    Raises Misuse when ``uri`` is a server already: it is its own UI.
    """
    if is_server(uri):
        raise Misuse(f"{shown(uri)} is an MLflow server already: open it in a browser.")
    root = Tracker(uri, artifact_root).artifact_root
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--workers", "1", "--backend-store-uri", uri]
    return command + ([] if root is None else ["--artifacts-destination", root])


def server_environment() -> dict[str, str]:
    """Environment for ``ui_command``: no telemetry, and no processes that serve other features."""
    return {**os.environ, **ENVIRONMENT, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def experiment_url(
    base: str, uri: str, sweep: str, sweep_id: str | None = "", *, storage: str | None = None
) -> str:
    """The sweep's page in the UI at ``base``: arms alone, as charts, best objective first.

    ``sweep_id`` is None for a sweep that was never tracked; ``storage`` is the root it lies below.

    Raises TrackingError when MLflow at ``uri`` is away or has no such experiment.
    """
    number = None if sweep_id is None else experiment_id(uri, sweep, sweep_id)
    if number is None:
        raise TrackingError(
            f"MLflow at {shown(uri)} has no experiment of {sweep!r}: "
            f"run `{command('sync', sweep, storage=storage)}` first."
        )
    view = {
        "searchFilter": "tags.kind = 'arm'",
        "orderByKey": f"metrics.`{OBJECTIVE}`",
        "orderByAsc": "true",
        "compareRunsMode": "CHART",
    }
    query = urllib.parse.urlencode(view, quote_via=urllib.parse.quote)
    return f"{base.rstrip('/')}/#/experiments/{number}/runs?{query}"
