"""One arm against the store: what it leaves, what it survives, and what becomes an outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sweep.study.pairs import ProposalResult, join
from sweep.study.selection import select
from tests.support.oracles import TINY
from tests.support.records import numbers
from trainables.arm_run import ArmRun
from trainables.build import build_model, build_task
from trainables.config.arm import ArmConfig
from trainables.errors import BadData, InvalidValue
from trainables.evaluation.measuring import measure
from trainables.memory import exhausted
from trainables.records import arm_record as results
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.retries import ARM_STARTS
from trainables.tasks.video_denoising import VideoDenoising
from trainables.training import Training, from_bytes

LITERAL = replace(TINY, model=replace(TINY.model, variant="sharp"))


@pytest.fixture
def store(tmp_path: Path) -> ArmStore:
    return ArmStore(ObjectStore(tmp_path))


def run(config: ArmConfig, store: ArmStore) -> ArmRecord:
    arm = ArmRun(config, store)
    while not arm.advance().is_final:
        pass
    return arm.record


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ArmRecord:
    """TINY, trained without a disturbance; to be read."""
    return run(TINY, ArmStore(ObjectStore(tmp_path_factory.mktemp("whole"))))


def test_a_finished_arm_reports_at_every_interval_and_leaves_no_checkpoint(store: ArmStore) -> None:
    assert store.unit_scores(TINY.signature()) is None
    record = run(TINY, store)
    assert record.status == "finished", record.reason
    assert [r.step for r in record.reports] == [10, 20, 30, 40]
    task = build_task(TINY, torch.device("cpu"), torch.float32)
    assert record.parameters == sum(p.numel() for p in build_model(TINY, task).parameters())
    assert store.record(record.signature) == record
    assert store.newest_checkpoint(record.signature) is None
    assert store.weights(record.signature)
    evaluation = record.evaluation
    assert evaluation is not None
    by_unit = store.unit_scores(record.signature)
    assert by_unit is not None
    assert by_unit.units == evaluation.dev_units
    assert np.array(evaluation.dev_losses).shape == (
        len(evaluation.dev_units),
        TINY.model.layers + 1,
    )
    assert list(evaluation.scores) == ["0.00", "0.15", "0.20", "0.25", "0.50"]
    assert evaluation.objective_gammas == [0.2, 0.25]
    # the identity's loss, measured on the draws, is what layer 0 of a denoiser shows
    assert evaluation.held_out_losses()[0] == pytest.approx(
        evaluation.reference_losses["identity"], rel=1e-6
    )
    expected = np.trapezoid(list(evaluation.scores.values()), [0.0, 0.15, 0.2, 0.25, 0.5])
    assert evaluation.ood_auc == pytest.approx(float(expected))
    assert evaluation.mean_over_gammas == pytest.approx(np.mean(list(evaluation.scores.values())))


# 12 steps an epoch, so that checkpoints fall into the middle of one
EPOCHS = TINY.with_fields(
    {
        "batch_size": 272,
        "data.max_clips": 4,
        "constraint.resilience": 0.3,
    }
)
KINDS = {
    "constrained": TINY,
    "unconstrained": TINY.unconstrained(),
    "a control": TINY.with_fields({"constraint.weights_by": "penalty", "constraint.penalty": 4}),
    "averaged weights": replace(TINY.unconstrained(), weight_ema=0.9),
    "every epoch": EPOCHS.with_fields({"constraint.dual_every_unit": "epoch", "weight_ema": 0.8}),
    "slack_restart, bound_zero, ratio": EPOCHS.with_fields(
        {
            "constraint.resilience_form": "slack_restart",
            "constraint.dual_optimizer": "adam",
            "constraint.reference": "bound_zero",
            "constraint.form": "ratio",
            "constraint.dual_every": 3,
            "constraint.warmup_steps": 25,
        }
    ),
}


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_an_arm_stopped_after_every_report_equals_one_never_stopped(
    tmp_path: Path, config: ArmConfig
) -> None:
    whole = run(config, ArmStore(ObjectStore(tmp_path / "whole")))
    pieces = ArmStore(ObjectStore(tmp_path / "pieces"))
    while not (record := ArmRun(config, pieces).advance()).is_final:
        pass
    assert numbers(record) == numbers(whole)


def test_an_arm_killed_between_checkpoint_and_record_loses_no_report(
    tmp_path: Path, whole: ArmRecord
) -> None:
    store = ArmStore(ObjectStore(tmp_path / "killed"))
    ArmRun(TINY, store).advance()
    stale = store.objects.get(f"arms/{TINY.signature()}/progress.json")
    assert stale is not None
    ArmRun(TINY, store).advance()  # the checkpoint of step 20 is there ...
    store.objects.put(f"arms/{TINY.signature()}/progress.json", stale)  # ... its record is not
    assert numbers(run(TINY, store)) == numbers(whole)


def test_time_between_two_drivers_is_idle_and_holds_no_machine(
    store: ArmStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    night_ms = 8 * 3_600_000
    ArmRun(TINY, store).advance()
    monkeypatch.setattr(time, "time_ns", lambda now=time.time_ns: now() + night_ms * 10**6)
    began_s = time.perf_counter()
    record = run(TINY, store)
    took_s = time.perf_counter() - began_s
    assert night_ms <= record.idle_ms <= night_ms + 60_000
    assert record.ended_ms - record.started_ms >= night_ms
    assert 0 < record.held_s < took_s + 60
    assert ArmRun(TINY, store).record.held_s == record.held_s


def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    tmp_path: Path, whole: ArmRecord
) -> None:
    store = ArmStore(ObjectStore(tmp_path / "damaged"))
    for _ in range(3):
        ArmRun(TINY, store).advance()
    newest = tmp_path / "damaged" / "arms" / TINY.signature() / "checkpoint-00000030.pt"
    newest.write_bytes(newest.read_bytes()[:-100])
    assert numbers(run(TINY, store)) == numbers(whole)


def test_a_final_record_is_never_replaced_and_never_trained_again(store: ArmStore) -> None:
    first = run(TINY, store)
    again = ArmRun(TINY, store)
    assert again.record.is_final
    assert again.advance() == first
    other = replace(first, status="failed", reason="late")
    assert store.put_record(other) == first
    assert store.record(TINY.signature()) == first


def test_both_arms_of_a_pair_are_judged_by_the_pairs_constraint(store: ArmStore) -> None:
    pair = join(run(TINY, store), run(TINY.unconstrained(), store))
    assert pair.judgement is not None
    assert pair.unconstrained_judgement is not None
    assert len(pair.judgement.held_out) == TINY.model.layers
    assert len(pair.unconstrained_judgement.held_out) == TINY.model.layers
    assert pair.unconstrained is not None
    ours, theirs = pair.constrained.evaluation, pair.unconstrained.evaluation
    assert ours is not None
    assert theirs is not None
    assert ours.references == theirs.references
    # same draws
    np.testing.assert_array_equal(
        np.array(ours.dev_losses)[:, 0], np.array(theirs.dev_losses)[:, 0]
    )
    assert pair.gains is not None
    assert pair.gains.mean_over_gammas == theirs.mean_over_gammas - ours.mean_over_gammas


def test_an_untrained_identity_network_is_infeasible_and_cannot_win(store: ArmStore) -> None:
    assert LITERAL.constraint is not None
    still = replace(LITERAL, steps=1, report_every=1, primal_lr=1e-12)
    pair = join(run(still, store), run(still.unconstrained(), store))
    assert pair.outcome == "infeasible"
    assert pair.judgement is not None
    # no descent; ReLU clips a little noise
    assert max(pair.judgement.held_out[1:]) == pytest.approx(1.0, abs=0.05)
    assert select("s", [ProposalResult(0, {}, (pair,))]).winner is None


def test_a_diverging_arm_is_an_outcome_with_advice(store: ArmStore) -> None:
    record = run(replace(TINY, primal_lr=1e30, grad_clip=1e30), store)
    assert record.status == "diverged"
    assert "primal_lr" in record.reason
    assert record.evaluation is None
    assert ArmRecord.from_json(record.to_json()).reports[-1].step == record.reports[-1].step
    assert join(record, None).outcome == "diverged"


BLANK = TINY.with_fields({"model.variant": "literal"})


def test_an_arm_that_cannot_come_to_anything_ends_as_stopped_with_advice(store: ArmStore) -> None:
    record = run(BLANK, store)
    assert record.status == "stopped"
    assert f"ended at step {record.reports[-1].step} of 40" in record.reason
    assert record.reports[-1].step < 40
    assert any(warning in record.reason for warning in record.warnings)
    assert record.evaluation is None
    assert store.newest_checkpoint(record.signature) is None
    assert store.weights(record.signature) is None
    assert join(record, None).outcome == "stopped"
    again = ArmRun(BLANK, store)
    assert again.advance() == record


def test_an_arm_that_may_not_stop_early_only_warns(store: ArmStore) -> None:
    record = run(replace(BLANK, early_stop=False), store)
    assert record.status == "finished"
    assert record.warnings


def test_a_stopped_arm_that_was_killed_stops_at_the_same_report(tmp_path: Path) -> None:
    whole = run(BLANK, ArmStore(ObjectStore(tmp_path / "whole")))
    pieces = ArmStore(ObjectStore(tmp_path / "pieces"))
    while not (record := ArmRun(BLANK, pieces).advance()).is_final:
        pass
    assert numbers(record) == numbers(whole)


@pytest.mark.parametrize("config", [TINY, TINY.unconstrained()], ids=["ours", "theirs"])
def test_the_averaged_weights_are_what_is_reported_evaluated_and_kept(
    store: ArmStore, config: ArmConfig
) -> None:
    averaged, last = replace(config, weight_ema=0.9), run(config, store)
    record = run(averaged, store)
    evaluation = record.evaluation
    assert evaluation is not None
    assert last.evaluation is not None
    # the training is the same, what is measured of it is not
    assert [r.scalars[results.TRAIN_LOSS] for r in record.reports] == [
        r.scalars[results.TRAIN_LOSS] for r in last.reports
    ]
    assert record.reports[-1].layers["losses"] != last.reports[-1].layers["losses"]
    assert evaluation.held_out_losses() != last.evaluation.held_out_losses()
    device = torch.device("cpu")
    task = build_task(averaged, device, torch.float32)
    model = build_model(averaged, task).float()
    content = store.weights(record.signature)
    assert content is not None
    model.load_state_dict(from_bytes(content, device)["model"])
    found = measure(model, task, "dev", averaged.train_gamma, averaged.eval_draws).units
    np.testing.assert_array_equal(found, evaluation.dev_losses)
    reported = measure(model, task, "dev", averaged.train_gamma, 1).units.mean(axis=0)
    np.testing.assert_array_equal(
        record.reports[-1].layers["losses"], reported / task.scales.constant_loss
    )


def test_with_bound_zero_every_series_has_a_layer_0(store: ArmStore) -> None:
    record = run(TINY.with_fields({"constraint.reference": "bound_zero"}), store)
    assert record.evaluation is not None
    assert len(record.evaluation.multipliers) == TINY.model.layers + 1
    for series in ("missing_shares", "multipliers", "slacks"):
        assert list(record.reports[-1].by_layer(series)) == [0, 1, 2, 3]
    # the input's loss on fresh draws against its own expectation: the bound is f0 = 1 x identity
    shares = record.reports[-1].by_layer("missing_shares")
    assert shares[0] == pytest.approx(0.0, abs=1.0)
    pair = join(record, run(TINY.unconstrained(), store))
    assert pair.judgement is not None
    assert pair.unconstrained_judgement is not None
    assert len(pair.judgement.held_out) == len(pair.unconstrained_judgement.held_out) == 4


def test_a_broken_arm_is_a_failed_outcome_that_names_the_reason(
    store: ArmStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise InvalidValue("no such thing as 7 layers")

    monkeypatch.setattr("trainables.begun_arm.build_model", broken)
    record = run(TINY, store)
    assert record.status == "failed"
    assert record.reason == "no such thing as 7 layers"


def test_data_that_a_machine_lacks_are_no_outcome_of_an_arm(store: ArmStore) -> None:
    missing = replace(TINY, data=replace(TINY.data, name="ucsd_ped2", folder="/nowhere/at/all"))
    with pytest.raises(BadData, match="/nowhere/at/all"):
        run(missing, store)
    assert store.record(missing.signature()) is None


ALLOCATIONS = {
    "torch": lambda: torch.empty(2**60, dtype=torch.uint8),
    "numpy": lambda: np.empty(2**60, dtype=np.uint8),
    "python": lambda: bytearray(2**60),
}


@pytest.mark.parametrize("allocate", ALLOCATIONS.values(), ids=ALLOCATIONS)
def test_too_little_memory_is_a_failed_outcome_with_advice(
    store: ArmStore, monkeypatch: pytest.MonkeyPatch, allocate: Callable[[], Any]
) -> None:
    monkeypatch.setattr(Training, "run_to", lambda *_: allocate())
    record = run(TINY, store)
    assert record.status == "failed"
    assert record.reason.startswith("out of CPU memory (")
    assert "lower batch_size" in record.reason
    assert run(TINY, store) == record  # it is not tried again


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: out of memory"),
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    ],
)
def test_every_word_for_a_full_gpu_is_known(error: Exception) -> None:
    assert exhausted(error) == "GPU"


@pytest.mark.parametrize(
    "error",
    [RuntimeError("the size of tensor a must match"), OSError(28, "No space left"), KeyError()],
)
def test_other_errors_are_not_taken_for_too_little_memory(error: Exception) -> None:
    assert exhausted(error) is None


def test_weights_that_cannot_be_stored_leave_no_measurement_behind(
    store: ArmStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "put_weights", lambda *_: {}[1])
    record = run(TINY, store)
    assert (record.status, record.evaluation) == ("failed", None)


def test_an_arm_that_keeps_dying_without_a_newer_checkpoint_fails(store: ArmStore) -> None:
    for _ in range(ARM_STARTS):
        assert store.count_attempt(TINY.signature(), -1) <= ARM_STARTS
    record = ArmRun(TINY, store).advance()
    assert record.status == "failed"
    assert "--retry-failed" in record.reason


def test_progress_resets_the_count_of_deaths(store: ArmStore) -> None:
    for _ in range(ARM_STARTS - 1):
        store.count_attempt(TINY.signature(), -1)
    ArmRun(TINY, store).advance()  # the fifth start writes a newer checkpoint
    assert ArmRun(TINY, store).advance().status == "running"
    assert run(TINY, store).status == "finished"


def test_a_blank_network_is_warned_about(store: ArmStore) -> None:
    literal = replace(TINY, model=replace(TINY.model, variant="literal"), primal_lr=0.3)
    assert any("blank" in w or "unchanged input" in w for w in run(literal, store).warnings)


@pytest.mark.parametrize("stopped_after", [2, 4], ids=["running", "finished"])
def test_an_arm_whose_record_is_damaged_is_trained_again(
    tmp_path: Path, stopped_after: int, whole: ArmRecord
) -> None:
    store = ArmStore(ObjectStore(tmp_path / "damaged"))
    for _ in range(stopped_after):
        ArmRun(TINY, store).advance()
    kind = "progress.json" if stopped_after == 2 else "record.json"
    path = tmp_path / "damaged" / "arms" / TINY.signature() / kind
    path.write_bytes(path.read_bytes()[:-1])
    assert numbers(run(TINY, store)) == numbers(whole)


def test_an_arm_killed_after_its_final_record_leaves_no_checkpoint(
    store: ArmStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ArmStore, "drop_training", killed)
        with pytest.raises(KeyboardInterrupt):
            run(TINY, store)
    assert store.newest_checkpoint(TINY.signature()) is not None
    assert ArmRun(TINY, store).record.is_final
    assert store.newest_checkpoint(TINY.signature()) is None


def test_an_arm_that_starts_again_removes_what_was_half_written(
    store: ArmStore, tmp_path: Path
) -> None:
    ArmRun(TINY, store).advance()
    half = tmp_path / "arms" / TINY.signature() / ".checkpoint-00000020.pt.0123456789abcdef.tmp"
    half.write_bytes(b"half")
    ArmRun(TINY, store).advance()
    assert not half.exists()


def test_the_final_result_of_a_confirmation_is_of_every_unit_of_the_test_split(
    tmp_path: Path, whole: ArmRecord
) -> None:
    on_dev = whole
    config = replace(TINY, measured_on="test")
    store = ArmStore(ObjectStore(tmp_path / "test"))
    on_test = run(config, store)
    ours, theirs = numbers(on_test), numbers(on_dev)
    assert ours["reports"] == theirs["reports"]  # training and its reports know dev alone
    assert ours["warnings"] == theirs["warnings"]
    assert on_test.evaluation is not None
    assert on_dev.evaluation is not None
    assert (on_dev.evaluation.split, on_test.evaluation.split) == ("dev", "test")
    task = build_task(config, torch.device("cpu"), torch.float32)
    assert isinstance(task, VideoDenoising)
    units = on_test.evaluation.dev_units
    assert units == list(task.units("test", 10**6))
    assert len(units) > TINY.eval_windows
    scores = store.unit_scores(on_test.signature)
    assert scores is not None
    assert (scores.split, scores.units) == ("test", units)
    assert on_test.evaluation.references == task.references("test").metrics
    assert on_test.evaluation.references != on_dev.evaluation.references
    assert on_test.evaluation.train_losses == on_dev.evaluation.train_losses
    # of a model that returns its input both would be equal: references and layer 0 share draws
    assert on_test.evaluation.held_out_losses()[0] == pytest.approx(
        on_test.evaluation.reference_losses["identity"], rel=1e-6
    )
