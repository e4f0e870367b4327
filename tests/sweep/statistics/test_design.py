"""Designs: what is refused, what is planned for how many seeds, and their JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sweep.statistics.decisions import table
from sweep.statistics.design import Design
from trainables.errors import InvalidValue

FAMILIES = {"UT": ("L=3", "L=5"), "DUST": ("L=7",)}


@pytest.mark.parametrize(
    ("seeds", "looks", "spending"),
    [
        (2, (2,), (1.0,)),
        (5, (5,), (1.0,)),
        (10, (10,), (1.0,)),
        (12, (10, 12), (0.3, 0.7)),
        (40, (10, 40), (0.3, 0.7)),
    ],
)
def test_looks_spend_the_whole_error_whatever_the_seeds(seeds, looks, spending) -> None:
    design = Design.planned(FAMILIES, seeds)
    assert (design.looks, design.spending) == (looks, pytest.approx(spending))
    assert [n for n, _ in design.stages(seeds - 1)] == list(looks[:-1])


def test_a_fixed_design_tests_once_and_any_time_after_every_seed() -> None:
    fixed = Design.planned(FAMILIES, 12, rule="fixed")
    assert fixed.stages(11) == ()
    assert fixed.stages(30) == ((12, 1.0),)
    assert Design.planned(FAMILIES, 4, rule="any_time").stages(4) == ((2, 1), (3, 1), (4, 1))


@pytest.mark.parametrize("rule", ["looks", "fixed", "any_time"])
def test_a_design_survives_json(rule) -> None:
    design = Design.planned(FAMILIES, 12, rule=rule, smallest_effect=0.2, error=0.1)
    assert Design.from_json(json.loads(json.dumps(design.to_json()))) == design


def test_a_stored_design_of_before_keeps_its_rule() -> None:
    stored = {
        "families": {"UT": ["L=3"]}, "rule": "looks", "looks": [5, 10], "spending": [0.25, 0.75],
        "error": 0.05, "smallest_effect": None,
    }  # fmt: skip
    design = Design.from_json(stored)
    assert design.to_json() == stored
    values = {"L=3": dict(enumerate((1.0, 1.1, 0.9, 1.05, 0.95)))}
    assert [row.decided_at for row in table(design, values, range(10))] == [5, 5]
    planned = Design.planned({"UT": ("L=3",)}, 10, rule="looks")
    assert [row.decided_at for row in table(planned, values, range(10))] == [None, None]


@pytest.mark.parametrize(
    "wrong",
    [
        {"families": {}},
        {"families": {"UT": ()}},
        {"families": {"UT": ("a",), "DUST": ("a",)}},
        {"rule": "peek"},
        {"error": 0.0},
        {"smallest_effect": 0.0},
        {"looks": (10, 5, 20)},
        {"looks": (1, 5, 20)},
        {"looks": (5, 10, 20)},
        {"spending": (0.1, 0.3, 0.5)},
        {"rule": "fixed"},
        {"rule": "any_time"},
    ],
)
def test_what_cannot_hold_its_error_is_refused(wrong) -> None:
    with pytest.raises(InvalidValue, match=r"must be .*, got"):
        replace(Design(families=FAMILIES), **wrong)
