"""Start points: whole points from what is given, their order and names, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from search_spaces.quickstart import SPACE
from search_spaces.ranges import decay_of
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
from trainables.errors import InvalidValue, Misuse, UnknownName
from trainables.primal_dual.schedule import effective_dual_steps

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


@pytest.mark.parametrize("dual_lr", [1e-4, 1e-3])
def test_of_a_resilience_by_its_decay_the_decay_is_that_of_the_first_proposal(
    dual_lr: float,
) -> None:
    for setting in SPACE.settings:
        default = SPACE.default_point(setting)
        point = point_of(SPACE, setting, {DUAL_LR: dual_lr})
        decays = []
        for of in (default, point):
            run = SPACE.run(setting, of, seed=0)
            steps = effective_dual_steps(run, steps_per_epoch=1, until=run.steps)
            decays.append(decay_of(of[RESILIENCE], dual_lr=of[DUAL_LR], dual_steps=steps))
        assert decays[1] == pytest.approx(decays[0], rel=1e-9)
        assert math.isfinite(decays[0])
        assert SPACE.is_in_box(setting, point)
        given = {DUAL_LR: dual_lr, RESILIENCE: 0.5}
        assert point_of(SPACE, setting, given) == {ALPHA: default[ALPHA], **given}


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
