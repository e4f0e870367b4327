"""Search spaces: every built-in one builds, and wrong ones say why."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from search_spaces import catalog
from search_spaces.paper import video as published
from search_spaces.paper.spaces import PAPER_SPACES
from search_spaces.space import (
    HOW_IT_RUNS,
    Choice,
    LogDecay,
    LogReach,
    LogUniform,
    Range,
    SearchSpace,
    Setting,
    Uniform,
)
from tests.support.sweeps import SPACE
from trainables.config.arm import ArmConfig, field_names
from trainables.config.constraint import REMOVED
from trainables.config.renamed import FIRST_NAMES
from trainables.errors import InvalidValue, Misuse, RemovedOption, UnknownName
from trainables.plain import with_names
from trainables.primal_dual.dual_steps import dual_step
from trainables.primal_dual.schedule import is_dual_step, lr_factor


@pytest.mark.parametrize("name", catalog.space_names())
def test_every_built_in_space_is_what_its_json_reads_back_to(name: str) -> None:
    found = catalog.find(name)
    assert found.name == found.space.name == name
    assert SearchSpace.from_json(json.loads(json.dumps(found.space.to_json()))) == found.space


@pytest.mark.parametrize("name", catalog.space_names())
def test_the_default_point_of_every_setting_lies_in_its_ranges(name: str) -> None:
    space = catalog.find(name).space
    for setting in space.settings:
        at = space.coordinates_of(setting, space.default_point(setting))
        for field, value in at.items():
            values = space.ranges_of(setting)[field]
            if isinstance(values, Choice):
                assert value in values.values
            else:
                low, high = values.low * (1 - 1e-9), values.high * (1 + 1e-9)
                assert low <= value <= high
        assert space.point_of(setting, at) == pytest.approx(space.default_point(setting), rel=1e-9)
        space.run(setting, space.default_point(setting), seed=0)


@pytest.mark.parametrize("name", sorted({*catalog.space_names()} - {*PAPER_SPACES}))
def test_every_built_in_space_searches_alpha_dual_lr_and_resilience(name: str) -> None:
    """But those in the paper's words, whose alpha and resilience are given."""
    searched = {f"constraint.{n}" for n in ("alpha", "dual_lr", "resilience")}
    assert searched <= catalog.find(name).space.ranges.keys()


def test_the_quickstart_has_at_least_2_settings_4_proposals_and_one_seed() -> None:
    space = catalog.find("quickstart").space
    assert len(space.settings) >= 2
    assert space.n_proposals >= 4
    assert len(space.search_seeds) == 1
    assert space.base.data.name == "photographs"


def test_full_picks_the_larger_variant_and_says_where_there_is_none() -> None:
    small, full = catalog.find("ped2_ut").space, catalog.find("ped2_ut", full=True).space
    assert full.base.steps > small.base.steps
    with pytest.raises(Misuse, match="without --full"):
        catalog.find("quickstart", full=True)


def test_two_forms_of_a_setting_share_their_unconstrained_arms() -> None:
    space = catalog.find("ped2_ut").space
    seeds, settings = len(space.search_seeds), len(space.settings)
    assert catalog.arm_count(space) == settings * space.n_proposals * seeds + settings // 2 * seeds


def test_an_unknown_space_names_the_closest_one() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'quickstart'"):
        catalog.find("quikstart")


# --- ranges of a setting, ranges on what a value does ---------------------------------------------

BOX = {
    "constraint.alpha": Uniform(0.2, 0.3),
    "constraint.dual_lr": LogUniform(1e-3, 1e-1),
    "constraint.resilience": LogDecay(0.1, 10.0),
}


def searched(*settings: Setting, **fields: object) -> SearchSpace:
    own = {"settings": settings or (Setting("a", {}),), "ranges": BOX, **fields}
    return replace(SPACE, **own)  # type: ignore[arg-type]


def test_a_setting_replaces_ranges_of_its_space() -> None:
    own = Setting("deep", {"model.layers": 4}, None, {"constraint.alpha": Uniform(0.05, 0.1)})
    space = searched(Setting("shallow", {}), own)
    assert space.ranges_of(space.settings[0]) == BOX
    assert space.ranges_of(own) == {**BOX, "constraint.alpha": Uniform(0.05, 0.1)}
    assert list(space.ranges_of(own)) == list(BOX)  # columns of tables keep their order
    assert space.default_point(own)["constraint.alpha"] == 0.1
    assert SearchSpace.from_json(json.loads(json.dumps(space.to_json()))) == space
    plain = space.to_json()["settings"]
    assert plain[0]["ranges"] == {}
    assert plain[1]["ranges"] == {"constraint.alpha": {"uniform": [0.05, 0.1]}}


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"constraint.warmup_steps": Choice((0, 1))}, "may replace those of the space"),
        ({"constraint.alpha": Uniform(0.5, 1.5)}, "reaches a value that is not allowed"),
        ({"constraint.alpha": (0.1, 0.2)}, r"must be Uniform\(low, high\), .* got \(0.1, 0.2\)"),
        ({"constraint.alpha": LogDecay(0.1, 1.0)}, "LogDecay is a range of constraint.resilience"),
        (
            {"constraint.dual_lr": LogUniform(1, 10), "constraint.resilience": Uniform(0.1, 1)},
            "in setting a the ranges reach a point",
        ),
    ],
)
def test_a_wrong_range_of_a_setting_fails_where_it_is_written(
    ranges: dict[str, Range], message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        searched(Setting("a", {}, None, ranges))


@pytest.mark.parametrize("fields", [{}, {"steps": 900}, {"constraint.dual_every": 3}])
def test_a_decay_means_the_same_at_every_dual_lr_and_length_of_run(fields: dict[str, int]) -> None:
    """A multiplier that nothing pushes, taken through the run's own dual steps."""
    space = searched(Setting("a", fields))
    (setting,) = space.settings
    for decay in (0.1, 1.0, 4.0):
        for dual_lr in (1e-3, 1e-1):
            at = {"constraint.alpha": 0.2, "constraint.dual_lr": dual_lr}
            point = space.point_of(setting, {**at, "constraint.resilience": decay})
            run = space.run(setting, point, seed=0)
            assert run.constraint is not None
            kept = np.ones(1)
            for step in range(run.steps):
                if is_dual_step(run.constraint, 1, step):
                    kept = dual_step(
                        kept,
                        np.zeros(1),
                        dual_lr=dual_lr * lr_factor(step, run.steps, run.decay_fraction),
                        resilience=run.constraint.resilience,
                    )
            # exp(-decay), but for the last steps, which are shorter: of second order in eta c
            assert -math.log(kept[0]) == pytest.approx(decay, rel=0.12)
            back = space.coordinates_of(setting, point)
            assert back["constraint.resilience"] == pytest.approx(decay, rel=1e-9)


@pytest.mark.parametrize("every", [1, 3])
def test_a_decay_of_the_bare_form_knows_no_rate(every: int) -> None:
    base = SPACE.base.with_fields({"constraint.dual_optimizer": "bare_decay"})
    space = searched(Setting("a", {"constraint.dual_every": every}), base=base)
    (setting,) = space.settings
    at = {"constraint.alpha": 0.2, "constraint.dual_lr": 0.01, "constraint.resilience": 0.7}
    point = space.point_of(setting, at)
    run = space.run(setting, point, seed=0)
    assert run.constraint is not None
    steps = sum(is_dual_step(run.constraint, 1, step) for step in range(run.steps))
    assert (1 - point["constraint.resilience"]) ** steps == pytest.approx(math.exp(-0.7))
    assert space.coordinates_of(setting, point) == pytest.approx(at)


def test_a_point_on_the_edge_of_a_decay_range_is_told_inside_it() -> None:
    space = searched()
    for decay in (0.1, 10.0):
        at = {"constraint.alpha": 0.2, "constraint.dual_lr": 0.007}
        point = space.point_of(space.settings[0], {**at, "constraint.resilience": decay})
        back = space.coordinates_of(space.settings[0], point)["constraint.resilience"]
        assert 0.1 <= back <= 10.0


def test_a_plain_resilience_inside_a_decay_range_stays_as_it_was_written() -> None:
    base = SPACE.base.with_fields({"constraint.dual_lr": 0.01, "constraint.resilience": 0.7})
    space = searched(base=base)
    assert space.default_point(space.settings[0])["constraint.resilience"] == 0.7


def test_a_decay_range_needs_dual_steps_that_can_be_counted() -> None:
    with pytest.raises(InvalidValue, match="needs dual_every_unit 'step', got 'epoch'"):
        searched(Setting("a", {"constraint.dual_every_unit": "epoch"}))
    with pytest.raises(InvalidValue, match="needs multipliers that move"):
        searched(Setting("a", {"constraint.warmup_steps": SPACE.base.steps}))


REACH = {**BOX, "constraint.dual_lr": LogReach(0.02, 2.0)}


@pytest.mark.parametrize(
    "fields", [{}, {"steps": 900}, {"constraint.dual_every": 3}, {"constraint.warmup_steps": 20}]
)
def test_a_reach_is_where_a_signal_of_1_takes_a_multiplier(fields: dict[str, int]) -> None:
    """Taken through the run's own dual steps; the decay that is searched beside it follows."""
    space = searched(Setting("a", fields), ranges=REACH)
    (setting,) = space.settings
    at = {"constraint.alpha": 0.2, "constraint.dual_lr": 0.3, "constraint.resilience": 2.0}
    point = space.point_of(setting, at)
    run = space.run(setting, point, seed=0)
    assert run.constraint is not None
    come, kept = np.zeros(1), np.ones(1)
    for step in range(run.steps):
        if is_dual_step(run.constraint, 1, step):
            dual_lr = run.constraint.dual_lr * lr_factor(step, run.steps, run.decay_fraction)
            come = dual_step(come, np.ones(1), dual_lr=dual_lr)
            kept = dual_step(
                kept, np.zeros(1), dual_lr=dual_lr, resilience=run.constraint.resilience
            )
    assert come[0] == pytest.approx(0.3, rel=1e-12)
    assert -math.log(kept[0]) == pytest.approx(2.0, rel=0.12)  # as in the test of decays
    assert space.coordinates_of(setting, point) == pytest.approx(at, rel=1e-9)


def test_what_a_box_of_effects_holds_is_told_from_what_it_does_not() -> None:
    space = searched(ranges=REACH)
    (setting,) = space.settings
    for reach, decay in itertools.product((0.02, 0.3, 2.0), (0.1, 10.0)):  # its edges are inside
        at = {"constraint.alpha": 0.2, "constraint.dual_lr": reach, "constraint.resilience": decay}
        point = space.point_of(setting, at)
        assert space.is_in_box(setting, point)
        for name in ("constraint.dual_lr", "constraint.resilience"):
            assert not space.is_in_box(setting, {**point, name: 300 * point[name]})


def test_a_first_dual_lr_outside_a_reach_moves_to_its_end() -> None:
    base = SPACE.base.with_fields({"constraint.dual_lr": 10.0, "constraint.resilience": 1e-3})
    space = searched(base=base, ranges=REACH)
    (setting,) = space.settings
    first = space.coordinates_of(setting, space.default_point(setting))
    assert first["constraint.dual_lr"] == pytest.approx(2.0, rel=1e-12)
    own = searched(base=base.with_fields({"constraint.dual_lr": 0.01}), ranges=REACH)
    assert own.default_point(own.settings[0])["constraint.dual_lr"] == 0.01
    assert SearchSpace.from_json(json.loads(json.dumps(space.to_json()))) == space


def test_a_reach_is_of_dual_lr_alone_and_needs_dual_steps() -> None:
    with pytest.raises(InvalidValue, match=r"LogReach is a range of constraint\.dual_lr, got one"):
        searched(ranges={"constraint.alpha": LogReach(0.1, 1.0)})
    with pytest.raises(InvalidValue, match="needs dual_every_unit 'step', got 'epoch'"):
        searched(Setting("a", {"constraint.dual_every_unit": "epoch"}), ranges=REACH)


# --- settings without noise, settings of one's choice ---------------------------------------------


def test_without_training_noise_one_proposal_is_all_that_is_spent() -> None:
    space = catalog.find("video_denoising_ut").space
    for setting in space.settings:
        wanted = 1 if space.base.with_fields(setting.fields).train_gamma == 0 else 8
        assert space.proposals_of(setting) == wanted
    seeds, noiseless = len(space.search_seeds), 9
    assert catalog.arm_count(space) == seeds * (45 + noiseless + (45 - noiseless) * 8)


def test_a_setting_never_gets_more_proposals_than_the_space_asks_for() -> None:
    capped = Setting("only", {}, n_proposals=4)
    space = SearchSpace(**{**vars(SPACE), "settings": (capped,), "n_proposals": 3})
    assert space.proposals_of(capped) == 3
    assert SearchSpace.from_json(json.loads(json.dumps(space.to_json()))) == space
    for wrong in (0, 1.5, True, "2"):
        with pytest.raises(InvalidValue, match="n_proposals of setting 'only' must be"):
            SearchSpace(**{**vars(SPACE), "settings": (Setting("only", {}, wrong),)})  # type: ignore[arg-type]


def test_a_field_that_a_stored_space_has_not_heard_of_is_at_its_default() -> None:
    plain = SPACE.to_json()
    for name in ("tolerance", "selected_seeds", *HOW_IT_RUNS):
        del plain[name]
    plain["settings"] = [{"name": s["name"], "fields": s["fields"]} for s in plain["settings"]]
    assert SearchSpace.from_json(plain) == SPACE


def test_only_keeps_the_settings_that_match_in_their_order() -> None:
    space = catalog.find("video_denoising_dust").space
    assert catalog.only(space, ()) == space
    kept = catalog.only(space, ("*-L5-*", "ucsd_ped2-dust-L3-g0"))
    names = [s.name for s in space.settings]
    assert [s.name for s in kept.settings] == [
        n for n in names if "-L5-" in n or n == "ucsd_ped2-dust-L3-g0"
    ]
    assert len(kept.settings) == 16


def test_only_refuses_a_pattern_that_matches_nothing_and_lists_what_there_is() -> None:
    space = catalog.find("ped2_ut").space
    with pytest.raises(UnknownName, match=r"Known: .*ucsd_ped2-ut-L3-g0\.15") as caught:
        catalog.only(space, ("*-ut-L3-*", "ucsd_ped2-ut-L4-g0.15"))
    assert "Did you mean" in str(caught.value)


# --- the paper's values ---------------------------------------------------------------------------


def test_the_105_comparisons_are_the_settings_of_three_spaces_one_to_one() -> None:
    ours = [
        (f"video_denoising_{model}", setting.name)
        for model in ("ut", "dust", "vit")
        for setting in catalog.find(f"video_denoising_{model}").space.settings
    ]
    theirs = [(c.space, c.setting) for c in published.COMPARISONS]
    assert len(set(ours)) == len(ours) == len(theirs) == 105
    assert set(ours) == set(theirs)


def test_every_setting_trains_what_its_comparison_says() -> None:
    for row in published.COMPARISONS:
        space = catalog.find(row.space).space
        config = space.run(space.setting(row.setting), {}, seed=0)
        assert (config.data.name, config.model.name) == (row.data, row.model)
        assert (config.model.layers, config.train_gamma) == (row.layers, row.train_gamma)


def test_the_table_says_what_is_known_of_the_papers() -> None:
    """Counted on the page: 74 of 105 won; by data set as below; 13 and 7 outliers above 1.2x."""
    rows = published.COMPARISONS
    assert sum(row.constrained < row.unconstrained for row in rows) == 74
    wins = {
        model: [
            sum(r.constrained < r.unconstrained for r in rows if (r.model, r.data) == (model, data))
            for data in published.DATA_SETS
        ]
        for model in published.LAYERS
    }
    assert wins == {"dust": [14, 9, 11], "ut": [10, 7, 11], "vit": [3, 4, 5]}
    ratios = [row.unconstrained / row.constrained for row in rows if row.model == "dust"]
    assert sum(ratio > 1.2 for ratio in ratios) == 13
    blank = [row for row in rows if max(row.constrained, row.unconstrained) > 100]
    assert [row.constrained for row in blank] == [105.767, 131.102, 132.968, 138.362]
    copied = [row for row in rows if any("printed twice" in doubt for doubt in row.doubts)]
    assert [(r.constrained, r.unconstrained) for r in copied] == [(11.577, 12.124)] * 2
    assert all("failed run" in " ".join(row.doubts) for row in blank)


def test_the_best_values_are_read_as_kept_shares() -> None:
    assert {m: (b.reference_loss, b.alpha) for m, b in published.BEST.items()} == {
        "dust": (6.5, 0.25),
        "ut": (5.5, 0.22),
        "vit": (0.44, 0.29),
    }
    assert published.COMPARISONS[-1].setting == "ucsd_ped2-vit-L12-g0.15"


# --- values from the command line -----------------------------------------------------------------


def test_values_reach_the_base_run_and_the_space() -> None:
    space = catalog.with_values(SPACE, {"steps": 20, "sampler": "tpe", "search_seeds": [3]})
    assert (space.base.steps, space.sampler, space.search_seeds) == (20, "tpe", (3,))


def test_an_unknown_field_names_the_closest_one() -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'primal_lr'"):
        catalog.with_values(SPACE, {"primel_lr": 1.0})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("steps", 0, "steps must be positive, got 0"),
        ("steps", 1.5, "steps must be a whole number, got 1.5"),
        ("steps", "many", "whole number, got 'many'"),
        ("primal_lr", float("nan"), "finite number"),
        ("constraint.dual_lr", -1, "dual_lr must be at least 0"),
        ("constraint.alpha", 0.25, "is searched in tiny"),
        ("train_gamma", 0.1, "fixed by the settings"),
        ("seed", 3, "--seeds"),
        ("sampler", "annealing", "unknown sampler 'annealing'"),
        ("n_proposals", 0, "n_proposals must be at least 1"),
        ("n_proposals", "4", "n_proposals must be a whole number"),
        ("search_seeds", 2, "search_seeds must be a list"),
        ("search_seeds", [0, 0], "must be different"),
        ("search_seeds", [], "search_seeds must be"),
        ("data.frame_size", 33, "multiple of patch_size"),
        ("model.name", {"a": []}, "name must be one of 'ut'"),
        ("eval_windows", 2**63, "a whole number of 64 bits"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_its_name(
    name: str, value: object, message: str
) -> None:
    with pytest.raises(Misuse, match=message):
        catalog.with_values(SPACE, {name: value})


# --- what a space refuses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "Upper"}, "lower_case_words"),
        ({"settings": ()}, "at least one setting"),
        ({"settings": Setting("a", {})}, r"settings must be a tuple of Setting, like \(Setting"),
        ({"settings": ({"name": "a"},)}, "settings must be a tuple of Setting, like"),
        ({"base": {"steps": 3}}, "base must be an ArmConfig, got {'steps': 3}"),
        ({"proposals": 3}, "unknown field of SearchSpace 'proposals'.* Did you mean 'n_proposals'"),
        ({"settings": (Setting("a", {}), Setting("a", {}))}, "must differ"),
        ({"settings": (Setting("a/b", {}),)}, "must be letters, digits"),
        ({"settings": (Setting("a", {"model.layer": 3}),)}, "Did you mean 'model.layers'"),
        ({"ranges": {"steps": Choice((10, 20))}}, "may name fields of the constraint"),
        ({"ranges": {"constraint.alpha": Uniform(0.5, 1.5)}}, "not allowed"),
        ({"ranges": {"constraint.warmup_steps": Uniform(0, 10)}}, "warmup_steps must be a whole"),
        ({"base": ArmConfig()}, "base.constraint must be given"),
        (
            {
                "ranges": {
                    "constraint.dual_lr": LogUniform(1e-3, 10.0),
                    "constraint.resilience": LogUniform(1e-3, 1.0),
                }
            },
            r"dual_lr = 10.0, resilience = 1.0: dual_lr x resilience must be below 1",
        ),
        (
            {
                "settings": (Setting("deep", {"model.layers": 20}),),
                "ranges": {"constraint.alpha": Uniform(0.1, 0.9)},
            },
            r"in setting deep .* alpha = 0.9: alpha must be small enough",
        ),
        ({"summary": "half of \ud83d"}, "must be valid Unicode"),
        ({"settings": (Setting("a", {"data.folder": "\udcff"}),)}, "must be valid Unicode"),
    ],
)
def test_a_wrong_space_fails_where_it_is_written(fields: dict[str, object], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        SearchSpace(**{**vars(SPACE), **fields})  # type: ignore[arg-type]


def test_corners_that_no_sampler_can_reach_together_are_still_refused_one_by_one() -> None:
    """Adam decays otherwise: the same corner is allowed there."""
    ranges = {
        "constraint.dual_lr": LogUniform(1e-3, 10.0),
        "constraint.resilience": LogUniform(1e-3, 1.0),
    }
    base = SPACE.base.with_fields({"constraint.dual_optimizer": "adam"})
    SearchSpace(**{**vars(SPACE), "base": base, "ranges": ranges})
    ranges["constraint.dual_optimizer"] = Choice(("sgd", "adam"))  # type: ignore[assignment]
    with pytest.raises(InvalidValue, match="dual_optimizer = 'sgd'"):
        SearchSpace(**{**vars(SPACE), "base": base, "ranges": ranges})


def test_a_field_that_is_null_starts_at_the_low_end_of_its_range() -> None:
    base = SPACE.base.with_fields({"constraint.signal_clip": None})
    ranges = {"constraint.signal_clip": Uniform(0.5, 2.0)}
    space = SearchSpace(**{**vars(SPACE), "base": base, "ranges": ranges})
    assert space.default_point(space.settings[0]) == {"constraint.signal_clip": 0.5}


@pytest.mark.parametrize(
    "ends", [(0.0, 1.0), (2.0, 1.0), (1.0, float("inf")), (1, 10**400), ("1", 2), (True, 2)]
)
def test_an_empty_or_endless_log_range_is_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(InvalidValue, match="a log range must run from"):
        LogUniform(*ends)
    if ends[0] != 0:  # which a uniform range may start at
        with pytest.raises(InvalidValue, match="a range must run from"):
            Uniform(*ends)


def test_setting_names_are_unique_over_data_depth_gamma_variant_and_form() -> None:
    names = {
        catalog.setting(data, "dust", layers, gamma, variant=variant, detached=detached).name
        for data in ("ucsd_ped2", "photographs")
        for layers in (3, 5)
        for gamma in (0.0, 0.09)
        for variant in ("", "paper")
        for detached in (False, True)
    }
    assert len(names) == 32
    assert set(catalog.SPACE_FIELDS).isdisjoint(field_names())


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"constraint.alpha": (0.1, 0.3)}, r"must be Uniform\(low, high\).*got \(0.1, 0.3\)"),
        ([Uniform(0.1, 0.3)], r"ranges must be a mapping of fields to ranges, got \[Uniform"),
    ],
)
def test_what_is_no_range_is_refused_with_what_it_may_be(ranges: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        replace(SPACE, ranges=ranges)


def test_fields_of_settings_in_files_may_have_their_first_names() -> None:
    space = replace(SPACE, settings=(Setting("one", {"decay_fraction": 0.5}),))
    plain = with_names(space.to_json(), FIRST_NAMES)
    assert plain["settings"][0]["fields"] == {"decay_share": 0.5}
    assert SearchSpace.from_json(plain) == space
    with pytest.raises(InvalidValue, match="it is called decay_fraction now"):
        replace(SPACE, settings=(Setting("one", {"decay_share": 0.5}),))
    with pytest.raises(InvalidValue, match="it is called decay_fraction now"):
        catalog.with_values(SPACE, {"decay_share": 0.5})


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_option_is_refused_as_removed_wherever_it_is_set(name: str) -> None:
    message = rf"unknown field 'constraint\.{name}': the option was removed\."
    with pytest.raises(RemovedOption, match=message):
        catalog.with_values(SPACE, {f"constraint.{name}": 1})
    with pytest.raises(RemovedOption, match=message):
        replace(SPACE, settings=(Setting("one", {f"constraint.{name}": 1}),))
