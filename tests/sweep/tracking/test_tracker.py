"""Tracking in a real SQLite file: what a run holds, every row once, one active run per arm."""

from __future__ import annotations

import dataclasses
import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sweep.tracking import runs
from sweep.tracking.address import TrackingError, shown
from sweep.tracking.client import make_client, run_ids
from sweep.tracking.rows import final_rows, report_rows, trajectories_csv
from sweep.tracking.tags_and_notes import LAYOUT, first_tags
from sweep.tracking.tracker import Tracker, sync_all
from sweep.tracking.ui import experiment_urls
from tests.support.servers.mlflow_servers import rows_of
from tests.support.tracked_arms import (
    PAIR,
    STARTED,
    SWEEP,
    assert_each_row_once,
    config,
    content,
    history,
    record,
    report,
    tracked,
)
from trainables.config.arm import ArmConfig
from trainables.records import arm_record as results

# --- what a run holds -----------------------------------------------------------------------------


def test_a_finished_constrained_arm_shows_its_record(uri: str) -> None:
    base, arm = history(3)[0][-1], history(3)[2][-1]
    tracker = Tracker(uri)
    base_id, run_id = tracker.sync(base), tracker.sync(arm)
    run = make_client(uri).get_run(run_id)
    expected = {
        "kind": "arm",
        "sweep": SWEEP,
        "setting": "ut_l3_g015",
        "proposal": "2",
        "seed": "0",
        "arm": "constrained",
        "phase": "search",
        "signature": arm.signature,
        "outcome": "feasible",
        "status": "finished",
        "unconstrained_run_id": base_id,
        "environment.packages.torch": "2.13.0",
    }
    assert expected.items() <= run.data.tags.items()
    assert "mlflow.parentRunId" not in run.data.tags
    assert "environment.gpu" not in run.data.tags
    assert run.info.run_name == "p2 s0 ut_l3_g015"
    assert (run.info.status, run.info.start_time) == ("FINISHED", STARTED)
    assert run.info.end_time == arm.record.ended_ms
    assert run.data.params["constraint.alpha"] == "0.12"
    assert run.data.params["model.layers"] == "3"
    assert "data.folder" not in run.data.params
    assert run.data.metrics[results.OBJECTIVE] == 0.3
    curve = make_client(uri).get_metric_history(run_id, results.OOD_CURVE)
    assert {m.step: m.value for m in curve} == {0: 0.1, 15: 0.2, 30: 0.4}
    assert [d.dataset.name for d in run.inputs.dataset_inputs] == [arm.record.config.data.name]
    assert run.data.metrics["pair/gain_mean_over_gammas"] == -0.25


def test_the_descent_curve_is_drawn_over_layers_a_second_apart(uri: str) -> None:
    run_id = Tracker(uri).sync(history(3)[2][-1])
    curve = make_client(uri).get_metric_history(run_id, results.DESCENT_CURVE)
    curve.sort(key=lambda m: m.step)
    ended = STARTED + 60_000
    assert [m.step for m in curve] == [0, 1, 2, 3]
    assert [m.timestamp for m in curve] == [ended + 1000 * layer for layer in range(4)]
    assert [m.value for m in curve] == pytest.approx([1.0, 0.7, 0.55, 0.35], rel=1e-12)


def test_the_judged_share_and_the_reported_one_are_two_metrics(uri: str) -> None:
    run_id = Tracker(uri).sync(history(3)[2][-1])
    client = make_client(uri)
    reported = client.get_metric_history(run_id, results.REPORTED_MISSING_SHARE)
    assert {(m.step, m.value) for m in reported} == {(100, 0.2), (200, 0.2), (300, 0.2)}
    judged = client.get_metric_history(run_id, results.WORST_MISSING_SHARE)
    assert [(m.step, m.value) for m in judged] == [(300, 0.04)]
    assert client.get_run(run_id).data.metrics[results.WORST_MISSING_SHARE] == 0.04


def test_an_unconstrained_arm_has_no_constraint_parameters(uri: str) -> None:
    run_id = Tracker(uri).sync(history(1)[0][-1])
    run = make_client(uri).get_run(run_id)
    assert not [name for name in run.data.params if name.startswith("constraint")]
    assert "proposal" not in run.data.tags
    assert run.info.run_name == "plain s0 ut_l3_g015"


@pytest.mark.slow
def test_a_baseline_of_many_pairs_is_one_run_that_all_of_them_name(
    undisturbed_on_sqlite: dict[str, Any],
) -> None:
    arms = {s: run for s, run in undisturbed_on_sqlite.items() if s != "kind"}
    baselines = [run["tags"].get("unconstrained_run_id") for run in arms.values()]
    for seed in (0, 1):
        assert baselines.count(config(seed, None).signature()) == 5
    assert len(arms) == 12


@pytest.mark.parametrize(
    ("status", "shown"), [("diverged", "FAILED"), ("failed", "FAILED"), ("stopped", "KILLED")]
)
def test_status_and_times_come_from_the_record(
    uri: str, status: results.Status, shown: str
) -> None:
    made = record(config(), 2, status)
    run = make_client(uri).get_run(Tracker(uri).sync(tracked(made)))
    assert run.info.status == shown
    assert (run.info.start_time, run.info.end_time) == (made.started_ms, made.ended_ms)
    assert run.data.tags["status"] == run.data.tags["outcome"] == status
    assert run.data.tags["reason"] == f"it {status}"


def test_a_running_arm_is_running(uri: str) -> None:
    run = make_client(uri).get_run(Tracker(uri).sync(tracked(record(config()))))
    assert (run.info.status, run.info.end_time) == ("RUNNING", None)


def test_nan_is_kept_and_infinity_becomes_nan_with_a_tag(uri: str) -> None:
    made = record(config(), 2, "diverged")
    made.reports[0].scalars[results.TRAIN_LOSS] = math.inf
    made.reports[1].scalars[results.TRAIN_LOSS] = math.nan
    writers = [Tracker(uri), Tracker(uri)]
    for writer in writers:
        writer.sync(tracked(record(config(), 0)))  # both saw an empty run, so both send every row
    for writer in writers:
        run_id = writer.sync(tracked(made))
    client = make_client(uri)
    losses = client.get_metric_history(run_id, results.TRAIN_LOSS)
    assert [(m.step, math.isnan(m.value)) for m in losses] == [(100, True), (200, True)]
    assert client.get_run(run_id).data.tags["non_finite"] == (
        "train/loss is inf at step 100; train/loss is nan at step 200"
    )


def test_config_json_trains_the_arm_again(uri: str, tmp_path: Path) -> None:
    arm = history(3)[2][-1]
    run_id = Tracker(uri, str(tmp_path / "artifacts")).sync(arm)
    client = make_client(uri)
    path = client.download_artifacts(run_id, "config.json", str(tmp_path))
    assert ArmConfig.from_json(json.loads(Path(path).read_text())) == arm.record.config
    assert (
        "sweep run config.json --reproduce"
        in client.get_run(run_id).data.tags["mlflow.note.content"]
    )


def test_a_long_history_arrives_whole(uri: str) -> None:
    made = record(config(), 0, "finished")
    made.reports = [report(step) for step in range(1, 451)]  # several requests
    arm = tracked(made, pair=PAIR)
    run_id = Tracker(uri).sync(arm)
    assert len(rows_of(uri, run_id)) == len(report_rows(made, -1)) + len(final_rows(arm)) > 1600


def test_the_summary_run_counts_outcomes_by_setting(uri: str, tmp_path: Path) -> None:
    tracker = Tracker(uri, str(tmp_path / "artifacts"))
    tracker.sync(history(1)[0][-1])
    definition = {"name": SWEEP, "space": {"n_proposals": 2}}
    for feasible, ended in ((1, None), (2, STARTED + 5)):
        run_id = tracker.sync_sweep_summary(
            SWEEP,
            definition=definition,
            outcomes={"a": {"feasible": feasible, "failed": 0}, "b": {"infeasible": 1}},
            started_ms=STARTED,
            ended_ms=ended,
        )
    run = make_client(uri).get_run(run_id)
    assert run.data.tags["outcomes.a"] == "2 feasible"
    assert run.data.tags["outcomes"] == "2 feasible, 1 infeasible"
    assert (run.info.status, run.info.end_time) == ("FINISHED", STARTED + 5)
    assert [a.path for a in make_client(uri).list_artifacts(run_id)] == ["definition.json"]
    assert len(content(uri)) == 1 + 2  # the kind, the arm and the summary


# --- exactly once ---------------------------------------------------------------------------------


def test_syncing_twice_adds_nothing(uri: str) -> None:
    tracker = Tracker(uri)
    arms = [arm for offered in history(4) for arm in offered]
    for arm in arms:
        tracker.sync(arm)
    before, sent = content(uri), tracker.rows_sent
    assert_each_row_once(before)
    for arm in arms:
        tracker.sync(arm)
    assert tracker.rows_sent == sent
    fresh = Tracker(uri)  # a restarted driver
    for arm in arms:
        fresh.sync(arm)
    assert (fresh.rows_sent, fresh.created) == (0, 0)
    assert content(uri) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "lost", [["synced_step"], ["synced_final"], ["synced_step", "synced_final"]]
)
def test_a_kill_between_rows_and_tag_adds_nothing(uri: str, lost: list[str]) -> None:
    for offered in history(3):
        run_id = Tracker(uri).sync(offered[-1])
    before = content(uri)
    for tag in lost:
        make_client(uri).delete_tag(run_id, tag)
    again = Tracker(uri)
    again.sync(history(3)[2][-1])
    assert again.rows_sent == 0
    assert content(uri) == before


def test_rows_sent_again_add_nothing(uri: str) -> None:
    offered = history(3)[2]
    writers = [Tracker(uri), Tracker(uri)]
    for writer in writers:
        writer.sync(dataclasses.replace(offered[0], record=record(offered[0].record.config, 0)))
    for writer in writers:  # both saw an empty run, so both send every row
        writer.sync(offered[-1])
    assert writers[0].rows_sent == writers[1].rows_sent > 0
    assert_each_row_once(content(uri))


def test_a_kill_in_the_middle_of_a_long_history_is_completed(uri: str) -> None:
    made = record(config(), 0)
    made.reports = [report(step) for step in range(1, 151)]
    part = dataclasses.replace(made, reports=made.reports[:60])
    Tracker(uri).sync(tracked(part))
    again = Tracker(uri)
    run_id = again.sync(tracked(made))
    assert again.rows_sent == len(report_rows(made, 60))
    assert len(rows_of(uri, run_id)) == len(report_rows(made, -1))


def test_an_older_record_changes_nothing(uri: str) -> None:
    offered = history(3)[2]
    tracker = Tracker(uri)
    tracker.sync(offered[-1])
    before = content(uri)
    for writer in (tracker, Tracker(uri)):
        writer.sync(offered[0])
    assert content(uri) == before


def test_a_step_that_was_trained_again_is_not_sent_again(uri: str) -> None:
    made = record(config(), 3)
    Tracker(uri).sync(tracked(made))
    made.reports[2] = dataclasses.replace(report(300), timestamp_ms=STARTED + 99_999)
    made.reports.append(report(400))
    Tracker(uri).sync(tracked(made))
    everything = content(uri)
    assert_each_row_once(everything)
    assert {row[3] for row in everything[made.signature]["rows"]} == {100, 200, 300, 400}


def test_the_pair_is_added_to_a_finished_arm(uri: str) -> None:
    *_, alone, joined = history(3)[2]
    tracker = Tracker(uri)
    run_id = tracker.sync(alone)
    assert "pair/gain_mean_over_gammas" not in make_client(uri).get_run(run_id).data.metrics
    sent = tracker.rows_sent
    tracker.sync(joined)
    assert tracker.rows_sent - sent == len(PAIR)
    assert make_client(uri).get_run(run_id).data.tags["outcome"] == "feasible"
    assert_each_row_once(content(uri))


def test_a_baseline_that_is_tracked_later_is_named_then(uri: str) -> None:
    base, arm = history(3)[0][-1], history(3)[2][-1]
    tracker = Tracker(uri)
    run_id = tracker.sync(arm)
    base_id = tracker.sync(base)
    assert make_client(uri).get_run(run_id).data.tags["unconstrained_run_id"] == base_id


@pytest.mark.slow
def test_two_writers_leave_one_active_run(uri: str) -> None:
    arms = [offered[-1] for offered in history(8)]
    trackers = [Tracker(uri), Tracker(uri)]
    trackers[0].sync_sweep_summary(SWEEP, definition={}, outcomes={}, started_ms=STARTED)
    start = threading.Barrier(2)
    failures: list[BaseException] = []

    def write(tracker: Tracker) -> None:
        try:
            for arm in arms:
                start.wait()
                for left in reversed(range(5)):
                    try:
                        tracker.sync(arm)
                        break
                    except TrackingError:  # its run lost the race, or the database was locked
                        if not left:
                            raise
        except BaseException as error:
            failures.append(error)
            start.abort()

    threads = [threading.Thread(target=write, args=(t,)) for t in trackers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    everything = content(uri)  # asserts one active run per arm
    assert len(everything) == 1 + 1 + len(arms)
    assert_each_row_once(everything)
    assert sum(t.created for t in trackers) >= len(arms)


def test_a_baselines_run_that_another_writer_deleted_is_not_named(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two runs of the base the younger one is deleted, though one writer remembers it."""
    base = history(1)[0][-1]
    both = [arms[-1] for arms in history(8) if arms[-1].unconstrained_signature == base.signature]
    tracker = Tracker(uri)
    lost = tracker.sync(base)
    before = tracker.sync(both[0])
    client = make_client(uri)
    client.set_tag(lost, "created_ns", str(time.time_ns() + 10**12))
    experiment = client.get_experiment_by_name(SWEEP)
    assert experiment is not None
    tags = first_tags(base) | {"created_ns": "1"}
    kept = client.create_run(experiment.experiment_id, start_time=STARTED, tags=tags).info.run_id
    assert Tracker(uri).sync(base) == kept  # and deletes the other one

    monkeypatch.setattr(runs, "CHECKED_S", 0.0)  # a minute later
    for run_id in (tracker.sync(both[1]), before):
        assert client.get_run(run_id).data.tags["unconstrained_run_id"] == kept


def test_of_several_runs_the_oldest_stays(uri: str) -> None:
    arm = history(1)[0][-1]
    oldest = Tracker(uri).sync(arm)
    client = make_client(uri)
    experiment = client.get_experiment_by_name(SWEEP)
    assert experiment is not None
    tags = {"kind": "arm", "sweep": SWEEP, "signature": arm.signature}
    for _ in range(2):  # what a lost reply and a retry leave behind
        young = tags | {"created_ns": str(time.time_ns())}
        client.create_run(experiment.experiment_id, tags=young)
    before = Tracker(uri)
    assert before.sync(arm) == oldest
    assert len(client.search_runs([experiment.experiment_id])) == 1


def test_a_run_deleted_in_the_ui_is_made_again(uri: str, other_uri: str) -> None:
    running, finished = history(1)[0][0], history(1)[0][-1]
    tracker = Tracker(uri)
    first = tracker.sync(running)
    make_client(uri).delete_run(first)
    assert tracker.sync(finished) != first
    expected = Tracker(other_uri)
    expected.sync(finished)
    assert content(uri) == content(expected.uri)


@pytest.mark.slow
def test_a_new_empty_server_ends_up_with_the_same_content(
    undisturbed: dict[str, Any], uri: str
) -> None:
    said: list[str] = []
    arms = [offered[-1] for offered in history(12)]
    tracker = Tracker(uri)
    sync_all(tracker, reversed(arms), say=said.append)
    assert content(uri) == undisturbed
    sync_all(Tracker(uri), arms, say=said.append)
    assert said == [
        f"12 arms at {shown(uri)}: 12 runs created, {tracker.rows_sent:,} rows sent",
        f"12 arms at {shown(uri)}: 0 runs created, 0 rows sent",
    ]


def test_an_arm_trained_once_more_has_one_run_that_shows_nothing_of_the_first_attempt(
    uri: str, other_uri: str
) -> None:
    base, arm = history(3)[0][-1], history(3)[2][-1]
    failed = record(base.record.config, 2, "failed")
    tracker = Tracker(uri)
    first = tracker.sync(dataclasses.replace(base, record=failed, outcome="failed"))
    run_id = tracker.sync(arm)
    later = STARTED + 500_000
    again = record(base.record.config, 3, "finished")
    again.started_ms, again.ended_ms = later, later + 60_000
    again.reports = [dataclasses.replace(r, timestamp_ms=later + r.step) for r in again.reports]
    retried = dataclasses.replace(base, record=again)
    second = tracker.sync(retried)
    assert second != first
    assert make_client(uri).get_run(run_id).data.tags["unconstrained_run_id"] == second
    expected = Tracker(other_uri)
    for sent in (retried, arm):
        expected.sync(sent)
    assert content(uri) == content(expected.uri)  # asserts one active run per arm
    tracker.sync(dataclasses.replace(base, record=failed))  # an older state, late
    assert content(uri) == content(expected.uri)


@pytest.mark.parametrize("before", ["failed", "running", "other code", "for another sweep"])
def test_an_attempt_that_began_earlier_by_a_clock_that_was_set_back_is_shown(
    before: Any, uri: str, other_uri: str
) -> None:
    base = history(3)[0][-1]
    retrained = before not in ("failed", "running")
    first = record(base.record.config, 2, "finished" if retrained else before)
    code = "0" if before == "other code" else "1"
    first.environment |= {"training_code": {"trainables": code}, "sweep": "this"}
    tracker = Tracker(uri)
    tracker.sync(dataclasses.replace(base, record=first, outcome="failed"))
    again = record(base.record.config, 3, "finished")
    again.environment["training_code"] = {"trainables": "1"}
    again.environment["sweep"] = "that" if before == "for another sweep" else "this"
    again.started_ms, again.ended_ms = STARTED - 3_600_000, STARTED - 3_500_000
    again.reports = [
        dataclasses.replace(r, timestamp_ms=again.started_ms + r.step) for r in again.reports
    ]
    retried = dataclasses.replace(base, record=again)
    said: list[str] = []
    sync_all(tracker, [retried], say=said.append)
    expected = Tracker(other_uri)
    expected.sync(retried)
    assert content(uri) == content(expected.uri)
    sync_all(Tracker(uri), [retried], say=said.append)
    assert "1 run created" in said[0]
    assert "0 runs created, 0 rows sent" in said[1]


def test_a_run_that_an_earlier_version_sent_is_made_anew(uri: str, other_uri: str) -> None:
    """Its metrics were others; the arms that name it as their baseline name the new one."""
    base, arm = history(3)[0][-1], history(3)[2][-1]
    tracker = Tracker(uri)
    first, run_id = tracker.sync(base), tracker.sync(arm)
    client = make_client(uri)
    client.log_metric(first, "descent/03_loss", 0.5)
    client.delete_tag(first, LAYOUT)
    assert not Tracker(uri).is_whole(SWEEP, base.signature)
    second = Tracker(uri).sync(base)
    assert second != first
    assert client.get_run(run_id).data.tags["unconstrained_run_id"] == second
    expected = Tracker(other_uri)
    for sent in (base, arm):
        expected.sync(sent)
    assert content(uri) == content(expected.uri)


def test_artifacts_of_a_final_arm_tell_how_its_layers_moved(uri: str, tmp_path: Path) -> None:
    running, finished = history(1)[0][0], history(1)[0][-1]
    tracker = Tracker(uri, str(tmp_path / "artifacts"))
    client = make_client(uri)
    run_id = tracker.sync(running)
    assert [a.path for a in client.list_artifacts(run_id)] == ["config.json"]
    tracker.sync(finished)
    path = client.download_artifacts(run_id, "trajectories.csv", str(tmp_path))
    assert Path(path).read_text() == trajectories_csv(finished.record)


def test_a_tag_that_is_empty_now_goes(uri: str) -> None:
    made = record(config(), 2)
    made.reports[0].scalars[results.TRAIN_LOSS] = math.inf
    run_id = Tracker(uri).sync(tracked(made))
    made.reports[0].scalars[results.TRAIN_LOSS] = 1.0
    made.environment.pop("commit")
    Tracker(uri).sync(tracked(made))
    tags = make_client(uri).get_run(run_id).data.tags
    assert "non_finite" not in tags
    assert "environment.commit" not in tags
    assert "created_ns" in tags


# --- experiments ----------------------------------------------------------------------------------


def test_sweeps_of_one_name_in_two_stores_have_an_experiment_each(uri: str) -> None:
    arm = history(1)[0][-1]
    ids = ("a" * 32, "b" * 32)
    runs = [Tracker(uri, sweep_id=number).sync(arm) for number in ids]
    assert len(set(runs)) == 2
    for number, run in zip(ids, runs, strict=True):
        assert Tracker(uri, sweep_id=number).sync(arm) == run
        assert run_ids(uri, SWEEP, number) == {arm.signature: run}
    with pytest.raises(TrackingError, match="no experiment"):
        run_ids(uri, SWEEP, "c" * 32)
    names = {e.name for e in make_client(uri).search_experiments()} - {"Default"}
    assert names == {SWEEP, f"{SWEEP} (bbbbbbbb)"}
    pages = {str(experiment_urls("http://host", uri, SWEEP, number)) for number in ids}
    assert len(pages) == 2


def test_an_experiment_in_the_trash_says_how_to_restore_it(uri: str) -> None:
    Tracker(uri).sync(history(1)[0][-1])
    client = make_client(uri)
    experiment = client.get_experiment_by_name(SWEEP)
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    with pytest.raises(TrackingError, match="mlflow experiments restore"):
        Tracker(uri).sync(history(1)[0][-1])
