"""The embedded MLflow database is whole or not there, whoever is killed; runs are found in it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweep.tracking import Tracker
from sweep.tracking_client import experiment_id, make_client, run_ids
from sweep.tracking_place import TrackingError, tracking_uri
from tests.mlflow_servers import free_port
from tests.tracked_arms import STARTED, SWEEP, history

MAKE = "import sys; from sweep.tracking_client import make_client; make_client(sys.argv[1])"


def test_a_database_whose_maker_was_killed_is_made_again(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/store/mlflow.db"
    maker = subprocess.Popen([sys.executable, "-c", MAKE, uri])
    until = time.monotonic() + 60
    while not any(f.stat().st_size for f in tmp_path.glob("store/**/*.db")):  # its first tables
        assert maker.poll() is None
        assert time.monotonic() < until
        time.sleep(0.005)
    maker.kill()
    maker.wait()
    assert not Path(tmp_path, "store", "mlflow.db").exists()

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


def test_a_file_system_without_hard_links_gets_a_database_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "link", refused)
    client = make_client(f"sqlite:///{tmp_path}/mlflow.db")
    assert [e.name for e in client.search_experiments()] == ["Default"]
    assert [f.name for f in tmp_path.iterdir()] == ["mlflow.db"]


# --- finding runs ---------------------------------------------------------------------------------


def test_run_ids_by_signature(uri: str, tmp_path: Path) -> None:
    nowhere = tracking_uri(str(tmp_path / "nowhere"))
    assert run_ids(nowhere, SWEEP) == ({}, f"nothing is tracked at {nowhere} yet.")
    assert not (tmp_path / "nowhere").exists()
    arms = [offered[-1] for offered in history(3)]
    tracker = Tracker(uri)
    ids = {arm.signature: tracker.sync(arm) for arm in arms}
    tracker.sync_sweep_summary(SWEEP, definition={}, outcomes={}, started_ms=STARTED)
    assert run_ids(uri, SWEEP) == (ids, "")
    assert "no experiment of 'other'" in run_ids(uri, "other").reason


def test_a_server_that_is_away_is_a_reason_not_an_error() -> None:
    ids, reason = run_ids(f"http://127.0.0.1:{free_port()}", SWEEP)
    assert ids == {}
    assert "could not be reached" in reason


@pytest.mark.parametrize(
    ("uri", "advice"),
    [("postgresql+pg8000://me@host/db", "pip install"), ("http://[bad/x", "refused")],
)
def test_an_address_that_no_client_can_be_made_for_is_told(uri: str, advice: str) -> None:
    with pytest.raises(TrackingError, match=advice) as told:
        experiment_id(uri, SWEEP)
    assert "me@" not in str(told.value)
    assert advice in run_ids(uri, SWEEP).reason
