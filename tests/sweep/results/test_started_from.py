"""Starting from other sweeps: their winners, by name or one for all, and exported ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from search_spaces.space import LogReach
from search_spaces.start_points import EVERY, with_start_points
from sweep.results.export import configuration
from sweep.results.started_from import starts_from
from sweep.results.sweep_view import load_sweep
from sweep.study.definition import Definition, put_definition
from sweep.study.proposals import Point
from tests.support.command_line import SPACE_FILE, refused, sweep
from tests.support.proposals import stored_proposals
from tests.support.toy_sweeps import (
    definition,
    started,
    train,
    trained_with_winners,
    with_winners,
)
from trainables.config.arm import ArmConfig
from trainables.errors import Misuse, UnknownName
from trainables.primal_dual.schedule import is_dual_step, lr_factor
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

WINNER = 2  # of toy_sweeps.trained_with_winners, in every setting


def nothing(text: str) -> None:
    pytest.fail(text)


def another(objects: ObjectStore, *texts: str, n_proposals: int = 4) -> Definition:
    """A sweep of the same space with another seed of its search, started from ``texts``."""
    space = replace(definition(n_proposals=n_proposals).space, sampler_seed=7)
    starts = starts_from(texts, objects, say=nothing)
    return Definition("another", with_start_points(space, starts, say=nothing))


def stored_point(objects: ObjectStore, sweep_name: str, setting: str, number: int) -> Point:
    return stored_proposals(objects, sweep_name, setting)[number].point


def test_each_setting_starts_from_its_own_winner_which_is_not_trained_again(
    objects: ObjectStore,
) -> None:
    trained_with_winners(objects)
    asked = put_definition(objects, another(objects, "toy"))
    arms = train(started(objects, asked), with_winners)
    winners = {s: stored_point(objects, "toy", s, WINNER) for s in ("g1", "g2")}
    assert winners["g1"] != winners["g2"]
    for name, winner in winners.items():
        assert dict(asked.space.setting(name).points) == {"start-0": winner}
        assert stored_point(objects, "another", name, 0) == winner
    assert {arm.proposal for arm in arms} == {1, 2, 3}  # neither baselines nor the winners


def exported_winner(objects: ObjectStore, folder: Path) -> Path:
    """The configuration of g1's winner, of a sweep that is trained for it."""
    trained_with_winners(objects)
    view = load_sweep(objects, "toy")
    file = folder / "g1.json"
    file.write_text(json.dumps(configuration(view, view.settings[0])), encoding="utf-8")
    return file


def test_one_winner_and_its_exported_configuration_start_every_setting(
    objects: ObjectStore, tmp_path: Path
) -> None:
    file = exported_winner(objects, tmp_path)
    winner = stored_point(objects, "toy", "g1", WINNER)
    named, exported = another(objects, "toy:g1"), another(objects, str(file))
    for asked in (named, exported):
        assert [dict(s.points) for s in asked.space.settings] == [{"start-0": winner}] * 2
    assert named == exported
    both = another(objects, "toy:g2", "toy")
    assert [len(s.points) for s in both.space.settings] == [2, 1]  # the same point is listed once


def test_a_longer_sweep_that_searches_by_reach_starts_from_the_winners_reach(
    objects: ObjectStore, tmp_path: Path
) -> None:
    file = exported_winner(objects, tmp_path)
    short = definition().space
    ranges = {**short.ranges, "constraint.dual_lr": LogReach(1e-3, 10.0)}
    for times in (1, 2, 8):
        longer = short.with_base({"steps": times * short.base.steps, "decay_fraction": 0.0})
        space = replace(longer, ranges=ranges)
        (by_name, exported) = (
            with_start_points(space, starts_from([text], objects, say=nothing), say=nothing)
            for text in ("toy:g1", str(file))
        )
        assert by_name == exported
        setting = by_name.settings[0]
        found = by_name.run(setting, setting.points["start-0"], seed=0)
        assert reach(found) == pytest.approx(reach(short.base), rel=1e-12)


def reach(run: ArmConfig) -> float:
    """Where a dual signal of 1, step by step, takes a multiplier."""
    assert run.constraint is not None
    at = 0.0
    for step in range(run.steps):
        if is_dual_step(run.constraint, 1, step):
            at += run.constraint.dual_lr * lr_factor(step, run.steps, run.decay_fraction)
    return at


def test_what_has_no_winner_or_is_not_there_is_refused(
    objects: ObjectStore, tmp_path: Path
) -> None:
    put_definition(objects, definition())
    with pytest.raises(Misuse, match=r"toy has no winner to start from: `sweep best toy"):
        starts_from(["toy"], objects, say=nothing)
    with pytest.raises(UnknownName, match="unknown setting 'g9'"):
        starts_from(["toy:g9"], objects, say=nothing)
    with pytest.raises(UnknownName, match="unknown sweep 'tyo'"):
        starts_from(["tyo"], objects, say=nothing)
    with pytest.raises(Misuse, match=r"not read from here.*sweep export"):
        starts_from(["toy"], None, say=nothing)
    file = tmp_path / "space.json"
    with pytest.raises(Misuse, match=f"must be a sweep or an exported file .* got {file}"):
        starts_from([str(file)], objects, say=nothing)
    file.write_text(json.dumps(definition().space.to_json()), encoding="utf-8")
    with pytest.raises(Misuse, match="must be an exported configuration"):
        starts_from([str(file)], objects, say=nothing)


def test_a_sweep_that_is_not_finished_is_told(objects: ObjectStore) -> None:
    asked = put_definition(objects, definition())
    train(started(objects, asked), with_winners, limit=14)
    told: list[str] = []
    (start,) = starts_from(["toy:g1"], objects, say=told.append)
    assert list(start.points) == [EVERY]
    assert told == ["toy is not finished: the search starts from its winners so far."]


# --- as a user ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_given_points_are_the_first_that_are_trained(tmp_path: Path) -> None:
    space = tmp_path / "mine.py"
    space.write_text(SPACE_FILE.replace("n_proposals=1", "n_proposals=3"), encoding="utf-8")
    root = str(tmp_path / "root")
    command = ("run", str(space), "--storage", root, "--where", "inline")
    points = ("--point", "constraint.alpha=0.25", "--point", "constraint.alpha=0.4")
    result = sweep(*command, *points)
    assert "start-1 of only lies outside of what is searched: constraint.alpha is 0.4" in (
        result.stderr
    )
    objects = ObjectStore(root)
    found = [stored_point(objects, "mine", "only", number) for number in range(3)]
    assert found[:2] == [{"constraint.alpha": 0.25}, {"constraint.alpha": 0.4}]
    assert 0.1 <= found[2]["constraint.alpha"] <= 0.3
    alphas = {
        record.config.value_of("constraint.alpha")
        for signature in objects.names("arms")
        if (record := ArmStore(objects).record(signature))
    }
    assert alphas == {None, 0.25, 0.4, found[2]["constraint.alpha"]}
    entry = json.loads(sweep("best", "mine", "--storage", root, "--json").stdout)[0]
    assert entry["point_name"] in ("start-0", "start-1", None)
    assert "different definition" in refused(*command)  # it continues as it was begun
    sweep(*command, *points)
