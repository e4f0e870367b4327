"""Start points: whole points from what is given, their order and names, what is refused."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from search_spaces.ped2_ut import SPACE as BY_REACH
from search_spaces.quickstart import SPACE
from search_spaces.space import Choice, LogUniform, SearchSpace, Setting, Uniform
from search_spaces.start_points import (
    EVERY,
    Start,
    outside,
    parse_point,
    point_of,
    with_start_points,
)
from tests.support.oracles import TINY
from trainables.config.arm import ArmConfig
from trainables.errors import InvalidValue, Misuse, UnknownName
from trainables.primal_dual.schedule import is_dual_step, lr_factor

ALPHA, DUAL_LR = "constraint.alpha", "constraint.dual_lr"
RESILIENCE = "constraint.resilience"
PLAIN = SearchSpace(
    name="plain",
    base=TINY,
    settings=(Setting("a", {}), Setting("b", {"train_gamma": 0.3})),
    ranges={ALPHA: Uniform(0.05, 0.3), DUAL_LR: LogUniform(1e-4, 1e-2)},
)


def said(space: SearchSpace, *points: Any) -> tuple[SearchSpace, list[str]]:
    told: list[str] = []
    starts = [Start(str(point), {EVERY: point}) for point in points]
    return with_start_points(space, starts, say=told.append), told


def test_they_come_first_in_their_order_each_once_and_before_those_of_the_space() -> None:
    own = replace(PLAIN, settings=(Setting("a", {}, points={"start-0": {ALPHA: 0.1}}),))
    one, two = {ALPHA: 0.2, DUAL_LR: 1e-3}, {ALPHA: 0.25, DUAL_LR: 2e-3}
    started, told = said(own, two, one, two)
    (setting,) = started.settings
    assert list(setting.points.items()) == [
        ("start-1", two), ("start-2", one), ("start-0", {ALPHA: 0.1}),
    ]  # fmt: skip
    assert told == []
    assert started.listed(setting, 1) == one
    assert SearchSpace.from_json(started.to_json()) == started
    assert said(PLAIN)[0] == PLAIN


def test_what_is_not_given_is_that_of_the_first_proposal() -> None:
    for setting in PLAIN.settings:
        default = PLAIN.default_point(setting)
        assert point_of(PLAIN, setting, {}) == default
        assert point_of(PLAIN, setting, {ALPHA: 0.11}) == {**default, ALPHA: 0.11}
        assert point_of(PLAIN, setting, {"batch_size": 2}) == {**default, "batch_size": 2}


def effects(run: ArmConfig) -> dict[str, float]:
    """Reach and decay, from what each of the run's dual steps adds and keeps."""
    constraint = run.constraint
    assert constraint is not None
    rates = [
        lr_factor(step, run.steps, run.decay_fraction)
        for step in range(run.steps)
        if is_dual_step(constraint, 1, step)
    ]
    if constraint.dual_optimizer == "bare_decay":
        kept = (1 - constraint.resilience) ** len(rates)
    else:
        kept = (1 - constraint.dual_lr * constraint.resilience) ** math.fsum(rates)
    return {DUAL_LR: constraint.dual_lr * math.fsum(rates), RESILIENCE: -math.log(kept)}


@pytest.mark.parametrize("space", [SPACE, BY_REACH], ids=lambda space: space.name)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {DUAL_LR: 1e-4},
        {DUAL_LR: 1e-3},
        {RESILIENCE: 0.5},
        {DUAL_LR: 1e-4, RESILIENCE: 0.5},
        {"constraint.dual_every": 10},
        {"constraint.warmup_steps": 100, DUAL_LR: 2e-4},
        {"constraint.dual_optimizer": "bare_decay"},
        {"steps": 300},
    ],
    ids=str,
)
def test_what_is_given_stands_and_the_effect_of_what_is_not_is_that_of_the_first_proposal(
    space: SearchSpace, given: dict[str, Any]
) -> None:
    for setting in space.settings:
        default, point = space.default_point(setting), point_of(space, setting, given)
        assert point.items() >= given.items()
        assert point.keys() == default.keys() | given.keys()
        first, started = (effects(space.run(setting, at, seed=0)) for at in (default, point))
        for name in {DUAL_LR, RESILIENCE} - given.keys():
            if type(space.ranges_of(setting)[name]) is LogUniform:
                assert point[name] == default[name]
            else:
                assert started[name] == pytest.approx(first[name], rel=1e-9)


@pytest.mark.parametrize("steps", [300, 900, 20000])
def test_of_a_run_what_is_stated_by_its_effect_does_the_same_here(steps: int) -> None:
    space = BY_REACH.with_base({"steps": steps})
    setting = space.settings[2]
    fields = {ALPHA: 0.2, DUAL_LR: 1.3e-4, RESILIENCE: 7.0}
    run = BY_REACH.run(BY_REACH.settings[2], fields, seed=0)
    point = point_of(space, setting, run)
    assert effects(space.run(setting, point, seed=0)) == pytest.approx(effects(run), rel=1e-9)
    assert space.is_in_box(setting, point)
    assert (point == fields) is (steps == 900)  # to the bit: it is the same arm
    by_epochs = run.with_fields({"constraint.dual_every_unit": "epoch"})
    assert point_of(space, setting, by_epochs) == fields  # nobody can count what they do


def test_a_run_gives_its_values_of_what_is_searched_and_no_others() -> None:
    fields = {ALPHA: 0.123, DUAL_LR: 5e-4, "batch_size": 3, "constraint.signal_clip": 2.0}
    run = TINY.with_fields(fields)
    assert point_of(PLAIN, PLAIN.settings[1], run) == {ALPHA: 0.123, DUAL_LR: 5e-4}
    with pytest.raises(Misuse, match="plain searches no field"):
        point_of(replace(PLAIN, ranges={}), PLAIN.settings[0], run)


def test_winners_go_to_the_settings_of_their_names() -> None:
    winner = {ALPHA: 0.2, DUAL_LR: 1e-3}
    started = with_start_points(PLAIN, [Start("s", {"b": winner, "c": {}})], say=pytest.fail)
    assert [dict(s.points) for s in started.settings] == [{}, {"start-0": winner}]
    with pytest.raises(Misuse, match=r"winners of c, .*settings a, b: .*--start-from s:c\."):
        with_start_points(PLAIN, [Start("s", {"c": winner})], say=pytest.fail)


def test_what_no_search_comes_to_is_told_and_kept() -> None:
    choice = {"constraint.dual_optimizer": Choice(("adam", "sgd"))}
    space = replace(PLAIN, ranges={**PLAIN.ranges, **choice}, settings=PLAIN.settings[:1])
    point = {ALPHA: 0.4, "batch_size": 2, "constraint.dual_optimizer": "sgd"}
    (setting,), told = (lambda found: (found[0].settings, found[1]))(said(space, point))
    assert setting.points["start-0"].items() >= point.items()
    assert told == [
        "start-0 of a lies outside of what is searched: constraint.alpha is 0.4, searched is 0.05 "
        "to 0.3; batch_size is not searched. It is trained, and the search learns nothing from it."
    ]
    assert not space.is_in_box(setting, setting.points["start-0"])
    inside = {ALPHA: 0.3, DUAL_LR: 1e-4, "constraint.dual_optimizer": "adam"}
    assert list(outside(space, setting, inside)) == []
    assert space.is_in_box(setting, inside)


@pytest.mark.parametrize("space", [SPACE, BY_REACH], ids=lambda space: space.name)
def test_the_note_is_on_what_the_search_learns_nothing_from(space: SearchSpace) -> None:
    for setting in space.settings:
        first = space.default_point(setting)
        assert list(outside(space, setting, first)) == []
        for name, factor in itertools.product((DUAL_LR, RESILIENCE), (0, 0.01, 0.5, 1, 2, 100)):
            point = {**first, name: factor * first[name]}
            where = list(outside(space, setting, point))
            assert (where == []) is space.is_in_box(setting, point)
            assert where or factor in (0.5, 1, 2)


def test_the_note_says_reach_and_decay() -> None:
    (deep,) = (s for s in BY_REACH.settings if s.name == "ucsd_ped2-ut-L5-g0.15")
    given = {DUAL_LR: 3e-4, RESILIENCE: 0}  # 810.5 scaled dual steps
    assert list(outside(BY_REACH, deep, {**BY_REACH.default_point(deep), **given})) == [
        "constraint.dual_lr is 0.0003 (reach 0.243), searched is a reach of 0.02 to 0.2",
        "constraint.resilience is 0 (decay 0), searched is a decay of 0.3 to 5.0",
    ]
    still = {**BY_REACH.default_point(deep), DUAL_LR: 0, RESILIENCE: 0}
    assert list(outside(BY_REACH, deep, still)) == [
        "constraint.dual_lr is 0, searched is a reach of 0.02 to 0.2",
        "constraint.resilience is 0, searched is a decay of 0.3 to 5.0",
    ]
    assert not BY_REACH.is_in_box(deep, still)


@pytest.mark.parametrize(
    ("point", "error", "words"),
    [
        ({"constraint.alfa": 0.2}, UnknownName, "Did you mean 'constraint.alpha'"),
        ({ALPHA: 1.5}, InvalidValue, "alpha must be in"),
        ({ALPHA: "abc"}, InvalidValue, "alpha must be a finite number, got 'abc'"),
        ({"train_gamma": 0.2}, InvalidValue, "a start point may not set train_gamma"),
        ({"data.name": "avenue"}, InvalidValue, "a start point may not set data.name"),
    ],
)
def test_what_is_no_point_is_refused(point: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        said(PLAIN, point)


@pytest.mark.parametrize("text", ["", "alpha", "=1", "a=1,a=2"])
def test_a_point_is_written_as_fields_and_values(text: str) -> None:
    with pytest.raises(InvalidValue, match="--point must be field=value"):
        parse_point(text)
