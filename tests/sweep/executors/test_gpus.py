"""Arms on imitated GPUs in Ray's workers: shares of one GPU, and an arm that outgrows its share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sweep.executors.executor import Executor
from sweep.run.run_sweep import run_sweep
from sweep.study.definition import put_definition
from tests.support.drivers import records, table, tiny
from tests.support.gpu.alone import trained_alone
from tests.support.gpu.in_workers import ImitatedGpus, imitated_gpus
from trainables.memory import CONTEXT_MB
from trainables.records.arm_record import TRAIN_PEAK_MEMORY_MB
from trainables.records.objects import ObjectStore

GPU_MB = 8192
HALF = pytest.approx(1 / 2 - CONTEXT_MB / GPU_MB)


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[ImitatedGpus]:
    """A machine with two, of which this process may use the second."""
    with imitated_gpus(tmp_path / "gpus", count=2, total=GPU_MB * 2**20, visible="1") as there:
        yield there


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch has CUDA of its own")
@pytest.mark.long("Ray starts, and three of its workers import torch")
@pytest.mark.usefixtures("ray_home")
def test_arms_share_a_gpu_and_one_that_outgrows_its_share_goes_on_with_a_whole_one(
    objects: ObjectStore, tmp_path: Path, gpus: ImitatedGpus, caplog: pytest.LogCaptureFixture
) -> None:
    asked = put_definition(objects, tiny(n_proposals=1, steps=10, report_every=5, device="cuda"))
    gpus.take(5_500, 6 * 2**30)  # in a worker's second arm
    summary = run_sweep(objects, asked, Executor(workers=2, fuse=1), display=False)
    assert (summary.is_done, summary.problems, summary.arms_done) == (True, (), 4)
    # Two workers were packed on the GPU that Ray gave them; later one had it for itself.
    started = list(gpus.told("started").values())
    assert len(started) >= 3
    assert all(told == [{"sees": [1], "given": [1]}] for told in started)
    shares = sorted(share for told in gpus.told("share").values() for share in told)
    assert shares == [HALF] * 4 + [1.0]  # each arm was begun once, and one once more
    assert sum(map(len, gpus.told("taken").values())) == 1
    assert caplog.text.count("outgrew its share of a GPU") == 1
    require_trained_on_gpus(objects, {"Imitated GPU 1"})
    assert table(objects, asked) == trained_alone(asked, tmp_path / "alone")


def require_trained_on_gpus(objects: ObjectStore, names: set[str]) -> None:
    """Every arm finished on one of these, and its record says so."""
    there = list(records(objects).values())
    assert {(one.status, one.config.device) for one in there} == {("finished", "cuda")}
    assert {one.environment["gpu"] for one in there} <= names
    assert {one.environment["gpu_memory_mb"] for one in there} == {GPU_MB}
    peaks = [report.scalars[TRAIN_PEAK_MEMORY_MB] for one in there for report in one.reports]
    assert len(peaks) == 2 * len(there)
    assert min(peaks) > 0
