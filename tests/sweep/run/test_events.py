"""Events of a sweep: its first winner, its end, and a standstill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sweep.cluster.supervise import supervise
from sweep.executors.executor import Executor
from sweep.run.coordinator import Coordinator
from sweep.run.events import Event, Observer, ended_event
from sweep.run.run_sweep import run_sweep
from sweep.run.watching import MARGIN_S, Standstill
from sweep.study.arms import Arm
from sweep.study.definition import Definition, put_definition
from tests.support.drivers import tiny
from tests.support.records import finished
from tests.support.toy_sweeps import LOSSES, PLAIN, definition, ends_where, started, train
from trainables.records.arm_record import ArmRecord, Report
from trainables.records.objects import ObjectStore

FEASIBLE = [1.0, 0.4, 0.16, 0.06]  # for every alpha below a half


def train_telling(
    objects: ObjectStore,
    asked: Definition | None = None,
    record_of: Callable[[Arm], ArmRecord] = lambda arm: finished(
        arm.config, FEASIBLE if arm.config.constraint else PLAIN
    ),
    limit: int = 1000,
) -> tuple[Coordinator, list[Event]]:
    told: list[Event] = []
    coordinator = started(objects, asked or definition(), observer=Observer(on_event=told.append))
    train(coordinator, record_of, limit)
    return coordinator, told


# --- the first winner -----------------------------------------------------------------------------


def test_of_many_winners_the_first_is_told_with_what_it_reached(objects: ObjectStore) -> None:
    coordinator, (event,) = train_telling(objects)
    winners = [
        (setting, o) for setting, of in coordinator.outcomes.items() for o in of.values()
        if o.can_win
    ]  # fmt: skip
    assert len(winners) > 1
    setting, number = event.details["setting"], event.details["proposal"]
    outcome = coordinator.outcomes[setting][number]
    assert outcome.can_win
    assert (event.kind, event.details["objective"]) == ("first_winner", outcome.objective)
    assert f"proposal {number} of {setting}" in event.text


def test_a_resumed_sweep_does_not_tell_of_its_first_winner_again(objects: ObjectStore) -> None:
    train_telling(objects, definition(n_proposals=2))
    coordinator, told = train_telling(objects, definition(n_proposals=5))
    assert any(o.can_win for of in coordinator.outcomes.values() for o in of.values())
    assert told == []


def test_without_a_winner_none_is_told(objects: ObjectStore) -> None:
    rising = [1.0, 1.1, 1.2, 1.3]
    coordinator, told = train_telling(objects, record_of=lambda arm: finished(arm.config, rising))
    assert coordinator.summary().is_done
    assert told == []


def test_a_listener_that_breaks_does_not_end_the_sweep(objects: ObjectStore) -> None:
    def breaks(event: Event) -> None:
        raise ValueError("no such address")

    coordinator = started(objects, definition(), observer=Observer(on_event=breaks))
    train(coordinator)
    assert coordinator.summary().is_done


# --- the end --------------------------------------------------------------------------------------


def test_a_finished_sweep_says_what_it_came_to(objects: ObjectStore) -> None:
    coordinator, _ = train_telling(objects)
    event = ended_event(coordinator.summary())
    assert event is not None
    assert event.kind == "finished"
    assert "16 of 16 arms are final" in event.text
    assert sum(event.details["outcomes"].values()) == 6


def test_a_sweep_with_problems_failed_and_names_the_first(objects: ObjectStore) -> None:
    fails = ends_where(
        lambda arm: (arm.proposal, arm.config.seed) == (None, 1), "failed", "no data."
    )
    coordinator, _ = train_telling(objects, record_of=fails)
    event = ended_event(coordinator.summary())
    assert event is not None
    assert event.kind == "failed"
    assert "finished, with problems" in event.text
    assert "no data." in event.text
    assert "sweep resume toy" in event.text


def test_a_sweep_that_trouble_stopped_failed_and_one_that_was_asked_to_stop_is_no_news(
    objects: ObjectStore,
) -> None:
    asked, _ = train_telling(objects, limit=2)
    asked.stop("Ctrl-C")
    assert not asked.summary().is_done
    assert ended_event(asked.summary()) is None
    troubled, _ = train_telling(objects, limit=2)
    troubled.stop_on_trouble("No space left on device.")
    event = ended_event(troubled.summary())
    assert event is not None
    assert event.kind == "failed"
    assert "ended before it was done" in event.text
    assert "No space left" in event.text


def test_a_long_problem_makes_no_long_news(objects: ObjectStore) -> None:
    coordinator, _ = train_telling(objects, limit=2)
    coordinator.stop_on_trouble("x" * 100_000)
    event = ended_event(coordinator.summary())
    assert event is not None
    assert len(event.text) == 1000


def test_a_run_of_a_driver_tells_its_end_once(objects: ObjectStore) -> None:
    asked = put_definition(objects, tiny(n_proposals=1, steps=2, report_every=2))
    told: list[Event] = []
    for expected in (1, 2):  # a run that finds nothing left to do says so, too
        run_sweep(
            objects,
            asked,
            Executor("inline"),
            display=False,
            observer=Observer(on_event=told.append),
        )
        assert [event.kind for event in told].count("finished") == expected


@pytest.mark.parametrize(
    ("codes", "texts"),
    [
        ((137, 137, 137), ["died 3 times without progress"]),
        ((2,), ["was refused"]),
        ((137, 0), []),  # it was mended
        ((0,), []),  # the driver told it
    ],
)
def test_a_supervisor_tells_when_it_gives_up(
    objects: ObjectStore, codes: tuple[int, ...], texts: list[str]
) -> None:
    put_definition(objects, definition())
    told: list[Event] = []
    ends = iter(codes)
    supervise(objects, "toy", lambda known: next(ends), waits_s=(0.0,), on_event=told.append)
    assert [event.kind for event in told] == ["failed"] * len(texts)
    for event, text in zip(told, texts, strict=True):
        assert text in event.text
        assert "`sweep resume toy --storage" in event.text


# --- standing still -------------------------------------------------------------------------------


def watched() -> Definition:
    """A sweep that stands still after 600 s."""
    space = replace(definition().space, stall_after_s=600 - MARGIN_S)
    return replace(definition(), space=space)


@pytest.fixture
def running(objects: ObjectStore) -> tuple[Coordinator, list[Event], Standstill]:
    """A sweep with one arm that was handed out, and what looks after it."""
    told: list[Event] = []
    coordinator = started(objects, watched(), observer=Observer(on_event=told.append))
    coordinator.next_arm()
    coordinator.progressed_at = 1000.0
    return coordinator, told, Standstill(coordinator)


def test_a_standstill_is_told_once_and_again_after_progress(
    running: tuple[Coordinator, list[Event], Standstill],
) -> None:
    coordinator, told, standstill = running
    standstill.poll(1000 + 599)
    assert told == []
    standstill.poll(1000 + 601)
    standstill.poll(1000 + 5000)
    (event,) = told
    assert (event.kind, event.details) == ("stalled", {"live_arms": 1, "silent_s": 601})
    assert "for 10 minutes" in event.text
    coordinator.progressed_at = 9000.0
    standstill.poll(9000 + 599)
    assert len(told) == 1
    standstill.poll(9000 + 600)
    assert len(told) == 2


def test_a_sweep_that_no_machine_comes_for_stands_still(objects: ObjectStore) -> None:
    """On a cluster arms are handed out where there is room, so that none may ever be live."""
    told: list[Event] = []
    coordinator = started(objects, watched(), observer=Observer(on_event=told.append))
    standstill = Standstill(coordinator)
    standstill.poll(coordinator.progressed_at + 599)
    assert told == []
    standstill.poll(coordinator.progressed_at + 601)
    (event,) = told
    assert (event.kind, event.details["live_arms"]) == ("stalled", 0)
    assert "no machine has room" in event.text


def test_reports_and_ends_are_progress_and_a_sweep_that_is_over_stands_not_still(
    running: tuple[Coordinator, list[Event], Standstill],
) -> None:
    coordinator, told, standstill = running
    (signature,) = coordinator.live
    coordinator.record_report(signature, Report(step=10, timestamp_ms=1))
    reported_at = coordinator.progressed_at
    assert reported_at != 1000.0
    coordinator.progressed_at = 1000.0
    coordinator.runs.put_record(finished(coordinator.live[signature].arm.config, LOSSES))
    coordinator.finish_arm(signature)
    assert coordinator.progressed_at >= reported_at
    coordinator.stop("Ctrl-C")
    standstill.poll(1e9)
    assert told == []


def test_a_sweep_may_be_silent_a_little_longer_than_its_arms(objects: ObjectStore) -> None:
    told: list[Event] = []
    coordinator = started(objects, definition(), observer=Observer(on_event=told.append))
    coordinator.next_arm()
    patience_s = coordinator.definition.space.stall_after_s
    standstill = Standstill(coordinator)
    standstill.poll(coordinator.progressed_at + patience_s + 1)  # the arm is dealt with now
    assert told == []
    standstill.poll(coordinator.progressed_at + patience_s + 301)
    assert [event.kind for event in told] == ["stalled"]


def test_an_arm_that_stalls_and_is_dealt_with_is_no_standstill(
    running: tuple[Coordinator, list[Event], Standstill],
) -> None:
    coordinator, told, standstill = running
    (signature,) = coordinator.live
    coordinator.announce_stall(signature, "it is started again.")
    standstill.poll(coordinator.progressed_at + 599)
    assert ["started again" in event.text for event in told] == [True]


def test_of_many_arms_that_stall_the_first_is_told(objects: ObjectStore) -> None:
    told: list[Event] = []
    coordinator = started(objects, definition(), observer=Observer(on_event=told.append))
    arms = [coordinator.next_arm() for _ in range(3)]
    for arm in arms:
        assert arm is not None
        coordinator.announce_stall(arm.signature, "no report for 12 minutes; it is started again.")
    coordinator.announce_stall("unknown", "")
    (event,) = told
    assert arms[0] is not None
    assert event.details == {"arm": arms[0].signature, "setting": arms[0].setting}
    assert "started again" in event.text
