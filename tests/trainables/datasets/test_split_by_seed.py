"""Dev splits drawn by a run's seed: whole clips and groups, the same test split, decoded once."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.data.ped2_folders import LENGTHS, config, frames_of, write_frames
from tests.support.data.text_folders import TEXT_LAYOUTS
from tests.support.data.text_runs import text_task, tiny_text
from tests.support.oracles import TINY
from trainables.build import build_task, check_training
from trainables.config.arm import ArmConfig, DataConfig
from trainables.datasets.text.load import load_text
from trainables.datasets.text.load import resolve as resolve_text
from trainables.datasets.video.load import load_video, resolve
from trainables.errors import InvalidValue
from trainables.tasks.denoising import Denoising
from trainables.tasks.frame_denoising import FrameDenoising

pytestmark = pytest.mark.usefixtures("own_cache")
SEEDS = range(12)


def entries(cache: Path, kind: str) -> list[Path]:
    return sorted(cache.glob(f"{kind}/*/*"))


def test_a_seed_draws_whole_clips_without_decoding_again(tmp_path: Path) -> None:
    data = resolve(config(write_frames(tmp_path / "ped2")))
    whole = load_video(data)
    drawn = {seed: load_video(data, seed) for seed in SEEDS}
    assert {clips.folder for clips in drawn.values()} == {whole.folder}
    assert {clips.fingerprint for clips in drawn.values()} == {data.fingerprint}
    devs = {tuple(c.name for c in clips.dev_clips) for clips in drawn.values()}
    assert all(len(dev) == len(whole.dev_clips) for dev in devs)
    assert len(devs) > 2
    every = {clip.name: clip.frames for clip in whole.train + whole.dev}
    for seed, clips in drawn.items():
        names = [c.name for c in clips.train + clips.dev]
        assert sorted(names) == sorted(every)
        for clip in clips.train + clips.dev:
            np.testing.assert_array_equal(clip.frames, every[clip.name])
        assert clips.test_clips == whole.test_clips
        pixels = np.concatenate([clip.frames.ravel() for clip in clips.train]) / 255.0
        assert clips.std == pytest.approx(pixels.std(), rel=1e-12)
        assert load_video(data, seed).dev_clips == clips.dev_clips


@pytest.mark.parametrize("task", ["video_denoising", "frame_denoising"])
def test_a_task_trains_on_and_measures_the_clips_that_its_seed_drew(
    tmp_path: Path, task: str
) -> None:
    """Every training sample and held-out window is looked up in the clips themselves."""
    data = resolve(config(write_frames(tmp_path / "ped2"), split_by_seed=True))
    for seed in range(4):
        run = dataclasses.replace(TINY, data=data, batch_size=2, seed=seed, train_gamma=0.0)
        if task == "frame_denoising":
            made: Denoising = FrameDenoising(run, torch.device("cpu"), torch.float32)
        else:
            found = build_task(run, torch.device("cpu"), torch.float32)
            assert isinstance(found, Denoising)
            made = found
        clips = load_video(data, seed)
        inner = {clip.name: clip.frames / 255.0 for clip in clips.train}
        shape = (-1, 4, 32 // 8, 8, 32 // 8, 8)
        seen = 0
        for index in range(made.train_sequences):
            sample = made.clean_train_samples(np.array([index]))[0] / 255.0
            if task == "frame_denoising":
                frames = [frame for clip in inner.values() for frame in clip]
            else:
                windows = [
                    clip[t : t + 4].reshape(shape)[0, :, row, :, column].reshape(4, 64)
                    for clip in inner.values()
                    for t in range(0, len(clip) - 3, data.stride)
                    for row in range(4)
                    for column in range(4)
                ]
                frames = windows
            seen += bool(np.isclose(frames[index], sample).all())
        assert seen == made.train_sequences == len(frames)
        for unit in made.dev_units:
            name, start = unit.split(":")
            dev = next(clip.frames for clip in clips.dev if clip.name == name)
            expected = dev[int(start) : int(start) + 4] / 255.0
            np.testing.assert_allclose(made.window("dev", unit).numpy(), expected, rtol=1e-6)
        assert {unit.split(":")[0] for unit in made.train_units} <= set(inner)


def test_references_are_those_of_the_seeds_own_split(tmp_path: Path) -> None:
    data = resolve(config(write_frames(tmp_path / "ped2"), split_by_seed=True))
    runs = [dataclasses.replace(TINY, data=data, batch_size=2, seed=seed) for seed in SEEDS]
    of_dev: dict[tuple[str, ...], set[float]] = {}
    for run in (*runs, *runs):
        task = build_task(run, torch.device("cpu"), torch.float32)
        dev = tuple(sorted({unit.split(":")[0] for unit in task.dev_units}))
        of_dev.setdefault(dev, set()).add(task.references("test").losses["wiener"])
    assert len(of_dev) > 2
    assert all(len(losses) == 1 for losses in of_dev.values())
    assert len(set.union(*of_dev.values())) == len(of_dev)


def test_data_that_leave_no_choice_say_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"must be false for photographs .* split of its own"):
        check_training(TINY.with_fields({"data.split_by_seed": True}))
    few = config(write_frames(tmp_path / "ped2"), max_clips=3)
    with pytest.raises(InvalidValue, match="it has 3 training clips, and less than 4 leave no"):
        load_video(few, 0)
    assert len(LENGTHS["train"]) == 4
    assert len(frames_of("train", 1)) == 6


@pytest.mark.parametrize("name", ["imdb", "mnli"])
def test_a_seed_draws_whole_groups_of_texts(tmp_path: Path, name: str, own_cache: Path) -> None:
    layout = next(one for one in TEXT_LAYOUTS.values() if one.data_set == name)
    folder = layout.write(tmp_path / "data")
    data = resolve_text(DataConfig(name=name, folder=str(folder), dev_fraction=0.3))
    whole = load_text(data)
    drawn = {seed: load_text(data, seed) for seed in SEEDS}
    assert len({splits.fingerprint for splits in drawn.values()}) > 2
    for seed, splits in drawn.items():
        assert sorted(map(repr, splits.train + splits.dev)) == sorted(
            map(repr, whole.train + whole.dev)
        )
        groups = {e.group for e in splits.train}, {e.group for e in splits.dev}
        assert not groups[0] & groups[1]
        assert splits.test == whole.test
        again = load_text(data, seed)
        assert (again.train, again.dev, again.fingerprint) == (
            splits.train, splits.dev, splits.fingerprint,
        )  # fmt: skip
        assert splits.lengths["dev"] == len(splits.dev)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o000)  # the files are not read again
    assert load_text(data, 99).labels == whole.labels


@pytest.mark.parametrize("name", ["imdb", "mnli"])
def test_few_items_leave_a_seed_as_many_of_dev(tmp_path: Path, name: str) -> None:
    layout = next(one for one in TEXT_LAYOUTS.values() if one.data_set == name)
    folder = str(layout.write(tmp_path / "data"))
    data = DataConfig(name=name, folder=folder, dev_fraction=0.4, max_items=6)
    whole = load_text(data)
    for seed in SEEDS:
        drawn = load_text(data, seed)
        assert drawn.lengths == whole.lengths
        assert not {e.group for e in drawn.train} & {e.group for e in drawn.dev}


def test_runs_on_texts_measure_the_groups_that_their_seed_drew(tmp_path: Path) -> None:
    config = tiny_text(tmp_path, **{"data.split_by_seed": True})
    tasks = [text_task(dataclasses.replace(config, seed=seed)) for seed in range(6)]
    assert len({task.dev_units for task in tasks}) > 1
    assert len({task.test_units for task in tasks}) == 1
    one = text_task(dataclasses.replace(config, seed=3))
    assert one.dev_units == tasks[3].dev_units
    off = config.with_fields({"data.split_by_seed": False})
    assert text_task(off).dev_units == text_task(dataclasses.replace(off, seed=5)).dev_units


def test_without_it_nothing_is_hashed_or_stored_differently(tmp_path: Path) -> None:
    data = config(write_frames(tmp_path / "ped2"))
    assert json.loads(json.dumps(data.to_json()))["split_by_seed"] is False
    assert load_video(data).mixed_clips == ()
    assert ArmConfig(data=data).signature() == ArmConfig(data=dataclasses.replace(data)).signature()
