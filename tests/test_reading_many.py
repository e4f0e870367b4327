"""Reading a large sweep: reads do not grow with the proposals, and derived files may go."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from benchmarks.imitated.arms import definition, train
from benchmarks.scale import counted
from sweep import proposals, views
from sweep.coordinator import Coordinator
from sweep.definition import put_definition
from sweep.parallel_reads import READERS, at_once
from tests.sweeps import FEASIBLE, FIRST, INFEASIBLE, USELESS, store_sweep
from trainables.errors import StoreError
from trainables.object_store import ObjectStore
from trainables.run_store import RunStore

SETTINGS = 2
JUDGED = "sweeps/scale/proposals/{}/judged.json"


def trained(objects: ObjectStore, pairs: int) -> list[str]:
    """A finished sweep of imitated arms; the names of its settings."""
    asked = put_definition(objects, definition(pairs, SETTINGS))
    coordinator = Coordinator(objects, asked)
    coordinator.start()
    train(coordinator, RunStore(objects), lambda final: None)
    assert coordinator.summary().is_done
    return [setting.name for setting in asked.space.settings]


def reads(objects: ObjectStore, read: views.Read) -> int:
    with counted() as counts:
        views.load_sweep(objects, "scale", read)
    return counts["read"]


@pytest.mark.parametrize("read", ["outcomes", "pairs"])
def test_what_is_read_does_not_grow_with_the_proposals(
    objects: ObjectStore, read: views.Read
) -> None:
    small, large = ObjectStore(f"{objects.root}/small"), ObjectStore(f"{objects.root}/large")
    trained(small, 6)
    trained(large, 24)
    assert reads(small, read) == reads(large, read)


def test_many_objects_are_read_at_a_time() -> None:
    together = threading.Barrier(READERS, timeout=30)
    assert len(at_once(lambda _: together.wait(), range(READERS))) == READERS


def test_a_read_that_fails_is_an_error() -> None:
    def read(number: int) -> int:
        if number == 3:
            raise StoreError("gone")
        return number

    with pytest.raises(StoreError, match="gone"):
        at_once(read, range(8))


def damage(objects: ObjectStore, name: str) -> None:
    with open(f"{objects.root}/{name}", "r+b") as file:
        file.write(b"?")


@pytest.mark.parametrize("change", [ObjectStore.delete, damage])
@pytest.mark.parametrize("what", [JUDGED, "sweeps/scale/proposals/{}/000001.outcome.json"])
def test_derived_files_that_are_gone_or_damaged_change_nothing(
    objects: ObjectStore, change: Callable[[ObjectStore, str], None], what: str
) -> None:
    first, _ = trained(objects, 6)
    before = views.status(views.load_sweep(objects, "scale", "outcomes"))
    shown = views.best(views.load_sweep(objects, "scale", "pairs"), {})
    if what != JUDGED:
        objects.delete(JUDGED.format(first))  # which has a copy
    change(objects, what.format(first))
    assert views.status(views.load_sweep(objects, "scale", "outcomes")) == before
    assert views.best(views.load_sweep(objects, "scale", "pairs"), {}) == shown


def test_a_dropped_outcome_is_believed_by_nobody(objects: ObjectStore) -> None:
    first, _ = trained(objects, 6)
    proposals.drop_outcome(objects, "scale", first, 1)
    stored = proposals.all_proposals(objects, "scale", [first])[first]
    assert [p.outcome is None for p in stored] == [False, True, False]


def test_outcomes_that_other_rules_judged_are_judged_again(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = trained(objects, 6)
    shown = views.best(views.load_sweep(objects, "scale", "pairs"), {})
    monkeypatch.setattr(proposals, "JUDGING_VERSION", proposals.JUDGING_VERSION + 1)
    stored = proposals.all_proposals(objects, "scale", [first])[first]
    assert [p.outcome for p in stored] == [None] * 3
    assert views.best(views.load_sweep(objects, "scale", "pairs"), {}) == shown


@pytest.mark.parametrize("came_to", [[INFEASIBLE, FEASIBLE, USELESS], [INFEASIBLE, USELESS]])
def test_the_shown_pair_is_that_of_all_records(
    objects: ObjectStore, came_to: list[list[float]]
) -> None:
    store_sweep(objects, {FIRST: list(came_to)})
    every, few = (views.load_sweep(objects, "tiny", read) for read in ("records", "pairs"))
    assert views.best(few, {}) == views.best(every, {})
    assert views.status(few) == views.status(every)


def test_a_verdict_that_the_records_contradict_is_replaced(objects: ObjectStore) -> None:
    """The record of an arm was written again: what is shown is what its record says."""
    definition = store_sweep(objects, {FIRST: [FEASIBLE, INFEASIBLE]})
    stored = proposals.stored_proposals(objects, "tiny", FIRST)
    assert stored[0].outcome is not None
    store = RunStore(objects)
    for signature in stored[0].outcome.signatures:
        record = store.record(signature)
        assert record is not None
        assert record.evaluation is not None
        record.evaluation.dev_losses[:] = [INFEASIBLE]
        store.forget(signature)
        store.put_record(record)
    entry = views.best(views.load_sweep(objects, definition.name, "pairs"), {})[0]
    assert (entry["winner"], entry["outcomes"]["infeasible"]) == (False, 2)
