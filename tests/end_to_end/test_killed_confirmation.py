"""A confirmation that is killed ten times ends in the table of an undisturbed one."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import SPACE_FILE, sweep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = 10
WORDS = ("confirm", "mine", "--seeds", "6", "--controls", "detached,mixed_gamma")
LONG = SPACE_FILE.replace("steps=4, report_every=2", "steps=480, report_every=40").replace(
    'Setting("only", {})', 'Setting("only", {"constraint.reference_loss": 30.0})'
)
PLACES = ("environment", "eval_seconds", "train_seconds")


def searched(folder: Path) -> str:
    """A finished search with a winner, or with a proposal that is named."""
    folder.mkdir()
    space = folder / "mine.py"
    space.write_text(LONG)
    store = str(folder / "store")
    sweep("run", str(space), "--storage", store, "--where", "inline")
    return store


def start(store: str, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sweep.cli", *WORDS, "--proposal", "only=0"]
    command += ["--storage", store, "--where", "inline"]
    with open(log, "ab") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True)


def table(store: str) -> Any:
    return json.loads(sweep("best", "mine.confirmation", "--storage", store, "--json").stdout)


def test_ten_kills_change_nothing(tmp_path: Path) -> None:
    quiet, killed = searched(tmp_path / "quiet"), searched(tmp_path / "killed")
    log = tmp_path / "log"
    assert start(quiet, log).wait(600) == 0, log.read_text()[-2000:]
    chance = random.Random(1917)
    kills = 0
    for _ in range(200):
        driver = start(killed, log)
        if kills == KILLS:
            assert driver.wait(600) == 0, log.read_text()[-2000:]
            break
        try:
            driver.wait(chance.uniform(2.5, 6.0))
            pytest.fail(f"it ended after {kills} kills: {log.read_text()[-2000:]}")
        except subprocess.TimeoutExpired:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            kills += 1
            time.sleep(0.1)
    assert kills == KILLS
    assert table(killed) == table(quiet)
    assert len(table(quiet)["settings"][0]["contrasts"]["unconstrained"]["per_seed"]) == 6
