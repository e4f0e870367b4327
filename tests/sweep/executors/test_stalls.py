"""Arms that hang: what counts as a sign of life, and how often they are tried."""

from __future__ import annotations

from sweep.executors.stalls import Stalls
from tests.support.training.stand_ins import Clock, looks


def hanging(stalls: Stalls, clock: Clock, until: float, *training: str) -> dict[str, bool]:
    """Who is found to hang up to that time, and whether it is not tried again."""
    found = {}
    for _ in looks(clock, until):
        found |= {s.trial: s.is_last for s in stalls.hanging(dict.fromkeys(training, 1))}
    return found


def test_an_arm_hangs_without_a_report_and_is_tried_once_more() -> None:
    clock = Clock()
    stalls = Stalls(10, clock=clock)
    assert hanging(stalls, clock, 0, "a", "b") == {}
    stalls.reported("a")
    assert hanging(stalls, clock, 6, "a", "b") == {}
    stalls.reported("b")
    assert hanging(stalls, clock, 10, "a", "b") == {}  # just in time
    assert hanging(stalls, clock, 11, "a", "b") == {"a": False}
    assert hanging(stalls, clock, 12, "a", "b") == {}  # ending its worker takes a moment
    assert hanging(stalls, clock, 13, "b") == {}
    assert hanging(stalls, clock, 14, "a", "b") == {}  # another worker has it
    assert hanging(stalls, clock, 25, "a", "b") == {"b": False}
    assert hanging(stalls, clock, 53, "a") == {}
    assert hanging(stalls, clock, 54, "a") == {"a": True}


def test_the_first_report_of_a_worker_may_take_longer() -> None:
    """It may decode data, and is the first of its node to do so."""
    clock = Clock()
    stalls = Stalls(10, clock=clock)
    assert hanging(stalls, clock, 40, "a", "b") == {}
    stalls.reported("b")
    assert hanging(stalls, clock, 41, "a", "b") == {"a": False}
    assert hanging(stalls, clock, 45) == {}  # both workers are lost
    assert hanging(stalls, clock, 80, "a", "b") == {}
    assert hanging(stalls, clock, 90, "a", "b") == {"a": True, "b": False}


def test_a_report_makes_up_for_a_stall() -> None:
    clock = Clock()
    stalls = Stalls(10, clock=clock)
    hanging(stalls, clock, 0, "a")
    stalls.reported("a")
    assert hanging(stalls, clock, 11, "a") == {"a": False}
    hanging(stalls, clock, 12)
    hanging(stalls, clock, 20, "a")
    stalls.reported("a")
    assert hanging(stalls, clock, 31, "a") == {"a": False}


def test_waiting_for_a_worker_is_no_stall() -> None:
    clock = Clock()
    stalls = Stalls(10, clock=clock)
    assert hanging(stalls, clock, 100) == {}
    stalls.reported("a")
    assert hanging(stalls, clock, 109, "a") == {}
    assert hanging(stalls, clock, 150) == {}  # its machine went away
    assert hanging(stalls, clock, 190, "a") == {}
    assert hanging(stalls, clock, 191, "a") == {"a": False}


def test_a_driver_that_stood_still_itself_blames_nobody() -> None:
    clock = Clock()
    stalls = Stalls(10, clock=clock)
    hanging(stalls, clock, 0, "a")
    stalls.reported("a")
    assert hanging(stalls, clock, 9, "a") == {}
    clock.now = 500  # its own process was stopped: reports wait to be read
    assert hanging(stalls, clock, 505, "a") == {}
    assert hanging(stalls, clock, 511, "a") == {"a": False}


def test_what_hangs_at_once_is_told_together() -> None:
    clock = Clock()
    stalls = Stalls(1, clock=clock)
    hanging(stalls, clock, 0, "a", "b")
    assert hanging(stalls, clock, 5, "a", "b") == {"a": False, "b": False}
    stalls.ended("a")
    hanging(stalls, clock, 6)
    assert hanging(stalls, clock, 10.5, "a", "b") == {"a": False, "b": True}


def test_a_group_is_given_as_many_times_the_time_as_it_has_arms() -> None:
    clock = Clock()
    stalls = Stalls(10, clock=clock)
    stalls.hanging({"three": 3})
    stalls.reported("three")
    found = [(clock.now, s.trial) for _ in looks(clock, 40) for s in stalls.hanging({"three": 3})]
    assert [(round(when), trial) for when, trial in found] == [(30, "three")]
    assert found[0][0] > 30
