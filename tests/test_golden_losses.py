"""Golden losses: the same config trains to the same numbers, or TRAINING_VERSION says otherwise.

``tests/golden/ut_tiny_losses.txt`` has the training version, then "step loss loss" (constrained,
unconstrained) of a tiny run in float64. Signatures contain the version: stored results of an older
one are not reused.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.oracles import TINY
from trainables.arm_run import build_model
from trainables.config import TRAINING_VERSION, RunConfig
from trainables.tasks.video_denoising import VideoDenoising
from trainables.training import Training
from trainables.weighting import weighting_of

GOLDEN = Path(__file__).parent / "golden" / "ut_tiny_losses.txt"
CPU = torch.device("cpu")
# Sums differ in the last bits between processors; 40 steps of Adam amplify that to about 1e-9.
TOLERANCE = 1e-6


def losses_of(config: RunConfig) -> list[float]:
    task = VideoDenoising(config, CPU, torch.float64)
    weighting = weighting_of(config, task.scales, CPU, torch.float64)
    training = Training(config, task, build_model(config, task).double(), weighting)
    losses = []
    for step in range(2, 41, 2):
        training.run_to(step)
        losses.append(training.measured()[0]["train/loss"])
    return losses


def test_golden_losses_change_only_with_the_training_version(
    request: pytest.FixtureRequest,
) -> None:
    config = replace(TINY, dtype="float64")
    now = list(zip(losses_of(config), losses_of(config.unconstrained()), strict=True))
    header, *lines = GOLDEN.read_text().splitlines() if GOLDEN.exists() else ["training_version 0"]
    stored_version = int(header.split()[1])
    stored = [tuple(map(float, line.split()[1:])) for line in lines]
    same = len(stored) == len(now) and all(
        a == pytest.approx(b, rel=TOLERANCE) for a, b in zip(stored, now, strict=True)
    )
    if stored_version == TRAINING_VERSION:
        assert same, (
            "the golden losses changed: raise TRAINING_VERSION in trainables/config.py, "
            "then --update-golden"
        )
        return
    assert request.config.getoption("--update-golden"), (
        f"golden losses are of training version {stored_version}, "
        f"the code says {TRAINING_VERSION}: run --update-golden"
    )
    rows = [f"{2 * (i + 1):2d} {ours:.12e} {theirs:.12e}" for i, (ours, theirs) in enumerate(now)]
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text("\n".join([f"training_version {TRAINING_VERSION}", *rows]) + "\n")
