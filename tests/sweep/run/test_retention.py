"""Winners' weights stay, whichever sweep they won in; the rest go, the records never."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.results.sweep_view import load_sweep
from sweep.run.retention import keep_winners_weights
from sweep.study.definition import Definition
from tests.support.sweeps import DIVERGED, FEASIBLE, INFEASIBLE, SPACE, Losses, point, store_sweep
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

(SETTING,) = ONLY = SPACE.settings[:1]


def store(objects: ObjectStore, name: str, losses: list[Losses], asked_for: int) -> Definition:
    """A sweep of one setting and seed, whose arms all have weights."""
    space = replace(SPACE, settings=ONLY, search_seeds=(0,), n_proposals=asked_for)
    definition = store_sweep(objects, {SETTING.name: losses}, name=name, space=space)
    for signature in objects.names("arms"):
        ArmStore(objects).put_weights(signature, b"weights")
    return definition


def signature(number: int | None) -> str:
    """The arm of a proposal, or the unconstrained one."""
    run = SPACE.run(SETTING, point(number or 0), seed=0)
    return (run.unconstrained() if number is None else run).signature()


def with_weights(objects: ObjectStore) -> set[int | None]:
    runs = ArmStore(objects)
    return {n for n in (None, 0, 1, 2) if runs.weights(signature(n)) is not None}


def test_only_winners_and_unconstrained_arms_keep_their_weights(objects: ObjectStore) -> None:
    store(objects, "one", [FEASIBLE, INFEASIBLE, DIVERGED], asked_for=3)
    assert keep_winners_weights(objects, load_sweep(objects, "one")) == 2
    assert with_weights(objects) == {None, 0}
    assert len(objects.names("arms")) == 4
    assert all(map(ArmStore(objects).has_final, objects.names("arms")))


def test_a_sweep_without_a_winner_leaves_the_unconstrained_weights_to_others(
    objects: ObjectStore,
) -> None:
    store(objects, "one", [INFEASIBLE], asked_for=1)
    keep_winners_weights(objects, load_sweep(objects, "one"))
    assert with_weights(objects) == {None}


def test_what_another_finished_sweep_noted_stays(objects: ObjectStore) -> None:
    store(objects, "one", [FEASIBLE, INFEASIBLE], asked_for=2)
    keep_winners_weights(objects, load_sweep(objects, "one"))
    store(objects, "two", [FEASIBLE, INFEASIBLE], asked_for=2)
    objects.put_json("sweeps/one/kept-weights.json", [signature(1)])
    keep_winners_weights(objects, load_sweep(objects, "two"))
    assert with_weights(objects) == {None, 0, 1}


def test_all_stay_while_another_sweep_cannot_be_read(
    objects: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store(objects, "one", [FEASIBLE, INFEASIBLE], asked_for=2)
    objects.put("sweeps/two/definition.json", b"{}")
    assert keep_winners_weights(objects, load_sweep(objects, "one")) == 0
    assert with_weights(objects) == {None, 0, 1}
    assert "did not win stay: two may keep them" in capsys.readouterr().err
    objects.delete("sweeps/two/definition.json")
    assert keep_winners_weights(objects, load_sweep(objects, "one")) == 1
    assert with_weights(objects) == {None, 0}


@pytest.mark.parametrize("noted", [False, True], ids=["never finished", "extended since"])
def test_what_an_unfinished_sweep_has_asked_for_stays(objects: ObjectStore, noted: bool) -> None:
    store(objects, "two", [FEASIBLE, INFEASIBLE], asked_for=3)  # its third is yet to come
    if noted:
        objects.put_json("sweeps/two/kept-weights.json", [])
    store(objects, "one", [FEASIBLE, INFEASIBLE, INFEASIBLE], asked_for=3)
    keep_winners_weights(objects, load_sweep(objects, "one"))
    assert with_weights(objects) == {None, 0, 1}
