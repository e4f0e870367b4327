"""The paper's comparison of best tries: as many on both sides, of the tested measure."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest

from sweep.cli.text.confirmed import print_confirmed
from sweep.confirmation.chosen import best_of, equal_tries
from sweep.confirmation.comparisons import summarize_confirmation
from sweep.confirmation.measures import measures_of
from sweep.confirmation.tables import confirmed_table
from sweep.study.arms import arms_of_proposal, baselines
from tests.support import confirmations as hand
from tests.support.sweeps import FIRST
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_the_best_of_some_is_the_mean_over_every_way_to_draw_them(count: int) -> None:
    values = np.random.default_rng(3).normal(size=7).tolist()
    expected = fmean(max(drawn) for drawn in combinations(values, count))
    assert best_of(values, count) == pytest.approx(expected, rel=1e-12)


def test_where_arms_are_exchangeable_neither_side_is_ahead() -> None:
    """Twelve tries against two seeds; the best of all against the best of both favours tries."""
    draws = np.random.default_rng(5).normal(size=(4_000, 14))
    found, unequal = [], []
    for row in draws.tolist():
        tries = equal_tries(row[:12], row[12:])
        assert tries is not None
        assert tries.tries == 2
        found.append(tries.gain)
        unequal.append(max(row[:12]) - max(row[12:]))
    assert abs(fmean(found)) < 4 * np.std(found) / 4_000**0.5  # a chance of 1 in 16,000 to fail
    assert fmean(unequal) > 1.0


def test_a_side_without_tries_says_nothing() -> None:
    assert equal_tries([], [1.0]) is None
    assert equal_tries([1.0], []) is None


def test_it_is_of_the_planned_measure_and_of_as_many_arms(objects: ObjectStore) -> None:
    search = hand.searched(objects)
    plan, definition = hand.stored(objects)
    read = ArmStore(objects).record
    points = [c.point for c in hand.load_sweep(objects, "tiny", "pairs").settings[0].proposals]

    def values(arms: list[str]) -> list[float]:
        records = [read(signature) for signature in arms]
        return [-measures_of(r.config, r.evaluation)[plan.measure] for r in records]  # type: ignore[union-attr, arg-type]

    plain = values([arm.signature for arm in baselines(search, FIRST)])
    tries = values(
        [
            arm.signature
            for number, point in enumerate(points)
            for arm in arms_of_proposal(search, FIRST, number, point)
        ]
    )
    assert len(tries) > len(plain)
    ways = [max(drawn) for drawn in combinations(tries, len(plain))]
    hand.trained(objects, definition, lambda *of: 9.0)
    entry = summarize_confirmation(objects, definition, plan)
    one = next(s for s in entry.settings if s.setting == FIRST)
    assert one.equal_tries.tries == len(plain)
    assert one.equal_tries.gain == pytest.approx(fmean(ways) - max(plain))


def test_plans_of_before_show_no_unequal_numbers(
    objects: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    hand.searched(objects)
    plan, definition = hand.stored(objects)
    hand.trained(objects, definition, lambda *of: 9.0)
    old = tuple(replace(s, best_of_search=7.125, equal_tries=None) for s in plan.settings)
    entry = summarize_confirmation(objects, definition, replace(plan, settings=old))
    assert [one.equal_tries for one in entry.settings] == [None, None]
    print_confirmed(entry)
    shown = capsys.readouterr().out + str(confirmed_table(entry))
    assert "7.125" not in shown
