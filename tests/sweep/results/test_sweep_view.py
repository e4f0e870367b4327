"""Views of a stored sweep: what is waited for, and arms that settings share."""

from __future__ import annotations

from sweep.results.sweep_view import load_sweep
from sweep.study.proposals import put_proposal
from tests.support.sweeps import FEASIBLE, FIRST, SPACE, point, store_sweep
from trainables.records.objects import ObjectStore


def test_a_stored_proposal_without_records_is_waited_for(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    put_proposal(objects, "tiny", FIRST, 1, point(1))
    view = load_sweep(objects, "tiny")
    assert not view.is_finished
    assert len(view.settings[0].proposals) == 2
    assert len(view.settings[0].results) == 1


def test_an_arm_that_two_settings_share_is_counted_once(objects: ObjectStore) -> None:
    first = SPACE.settings[0]
    fields = {**first.fields, "constraint.grad_through_previous": False}
    both = (first, type(first)(f"{first.name}-detached", fields))
    space = type(SPACE)(**{**vars(SPACE), "settings": both})
    store_sweep(objects, {s.name: [FEASIBLE] for s in both}, space=space)
    view = load_sweep(objects, "tiny")
    assert len(view.arms) == 2 + 2 * 2
    assert view.arms[view.settings[1].arms[0].signature].setting == first.name
