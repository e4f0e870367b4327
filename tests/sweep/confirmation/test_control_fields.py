"""Controls: their fields, from the constrained run beside which they train."""

from __future__ import annotations

import numpy as np
import pytest

from sweep.confirmation.controls import CONTROLS, Searched
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
