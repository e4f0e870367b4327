"""Standard output that cannot take it: a full disk, few letters, a closed pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import sweep


def run(*words: str, stdout: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command line as a process of its own."""
    command = [sys.executable, "-m", "sweep.cli", *words]
    with open(stdout or os.devnull, "wb") as to:
        return subprocess.run(
            command, stdout=to, stderr=subprocess.PIPE, env=os.environ | environment, check=False
        )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [("spaces",), ("spaces", "--json"), ("--help",), ("--version",)])
def test_a_full_disk_is_told_in_a_line(words: tuple[str, ...]) -> None:
    done = run(*words, stdout="/dev/full")
    told = done.stderr.decode()
    assert (done.returncode, told.count("\n")) == (1, 1)
    assert "standard output cannot be written: No space left" in told
    assert "free some space" in told


@pytest.mark.long("a sweep in a process of its own, with MLflow")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_sweep_whose_log_cannot_be_written_trains_to_its_end(root: Path, space_file: str) -> None:
    place = str(Path(__file__).parents[3])
    done = run("run", space_file, "--where", "inline", stdout="/dev/full", PYTHONPATH=place)
    assert done.returncode == 1
    assert "standard output cannot be written" in done.stderr.decode()
    (listed,) = json.loads(sweep("list", "--json").stdout)
    assert listed["state"] == "finished"


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252"])
def test_a_terminal_of_few_letters_shows_the_rest(encoding: str, tmp_path: Path) -> None:
    done = run("spaces", stdout=str(tmp_path / "out"), PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "quickstart" in (tmp_path / "out").read_text(encoding)


def test_a_reader_that_leaves_early_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "sweep.cli", "spaces"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert done.stderr == b""
