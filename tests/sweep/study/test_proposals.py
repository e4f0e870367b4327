"""Judged proposals in a store: one file a setting, which a driver writes at a pace."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from sweep.study import proposals
from sweep.study.pairs import ProposalResult, join
from sweep.study.proposals import JudgedFiles, Point, ProposalOutcome, all_proposals, put_proposal
from tests.support.sweeps import FEASIBLE, PLAIN, SPACE, finished
from trainables.errors import StoreError
from trainables.records.objects import ObjectStore

SETTINGS = ("a", "b")
PUT_S = 1.5  # what one file takes, by the clock of these tests


class SlowStore(ObjectStore):
    """Counts files by setting; each takes PUT_S seconds of its own clock, or fails."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.now_s, self.put_of, self.is_away = 0.0, list[str](), False

    def put(self, name: str, content: bytes) -> None:
        if self.is_away:
            raise StoreError("away")
        super().put(name, content)
        if name.endswith("judged.json"):
            self.now_s += PUT_S
            self.put_of.append(name.split("/")[-2])


@pytest.fixture
def store(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> SlowStore:
    store = SlowStore(objects.root)
    monkeypatch.setattr(proposals.time, "monotonic", lambda: store.now_s)
    return store


@pytest.fixture
def known(store: SlowStore) -> dict[str, dict[int, ProposalOutcome]]:
    """Outcomes of two stored proposals of each setting."""
    outcomes: dict[str, dict[int, ProposalOutcome]] = {}
    for setting in SETTINGS:
        for number in range(2):
            put_proposal(store, "s", setting, number, {})
        config = SPACE.run(SPACE.settings[0], {"constraint.alpha": 0.1}, seed=0)
        pair = join(finished(config, FEASIBLE), finished(config.unconstrained(), PLAIN))
        outcomes[setting] = {
            number: ProposalOutcome.from_result(ProposalResult(number, {}, (pair,)))
            for number in range(2)
        }
    return outcomes


@pytest.mark.parametrize("share", [math.inf, -math.inf, math.nan, 0.25])
def test_an_outcome_is_read_as_it_was_put(
    known: dict[str, dict[int, ProposalOutcome]], share: float
) -> None:
    """Infinite is a layer that may not lose anything, and does: far from winning, not unknown."""
    put = replace(known[SETTINGS[0]][0], worst_missing_share=share)
    plain = json.loads(json.dumps(put.to_json(), allow_nan=False))
    read = ProposalOutcome.from_stored(0, plain)
    assert read is not None
    assert repr(read) == repr(put)


def files(store: SlowStore, known: dict[str, dict[int, ProposalOutcome]]) -> JudgedFiles:
    points: dict[str, dict[int, Point]] = {setting: {0: {}, 1: {}} for setting in SETTINGS}
    return JudgedFiles(store, "s", points, known)


def judged(store: SlowStore) -> dict[str, list[int]]:
    stored = all_proposals(store, "s", SETTINGS)
    return {s: [p.number for p in of if p.outcome is not None] for s, of in stored.items()}


def test_files_take_a_twentieth_of_the_time_at_most(
    store: SlowStore, known: dict[str, dict[int, ProposalOutcome]]
) -> None:
    writing = files(store, known)
    for second in range(1000):
        writing.changed(SETTINGS[second % 2])
        writing.put()
        store.now_s += 1
    spent_s = PUT_S * len(store.put_of)
    assert 0.04 < spent_s / store.now_s <= 0.05
    assert store.put_of[:4] == ["a", "b", "a", "b"]  # who waits longest comes first
    store.put_of.clear()
    writing.put(every=True)
    assert sorted(store.put_of) == ["a", "b"]
    writing.put(every=True)
    assert len(store.put_of) == 2  # nothing has changed


def test_a_file_that_could_not_be_put_is_put_later(
    store: SlowStore, known: dict[str, dict[int, ProposalOutcome]]
) -> None:
    writing = files(store, known)
    writing.changed("b")
    store.is_away = True
    with pytest.raises(StoreError):
        writing.put()
    store.is_away = False
    assert judged(store) == {"a": [], "b": []}
    writing.put()
    assert judged(store) == {"a": [], "b": [0, 1]}
