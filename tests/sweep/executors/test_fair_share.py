"""Fair shares: max-min, whole slots, and drivers that come, wait and vanish."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.executors.fair_share import (
    BEAT_EVERY_S,
    GONE_AFTER_S,
    Beat,
    Shares,
    allowed,
    fair_shares,
    others_wait,
)
from sweep.executors.resources import ResourceClass
from tests.support.training.stand_ins import DictBoard

WANTS = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6)
ONE_CPU = ResourceClass(1)


def water_level(wants: list[float]) -> list[float]:
    """Max-min by its definition: the highest level at which what all take is no more than one."""
    low, high = 0.0, 1.0
    for _ in range(60):
        level = (low + high) / 2
        if sum(min(level, want) for want in wants) <= 1:
            low = level
        else:
            high = level
    return [min(low, want) for want in wants]


@given(WANTS)
def test_shares_are_the_water_level(wants: list[float]) -> None:
    assert fair_shares(wants) == pytest.approx(water_level(wants), abs=1e-9)


def beat(driver: str, *, since_s: float = 0, **fields: Any) -> Beat:
    there = {"cpus": 1, "gpus": 0.0, "wants": 100, "holds": 0}
    return Beat(driver, sweep="s", since_s=since_s, at_s=0, **(there | fields))


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=6),
    st.lists(st.integers(1, 16), min_size=1, max_size=4),
)
def test_drivers_of_like_arms_get_their_fair_share_in_whole_places(
    wants: list[int], cpus: list[int]
) -> None:
    there = sum(cpus)
    machines = [{"CPU": float(n)} for n in cpus]
    got = allowed([beat(str(i), wants=n) for i, n in enumerate(wants)], machines)
    fair = [there * share for share in water_level([min(1.0, n / there) for n in wants])]
    at_least_one = sum(1 for places in fair if places < 1)
    for i, places in enumerate(fair):
        assert abs(got[str(i)] - places) < 1 + 1e-6 or (got[str(i)] == 1 and places < 1)
    assert sum(fair) - 0.5 - 1e-6 <= sum(got.values()) <= sum(fair) + 0.5 + 1e-6 + at_least_one


def test_arms_of_many_sizes_share_machines_and_not_counts() -> None:
    machines = [{"CPU": 16.0, "GPU": 4.0}]
    whole, quarter = beat("whole", gpus=1.0), beat("quarter", gpus=0.25)
    assert allowed([whole, quarter], machines) == {"whole": 2, "quarter": 8}


def test_a_driver_whose_arms_fit_nowhere_takes_nothing_from_the_others() -> None:
    on_gpu, on_cpu = beat("on_gpu", gpus=1.0), beat("on_cpu")
    assert allowed([on_gpu, on_cpu], [{"CPU": 4.0}]) == {"on_gpu": 0, "on_cpu": 4}


def test_who_came_first_gets_what_does_not_divide() -> None:
    beats = [beat("late", since_s=2), beat("early", since_s=1)]
    assert allowed(beats, [{"CPU": 3.0}]) == {"early": 2, "late": 1}


@pytest.mark.parametrize(
    ("holds", "waits"), [((4, 0), True), ((3, 1), True), ((2, 2), False), ((2, 1), True)]
)
def test_a_driver_waits_while_it_trains_less_than_it_may(
    holds: tuple[int, int], waits: bool
) -> None:
    beats = [beat("me", holds=holds[0]), beat("other", since_s=1, holds=holds[1])]
    assert others_wait(beats, "me", [{"CPU": 4.0}]) is waits


def test_a_driver_that_has_all_it_wants_does_not_wait() -> None:
    beats = [beat("me", holds=3), beat("other", wants=1, holds=1)]
    assert not others_wait(beats, "me", [{"CPU": 4.0}])
    assert not others_wait([beat("me")], "me", [{"CPU": 4.0}])


# --- a minute after the other ---------------------------------------------------------------------

FOUR = [{"CPU": 4.0}]


def test_the_first_driver_learns_of_the_second_within_a_minute_and_gets_all_back() -> None:
    board = DictBoard()
    one = Shares(board, "one", "a", ONE_CPU, since_s=0)
    one.look(wants=50, holds=4, now_s=0)
    assert one.places(FOUR) == 4
    two = Shares(board, "two", "b", ONE_CPU, since_s=10)
    two.look(wants=50, holds=0, now_s=10)
    assert (two.places(FOUR), one.places(FOUR)) == (2, 4)
    one.look(wants=50, holds=4, now_s=BEAT_EVERY_S - 1)
    assert one.places(FOUR) == 4  # not looked again yet
    one.look(wants=50, holds=4, now_s=BEAT_EVERY_S)
    assert one.places(FOUR) == 2
    assert one.others_wait(FOUR)
    two.look(wants=50, holds=2, now_s=100)
    one.look(wants=50, holds=2, now_s=2 * BEAT_EVERY_S)
    assert not one.others_wait(FOUR)
    two.leave()
    one.look(wants=50, holds=2, now_s=3 * BEAT_EVERY_S)
    assert one.places(FOUR) == 4


def test_a_driver_that_is_silent_is_gone() -> None:
    board = DictBoard()
    dead = Shares(board, "dead", "a", ONE_CPU, since_s=0)
    dead.look(wants=50, holds=4, now_s=0)
    alive = Shares(board, "alive", "b", ONE_CPU, since_s=1)
    alive.look(wants=50, holds=0, now_s=1)
    assert alive.places(FOUR) == 2
    alive.look(wants=50, holds=0, now_s=GONE_AFTER_S + 1)
    assert alive.places(FOUR) == 4
    assert set(board) == {"alive"}  # nothing of the dead stays


@pytest.mark.parametrize("ahead_s", [-3600, 3600])
def test_a_driver_whose_clock_is_off_counts_from_what_it_says_next(
    monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    board = DictBoard()
    other, one = (Shares(board, name, name, ONE_CPU, since_s=0) for name in ("other", "one"))
    here = time.time

    def looks(now_s: float) -> int:
        monkeypatch.setattr(time, "time", lambda: here() + ahead_s + now_s)
        other.look(wants=50, holds=0, now_s=now_s)
        monkeypatch.setattr(time, "time", here)
        one.look(wants=50, holds=0, now_s=now_s)
        return one.places(FOUR)

    assert looks(0) == 4  # it may have died an hour ago
    assert [looks(n * BEAT_EVERY_S) for n in (1, 2, 3, 4, 5)] == [2] * 5
    one.look(wants=50, holds=0, now_s=5 * BEAT_EVERY_S + GONE_AFTER_S + 1)
    assert one.places(FOUR) == 4
    assert set(board) == {"one"}


def test_what_a_driver_says_that_died_long_ago_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = DictBoard()
    Shares(board, "dead", "a", ONE_CPU, since_s=0).look(wants=50, holds=4, now_s=0)
    late = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: late)
    alive = Shares(board, "alive", "b", ONE_CPU, since_s=1)
    alive.look(wants=50, holds=0, now_s=5)
    assert alive.places(FOUR) == 4


def test_what_another_version_says_is_passed_over() -> None:
    board = DictBoard(other=b'{"driver": "other", "slots": 3}', noise=b"\xff")
    one = Shares(board, "one", "a", ONE_CPU, since_s=0)
    one.look(wants=50, holds=0, now_s=0)
    assert one.places(FOUR) == 4


def test_a_share_follows_the_machines_between_two_looks() -> None:
    board = DictBoard()
    one, two = (Shares(board, name, name, ONE_CPU, since_s=0) for name in ("one", "two"))
    two.look(wants=50, holds=0, now_s=0)
    one.look(wants=50, holds=0, now_s=0)
    assert [one.places([{"CPU": n}]) for n in (4.0, 8.0, 1.0)] == [2, 4, 1]
    assert one.places([]) == 0
