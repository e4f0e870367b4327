"""Stacks on a GPU: an arm's bits are its own in any company, captured or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from tests.support.gpu.devices import GPUS, gpu_of
from tests.support.oracles import TINY
from tests.support.records import numbers
from trainables import build, memory
from trainables.arm_run import ArmRun
from trainables.begun_arm import built
from trainables.config.arm import ArmConfig
from trainables.environment import STACK_ROWS
from trainables.evaluation import stacked
from trainables.evaluation.stacked import Row, StackedNetworks
from trainables.fused import agreement, graph
from trainables.fused.group import ArmGroup
from trainables.fused.training import FusedTraining, alone
from trainables.fused.update import ROWS
from trainables.fused.weighting import JointWeighting
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.tasks import denoising

if TYPE_CHECKING:
    from tests.support.gpu.tensors import Gpu

CUDA = torch.device("cuda")
BASE = TINY.with_fields(
    {
        "device": "cuda", "dtype": "float32", "steps": 54, "report_every": 18,
        "eval_windows": 6, "eval_draws": 3, "score_draws": 2, "early_stop": False,
    }
)  # fmt: skip
ARMS = [
    BASE.unconstrained(),
    *(BASE.with_fields({"constraint.alpha": 0.05 * k}) for k in range(1, ROWS + 2)),
]


@pytest.fixture(params=GPUS, autouse=True)
def gpu(request: pytest.FixtureRequest) -> Iterator[Gpu | None]:
    build._last_tasks.clear()  # of another GPU
    with gpu_of(request.param) as here:
        yield here
    build._last_tasks.clear()


def store_in(folder: Path) -> ArmStore:
    return ArmStore(ObjectStore(folder))


def finished(arms: list[ArmConfig], store: ArmStore) -> list[ArmRecord]:
    """Records of arms that were trained one after the other."""
    records = []
    for arm in arms:
        run = ArmRun(arm, store)
        while not run.advance().is_final:
            pass
        assert run.record.status == "finished", run.record.reason
        records.append(run.record)
    return records


def group_of(arms: list[ArmConfig], store: ArmStore) -> ArmGroup:
    return ArmGroup([ArmRun(arm, store) for arm in arms])


def require_same(arms: list[ArmConfig], one: ArmStore, other: ArmStore) -> None:
    for signature in (arm.signature() for arm in arms):
        mine, theirs = one.record(signature), other.record(signature)
        assert mine is not None
        assert theirs is not None
        assert numbers(mine) == numbers(theirs)


def test_an_arm_has_its_own_bits_in_any_company(tmp_path: Path) -> None:
    """In a stack of its own, in two of a group, and in another group after a kill."""
    by_itself, together = store_in(tmp_path / "alone"), store_in(tmp_path / "together")
    records = finished([ARMS[0], ARMS[2], ARMS[-1]], by_itself)
    assert [record.environment[STACK_ROWS] for record in records] == [ROWS] * 3
    group = group_of(ARMS, together)
    group.advance()
    assert group.fuses
    assert group._fused is not None
    assert [stack._captured is not None for stack in group._fused._stacks] == [True, True]
    others = group_of([ARMS[-1], ARMS[0], ARMS[2]], together)
    while not others.is_final:
        others.advance()
    require_same([ARMS[0], ARMS[2], ARMS[-1]], by_itself, together)


def test_captured_passes_have_the_bits_of_those_that_the_host_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, eager = store_in(tmp_path / "captured"), store_in(tmp_path / "eager")
    finished(ARMS[:2], captured)
    monkeypatch.setattr(graph, "FEWEST_STEPS", 10**9)
    monkeypatch.setattr(stacked, "WORTH_CAPTURING", 10**9)
    finished(ARMS[:2], eager)
    require_same(ARMS[:2], captured, eager)


def test_no_step_of_a_stack_waits_for_the_device() -> None:
    task = build.task_of_arm(BASE, CUDA, torch.float32)
    fused = FusedTraining([built(arm, CUDA, torch.float32, shared=task)[1] for arm in ARMS])
    fused.run_to(6)  # which captures, and creates the optimisers' state
    stacks = fused._stacks_at(6)
    weighting = JointWeighting(fused._weightings, is_joint=fused._weighs_jointly)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in (6, 7, 8):
            seen_KF, norms_K = fused._one_step(step, stacks, weighting)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert bool((seen_KF > 0).all())
    assert bool((norms_K > 0).all())


@pytest.mark.parametrize("why", ["too many numbers", "bfloat16", "other networks"])
def test_what_is_no_row_of_a_stack_is_trained_by_itself(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = ARMS[:2]
    if why == "too many numbers":
        monkeypatch.setattr(agreement, "MOST_NUMBERS", 10)
    if why == "bfloat16":
        arms = [arm.with_fields({"dtype": "bfloat16"}) for arm in arms]
    if why == "other networks":
        monkeypatch.setattr(agreement, "ROUNDING", -1.0)  # any network would be another
    records = finished(arms, store_in(tmp_path / "alone"))
    assert not any(STACK_ROWS in record.environment for record in records)
    group = group_of(arms, store_in(tmp_path / "together"))
    while not group.is_final:
        group.advance()
    assert not group.fuses
    require_same(arms, store_in(tmp_path / "alone"), store_in(tmp_path / "together"))


def test_arms_whose_networks_differ_are_trained_and_evaluated_each_by_its_own(
    tmp_path: Path,
) -> None:
    """Each may be a row of a stack, but not of the other's."""

    def other(model: object, _: object, layers: list[torch.Tensor]) -> list[torch.Tensor]:
        return [*layers[:-1], 0.9 * layers[-1]]

    by_itself, together = store_in(tmp_path / "alone"), store_in(tmp_path / "together")
    group = group_of(ARMS[:2], together)
    alone_runs = [ArmRun(arm, by_itself) for arm in ARMS[:2]]
    for runs in (group._runs, alone_runs):
        assert all(run.begin() for run in runs)
        runs[1].training.model.register_forward_hook(other)
    while not group.is_final:
        group.advance()
    assert not group.fuses
    for run in alone_runs:
        while not run.advance().is_final:
            pass
    assert alone_runs[1].record.environment[STACK_ROWS] == ROWS
    require_same(ARMS[:2], by_itself, together)
    assert numbers(alone_runs[0].record) != numbers(alone_runs[1].record)


def test_held_out_batches_are_made_once_for_all_arms_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[object, ...]] = []
    usual = denoising.keyed_generator

    def counted(device: torch.device | str, *key: str | int | float) -> torch.Generator:
        drawn.append(key)
        return usual(device, *key)

    monkeypatch.setattr(denoising, "keyed_generator", counted)
    first, second, other = ARMS[1], ARMS[2], ARMS[2].with_fields({"seed": 5})
    held_out = []
    for arm in (first, second, other):
        drawn.clear()
        finished([arm], store_in(tmp_path))
        held_out.append(sum(key[0] in ("dev", "train") for key in drawn))
    assert held_out[1] == 0
    assert held_out[0] == held_out[2] > 0


def test_no_more_batches_are_kept_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, none = store_in(tmp_path / "kept"), store_in(tmp_path / "none")
    finished(ARMS[1:3], kept)
    build._last_tasks.clear()
    monkeypatch.setattr(memory, "most_kept_bytes", lambda: 1e5)
    finished(ARMS[1:3], none)
    task = build._last_tasks[0][1]
    assert isinstance(task, denoising.Denoising)
    assert 0 < task._kept._bytes <= 1e5
    require_same(ARMS[1:3], kept, none)


def test_the_seconds_of_passes_are_shared_by_those_that_they_are_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task, training = built(ARMS[1], CUDA, torch.float32)
    networks = StackedNetworks([training.evaluated] * 4, task)
    clock = iter([0.0, 8.0, 10.0, 12.0])
    monkeypatch.setattr(stacked.time, "perf_counter", lambda: next(clock))
    rows = [Row(networks, number) for number in range(4)]
    assert networks.once("one", 0, lambda: "found") == "found"
    assert networks.once("one", 1, lambda: "never asked") == "found"
    assert [row.owed_seconds() for row in rows] == [-6.0, 2.0, 2.0, 2.0]
    networks.once("other", 3, lambda: "found")
    assert [row.owed_seconds() for row in rows] == [0.5, 0.5, 0.5, -1.5]


def test_an_arm_alone_is_a_stack_of_its_own() -> None:
    _, training = built(ARMS[1], CUDA, torch.float32)
    steps = alone(training)
    assert isinstance(steps, FusedTraining)
    assert steps.trainings == [training]
