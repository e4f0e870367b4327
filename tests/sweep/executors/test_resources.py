"""Resource requests of an arm: slots, GPU shares by hand and by measured memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.executors.resources import MEASURED_SHARES, ResourceClass, ResourceClasses, share_for
from sweep.study.definition import Definition
from sweep.study.plan import Plan
from tests.support.records import finished
from tests.support.toy_sweeps import LOSSES, definition
from trainables.errors import InvalidValue
from trainables.memory import CONTEXT_MB
from trainables.records.arm_record import TRAIN_PEAK_MEMORY_MB, ArmRecord


def on_gpu(**space: Any) -> Definition:
    asked = definition()
    return replace(asked, space=replace(asked.space.with_base({"device": "cuda"}), **space))


@given(
    st.integers(1, 8),
    st.sampled_from([0.0, 0.01, 0.1, 0.2, 0.25, 0.3, 1 / 3, 0.5, 0.6, 1.0]),
    st.lists(st.tuples(st.integers(0, 64), st.integers(0, 8)), max_size=4),
)
def test_places_are_counted_as_if_arms_were_put_on_gpus_one_by_one(
    cpus: int, gpus: float, machines: list[tuple[int, int]]
) -> None:
    placed = 0
    for free, cards in machines:
        capacity = [1.0] * cards
        while free >= cpus:
            if gpus:
                fits = [i for i, left in enumerate(capacity) if left >= gpus - 1e-9]
                if not fits:
                    break
                capacity[fits[0]] -= gpus
            free -= cpus
            placed += 1
    there = [{"CPU": float(n), "GPU": float(cards)} for n, cards in machines]
    assert ResourceClass(cpus, gpus).slots(there) == placed


def test_arms_on_cpus_are_of_one_class_whatever_their_threads() -> None:
    asked = definition()
    settings = [
        replace(s, fields={**s.fields, "threads": 1 + i})
        for i, s in enumerate(asked.space.settings)
    ]
    asked = replace(asked, space=replace(asked.space, settings=tuple(settings)))
    plan, classes = Plan(asked), ResourceClasses(asked, lambda _: None)
    arms = list(plan.remaining())
    assert {classes.class_of(arm, plan.baselines[arm.setting]) for arm in arms} == {
        ResourceClass(2)
    }
    assert ResourceClass(2).bundle == {"CPU": 2.0}


def test_the_share_of_a_gpu_is_the_spaces() -> None:
    asked = on_gpu(gpus_per_arm=0.25)
    plan, classes = Plan(asked), ResourceClasses(asked, lambda _: None)
    arm = next(plan.remaining())
    assert classes.class_of(arm, plan.baselines[arm.setting]).bundle == {"CPU": 1.0, "GPU": 0.25}
    classes.give_whole_gpu(arm.signature)
    assert classes.class_of(arm, plan.baselines[arm.setting]).bundle == {"CPU": 1.0, "GPU": 1.0}


def test_processes_of_an_arm_hold_as_much_each_and_a_gpu_is_never_split_between_them() -> None:
    asked = on_gpu(gpus_per_arm=0.25)
    plan, classes = Plan(asked), ResourceClasses(asked, lambda _: None, processes=2)
    arm = next(plan.remaining())
    kind = classes.class_of(arm, plan.baselines[arm.setting])
    assert kind == classes.standard == ResourceClass(1, 1.0, processes=2)
    assert kind.slots([{"CPU": 8.0, "GPU": 3.0}, {"CPU": 8.0, "GPU": 2.0}]) == 2
    classes.pack(9, gpus=2)
    assert classes.standard == kind


def test_an_arm_has_no_more_processes_than_samples_in_a_batch() -> None:
    asked = definition()
    asked = replace(asked, space=asked.space.with_base({"batch_size": 8, "accumulate": 2}))
    ResourceClasses(asked, lambda _: None, processes=4)
    with pytest.raises(InvalidValue, match=r"at most 4, the samples of a batch .* got 5: each"):
        ResourceClasses(asked, lambda _: None, processes=5)


@pytest.mark.parametrize(("arms", "share"), [(1, 1.0), (2, 1.0), (3, 0.5), (6, 1 / 3)])
def test_arms_are_packed_on_the_gpus_of_one_machine(arms: int, share: float) -> None:
    classes = ResourceClasses(on_gpu(), lambda _: None)
    classes.pack(arms, gpus=2)
    assert classes.standard.gpus == pytest.approx(share)
    assert classes.standard.slots([{"CPU": 64.0, "GPU": 2.0}]) >= arms


def measured(record: ArmRecord, peak_mb: float, gpu_mb: int) -> ArmRecord:
    record.environment["gpu_memory_mb"] = gpu_mb
    record.reports[0].scalars[TRAIN_PEAK_MEMORY_MB] = peak_mb
    return record


def test_measured_memory_of_the_unconstrained_arm_is_the_share_of_the_constrained_ones() -> None:
    asked = on_gpu(gpus_per_arm="measured")
    plan = Plan(asked)
    records: dict[str, ArmRecord] = {}
    read: list[str] = []

    def record_of(signature: str) -> ArmRecord | None:
        read.append(signature)
        return records.get(signature)

    classes = ResourceClasses(asked, record_of)
    setting = asked.space.settings[0].name
    baselines = plan.baselines[setting]
    (arm, *_) = plan.add_proposal(setting, 0, {"constraint.alpha": 0.2})
    assert classes.class_of(baselines[0], baselines).gpus == 1.0
    assert read == []
    assert classes.class_of(arm, baselines).gpus == 1.0  # nothing is measured yet
    records[baselines[1].signature] = measured(finished(baselines[1].config, LOSSES), 7_000, 24_000)
    assert classes.class_of(arm, baselines).gpus == 0.5
    before = len(read)
    assert classes.class_of(arm, baselines).gpus == 0.5
    assert len(read) == before  # once known, it is not read again
    assert classes.class_of(baselines[0], baselines).gpus == 1.0


@given(st.floats(1.0, 200_000.0), st.floats(4_000.0, 200_000.0))
def test_what_was_measured_fits_its_share_with_room_to_spare(peak_mb: float, gpu_mb: float) -> None:
    share = share_for(peak_mb, gpu_mb)
    assert share in MEASURED_SHARES
    assert share == 1.0 or share * gpu_mb >= 1.25 * peak_mb + CONTEXT_MB
