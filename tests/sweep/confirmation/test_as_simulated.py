"""Stored confirmations beside simulated ones: one function decides both.

Random confirmations are stored as records, and shown; their rows are those that the function which
``benchmarks/calibration.py`` calibrates makes of differences computed here, from the bare scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast, get_args

import numpy as np
import pytest

from search_spaces.space import Setting
from sweep.confirmation.comparisons import summarize_confirmation
from sweep.confirmation.plan import put_plan
from sweep.statistics.decisions import table
from sweep.statistics.design import Design, Rule
from sweep.study.definition import put_definition
from tests.support import confirmations as hand
from tests.support.sweeps import FEASIBLE, SPACE, store_sweep
from trainables.records.objects import ObjectStore

FAMILIES = {
    "photographs, ut": ("ut-a", "ut-b"),
    "photographs, dust": ("dust-a",),
    "ucsd_ped2, ut": ("ped2-a",),
}
SETTINGS = [name for names in FAMILIES.values() for name in names]
FIELDS = {"dust": {"model.name": "dust"}, "ped2": {"data.name": "ucsd_ped2"}}
MANY = replace(
    SPACE,
    settings=tuple(
        Setting(name, {**FIELDS.get(name[:-2], {}), "train_gamma": 0.11 + 0.01 * place})
        for place, name in enumerate(SETTINGS)
    ),
)
CONTROLS = ("detached", "mixed_gamma")
KINDS = ("constrained", "unconstrained", *CONTROLS)
CONSTANT = 50.0  # what the constant prediction scores at every gamma, RMSE
CASES = 24


@dataclass
class Case:
    """One random confirmation."""

    seeds: int
    rule: Rule
    smallest_effect: float | None
    scores: dict[tuple[str, str, int], float | str | None]  # by setting, kind and place of the seed

    def counts_for(self, setting: str, kind: str, place: int) -> float | None:
        score = self.scores[setting, kind, place]
        return CONSTANT if isinstance(score, str) else score and min(score, CONSTANT)


def drawn(key: int) -> Case:
    """Effects of some settings; arms that fail, have not ended, or are worse than a constant."""
    generator = np.random.default_rng(key)
    seeds = int(generator.integers(2, 9))
    effects = {name: generator.choice([0.0, 0.0, 0.4, -0.4, 1.5]) for name in SETTINGS}
    ends = {"diverged": 0.03, "failed": 0.02, "useless": 0.02, "training": 0.01 * (key % 3)}
    scores: dict[tuple[str, str, int], float | str | None] = {}
    for setting in SETTINGS:
        for place in range(seeds):
            shared = generator.normal(12.0, 1.0)
            for kind in KINDS:
                better = effects[setting] if kind == "constrained" else 0.0
                score = shared - better + generator.normal(0.0, 0.3)
                end = generator.choice([*ends, ""], p=[*ends.values(), 1 - sum(ends.values())])
                if end == "training":
                    scores[setting, kind, place] = None
                else:
                    useless = CONSTANT + generator.exponential(10.0)
                    scores[setting, kind, place] = (
                        useless if end == "useless" else str(end) or float(score)
                    )
    rule = cast(Rule, generator.choice(get_args(Rule)))
    return Case(seeds, rule, (None, 0.2)[key % 2], scores)


def differences(case: Case, other: str, seeds: tuple[int, ...]) -> dict[str, dict[int, float]]:
    """RMSE, lower is better: what the other arm's is above the constrained one's."""
    found: dict[str, dict[int, float]] = {}
    for setting in SETTINGS:
        found[setting] = {}
        for place, seed in enumerate(seeds):
            ours, theirs = (case.counts_for(setting, k, place) for k in ("constrained", other))
            if ours is not None and theirs is not None:
                found[setting][seed] = theirs - ours
    return found


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    objects = ObjectStore(str(tmp_path_factory.mktemp("store")))
    came_to = [FEASIBLE] * 2
    best = {(setting, 1): -0.9 for setting in SETTINGS}
    store_sweep(objects, dict.fromkeys(SETTINGS, came_to), space=MANY, objectives=best)
    return objects


@pytest.mark.parametrize("key", range(CASES))
def test_rows_are_those_of_the_function_that_is_calibrated(searched: ObjectStore, key: int) -> None:
    case = drawn(key)
    wanted = hand.wanted(
        seeds=case.seeds,
        rule=case.rule,
        smallest_effect=case.smallest_effect,
        controls=CONTROLS,
    )
    plan, definition = hand.planned_of(searched, replace(wanted, name=f"case.{key}"))
    first = 2000 + 100 * key  # arms of no other case
    seeds = tuple(range(first, first + case.seeds))
    plan = put_plan(searched, replace(plan, seeds=seeds))
    definition = replace(definition, space=replace(definition.space, search_seeds=seeds))
    put_definition(searched, definition)
    hand.trained(
        searched, definition, lambda setting, kind, seed: case.scores[setting, kind, seed - first]
    )
    entry = summarize_confirmation(searched, definition, plan)
    searched.delete_folder(f"sweeps/{plan.name}")  # else every later case reads all before it

    shown: dict[str, list[Any]] = {
        "unconstrained": [family.to_json() for family in entry.families],
        **{c: [] for c in CONTROLS},
    }
    for one in entry.settings:
        for other, contrast in one.contrasts.items():
            shown[other].append(contrast.to_json())
            assert contrast.marked == contrast.outcome  # no unit scores are stored
    for other, rows in shown.items():
        design = Design.planned(
            FAMILIES,
            case.seeds,
            rule=case.rule,
            error=0.05 if other == "unconstrained" else 0.05 / len(CONTROLS),
            smallest_effect=case.smallest_effect,
        )
        expected = [row.to_json() for row in table(design, differences(case, other, seeds), seeds)]
        names = [row["name"] for row in rows]
        assert sorted(names) == sorted(
            row["name"] for row in expected if other == "unconstrained" or not row["settings"]
        )
        for row in expected:
            if row["name"] in names:
                ours = rows[names.index(row["name"])]
                assert {name: ours[name] for name in row} == row


def test_the_cases_have_what_they_are_drawn_for() -> None:
    cases = [drawn(key) for key in range(CASES)]
    assert {case.rule for case in cases} == set(get_args(Rule))
    every = [score for case in cases for score in case.scores.values()]
    assert {"diverged", "failed", None} <= {s for s in every if not isinstance(s, float)}
    assert any(isinstance(score, float) and score > CONSTANT for score in every)
