"""MLflow client: construction, errors, and look-ups.

MLflow migrates a database of an older version as soon as it opens it, and older versions can then
no longer read it. It may be a whole team's, so that one of another version is refused instead.

An experiment belongs to one sweep of one store, by its tag ``sweep_id``: sweeps of equal names on a
shared server keep apart. The first is called like its sweep, a later one also after its id.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.study.advice import command
from sweep.tracking.address import (
    ENVIRONMENT,
    URI_VARIABLE,
    TrackingError,
    is_server,
    shown,
    sqlite_path,
)
from trainables.machine import scratch
from trainables.machine.atomic_files import atomic_file, remove_left_overs
from trainables.machine.file_locks import has_locks

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

RUNS_PER_PAGE = 200  # a run takes about 0.1 MB in memory
CREATED = "created_ns"  # a run's tag: the oldest of several runs of an arm is the one that counts
SWEEP_ID = "sweep_id"  # an experiment's tag
ALEMBIC = "alembic_version"  # a database's table: the revision of its schema
PROBE = "sweep_doctor"  # an experiment's tag, for an instant


NO_LOCKS = (
    "Its file system has no locks, without which SQLite writes nothing: with --mlflow give an "
    "MLflow server, or a file on a disk of this machine (sqlite:////FOLDER/mlflow.db)."
)


class OtherSchema(TrackingError):
    """A database whose tables are not those of the installed MLflow; says what to do."""


def make_client(uri: str) -> MlflowClient:
    """A client for ``uri``; imports mlflow, and makes an SQLite database that is not there yet.

    Raises TrackingError when the address is none, its database's driver is not installed, or its
    database is of another version (see ``refuse_other_schema``).
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    # It announces every new database on stderr, in the middle of the sweep's own output.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    path = sqlite_path(uri)
    if path is not None:
        if not path.exists():
            _create_whole(path)
        with suppress(OSError):  # of another user, say
            remove_left_overs(path)
    try:
        refuse_other_schema(uri)
        return MlflowClient(tracking_uri=uri)
    except ImportError as error:
        raise TrackingError(
            f"MLflow's database at {shown(uri)} needs a driver that is not installed here "
            f"({error}): `pip install 'psycopg[binary]'` for PostgreSQL. Or give the address of an "
            "MLflow server, which has its own."
        ) from error
    except ValueError as error:
        raise trouble(uri, error) from error


def refuse_other_schema(uri: str) -> None:
    """Raise OtherSchema for a database with tables that MLflow here would migrate, or add to."""
    path = sqlite_path(uri)
    if is_server(uri) or (path is not None and not path.exists()):
        return
    from sqlalchemy.exc import SQLAlchemyError

    try:
        tables, revisions = _seen(uri)
    except SQLAlchemyError as error:
        raise trouble(uri, error) from error
    known = _revisions()
    if not tables or revisions == known[:1]:
        return
    from mlflow.version import VERSION

    other = f"Give another one, or an MLflow server, with --mlflow or {URI_VARIABLE}"
    schema = ", ".join(revisions)
    if not revisions:
        raise OtherSchema(
            f"the database at {shown(uri)} has tables ({', '.join(sorted(tables)[:3])}), but not "
            f"those of an MLflow: nothing was written into it. {other}."
        )
    if not set(revisions) <= set(known):
        raise OtherSchema(
            f"the database at {shown(uri)} has schema {schema}, which MLflow {VERSION}, installed "
            "here, does not know: it belongs to a newer MLflow, or to another program. Nothing "
            f"was written into it. {other}, or install that MLflow here."
        )
    address = shlex.quote(uri) if shown(uri) == uri else "ADDRESS"
    raise OtherSchema(
        f"MLflow's database at {shown(uri)} belongs to an older MLflow: it has schema {schema}, "
        f"and MLflow {VERSION}, installed here, writes {known[0]}. Nothing was written into it: it "
        "would be migrated, which cannot be undone, and the older MLflow could no longer open it. "
        f"{other}; or, where everybody who uses it has MLflow {VERSION} or newer, copy the "
        f"database and then migrate it with `mlflow db upgrade {address}`."
    )


_OF_EXTENSIONS = """SELECT relname FROM pg_class
JOIN pg_depend ON objid = pg_class.oid AND classid = 'pg_class'::regclass WHERE deptype = 'e'"""


def _seen(uri: str) -> tuple[set[str], list[str]]:
    """The names of a database's tables, and the revisions of its schema. Only reads.

    Tables of PostgreSQL's extensions are left out, say of PostGIS: an empty database may have them.
    """
    import sqlalchemy

    engine = sqlalchemy.create_engine(uri)
    try:
        with engine.connect() as there:
            tables = set(sqlalchemy.inspect(there).get_table_names())
            if engine.dialect.name == "postgresql":
                tables -= set(there.execute(sqlalchemy.text(_OF_EXTENSIONS)).scalars())
            if ALEMBIC not in tables:
                return tables, []
            rows = there.execute(sqlalchemy.text(f"SELECT version_num FROM {ALEMBIC}"))
            return tables - {ALEMBIC}, [str(row[0]) for row in rows]
    finally:
        engine.dispose()


@functools.cache
def _revisions() -> list[str]:
    """The schemas that the installed MLflow knows, the newest first."""
    from alembic.script import ScriptDirectory
    from mlflow.store import db_migrations

    scripts = ScriptDirectory(str(next(iter(db_migrations.__path__))))
    return [script.revision for script in scripts.walk_revisions()]


def _create_whole(path: Path) -> None:
    """An empty MLflow database under its name all at once; one that is there meanwhile stays.

    MLflow makes its tables one by one, for a second: a file left by a kill in between is refused by
    every later client ("table already exists").
    """
    # mlflow keeps the file open and may still write when the process ends.
    with scratch.held_folder(kind="mlflow-") as folder:
        made = folder / "made.db"
        _make_tables(made)
        with suppress(FileExistsError), atomic_file(path, replace=False) as copy:
            shutil.copyfile(made, copy)


def _make_tables(database: Path) -> None:
    from mlflow import MlflowClient

    MlflowClient(tracking_uri=f"sqlite:///{database}").search_experiments(max_results=1)


def foreign_errors() -> tuple[type[Exception], ...]:
    """Errors that mlflow raises when its store is away or refuses. Imports mlflow."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return (MlflowException, SQLAlchemyError, OSError)


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


def takes_writes(uri: str) -> bool:
    """Try to write a tag to a sweep's experiment, and delete it again; True if MLflow takes it.

    False: it answers, but holds no such experiment, or only those of other users.
    Raises TrackingError when it is away, or refuses: a disk that is full, say.
    """
    try:
        client = make_client(uri)
        ours = client.search_experiments(max_results=1, filter_string=f"tags.{SWEEP_ID} LIKE '%'")
        if not ours:
            return False
        client.set_experiment_tag(ours[0].experiment_id, PROBE, "was here")
        with suppress(*foreign_errors()):  # another doctor took it, or an old server cannot
            client.delete_experiment_tag(ours[0].experiment_id, PROBE)
    except foreign_errors() as error:
        if getattr(error, "error_code", "") == "PERMISSION_DENIED":
            return False
        raise trouble(uri, error) from error
    return True


def search_runs(client: MlflowClient, experiment_id: str, filter_string: str) -> Iterator[Run]:
    """Every active run of an experiment that the filter matches, page by page."""
    token = None
    while True:
        page = client.search_runs(
            [experiment_id], filter_string, max_results=RUNS_PER_PAGE, page_token=token
        )
        yield from page
        token = page.token
        if not token:
            return


def age(run: Run) -> tuple[int, str]:
    """Sort key: oldest first, for every reader alike. Start times are the arms', not the runs'."""
    return (int(run.data.tags.get(CREATED, 0)), run.info.run_id)


# --- experiments ----------------------------------------------------------------------------------


def find_experiment(client: MlflowClient, sweep: str, sweep_id: str) -> Experiment | None:
    """The experiment of the sweep with this id, under whichever of its names; None without one."""
    for name in _experiment_names(sweep, sweep_id):
        there = client.get_experiment_by_name(name)
        if there is not None and there.tags.get(SWEEP_ID, "") == sweep_id:
            return there
    return None


def _experiment_names(sweep: str, sweep_id: str) -> tuple[str, str]:
    """The sweep's name, and a longer one for where another sweep has that."""
    return sweep, f"{sweep} ({sweep_id[:8]})"


def create_experiment(
    client: MlflowClient, sweep: str, sweep_id: str, artifact_root: str | None
) -> Experiment:
    """Create the sweep's experiment; under a longer name where its own is taken."""
    from mlflow.exceptions import MlflowException

    tags = {"mlflow.experimentKind": "custom_model_development", SWEEP_ID: sweep_id}
    for name in _experiment_names(sweep, sweep_id):
        folder = name.replace(" ", "-")
        place = None if artifact_root is None else f"{artifact_root}/{folder}"
        try:
            client.create_experiment(name, artifact_location=place, tags=tags)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another writer was first
                raise
        there = find_experiment(client, sweep, sweep_id)
        if there is not None:
            return there
    raise TrackingError(f"MLflow does not show the experiment it just created for {sweep!r}.")


# --- run ids --------------------------------------------------------------------------------------


def run_ids(
    uri: str, sweep: str, sweep_id: str = "", *, storage: str | None = None
) -> dict[str, str]:
    """Run ids of a sweep's arms by signature. Raises TrackingError when MLflow cannot tell.

    ``storage`` is the root that a missing experiment is sent from.
    """
    path = sqlite_path(uri)
    if path is not None and not path.exists():
        raise TrackingError(f"nothing is tracked at {uri} yet.")
    experiment = experiment_of(uri, sweep, sweep_id)
    if experiment is None:
        send = command("sync", sweep, storage=storage)
        missing = f"MLflow at {shown(uri)} has no experiment of {sweep!r}: `{send}` sends it."
        raise TrackingError(missing)
    oldest: dict[str, tuple[int, str]] = {}
    try:
        for run in search_runs(make_client(uri), experiment.experiment_id, "tags.kind = 'arm'"):
            signature = run.data.tags["signature"]
            oldest[signature] = min(age(run), oldest.get(signature, age(run)))
    except foreign_errors() as error:
        raise trouble(uri, error) from error
    return {signature: run_id for signature, (_, run_id) in oldest.items()}


def experiment_of(uri: str, sweep: str, sweep_id: str = "") -> Experiment | None:
    """The sweep's experiment; None when it has none."""
    try:
        return find_experiment(make_client(uri), sweep, sweep_id)
    except foreign_errors() as error:
        raise trouble(uri, error) from error
