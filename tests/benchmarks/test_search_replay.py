"""The recorded landscapes are whole, and a search replayed on one meets its recorded arms."""

from __future__ import annotations

import json

import pytest

from benchmarks.search_replay import FOLDER, KINDS, Landscape, searched, summary, told_of
from sweep.study.sampler import constraint_of
from trainables.primal_dual.constraints import TOLERANCE


def recorded(name: str) -> Landscape:
    return Landscape(json.loads((FOLDER / f"{name}.json").read_text("utf-8")), "lagrangian")


@pytest.mark.parametrize("name", ["ut_l5_600", "ut_l5_240", "ut_l4_600"])
def test_a_recorded_arm_is_what_its_own_point_comes_to(name: str) -> None:
    landscape = recorded(name)
    for arm in landscape.arms:
        assert landscape.came_to(arm["point"]) is arm
        told = told_of(1, arm["point"], arm, KINDS[0])
        assert (constraint_of(told, TOLERANCE) <= 0) == arm["feasible"]


def test_a_replayed_search_is_a_function_of_its_seed() -> None:
    landscape = recorded("ut_l5_240")
    runs = [searched(landscape, "random", seed) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
    early = summary(runs, 24, 0.0)["early_ends"]
    assert early == sum(a["status"] == "stopped" for run in runs for a in run) / 72
    forgotten = told_of(0, {}, {"status": "stopped", "reported_missing_share": 2.0}, KINDS[1])
    assert not forgotten.can_be_told
