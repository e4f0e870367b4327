"""Stacks on a GPU: an arm's bits are its own in any company, captured or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.support.gpu.devices import GPUS, gpu_of
from tests.support.oracles import TINY
from tests.support.records import numbers
from tests.support.training.groups import finish, group_of, require_same, store_in
from trainables import build, memory
from trainables.arm_run import ArmRun
from trainables.begun_arm import built
from trainables.config.arm import ArmConfig
from trainables.environment import STACK_ROWS
from trainables.evaluation import stacked
from trainables.evaluation.stacked import Row, StackedNetworks
from trainables.fused import agreement, graph
from trainables.fused.agreement import may_fuse
from trainables.fused.training import FusedTraining, alone
from trainables.fused.update import ROWS
from trainables.fused.weighting import JointWeighting
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.tasks import denoising
from trainables.training import Training

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
    finish(others)
    require_same([ARMS[0], ARMS[2], ARMS[-1]], by_itself, together)
    resumed = together.record(ARMS[0].signature())
    assert resumed is not None
    assert "before" not in resumed.environment  # it is where it was


def test_a_stack_is_built_anew_where_its_arm_took_steps_elsewhere() -> None:
    task, whole = built(ARMS[1], CUDA, torch.float32)
    training = built(ARMS[1], CUDA, torch.float32, shared=task)[1]
    alone(whole).run_to(18)
    first = alone(training)
    for steps, until in ((first, 6), (FusedTraining([training]), 12), (first, 18)):
        steps.run_to(until)
    assert all(
        torch.equal(*pair) for pair in zip(whole.parameters, training.parameters, strict=True)
    )


def test_captured_passes_have_the_bits_of_those_that_the_host_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, eager = store_in(tmp_path / "captured"), store_in(tmp_path / "eager")
    finished(ARMS[:2], captured)
    monkeypatch.setattr(graph, "FEWEST_STEPS", 10**9)
    monkeypatch.setattr(stacked, "WORTH_CAPTURING", 10**9)
    steps = alone(built(ARMS[0], CUDA, torch.float32)[1])
    steps.run_to(1)
    assert isinstance(steps, FusedTraining)
    assert [stack._captured for stack in steps._stacks] == [None]
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


@pytest.mark.parametrize(
    "fields",
    [{"dtype": "bfloat16"}, {"batch_size": 512}, {"model.layers": 4}],
    ids=["bfloat16", "large batches", "too many numbers"],
)
def test_what_is_not_small_is_trained_by_itself(
    fields: dict[str, Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = [arm.with_fields({"steps": 4, "report_every": 2, **fields}) for arm in ARMS[:2]]
    size = sum(p.numel() for p in built(ARMS[0], CUDA, torch.float32)[1].parameters)
    monkeypatch.setattr(agreement, "MOST_NUMBERS", size)
    monkeypatch.setattr(agreement, "MOST_GIVEN", 2**12)
    records = finished(arms, store_in(tmp_path / "alone"))
    assert not any(STACK_ROWS in record.environment for record in records)
    group = group_of(arms, store_in(tmp_path / "together"))
    finish(group)
    assert not group.fuses
    require_same(arms, store_in(tmp_path / "alone"), store_in(tmp_path / "together"))


def by_its_own_weight(model: torch.nn.Module) -> None:
    """A network that looks at a weight by a reference of its own, which no row stands for."""
    weight = next(model.parameters())
    model.register_forward_hook(lambda _, __, layers: [*layers[:-1], layers[-1] * weight.sum()])


def by_the_host(model: torch.nn.Module) -> None:
    """A network that looks at its numbers once it is evaluated."""

    def looked_at(one: torch.nn.Module, _: object, layers: list[torch.Tensor]) -> None:
        if not one.training and float(layers[-1].max()) > 1e9:
            layers.clear()

    model.register_forward_hook(looked_at)


@pytest.mark.parametrize("hooked", [by_its_own_weight, by_the_host])
def test_a_network_that_is_no_row_takes_its_steps_by_itself(
    hooked: Callable[[torch.nn.Module], None], tmp_path: Path
) -> None:
    run = ArmRun(ARMS[1].with_fields({"steps": 4, "report_every": 2}), store_in(tmp_path))
    assert run.begin()
    hooked(run.training.model)
    before = [p.detach().clone() for p in run.training.parameters]
    while not run.advance().is_final:
        pass
    assert run.record.status == "finished", run.record.reason
    assert STACK_ROWS not in run.record.environment
    moved = [not torch.equal(a, b) for a, b in zip(before, run.training.parameters, strict=True)]
    assert any(moved)


def test_a_loop_of_another_class_takes_its_own_steps() -> None:
    class Own(Training):
        pass

    task, usual = built(ARMS[1], CUDA, torch.float32)
    assert may_fuse([usual])
    assert not may_fuse([Own(usual.config, task, usual.model, usual.weighting)])


def from_the_host(model: torch.nn.Module, _: object, layers: list[torch.Tensor]) -> Any:
    return [layer * torch.tensor([1.0]).to("cuda") for layer in layers]


def test_what_cannot_be_captured_is_started_by_the_host(tmp_path: Path, gpu: Gpu | None) -> None:
    """A copy from the host waits, which no capture allows."""
    if gpu is None:
        pytest.skip("a broken capture may leave a real GPU of no use to this process")
    run = ArmRun(ARMS[1], store_in(tmp_path))
    assert run.begin()
    run.training.model.register_forward_hook(from_the_host)
    while not run.advance().is_final:
        pass
    assert run.record.status == "finished", run.record.reason
    assert run.record.environment[STACK_ROWS] == ROWS
    other = store_in(tmp_path / "usual")
    finished([ARMS[1]], other)
    usual = other.record(ARMS[1].signature())
    assert usual is not None
    assert numbers(run.record) == numbers(usual)  # times 1


def test_networks_and_tasks_of_other_packages_are_not_captured() -> None:
    class Network(torch.nn.Module):
        pass

    task, training = built(ARMS[1], CUDA, torch.float32)
    part = task.train_batch(0)
    assert graph.can_capture(training.model, task, part)
    assert not graph.can_capture(Network(), task, part)
    assert not graph.can_capture(training.model, object(), part)


@pytest.mark.parametrize("fields", [{"accumulate": 2}, {"weight_ema": 0.9, "shifts": ("blur",)}])
def test_options_of_training_and_evaluation_are_those_of_arms_alone(
    fields: dict[str, Json], tmp_path: Path
) -> None:
    arms = [arm.with_fields(fields) for arm in ARMS[:3]]
    by_itself, together = store_in(tmp_path / "alone"), store_in(tmp_path / "together")
    finished(arms, by_itself)
    group = group_of(arms, together)
    finish(group)
    assert group.fuses
    require_same(arms, by_itself, together)
    shown = by_itself.record(arms[1].signature())
    assert shown is not None
    assert shown.evaluation is not None
    if "shifts" in fields:
        scores = list(shown.evaluation.shift_scores["blur"].values())
        assert len(set(scores)) == len(scores) > 1  # every severity has batches of its own


def test_an_arm_that_catches_up_lets_go_of_its_own_stack(tmp_path: Path) -> None:
    """And its numbers are those of an arm that never was alone."""
    ahead, never = store_in(tmp_path / "ahead"), store_in(tmp_path / "never")
    ArmRun(ARMS[1], ahead).advance()
    for store in (ahead, never):
        group = group_of(ARMS[:2], store)
        while not group.is_final:
            group.advance()
            if store is ahead and group._fused is not None:
                assert all(run._arm is None or run._arm._alone is None for run in group._runs)
        assert group.fuses
    require_same(ARMS[:2], ahead, never)


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
    finish(group)
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
