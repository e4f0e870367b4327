"""Hours and GPU-hours from records alone, as where a driver died: shares, groups, gangs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sweep.cost.spent import Held, Spent, gpus_held, gpus_of
from tests.support.records import finished
from tests.support.toy_sweeps import LOSSES, definition
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


@pytest.mark.parametrize(
    ("gpus_per_arm", "environment", "gpus"),
    [
        (0.25, {}, 0.25),
        ("measured", {}, 1.0),
        (0.25, {"processes": 2}, 1.0),  # each of them has a GPU of its own
    ],
)
def test_gpu_hours_from_records_are_those_of_their_places(
    gpus_per_arm: Any, environment: dict[str, Any], gpus: float, objects: ObjectStore
) -> None:
    space = replace(definition().space.with_base({"device": "cuda"}), gpus_per_arm=gpus_per_arm)
    record = replace(finished(space.base, LOSSES), environment=environment)
    assert gpus_held(record, space) == gpus
    runs = ArmStore(objects)
    runs.put_record(record)
    spent = Spent()
    spent.complete(runs, space, [record.signature])
    assert spent.all == Held(1, record.held_s, gpus * record.held_s)


def test_an_arm_on_a_cpu_holds_no_gpu() -> None:
    space = definition().space
    assert gpus_of(space.base, space, 4) == 0.0
