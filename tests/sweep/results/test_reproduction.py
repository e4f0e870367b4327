"""Reproductions of records that hold less than those of today."""

from __future__ import annotations

from dataclasses import replace

from sweep.results.reproduction import LATER, reproduced_arm
from sweep.study.arms import Arm
from tests.support.oracles import TINY
from tests.support.records import finished


def test_what_records_of_before_do_not_hold_is_not_compared() -> None:
    now = finished(TINY, [1.0, 0.7, 0.5, 0.3])
    assert now.evaluation is not None
    counted = replace(now.evaluation, descent_ratio_counts=[[1]], descent_ratio_mean=[0.5])
    before = replace(counted, **{name: [] for name in LATER})
    arm = Arm(TINY, TINY.signature(), "g1", 0)
    said = [
        reproduced_arm(arm, replace(now, evaluation=one), replace(now, evaluation=other)).verdict
        for one, other in ((before, counted), (counted, counted), (counted, before))
    ]
    assert said == ["identical", "identical", "differs"]
