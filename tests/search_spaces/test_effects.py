"""Effect of a searched range within a run: idle fields are named, others are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from search_spaces import catalog
from search_spaces.effects.by_effect import RESILIENCE
from search_spaces.effects.edges import edges_of
from search_spaces.effects.idle import idle_ranges
from search_spaces.space import Choice, LogDecay, LogUniform, Range, SearchSpace, Setting


def quickstart(steps: int = 1000, **ranges: Range) -> SearchSpace:
    """The quickstart with other ranges: those it had, in plain units, unless given."""
    own = {f"constraint.{name}": values for name, values in ranges.items()}
    space = catalog.find("quickstart").space
    return replace(space.with_base({"steps": steps}), ranges={**space.ranges, **own})


@pytest.mark.parametrize("name", catalog.space_names())
def test_no_built_in_space_searches_a_field_without_effect(name: str) -> None:
    assert idle_ranges(catalog.find(name).space) == []


def test_a_resilience_that_does_nothing_within_a_run_is_named() -> None:
    (warning,) = idle_ranges(quickstart(resilience=LogUniform(1e-2, 1.0)))
    assert warning.startswith("constraint.resilience does next to nothing in 84% of the box")
    assert "LogDecay(0.1, 10)" in warning
    assert idle_ranges(quickstart(resilience=LogUniform(1.0, 100.0))) == []


def test_coordinates_are_of_their_point_and_setting_however_often_they_are_asked_for() -> None:
    one, other = Setting("a", {}), Setting("b", {"steps": 300})
    space = replace(quickstart(), settings=(one, other))
    points = [space.default_point(one), space.default_point(other) | {"constraint.alpha": 0.1}]
    for point in points:
        for setting in (one, other, replace(one), replace(one, fields={"steps": 500})):
            fresh = replace(space).coordinates_of(setting, point)
            space.coordinates_of(setting, point).clear()
            assert space.coordinates_of(setting, point) == fresh
    assert space.coordinates_of(one, points[0]) != space.coordinates_of(other, points[0])


def test_a_range_by_decay_is_not_told_to_be_one() -> None:
    (warning,) = idle_ranges(quickstart(resilience=LogDecay(0.01, 0.1)))
    assert warning.endswith("Raise its range.")


def test_a_dual_lr_that_reaches_nothing_is_named() -> None:
    (warning,) = idle_ranges(quickstart(dual_lr=LogUniform(1e-9, 1e-7)))
    assert warning.startswith("constraint.dual_lr is too small to do anything in 100%")
    assert "train longer" in warning


def test_a_bare_decay_is_idle_by_its_own_measure() -> None:
    """Of 1,000 dual steps each takes the share c; that of SGD is dual_lr times as small."""
    space = quickstart(resilience=LogUniform(1e-4, 0.5))
    fields = {"constraint.dual_optimizer": "bare_decay", "constraint.resilience": 0.1}
    bare = replace(space, base=space.base.with_fields(fields))
    assert "takes less than 20%" in idle_ranges(space)[0]
    assert idle_ranges(bare) == []
    base = space.base.with_fields({"constraint.resilience": 0.1})
    searched = {"constraint.dual_optimizer": Choice(("sgd", "bare_decay"))}  # looked at: the second
    assert idle_ranges(replace(space, base=base, ranges={**space.ranges, **searched})) == []


def test_a_warning_names_the_settings_that_it_is_about() -> None:
    space = quickstart()
    slow = Setting(
        "slow", {"model.layers": 4}, None, {"constraint.dual_lr": LogUniform(1e-9, 1e-8)}
    )
    (warning,) = idle_ranges(replace(space, settings=(*space.settings, slow)))
    assert warning.endswith("In slow.")


def test_nothing_is_said_where_only_the_data_tell_the_number_of_dual_steps() -> None:
    space = quickstart(resilience=LogUniform(1e-6, 1e-5))
    epochs = Setting("epochs", {"constraint.dual_every_unit": "epoch"})
    assert idle_ranges(replace(space, settings=(epochs,))) == []


def test_a_value_that_was_moved_to_the_end_of_its_range_is_said_to_be() -> None:
    """A shorter run takes less off a multiplier, so the same resilience leaves its range."""
    space = quickstart(resilience=LogDecay(0.1, 10))
    base = space.base.with_fields({"steps": 100, "constraint.resilience": 1e-3})
    short = replace(space, base=base)
    setting = short.settings[0]
    first = short.default_point(setting)
    (edge,) = edges_of(short, setting, {**first, "constraint.alpha": 0.2})
    assert "is at the low end of its range (searched by its decay" in edge
    assert edge.endswith(
        "; the first proposal begins there, since the base's own 0.001 lies outside"
    )
    other = {**first, "constraint.alpha": 0.2, "constraint.resilience": 1.01 * first[RESILIENCE]}
    (edge,) = edges_of(short, setting, other)  # the end, and not where the first one begins
    assert "begins there" not in edge


@pytest.mark.parametrize(
    "others", [(), (0.2,), (0.9,), (0.2, 0.25)], ids=["none", "near", "far", "two near"]
)
def test_test_gammas_of_which_none_is_unseen_are_told_and_the_advice_cures_it(
    others: tuple[float, ...],
) -> None:
    space, train_gamma = quickstart(), 0.15
    gammas = (0.0, train_gamma, *others)
    space = replace(space, base=space.base.with_fields({"test_gammas": gammas}))
    near = train_gamma + 0.1
    said = [text for text in idle_ranges(space) if "unseen" in text]
    if said:
        assert said[0].startswith("test_gammas has none that is unseen, so robustness is not")
        assert f"seen are those up to {near:g}, and the first above train_gamma" in said[0]
        assert all(gamma <= near for gamma in gammas) or others == (0.9,)
    first = next((gamma for gamma in gammas if gamma > train_gamma), None)
    beyond = (*gammas, *((near,) if first is None else ()), max(near, first or 0.0) + 0.1)
    cured = replace(space, base=space.base.with_fields({"test_gammas": beyond}))
    assert not [text for text in idle_ranges(cured) if "unseen" in text]
