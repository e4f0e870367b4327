"""A whole sweep through the command line: its MLflow server goes away, and a new one is filled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.support.drivers import ROOT, records, tiny, wait_until
from tests.support.servers.mlflow_servers import Server, content
from trainables.records.arm_record import SYSTEM_METRICS
from trainables.records.objects import ObjectStore

# What training again measures anew, beside all times.
MEASURED = tuple(SYSTEM_METRICS.values())
SOURCE = (
    "environment.code",
    "environment.commit",
    "environment.dirty",
)  # somebody may be at work on it
ARMS = 9  # three seeds, two proposals


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """Two servers, each with an empty database of its own; ended after the test."""
    made = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        made.append(Server(tmp_path / name))
    yield made
    for server in made:
        server.stop()


@pytest.fixture
def space_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.json"
    space = tiny(n_proposals=2, steps=150, report_every=50).space
    one_setting = {"settings": [{"name": "L2", "fields": {"model.layers": 2}}]}
    path.write_text(json.dumps({**space.to_json(), **one_setting, "search_seeds": [0, 1, 2]}))
    return path


def sweep(*words: str, stderr: IO[str] | int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sweep.cli", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    """What it printed, once it is done."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, (out, err)
    return out


def final_arms(root: Path) -> int:
    return sum(record.is_final for record in records(ObjectStore(root)).values())


def without_times(everything: dict[str, Any]) -> dict[str, Any]:
    """What two sweeps of one definition have in common, to the last digit."""
    plain: dict[str, Any] = {"kind": everything["kind"]}
    for signature, run in everything.items():
        if signature != "kind":
            rows = [
                (key, step, "" if key in MEASURED else value) for key, value, _, step in run["rows"]
            ]
            name, status, *_ = run["info"]
            kept = {n: run[n] for n in ("params", "artifacts")}
            tags = {n: text for n, text in run["tags"].items() if n not in SOURCE}
            info = (name, status)
            plain[signature] = {**kept, "tags": tags, "rows": sorted(rows), "info": info}
    return plain


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_mlflow_away_for_the_middle_third_and_a_new_empty_server(
    tmp_path: Path, servers: list[Server], space_file: Path
) -> None:
    first, second = servers
    run = ("run", str(space_file), "--where", "inline", "--storage")
    there, away = tmp_path / "there", tmp_path / "away"
    ended(sweep(*run, str(there)))  # its database is a file, and never away
    undisturbed = content(f"sqlite:///{there}/mlflow.db", "tiny")
    assert len(undisturbed) == 1 + ARMS + 1  # the kind, the arms, the summary

    first.start()
    heard = tmp_path / "heard"
    with open(heard, "w") as stderr:
        driver = sweep(*run, str(away), "--mlflow", first.uri, stderr=stderr)

    def pause(arms: int, said: str, act: Callable[[], None]) -> None:
        """Act when so many arms are final and this was said, while the driver stands still."""
        wait_until(lambda: final_arms(away) >= arms and said in heard.read_text())
        assert driver.poll() is None, "the arms are too short for this machine"
        os.kill(driver.pid, signal.SIGSTOP)
        act()
        os.kill(driver.pid, signal.SIGCONT)

    try:
        pause(ARMS // 3, "", first.stop)
        pause(2 * ARMS // 3, "could not be reached", first.start)
        ended(driver)
    finally:
        driver.kill()
    assert "has everything it missed" in heard.read_text()
    disturbed = content(first.uri, "tiny")
    assert without_times(disturbed) == without_times(undisturbed)

    second.start()
    ended(sweep("sync", "tiny", "--storage", str(away), "--mlflow", second.uri))
    assert content(second.uri, "tiny") == disturbed
    first.stop()
    best = ended(sweep("best", "tiny", "--storage", str(away), "--json"))
    assert json.loads(best)[0]["constrained"]["mlflow_run_id"]  # found where it was sent last
