"""The writer thread: the newest state arrives, training never waits, no outage loses anything."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sweep.study.arms import Arm
from sweep.tracking.address import TrackingError
from sweep.tracking.client import make_client, run_ids
from sweep.tracking.process import send_stored
from sweep.tracking.rows import OBJECTIVE_GAIN, TrackedArm
from sweep.tracking.tracker import Tracker, sync_all
from sweep.tracking.writer import BackgroundTracker
from tests.support.drivers import wait_until
from tests.support.servers.mlflow_servers import Server, free_port
from tests.support.tracked_arms import PAIR, SWEEP, config, content, history, record, tracked
from trainables.records import arm_record as results


class Offers:
    """A store of states written by hand, and a writer thread that reads it."""

    def __init__(self, uri: str, **options: Any) -> None:
        self.states: dict[str, TrackedArm] = {}
        self.reads: list[str] = []
        self.warnings: list[str] = []
        send = partial(send_stored, Tracker(uri), SWEEP, self._read)
        self.writer = BackgroundTracker(send, uri, SWEEP, warn=self.warnings.append, **options)

    def _read(self, arm: Arm) -> TrackedArm | None:
        self.reads.append(arm.signature)
        return self.states.get(arm.signature)

    def __call__(self, arm: TrackedArm) -> None:
        self.states[arm.signature] = arm
        offered = Arm(arm.record.config, arm.signature, arm.setting, arm.proposal)
        self.writer.offer(offered, arm.record.is_final)

    @property
    def behind(self) -> list[str]:
        return self.writer.behind()


@pytest.mark.slow
def test_the_newest_state_wins_in_the_background(uri: str, undisturbed: dict[str, Any]) -> None:
    offer = Offers(uri)
    for offered in history(12):
        for arm in offered:
            offer(arm)
    assert offer.writer.close(60) == []
    assert offer.warnings == []
    assert content(uri) == undisturbed


def test_a_running_arms_reports_wait_to_go_together_and_its_end_does_not(uri: str) -> None:
    first, *held, final = history(1)[0]
    offer = Offers(uri, pace_s=3600)
    offer(first)
    wait_until(lambda: not offer.behind)
    for arm in held:
        offer(arm)
    other = history(2)[1][0]
    offer(other)  # whoever is due is not held up
    wait_until(lambda: other.signature not in offer.behind)
    assert offer.behind == [first.signature]
    offer(final)
    wait_until(lambda: not offer.behind)
    assert offer.writer.close(60) == []


def test_closing_sends_what_waits_its_turn(uri: str) -> None:
    first, *_, final = history(1)[0]
    later = dataclasses.replace(final, record=dataclasses.replace(final.record, status="running"))
    offer = Offers(uri, pace_s=3600)
    offer(first)
    wait_until(lambda: not offer.behind)
    offer(later)
    assert offer.writer.close(60) == []
    run_id = run_ids(uri, SWEEP)[first.signature]
    newest = make_client(uri).get_metric_history(run_id, results.REPORTED_LOSS)
    assert max(row.step for row in newest) == final.record.reports[-1].step


def test_closing_without_a_server_says_who_is_behind() -> None:
    offer = Offers(f"http://127.0.0.1:{free_port()}", first_wait_s=0.1, longest_wait_s=0.2)
    arms = [offered[-1] for offered in history(5)]
    for arm in arms:
        offer(arm)
    wait_until(lambda: bool(offer.warnings))
    assert sorted(offer.writer.close(0.1)) == sorted(arm.signature for arm in arms)
    assert len(offer.warnings) == 1
    assert f"sweep sync {SWEEP}" in offer.warnings[0]
    assert "nothing is lost" in offer.warnings[0]
    assert offer.reads == []  # an outage fills no memory with records


def test_ctrl_c_while_the_end_waits_is_the_end_of_the_writer() -> None:
    """What it waits for is ended then: no reason to warn, and nothing to try again."""
    sent: list[str] = []
    is_ended = threading.Event()

    def send(arm: Arm, is_final: bool) -> None:
        sent.append(arm.signature)
        is_ended.wait(60)
        raise TrackingError("its process was killed.")

    warnings: list[str] = []
    writer = BackgroundTracker(send, "", SWEEP, warn=warnings.append, first_wait_s=0.01)
    arm = history(1)[0][-1]
    writer.offer(Arm(arm.record.config, arm.signature, arm.setting, arm.proposal), True)
    wait_until(lambda: bool(sent))
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        writer.close(60)
    is_ended.set()
    time.sleep(0.5)  # in which it would try again
    assert sent == [arm.signature]
    assert warnings == []


def test_what_mlflow_refuses_holds_up_nobody_else(uri: str) -> None:
    arms = [offered[-1] for offered in history(4)]
    arms[0].record.reports[0].scalars["no such/name?!"] = 1.0
    offer = Offers(uri, first_wait_s=0.01, longest_wait_s=0.1)
    for arm in arms:
        offer(arm)
    wait_until(lambda: offer.behind == [arms[0].signature])
    assert offer.writer.close(0.1) == [arms[0].signature]
    assert len(offer.warnings) == 1
    assert set(run_ids(uri, SWEEP)) >= {arm.signature for arm in arms[1:]}


def test_many_final_arms_that_wait_hold_up_no_running_one(uri: str) -> None:
    """A new, empty server is sent a whole sweep while its driver goes on."""
    final = [offered[-1] for offered in history(12)]
    running = history(14)[13][0]
    offer = Offers(uri)
    for arm in final:
        offer(arm)
    offer(running)
    wait_until(lambda: not offer.behind)
    assert offer.reads.index(running.signature) <= 3
    assert offer.writer.close(60) == []


def test_what_mlflow_has_whole_is_neither_read_nor_sent_at_the_next_start(uri: str) -> None:
    whole = {**PAIR, OBJECTIVE_GAIN: -0.1}
    arms = [dataclasses.replace(states[-1], pair=whole) for states in history(6)[2:]]
    base = [states[-1] for states in history(2)]
    failed = tracked(record(config(seed=5), 2, "failed"))
    for arm in (*base, *arms, failed):
        Tracker(uri).sync(arm)
    before = content(uri)
    offer = Offers(uri)
    for arm in (*base, *arms, failed):
        offer(arm)
    assert offer.writer.close(60) == []
    assert offer.reads == [failed.signature]  # it may have been trained once more since
    assert content(uri) == before


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_away_for_the_middle_third_ends_up_as_if_it_never_was(
    tmp_path: Path, uri: str, undisturbed_on_sqlite: dict[str, Any]
) -> None:
    server = Server(tmp_path, uri)
    offer = Offers(server.uri, first_wait_s=0.2, longest_wait_s=1.0)
    warnings = offer.warnings
    arms = history(12)
    try:
        server.start()
        for third in range(3):
            if third == 1:
                wait_until(lambda: not offer.behind)
                server.stop()
            if third == 2:
                assert len(offer.behind) == 4
                server.start()
            for offered in arms[4 * third : 4 * third + 4]:
                for arm in offered:
                    offer(arm)
            if third == 1:
                wait_until(lambda: len(warnings) == 1)
        wait_until(lambda: not offer.behind)
        assert offer.writer.close(60) == []
        assert content(server.uri) == undisturbed_on_sqlite
        assert len(warnings) == 2
        assert "sweep sync" in warnings[0]
        assert "is back" in warnings[1]
        again = Tracker(server.uri)
        sync_all(again, [offered[-1] for offered in arms], say=warnings.append)
        assert (again.created, again.rows_sent) == (0, 0)
        assert len(run_ids(server.uri, SWEEP)) == 12
    finally:
        server.stop()
