"""The frame around an executor: one driver, arms to their end, and requests to stop."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sweep.errors import AlreadyRunning
from sweep.executors.executor import Executor
from sweep.run.coordinator import Coordinator
from sweep.run.events import Observer
from sweep.run.run_sweep import run_sweep
from sweep.run.signals import request_stop, stop_on_request, stop_request
from sweep.study.arms import Arm
from sweep.study.definition import put_definition
from sweep.study.lock import driver_lock, driver_of
from tests.support.drivers import wait_until
from tests.support.records import finished
from tests.support.toy_sweeps import LOSSES, definition
from trainables.records.arm_record import ArmRecord, Report
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


@pytest.fixture
def stub_arms(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """ArmRun without training: two reports, then the final record. Lists what was trained."""
    trained: list[str] = []

    class StubArmRun:
        def __init__(self, config: Any, store: ArmStore, *, tolerance: float) -> None:
            self.store, self.config = store, config
            there = store.record(config.signature())
            self.record = there or ArmRecord(signature=config.signature(), config=config)

        def advance(self) -> ArmRecord:
            step = len(self.record.reports) * 20 + 20
            self.record.reports.append(Report(step=step, timestamp_ms=step))
            if step == 40:
                trained.append(self.config.signature())
                self.record = finished(self.config, LOSSES)
            self.record = self.store.put_record(self.record)
            return self.record

        def let_go(self) -> None:
            assert self.record.is_final

    from trainables import arm_run

    monkeypatch.setattr(arm_run, "ArmRun", StubArmRun)
    return trained


def test_a_second_driver_is_refused_and_the_first_is_named(objects: ObjectStore) -> None:
    assert driver_of(objects, "toy") is None
    with driver_lock(objects, "toy"):
        driver = driver_of(objects, "toy")
        assert driver is not None
        with pytest.raises(AlreadyRunning, match=rf"{driver.pid}.*sweep stop toy"):
            run_sweep(objects, definition(), Executor("inline"))
    assert driver_of(objects, "toy") is None


def test_a_sweep_runs_inline(objects: ObjectStore, stub_arms: list[str]) -> None:
    asked = put_definition(objects, definition())
    summary = run_sweep(objects, asked, Executor("inline"), display=False)
    assert (summary.is_done, summary.exit_code) == (True, 0)
    assert len(stub_arms) == len(set(stub_arms)) == 16
    again = run_sweep(objects, asked, Executor("inline"), display=False)
    assert again == summary
    assert len(stub_arms) == 16


def test_without_a_terminal_one_line_per_arm_is_printed(
    objects: ObjectStore, stub_arms: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = put_definition(objects, definition(n_settings=1, n_proposals=1, seeds=(0,)))
    run_sweep(objects, asked, Executor("inline"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("0 of 2 arms are done")
    assert lines[1].startswith("[1/2] g1 unconstrained seed 0: finished in 49 s")
    assert lines[2].startswith("[2/2] g1 proposal 0 seed 0: finished")


# --- requests to stop -----------------------------------------------------------------------------


def test_a_stop_request_ends_running_arms_at_their_next_report(
    objects: ObjectStore, stub_arms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.run.signals.POLL_S", 0.01)
    asked = put_definition(objects, definition())
    stopped = threading.Event()

    def on_record(arm: Arm, is_final: bool) -> None:
        if arm.proposal is not None and not is_final and not stopped.is_set():
            request_stop(objects, "toy")
            stopped.wait(0.5)
            stopped.set()

    summary = run_sweep(
        objects, asked, Executor("inline"), display=False, observer=Observer(on_record)
    )
    assert "sweep stop toy" in summary.stopped
    assert summary.exit_code == 1
    assert len(stub_arms) == 4  # the baselines; the first constrained arm stopped at its report
    assert run_sweep(objects, asked, Executor("inline"), display=False).is_done
    assert len(stub_arms) == len(set(stub_arms)) == 16


def test_a_signal_that_comes_twice_still_checkpoints(
    objects: ObjectStore, stub_arms: list[str]
) -> None:
    """As `timeout` sends it, to its child and then to the group."""
    asked = put_definition(objects, definition())

    def on_record(arm: Arm, is_final: bool) -> None:
        if arm.proposal is not None and not is_final:
            for _ in range(2):
                signal.raise_signal(signal.SIGTERM)

    summary = run_sweep(
        objects, asked, Executor("inline"), display=False, observer=Observer(on_record)
    )
    assert summary.stopped == "SIGTERM"
    assert summary.is_urgent
    assert summary.was_asked_to_stop
    assert len(stub_arms) == 4  # as after `sweep stop`


def test_what_nohup_ignores_stays_ignored(objects: ObjectStore, stub_arms: list[str]) -> None:
    asked = put_definition(objects, definition())
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        summary = run_sweep(
            objects,
            asked,
            Executor("inline"),
            display=False,
            observer=Observer(lambda arm, is_final: signal.raise_signal(signal.SIGHUP)),
        )
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert summary.is_done


@pytest.mark.parametrize("ignored", [(), (signal.SIGINT,)], ids=["at a terminal", "with &"])
def test_sigterm_does_not_wait_for_arms_that_do_not_report(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, ignored: tuple[signal.Signals, ...]
) -> None:
    """Also where a script's shell has the driver ignore Ctrl-C, as what it starts with `&`."""
    monkeypatch.setattr("sweep.run.signals.POLL_S", 0.01)
    monkeypatch.setattr("sweep.run.signals.GRACE_S", 0.05)
    slept_through: list[bool] = []

    class Hanging:
        where, options = "inline", ()

        def train(self, coordinator: Coordinator) -> None:
            signal.raise_signal(signal.SIGTERM)
            time.sleep(30)
            slept_through.append(True)

    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    try:
        asked = put_definition(objects, definition())
        summary = run_sweep(objects, asked, Hanging(), display=False)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert summary.stopped == "SIGTERM"
    assert slept_through == []


def test_a_stop_request_during_the_start_is_not_lost(
    objects: ObjectStore, stub_arms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.run.signals.POLL_S", 0.01)
    asked = put_definition(objects, definition())
    start = Coordinator.start

    def slow_start(self: Coordinator, **options: Any) -> None:
        start(self, **options)
        request_stop(objects, "toy")
        time.sleep(0.3)

    monkeypatch.setattr(Coordinator, "start", slow_start)
    summary = run_sweep(objects, asked, Executor("inline"), display=False)
    assert "sweep stop toy" in summary.stopped
    assert stub_arms == []


@pytest.mark.parametrize("ahead_s", [-3600, 0, 3600])
def test_a_stop_request_stops_what_runs_and_nothing_later_whatever_the_clocks_say(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    """The laptop's clock may be off the head's by an hour, either way."""
    monkeypatch.setattr("sweep.run.signals.POLL_S", 0.01)
    asked = put_definition(objects, definition())
    here = time.time_ns

    def on_the_laptop() -> None:
        monkeypatch.setattr(time, "time_ns", lambda: here() + ahead_s * 10**9)
        request_stop(objects, "toy")
        monkeypatch.setattr(time, "time_ns", here)

    for _ in range(2):
        coordinator = Coordinator(objects, asked)
        with stop_on_request(coordinator, known=stop_request(objects, "toy")):
            time.sleep(0.1)
            assert not coordinator.stopping
            on_the_laptop()
            wait_until(lambda coordinator=coordinator: bool(coordinator.stopping))


def test_a_damaged_stop_request_is_passed_over_and_a_new_one_counts(objects: ObjectStore) -> None:
    objects.put_json("sweeps/toy/stop", {"requested_ms": 1})  # an earlier version's
    earlier = stop_request(objects, "toy")
    Path(objects.root, "sweeps/toy/stop").write_bytes(b"torn")
    assert stop_request(objects, "toy") == earlier != ""
    request_stop(objects, "toy")
    assert stop_request(objects, "toy") != earlier


def test_an_old_stop_request_does_not_stop_a_new_run(
    objects: ObjectStore, stub_arms: list[str]
) -> None:
    asked = put_definition(objects, definition())
    request_stop(objects, "toy")
    assert run_sweep(objects, asked, Executor("inline"), display=False).is_done
