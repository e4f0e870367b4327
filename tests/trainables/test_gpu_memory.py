"""Memory of a GPU: an arm is held to its share, and too little of it is an outcome, not a loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from tests.support.gpu.devices import GPUS, gpu_of
from tests.support.oracles import TINY
from trainables.arm_run import ArmRun
from trainables.config.arm import ArmConfig
from trainables.environment import environment
from trainables.errors import GpuShareTooSmall
from trainables.memory import CONTEXT_MB, hold_to_share, reset_peak_memory
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

if TYPE_CHECKING:
    from tests.support.gpu.tensors import Gpu

GPU = torch.device("cuda")
SMALL = TINY.with_fields({"device": "cuda"})


@pytest.fixture(params=GPUS, autouse=True)
def gpu(request: pytest.FixtureRequest) -> Iterator[Gpu | None]:
    with gpu_of(request.param) as here:
        free_workspaces()  # an arm would do without memory of its own in what is left of them
        yield here


@pytest.fixture
def store(tmp_path: Path) -> ArmStore:
    return ArmStore(ObjectStore(tmp_path))


def run(config: ArmConfig, store: ArmStore, gpu_share: float = 1.0) -> ArmRecord:
    arm = ArmRun(config, store, gpu_share=gpu_share)
    while not arm.advance().is_final:
        pass
    return arm.record


def free_workspaces() -> None:
    """Give back cuBLAS's workspaces, which belong to the process: 64 MiB on an H100."""
    getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
    reset_peak_memory(GPU)


def total_mb() -> int:
    found: int = environment("cuda")["gpu_memory_mb"]
    return found


def test_a_process_cannot_take_more_than_its_share() -> None:
    share = 0.1
    allowed = int(share * total_mb() - CONTEXT_MB) * 2**20
    hold_to_share(GPU, share)
    try:
        fits = torch.empty(int(0.9 * allowed), dtype=torch.uint8, device=GPU)
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(int(0.2 * allowed), dtype=torch.uint8, device=GPU)
        del fits
    finally:
        hold_to_share(GPU, 1.0)
        reset_peak_memory(GPU)
    torch.empty(2 * allowed, dtype=torch.uint8, device=GPU)


def test_an_arm_that_outgrows_its_share_goes_on_with_a_whole_gpu(store: ArmStore) -> None:
    share = (CONTEXT_MB + 1) / total_mb()  # one MiB of tensors
    with pytest.raises(GpuShareTooSmall, match="of its GPU"):
        run(SMALL, store, gpu_share=share)
    assert store.record(SMALL.signature()) is None
    assert run(SMALL, store).status == "finished"


def test_too_little_memory_of_a_whole_gpu_is_a_failed_outcome(
    store: ArmStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = (CONTEXT_MB + 1) / total_mb()
    # as if the whole GPU were that small
    monkeypatch.setattr("trainables.arm_run.hold_to_share", lambda d, _: hold_to_share(d, share))
    record = run(SMALL, store)
    assert record.status == "failed"
    assert record.reason.startswith("out of GPU memory (CUDA out of memory.")
    assert "lower batch_size" in record.reason
    monkeypatch.undo()
    assert run(SMALL, store) == record  # it is not tried again
    hold_to_share(GPU, 1.0)
    other = SMALL.with_fields({"seed": 1})
    assert run(other, store).status == "finished"  # the process goes on with the next arm


def test_the_memory_of_an_arm_is_free_for_the_next(store: ArmStore) -> None:
    run(SMALL, store)
    free_workspaces()
    assert torch.cuda.memory_reserved(GPU) < 64 * 2**20
