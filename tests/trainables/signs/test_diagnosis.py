"""Diagnosis of the dual side, on trajectories with closed forms and on a run that it fits."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.oracles import TINY
from trainables.arm_run import ArmRun
from trainables.primal_dual.constraints import Scales, descent_constraints, violations
from trainables.records.arm_record import Report
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.signs.diagnosis import (
    dual_warnings,
    duality_gap,
    oscillates,
    sign_changes,
    slackness,
    stalls,
)

TIMES = np.arange(24)
WAVE = np.cos(2 * math.pi * TIMES / 6)
CALM = {  # of every series its three layers, at every report; losses have four
    "losses": [0.5, 0.4, 0.3, 0.2],
    "missing_shares": [-0.1, -0.1, -0.1],
    "violations": [0.0, 0.0, 0.0],
    "multipliers": [0.1, 0.1, 0.1],
    "slacks": [0.0, 0.0, 0.0],
}
Series = dict[str, list[list[float]]]


def reports(first: int = 1, count: int = 24, **series: list[list[float]]) -> list[Report]:
    """Reports of a calm run, with other series, one row a report."""
    return [
        Report(
            step=first + i,
            timestamp_ms=i,
            layers={**CALM, **{name: rows[i] for name, rows in series.items()}},
        )
        for i in range(count)
    ]


def in_layer_2(values: np.ndarray) -> list[list[float]]:  # type: ignore[type-arg]
    return [[0.0, float(value), 0.0] for value in values]


def test_a_sinusoid_oscillates_and_one_that_dies_out_does_not() -> None:
    assert sign_changes(WAVE) == 8  # 24 reports of 6 to a period, two a period
    assert oscillates(WAVE, 0.1)
    assert oscillates(1.05**TIMES * WAVE, 0.1)
    assert not oscillates(0.9**TIMES * WAVE, 0.1)  # 0.9^12 = 0.28 of it in the second half
    assert oscillates(0.985**TIMES * WAVE, 0.1)  # 0.985^12 = 0.83
    assert not oscillates(0.2 + 0.19 * WAVE, 0.1)  # it never changes sign
    assert not oscillates(0.09 * WAVE, 0.1)
    assert not oscillates(np.ones(24), 0.1)
    assert not oscillates(0.9**TIMES, 0.1)
    assert not oscillates(np.r_[np.full(12, 0.5), np.full(12, -0.5)], 0.1)  # one change


def test_a_layer_that_oscillates_is_named() -> None:
    (text,) = dual_warnings(TINY, reports(missing_shares=in_layer_2(WAVE)))
    assert text.startswith("Layer 2 oscillates: its violation changed sign 8 times")
    assert "dual_lr" in text
    assert dual_warnings(TINY, reports(missing_shares=in_layer_2(0.9**TIMES * WAVE))) == []
    assert dual_warnings(TINY, reports(missing_shares=in_layer_2(0.15 * WAVE)), 0.2) == []


def test_a_multiplier_that_stands_over_a_missed_layer_stalls() -> None:
    constant, rising, falling = np.full(24, 0.5), 0.2 + 0.01 * TIMES, 0.5 * 0.9**TIMES
    every = np.ones(24, dtype=bool)
    assert stalls(every, constant, constant)
    assert stalls(every, rising, falling)
    assert not stalls(every, constant, rising)
    assert not stalls(every, falling, constant)  # it gets better
    assert not stalls(TIMES != 22, constant, constant)  # not missed at one of the last three


def test_a_layer_that_stalls_is_named() -> None:
    stalled: Series = {
        "missing_shares": in_layer_2(np.full(24, 0.5)),
        # so small that the products stay within 0.2 of the loss
        "violations": in_layer_2(np.full(24, 0.01)),
        "multipliers": in_layer_2(1 - 0.5**TIMES)[:12] + in_layer_2(np.ones(12)),
    }
    (text,) = dual_warnings(TINY, reports(**stalled))
    assert "multiplier of layer 2 stopped rising" in text
    rises = {**stalled, "multipliers": in_layer_2(0.01 * TIMES)}
    assert dual_warnings(TINY, reports(**rises)) == []
    met = {**stalled, "violations": in_layer_2(np.full(24, -0.01))}
    assert dual_warnings(TINY, reports(**met)) == []  # in training; it does not carry over


def test_slackness_is_the_products_and_0_where_resilience_grants_what_is_missed() -> None:
    rng = np.random.default_rng(0)
    lam, g, u = rng.random((9, 4)), rng.normal(size=(9, 4)), rng.random((9, 4))
    naive = [
        sum(abs(lam[r, layer] * (g[r, layer] - u[r, layer])) for r in (6, 7, 8)) / 3
        for layer in range(4)
    ]
    np.testing.assert_allclose(slackness(lam, g, u), naive, rtol=1e-12)
    # at rest: g = c lambda where lambda > 0, and lambda = 0 where g < 0
    lam[:, 1] = 0.0
    g = np.where(lam > 0, 0.3 * lam, -1.0)
    assert slackness(lam, g, 0.3 * lam).sum() == 0.0


def test_the_gap_is_the_lagrangian_less_the_loss_and_bounds_a_convex_problems() -> None:
    config = replace(TINY.constraint, reference_unit="constant")  # type: ignore[type-var]
    assert config is not None
    constraints = descent_constraints(config, 3, Scales(1.0, 1.0))
    losses_F, lam_L = np.array([1.0, 0.9, 0.8, 0.5]), np.array([0.3, 1.2, 0.7])
    gap = duality_gap(lam_L, violations(constraints, losses_F))
    assert gap == pytest.approx(lam_L @ violations(constraints, losses_F), rel=1e-12)
    # minimise x^2 subject to 1 - x <= 0: at x = lambda / 2 of the Lagrangian's minimum, for
    # lambda >= 2, where x is feasible, the loss is within -gap of the best, 1
    for lam in (2.0, 2.5, 4.0):
        x = lam / 2
        gap = duality_gap(np.array([lam]), np.array([1 - x]))
        assert 0 <= x**2 - 1 <= -gap + 1e-12
        assert x**2 + gap == pytest.approx(lam - lam**2 / 4)  # the dual function


def test_products_far_from_0_and_a_gap_are_named_in_shares_of_the_loss() -> None:
    # lambda 0.1 x 3 layers; the loss is 0.2
    met: Series = {"violations": [[0.0, -0.5, -0.5]] * 24}  # products 0.1, half of the loss
    first, second = dual_warnings(TINY, reports(**met))
    assert "their products are 50% of the loss" in first
    assert "most in layer 2, whose multiplier presses a layer that meets its constraint" in first
    assert second.startswith("The Lagrangian ended 50% of the loss below the loss")
    granted: Series = {"violations": [[0.0, 0.5, 0.5]] * 24, "slacks": [[0.0, 0.5, 0.5]] * 24}
    (text,) = dual_warnings(TINY, reports(**granted))  # at rest
    assert text.startswith("The Lagrangian ended 50% of the loss above the loss")
    detached = TINY.with_fields({"constraint.grad_through_previous": False})
    assert dual_warnings(detached, reports(**granted)) == []
    assert dual_warnings(TINY, reports(violations=[[0.0, -0.19, -0.19]] * 24)) == []


def test_layer_0_is_named_for_what_it_is() -> None:
    zero = TINY.with_fields({"constraint.reference": "bound_zero"})
    wave: Series = {name: [[*values, values[0]]] * 24 for name, values in CALM.items()}
    wave["losses"] = [CALM["losses"]] * 24
    wave["missing_shares"] = [[float(value), 0.0, 0.0, 0.0] for value in WAVE]
    (text,) = dual_warnings(zero, reports(**wave))
    assert text.startswith("Layer 0 oscillates")


def test_nothing_is_said_of_few_reports_of_a_warm_up_or_without_multipliers() -> None:
    wave = in_layer_2(WAVE)
    assert len(dual_warnings(TINY, reports(missing_shares=wave))) == 1
    assert dual_warnings(TINY, reports(count=5, missing_shares=wave)) == []
    late = TINY.with_fields({"constraint.warmup_steps": 20})
    assert dual_warnings(late, reports(missing_shares=wave)) == []  # 4 reports follow it
    assert dual_warnings(TINY.unconstrained(), reports(missing_shares=wave)) == []
    control = TINY.with_fields({"constraint.weights_by": "last_layer"})
    assert dual_warnings(control, reports(missing_shares=wave)) == []
    broken = in_layer_2(np.where(TIMES == 20, math.nan, WAVE))
    assert dual_warnings(TINY, reports(missing_shares=broken)) == []


def test_a_run_that_has_ended_keeps_its_diagnosis_once(tmp_path: Path) -> None:
    """A hard constraint that no such network meets, at a dual_lr that outweighs the loss."""
    config = TINY.with_fields(
        {
            "constraint.alpha": 0.6,
            "constraint.dual_lr": 0.5,
            "steps": 24,
            "report_every": 4,
            "early_stop": False,
            "eval_windows": 1,
            "eval_draws": 1,
        }
    )
    arm = ArmRun(config, ArmStore(ObjectStore(tmp_path)))
    while not arm.advance().is_final:
        assert not any("complement" in text for text in arm.record.warnings)
    record = arm.record
    said = dual_warnings(config, record.reports)
    assert record.status == "finished"
    assert len(said) > 0
    assert [text for text in record.warnings if text in said] == said
    assert ArmStore(ObjectStore(tmp_path)).record(config.signature()) == record
