"""Recorder of landscapes: what it writes is what was trained, and goes on where it was ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.landscape import record
from benchmarks.landscape.landscape import Landscape, report_at
from trainables.records.arm_record import REPORTED_LOSS, ArmRecord


@pytest.mark.slow
def test_a_landscape_is_its_arms_in_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "tiny.json"
    arguments = ["record", str(out), "quickstart", "photographs-ut-L5-g0.15"]
    arguments += ["--dual-lr", "1e-4", "0.1", "--set", "steps=8", "--set", "report_every=2"]
    arguments += ["--set", "data.frame_size=32", "--points", "4"]
    monkeypatch.setattr("sys.argv", arguments)
    record.main()
    kept = out.with_suffix(".jsonl").read_text("utf-8")
    records = [ArmRecord.from_json(json.loads(line)["record"]) for line in kept.splitlines()]
    by_alpha: dict[float, Any] = {
        round(r.config.constraint.alpha, 5): r for r in records if r.config.constraint is not None
    }
    landscape = Landscape.of_file(out)
    assert (len(records), len(by_alpha), len(landscape.arms)) == (5, 4, 4)
    for index, arm in enumerate(landscape.arms):
        trained = by_alpha[round(arm["point"]["constraint.alpha"], 5)]
        assert landscape.nearest(arm["point"]) == index
        assert landscape.shares(arm["point"]) == pytest.approx(arm["shares"], abs=1e-5)  # 7 digits
        assert arm["objective"] == pytest.approx(trained.evaluation.objective, rel=1e-6)
        assert report_at(arm, 5)["loss"] == pytest.approx(
            trained.reports[1].scalars[REPORTED_LOSS], rel=1e-6
        )
    text = out.read_text("utf-8")
    record.main()  # trains nothing
    assert out.with_suffix(".jsonl").read_text("utf-8") == kept
    assert out.read_text("utf-8") == text
