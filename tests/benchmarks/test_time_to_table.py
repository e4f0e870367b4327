"""Summary of times and winners against a stock script."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from benchmarks.time_to_table import MARGIN, not_inferior, summary


def run(variant: str, repeat: int, *best: float | None) -> dict[str, Any]:
    found = {f"setting {number}": value for number, value in enumerate(best)}
    return {
        "variant": variant,
        "repeat": repeat,
        "wall_s": 10.0 * (1 + repeat) * (2 if variant == "stock" else 1),
        "training_s": 1.0,
        "best": found,
        "feasible": {name: value is not None for name, value in found.items()},
    }


RUNS = [
    run("product", 0, -0.20, -0.10),
    run("stock", 0, -0.19, -0.12),
    run("stock", 1, -0.30, None),
    run("product", 1, -0.27, -0.15),
    run("product", 2, -0.10, -0.10),
    run("stock", 2, -0.11, -0.10),
    run("stock", 3, None, None),  # no winner, and so no difference
    run("product", 3, -0.10, -0.10),
    run("product", 4, -0.10, -0.10),  # the script was not run
]


def test_gains_of_winners_that_both_found_are_tested_against_the_margin() -> None:
    found = not_inferior(RUNS, "stock")
    gains = np.array([(0.01 - 0.02) / 2, -0.03, (-0.01 + 0.0) / 2])
    error = gains.std(ddof=1) / np.sqrt(3)
    assert found["gain"] == pytest.approx(gains.mean(), abs=1e-4)
    assert found["standard_error"] == pytest.approx(error, abs=1e-4)
    assert found["p"] == pytest.approx(t.sf((gains.mean() + MARGIN) / error, df=2), rel=0.05)
    assert (found["repeats"], found["settings"]) == (3, 5)
    assert found["without_a_winner"] == {"script": 3}


def test_a_winner_that_the_product_alone_missed_leaves_nothing_to_test() -> None:
    lost = [run("stock", 5, -0.1, -0.1), run("product", 5, -0.1, None)]
    found = not_inferior([*RUNS, *lost], "stock")
    assert found["p"] is None
    assert found["without_a_winner"] == {"script": 3, "product": 1}


def test_one_repeat_is_no_test() -> None:
    assert not_inferior(RUNS[:2], "stock") == {
        "repeats": 1,
        "settings": 2,
        "without_a_winner": {},
    }


def test_ratios_are_of_one_repeat() -> None:
    found = summary(RUNS)
    assert found["ratios"]["all"]["median"] == 2.0
    assert found["ratios"]["all"]["repeats"] == 4
    assert found["variants"]["stock"]["settings_without_winner"] == "3 of 8"
    assert list(found["quality"]) == ["stock"]
