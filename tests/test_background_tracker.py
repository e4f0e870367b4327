"""The writer thread: the newest state arrives, training never waits, no outage loses anything."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

from sweep.background_tracker import BackgroundTracker
from sweep.tracking import Tracker, sync_all
from sweep.tracking_client import make_client, run_ids
from tests.drivers import wait_until
from tests.mlflow_servers import Server, free_port
from tests.tracked_arms import SWEEP, content, history
from trainables import results


def test_the_newest_state_wins_in_the_background(uri: str, undisturbed: dict[str, Any]) -> None:
    warnings: list[str] = []
    background = BackgroundTracker(Tracker(uri), warn=warnings.append)
    for offered in history(12):
        for arm in offered:
            background.offer(arm)
    assert background.close(60) == []
    assert warnings == []
    assert content(uri) == undisturbed


def test_a_running_arms_reports_wait_to_go_together_and_its_end_does_not(uri: str) -> None:
    first, *held, final = history(1)[0]
    background = BackgroundTracker(Tracker(uri), pace_s=3600)
    background.offer(first)
    wait_until(lambda: not background.behind())
    for arm in held:
        background.offer(arm)
    other = history(2)[1][0]
    background.offer(other)  # whoever is due is not held up
    wait_until(lambda: other.signature not in background.behind())
    assert background.behind() == [first.signature]
    background.offer(final)
    wait_until(lambda: not background.behind())
    assert background.close(60) == []


def test_closing_sends_what_waits_its_turn(uri: str) -> None:
    first, *_, final = history(1)[0]
    later = dataclasses.replace(final, record=dataclasses.replace(final.record, status="running"))
    background = BackgroundTracker(Tracker(uri), pace_s=3600)
    background.offer(first)
    wait_until(lambda: not background.behind())
    background.offer(later)
    assert background.close(60) == []
    run_id = run_ids(uri, SWEEP).ids[first.signature]
    newest = make_client(uri).get_metric_history(run_id, results.HELD_OUT_LOSS)
    assert max(row.step for row in newest) == final.record.reports[-1].step


def test_closing_without_a_server_says_who_is_behind() -> None:
    warnings: list[str] = []
    away = Tracker(f"http://127.0.0.1:{free_port()}")
    background = BackgroundTracker(away, first_wait_s=0.1, longest_wait_s=0.2, warn=warnings.append)
    arms = [offered[-1] for offered in history(5)]
    for arm in arms:
        background.offer(arm)
    wait_until(lambda: bool(warnings))
    assert sorted(background.close(0.1)) == sorted(arm.signature for arm in arms)
    assert len(warnings) == 1
    assert f"sweep sync {SWEEP}" in warnings[0]
    assert "nothing is lost" in warnings[0]


def test_what_mlflow_refuses_holds_up_nobody_else(uri: str) -> None:
    warnings: list[str] = []
    arms = [offered[-1] for offered in history(4)]
    arms[0].record.reports[0].scalars["no such/name?!"] = 1.0
    background = BackgroundTracker(
        Tracker(uri), first_wait_s=0.01, longest_wait_s=0.1, warn=warnings.append
    )
    for arm in arms:
        background.offer(arm)
    wait_until(lambda: background.behind() == [arms[0].signature])
    assert background.close(0.1) == [arms[0].signature]
    assert len(warnings) == 1
    assert set(run_ids(uri, SWEEP).ids) >= {arm.signature for arm in arms[1:]}


def test_a_tracker_travels_as_its_address(uri: str) -> None:
    tracker = Tracker(uri)
    tracker.sync(history(1)[0][0])
    again = pickle.loads(pickle.dumps(tracker))
    assert again.sync(history(1)[0][-1])
    with pytest.raises(TypeError, match="create it after"):
        pickle.dumps(BackgroundTracker(tracker))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_away_for_the_middle_third_ends_up_as_if_it_never_was(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    server = Server(tmp_path)
    warnings: list[str] = []
    background = BackgroundTracker(
        Tracker(server.uri), first_wait_s=0.2, longest_wait_s=1.0, warn=warnings.append
    )
    arms = history(12)
    try:
        server.start()
        for third in range(3):
            if third == 1:
                wait_until(lambda: not background.behind())
                server.stop()
            if third == 2:
                assert len(background.behind()) == 4
                server.start()
            for offered in arms[4 * third : 4 * third + 4]:
                for arm in offered:
                    background.offer(arm)
            if third == 1:
                wait_until(lambda: len(warnings) == 1)
        wait_until(lambda: not background.behind())
        assert background.close(60) == []
        assert content(server.uri) == undisturbed
        assert len(warnings) == 2
        assert "sweep sync" in warnings[0]
        assert "is back" in warnings[1]
        again = Tracker(server.uri)
        sync_all(again, [offered[-1] for offered in arms], say=warnings.append)
        assert (again.created, again.rows_sent) == (0, 0)
        assert len(run_ids(server.uri, SWEEP).ids) == 12
    finally:
        server.stop()
