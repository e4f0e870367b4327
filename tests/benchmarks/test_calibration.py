"""Calibration of a confirmation on few imitated sweeps; see benchmarks/calibration.py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks import calibration
from benchmarks.imitated import null_sweeps
from benchmarks.imitated.figure import draw
from trainables.plain import Json

SWEEPS = 200


def judged(found: Json) -> Iterator[bool]:
    """Every ``passes`` in a result."""
    if isinstance(found, dict):
        if "passes" in found:
            yield found["passes"]
        found = list(found.values())
    if isinstance(found, list):
        for value in found:
            yield from judged(value)


@pytest.mark.parametrize("part", ["null", "sequential", "certificates", "without_winners"])
def test_what_is_promised_holds_on_few_sweeps_too(part: str) -> None:
    verdicts = list(judged(calibration.PARTS[part](SWEEPS)))
    assert len(verdicts) >= 3
    assert all(verdicts)


@pytest.mark.slow
def test_luck_wins_before_confirmation_and_not_after() -> None:
    tuning = calibration.tuning(100)
    assert tuning["best of 5 against 5 seeds: constrained wins"]["rate"] > 0.5
    assert tuning["a study per seed: a star in the table"]["passes"]
    best = calibration.best_of_n(SWEEPS)
    assert best["N = 20"]["naive wins"]["rate"] > 0.8
    assert all(judged(best))


def test_the_figure_is_the_same_every_time(tmp_path: Path) -> None:
    files = [tmp_path / "first.svg", tmp_path / "second.svg"]
    for file in files:
        draw(calibration.best_of(SWEEPS), file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_dropping_failures_favours_the_arm_that_fails() -> None:
    found = calibration.unequal_failures(SWEEPS)
    assert found["intention to treat"]["mean difference"] < 0
    assert found["per protocol"]["mean difference"] > 0


def test_noise_has_the_correlations_it_says() -> None:
    generator = np.random.default_rng(0)
    first, second = null_sweeps.noise(generator, np.ones((400, 36)), 20)
    settings = np.corrcoef(first.transpose(1, 0, 2).reshape(36, -1))
    off = settings[np.triu_indices(36, 1)].mean()
    units = 1 + null_sweeps.UNIT_NOISE**2 / null_sweeps.UNITS
    assert off == pytest.approx(null_sweeps.BETWEEN_SETTINGS / units, abs=0.02)
    pairs = np.corrcoef(first.ravel(), second.ravel())[0, 1]
    assert pairs == pytest.approx(null_sweeps.BETWEEN_ARMS / units, abs=0.02)


def test_families_gain_by_the_mean_of_their_settings() -> None:
    values = np.random.default_rng(0).normal(size=(200_000, 7))
    settings = 0.5 + math.sqrt(0.7) * values[:, :6] + math.sqrt(0.3) * values[:, 6:]
    mean = settings.mean(axis=1)
    assert null_sweeps.family_effect(0.5, 6, 0.3) == pytest.approx(
        mean.mean() / mean.std(), rel=0.02
    )


def test_the_best_of_some_normals_is_that_of_their_mean_maximum() -> None:
    best = np.random.default_rng(1).normal(size=(400_000, 5)).max(axis=1)
    assert null_sweeps.expected_best(5) == pytest.approx(best.mean(), abs=0.005)
    assert null_sweeps.expected_best(2) == pytest.approx(1 / math.sqrt(math.pi), rel=1e-9)
    assert null_sweeps.expected_best(1000) == pytest.approx(3.24, abs=0.01)
