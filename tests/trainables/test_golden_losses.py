"""Golden losses: the same config trains to the same numbers, or TRAINING_VERSION says otherwise.

``tests/golden/ut_tiny_losses.txt`` has the training version, then a line per number of tiny runs in
float64: training losses along the way, and what the final evaluation measured. Signatures contain
the version: stored results of an older one are not reused.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.oracles import TINY
from trainables.arm_run import ArmRun
from trainables.config.arm import TRAINING_VERSION, ArmConfig
from trainables.records.arm_record import TRAIN_LOSS
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

GOLDEN = Path(__file__).parents[1] / "golden" / "ut_tiny_losses.txt"
# Sums differ in the last bits between processors; 40 steps of Adam amplify that to about 1e-9. What
# linear filters score is of float32: 6e-8 relative. An objective is a mean of logs of ratios to it,
# and may be near 0: its error is absolute.
TOLERANCE = 1e-6
RUNS: dict[str, dict[str, Any]] = {
    "constrained": {},
    "detached": {"constraint.grad_through_previous": False},
    "adam": {"constraint.dual_optimizer": "adam", "constraint.resilience": 0.3},
    "violation": {"constraint.dual_signal": "violation", "constraint.scale": "none"},
    "sharp": {"model.variant": "sharp"},
    "literal": {"model.variant": "literal"},
}


def numbers_of(config: ArmConfig, store: ArmStore) -> dict[str, float]:
    arm = ArmRun(config, store)
    while not arm.advance().is_final:
        pass
    measured = arm.record.evaluation
    assert measured is not None, arm.record.reason
    numbers = {f"train_loss_{r.step}": r.scalars[TRAIN_LOSS] for r in arm.record.reports}
    numbers |= {f"held_out_loss_{i}": f for i, f in enumerate(measured.held_out_losses())}
    numbers |= {f"training_clips_loss_{i}": f for i, f in enumerate(measured.training_losses())}
    numbers |= {f"score_{gamma}": score for gamma, score in measured.scores.items()}
    numbers |= {f"multiplier_{i}": m for i, m in enumerate(measured.multipliers, start=1)}
    return numbers | {"objective": measured.objective, "ood_auc": measured.ood_auc}


def measured_now(folder: Path) -> dict[str, float]:
    store = ArmStore(ObjectStore(folder))
    base = replace(TINY, dtype="float64", early_stop=False)  # a literal UT is blank
    runs = {name: base.with_fields(fields) for name, fields in RUNS.items()}
    runs["unconstrained"] = base.unconstrained()
    return {
        f"{run}.{name}": value
        for run, config in runs.items()
        for name, value in numbers_of(config, store).items()
    }


def test_golden_numbers_change_only_with_the_training_version(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    now = measured_now(tmp_path)
    lines = GOLDEN.read_text().splitlines() if GOLDEN.exists() else ["training_version 0"]
    stored_version = int(lines[0].split()[1])
    stored = {line.split()[0]: float(line.split()[1]) for line in lines[1:]}
    if stored_version == TRAINING_VERSION:
        expected = {
            name: pytest.approx(
                value, rel=TOLERANCE, abs=TOLERANCE if "objective" in name else 1e-12
            )
            for name, value in now.items()
        }
        assert stored == expected, (
            "the golden numbers changed: raise TRAINING_VERSION in trainables/config/arm.py, "
            "then --update-golden"
        )
        return
    assert request.config.getoption("--update-golden"), (
        f"golden numbers are of training version {stored_version}, the code says "
        f"{TRAINING_VERSION}: run --update-golden"
    )
    rows = [f"{name} {value:.12e}" for name, value in now.items()]
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text("\n".join([f"training_version {TRAINING_VERSION}", *rows]) + "\n")
