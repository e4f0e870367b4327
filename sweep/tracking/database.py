"""Database of MLflow: made as a whole, and refused where it is another version's.

MLflow migrates a database of an older version as soon as it opens it, and older versions can then
no longer read it. It may be a whole team's, so that one of another version is refused instead.
"""

from __future__ import annotations

import functools
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

from sweep.tracking.address import (
    URI_VARIABLE,
    TrackingError,
    is_server,
    shown,
    sqlite_path,
    trouble,
)
from trainables.machine import scratch
from trainables.machine.atomic_files import atomic_file

ALEMBIC = "alembic_version"  # a database's table: the revision of its schema


class OtherSchema(TrackingError):
    """A database whose tables are not those of the installed MLflow; says what to do."""


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


def create_database(path: Path) -> None:
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
