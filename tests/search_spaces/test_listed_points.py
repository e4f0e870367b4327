"""Listed points: checked where they are written, counted, stored in their order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from search_spaces import catalog
from search_spaces.space import Choice, LogUniform, Range, SearchSpace, Setting, Uniform
from sweep.cost.estimate import estimate, evaluated_samples
from tests.support.oracles import TINY
from trainables.config.arm import ArmConfig
from trainables.errors import InvalidValue, UnknownName

LAST = {"constraint.weights_by": "last_layer"}
POINTS: dict[str, dict[str, Any]] = {
    "winner": {"constraint.alpha": 0.25},
    "penalty": {"constraint.weights_by": "penalty", "constraint.penalty": 2.0},
    "early-stopped": {**LAST, "steps": 20},
    "decayed": {**LAST, "weight_decay": 0.01, "primal_lr": 3e-4},
}


def space(
    points: Mapping[str, Any], ranges: Mapping[str, Range] | None = None, **fields: Any
) -> SearchSpace:
    settings = (Setting("listed", {}, points=points), Setting("other", {"train_gamma": 0.2}))
    return SearchSpace(
        name="mine",
        base=TINY.with_fields(fields.pop("base", {})),
        settings=settings,
        ranges=ranges or {},
        n_proposals=fields.pop("n_proposals", 1),
        **fields,
    )


def test_points_come_first_and_may_set_primal_fields() -> None:
    listed = space(POINTS)
    setting = listed.settings[0]
    assert listed.proposals_of(setting) == 4
    assert [listed.listed(setting, k) for k in range(5)] == [*POINTS.values(), None]
    third = listed.run(setting, listed.listed(setting, 2) or {}, seed=0)
    assert third.steps == 20
    assert third.constraint is not None
    assert third.constraint.is_control
    assert listed.sets(setting, 3) == (*LAST, "weight_decay", "primal_lr")
    assert listed.sets(listed.settings[1], 0) == ()


def test_points_with_ranges_carry_the_base_value_of_what_else_is_searched() -> None:
    ranges = {"constraint.alpha": Uniform(0.1, 0.3), "constraint.dual_lr": LogUniform(1e-3, 1e-1)}
    searched = space(POINTS, ranges, n_proposals=6)
    setting, other = searched.settings
    assert (searched.proposals_of(setting), searched.proposals_of(other)) == (6, 6)
    first = {"constraint.alpha": 0.25, "constraint.dual_lr": 0.05}
    assert searched.listed(setting, 0) == first
    in_box = [searched.is_in_box(setting, searched.listed(setting, k) or {}) for k in range(4)]
    assert in_box == [True, False, False, False]
    assert not searched.is_in_box(setting, {**first, "constraint.alpha": 0.4})
    assert replace(searched, n_proposals=2).proposals_of(setting) == 4


def test_order_and_values_survive_json_and_stored_files() -> None:
    listed = space({"z": {"steps": 30}, "a": {}, "m": {"constraint.alpha": 0.3}})
    stored = json.loads(json.dumps(listed.to_json(), sort_keys=True))
    again = SearchSpace.from_json(stored)
    assert again == listed
    assert list(again.settings[0].points) == ["z", "a", "m"]
    for setting in stored["settings"]:
        del setting["points"]  # stored before there were any
    assert SearchSpace.from_json(stored) == space({})
    written = {**listed.to_json()}
    written["settings"] = [{"name": "one", "fields": {}, "points": {"mine": {"steps": 30}}}]
    assert SearchSpace.from_json(written).settings[0].points == {"mine": {"steps": 30}}


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (
            {"a": {"constraint.alpha": 2}},
            r"point a of setting listed: constraint.alpha must be in \(0, 1\)",
        ),
        ({"a": {"train_gamma": 0.3}}, "Noise in training alone is train_gamma_low"),
        ({"a": {"data.name": "ucsd_ped2"}}, "may not set data.name: all arms of a setting share"),
        ({"a": {"test_gammas": [0, 1]}}, "measured on or compared by. Put it into `settings`"),
        ({"a b": {}}, "the name of a point of setting 'listed' must be letters, digits"),
        ({"a": 3}, "point a of setting listed must be a mapping of fields to values, got 3"),
        ([], "points of setting 'listed' must be a mapping of names"),
        ({"a": {"constraint.supervision": 0.5}}, "must be left at 1.0 with weights_by"),
    ],
)
def test_a_wrong_point_fails_where_it_is_written(points: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        space(points)
    with pytest.raises(UnknownName, match=r"constraint\.alpha"):
        space({"a": {"constraint.alhpa": 0.1}})


def test_a_field_that_a_point_sets_cannot_be_set_for_all() -> None:
    with pytest.raises(InvalidValue, match="steps is fixed by 1 of the 2 settings of mine"):
        space(POINTS).with_base({"steps": 10})
    assert space(POINTS).with_base({"batch_size": 4}).base.batch_size == 4


def test_a_field_that_some_settings_fix_names_how_many_and_one_of_them() -> None:
    whole = catalog.find("paper_video_ut").space
    avenue = "is fixed by 30 of the 45 settings of paper_video_ut .the first is cuhk_avenue-ut-L3-"
    with pytest.raises(InvalidValue, match=avenue):
        whole.with_base({"steps": 10})
    ped2 = catalog.only(whole, ["ucsd_ped2*"])
    assert ped2.with_base({"steps": 3000}).base.steps == 3000


def test_points_are_counted_and_cost_what_their_own_fields_say() -> None:
    listed = space({"one": {}, "half": {"steps": 20}, "double": {"steps": 80}})
    assert catalog.arm_count(listed) == 2 * (3 + 1) + 2 * 2  # constrained, unconstrained
    assert listed.points_tried(listed.settings[0]) == 3
    long = space({"one": {"steps": 4000}, "half": {"steps": 4000}, "double": {"steps": 4000}})
    assert estimate(long, "h100").device_hours > estimate(listed, "h100").device_hours


def test_plain_training_may_be_searched_over_primal_fields() -> None:
    ranges = {"primal_lr": LogUniform(1e-4, 1e-2), "steps": Choice((20, 40))}
    tuned = space({}, ranges, base=LAST)
    assert tuned.default_point(tuned.settings[0]) == {"primal_lr": 1e-3, "steps": 40}
    with pytest.raises(InvalidValue, match="ranges may name fields of the constraint, got 'prim"):
        space({}, ranges)
    with pytest.raises(InvalidValue, match="steps must be a whole number"):
        space({}, {"steps": Uniform(20, 40)}, base=LAST)
    with pytest.raises(InvalidValue, match="a range may not set eval_draws"):
        space({}, {"eval_draws": Choice((1, 2))}, base=LAST)


# --- confirmations --------------------------------------------------------------------------------


def confirmation(**fields: Any) -> SearchSpace:
    base = {"early_stop": False, "measured_on": "test", **fields.pop("base", {})}
    return space(POINTS, base=base, phase="confirmation", **fields)


def test_a_confirmation_may_be_measured_on_the_test_split() -> None:
    found = confirmation()
    assert SearchSpace.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert confirmation(base={"measured_on": "dev"}).base.measured_on == "dev"
    run = found.run(found.settings[0], {}, seed=0).to_json()
    again = catalog._of_run(ArmConfig.from_json(run)).space
    assert again.phase == "confirmation"


def test_what_no_search_or_confirmation_may_be_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"measured_on must be 'dev' in a search.*sweep confirm"):
        space({}, base={"measured_on": "test"})
    with pytest.raises(InvalidValue, match="early_stop must be false in a confirmation, got true"):
        confirmation(base={"early_stop": True})
    with pytest.raises(InvalidValue, match="early_stop must be false"):
        space({"a": {"early_stop": True}}, base={"early_stop": False}, phase="confirmation")
    settings = (Setting("one", {}), Setting("two", {"measured_on": "dev"}))
    with pytest.raises(InvalidValue, match="measured_on must be that of base, 'test', got 'dev'"):
        replace(confirmation(), settings=settings)
    with pytest.raises(UnknownName, match="unknown phase 'pilot'"):
        space({}, phase="pilot")
    with pytest.raises(InvalidValue, match="may not set measured_on"):
        space({"a": {"measured_on": "test"}})


def test_what_a_test_split_costs_is_of_all_its_units() -> None:
    ped2 = TINY.with_fields({"data.name": "ucsd_ped2", "eval_windows": 24})
    on_dev, on_test = (
        evaluated_samples(replace(ped2, measured_on=split)) for split in ("dev", "test")
    )
    per_unit = ped2.facts.samples_per_unit(ped2.data)
    passes = len(ped2.test_gammas) + ped2.eval_draws
    assert on_test - on_dev == passes * (2010 // 3 - 24) * per_unit
