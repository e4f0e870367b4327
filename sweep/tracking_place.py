"""Where arms are tracked: the address, what it may be, and the environment MLflow runs in there."""

from __future__ import annotations

import os
from pathlib import Path

from trainables.errors import Failure, Misuse
from trainables.object_store import ObjectStore

URI_VARIABLE = "MLFLOW_TRACKING_URI"
# Put into this process's environment when its first client is made, unless the user set them:
# mlflow reads them at every request and offers no other way. Seven retries with 120 s each would
# hang the writer for minutes, and a retried POST whose reply was lost makes a second run. Child
# processes inherit them; nothing else in this process talks to MLflow.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}


class TrackingError(Failure):
    """MLflow is away, or refuses what it is sent. The records hold all; `sweep sync` sends it."""


def tracking_uri(store_root: str, override: str | None = None) -> str:
    """Where to track: ``override``, else MLFLOW_TRACKING_URI, else SQLite below a local root.

    Raises Misuse for an object-store root without a setting of its own: SQLite cannot live there.
    """
    uri = override or os.environ.get(URI_VARIABLE)
    if uri:
        if "://" not in uri or uri.startswith("file:"):
            raise Misuse(
                f"an MLflow address must be like http://host:5000, sqlite:////folder/mlflow.db or "
                f"postgresql://..., got {uri!r}: MLflow no longer keeps runs in plain folders. "
                f"Change --mlflow or {URI_VARIABLE}."
            )
        return uri
    store = ObjectStore(store_root)
    if not store.is_local:
        raise Misuse(
            f"MLflow's SQLite file cannot live below {store_root}: give the address of an MLflow "
            f"server or database with --mlflow or {URI_VARIABLE}."
        )
    return f"sqlite:///{store.root}/mlflow.db"


def is_server(uri: str) -> bool:
    """Whether this is the address of an MLflow server, not of a database."""
    return uri.startswith(("http://", "https://"))


def sqlite_path(uri: str) -> Path | None:
    """The file of an SQLite address; None for other databases and for servers."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None
