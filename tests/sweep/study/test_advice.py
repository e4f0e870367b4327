"""Advised commands, run as they stand beside a ./sweeps with a sweep of that name."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from sweep.study import advice
from sweep.study.lock import driver_lock
from sweep.tracking.address import tracking_uri
from sweep.tracking.client import make_client
from tests.support.command_line import contents, sweep
from tests.support.records import ended
from tests.support.servers.job_servers import JobServer, job_server
from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, SECOND, store_sweep
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

COMMAND = re.compile(r"`((?:SWEEP_ADDRESS= )?[^`\s]*sweep [^`]*)`")
PACKAGE = Path(advice.__file__).parents[1]
TOKEN = "of-the-cluster"


def advised(text: str) -> list[str]:
    """The commands in backquotes, but for those that only name a verb."""
    return [found for found in COMMAND.findall(text) if len(shlex.split(found)) > 2]


def pasted(command: str, monkeypatch: pytest.MonkeyPatch, exits: int = 0) -> Result:
    """Give a command to a shell that has no variables of ours, in the same folder."""
    for name in ("SWEEP_STORAGE", "SWEEP_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    program, *words = shlex.split(command)
    assert program == "sweep"
    return sweep(*words, exits=exits)


@pytest.fixture
def here(tmp_path: Path, trained_once: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that commands are given in; its ./sweeps holds a finished sweep called mine."""
    folder = tmp_path / "here"
    shutil.copytree(trained_once, folder / "sweeps")
    monkeypatch.delenv("SWEEP_STORAGE")
    monkeypatch.chdir(folder)
    before = contents(folder / "sweeps")
    yield folder
    assert contents(folder / "sweeps") == before  # nothing that was advised touched it


@pytest.fixture
def other(tmp_path: Path, here: Path, trained_once: Path) -> ObjectStore:
    """Another storage root, whose name wants quotes in a shell; nothing is final."""
    root = tmp_path / "my 'other' sweeps"
    shutil.copytree(trained_once / "sweeps", root / "sweeps")
    shutil.rmtree(root / "sweeps/mine/proposals", ignore_errors=True)
    return ObjectStore(root)


def test_the_advice_of_status_continues_the_sweep_that_was_shown(
    other: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = sweep("status", "mine", "--storage", other.root).stdout
    [command] = advised(shown)
    assert shown.rstrip().endswith(f"Continue with `{command}`.")  # on one line, however long
    pasted(f"{command} --where inline", monkeypatch)
    assert (
        json.loads(sweep("status", "mine", "--storage", other.root, "--json").stdout)["arms"][
            "final"
        ]
        == 2
    )


def test_the_advice_of_a_run_keeps_to_its_storage_and_to_how_it_ran(
    other: ObjectStore, space_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("run", space_file, "--storage", other.root, "--where", "inline")
    here = f"--storage {shlex.quote(other.root)}"
    assert advised(sweep(*words, "--set", "steps=6", exits=2).stderr) == [
        f"sweep resume mine {here}"
    ]
    monkeypatch.setattr("trainables.arm_run.ArmRun.advance", _interrupted)
    said = advised(sweep(*words, "--workers", "2", exits=1).stderr)
    assert said == [f"sweep resume mine --workers 2 --where inline {here}"]


def _interrupted(_: object) -> None:
    raise KeyboardInterrupt


def test_what_a_second_driver_is_told_is_about_the_first_one(
    other: ObjectStore, here: Path, space_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with driver_lock(other, "mine"):
        for words in (("run", space_file), ("rm", "mine")):
            said = sweep(*words, "--storage", other.root, exits=2).stderr
            for command in advised(said):
                answer = pasted(f"{command}", monkeypatch)
                assert str(os.getpid()) in answer.stdout  # the driver that holds the lock
        asked = sweep("stop", "mine", "--storage", other.root).stdout
        look, again = advised(asked)
        assert "is running" in pasted(look, monkeypatch).stdout
        assert "is running already" in pasted(again, monkeypatch, exits=2).stderr


def test_what_failed_is_trained_again_where_it_failed(
    other: ObjectStore, here: Path, space_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = ArmStore(other)
    for signature in ObjectStore(here / "sweeps").names("arms"):
        config = ArmStore(ObjectStore(here / "sweeps")).record(signature).config  # type: ignore[union-attr]
        runs.put_record(ended(config, "failed", "the GPU fell off"))
    said = sweep("resume", "mine", "--storage", other.root, "--where", "inline", exits=1).stderr
    assert set(advised(said)) == {
        f"sweep resume mine --where inline --storage {shlex.quote(other.root)} --retry-failed"
    }


def test_what_mlflow_lacks_is_sent_from_where_it_lies(
    other: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_client(tracking_uri(str(other.root)))
    other.put_json("sweeps/mine/id.json", "f" * 32)
    [send] = advised(sweep("best", "mine", "--json", "--storage", other.root).stderr)
    pasted(send, monkeypatch)
    assert advised(sweep("best", "mine", "--json", "--storage", other.root).stderr) == []


def test_the_default_storage_is_not_repeated_and_a_variable_of_this_shell_is(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(here / "sweeps")
    assert advice.command("best", "mine", storage=root) == "sweep best mine"
    monkeypatch.setenv("SWEEP_STORAGE", root)
    assert advice.command("best", "mine", storage=root) == f"sweep best mine --storage {root}"
    monkeypatch.setenv("SWEEP_ADDRESS", "cluster.yaml")
    monkeypatch.delenv("SWEEP_STORAGE")
    assert advice.command("best", "mine", storage=root) == "SWEEP_ADDRESS= sweep best mine"
    assert advice.command("rm", "mine", storage=root) == "sweep rm mine"  # knows no address


def test_a_program_off_the_path_is_advised_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "bin" / "sweep"
    there.parent.mkdir()
    there.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(there)])
    monkeypatch.setenv("PATH", "/nowhere")
    assert advice.program() == str(there)
    monkeypatch.setenv("PATH", str(there.parent))
    assert advice.program() == "sweep"


# --- clusters -------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobServer]:
    """A cluster whose storage has an unfinished sweep called mine, as ./sweeps of the laptop."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with job_server(folder, TOKEN) as server:
        server.environment["SWEEP_STORAGE"] = str(folder / "storage")
        monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
        store_sweep(
            ObjectStore(folder / "storage"),
            {FIRST: [INFEASIBLE, FEASIBLE], SECOND: [INFEASIBLE]},
            name="mine",
        )
        yield server


@pytest.mark.slow
def test_what_a_cluster_advises_asks_that_cluster(
    cluster: JobServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = ("--address", cluster.url)
    [again] = advised(sweep("status", "mine", *there).stdout)
    assert again == f"sweep resume mine --address {cluster.url}"
    root = str(cluster.folder / "storage")
    [again] = advised(sweep("status", "mine", *there, "--storage", root).stdout)
    assert again == f"sweep resume mine --address {cluster.url} --storage {root}"
    with driver_lock(ObjectStore(root), "mine"):
        look, again = advised(sweep("stop", "mine", *there).stdout)
        assert "mine is running" in pasted(look, monkeypatch).stdout
        assert again == f"sweep resume mine --address {cluster.url}"


def test_what_a_job_prints_is_advice_for_who_submitted_it(
    cluster: JobServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep("resume", "mine", "--address", cluster.url)
    [sent] = cluster.folder.glob("mine-*/submission.json")
    client_options = json.loads(sent.read_text())["client_options"]
    assert client_options == f"--address {cluster.url}"
    root = str(cluster.folder / "storage")
    monkeypatch.setenv(advice.ASKED_FROM, "--address 'my cluster.yaml'")
    again = advice.resume("mine", root, where="cluster")
    assert again == "sweep resume mine --address 'my cluster.yaml'"
    send = advice.command("sync", "mine", storage=root)  # no verb of a laptop
    assert shlex.split(send)[:3] == ["ray", "exec", "my cluster.yaml"]
    assert shlex.split(shlex.split(send)[3]) == ["sweep", "sync", "mine", "--storage", root]


# --- everywhere -----------------------------------------------------------------------------------


def test_no_command_about_a_sweep_is_written_by_hand() -> None:
    """In an f-string, that is: `sweep resume {name}` lacks where the sweep lies."""
    by_hand = re.compile(r"`sweep [a-z]+[^`\n]*\{(?!command|advice)")
    # `sweep stop NAME`, as what somebody did.
    told = {"signals.py": 1}
    for file in sorted(PACKAGE.rglob("*.py")):
        found = by_hand.findall(file.read_text(encoding="utf-8"))
        assert len(found) == told.get(file.name, 0), (file.name, found)
