"""Addresses of a tracked sweep's charts, and the server that shows them."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from sweep.tracking.address import TrackingError, tracking_uri
from sweep.tracking.client import make_client
from sweep.tracking.tracker import Tracker
from sweep.tracking.ui import experiment_urls, ui_command
from tests.support.command_line import refused
from tests.support.drivers import ROOT
from tests.support.servers.mlflow_servers import free_port
from tests.support.tracked_arms import SWEEP, history
from trainables.errors import Misuse
from trainables.records.objects import ObjectStore


def test_before_a_sweep_has_views_its_arms_are_shown_as_charts_best_first(uri: str) -> None:
    Tracker(uri).sync(history(1)[0][-1])
    (url,) = experiment_urls("http://127.0.0.1:5000/", uri, SWEEP).values()
    assert url.startswith("http://127.0.0.1:5000/#/experiments/1/runs?searchFilter=tags.kind%20%3D")
    assert (
        "orderByKey=metrics.%60ood%2Fobjective%60&orderByAsc=true&compareRunsMode=CHART&workflowType=machine_learning"
        in url
    )
    with pytest.raises(TrackingError, match="sweep sync other"):
        experiment_urls("http://127.0.0.1:5000/", uri, "other")


def test_a_server_is_its_own_ui() -> None:
    with pytest.raises(Misuse, match="open it in a browser"):
        ui_command("http://host:5000", None, 5001)


# --- `sweep ui` -----------------------------------------------------------------------------------


def test_a_port_that_cannot_be_ours_is_refused_and_nobodys_address_is_printed(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refused("ui", "--port", port)
        assert f"port {port}" in said
        assert "another program has it" in said
    assert "99999 is not in the range 1<=x<=65535" in refused("ui", "--port", "99999")


def test_a_damaged_database_is_refused_with_what_makes_it_anew(stored: ObjectStore) -> None:
    Path(stored.root, "mlflow.db").write_bytes(b"SQLite format 3\0" + b"no pages" * 100)
    said = refused("ui", "tiny", "--port", str(free_port()))
    assert "cannot be read" in said
    assert f"`sweep sync tiny --storage {stored.root}`" in said


@pytest.mark.slow
def test_the_address_is_printed_once_the_server_answers_and_ends_with_the_verb(root: Path) -> None:
    root.mkdir()
    make_client(tracking_uri(str(root)))
    port = str(free_port())
    verb = [sys.executable, "-m", "sweep.cli", "ui", "--port", port]
    with subprocess.Popen(verb, cwd=ROOT, stdout=subprocess.PIPE, text=True) as ui:
        try:
            assert ui.stdout is not None
            url = ui.stdout.readline().strip()
            assert url == f"http://127.0.0.1:{port}"
            with urllib.request.urlopen(f"{url}/health") as reply:
                assert reply.status == 200
        finally:
            ui.terminate()
        assert ui.wait() == 0
    with socket.create_server(("127.0.0.1", int(port))):  # nothing of it stays
        pass
