"""Reading a large sweep: reads do not grow with the proposals, and derived files may go."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from benchmarks.imitated.arms import definition, train
from benchmarks.scale import counted
from sweep.results.best import best_entries
from sweep.results.status import status_of
from sweep.results.sweep_view import Read, load_sweep
from sweep.run.coordinator import Coordinator
from sweep.study import proposals
from sweep.study.definition import load_definition, put_definition
from tests.support.proposals import stored_proposals
from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, USELESS, store_sweep
from trainables.errors import StoreError
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import READERS, at_once

SETTINGS = 2
JUDGED = "sweeps/scale/proposals/{}/judged.json"


def trained(objects: ObjectStore, pairs: int) -> list[str]:
    """A finished sweep of imitated arms; the names of its settings."""
    asked = put_definition(objects, definition(pairs, SETTINGS))
    coordinator = Coordinator(objects, asked)
    coordinator.start()
    train(coordinator, ArmStore(objects), lambda final: None)
    assert coordinator.summary().is_done
    return [setting.name for setting in asked.space.settings]


def reads(objects: ObjectStore, read: Read) -> int:
    with counted() as counts:
        load_sweep(objects, "scale", read)
    return counts["read"]


@pytest.mark.parametrize("read", ["outcomes", "pairs"])
def test_what_is_read_does_not_grow_with_the_proposals(objects: ObjectStore, read: Read) -> None:
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
def test_derived_files_that_are_gone_or_damaged_change_nothing(
    objects: ObjectStore, change: Callable[[ObjectStore, str], None]
) -> None:
    first, _ = trained(objects, 6)
    before = status_of(load_sweep(objects, "scale", "outcomes"))
    shown = best_entries(load_sweep(objects, "scale", "pairs"), {})
    change(objects, JUDGED.format(first))
    assert status_of(load_sweep(objects, "scale", "outcomes")) == before
    assert best_entries(load_sweep(objects, "scale", "pairs"), {}) == shown


def cut(objects: ObjectStore, name: str) -> None:
    """As a driver leaves it that is killed right after the last verdict."""
    plain = objects.get_json(name)
    plain.pop("2")
    objects.put_json(name, plain)


def forget_first(objects: ObjectStore, name: str) -> None:
    proposals.drop_outcomes(objects, "scale", name.split("/")[3], {0})


def forget_all(objects: ObjectStore, name: str) -> None:
    """As other rules of judging do."""
    proposals.drop_outcomes(objects, "scale", name.split("/")[3], range(3))


@pytest.mark.parametrize(
    "change", [None, ObjectStore.delete, damage, cut, forget_first, forget_all]
)
def test_a_resume_of_a_finished_sweep_lists_every_outcome_and_writes_the_list_once(
    objects: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[ObjectStore, str], None] | None,
) -> None:
    first, second = trained(objects, 6)
    before = stored_proposals(objects, "scale", first)
    least = reads(objects, "outcomes")
    if change is not None:
        change(objects, JUDGED.format(first))
    put, names = ObjectStore.put, Counter[str]()

    def counting(self: ObjectStore, name: str, content: bytes) -> None:
        names[name] += 1
        put(self, name, content)

    monkeypatch.setattr(ObjectStore, "put", counting)
    coordinator = Coordinator(objects, load_definition(objects, "scale"))
    coordinator.start()
    assert coordinator.next_arm() is None
    assert names[JUDGED.format(first)] == (change is not None)
    assert names[JUDGED.format(second)] == 0
    assert stored_proposals(objects, "scale", first) == before
    assert reads(objects, "outcomes") == least


def test_a_dropped_outcome_is_believed_by_nobody(objects: ObjectStore) -> None:
    first, _ = trained(objects, 6)
    proposals.drop_outcomes(objects, "scale", first, {1})
    stored = proposals.all_proposals(objects, "scale", [first])[first]
    assert [p.outcome is None for p in stored] == [False, True, False]


def test_outcomes_that_other_rules_judged_are_judged_again(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = trained(objects, 6)
    shown = best_entries(load_sweep(objects, "scale", "pairs"), {})
    monkeypatch.setattr(proposals, "JUDGING_VERSION", proposals.JUDGING_VERSION + 1)
    stored = proposals.all_proposals(objects, "scale", [first])[first]
    assert [p.outcome for p in stored] == [None] * 3
    assert best_entries(load_sweep(objects, "scale", "pairs"), {}) == shown


@pytest.mark.parametrize("came_to", [[INFEASIBLE, FEASIBLE, USELESS], [INFEASIBLE, USELESS]])
def test_the_shown_pair_is_that_of_all_records(
    objects: ObjectStore, came_to: list[list[float]]
) -> None:
    store_sweep(objects, {FIRST: list(came_to)})
    every, few = (load_sweep(objects, "tiny", read) for read in ("records", "pairs"))
    assert best_entries(few, {}) == best_entries(every, {})
    assert status_of(few) == status_of(every)


def test_a_verdict_that_the_records_contradict_is_replaced(objects: ObjectStore) -> None:
    """The record of an arm was written again: what is shown is what its record says."""
    definition = store_sweep(objects, {FIRST: [FEASIBLE, INFEASIBLE]})
    stored = stored_proposals(objects, "tiny", FIRST)
    assert stored[0].outcome is not None
    store = ArmStore(objects)
    for signature in stored[0].outcome.signatures:
        record = store.record(signature)
        assert record is not None
        assert record.evaluation is not None
        record.evaluation.dev_losses[:] = [INFEASIBLE]
        store.forget(signature)
        store.put_record(record)
    entry = best_entries(load_sweep(objects, definition.name, "pairs"), {})[0]
    assert (entry["winner"], entry["outcomes"]["infeasible"]) == (False, 2)
