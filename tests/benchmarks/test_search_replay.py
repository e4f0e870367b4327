"""Searches replayed: on lattices, where what they find is known, and on what was recorded."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.constrained_tpe import good, log_ratio, met
from benchmarks.landscape.landscape import FOLDER, Landscape, told_of
from benchmarks.search_replay import (
    SEARCHES,
    Searched,
    finished_best,
    mean_and_error,
    searched,
    starts_from,
    summary,
)
from sweep.study.sampler import constraint_of
from tests.support.landscapes import landscape_of, lattice
from trainables.plain import Json

RECORDED = sorted(FOLDER.glob("*.json"))
CHEAP = [kind for kind in SEARCHES if kind not in ("gp", "cma")]  # cmaes is no dependency


def bowl(x: float, y: float) -> dict[str, Json]:
    """Best at (0.8, 0.3); feasible to the right of 0.5."""
    return {"objective": (x - 0.8) ** 2 + (y - 0.3) ** 2, "missing": [1.0, 1.0, 1.0, 1.0 - 1.8 * x]}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_arm_is_what_its_own_point_comes_to(path: Json) -> None:
    landscape = Landscape.of_file(path)
    assert len(landscape.arms) >= 100
    for index, arm in enumerate(landscape.arms):
        assert landscape.nearest(arm["point"]) == index
        assert arm["reports"][-1]["step"] == landscape.steps or arm["status"] != "finished"
        told = told_of(1, {**arm, "would_end": None})
        assert (constraint_of(told, landscape.space.tolerance) <= 0) == arm["feasible"]


@pytest.mark.parametrize("kind", CHEAP)
def test_a_search_of_all_arms_takes_each_once_and_ends_with_the_best(kind: str) -> None:
    landscape = landscape_of(lattice(4), bowl)
    run = searched(landscape, kind, 1, budget=16)
    assert sorted(run.arms) == list(range(16))
    found = summary(landscape, [run], 16)
    assert (found["with_a_winner"][0], found["regret"][0]) == (1.0, 0.0)


def test_random_search_ends_with_a_winner_as_often_as_chance_says() -> None:
    landscape = landscape_of(lattice(4), lambda x, y: {"objective": x, "missing": [0.9 - y] * 4})
    wins = sum(map(landscape.wins, landscape.arms))
    start = landscape.nearest(landscape.space.default_point(landscape.space.settings[0]))
    assert (wins, landscape.wins(landscape.arms[start])) == (4, False)
    runs = [searched(landscape, "random", seed, budget=5, again=True) for seed in range(100)]
    rate, error = summary(landscape, runs, 5)["with_a_winner"]
    assert error == pytest.approx(math.sqrt(rate * (1 - rate) / 99))
    expected = 1 - (12 / 16) ** 4  # after the first point four draws, each of 16 equal cells
    assert abs(rate - expected) < 3 * math.sqrt(expected * (1 - expected) / 100)


def test_regrets_and_their_errors_are_those_of_a_recount() -> None:
    landscape = landscape_of(lattice(4), bowl)
    winners = [i for i, arm in enumerate(landscape.arms) if arm["feasible"]]
    losers = [i for i, arm in enumerate(landscape.arms) if not arm["feasible"]]
    objectives = {i: arm["objective"] for i, arm in enumerate(landscape.arms) if i in winners}
    best, worst = min(objectives.values()), max(objectives.values())
    runs = [Searched([*losers[:4], one], [1.0] * 4 + [6.0]) for one in winners[:2]]
    runs.append(Searched(losers[:5], [2.0] * 5))
    found = summary(landscape, runs, 5)
    regrets = [objectives[one] - best for one in winners[:2]]
    assert found["regret"] == pytest.approx([sum(regrets) / 2, abs(regrets[0] - regrets[1]) / 2])
    of_all = [*regrets, worst - best]
    assert found["regret_or_worst"] == pytest.approx(mean_and_error(of_all))
    assert found["seconds_an_ask"][0] == 2.0


def test_an_arm_that_a_sign_ends_wins_nothing_and_is_told_as_stopped() -> None:
    def ended(x: float, y: float) -> dict[str, Json]:
        sign = {"step": 20, "reason": "wound up"}
        return {"objective": y, "missing": [2.0, 1.5, 0.5, 0.0], "would_end": sign}

    landscape = landscape_of(lattice(2), ended)
    told = told_of(3, landscape.arms[0])
    assert (told.outcome, told.worst_missing_share) == ("stopped", 1.5)
    assert landscape.wins(landscape.arms[0])
    assert math.isinf(finished_best(landscape, landscape.arms))


def test_what_asks_for_less_than_its_setting_demands_is_no_winner() -> None:
    landscape = landscape_of(
        lattice(2), lambda x, y: {"objective": 0.0, "missing": [0.0] * 4, "demanded_descent": x}
    )
    assert 0.25 < landscape.least < 0.75
    assert [landscape.wins(arm) for arm in landscape.arms] == [False, False, True, True]


def test_learned_starts_lie_where_the_other_winners_do() -> None:
    mine, other = landscape_of(lattice(4), bowl), landscape_of(lattice(8), bowl)
    starts = starts_from(other, mine)
    assert len(set(starts)) == 3
    assert landscape_place(mine, starts[0]) == (0.875, 0.375)  # other's best: (0.8125, 0.3125)
    run = searched(mine, "tpe", 0, budget=5, starts=starts)
    assert run.arms[:3] == starts


def landscape_place(landscape: Landscape, index: int) -> tuple[float, ...]:
    return tuple(landscape.arms[index]["shares"])


def test_the_better_part_of_ctpe_is_that_of_a_naive_loop() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 4, 17, 60):
        objectives, violations = rng.normal(size=(2, size))
        wanted = math.ceil(0.25 * math.sqrt(size))
        order = sorted(range(size), key=lambda i: objectives[i])
        naive, feasible = set(), 0
        for index in order:
            if feasible == wanted:
                break
            naive.add(index)
            feasible += violations[index] <= 0
        assert set(np.flatnonzero(good(objectives, violations <= 0))) == naive
        assert set(np.flatnonzero(met(violations))) == (
            {i for i in range(size) if violations[i] <= 0} or {int(violations.argmin())}
        )


def test_the_acquisition_of_ctpe_is_the_relative_density_ratio() -> None:
    below, above = np.array([0.1, 2.0, 5.0]), np.array([3.0, 2.0, 0.01])
    for share in (0.05, 0.5, 1.0):
        naive = [
            1 / (share + (1 - share) * high / low) for high, low in zip(above, below, strict=True)
        ]
        assert np.exp(log_ratio(share, np.log(below), np.log(above))) == pytest.approx(naive)


def test_ctpe_goes_where_points_are_feasible_and_good() -> None:
    landscape = landscape_of(lattice(12), bowl)
    runs = [searched(landscape, "ctpe", seed, budget=20) for seed in range(2)]
    late = [landscape.arms[index] for run in runs for index in run.arms[8:]]
    feasible = np.mean([arm["feasible"] for arm in late])
    near = np.mean([arm["objective"] < 0.08 for arm in late])
    chance = np.mean([arm["objective"] < 0.08 for arm in landscape.arms])
    assert feasible > 0.7  # of all arms half are
    assert near > 2 * chance
