"""The embedded MLflow database is whole or not there, whoever is killed; runs are found in it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from sweep.doctor import machine
from sweep.tracking.address import TrackingError, tracking_uri, trouble
from sweep.tracking.client import (
    SWEEP_ID,
    experiment_of,
    make_client,
    run_ids,
    takes_writes,
)
from sweep.tracking.database import refuse_other_schema
from sweep.tracking.tracker import Tracker
from tests.support.command_line import sweep
from tests.support.servers.mlflow_servers import free_port
from tests.support.servers.postgres_servers import Postgres
from tests.support.tracked_arms import STARTED, SWEEP, history
from trainables.machine import scratch

OLDER = "5b0e9adcef9c"  # the schema of MLflow 2.14
MAKE = "import sys; from sweep.tracking.client import make_client; make_client(sys.argv[1])"

ENDS = """
import pathlib, sys, tempfile, threading, time
import mlflow
from sweep.tracking.client import make_client
threading.Thread(target=make_client, args=sys.argv[1:], daemon=True).start()
while not any(pathlib.Path(tempfile.gettempdir()).glob("**/made.db")):
    time.sleep(0.002)
"""


@pytest.mark.slow
def test_a_database_whose_maker_was_killed_is_made_again(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/store/mlflow.db"
    (tmp_path / "aside").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "aside")}
    maker = subprocess.Popen([sys.executable, "-c", MAKE, uri], env=environment)
    until = time.monotonic() + 60
    while not any(f.stat().st_size for f in tmp_path.glob("aside/**/*.db")):  # its first tables
        assert maker.poll() is None
        assert time.monotonic() < until
        time.sleep(0.005)
    maker.kill()
    maker.wait()
    assert not list(tmp_path.glob("store/*"))

    assert [e.name for e in make_client(uri).search_experiments()] == ["Default"]


def test_the_first_of_two_makers_stays(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    uri = f"sqlite:///{path}"
    first = make_client(uri)
    first.create_experiment("mine")
    made = path.stat().st_ino

    assert {e.name for e in make_client(uri).search_experiments()} == {"Default", "mine"}
    assert path.stat().st_ino == made
    assert [f.name for f in tmp_path.iterdir()] == ["mlflow.db"]


def test_what_killed_makers_left_goes_when_the_database_is_there(tmp_path: Path) -> None:
    (tmp_path / f".mlflow.db.{uuid.uuid4().hex}.tmp").write_bytes(b"copied by half")
    make_client(f"sqlite:///{tmp_path}/mlflow.db")
    assert os.listdir(tmp_path) == ["mlflow.db"]


def test_what_others_keep_beside_their_database_stays(tmp_path: Path) -> None:
    (tmp_path / ".team.db-before-monday").write_bytes(b"a copy")
    (tmp_path / ".team.db-copies").mkdir()
    (tmp_path / ".team.db.of-monday.tmp").write_bytes(b"another")
    make_client(f"sqlite:///{tmp_path}/team.db")
    kept = {".team.db-before-monday", ".team.db-copies", ".team.db.of-monday.tmp"}
    assert set(os.listdir(tmp_path)) == {"team.db", *kept}


@pytest.mark.slow
def test_a_process_that_ends_while_it_makes_the_database_ends_quietly(tmp_path: Path) -> None:
    """MLflow's tables come one by one, and their journal while the folder is removed."""
    (tmp_path / "aside").mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", ENDS, f"sqlite:///{tmp_path}/store/mlflow.db"],
        env=os.environ | {"TMPDIR": str(tmp_path / "aside")},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr


def test_a_file_system_without_hard_links_gets_a_database_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "link", refused)
    client = make_client(f"sqlite:///{tmp_path}/mlflow.db")
    assert [e.name for e in client.search_experiments()] == ["Default"]
    assert [f.name for f in tmp_path.iterdir()] == ["mlflow.db"]


def test_a_disk_that_is_full_leaves_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(made: Path, whole: Path) -> None:
        Path(whole).write_bytes(b"a half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfile", full)
        with pytest.raises(OSError, match="No space left"):
            make_client(uri)
    assert not list(tmp_path.iterdir())
    assert [e.name for e in make_client(uri).search_experiments()] == ["Default"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_name_that_cannot_be_given_is_no_file_system_without_links(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(OSError, match=os.strerror(number)):
        make_client(f"sqlite:///{tmp_path}/mlflow.db")
    assert not list(tmp_path.iterdir())


def test_a_damaged_database_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"SQLite format 3\0" + bytes(3000))
    with pytest.raises(TrackingError, match="move it away, and `sweep sync NAME`"):
        takes_writes(f"sqlite:///{tmp_path}/mlflow.db")


def test_what_a_killed_maker_left_in_the_temporary_folder_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    left = tmp_path / "tmp" / f"{scratch.PREFIX}mlflow-x"
    left.mkdir(parents=True)
    (left / "made.db").touch()
    (left / scratch.OWNER).touch()
    make_client(f"sqlite:///{tmp_path}/mlflow.db")
    assert not list((tmp_path / "tmp").iterdir())


# --- other people's databases ---------------------------------------------------------------------


@pytest.fixture
def team_database(tmp_path: Path) -> Path:
    """The database of a team whose MLflow is 2.14, made by MLflow's own scripts."""
    from alembic import command
    from mlflow.store.db.utils import _get_alembic_config
    from mlflow.store.tracking.dbmodels.initial_models import Base
    from sqlalchemy import create_engine

    path = tmp_path / "theirs" / "team.db"
    path.parent.mkdir()
    engine = create_engine(f"sqlite:///{path}")
    Base.metadata.create_all(engine)
    engine.dispose()
    command.upgrade(_get_alembic_config(f"sqlite:///{path}"), OLDER)
    return path


def test_a_database_of_an_older_mlflow_is_refused_and_untouched(
    team_database: Path, tmp_path: Path
) -> None:
    uri, before = f"sqlite:///{team_database}", team_database.read_bytes()
    check = machine.check_tracking(str(tmp_path), uri)
    assert not check.passed
    for wanted in (OLDER, "Nothing was written", "--mlflow", f"`mlflow db upgrade {uri}`"):
        assert wanted in check.finding
    assert "Start the server" not in check.advice
    for use in (
        lambda: Tracker(uri).sync(history(1)[0][0]),
        lambda: run_ids(uri, SWEEP),
        lambda: experiment_of(uri, SWEEP),
        lambda: takes_writes(uri),
    ):
        with pytest.raises(TrackingError, match="older MLflow"):
            use()
    assert team_database.read_bytes() == before
    assert os.listdir(team_database.parent) == ["team.db"]


def test_whatever_holds_a_database_its_schema_is_read(uri: str) -> None:
    """In a file, and in PostgreSQL."""
    import sqlalchemy

    make_client(uri).search_experiments()
    engine = sqlalchemy.create_engine(uri)
    with engine.begin() as there:
        there.execute(sqlalchemy.text(f"UPDATE alembic_version SET version_num = '{OLDER}'"))
    engine.dispose()
    with pytest.raises(TrackingError, match=f"schema {OLDER}, and MLflow"):
        make_client(uri)


def test_sweep_ui_serves_no_database_that_its_server_would_migrate(
    team_database: Path, tmp_path: Path
) -> None:
    before = team_database.read_bytes()
    words = ["ui", "--storage", str(tmp_path), "--mlflow", f"sqlite:///{team_database}"]
    told = sweep(*words, "--port", str(free_port()), exits=1).stderr
    assert "older MLflow" in told
    assert team_database.read_bytes() == before


@pytest.mark.parametrize("revision", ["ffffffffffff", "v3.2.0.a"])
def test_a_database_of_a_newer_mlflow_or_of_another_program_is_refused(
    tmp_path: Path, revision: str
) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE replications (replication_id INTEGER)")
        database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        database.execute("INSERT INTO alembic_version VALUES (?)", (revision,))
    database.close()
    before = path.read_bytes()
    with pytest.raises(TrackingError, match=f"{revision}.*does not know"):
        make_client(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_database_without_mlflow_in_it_gets_no_tables(tmp_path: Path) -> None:
    path = tmp_path / "lab.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE samples (number INTEGER)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(TrackingError, match=r"tables \(samples\).*--mlflow"):
        make_client(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_an_empty_database_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "new.db").touch()
    refuse_other_schema(f"sqlite:///{tmp_path}/new.db")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_where_files_have_no_locks_the_cause_and_the_way_out_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """SQLite says that its file is locked (ENOLCK), or that input or output failed (ENOSYS)."""

    def none(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert machine.check_tracking(str(tmp_path), None).passed
    monkeypatch.setattr(fcntl, "flock", none)
    for words in ("database is locked", "disk I/O error"):
        said = str(trouble(uri, OSError(f"(sqlite3.OperationalError) {words}")))
        assert "has no locks, without which SQLite writes nothing: with --mlflow give" in said
        assert "Another program holds it" not in said
    check = machine.check_tracking(str(tmp_path), None)
    assert not check.passed
    assert "has no locks" in check.advice


@pytest.mark.slow
def test_a_table_of_an_extension_is_no_other_programs(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlalchemy

    monkeypatch.setenv("PGPASSWORD", postgres.password)
    uri = tracking_uri("", postgres.create("postgis"))
    engine = sqlalchemy.create_engine(uri)
    with engine.begin() as there:
        there.execute(sqlalchemy.text("CREATE TABLE spatial_ref_sys (srid INTEGER)"))
        there.execute(sqlalchemy.text("ALTER EXTENSION plpgsql ADD TABLE spatial_ref_sys"))
    refuse_other_schema(uri)
    with engine.begin() as there:
        there.execute(sqlalchemy.text("CREATE TABLE samples (number INTEGER)"))
    engine.dispose()
    with pytest.raises(TrackingError, match=r"tables \(samples\)"):
        refuse_other_schema(uri)


def test_of_a_locked_database_it_is_said_what_to_do() -> None:
    locked = OSError("(sqlite3.OperationalError) database is locked\n[SQL: INSERT ...]")
    assert "try again when that has ended" in str(trouble("sqlite:////a/mlflow.db", locked))
    assert "try again" not in str(trouble("sqlite:////a/mlflow.db", OSError("no such table")))


# --- writing --------------------------------------------------------------------------------------


def test_a_write_is_tried_and_leaves_nothing(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = make_client(uri)
    client.create_experiment("somebody's", tags={"mine": "1"})
    assert not takes_writes(uri)
    number = client.create_experiment(SWEEP, tags={SWEEP_ID: ""})
    before = client.get_experiment(number)
    assert takes_writes(uri)
    assert client.get_experiment(number).tags == before.tags
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON experiment_tags "
            "BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"
        )
    database.close()
    with pytest.raises(TrackingError, match="disk is full"):
        takes_writes(uri)
    check = machine.check_tracking(str(tmp_path), None)
    assert not check.passed
    assert "free its disk" in check.advice


def test_an_experiment_of_somebody_else_is_no_refusal() -> None:
    experiment = {"experiment_id": "1", "name": SWEEP, "lifecycle_stage": "active"}

    class OfOthers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            may = self.path.endswith("/experiments/search")
            body = json.dumps({"experiments": [experiment]}) if may else "Permission denied"
            self.send_response(200 if may else 403)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), OfOthers) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            assert not takes_writes(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()


# --- finding runs ---------------------------------------------------------------------------------


def test_run_ids_by_signature(uri: str, tmp_path: Path) -> None:
    nowhere = tracking_uri(str(tmp_path / "nowhere"))
    with pytest.raises(TrackingError) as told:
        run_ids(nowhere, SWEEP)
    assert str(told.value) == f"nothing is tracked at {nowhere} yet."
    assert not (tmp_path / "nowhere").exists()
    arms = [offered[-1] for offered in history(3)]
    tracker = Tracker(uri)
    ids = {arm.signature: tracker.sync(arm) for arm in arms}
    tracker.sync_sweep_summary(SWEEP, definition={}, outcomes={}, started_ms=STARTED)
    assert run_ids(uri, SWEEP) == ids
    with pytest.raises(TrackingError, match="no experiment of 'other'"):
        run_ids(uri, "other")


def test_trouble_with_a_file_names_the_file() -> None:
    said = str(trouble("sqlite:////x.db", PermissionError(13, "Permission denied", "/srv/abc")))
    assert said.endswith("refused: [Errno 13] Permission denied: '/srv/abc'.")


def test_a_server_that_is_away_is_told() -> None:
    with pytest.raises(TrackingError, match="could not be reached"):
        run_ids(f"http://127.0.0.1:{free_port()}", SWEEP)


@pytest.mark.parametrize(
    ("uri", "advice"),
    [("postgresql+pg8000://me@host/db", "pip install"), ("http://[bad/x", "refused")],
)
def test_an_address_that_no_client_can_be_made_for_is_told(uri: str, advice: str) -> None:
    with pytest.raises(TrackingError, match=advice) as told:
        experiment_of(uri, SWEEP)
    assert "me@" not in str(told.value)
    with pytest.raises(TrackingError, match=advice):
        run_ids(uri, SWEEP)
