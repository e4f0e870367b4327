"""Tracking in a real SQLite file, and on a real MLflow server that goes away and comes back."""

import dataclasses
import json
import math
import pickle
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sweep.background_tracker import BackgroundTracker
from sweep.definition import load_definition
from sweep.tracking import Tracker, sync_all
from sweep.tracking_client import make_client, run_ids
from sweep.tracking_place import (
    TrackingError,
    known_id,
    place_of,
    remember_place,
    sweep_id,
    tracking_uri,
)
from sweep.tracking_rows import TrackedArm, final_rows, report_rows, run_name
from sweep.tracking_ui import experiment_url, ui_command
from tests.drivers import wait_until
from tests.mlflow_servers import Server, free_port, rows_of
from tests.mlflow_servers import content as content_of
from tests.sweeps import store_sweep
from trainables import results
from trainables.config import ConstraintConfig, RunConfig
from trainables.errors import Misuse
from trainables.object_store import ObjectStore
from trainables.primal_dual import Scales
from trainables.results import ArmRecord, Evaluation, Report

SWEEP = "lab-3"
LAYERS = 3
STARTED = 1_700_000_000_000
PAIR = {"pair/difference_ood_mean": -0.25, results.WORST_MISSING_SHARE: 0.04, results.FEASIBLE: 1.0}


def report(step: int, shift: float = 0.0, constrained: bool = True) -> Report:
    scalars = {results.TRAIN_LOSS: 1.0 / step + shift, results.HELD_OUT_LOSS: 0.5}
    layers = {"losses": [1.0, 0.8, 0.7, 0.5 + shift]}
    if constrained:
        scalars[results.REPORTED_MISSING_SHARE] = 0.2
        layers |= {"violations": [0.1, 0.0, -0.1], "multipliers": [0.0, 0.5, 0.25]}
    return Report(step=step, timestamp_ms=STARTED + 10 * step, scalars=scalars, layers=layers)


def evaluation() -> Evaluation:
    losses = [[2.0, 1.6, 1.2, 0.8], [2.0, 1.2, 1.0, 0.6]]
    return Evaluation(
        scales=Scales(constant_loss=2.0, identity_loss=1.0),
        dev_units=["a", "b"],
        dev_losses=losses,
        train_units=["c", "d"],
        train_losses=losses,
        scores={"0.00": 0.1, "0.15": 0.2, "0.30": 0.4},
        layer_losses_by_gamma={"0.15": losses[0]},
        references={"identity": {"0.00": 0.0, "0.15": 0.5, "0.30": 0.9}},
        reference_losses={"identity": 1.0},
        ood_auc=0.07,
        ood_mean=0.23,
        objective=0.3,
        objective_gammas=[0.3],
        descent_ratio_quantiles=[[0.5] * 21] * LAYERS,
        descent_share=[0.9] * LAYERS,
        multipliers=[0.0, 0.5, 0.25],
    )


def config(seed: int = 0, alpha: float | None = 0.1) -> RunConfig:
    constraint = None if alpha is None else ConstraintConfig(alpha=alpha)
    return RunConfig(seed=seed, constraint=constraint)


def record(run: RunConfig, n_reports: int = 3, status: results.Status = "running") -> ArmRecord:
    constrained = run.constraint is not None
    made = ArmRecord(
        signature=run.signature(),
        config=run,
        status=status,
        reason="" if status in ("running", "finished") else f"it {status}",
        started_ms=STARTED,
        reports=[report(100 * (i + 1), constrained=constrained) for i in range(n_reports)],
        environment={"commit": "abc", "dirty": False, "packages": {"torch": "2.13.0"}, "gpu": None},
    )
    if made.is_final:
        made.ended_ms = STARTED + 60_000
        made.evaluation = evaluation() if status == "finished" else None
    return made


def tracked(made: ArmRecord, proposal: int | None = 0, **changes: Any) -> TrackedArm:
    constrained = made.config.constraint is not None
    return TrackedArm(
        record=made,
        sweep=SWEEP,
        setting="ut_l3_g015",
        proposal=proposal if constrained else None,
        unconstrained_signature=made.config.unconstrained().signature() if constrained else None,
        **({"outcome": made.status} | changes),
    )


def history(n_arms: int) -> list[list[TrackedArm]]:
    """For each arm the states that a driver offers: running, finished, joined into its pair."""
    runs = [
        config(seed=i % 2, alpha=None if i < 2 else round(0.1 + 0.01 * i, 2)) for i in range(n_arms)
    ]
    states = []
    for number, run in enumerate(runs):
        offered = [tracked(record(run, n), number) for n in (1, 2)]
        offered.append(tracked(record(run, 3, "finished"), number))
        if run.constraint is not None:
            offered.append(dataclasses.replace(offered[-1], pair=PAIR, outcome="feasible"))
        states.append(offered)
    return states


def content(uri: str) -> dict[str, Any]:
    return content_of(uri, SWEEP)


def assert_each_row_once(everything: dict[str, Any]) -> None:
    for signature, run in everything.items():
        if signature != "kind":
            points = [(key, step) for key, _, _, step in run["rows"]]
            assert len(points) == len(set(points)), signature


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without an experiment of ours: creating one takes a second, copying it nothing."""
    folder = tmp_path_factory.mktemp("empty")
    make_client(tracking_uri(str(folder))).get_experiment_by_name(SWEEP)
    return folder / "mlflow.db"


@pytest.fixture
def uri(tmp_path: Path, empty_database: Path) -> str:
    shutil.copy(empty_database, tmp_path)
    return tracking_uri(str(tmp_path))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What twelve arms look like on a database that was never away."""
    place = tracking_uri(str(tmp_path_factory.mktemp("undisturbed")))
    tracker = Tracker(place)
    for offered in history(12):
        for arm in offered:
            tracker.sync(arm)
    return content(place)


# --- what a run holds ---------------------------------------------------------------------------


def test_importing_tracking_does_not_import_mlflow() -> None:
    modules = "sweep.tracking, sweep.tracking_rows, sweep.tracking_ui, sweep.background_tracker"
    check = f"import sys, {modules}; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


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
        "phase": "selection",
        "signature": arm.signature,
        "outcome": "feasible",
        "status": "finished",
        "unconstrained_run_id": base_id,
        "environment.packages.torch": "2.13.0",
    }
    assert expected.items() <= run.data.tags.items()
    assert "mlflow.parentRunId" not in run.data.tags
    assert "environment.gpu" not in run.data.tags
    assert run.info.run_name == run_name(arm) == "p02 s0 ut_l3_g015 constrained"
    assert (run.info.status, run.info.start_time) == ("FINISHED", STARTED)
    assert run.info.end_time == arm.record.ended_ms
    assert run.data.params["constraint.alpha"] == "0.12"
    assert run.data.params["model.layers"] == "3"
    assert "data.folder" not in run.data.params
    assert run.data.metrics[results.OBJECTIVE] == 0.3
    assert run.data.metrics["ood/at_gamma_0.15"] == 0.2
    assert run.data.metrics["pair/difference_ood_mean"] == -0.25


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
    assert run.info.run_name == "base s0 ut_l3_g015 unconstrained"


def test_a_baseline_of_many_pairs_is_one_run_that_all_of_them_name(
    undisturbed: dict[str, Any],
) -> None:
    arms = {s: run for s, run in undisturbed.items() if s != "kind"}
    twins = [run["tags"].get("unconstrained_run_id") for run in arms.values()]
    for seed in (0, 1):
        assert twins.count(config(seed, None).signature()) == 5
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
    run_id = Tracker(uri).sync(arm)
    client = make_client(uri)
    path = client.download_artifacts(run_id, "config.json", str(tmp_path))
    assert RunConfig.from_json(json.loads(Path(path).read_text())) == arm.record.config
    assert (
        "sweep run config.json --fresh" in client.get_run(run_id).data.tags["mlflow.note.content"]
    )


def test_a_long_history_arrives_whole(uri: str) -> None:
    made = record(config(), 0, "finished")
    made.reports = [report(step) for step in range(1, 151)]  # several requests
    arm = tracked(made, pair=PAIR)
    run_id = Tracker(uri).sync(arm)
    assert len(rows_of(uri, run_id)) == len(report_rows(made, -1)) + len(final_rows(arm)) > 1600


def test_the_summary_run_counts_outcomes_by_setting(uri: str) -> None:
    tracker = Tracker(uri)
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


# --- exactly once -------------------------------------------------------------------------------


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
    assert "pair/difference_ood_mean" not in make_client(uri).get_run(run_id).data.metrics
    sent = tracker.rows_sent
    tracker.sync(joined)
    assert tracker.rows_sent - sent == len(PAIR)
    assert make_client(uri).get_run(run_id).data.tags["outcome"] == "feasible"
    assert_each_row_once(content(uri))


def test_a_twin_that_is_tracked_later_is_named_then(uri: str) -> None:
    base, arm = history(3)[0][-1], history(3)[2][-1]
    tracker = Tracker(uri)
    run_id = tracker.sync(arm)
    base_id = tracker.sync(base)
    assert make_client(uri).get_run(run_id).data.tags["unconstrained_run_id"] == base_id


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


def test_a_run_deleted_in_the_ui_is_made_again(uri: str) -> None:
    running, finished = history(1)[0][0], history(1)[0][-1]
    tracker = Tracker(uri)
    first = tracker.sync(running)
    make_client(uri).delete_run(first)
    assert tracker.sync(finished) != first
    expected = Tracker(f"{uri}.other")
    expected.sync(finished)
    assert content(uri) == content(expected.uri)


def test_a_new_empty_server_ends_up_with_the_same_content(
    undisturbed: dict[str, Any], uri: str
) -> None:
    said: list[str] = []
    arms = [offered[-1] for offered in history(12)]
    counts = sync_all(Tracker(uri), reversed(arms), say=said.append)
    assert content(uri) == undisturbed
    assert (counts.arms, counts.created) == (12, 12)
    assert said == [f"12 arms at {uri}: 12 runs created, {counts.rows} rows sent"]
    assert sync_all(Tracker(uri), arms, say=said.append)[1:] == (0, 0)


def test_an_arm_trained_once_more_has_one_run_that_shows_nothing_of_the_first_attempt(
    uri: str,
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
    expected = Tracker(f"{uri}.other")
    for sent in (retried, arm):
        expected.sync(sent)
    assert content(uri) == content(expected.uri)  # asserts one active run per arm
    tracker.sync(dataclasses.replace(base, record=failed))  # an older state, late
    assert content(uri) == content(expected.uri)


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


# --- finding things -----------------------------------------------------------------------------


def test_run_ids_by_signature(uri: str, tmp_path: Path) -> None:
    nowhere = tracking_uri(str(tmp_path / "nowhere"))
    assert run_ids(nowhere, SWEEP) == ({}, f"nothing is tracked at {nowhere} yet.")
    assert not (tmp_path / "nowhere").exists()
    arms = [offered[-1] for offered in history(3)]
    tracker = Tracker(uri)
    ids = {arm.signature: tracker.sync(arm) for arm in arms}
    tracker.sync_sweep_summary(SWEEP, definition={}, outcomes={}, started_ms=STARTED)
    assert run_ids(uri, SWEEP) == (ids, "")
    assert "no experiment of 'other'" in run_ids(uri, "other").reason


def test_a_server_that_is_away_is_a_reason_not_an_error() -> None:
    ids, reason = run_ids(f"http://127.0.0.1:{free_port()}", SWEEP)
    assert ids == {}
    assert "could not be reached" in reason


def test_the_url_shows_arms_as_charts_sorted_by_objective(uri: str) -> None:
    Tracker(uri).sync(history(1)[0][-1])
    url = experiment_url("http://127.0.0.1:5000/", uri, SWEEP)
    assert url.startswith("http://127.0.0.1:5000/#/experiments/1/runs?searchFilter=tags.kind%20%3D")
    assert "orderByKey=metrics.%60ood%2Fobjective%60&orderByAsc=true&compareRunsMode=CHART" in url
    with pytest.raises(TrackingError, match="sweep sync other"):
        experiment_url("http://127.0.0.1:5000/", uri, "other")


def test_where_arms_are_tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracking_uri(str(tmp_path)) == f"sqlite:///{tmp_path}/mlflow.db"
    with pytest.raises(Misuse, match="--mlflow or MLFLOW_TRACKING_URI"):
        tracking_uri("s3://bucket/sweeps")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host:5000")
    assert tracking_uri("s3://bucket/sweeps") == "http://host:5000"
    assert tracking_uri("s3://bucket/sweeps", "http://other:1") == "http://other:1"
    with pytest.raises(Misuse, match="plain folders"):
        tracking_uri(str(tmp_path), "./mlruns")


@pytest.mark.parametrize(
    "uri",
    ["http://me:secret@host:5000", "postgresql://me:secret@host/db", "mysql://h/d?password=secret"],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(Misuse, match="without a password") as refused:
        tracking_uri("/root", uri)
    assert "secret" not in str(refused.value)
    assert "MLFLOW_TRACKING_PASSWORD" in str(refused.value)
    assert tracking_uri("/root", "http://me@host:5000") == "http://me@host:5000"


@pytest.mark.parametrize("name", ["what?mode=memory", "50%20"])
def test_a_root_that_would_lead_the_database_elsewhere_is_refused(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(Misuse, match=r"without '\?' and '%'"):
        tracking_uri(str(tmp_path / name))
    assert tracking_uri(str(tmp_path / name), "http://host:5000") == "http://host:5000"


def test_the_address_last_used_is_found_in_another_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = ObjectStore(tmp_path)
    definition = store_sweep(objects, {})
    below = place_of(objects, definition)
    assert below == tracking_uri(objects.root)
    remember_place(objects, "tiny", below)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host:5000")
    assert place_of(objects, definition) == "http://host:5000"  # what lies below is no choice
    remember_place(objects, "tiny", place_of(objects, definition))
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert place_of(objects, definition) == "http://host:5000"
    assert place_of(objects, definition, "http://other:1") == "http://other:1"
    assert load_definition(objects, "tiny") == definition  # a place is no part of what it is


def test_sweeps_of_one_name_in_two_stores_have_an_experiment_each(uri: str) -> None:
    arm = history(1)[0][-1]
    ids = ("a" * 32, "b" * 32)
    runs = [Tracker(uri, sweep_id=number).sync(arm) for number in ids]
    assert len(set(runs)) == 2
    for number, run in zip(ids, runs, strict=True):
        assert Tracker(uri, sweep_id=number).sync(arm) == run
        assert run_ids(uri, SWEEP, number).ids == {arm.signature: run}
    assert "no experiment" in run_ids(uri, SWEEP, "c" * 32).reason
    names = {e.name for e in make_client(uri).search_experiments()} - {"Default"}
    assert names == {SWEEP, f"{SWEEP} (bbbbbbbb)"}
    pages = {experiment_url("http://host", uri, SWEEP, number) for number in ids}
    assert len(pages) == 2


def test_a_sweep_keeps_its_id(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    assert known_id(objects, SWEEP) is None
    first = sweep_id(objects, SWEEP)
    assert first == sweep_id(objects, SWEEP) == known_id(objects, SWEEP)
    assert first != sweep_id(objects, "other")


def test_a_server_is_its_own_ui() -> None:
    with pytest.raises(Misuse, match="open it in a browser"):
        ui_command("http://host:5000", None, 5001)


def test_an_experiment_in_the_trash_says_how_to_restore_it(uri: str) -> None:
    Tracker(uri).sync(history(1)[0][-1])
    client = make_client(uri)
    experiment = client.get_experiment_by_name(SWEEP)
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    with pytest.raises(TrackingError, match="mlflow experiments restore"):
        Tracker(uri).sync(history(1)[0][-1])


def test_a_tracker_travels_as_its_address(uri: str) -> None:
    tracker = Tracker(uri)
    tracker.sync(history(1)[0][0])
    again = pickle.loads(pickle.dumps(tracker))
    assert again.sync(history(1)[0][-1])
    with pytest.raises(TypeError, match="create it after"):
        pickle.dumps(BackgroundTracker(tracker))


# --- in the background --------------------------------------------------------------------------


def test_the_newest_state_wins_in_the_background(uri: str, undisturbed: dict[str, Any]) -> None:
    warnings: list[str] = []
    background = BackgroundTracker(Tracker(uri), warn=warnings.append)
    for offered in history(12):
        for arm in offered:
            background.offer(arm)
    assert background.close(60) == []
    assert warnings == []
    assert content(uri) == undisturbed


def test_a_running_arms_reports_wait_to_go_together_and_its_end_does_not(uri: str) -> None:
    first, *held, final = history(1)[0]
    background = BackgroundTracker(Tracker(uri), pace_s=3600)
    background.offer(first)
    wait_until(lambda: not background.behind())
    for arm in held:
        background.offer(arm)
    other = history(2)[1][0]
    background.offer(other)  # whoever is due is not held up
    wait_until(lambda: other.signature not in background.behind())
    assert background.behind() == [first.signature]
    background.offer(final)
    wait_until(lambda: not background.behind())
    assert background.close(60) == []


def test_closing_sends_what_waits_its_turn(uri: str) -> None:
    first, *_, final = history(1)[0]
    later = dataclasses.replace(final, record=dataclasses.replace(final.record, status="running"))
    background = BackgroundTracker(Tracker(uri), pace_s=3600)
    background.offer(first)
    wait_until(lambda: not background.behind())
    background.offer(later)
    assert background.close(60) == []
    run_id = run_ids(uri, SWEEP).ids[first.signature]
    newest = make_client(uri).get_metric_history(run_id, results.HELD_OUT_LOSS)
    assert max(row.step for row in newest) == final.record.reports[-1].step


def test_closing_without_a_server_says_who_is_behind() -> None:
    warnings: list[str] = []
    away = Tracker(f"http://127.0.0.1:{free_port()}")
    background = BackgroundTracker(away, first_wait_s=0.1, longest_wait_s=0.2, warn=warnings.append)
    arms = [offered[-1] for offered in history(5)]
    for arm in arms:
        background.offer(arm)
    wait_until(lambda: bool(warnings))
    assert sorted(background.close(0.1)) == sorted(arm.signature for arm in arms)
    assert len(warnings) == 1
    assert f"sweep sync {SWEEP}" in warnings[0]
    assert "nothing is lost" in warnings[0]


def test_what_mlflow_refuses_holds_up_nobody_else(uri: str) -> None:
    warnings: list[str] = []
    arms = [offered[-1] for offered in history(4)]
    arms[0].record.reports[0].scalars["no such/name?!"] = 1.0
    background = BackgroundTracker(
        Tracker(uri), first_wait_s=0.01, longest_wait_s=0.1, warn=warnings.append
    )
    for arm in arms:
        background.offer(arm)
    wait_until(lambda: background.behind() == [arms[0].signature])
    assert background.close(0.1) == [arms[0].signature]
    assert len(warnings) == 1
    assert set(run_ids(uri, SWEEP).ids) >= {arm.signature for arm in arms[1:]}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_away_for_the_middle_third_ends_up_as_if_it_never_was(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    server = Server(tmp_path)
    warnings: list[str] = []
    background = BackgroundTracker(
        Tracker(server.uri), first_wait_s=0.2, longest_wait_s=1.0, warn=warnings.append
    )
    arms = history(12)
    try:
        server.start()
        for third in range(3):
            if third == 1:
                wait_until(lambda: not background.behind())
                server.stop()
            if third == 2:
                assert len(background.behind()) == 4
                server.start()
            for offered in arms[4 * third : 4 * third + 4]:
                for arm in offered:
                    background.offer(arm)
            if third == 1:
                wait_until(lambda: len(warnings) == 1)
        wait_until(lambda: not background.behind())
        assert background.close(60) == []
        assert content(server.uri) == undisturbed
        assert len(warnings) == 2
        assert "sweep sync" in warnings[0]
        assert "is back" in warnings[1]
        again = Tracker(server.uri)
        sync_all(again, [offered[-1] for offered in arms], say=warnings.append)
        assert (again.created, again.rows_sent) == (0, 0)
        assert len(run_ids(server.uri, SWEEP).ids) == 12
    finally:
        server.stop()
