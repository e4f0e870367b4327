"""A warm-up in epochs, gradients as they are, and windows as what an epoch visits."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.effects.by_effect import effect_of
from sweep.confirmation.controls import CONTROLS, Searched
from sweep.cost.timed_steps import step_times
from tests.support.oracles import TINY
from trainables.arm_run import ArmRun
from trainables.config.arm import ArmConfig
from trainables.errors import InvalidValue
from trainables.primal_dual.schedule import in_steps
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

RUN = TINY.with_fields(
    {"batch_size": 1024, "steps": 24, "report_every": 4, "early_stop": False}
)  # an epoch is 6 steps


def record_of(config: ArmConfig, folder: Path) -> ArmRecord:
    run = ArmRun(config, ArmStore(ObjectStore(folder)))
    while not run.record.is_final:
        run.advance()
    return run.record


def numbers(record: ArmRecord) -> object:
    assert record.evaluation is not None
    layers = [report.layers for report in record.reports]
    return layers, record.evaluation.dev_losses, record.evaluation.multipliers


def test_a_warm_up_in_epochs_is_as_many_steps(tmp_path: Path) -> None:
    run = RUN.with_fields({"report_every": 1, "constraint.warmup_steps": 1})
    with_epochs = record_of(run.with_fields({"constraint.warmup_epochs": 3}), tmp_path)
    steps = 3 * with_epochs.steps_per_epoch + 1
    assert 1 < steps < RUN.steps
    in_steps = record_of(run.with_fields({"constraint.warmup_steps": steps}), tmp_path)
    assert numbers(with_epochs) == numbers(in_steps)
    assert with_epochs.signature != in_steps.signature
    without = record_of(run, tmp_path)
    assert numbers(in_steps) != numbers(without)
    # too few reports follow the warm-up to say anything of the multipliers
    assert with_epochs.warnings == in_steps.warnings != without.warnings


def test_a_warm_up_longer_than_the_run_is_refused(tmp_path: Path) -> None:
    record = record_of(RUN.with_fields({"constraint.warmup_epochs": 4}), tmp_path)
    assert record.status == "failed"
    said = "warmup_epochs must be at most 3 in a run of 24 steps, 6 an epoch, got 4"
    assert said in record.reason


def test_what_steps_cost_is_known_without_the_data() -> None:
    config = RUN.with_fields({"constraint.warmup_epochs": 1})
    assert in_steps(config, 0) == RUN
    assert step_times(config, 0.1)


def test_a_range_by_effect_cannot_count_epochs() -> None:
    config = TINY.with_fields({"constraint.warmup_epochs": 1})
    with pytest.raises(InvalidValue, match=r"LogReach range .* needs warmup_epochs 0, got 1"):
        effect_of(config, "constraint.dual_lr", 0.1)


def test_weights_are_replayed_without_the_epochs_of_the_warm_up(tmp_path: Path) -> None:
    both = []
    epochs = record_of(RUN.with_fields({"constraint.warmup_epochs": 1}), tmp_path)
    steps = RUN.with_fields({"constraint.warmup_steps": epochs.steps_per_epoch})
    for record in (epochs, record_of(steps, tmp_path)):
        fields = CONTROLS["replayed_weights"].fields(Searched(record.config, record))
        assert fields is not None
        both.append(fields["constraint.replayed_weights"])
    assert both[0] == both[1]


def test_no_clipping_is_clipping_at_no_norm(tmp_path: Path) -> None:
    free = record_of(RUN.with_fields({"grad_clip": None}), tmp_path)
    wide = record_of(RUN.with_fields({"grad_clip": 1e30}), tmp_path)
    assert numbers(free) == numbers(wide)
    tight = record_of(RUN.with_fields({"grad_clip": 1e-6, "primal_lr": 1e-2}), tmp_path)
    assert numbers(free) != numbers(tight)
