"""Holm and the gate of families, against statsmodels and step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from sweep.statistics.multiplicity import gatekept, holm

SIZES = (3, 1, 2)
MEMBERS = ((0, 1, 2), (3,), (4, 5))
P = st.floats(0, 1) | st.floats(0, 0.02)


def step_by_step(p_F, p_S, error: float) -> tuple[set[int], set[int]]:
    """The procedure of the module's first lines, as a loop."""
    families: set[int] = set()
    settings: set[int] = set()
    while True:
        through = [f for f in families if settings.issuperset(MEMBERS[f])]
        level = error / max(1, len(MEMBERS) - len(through))
        before = len(families) + len(settings)
        for f, places in enumerate(MEMBERS):
            if f in through or not (p_F[f] <= level or f in families):
                continue
            families.add(f)
            for left, place in enumerate(sorted(places, key=lambda s: p_S[s])):
                if p_S[place] > level / (len(places) - left):
                    break
                settings.add(place)
        if len(families) + len(settings) == before:
            return families, settings


@given(st.lists(P, min_size=3, max_size=3), st.lists(P, min_size=6, max_size=6))
def test_adjusted_p_values_are_where_the_procedure_rejects(p_F: list, p_S: list) -> None:
    families, inside = gatekept(np.array(p_F), np.array(p_S), MEMBERS)
    for error in (0.05, 0.3):
        passed = step_by_step(p_F, p_S, error)
        close = 1e-12  # a level that is met to the last bit
        assert passed[0] <= {f for f in range(3) if families[f] <= error + close}
        assert passed[0] >= {f for f in range(3) if families[f] <= error - close}
        assert passed[1] <= {s for s in range(6) if inside[s] <= error + close}
        assert passed[1] >= {s for s in range(6) if inside[s] <= error - close}


def of_statsmodels(p: np.ndarray) -> np.ndarray:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gc.collect", lambda: 0)  # of all that tests have loaded, at every call
        return multipletests(p, method="holm")[1]


@settings(max_examples=30)
@given(st.lists(P, min_size=1, max_size=8))
def test_holm_is_statsmodels_and_families_of_one_setting_are_holm(p: list[float]) -> None:
    values = np.array(p)
    expected = of_statsmodels(values)
    assert holm(values) == pytest.approx(expected, rel=1e-12)
    alone = gatekept(values, values, [(i,) for i in range(len(p))])
    assert alone[0] == pytest.approx(expected, rel=1e-12)
    assert alone[1] == pytest.approx(expected, rel=1e-12)


@given(st.lists(P, min_size=9, max_size=9), st.integers(0, 8), st.floats(0, 1))
def test_a_smaller_p_raises_no_other(p: list[float], which: int, share: float) -> None:
    less = list(p)
    less[which] *= share
    before = np.concatenate(gatekept(np.array(p[:3]), np.array(p[3:]), MEMBERS))
    after = np.concatenate(gatekept(np.array(less[:3]), np.array(less[3:]), MEMBERS))
    assert (after <= before + 1e-15).all()


def test_tables_are_adjusted_each_by_itself() -> None:
    generator = np.random.default_rng(0)
    p_F, p_S = generator.random((4, 3)) ** 4, generator.random((4, 6)) ** 4
    families, inside = gatekept(p_F, p_S, MEMBERS)
    for i in range(4):
        one = gatekept(p_F[i], p_S[i], MEMBERS)
        assert (families[i] == one[0]).all()
        assert (inside[i] == one[1]).all()
