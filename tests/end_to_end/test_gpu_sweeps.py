"""Sweeps on imitated GPUs: shares given and measured, GPUs that are lost or broken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from search_spaces.space import Setting
from sweep.executors.executor import Executor
from sweep.run.run_sweep import run_sweep
from sweep.study.definition import Definition, put_definition
from tests.support.command_line import SPACE_FILE
from tests.support.drivers import ROOT, records, table, tiny
from tests.support.gpu.alone import trained_alone
from tests.support.gpu.in_workers import ImitatedGpus, imitated_gpus, nvml
from trainables.errors import InvalidValue
from trainables.memory import CONTEXT_MB
from trainables.records.arm_record import TRAIN_PEAK_MEMORY_MB
from trainables.records.objects import ObjectStore
from trainables.retries import ARM_STARTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("ray_home"),
    pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch has CUDA of its own"),
]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Callable[..., ImitatedGpus]]:
    """Make this machine one with so many GPUs."""
    with ExitStack() as stack:
        yield lambda **gpus: stack.enter_context(imitated_gpus(tmp_path / "gpus", **gpus))


def short(**fields: Any) -> Definition:
    return tiny(**({"n_proposals": 1, "steps": 10, "report_every": 5, "device": "cuda"} | fields))


def one_setting(asked: Definition) -> Definition:
    return replace(asked, space=replace(asked.space, settings=asked.space.settings[:1]))


def gpus_of(objects: ObjectStore) -> set[str]:
    return {record.environment["gpu"] for record in records(objects).values()}


def shares(gpus: ImitatedGpus) -> list[float]:
    """That arms were held to, one for each start of an arm."""
    return sorted(share for told in gpus.told("share").values() for share in told)


def test_every_arm_has_a_gpu_of_its_own_where_nothing_is_said(
    machine: Callable[..., ImitatedGpus], objects: ObjectStore, tmp_path: Path
) -> None:
    gpus = machine(count=2)
    asked = put_definition(objects, short())
    assert run_sweep(objects, asked, Executor(), display=False).is_done
    told = [start for starts in gpus.told("started").values() for start in starts]
    assert sorted(start["sees"] for start in told) == [[0], [1]]
    assert all(start["sees"] == start["given"] for start in told)
    assert gpus_of(objects) == {"Imitated GPU 0", "Imitated GPU 1"}
    assert shares(gpus) == [1.0] * 4
    assert table(objects, asked) == trained_alone(asked, tmp_path / "alone")


def test_shares_follow_from_the_memory_that_was_recorded(
    machine: Callable[..., ImitatedGpus], objects: ObjectStore, tmp_path: Path
) -> None:
    """A quarter of this GPU leaves 2 MiB for tensors, a half 772."""
    gpu_mb = 4 * (CONTEXT_MB + 2)
    gpus = machine(total=gpu_mb * 2**20)
    asked = short(gpus_per_arm="measured")
    large = Setting("large", {"data.frame_size": 48, "data.frames": 8, "model.layers": 2})
    settings = (asked.space.settings[0], large)
    asked = put_definition(objects, replace(asked, space=replace(asked.space, settings=settings)))
    summary = run_sweep(objects, asked, Executor(), display=False)
    assert (summary.is_done, summary.problems) == (True, ())
    quarter, half = 1 / 4 - CONTEXT_MB / gpu_mb, 1 / 2 - CONTEXT_MB / gpu_mb
    assert shares(gpus) == pytest.approx([quarter, half, 1.0, 1.0])
    there = records(objects).values()
    assert {one.environment["gpu_memory_mb"] for one in there} == {gpu_mb}
    peaks = sorted(one.reports[-1].scalars[TRAIN_PEAK_MEMORY_MB] for one in there)
    assert peaks[1] < 2 / 1.25 < peaks[2]
    assert table(objects, asked) == trained_alone(asked, tmp_path / "alone")


@pytest.mark.parametrize("fuse", [1, 4])
def test_arms_whose_gpu_is_lost_go_on_in_another_process(
    machine: Callable[..., ImitatedGpus],
    objects: ObjectStore,
    tmp_path: Path,
    fuse: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpus = machine()
    asked = put_definition(objects, one_setting(short(n_proposals=3)))
    gpus.lose(2_500)  # between the first report of an arm, or of a group, and its last
    summary = run_sweep(objects, asked, Executor(workers=1, fuse=fuse), display=False)
    assert (summary.is_done, summary.problems) == (True, ())
    assert sum(map(len, gpus.told("lost").values())) == 1
    assert len(gpus.told("started")) == 2
    assert "a worker died" in caplog.text
    assert table(objects, asked) == trained_alone(asked, tmp_path / "alone")


def test_a_broken_gpu_beside_one_that_works_fails_no_arm(
    machine: Callable[..., ImitatedGpus], objects: ObjectStore, tmp_path: Path
) -> None:
    gpus = machine(count=2)
    gpus.break_gpu(0)
    asked = put_definition(objects, short(n_proposals=4))
    summary = run_sweep(objects, asked, Executor(), display=False)
    assert (summary.is_done, summary.problems) == (True, ())
    assert gpus_of(objects) == {"Imitated GPU 1"}
    assert table(objects, asked) == trained_alone(asked, tmp_path / "alone")


def test_where_cuda_starts_on_no_gpu_arms_fail_after_as_many_starts(
    machine: Callable[..., ImitatedGpus], objects: ObjectStore
) -> None:
    gpus = machine()
    gpus.break_gpu(0)
    asked = put_definition(objects, one_setting(short()))
    summary = run_sweep(objects, asked, Executor(), display=False)
    there = list(records(objects).values())
    assert [one.status for one in there] == ["failed"] * 2
    for one in there:
        assert "CUDA does not start on" in one.reason
        assert "uncorrectable ECC error" in one.reason
        assert f"The arm was started {ARM_STARTS} times without a GPU" in one.reason
    assert summary.exit_code == 1
    assert gpus.told("started") == {}


def test_where_ray_finds_no_gpu_nothing_is_trained(
    machine: Callable[..., ImitatedGpus], objects: ObjectStore
) -> None:
    machine(count=2)
    asked = put_definition(objects, short())
    with nvml(0), pytest.raises(InvalidValue, match=r"Ray finds no GPU here. Set device=cpu"):
        run_sweep(objects, asked, Executor(), display=False)
    assert records(objects) == {}


def test_the_command_line_trains_on_the_gpus_that_it_may_use(tmp_path: Path) -> None:
    gpus = ImitatedGpus(tmp_path / "gpus", count=4)
    space, root = tmp_path / "mine.py", tmp_path / "root"
    space.write_text(SPACE_FILE)
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "sweep.cli", "run", str(space), "--storage", str(root)),
            *("--set", "device=cuda", "--set", "gpus_per_arm=0.25"),
        ],
        cwd=ROOT,
        env=gpus.environment() | {"CUDA_VISIBLE_DEVICES": "2,3"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 of 2 arms are final" in ran.stdout
    workers = [one for told in gpus.told("started").values() for one in told if one["given"]]
    assert workers
    assert all(one["sees"] == one["given"] for one in workers)
    assert {one for worker in workers for one in worker["sees"]} <= {2, 3}
    assert gpus_of(ObjectStore(root)) <= {"Imitated GPU 2", "Imitated GPU 3"}
    assert shares(gpus) == pytest.approx([1 / 4 - CONTEXT_MB / 8192] * 2)
