"""The tracker's own process: the same runs, no driver held up or outlived, nothing lost with it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from sweep.api.training import sweep_pages
from sweep.results.sweep_view import load_sweep
from sweep.study.arms import Arm, stored_arms
from sweep.study.definition import Definition
from sweep.tracking import process
from sweep.tracking.address import TrackingError
from sweep.tracking.client import run_ids
from sweep.tracking.process import TrackerProcess
from sweep.tracking.sources import tracked_arms
from sweep.tracking.tracker import Tracker, sync_all
from tests.support.drivers import wait_until
from tests.support.servers.mlflow_servers import content, free_port
from tests.support.toy_sweeps import trained_with_winners
from trainables.records.objects import ObjectStore

DRIVER = """
import os
import sys
import time
from sweep.study.arms import stored_arms
from sweep.study.definition import load_definition
from sweep.tracking.process import TrackerProcess
from trainables.records.objects import ObjectStore

objects = ObjectStore(sys.argv[1])
asked = load_definition(objects, "toy")
tracker = TrackerProcess(sys.argv[2], objects, asked, "")
tracker.send(next(iter(stored_arms(objects, asked))), True)
if not os.fork():  # a worker of the user's own holds a copy of the pipe, and outlives the driver
    os.close(1)
    time.sleep(60)
    os._exit(0)
print(tracker._running[0].pid, [name for name in ("mlflow", "pandas") if name in sys.modules])
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path / "root"))


@pytest.fixture
def asked(objects: ObjectStore) -> Definition:
    return trained_with_winners(objects)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def arms(objects: ObjectStore, asked: Definition) -> list[Arm]:
    return list(stored_arms(objects, asked))


@pytest.fixture
def tracker(uri: str, objects: ObjectStore, asked: Definition) -> Iterator[TrackerProcess]:
    with closing(TrackerProcess(uri, objects, asked, "")) as made:
        yield made


def pid_of(tracker: TrackerProcess) -> int:
    assert tracker._running is not None
    return tracker._running[0].pid


def is_there(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.long("writes fourteen arms to MLflow twice, and its pages")
def test_its_runs_marks_and_views_are_those_of_a_tracker_in_this_process(
    tmp_path: Path,
    uri: str,
    objects: ObjectStore,
    asked: Definition,
    arms: list[Arm],
    tracker: TrackerProcess,
) -> None:
    view = load_sweep(objects, asked.name)
    for arm in arms:
        tracker.send(arm, True)
    tracker.sync_sweep(sweep_pages(view, 0, objects.root))
    here = tmp_path / "here"
    expected = Tracker(f"sqlite:///{here}/mlflow.db")
    sync_all(expected, tracked_arms(objects, asked), say=lambda line: None)
    expected.sync_sweep(sweep_pages(view, 0, objects.root))
    assert len(run_ids(uri, asked.name)) == len(arms)
    assert content(uri, asked.name) == content(expected.uri, asked.name)


def test_it_ends_with_a_driver_that_is_killed_which_has_no_mlflow_loaded(
    objects: ObjectStore, asked: Definition, uri: str
) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, objects.root, uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
    )
    with driver:
        try:
            assert driver.stdout is not None
            pid, _, loaded = driver.stdout.readline().strip().partition(" ")
            assert is_there(int(pid))
            assert loaded == "[]"
        finally:
            driver.kill()
    wait_until(lambda: not is_there(int(pid)), timeout_s=10)


def test_signals_that_reach_all_leave_it_to_its_driver(
    uri: str, asked: Definition, arms: list[Arm], tracker: TrackerProcess
) -> None:
    tracker.send(arms[0], True)
    before = pid_of(tracker)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(before, number)
    tracker.send(arms[1], True)
    assert pid_of(tracker) == before
    assert set(run_ids(uri, asked.name)) == {arms[0].signature, arms[1].signature}
    tracker.close()
    assert not is_there(before)


def test_after_a_kill_the_next_call_starts_another_and_makes_nothing_twice(
    uri: str, asked: Definition, arms: list[Arm], tracker: TrackerProcess
) -> None:
    tracker.send(arms[0], True)
    first, known = pid_of(tracker), run_ids(uri, asked.name)
    os.kill(first, signal.SIGKILL)
    assert tracker._running is not None
    tracker._running[0].wait(10)
    tracker.send(arms[0], True)
    tracker.send(arms[1], True)
    assert pid_of(tracker) != first
    assert run_ids(uri, asked.name).items() >= known.items()
    assert len(run_ids(uri, asked.name)) == 2


@pytest.mark.parametrize("how", ["closed", "killed", "killed, its end of the pipe held open"])
def test_its_end_is_the_end_of_a_call_that_waits_for_mlflow(
    how: str,
    objects: ObjectStore,
    asked: Definition,
    arms: list[Arm],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed: list[Exception] = []
    held: list[int] = []  # as a process that was forked while it started has it

    def pipe() -> tuple[Any, Any]:
        ours, theirs = Pipe()
        held.append(os.dup(theirs.fileno()))
        return ours, theirs

    if "held" in how:
        monkeypatch.setattr(process, "Pipe", pipe)

    def send() -> None:
        try:
            tracker.send(arms[0], True)
        except TrackingError as error:
            failed.append(error)

    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes requests and never answers
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        tracker = TrackerProcess(uri, objects, asked, "")
        thread = threading.Thread(target=send)
        thread.start()
        silent.settimeout(60)
        with silent.accept()[0]:
            pid = pid_of(tracker)
            if how == "closed":
                tracker.close()
            else:
                os.kill(pid, signal.SIGKILL)
            thread.join(10)
    assert not thread.is_alive()
    assert not is_there(pid)
    assert "ended before it answered (exit code -9)" in str(failed[0])
    assert len(held) == ("held" in how)
    for end in held:
        os.close(end)
    tracker.close()
    with pytest.raises(TrackingError, match="is closed"):
        tracker.send(arms[0], True)  # and starts nothing


def test_trouble_and_warnings_come_as_they_would_in_this_process(
    tmp_path: Path,
    objects: ObjectStore,
    asked: Definition,
    arms: list[Arm],
    uri: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    said = []
    with closing(TrackerProcess(away, objects, asked, "")) as tracker:
        for one in (tracker.send, lambda arm, is_final: Tracker(away).is_whole("toy", "")):
            with pytest.raises(TrackingError) as error:
                one(arms[0], True)
            said.append(re.sub(r"0x\w+|trace_id=\w+", "", str(error.value)))
    assert said[0] == said[1]
    assert said[0] == (
        f"MLflow at {away} could not be reached, or refused: [Errno 111] Connection refused."
    )

    (tmp_path / "mlartifacts").write_text("no folder")
    with closing(TrackerProcess(uri, objects, asked, "")) as tracker:
        for arm in arms:
            tracker.send(arm, True)
    assert [r.name for r in caplog.records if "not artifacts" in r.getMessage()] == [
        "sweep.tracking.tracker"
    ]


def test_a_mistake_of_ours_is_told_with_where_it_was_made(
    arms: list[Arm], tracker: TrackerProcess
) -> None:
    arm = next(arm for arm in arms if arm.proposal is not None)
    broken: Any = None
    with pytest.raises(RuntimeError, match=r"AttributeError: .NoneType") as error:
        tracker.send(Arm(broken, arm.signature, arm.setting, arm.proposal), False)
    assert any("sources.py" in note for note in error.value.__notes__)
    tracker.send(arm, True)  # and it goes on
