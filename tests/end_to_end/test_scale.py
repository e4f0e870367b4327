"""Cost of a pair, which does not grow with the sweep; see benchmarks/scale.py."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.imitated.arms import definition, finished_record, train
from benchmarks.scale import counted, judged, measured, requests_per_pair
from sweep.results.sweep_view import load_sweep
from sweep.run.coordinator import Coordinator
from sweep.run.events import Observer
from sweep.study.arms import Arm
from sweep.study.definition import put_definition
from sweep.tracking import sources
from sweep.tracking.tracker import Tracker
from tests.support.tracked_arms import content, history
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

SETTINGS = 2


def trained(objects: ObjectStore, pairs: int) -> dict[str, Arm]:
    """A finished sweep of simulated arms; what would wait if MLflow were away."""
    waiting: dict[str, Arm] = {}
    asked = put_definition(objects, definition(pairs, SETTINGS))
    on_record, on_proposal = sources.listeners(
        lambda arm, is_final: waiting.update({arm.signature: arm})
    )
    coordinator = Coordinator(objects, asked, observer=Observer(on_record, on_proposal))
    coordinator.start()
    train(coordinator, ArmStore(objects), lambda final: None)
    assert coordinator.summary().is_done
    return waiting


def touched_per_pair(folder: Path, pairs: int) -> dict[str, float]:
    with counted() as counts:
        assert len(trained(ObjectStore(folder), pairs)) == pairs + SETTINGS
    return {what: count / pairs for what, count in counts.items()}


@pytest.mark.slow
def test_storage_is_touched_equally_often_per_pair_in_sweeps_of_all_sizes(tmp_path: Path) -> None:
    small, large = touched_per_pair(tmp_path / "a", 10), touched_per_pair(tmp_path / "b", 60)
    assert small.keys() == large.keys()
    assert {what: n for what, n in large.items() if n > 1.02 * small[what]} == {}


@pytest.mark.slow
def test_a_driver_keeps_little_of_a_pair_while_mlflow_is_away(tmp_path: Path) -> None:
    """A record in memory takes more than the 20 KB that a pair may take in all."""
    tracemalloc.start()
    try:
        used = []
        kept: list[dict[str, Arm]] = []
        for pairs in (8, 32):
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            kept.append(trained(ObjectStore(tmp_path / str(pairs)), pairs))
            gc.collect()
            used.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    assert (used[1] - used[0]) / 24 < 20_000


def test_a_view_holds_whole_records_of_what_it_shows_alone(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    trained(objects, 8)
    view = load_sweep(objects, "scale")
    places = [arm for arm in view.arms.values() if arm.proposal is not None]
    records = [arm.record for arm in places if arm.record is not None]
    assert len(records) == 8
    assert all(r.is_final and r.evaluation is None and len(r.reports) == 1 for r in records)
    for setting in view.settings:
        shown = setting.chosen.shown
        assert shown is not None
        (pair,) = shown.pairs
        assert pair.constrained == finished_record(pair.constrained.config)


# --- MLflow ---------------------------------------------------------------------------------------


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often MLflow is asked for runs, by filter: what that costs grows with their number."""
    from mlflow import MlflowClient

    asked: Counter[str] = Counter()
    search = MlflowClient.search_runs

    def counting(self: Any, ids: Any, filter_string: str = "", *args: Any, **options: Any) -> Any:
        asked[filter_string.partition(" = ")[0]] += 1
        return search(self, ids, filter_string, *args, **options)

    monkeypatch.setattr(MlflowClient, "search_runs", counting)
    return asked


def test_runs_are_searched_once_per_arm_and_listed_once(uri: str, searches: Counter[str]) -> None:
    tracker = Tracker(uri)
    for states in history(8):
        for arm in states:
            tracker.sync(arm)
    assert searches == {"tags.kind": 1, "tags.signature": 8}


def test_a_later_start_searches_for_no_arm_that_is_there(uri: str, searches: Counter[str]) -> None:
    arms = [states[-1] for states in history(8)]
    for arm in arms:
        Tracker(uri).sync(arm)
    searches.clear()
    again = Tracker(uri)
    for arm in arms:
        again.sync(arm)
    assert searches == {"tags.kind": 1}
    assert again.created == 0


@pytest.mark.slow
def test_runs_that_memory_let_go_of_are_found_again(
    uri: str, other_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Tracker(other_uri)
    monkeypatch.setattr("sweep.tracking.runs.RUNS_KEPT", 2)
    tracker = Tracker(uri)
    for position in range(4):  # every arm in turn, so that each is let go of before it comes again
        for states in history(4):
            tracker.sync(states[min(position, len(states) - 1)])
    assert tracker.created == 4
    for states in history(4):
        for arm in states:
            expected.sync(arm)
    assert content(uri) == content(other_uri)


def test_a_comparison_that_is_cut_short_says_what_it_has() -> None:
    def of(pairs: int, ms: float) -> dict[str, Any]:
        costs = dict.fromkeys(("cpu_ms_per_pair", "starting_again_ms_per_pair"), ms)
        objects = {"objects_touched_per_pair": {"read": 4.0, "write": 5.0}}
        memory = {"kb_per_pair_with_summary": 9.0}
        return {"pairs": pairs, "ms_per_pair": ms, **costs, **objects, **memory}

    under_way = {"pairs": 10_000, "minutes": [{"s": 60.0}]}
    small, large = of(1_000, 100.0), of(10_000, 140.0)
    assert judged([small, under_way]) == {"sweeps": [small, under_way]}
    ratios = [judged(seen)["ratios"] for seen in ([small, large], [small, large, under_way])]
    assert ratios[0] == ratios[1] == pytest.approx(ratios[0] | {"time": 1.4, "requests": 1.0})
    assert judged([small, large])["is_within"]
    assert not judged([small, large, of(1_000, 50.0)])["is_within"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_whole_sweep_with_tracking_costs_the_same_per_pair(kind: str) -> None:
    """The benchmark at a size that a test can wait for; it asserts a run per arm by itself."""
    small, large = (measured(kind, pairs, SETTINGS) for pairs in (20, 120))

    assert requests_per_pair(large) <= 1.5 * requests_per_pair(small)
    assert (
        large["starting_again_objects_per_pair"] <= 1.5 * small["starting_again_objects_per_pair"]
    )
