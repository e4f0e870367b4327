"""Early stopping replayed on arms whose reports are written down here."""

from __future__ import annotations

import math

import pytest

from benchmarks.halving_replay import (
    RULES,
    TELLING,
    kept,
    median,
    rank_at,
    searched,
    stopped,
    telling_compared,
)
from benchmarks.landscape.landscape import Landscape, told_of
from sweep.study.sampler import constraint_of
from tests.support.landscapes import STEPS, landscape_of, lattice
from trainables.plain import Json

# Missing shares and losses at a quarter, a half, three quarters and the end.
ARMS: list[dict[str, Json]] = [
    {"missing": [0.0, 0.0, 0.0, 0.0], "losses": [0.9, 0.8, 0.7, 0.6], "objective": 3.0},
    {"missing": [0.1, 0.1, 0.1, 0.1], "losses": [0.8, 0.9, 0.9, 0.9], "objective": 2.0},
    {"missing": [0.5, 0.3, 0.2, 0.0], "losses": [0.1, 0.1, 0.1, 0.1], "objective": 1.0},
    {"missing": [None, 2.0, 2.0, 2.0], "losses": [0.1, 0.1, 0.1, 0.1], "objective": 0.0},
]
PLACES = lattice(2)


def landscape() -> Landscape:
    return landscape_of(PLACES, lambda x, y: ARMS[PLACES.index((x, y))])


def test_arms_rank_by_what_they_miss_above_the_tolerance_then_by_their_loss() -> None:
    of = landscape()
    ranked = sorted(range(4), key=lambda index: rank_at(of, of.arms[index], 10))
    assert ranked == [1, 0, 2, 3]  # 0 and 1 both meet the tolerance; the last reports no number


def test_halving_keeps_half_at_each_rung_and_counts_the_steps() -> None:
    of = landscape()
    assert kept(0.5)(of, of.arms) == [STEPS, 20, 10, 10]  # at 20 steps arm 0 has the lower loss
    assert kept(0.75)(of, of.arms) == [STEPS, STEPS, STEPS, 10]


def test_the_median_asks_for_three_arms_before() -> None:
    of = landscape()
    assert median(of, of.arms) == [STEPS, STEPS, STEPS, 10]  # the fourth is worse than arm 0
    turned = [of.arms[index] for index in (3, 2, 0, 1)]
    assert median(of, turned) == [STEPS] * 4


def test_what_a_rule_saves_and_loses_is_counted() -> None:
    of = landscape()
    found = stopped(of, RULES["halving"], 4, 50)  # every sweep is the whole landscape
    assert found["saved"][0] == 1 - (40 + 20 + 10 + 10) / 160
    assert (found["winner_lost"][0], found["no_winner_left"][0]) == (1.0, 0.0)
    assert found["worse_by"][0] == 2.0  # arm 2 had won with 1, arm 0 is left with 3
    assert found["winner_lost"][1] == pytest.approx(0.025 ** (1 / 50))  # Clopper-Pearson
    none = stopped(of, RULES["early_signs"], 4, 10)
    assert none["saved"] == [0.0, 0.0, 0.0]


def test_what_a_stopped_arm_tells() -> None:
    sign = {"step": 20, "reason": "wound up"}
    arm = {**landscape().arms[2], "would_end": sign}
    told = told_of(5, arm)
    said = {
        name: None if not one.is_usable else constraint_of(one, 0.1)
        for name, tell in TELLING.items()
        if tell is not None
        for one in [tell(arm, told)]
    }
    assert said == {
        "nothing": None,
        "as a sweep does": pytest.approx(0.9),
        "its last missing share": pytest.approx(0.2),
        "what it was heading to": pytest.approx(-0.1),
    }


def test_saved_steps_buy_proposals() -> None:
    of = landscape_of(
        lattice(6), lambda x, y: {"objective": y, "missing": [2 * x] * 3 + [2 * x - 0.5]}
    )
    whole, stopping = (searched(of, name, 0, 8) for name in ("none stopped", "nothing"))
    assert whole[1] == 8
    assert stopping[1] > 8
    compared = telling_compared(of, 8, 1)
    assert compared["none stopped"]["proposals"][0] == 8.0
    assert all(math.isfinite(one["regret_or_worst"][0]) for one in compared.values())


def test_a_landscape_without_a_winner_has_no_regret() -> None:
    of = landscape_of(lattice(3), lambda x, y: {"objective": y, "missing": [1.0] * 4})
    compared = telling_compared(of, 4, 2)
    assert {tuple(one["regret_or_worst"]) for one in compared.values()} == {(None, None)}
    assert all(one["with_a_winner"][0] == 0.0 for one in compared.values())
