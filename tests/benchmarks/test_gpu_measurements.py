"""Measurements on a GPU: each, on the CPU at its smallest size, does what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import companies, decoder_8b, pairs, step_profile
from benchmarks.gpu.printed import NO_MEANING
from benchmarks.gpu.shapes import SHAPES, TINY_DECODER, shape
from benchmarks.imitated.text_models import write_decoder
from sweep.cost.noise_task import noise_task
from tests.support.gpu.devices import imitated_gpu
from trainables.build import build_model, build_task, placed
from trainables.config.arm import ArmConfig

SMALL = ["--device", "cpu", "--small"]
CPU = torch.device("cpu")


def printed_by(main: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    main([*SMALL, *arguments])
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def ut(tmp_path: Path) -> ArmConfig:
    return shape("ut", tmp_path, device="cpu", small=True)


@pytest.mark.parametrize("name", SHAPES)
def test_a_pair_is_measured_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed_by(pairs.main, [name], capsys)
    for arm in ("constrained", "unconstrained"):
        assert found[arm]["steps_per_s"] > 0
        assert found[arm]["memory"] == NO_MEANING
    assert found["bits_of_two_runs"] == {"weights": True, "report": True}
    if name in pairs.COMPARED:
        differences = found["from_the_cpu"]["train/loss, by step"]
        assert differences == [0.0, 0.0]  # the CPU from itself, on the same batches
    assert len(found["lines"]) >= 3
    assert "ended_by" not in found


@pytest.fixture
def imitated() -> Iterator[None]:
    if torch.backends.cuda.is_built():
        pytest.skip("this torch has CUDA of its own")
    with imitated_gpu():
        yield


@pytest.mark.usefixtures("imitated")
def test_memory_is_compared_with_its_estimate(tmp_path: Path) -> None:
    memory = pairs.whole_arm(shape("ut", tmp_path, device="cuda", small=True))["memory"]
    assert 0 < memory["training_mb"] <= memory["whole_mb"] <= memory["reserved_mb"]
    ratio = memory["whole_mb"] / memory["estimated_tensors_mb"]
    assert memory["whole_over_estimate"] == pytest.approx(ratio, rel=0.2)  # both are rounded


@pytest.mark.usefixtures("imitated")
def test_a_case_that_is_too_large_for_the_gpu_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = decoder_8b.parser("").parse_args(["--small"])
    config = decoder_8b.run_of(tmp_path, options)
    measured = decoder_8b.measured(config, tmp_path)
    assert decoder_8b.estimated(config, measured)["peak_over_estimate"] > 0
    monkeypatch.setattr(decoder_8b, "MOST", 0.0)
    found = decoder_8b.estimated(config, {"failed": "CUDA out of memory."})
    assert decoder_8b.line_of("exact", found).startswith("exact: needs more than the ")


def test_companies_are_measured_alone_fused_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed_by(companies.main, ["--arms", "1", "3"], capsys)
    for of_size in found["companies"].values():
        assert of_size["fused_per_s"] > 0
        assert of_size["whole_arms_per_minute"] > 0
        assert of_size["fuses"]
        assert of_size["bits_as_alone"] == of_size["bits_as_eager"] == 0.0
    assert found["companies"]["3"]["fused"]


def test_weights_that_differ_are_found() -> None:
    ones = [torch.ones(3), torch.full((2,), 4.0)]
    assert companies.farthest(ones, [t.clone() for t in ones]) == 0.0
    assert companies.farthest(ones, [torch.ones(3), torch.tensor([4.0, 4.5])]) == 0.125


def test_companies_that_do_not_fuse_are_said_so(
    ut: ArmConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companies, "may_fuse", lambda trainings: False)
    task = build_task(ut, CPU, torch.float32)
    found = companies.speeds(ut, task, 2, 2) | companies.bits(ut, task, 2)
    assert companies.line_of(2, found).endswith("; the product does not fuse")


def test_whole_arms_are_left_out_for_want_of_time(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed_by(companies.main, ["--arms", "1", "2", "--most-s", "0"], capsys)
    assert found["lines"][-1] == "K = 2: no whole arms, for want of time"


def test_a_step_is_profiled(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed_by(step_profile.main, [], capsys)
    assert found["constrained"]["operations"] > found["unconstrained"]["operations"] > 0
    assert found["constrained"]["waits_a_step"] == NO_MEANING


def test_traffic_is_what_operations_read_and_write() -> None:
    left, right = torch.ones(8, 16), torch.ones(16, 4)
    with step_profile.Traffic() as counted:
        made = (left.T.T @ right).view(-1)  # views move nothing
    assert made.shape == (32,)
    assert counted.moved == 4 * (8 * 16 + 16 * 4 + 8 * 4)


def test_every_case_of_the_large_decoder_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed_by(decoder_8b.main, [], capsys)
    assert set(found["cases"]) == set(decoder_8b.CASES)
    assert all(case["step_s"] > 0 for case in found["cases"].values())


def tensors_of(model: torch.nn.Module) -> dict[str, object]:
    every = (*model.named_parameters(), *model.named_buffers())
    return {name: (t.dtype, t.requires_grad, t.shape) for name, t in every}


def test_its_weights_are_kept_as_a_run_keeps_them(tmp_path: Path) -> None:
    options = decoder_8b.parser("").parse_args(SMALL)
    config = decoder_8b.run_of(tmp_path, options)
    training = decoder_8b.training_of(config, decoder_8b.network_of(tmp_path))
    write_decoder(tmp_path, **TINY_DECODER)
    built = placed(config, build_model(config, noise_task(config)), CPU)
    assert tensors_of(training.model) == tensors_of(built)


def test_what_ends_a_measurement_is_printed_with_what_there_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("no bits today")

    monkeypatch.setattr(pairs, "bits_of_two_runs", fail)
    with pytest.raises(RuntimeError, match="no bits today"):
        pairs.main([*SMALL, "ut"])
    found = json.loads(capsys.readouterr().out)
    assert found["ended_by"] == "RuntimeError: no bits today"
    assert len(found["lines"]) == 2
