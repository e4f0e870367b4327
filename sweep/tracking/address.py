"""Tracking address: which MLflow, what is allowed, and MLflow's environment there.

Below the storage root:

    sweeps/NAME/tracking.json   the address last used, unless it is the one below the root
    sweeps/NAME/id.json         the sweep's id: tells it from a sweep of this name in another store
"""

from __future__ import annotations

import json
import logging
import os
import re
import textwrap
import uuid
from pathlib import Path
from urllib.parse import unquote_plus

from sweep.study.definition import Definition, folder
from trainables.errors import Failure, Misuse
from trainables.machine.file_locks import has_locks
from trainables.records.objects import ObjectStore

log = logging.getLogger(__name__)
PLACE = "tracking.json"
URI_VARIABLE = "MLFLOW_TRACKING_URI"
# Servers, and the databases that MLflow knows, each also with a driver: postgresql+psycopg.
SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql")
# Put into a process's environment when its first client is made, unless the user set them: mlflow
# reads them at every request and offers no other way. Seven retries with 120 s each would hang the
# writer for minutes, and a retried POST whose reply was lost makes a second run.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}

NO_LOCKS = (
    "Its file system has no locks, without which SQLite writes nothing: with --mlflow give an "
    "MLflow server, or a file on a disk of this machine (sqlite:////FOLDER/mlflow.db)."
)


class TrackingError(Failure):
    """MLflow is away, or refuses what it is sent. The records hold all; `sweep sync` sends it."""


def trouble(uri: str, error: Exception) -> TrackingError:
    """The error as one of this project, with advice."""
    first_line = (str(error).splitlines() or [type(error).__name__])[0].replace(uri, shown(uri))
    cause = re.search(r"(?<!^)\[Errno -?\d+\] [^\"')]+", first_line)  # of a connection
    message = cause[0] if cause else textwrap.shorten(first_line, 300, placeholder=" ...")
    advice = ""
    if re.search("malformed|not a database", message):
        advice = (
            " Its file is damaged: move it away, and `sweep sync NAME` sends all arms to a new one."
        )
    elif re.search("database is locked|disk I/O error", message) and without_locks(uri):
        advice = f" {NO_LOCKS}"
    elif "database is locked" in message:
        advice = (
            " Another program holds it: try again when that has ended. An MLflow server, unlike a "
            "file, takes what several programs write."
        )
    return TrackingError(
        f"MLflow at {shown(uri)} could not be reached, or refused: {message}.{advice}"
    )


def without_locks(uri: str) -> bool:
    """True for an SQLite file on a file system without locks: SQLite cannot write there."""
    file = sqlite_path(uri)
    return file is not None and file.parent.is_dir() and not has_locks(file.parent)


def tracking_uri(store_root: str, override: str | None = None) -> str:
    """MLflow's address: ``override``, else MLFLOW_TRACKING_URI, else SQLite below a local root.

    Raises Misuse for an object-store root without a setting of its own: SQLite cannot live there.
    """
    uri = os.environ.get(URI_VARIABLE) or None if override is None else override
    if uri is None:
        return _below(ObjectStore(store_root))
    if "://" not in uri or uri.startswith("file:"):
        is_folder = re.search(r"^file:|^[.~]|/", uri) is not None
        raise Misuse(
            f"an MLflow address must be like http://host:5000, sqlite:////folder/mlflow.db or "
            f"postgresql://..., got {shown(uri)!r}"
            + ": MLflow no longer keeps runs in plain folders" * is_folder
            + f". Change --mlflow or {URI_VARIABLE}."
        )
    if uri.lower().partition("://")[0].partition("+")[0] not in SCHEMES:
        raise Misuse(
            f"an MLflow address must begin with one of {', '.join(SCHEMES)}, got {shown(uri)!r}. "
            f"Change --mlflow or {URI_VARIABLE}."
        )
    refuse_password(uri)
    path = sqlite_path(uri)
    if path is None or path.is_absolute() or "?" in uri:
        return uri
    return f"sqlite:///{path.absolute()}"  # other shells stand elsewhere


def _below(store: ObjectStore) -> str:
    """The SQLite file of a local storage root."""
    if not store.is_local:
        raise Misuse(
            f"MLflow's SQLite file cannot live below {store.root}: give the address of an MLflow "
            f"server or database with --mlflow or {URI_VARIABLE}."
        )
    if set("?%") & set(store.root):  # they have a meaning of their own in the address of a database
        raise Misuse(
            f"MLflow's SQLite file cannot live below {store.root}: a folder's name there must be "
            "without '?' and '%'. Give another --storage, or the address of an MLflow server with "
            f"--mlflow or {URI_VARIABLE}."
        )
    return f"sqlite:///{store.root}/mlflow.db"


def refuse_password(uri: str) -> None:
    """Raise Misuse for an address that carries a password: addresses are stored and shown.

    Of a server, a user alone is refused, too: there it is often a token.
    """
    if sqlite_path(uri) is not None:
        return
    place = uri.partition("://")[2]
    # Also of a password that is not escaped: with a slash it looks like a part of the path.
    is_before_host = re.match(r"[^/@]*:(?!\d+/).*@", place, re.DOTALL)
    is_user = is_server(uri) and re.match(r"[^/?#]*@", place)
    is_option = re.search(r"[?&;](ssl)?(password|passwd|pwd)=", unquote_plus(place), re.I)
    if is_before_host or is_user or is_option:
        raise Misuse(
            "an MLflow address must be without a password, and a server's without a user, got "
            f"{shown(uri)}: it is stored and shown. Give those of a server in "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, that of a PostgreSQL database "
            "in PGPASSWORD or ~/.pgpass."
        )


def shown(uri: str) -> str:
    """The address as it may be printed: without who logs in, and without options.

    >>> shown("http://me:secret@host:5000/x?password=1"), shown("sqlite:////a@b/mlflow.db")
    ('http://***@host:5000/x', 'sqlite:////a@b/mlflow.db')
    """
    if sqlite_path(uri) is not None:
        return uri
    return re.sub(r"^([^:/@]*://)?.*@", r"\1***@", uri).partition("?")[0]


def place_of(objects: ObjectStore, definition: Definition, override: str | None = None) -> str:
    """Address of a sweep: ``override``, else its last one, else as ``tracking_uri``."""
    last = definition.mlflow_uri
    if PLACE in objects.names(folder(definition.name)):
        last = (objects.get_json(_place(definition.name)) or {}).get("uri") or last
    return tracking_uri(objects.root, last if override is None else override)


def remember_place(objects: ObjectStore, sweep: str, uri: str) -> None:
    """Note where a sweep is tracked, for other shells. What lies below the root moves with it."""
    below = f"sqlite:///{objects.root}/mlflow.db"
    there = objects.get_json(_place(sweep)) or {"uri": None}
    noted = {"uri": None if uri == below else uri}
    if there != noted:
        objects.put_json(_place(sweep), noted)


def sweep_id(objects: ObjectStore, sweep: str) -> str:
    """The sweep's id, given to it now if it has none that can be read."""
    there = known_id(objects, sweep)
    if there is not None:
        return there
    if objects.exists(_id(sweep)):
        log.warning(
            "%s was damaged and is kept as %s: MLflow gets a new experiment for %s",
            _id(sweep), objects.set_aside(_id(sweep)), sweep,
        )  # fmt: skip
    # Of two drivers that give it one in the same instant, both take the first one's.
    content = objects.put_once(_id(sweep), json.dumps(uuid.uuid4().hex).encode())
    return str(json.loads(content))


def known_id(objects: ObjectStore, sweep: str) -> str | None:
    """The sweep's id, or None while it was never tracked, or when it is damaged."""
    return objects.get_derived(_id(sweep), str)


def _place(sweep: str) -> str:
    return f"{folder(sweep)}/{PLACE}"


def _id(sweep: str) -> str:
    return f"{folder(sweep)}/id.json"


def is_server(uri: str) -> bool:
    """True for the address of an MLflow server, False for that of a database."""
    return uri.lower().startswith(("http://", "https://"))


def sqlite_path(uri: str) -> Path | None:
    """The file of an SQLite address; None for other databases and for servers."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///").partition("?")[0])
