"""Controls: their fields, from the constrained run beside which they train."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from search_spaces import catalog
from sweep.confirmation.chosen import tuning_of
from sweep.confirmation.controls import CONTROLS, Fields, Searched
from sweep.study.definition import Definition
from trainables.config.arm import ArmConfig, ConstraintConfig, ModelConfig
from trainables.records.arm_record import ArmRecord, Report

EVERY_STEP = [[0.0, 0.0, 1.0]] * 4 + [[0.0, 0.5, 1.0], [0.0, -0.25, 1.5], [0.0, 0.5, 2.0]]


def searched(ends: list[int], warmup: int) -> Searched:
    """A run with these weights at its steps, reported at the ends of these parts."""
    config = ArmConfig(
        model=ModelConfig(layers=2), steps=7, constraint=ConstraintConfig(warmup_steps=warmup)
    )
    parts = zip([0, *ends], ends, strict=False)
    means = [np.mean(EVERY_STEP[first:end], axis=0).tolist() for first, end in parts]
    reports = [
        Report(step=end, timestamp_ms=0, layers={"weights": mean})
        for end, mean in zip(ends, means, strict=True)
    ]
    return Searched(config, ArmRecord(config=config, signature="s", reports=reports))


@pytest.mark.parametrize("warmup", [0, 4])
@pytest.mark.parametrize("ends", [[7], [3, 6, 7], [1, 5, 7]])
def test_replayed_weights_are_the_mean_over_the_steps_after_the_warm_up(
    ends: list[int], warmup: int
) -> None:
    fields = CONTROLS["replayed_weights"].fields(searched(ends, warmup))
    assert fields is not None
    expected = np.mean(EVERY_STEP[warmup:], axis=0)
    np.testing.assert_allclose(fields["constraint.replayed_weights"], expected, rtol=1e-12)


@pytest.mark.parametrize(("ends", "warmup"), [([], 0), ([3], 4)])
def test_a_run_without_constrained_steps_has_no_weights_to_replay(
    ends: list[int], warmup: int
) -> None:
    assert CONTROLS["replayed_weights"].fields(searched(ends, warmup)) is None


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize(
    "point",
    [
        {"constraint.warmup_steps": 6},
        {"constraint.weights_by": "deep_supervision", "constraint.supervision": 0.3},
        {"constraint.weights_by": "penalty", "constraint.penalty": 3.0},
    ],
    ids=["warm-up", "deep supervision", "penalty"],
)
def test_a_control_can_be_trained_beside_every_point(control: str, point: Fields) -> None:
    """Also for an eighth of its steps, which ``tuned_plain`` tries."""
    found = searched([7], 0)
    config = found.config.with_fields({"steps": 8, **point})
    fields = CONTROLS[control].fields(replace(found, config=config))
    if fields is None:
        return
    trained = config.with_fields(fields)
    assert trained.constraint is not None
    if trained.constraint.weights_by == "last_layer":
        trained = trained.with_fields({"steps": 1})
    assert trained.steps <= 8


def test_drawn_layers_have_no_penalty_of_their_whole_losses() -> None:
    found = searched([7], 0)
    drawn = catalog.find("alpaca_small").space.base.with_fields(
        {
            "constraint.form": "difference",
            "constraint.dual_signal": "violation",
            "constraint.inner_layers": 1,
        }
    )
    assert CONTROLS["penalty"].fields(replace(found, config=drawn)) is None


def test_a_control_is_tuned_without_the_warm_up_of_any_setting() -> None:
    """Its tries of an eighth of the steps would be refused one by one."""
    quick = catalog.find("quickstart").space
    first, second = quick.settings
    warm = replace(second, fields={**second.fields, "constraint.warmup_steps": 300})
    search = Definition("q", replace(quick, settings=(first, warm)))
    tuning = tuning_of(search, "tuned_plain", {s.name: {} for s in quick.settings})
    assert tuning is not None
    space = tuning.space
    fewest = min(space.ranges["steps"].values)  # type: ignore[union-attr]
    for setting in space.settings:
        point = {**space.default_point(setting), "steps": fewest, "report_every": 1}
        assert space.base.with_fields({**setting.fields, **point}).steps == fewest


def test_a_control_that_a_network_has_not_is_not_tuned() -> None:
    space = catalog.find("quickstart").space
    search = Definition("q", space.with_base({"accumulate": 2}))
    assert tuning_of(search, "penalty", {s.name: {} for s in space.settings}) is None
    whole = Definition("q", space)
    assert tuning_of(whole, "penalty", {s.name: {} for s in space.settings}) is not None
