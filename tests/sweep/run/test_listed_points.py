"""Listed points from the plan to the tables: judged beside the setting's own baseline."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search_spaces import catalog
from search_spaces.space import Setting
from sweep.results.best import best_summaries
from sweep.results.export import configuration
from sweep.results.facts import read_facts
from sweep.results.findings import findings
from sweep.results.sweep_view import load_sweep
from sweep.results.tables.hyperparameters import hyperparameters_table
from sweep.results.tables.layers import layers_table
from sweep.results.tables.results import results_table
from sweep.results.tables.shifts import shifts_table
from sweep.results.verdict_text import verdict_lines
from sweep.run.coordinator import Coordinator
from sweep.run.reproduce import _check_expected
from sweep.study.arms import arms_of_proposal, baselines
from sweep.study.definition import Definition, put_definition
from sweep.tracking.sources import tracked_arms
from sweep.tracking.tags_and_notes import tags_of
from tests.support.records import finished
from tests.support.toy_sweeps import LOSSES, PLAIN, definition, outcomes, started, train
from trainables.errors import Failure
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

LAST = {"constraint.weights_by": "last_layer"}
POINTS = {
    "winner": {"constraint.alpha": 0.2},
    "early-stopped": {**LAST, "steps": 20},
    "supervised": {"constraint.weights_by": "deep_supervision", "constraint.supervision": 0.5},
}


def listed(**fields: Any) -> Definition:
    asked = definition(seeds=(0, 1))
    settings = tuple(Setting(s.name, s.fields, points=POINTS) for s in asked.space.settings)
    space = replace(asked.space, settings=settings, ranges={}, n_proposals=1, **fields)
    return replace(asked, space=space)


def trained(objects: ObjectStore, asked: Definition) -> Coordinator:
    put_definition(objects, asked)
    coordinator = started(objects, asked)
    train(coordinator, lambda arm: finished(
        arm.config, LOSSES if arm.proposal is not None else PLAIN,
        objective=-0.1 * (arm.proposal or 0), multipliers=[],
    ))  # fmt: skip
    return coordinator


def test_listed_points_are_trained_judged_shown_and_tracked(objects: ObjectStore) -> None:
    asked = listed()
    coordinator = trained(objects, asked)
    assert coordinator.summary().is_done, coordinator.summary()
    assert coordinator.plan.arms_total == 2 * 2 + 2 * 3 * 2
    for proposals in outcomes(objects, asked).values():
        assert [p.point for p in proposals] == list(POINTS.values())
        # these losses meet no constraint, which is nothing to a control
        can_win = [p.outcome is not None and p.outcome.can_win for p in proposals]
        assert can_win == [False, True, True]
    view = load_sweep(objects, "toy")
    (first, _) = best_summaries(view, {})
    assert first.proposal == 2
    assert first.point == POINTS["supervised"]
    assert first.point_name == "supervised"
    rows = read_facts(view, ArmStore(objects).record).proposals
    assert [row["outcome_of_seed"] for row in rows] == ["infeasible"] * 12
    assert [row.get("steps") for row in rows[:3]] == [None, 20, None]
    assert [row["point"] for row in rows[:3]] == list(POINTS)
    sentence = findings([first])[0]
    assert sentence.endswith("it is a control, which a constraint judges and does not train.")
    assert not any("required:" in line for line in verdict_lines(first))
    arms = list(tracked_arms(objects, view.definition))
    assert len(arms) == 16
    baselines = {arm.signature for arm in arms if arm.proposal is None}
    theirs = {a.unconstrained_signature for a in arms if a.proposal is not None}
    assert theirs == baselines
    assert all(arm.pair for arm in arms if arm.proposal is not None)


def test_a_second_driver_finds_them_as_they_were(objects: ObjectStore) -> None:
    asked = listed()
    trained(objects, asked)
    again = started(objects, put_definition(objects, asked))
    assert again.summary().is_done
    assert again.next_arm() is None


def test_what_is_measured_on_the_test_split_says_so(objects: ObjectStore) -> None:
    base = replace(listed().space.base, early_stop=False, measured_on="test")
    asked = listed(base=base, phase="confirmation")
    trained(objects, asked)
    view = load_sweep(objects, "toy")
    entries = best_summaries(view, {})
    assert {(e.phase, e.split) for e in entries} == {("confirmation", "test")}
    for make in (results_table, shifts_table, layers_table, hyperparameters_table):
        table = make(asked.space, entries)
        notes = " ".join(table.notes)
        assert " dev " not in notes
        assert "search seed" not in notes
        if make is not hyperparameters_table:
            assert "on test clips" in notes
        if make in (results_table, layers_table):
            assert {row["split"] for row in table.rows} == {"test"}
    arms = list(tracked_arms(objects, view.definition))
    assert {tags_of(arm)["phase"] for arm in arms} == {"confirmation"}


def test_an_exported_configuration_trains_the_same_arms_again(
    objects: ObjectStore, tmp_path: Path
) -> None:
    """Also where its point sets fields of the primal run, in which its baseline differs."""
    points = {"tuned": {**LAST, "steps": 20, "weight_decay": 0.1}, **POINTS}
    settings = (Setting("g1", {"train_gamma": 0.1}, points=points),)
    asked = replace(listed(), space=replace(listed().space, settings=settings))
    put_definition(objects, asked)
    train(
        started(objects, asked),
        lambda arm: finished(
            arm.config, LOSSES, objective=0.1 * (arm.proposal or 0), multipliers=[]
        ),
    )
    view = load_sweep(objects, "toy")
    (setting,) = view.settings
    plain = configuration(view, setting)
    assert (plain["proposal"], plain["baseline"]) == (0, {"steps": 40, "weight_decay": 0.0})
    file = tmp_path / "g1.json"
    file.write_text(json.dumps(plain))
    found = catalog.find(str(file))
    assert found.expected is not None
    _check_expected(Definition("again", found.space), found.expected)
    assert set(found.expected.arms) == {
        arm.signature
        for seed in (0, 1)
        for arm in (
            arms_of_proposal(asked, "g1", 0, points["tuned"])[seed], baselines(asked, "g1")[seed],
        )
    }  # fmt: skip
    del plain["baseline"]  # exported before there were listed points
    file.write_text(json.dumps(plain))
    old = catalog.find(str(file)).space
    with pytest.raises(Failure, match="expects the arms"):
        _check_expected(Definition("again", old), found.expected)
