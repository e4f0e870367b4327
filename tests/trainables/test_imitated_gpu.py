"""Whole arms of every family on an imitated GPU, against the CPU; and faults that it must find."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sweep.cost.counted_work import counted_work
from sweep.cost.estimate import GPU_GB, WORKSPACES_GB, arm_memory_gb
from tests.support.data.checkpoints import tiny_vit
from tests.support.data.instruction_runs import tiny_instructions
from tests.support.data.text_checkpoints import tiny_decoder
from tests.support.data.text_runs import tiny_text
from tests.support.gpu.devices import imitated_gpu
from tests.support.gpu.tensors import Gpu
from tests.support.oracles import TINY
from tests.support.records import numbers
from tests.support.training.companies import farthest
from tests.support.training.groups import finish, store_in
from trainables import arm_run, begun_arm, build, memory, random_keys
from trainables.arm_run import ArmRun
from trainables.config.arm import ArmConfig
from trainables.errors import GpuLost, GpuShareTooSmall
from trainables.evaluation.measuring import measure
from trainables.fused.group import ArmGroup
from trainables.predictors.answerer import Answerer
from trainables.predictors.predictor import Predictor
from trainables.predictors.predictor_folder import write_predictor
from trainables.primal_dual import weighting
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.retries import ARM_STARTS
from trainables.tasks import denoising
from trainables.tasks.held_out_units import TaskOfUnits
from trainables.tasks.video_denoising import VideoDenoising
from trainables.training import Training, from_bytes

pytestmark = pytest.mark.skipif(
    torch.backends.cuda.is_built(), reason="this torch has CUDA of its own: see -m gpu"
)
SAME = 2e-4  # of float32 numbers: the norm of all gradients is summed in another order on a GPU
SHORT = {
    "steps": 12, "report_every": 4, "eval_windows": 2, "eval_draws": 1, "early_stop": False,
}  # fmt: skip
LAYERS_DRAWN = {
    "constraint.inner_layers": 1, "constraint.dual_signal": "violation",
    "constraint.signal_clip": None,
}  # fmt: skip


def vit(folder: Path) -> ArmConfig:
    fields = {
        "task": "frame_denoising", "model.name": "vit", "model.layers": 2, "data.frame_size": 16,
        "model.checkpoint": str(tiny_vit(folder / "vit")),
    }  # fmt: skip
    return TINY.with_fields(fields | SHORT)


def low_rank_decoder(folder: Path) -> ArmConfig:
    run = tiny_instructions(folder)
    tiny_decoder(folder / "decoder", "llama", max_position_embeddings=48, vocab_size=300)
    return run.with_fields(
        {"model.variant": "blocks", "model.lora_rank": 2, "model.recompute": True,
         "dtype": "bfloat16", "constraint.inner_tokens": 0.5}
    )  # fmt: skip


FAMILIES: dict[str, Callable[[Path], ArmConfig]] = {
    "ut": lambda folder: TINY.with_fields(SHORT),
    "dust": lambda folder: TINY.with_fields(
        {"model.name": "dust", "model.atoms_per_side": 6} | SHORT
    ),
    "vit": vit,
    "encoder": lambda folder: tiny_text(folder, dtype="bfloat16", accumulate=2),
    "encoder, low rank": lambda folder: tiny_text(folder, **{"model.lora_rank": 2}),
    "text_ut": lambda folder: tiny_text(folder, **{"model.name": "text_ut"}),
    "decoder": lambda folder: tiny_instructions(folder, **LAYERS_DRAWN),
    "decoder, low rank": low_rank_decoder,
}
DUALS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adam": {"resilience": 0.1},
    "adamw": {"resilience": 0.1},
    "bare_decay": {"resilience": 0.05},
    "nupi": {"dual_kp": 0.5},
    "augmented": {"dual_penalty": 0.5},
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    monkeypatch.setattr("trainables.evaluation.answers.PROMPTS", 1)
    monkeypatch.setattr("trainables.evaluation.answers.LONGEST_ANSWER", 6)
    with imitated_gpu(draws_as_cpu=True) as here:
        yield here


def trained(config: ArmConfig, store: ArmStore, *, anew: bool = False, **options: Any) -> ArmRecord:
    """An arm's record at its end; ``anew``: by another process from every report on."""
    run = ArmRun(config, store, **options)
    while not run.advance().is_final:
        if anew:
            run = ArmRun(config, store, **options)
    return run.record


def finished(config: ArmConfig, folder: Path, *, anew: bool = False) -> ArmRecord:
    record = trained(config, store_in(folder), anew=anew)
    assert record.status == "finished", record.reason
    return record


def on_gpu(config: ArmConfig) -> ArmConfig:
    return config.with_fields({"device": "cuda"})


def apart(here: ArmRecord, there: ArmRecord) -> float:
    """The largest relative difference of an arm's numbers from those of the CPU's arm."""
    same = replace(here, config=there.config, signature=there.signature)
    return farthest(*(without_words(record) for record in (same, there)))


def without_words(record: ArmRecord) -> ArmRecord:
    """Written answers are no numbers: the likeliest of two words turns on a rounding."""
    assert record.evaluation is not None
    return replace(record, evaluation=replace(record.evaluation, answers=[]))


# --- whole arms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_both_arms_come_to_the_numbers_of_the_cpu(family: str, gpu: Gpu, tmp_path: Path) -> None:
    config = FAMILIES[family](tmp_path)
    for run in (config, config.unconstrained()):
        here = finished(on_gpu(run), tmp_path / "gpu", anew=True)
        there = finished(run, tmp_path / "cpu")
        assert apart(here, there) < (0.05 if run.dtype == "bfloat16" else SAME)
        assert here.environment["gpu"] == "Imitated GPU"
        assert here.environment["gpu_memory_mb"] == gpu.total / 2**20
        assert 0 < here.reports[-1].scalars["train/peak_memory_mb"] <= gpu.peak / 2**20
    build._last_tasks.clear()  # held-out batches, which the next arm reads
    gc.collect()
    assert gpu.used == 0  # the next arm has all of it


@pytest.mark.parametrize("optimizer", DUALS)
def test_arms_of_every_dual_optimiser_go_on_from_their_checkpoints(
    optimizer: str, gpu: Gpu, tmp_path: Path
) -> None:
    fields = {f"constraint.{k}": v for k, v in DUALS[optimizer].items()}
    config = on_gpu(
        TINY.with_fields({**SHORT, "constraint.dual_optimizer": optimizer, **fields})
    ).with_fields({"weight_ema": 0.5})
    whole = finished(config, tmp_path / "whole")
    assert numbers(finished(config, tmp_path / "parts", anew=True)) == numbers(whole)
    assert apart(whole, finished(config.with_fields({"device": "cpu"}), tmp_path / "cpu")) < SAME


@pytest.mark.parametrize("family", ["ut", "dust", "text_ut"])
def test_a_group_trains_as_its_arms_alone(family: str, gpu: Gpu, tmp_path: Path) -> None:
    base = on_gpu(FAMILIES[family](tmp_path)).with_fields({"batch_size": 15})
    arms = [base, base.with_fields({"constraint.alpha": 0.3}), base.unconstrained()]
    alone, together = store_in(tmp_path / "alone"), store_in(tmp_path / "together")
    for arm in arms:
        trained(arm, alone)
    group = ArmGroup([ArmRun(arm, together) for arm in arms])
    finish(group)
    assert group.fuses == (family != "text_ut")  # texts are in no stack
    for signature in (arm.signature() for arm in arms):
        one, other = alone.record(signature), together.record(signature)
        assert one is not None
        assert other is not None
        assert one.status == other.status == "finished"
        assert numbers(one) == numbers(other)


def test_a_step_of_a_network_of_transformers_waits_once_and_of_the_others_never(
    gpu: Gpu, tmp_path: Path
) -> None:
    """A library looks into the masks of encoders and the places of decoders, once a pass."""
    for family, make in FAMILIES.items():
        run = ArmRun(on_gpu(make(tmp_path / family)), store_in(tmp_path / "store"))
        assert run.begin()
        training, config = run.training, run.config
        training.run_to(1)
        gpu.synced.clear()
        training.run_to(3)
        passes = 2 * config.accumulate * (config.task != "video_denoising" and "ut" not in family)
        looks = [] if family == "vit" else ["_local_scalar_dense"] * passes
        assert gpu.synced == looks, family
        gpu.synced.clear()
        training.measured()
        training.evaluated.eval()
        measure(training.evaluated, training.task, "dev", config.train_gamma, 2)
        assert gpu.synced.count("copy to the host") == 2, family


@pytest.mark.parametrize("family", ["ut", "encoder, low rank", "decoder"])
def test_a_kept_network_is_asked_on_the_gpu_as_on_the_cpu(
    family: str, gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = on_gpu(FAMILIES[family](tmp_path))
    store = store_in(tmp_path / "store")
    record = trained(config, store)
    weights = store.weights(record.signature)
    assert weights is not None
    found = []
    for visible in ("0", ""):  # without a GPU what was trained on one is asked on the CPU
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        found.append(asked(record, weights, tmp_path / f"predictor{visible}"))
    (here, device), (there, other) = found
    assert (device, other) == ("cuda", "cpu")
    assert here == there if isinstance(here, str) else np.allclose(here, there, atol=1e-5)


def asked(record: ArmRecord, weights: bytes, folder: Path) -> tuple[Any, str]:
    """What a kept network says, and where it is."""
    if record.config.facts.answers:
        network = Answerer(record.config, weights)
        (prompt,) = network.held_out(1)
        device = next(network._model.parameters()).device  # type: ignore[attr-defined]
        return network.answer(prompt, 0.0, 4).written, device.type
    folder.mkdir()
    write_predictor(folder, record, weights)
    predictor = Predictor.load(folder)
    found = predictor.predict(predictor.example())
    scores = found.select_dtypes("number") if predictor.reads_texts else found
    return np.asarray(scores), predictor.device.type


@pytest.mark.parametrize("name", ["ut", "dust"])
def test_the_estimate_of_memory_is_what_the_allocator_counts(name: str, gpu: Gpu) -> None:
    """Without what a real GPU takes beside tensors: CUDA itself, and cuBLAS's workspaces."""
    size = {"data.patch_size": 16, "data.frame_size": 96, "data.frames": 10, "batch_size": 32}
    config = on_gpu(TINY.with_fields({"model.name": name, "model.layers": 5} | size))
    gc.collect()
    gpu.peak = gpu.used
    _, training = begun_arm.built(config, torch.device("cuda"), torch.float32)
    training.run_to(3)
    work = counted_work(config)
    assert gpu.peak == pytest.approx(work.state_bytes + work.kept_bytes, rel=0.15)


@pytest.mark.parametrize("name", ["ut", "dust"])
def test_the_estimate_holds_for_a_whole_arm(
    name: str, gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its references are made anew, and evaluation is what takes the most."""
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    size = {"data.patch_size": 16, "data.frame_size": 96, "data.frames": 5, "eval_windows": 8}
    few = {"steps": 2, "report_every": 2, "test_gammas": (0.15, 0.25), "eval_draws": 1}
    config = on_gpu(TINY.with_fields({"model.name": name} | few | size))
    gc.collect()
    gpu.peak = gpu.used
    run = ArmRun(config, store_in(tmp_path))
    run.begin()
    started = gpu.peak
    while not run.advance().is_final:
        pass
    beside_tensors = 1e9 * (GPU_GB + 3 * WORKSPACES_GB)  # of three streams
    estimate = 1e9 * arm_memory_gb(config, "h100") - beside_tensors
    assert started < 0.2 * estimate
    captured = 8 * 4 * run.record.parameters  # rows once more, of passes too few to be captured
    assert gpu.peak == pytest.approx(estimate - captured, rel=0.15)


# --- memory and loss ------------------------------------------------------------------------------


def test_an_arm_that_needs_more_than_the_gpu_has_fails_with_advice(tmp_path: Path) -> None:
    config, store = on_gpu(TINY.with_fields(SHORT)), store_in(tmp_path)
    wide = config.with_fields({"data.patch_size": 16})
    with imitated_gpu(total=6 << 20):  # the parameters alone take 1.5 MiB, and Adam twice as much
        record = trained(wide, store)
    assert record.status == "failed"
    assert record.reason.startswith("out of GPU memory (CUDA out of memory.")
    assert "lower batch_size" in record.reason
    with imitated_gpu(total=6 << 20), pytest.raises(GpuShareTooSmall, match="more than 0"):
        trained(config, store, gpu_share=0.5)  # the context alone takes more
    assert store.record(config.signature()) is None


LOST = torch.AcceleratorError("CUDA error: unspecified launch failure")


def fail_after(gpu: Gpu, launches: int, error: BaseException = LOST) -> None:
    """An operation fails, and where the GPU is lost every call after it."""
    until = gpu.launched + launches
    gpu.fails_at = lambda name: error if gpu.launched >= until else None


@pytest.mark.parametrize("family", FAMILIES)
def test_an_arm_of_every_family_ends_by_lack_of_memory_and_survives_its_gpu(
    family: str, tmp_path: Path
) -> None:
    config, store = on_gpu(FAMILIES[family](tmp_path)), store_in(tmp_path / "store")
    with imitated_gpu() as gpu:
        arm = ArmRun(config, store)
        assert arm.begin()
        fail_after(gpu, 60)
        with pytest.raises(GpuLost, match="was lost"):
            arm.advance()
    with imitated_gpu() as gpu:
        arm = ArmRun(config, store)
        assert arm.begin()
        fail_after(gpu, 60, torch.cuda.OutOfMemoryError("CUDA out of memory."))
        record = arm.advance()
        assert (record.status, record.reason[:17]) == ("failed", "out of GPU memory")
        del gpu.fails_at
        gc.collect()  # what held a block that would have been run again,
        gc.collect()  # and the block
        assert gpu.used == 0


@pytest.mark.parametrize("arms", [1, 3])
def test_arms_whose_gpu_is_lost_go_on_in_another_process(arms: int, tmp_path: Path) -> None:
    first = on_gpu(TINY.with_fields(SHORT))
    others = [first.with_fields({"constraint.alpha": 0.1 * k}) for k in range(3, 2 + arms)]
    configs = [first, *others]
    undisturbed, store = store_in(tmp_path / "undisturbed"), store_in(tmp_path / "store")
    with imitated_gpu() as gpu:
        for config in configs:
            trained(config, undisturbed)
        group = ArmGroup([ArmRun(config, store) for config in configs])
        group.advance()
        fail_after(gpu, 900)
        with pytest.raises(GpuLost, match="GPU of"):
            finish(group)
        assert memory.gpu_is_lost()
    with imitated_gpu():
        finish(ArmGroup([ArmRun(config, store) for config in configs]))
    for signature in (config.signature() for config in configs):
        whole, record = undisturbed.record(signature), store.record(signature)
        assert whole is not None
        assert record is not None
        assert record.status == "finished"
        assert numbers(record) == numbers(whole)


def test_an_arm_that_loses_every_gpu_is_failed(tmp_path: Path) -> None:
    config, store = on_gpu(TINY.with_fields(SHORT)), store_in(tmp_path)
    for start in range(1, ARM_STARTS + 1):
        with imitated_gpu() as gpu:
            run = ArmRun(config, store)
            fail_after(gpu, 900)
            if start < ARM_STARTS:
                with pytest.raises(GpuLost, match="unspecified launch failure"):
                    run.advance()
                continue
            assert run.advance().status == "failed"
            assert "--retry-failed" in run.record.reason


def test_a_gpu_whose_memory_is_taken_has_started() -> None:
    with imitated_gpu():
        assert memory.why_cuda_does_not_start() == ""
        torch.cuda.set_per_process_memory_fraction(0.0)
        assert memory.why_cuda_does_not_start() == ""
        memory.hold_to_share(torch.device("cuda"), 1.0)
        assert memory.why_cuda_does_not_start() == ""
        assert not memory.gpu_is_lost()


def test_a_gpu_that_never_worked_here_does_not_start_and_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch calls CUDA initialised before there is a context, which an error may keep away."""
    config, store = on_gpu(TINY.with_fields(SHORT)), store_in(tmp_path)
    with imitated_gpu() as gpu:
        gpu.lost = True
        assert "illegal memory access" in memory.why_cuda_does_not_start()
        assert torch.cuda.is_initialized()
        assert not memory.gpu_is_lost()
        with pytest.raises(GpuLost, match="CUDA does not start"):
            ArmRun(config, store).advance()
    out_of_memory = torch.AcceleratorError(
        "CUDA error: out of memory"
    )  # of the driver, not torch's
    with imitated_gpu() as gpu:
        monkeypatch.setattr(gpu, "require_alive", lambda: _raise(out_of_memory))
        assert memory.why_cuda_does_not_start() == ""
        assert ArmRun(config, store).advance().status == "failed"  # by lack of memory, with advice


def _raise(error: BaseException) -> None:
    raise error


# --- faults that such runs must find --------------------------------------------------------------


def whole_course(gpu: Gpu, folder: Path) -> None:
    """An arm starts, trains without a wait, reports, is resumed by another process, and ends."""
    config, store = on_gpu(TINY.with_fields(SHORT | ADAM)), store_in(folder)
    first = ArmRun(config, store)
    assert first.begin(), first.record.reason
    first.training.run_to(1)
    torch.cuda.set_sync_debug_mode("error")
    first.training.run_to(3)
    torch.cuda.set_sync_debug_mode("default")
    assert not first.advance().is_final, first.record.reason
    del first
    build._last_tasks.clear()  # another process has none
    record = trained(config, store)
    assert record.status == "finished", record.reason
    build._last_tasks.clear()
    gc.collect()
    assert gpu.used == 0, "memory is still held"


FINISH_STEP, MEASURED, MOVED = Training.finish_step, Training.measured, TaskOfUnits._moved
ON_DEVICE, KEYED = weighting.on_device, random_keys.keyed_generator
ADAM = {"constraint.dual_optimizer": "adam", "weight_ema": 0.5}
KEPT: list[Any] = []


def indexless_share(device: torch.device, share: float) -> None:
    torch.cuda.set_per_process_memory_fraction(share, device)


def read_in_a_step(self: Training, step: int, seen_F: Tensor) -> None:
    if seen_F[-1].item() >= 0:
        FINISH_STEP(self, step, seen_F)


def masked_in_a_step(self: Training, step: int, seen_F: Tensor) -> None:
    FINISH_STEP(self, step, seen_F)
    self._loss_sum += seen_F[seen_F > 1e9].sum()


def copied_in_a_step(self: Training, step: int, seen_F: Tensor) -> None:
    FINISH_STEP(self, step, seen_F + torch.zeros(len(seen_F)).to("cuda"))


def integer_product(self: VideoDenoising, prediction: Tensor, targets: Tensor) -> Tensor:
    losses_B = (prediction - targets).square().sum(-1).mean(-1)
    return losses_B + 0 * (torch.ones_like(losses_B).long() @ torch.ones_like(losses_B).long())


def read_as_numpy(self: Training) -> Any:
    assert self.sums.numpy().all()
    return MEASURED(self)


def read_too_early(self: Training) -> Any:
    early = self.sums.to("cpu", non_blocking=True).tolist()
    scalars, series = MEASURED(self)
    return scalars | {"train/loss": early[0]}, series


def all_pinned(self: TaskOfUnits, batch: Tensor) -> Tensor:
    KEPT.append(batch.repeat(*[200] + [1] * (batch.dim() - 1)).pin_memory())
    return MOVED(self, batch)


def kept_for_ever(self: Training) -> Any:
    KEPT.append(self.model)
    return MEASURED(self)


def drawn_by_the_cpu(_: object, *key: str | int | float) -> torch.Generator:
    return KEYED("cpu", *key)


def left_on_the_cpu(constraints: Any, _: torch.device, dtype: torch.dtype) -> Any:
    return ON_DEVICE(constraints, torch.device("cpu"), dtype)


def read_onto_the_cpu(content: bytes, _: torch.device) -> Any:
    return from_bytes(content, torch.device("cpu"))


FAULTS: dict[str, tuple[Any, str, Any, str]] = {
    "a device without an index": (arm_run, "hold_to_share", indexless_share, "specified index"),
    "a generator of the CPU": (denoising, "keyed_generator", drawn_by_the_cpu, "same device"),
    "a tensor left on the CPU": (weighting, "on_device", left_on_the_cpu, "same device"),
    "a number read in a step": (Training, "finish_step", read_in_a_step, "synchronizing"),
    "a mask in a step": (Training, "finish_step", masked_in_a_step, "synchronizing"),
    "a pageable copy in a step": (Training, "finish_step", copied_in_a_step, "synchronizing"),
    "a state on the wrong device": (arm_run, "from_bytes", read_onto_the_cpu, "same device"),
    "a type without a kernel": (VideoDenoising, "loss", integer_product, "for 'Long'"),
    "a tensor of the device as numpy's": (Training, "measured", read_as_numpy, "convert cuda:0"),
    "a copy read before it arrived": (Training, "measured", read_too_early, "loss is"),
    "more pinned memory than there is": (TaskOfUnits, "_moved", all_pinned, "CUDA error: out of"),
    "memory that an arm does not give back": (Training, "measured", kept_for_ever, "still held"),
}


def test_the_whole_course_passes_where_nothing_is_planted(tmp_path: Path) -> None:
    with imitated_gpu(pinned=2 << 20) as gpu:
        whole_course(gpu, tmp_path)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, planted, told = FAULTS[fault]
    monkeypatch.setattr(owner, name, planted)
    try:
        with imitated_gpu(pinned=2 << 20) as gpu, pytest.raises(Exception, match=told):
            whole_course(gpu, tmp_path)
    finally:
        KEPT.clear()


def test_a_process_that_sees_no_gpu_trains_no_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with imitated_gpu() as gpu:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        with pytest.raises(GpuLost, match="No CUDA GPUs are available"):
            whole_course(gpu, tmp_path)
