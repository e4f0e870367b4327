"""The embedded MLflow database is whole or not there, whenever its maker is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from sweep.tracking_client import make_client

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
