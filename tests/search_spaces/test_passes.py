"""Passes over training data told before they are read, and those that are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from search_spaces import catalog
from search_spaces.effects import passes
from search_spaces.effects.passes import epoch_steps, passes_text
from tests.support.command_line import sweep
from tests.support.oracles import TINY
from trainables.build import build_task
from trainables.config.arm import ArmConfig, DataConfig


def steps_that_are(run: ArmConfig) -> int:
    return build_task(run, torch.device("cpu"), torch.float32).steps_per_epoch


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"data.stride": 5, "data.frames": 10},
        {"data.max_clips": 4},
        {"task": "frame_denoising", "model.name": "vit", "model.checkpoint": "never-read"},
    ],
    ids=str,
)
def test_photographs_have_the_steps_that_are_told(fields: dict[str, object]) -> None:
    run = TINY.with_fields(fields)
    assert epoch_steps(run) == steps_that_are(run)


def test_real_clips_have_about_the_steps_that_are_told(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six of Ped2's sixteen training clips lie there, with 900 frames."""
    monkeypatch.setitem(passes._VIDEOS, "ucsd_ped2", passes._Clips(6, 900))  # type: ignore[index]
    data = DataConfig(name="ucsd_ped2", folder=str(real_data / "ped2"))
    run = ArmConfig(data=data)
    assert epoch_steps(run) == pytest.approx(steps_that_are(run), rel=0.05)


@pytest.mark.parametrize(
    ("space", "told"),
    [
        ("video_denoising_ut", "ucsd_ped2 about 3.6 (1,125 steps each)"),
        ("video_denoising_ut", "shanghaitech about 0.031"),
        ("video_denoising_dust", "cuhk_avenue about 0.35"),
        ("text_classification_distilbert", "imdb about 8.5 (703 steps each)"),
        ("text_classification_distilbert", "mnli about 0.54"),
        ("instruction_tuning_llama", "alpaca about 2 (11,466 steps each)"),
    ],
)
def test_the_long_runs_say_how_often_they_pass_over_their_data(space: str, told: str) -> None:
    is_long = space != "instruction_tuning_llama"
    assert told in passes_text(catalog.find(space, full=is_long).space)


def test_what_only_the_data_say_is_told_so() -> None:
    ours = (catalog.setting("clips", "ut", 3, 0.15),)
    space = replace(catalog.find("video_denoising_ut").space, settings=ours)
    assert passes_text(space) == "Passes over the training data: clips known once they are read."


@pytest.mark.long("the cost of a space is timed, twice")
def test_the_command_line_tells_them() -> None:
    wanted = passes_text(catalog.find("quickstart").space)
    assert wanted in " ".join(sweep("spaces", "quickstart").output.split())
    told = json.loads(sweep("spaces", "quickstart", "--json").output)["passes"]
    assert all(count == pytest.approx(1000 / 621) for count in told.values())
