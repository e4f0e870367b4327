"""Decisions against loops over looks: stopping, missing seeds, error rates."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sweep.statistics import anytime, paired
from sweep.statistics.decisions import OUTCOMES, aligned, decide, interval_name, table
from sweep.statistics.design import Design
from sweep.statistics.multiplicity import gatekept
from tests.support.confirmations import of_before
from trainables.errors import InvalidValue, UnknownName

FAMILIES = {"UT": ("a", "b", "c"), "DUST": ("d",), "ViT": ("e", "f")}
RULES = ("looks", "any_time", "fixed")


def drawn(key: int, *shape: int, effect: float = 0.0) -> np.ndarray:
    return np.random.default_rng(key).normal(effect, 1, shape)


def naive_adjusted(design: Design, values_SK: np.ndarray) -> np.ndarray:
    """The table's p-values by loops: every look, every test by scipy or its formula."""
    rows = [values_SK[list(m)].mean(axis=0) for m in design.members] + list(values_SK)
    smallest = np.ones(len(rows))
    for n, share in design.stages(values_SK.shape[1]):
        for h, row in enumerate(rows):
            found = stats.ttest_1samp(row[:n], 0)
            p = found.pvalue
            if design.rule == "any_time":
                e = float(anytime.t_e_value(np.array(found.statistic), n))
                p = 1 / min(e, float(anytime.symmetric_e_values(row[:n])[-1]))
            elif p <= design.error:
                signs = np.array(list(itertools.product((1, -1), repeat=n)))
                p = max(p, (np.abs(signs @ row[:n]) >= abs(row[:n].sum()) - 1e-9).mean())
            smallest[h] = min(smallest[h], p / share)
    return np.concatenate(gatekept(smallest[:3], smallest[3:], design.members))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("effect", [0.0, 1.5])
def test_adjusted_p_values_are_those_of_a_loop_over_looks(rule, effect) -> None:
    design = Design.planned(FAMILIES, 12, rule=rule)
    values = drawn(1, 6, 12, effect=effect)
    found = decide(design, values)
    for h, at in enumerate(found.decided_at):
        expected = naive_adjusted(design, values[:, : at or 12])[h]  # kept from when it was decided
        assert found.p_adjusted[h] == pytest.approx(expected, rel=1e-9)
    assert ((found.decided_at > 0) == (found.p_adjusted <= 0.05)).all()
    assert {OUTCOMES[o] for o in found.outcome} <= {"undecided", "better"}
    assert (found.outcome > 0).any() == (effect > 0)


@pytest.mark.parametrize("rule", RULES)
def test_what_is_decided_stays_decided_with_its_numbers(rule) -> None:
    design = Design.planned(FAMILIES, 20, rule=rule, smallest_effect=0.8)
    values = drawn(2, 30, 6, 20) + np.array([2.0, -2.0, 0.5, 0.0, 3.0, 1.0])[:, None]
    before = decide(design, values[..., :2])
    for seeds in range(3, 21):
        now = decide(design, values[..., :seeds])
        settled = before.decided_at > 0
        for name in ("decided_at", "outcome", "counted"):
            assert (getattr(now, name) == getattr(before, name))[settled].all(), name
        assert (now.decided_at[~settled] * (now.decided_at[~settled] != seeds) == 0).all()
        for name in ("mean", "low", "high"):
            kept = getattr(now, name)[settled]
            assert kept == pytest.approx(getattr(before, name)[settled], rel=1e-12)
        before = now
    assert {OUTCOMES[o] for o in before.outcome.ravel()} == set(OUTCOMES)
    marked = (before.outcome == 1) | (before.outcome == 2)
    assert ((before.low > 0) | (before.high < 0))[marked].all()
    same = before.outcome == 3
    assert (np.abs(before.mean) < 0.8)[same].all()


def test_a_gate_that_opens_later_lets_through_what_an_earlier_look_showed() -> None:
    design = of_before({"UT": ("a", "b")})
    mean = np.array([2, 8, 5, 1.5, 8.5, 5, 5.1, 4.9, 5.2, 4.8])  # passes at the second look
    a = np.array([5, 5.1, 4.9, 5.05, 4.95, -20, 30, -25, 35, 5])  # is clear at the first
    found = decide(design, np.stack([a, 2 * mean - a]))
    assert found.decided_at.tolist() == [10, 10, 0]
    assert found.counted.tolist() == [10, 5, 10]
    assert found.mean[1] == pytest.approx(5)
    assert found.low[1] > 4


def test_nothing_is_tested_between_looks() -> None:
    design = Design.planned(FAMILIES, 20)
    values = drawn(3, 6, 20, effect=3.0)
    assert (decide(design, values[:, :9]).p_adjusted == 1).all()
    at_ten, later = decide(design, values[:, :10]), decide(design, values[:, :19])
    assert (at_ten.p_adjusted == later.p_adjusted).all()
    assert (later.counted[later.decided_at > 0] == 10).all()
    assert (later.decided_at > 0).any()
    assert (later.seeds == 19).all()
    early = decide(design, values[:, :4])
    assert early.mean[3:] == pytest.approx(values[:, :4].mean(axis=1))
    assert np.isnan(early.low).all()
    assert (early.counted == 4).all()


def test_intervals_are_of_the_look_and_cover_over_all() -> None:
    design = of_before({"UT": ("a",)})
    values = drawn(4, 1, 10)
    found = decide(design, values)
    level = 1 - 0.05 * 0.75
    assert found.level[1] == pytest.approx(level)
    assert (found.low[1], found.high[1]) == pytest.approx(
        tuple(float(b) for b in paired.t_interval(values[0], level))
    )
    assert "96.25 % at this one" in interval_name(design, level)
    assert "nan" not in interval_name(design, math.nan)  # before the first look


@pytest.mark.slow
@given(st.permutations(range(6)), st.randoms(use_true_random=False))
def test_order_of_settings_and_of_seeds_before_a_look_changes_nothing(order, random) -> None:
    values = drawn(5, 6, 10, effect=1.0)
    fixed = Design.planned(FAMILIES, 10, rule="fixed")
    names = [fixed.settings[i] for i in order]
    families = {"ViT": ("f", "e"), "UT": ("c", "a", "b"), "DUST": ("d",)}
    seeds = random.sample(range(10), 10)
    by_name = dict(zip(fixed.settings, values, strict=True))
    differences = {name: dict(enumerate(by_name[name])) for name in names}
    there = table(Design.planned(families, 10, rule="fixed"), differences, seeds)
    here = {row.name: row for row in table(fixed, differences, range(10))}
    for row in there:
        assert row.p_adjusted == pytest.approx(here[row.name].p_adjusted, rel=1e-9)
        assert row.outcome == here[row.name].outcome


@pytest.mark.parametrize("rule", RULES)
def test_the_other_sign_is_the_other_outcome(rule) -> None:
    design = Design.planned(FAMILIES, 10, rule=rule, smallest_effect=0.5)
    values = drawn(6, 20, 6, 10, effect=1.2)
    here, there = decide(design, values), decide(design, -values)
    assert (here.p_adjusted == there.p_adjusted).all()
    mirrored = np.array([0, 2, 1, 3])
    assert (mirrored[here.outcome] == there.outcome).all()
    assert (here.outcome > 0).any()


def test_seeds_that_are_not_whole_stop_the_count_of_their_family_alone() -> None:
    design = Design.planned(FAMILIES, 10, rule="any_time")
    values = drawn(7, 6, 10, effect=2.0)
    gap = values.copy()
    gap[1, 6] = np.nan  # setting b of UT
    found, whole = decide(design, gap), decide(design, values)
    assert found.seeds.tolist() == [6, 10, 10, 6, 6, 6, 10, 10, 10]
    first_six = decide(design, np.concatenate([values[:3, :6], values[3:, :6]]))
    assert found.mean[3:6] == pytest.approx(first_six.mean[3:6])
    assert found.p[6] == whole.p[6]
    assert (decide(design, np.full((6, 10), np.nan)).p_adjusted == 1).all()
    assert (decide(design, np.empty((6, 0))).outcome == 0).all()


def test_pairs_are_placed_by_seed_and_unknown_names_are_refused() -> None:
    design = Design.planned(FAMILIES, 3)
    placed = aligned(design, {"b": {7: 1.0, 3: 2.0}}, seeds=(3, 5, 7))
    assert placed[1].tolist()[::2] == [2.0, 1.0]
    assert np.isnan(placed).sum() == 16
    with pytest.raises(UnknownName, match="setting 'z'"):
        aligned(design, {"z": {}}, seeds=(3,))
    with pytest.raises(UnknownName, match="seed '4'"):
        aligned(design, {"a": {4: 1.0}}, seeds=(3,))
    with pytest.raises(InvalidValue, match="differences"):
        decide(design, np.zeros((5, 3)))


def test_identical_arms_give_a_table_that_concludes_nothing() -> None:
    design = Design.planned(FAMILIES, 5, smallest_effect=0.1)
    rows = table(design, {name: dict.fromkeys(range(5), 0.0) for name in "abcdef"}, range(5))
    assert {row.outcome for row in rows} == {"undecided"}
    assert [row.name for row in rows] == ["UT", "a", "b", "c", "DUST", "d", "ViT", "e", "f"]
    assert all(row.p == 1 and row.low is None for row in rows)
    assert json.loads(json.dumps([row.to_json() for row in rows]))[0]["low"] is None


def test_a_line_has_the_sign_flips_and_the_effect_of_the_counted_seeds() -> None:
    design = Design.planned({"UT": ("a",)}, 20, rule="any_time")
    values = drawn(8, 12, effect=0.8)
    row = table(design, {"a": dict(enumerate(values))}, range(20))[1]
    counted = values[: row.counted]
    assert (row.outcome, row.decided_at) == ("undecided", None)
    worse = table(design, {"a": dict(enumerate(-values - 2))}, range(20))[1]
    assert (worse.outcome, worse.decided_at) == ("worse", worse.counted)
    assert row.sign_flip == paired.sign_flip(counted)
    assert row.d_z == pytest.approx(counted.mean() / counted.std(ddof=1))
    assert row.p == pytest.approx(min(1, 1 / row.e_value))
    assert row.interval == "t confidence sequence, 95 % over all seeds"
    empty = table(design, {}, range(20))[0]
    assert (empty.seeds, empty.outcome) == (0, "undecided")
    assert empty.e_value == 1.0
    clear = table(design, {"a": dict(enumerate([1.0, 1.1, 0.9, 1.05, 0.95]))}, range(20))[1]
    assert clear.outcome == "undecided"
    assert clear.p == pytest.approx(1 / clear.e_value)  # of the bets on signs: t says 55
    assert clear.e_value < 2**4
    assert empty.mean is None


def test_tests_of_a_table_that_draw_signs_share_them() -> None:
    design = Design.planned(FAMILIES, 40, smallest_effect=1.0)
    values = drawn(11, 6, 40, effect=0.6)
    paired._drawn_signs.cache_clear()
    rows = table(
        design, dict(zip("abcdef", map(dict, map(enumerate, values)), strict=True)), range(40)
    )
    assert {row.counted for row in rows} >= {40}
    assert paired._drawn_signs.cache_info().misses == 1


@pytest.mark.parametrize("rule", RULES)
def test_no_star_anywhere_in_95_of_100_null_tables_at_any_stopping_time(rule) -> None:
    tables = 1000
    design = Design.planned(FAMILIES, 16, rule=rule)
    values = drawn(9, tables, 6, 16) + drawn(10, tables, 1, 16)  # correlated settings
    stars = int((decide(design, values).decided_at > 0).any(axis=-1).sum())
    assert stats.binomtest(stars, tables).proportion_ci(0.999).low <= 0.05
    # Some settings have effects, others none: none of those is marked either.
    mixed = values + np.array([0.0, 2.0, 2.0, 2.0, 0.0, 0.0])[:, None]
    false = (decide(design, mixed).decided_at > 0)[:, [2, 3, 7, 8]].any(axis=-1)  # ViT, a, e, f
    assert stats.binomtest(int(false.sum()), tables).proportion_ci(0.999).low <= 0.05


@pytest.mark.parametrize("rule", RULES)
def test_families_that_land_in_one_of_two_basins_are_starred_no_more_often(rule) -> None:
    """Symmetric and independent, +-1: five of one sign have a t p of .005, and come by luck."""
    tables = 400
    design = Design.planned(FAMILIES, 10, rule=rule, smallest_effect=0.5)
    random = np.random.default_rng(12)
    basins = random.choice([-1.0, 1.0], (tables, 3, 10))[:, [0, 0, 0, 1, 2, 2]]
    values = basins + random.normal(0, 0.05, (tables, 6, 10))
    found = decide(design, values)
    stars = int(np.isin(found.outcome, (1, 2)).any(axis=-1).sum())
    assert stats.binomtest(stars, tables).proportion_ci(0.999).low <= 0.05
    # Around the smallest effect: one basin of no effect, and one of twice as large a one.
    edge = decide(design, 0.5 + values / 2)
    same = int((edge.outcome == 3).any(axis=-1).sum())
    assert stats.binomtest(same, tables).proportion_ci(0.999).low <= 0.05
    before = decide(replace(design, sign_flips=False), values)
    assert np.isin(before.outcome, (1, 2)).any(axis=-1).mean() > 0.06


@pytest.mark.parametrize("rule", RULES)
def test_five_seeds_decide_nothing_however_large_the_effect(rule) -> None:
    for seeds, is_decided in ((5, False), (6, rule != "any_time"), (8, True)):
        design = Design.planned({"UT": ("a",)}, seeds, rule=rule)
        found = decide(design, drawn(13, 1, seeds, effect=100.0))
        assert (found.decided_at > 0).all() == is_decided
