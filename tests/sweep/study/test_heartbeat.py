"""On object storage a sweep's driver is known by its signs of life: one drives, others are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sweep.errors import AlreadyRunning
from sweep.executors.executor import Executor
from sweep.run.events import Observer
from sweep.run.run_sweep import run_sweep
from sweep.study import heartbeat
from sweep.study.arms import Arm
from sweep.study.definition import put_definition
from sweep.study.lock import driver_lock, driver_of
from tests.support.command_line import refused, sweep
from tests.support.drivers import wait_until
from tests.support.servers.clouds import BUCKET, Cloud, Request
from tests.support.sweeps import FEASIBLE, FIRST, store_sweep
from tests.support.toy_sweeps import definition
from trainables.errors import StoreError
from trainables.records.objects import ObjectStore

NAME = "sweeps/toy/driver.json"
HOLDS = """
import sys, threading
from sweep.study import heartbeat
from sweep.study.lock import driver_lock
from trainables.records.objects import ObjectStore
heartbeat.BEAT_EVERY_S = float(sys.argv[2])
lost = threading.Event()
def tell(why):
    print(why, flush=True)
    lost.set()
with driver_lock(ObjectStore(sys.argv[1]), "toy") as beats:
    beats.watch(lambda: "a machine", tell)
    print("drives", flush=True)
    lost.wait(60)
"""


@pytest.fixture
def bucket(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    monkeypatch.setattr(heartbeat, "SETTLE_S", 0.01)
    return ObjectStore(f"s3://{BUCKET}/root")


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """Storage without locks, without a server."""
    monkeypatch.setattr(heartbeat, "SETTLE_S", 0.01)
    (tmp_path / "sweeps" / "toy").mkdir(parents=True)
    return ObjectStore(f"file://{tmp_path}")


def beat_of_another(objects: ObjectStore, **fields: Any) -> None:
    """Put the sign of life of a driver on another machine."""
    there = {
        "owner": "another", "pid": 1, "host": "elsewhere", "machine": "another", "started_ms": 0,
        "every_s": 15.0, "waits_for": "",
    }  # fmt: skip
    objects.put_json(NAME, {**there, **fields})


def test_a_second_driver_is_refused_and_the_first_is_named(bucket: ObjectStore) -> None:
    asked = put_definition(bucket, definition())
    with driver_lock(bucket, "toy"):
        driver = driver_of(bucket, "toy")
        assert driver is not None
        with pytest.raises(AlreadyRunning, match=rf"{driver.pid}.*sweep stop toy"):
            run_sweep(bucket, asked, Executor("inline"))
    assert driver_of(bucket, "toy") is None
    assert not bucket.exists(NAME)


def test_a_sweep_that_is_driven_is_running_and_stays(bucket: ObjectStore) -> None:
    store_sweep(bucket, {FIRST: [FEASIBLE]})
    arms = bucket.names("arms")
    root = ("--storage", bucket.root)
    with driver_lock(bucket, "tiny"):
        entry = json.loads(sweep("status", "tiny", "--json", *root).stdout)
        (listed,) = json.loads(sweep("list", "--json", *root).stdout)
        assert (entry["state"], listed["state"]) == ("running", "running")
        assert "sweep stop tiny" in refused("rm", "tiny", "--yes", *root)
        assert "is running already" in refused("resume", "tiny", "--where", "inline", *root)
        assert "sent a stop request to process" in sweep("stop", "tiny", *root).stdout
    assert bucket.names("arms") == arms
    entry = json.loads(sweep("status", "tiny", "--json", *root).stdout)
    assert (entry["state"], entry["driver"]) == ("stopped", None)
    sweep("rm", "tiny", "--yes", *root)
    assert bucket.names("sweeps") == []


@pytest.mark.slow
def test_a_driver_that_was_silent_is_replaced_and_ends_when_it_wakes_up(
    bucket: ObjectStore,
) -> None:
    """The first one is stopped, as a suspended laptop is: its process is there, and is silent."""
    put_definition(bucket, definition())
    command = [sys.executable, "-c", HOLDS, bucket.root, "0.5"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    try:
        assert first.stdout.readline() == "drives\n"
        driver = driver_of(bucket, "toy")
        assert driver is not None
        assert driver.pid == first.pid
        first.send_signal(signal.SIGSTOP)
        wait_until(lambda: driver_of(bucket, "toy") is None)
        with driver_lock(bucket, "toy"):
            first.send_signal(signal.SIGCONT)
            assert "took toy over" in first.stdout.readline()
            assert first.wait(timeout=30) == 0
            second = driver_of(bucket, "toy")
            assert second is not None  # the first one left the second one's sign of life alone
            assert second.pid != first.pid
    finally:
        first.kill()
        first.communicate()


def test_a_driver_that_was_killed_here_is_replaced_at_once(bucket: ObjectStore) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", HOLDS, bucket.root, "15"], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "drives\n"
    driver.kill()
    driver.communicate()
    assert bucket.exists(NAME)
    with driver_lock(bucket, "toy"):
        pass


def test_a_driver_elsewhere_is_believed_while_its_sign_of_life_is_young(
    shared: ObjectStore,
) -> None:
    """Whatever the clocks of the two machines say: the storage tells the age."""
    beat_of_another(shared, waits_for="a machine with a GPU", started_ms=4_000_000_000_000)
    driver = driver_of(shared, "toy")
    assert driver is not None
    assert (driver.host, driver.waits_for) == ("elsewhere", "a machine with a GPU")
    with (
        pytest.raises(AlreadyRunning, match="If elsewhere is gone, try again: after 60 s"),
        driver_lock(shared, "toy"),
    ):
        pass
    beat_of_another(shared, every_s=0.0)
    assert driver_of(shared, "toy") is None
    with driver_lock(shared, "toy"):
        pass


def clocks(objects: ObjectStore) -> list[str]:
    """What is there to tell the storage's clock by."""
    return [name for name in objects.names("sweeps/toy") if "clock" in name]


@pytest.mark.parametrize("how", ["refused", "interrupted"])
def test_a_look_at_a_driver_leaves_nothing_behind_however_it_ends(
    cloud: Cloud, bucket: ObjectStore, how: str
) -> None:
    beat_of_another(bucket)
    looked: list[str] = []

    def disturb(request: Request) -> int | None:
        if request.method != "HEAD" or "clock" not in request.path or looked:
            return None
        looked.append(request.path)
        if how == "refused":
            return 403
        os.kill(os.getpid(), signal.SIGINT)
        return None

    cloud.before = disturb
    # ignored where the tests run in the background of a script
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with nullcontext() if how == "refused" else pytest.raises(KeyboardInterrupt):
            assert driver_of(bucket, "toy") is not None
    finally:
        signal.signal(signal.SIGINT, before)
    cloud.before = lambda request: None
    assert looked
    assert clocks(bucket) == []


def test_what_killed_readers_left_goes_with_the_next_driver_or_with_the_sweep(
    bucket: ObjectStore,
) -> None:
    put_definition(bucket, definition())
    bucket.put(f"{NAME}.clock-left", b"")
    with driver_lock(bucket, "toy"):
        assert clocks(bucket) == []
        assert bucket.names("sweeps/toy") == ["definition.json", "driver.json"]
    bucket.put(f"{NAME}.clock-left", b"")
    sweep("rm", "toy", "--yes", "--storage", bucket.root)
    assert bucket.tree("sweeps") == []


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("shared", "sweep.study.heartbeat.time.sleep"),  # claiming
        ("shared", "threading.Thread.start"),
        ("objects", "threading.Thread.start"),
    ],
)
def test_a_driver_that_is_interrupted_while_it_starts_leaves_no_sign_of_life(
    kind: str, where: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: ObjectStore = request.getfixturevalue(kind)
    start = threading.Thread.start

    def interrupt(first: object) -> None:
        if isinstance(first, threading.Thread):
            start(first)
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupt)
    with pytest.raises(KeyboardInterrupt), driver_lock(store, "toy"):
        pass
    assert not store.exists(NAME)
    assert "heartbeat" not in {thread.name for thread in threading.enumerate()}


def test_of_two_that_start_in_one_instant_one_is_refused(
    shared: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.study.heartbeat.time.sleep", lambda seconds: beat_of_another(shared))
    with (
        pytest.raises(AlreadyRunning, match="process 1 on elsewhere"),
        driver_lock(shared, "toy"),
    ):
        pass
    assert driver_of(shared, "toy") is not None


def heartbeats() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "heartbeat"}


@pytest.mark.parametrize("how", ["taken over", "deleted", "deleted before a beat arrives"])
def test_a_driver_that_loses_its_sweep_ends_and_says_why(
    bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_EVERY_S", 0.25)
    asked = put_definition(bucket, definition())
    others, taken = heartbeats(), how == "taken over"

    def lose(arm: Arm, is_final: bool) -> None:
        if taken:
            beat_of_another(bucket)
        else:
            beat = bucket.get(NAME)
            bucket.delete_folder("sweeps/toy")
            if how != "deleted" and beat is not None:
                bucket.put(NAME, beat)
        wait_until(lambda: not heartbeats() - others)

    summary = run_sweep(bucket, asked, Executor("inline"), display=False, observer=Observer(lose))
    assert len(bucket.names("arms")) == 1
    assert (summary.is_done, summary.exit_code) == (False, 1)
    why = "process 1 on elsewhere took toy over" if taken else "toy was deleted"
    assert f"this driver ends: {why}." in summary.problems
    assert bucket.exists(NAME) == taken  # the other one's stays


@pytest.mark.parametrize("kind", ["objects", "shared"])
def test_what_a_driver_waits_for_is_told_wherever_the_sweep_is_stored(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: ObjectStore = request.getfixturevalue(kind)
    monkeypatch.setattr(heartbeat, "LOOK_EVERY_S", 0.02)
    put_definition(store, definition())
    says = ["a machine with 4 CPUs"]

    def told() -> str | None:
        driver = driver_of(store, "toy")
        return None if driver is None else driver.waits_for

    with driver_lock(store, "toy") as beats:
        beats.watch(lambda: says[0], lambda why: None)
        wait_until(lambda: told() == "a machine with 4 CPUs")
        says[0] = ""
        wait_until(lambda: told() == "")


def test_a_damaged_sign_of_life_is_none(shared: ObjectStore) -> None:
    for content in (b"[]", b'{"owner": "of another version"}'):
        shared.put(NAME, content)
        assert driver_of(shared, "toy") is None


def test_storage_that_can_only_be_read_tells_the_age_by_the_clock_here(
    shared: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat_of_another(shared)

    def refuse(*_: object) -> None:
        raise StoreError("read only")

    monkeypatch.setattr(ObjectStore, "put", refuse)
    assert driver_of(shared, "toy") is not None
