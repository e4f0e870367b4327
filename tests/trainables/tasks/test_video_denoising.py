"""Video denoising: what a batch is, keyed draws, noise, losses, units, scales."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig
from trainables.errors import InvalidValue, UnknownName
from trainables.random_keys import keyed_generator, seed_of
from trainables.tasks.base import Batch, Task
from trainables.tasks.perturbations import gaussian
from trainables.tasks.video_denoising import VideoDenoising

CPU = torch.device("cpu")
DATA = DataConfig(frame_size=32, patch_size=8, frames=5, stride=3)
RUN = ArmConfig(data=DATA, train_gamma=0.2, batch_size=24, eval_windows=6)

pytestmark = pytest.mark.usefixtures("cache_of_the_file")


def task_of(config: ArmConfig = RUN, dtype: torch.dtype = torch.float64) -> VideoDenoising:
    return VideoDenoising(config, CPU, dtype)


def assert_same(a: Batch, b: Batch) -> None:
    assert torch.equal(a.inputs, b.inputs)
    assert torch.equal(a.targets, b.targets)
    assert a.units == b.units


# --- keyed draws ----------------------------------------------------------------------------------


def test_a_seed_is_the_same_in_every_process() -> None:
    """Of whatever hash seed: this process has another one."""
    code = "from trainables.random_keys import seed_of; print(seed_of(3, 'order', 0.15))"
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == seed_of(3, "order", 0.15) == 1609501814701219240


def test_seeds_differ_for_every_part_of_the_key_and_fit_63_bits() -> None:
    keys = [(0, "a", 1), (1, "a", 0), (0, "b", 1), (0, "a"), (0, "a", 1.0), ("0", "a", 1)]
    seeds = [seed_of(*key) for key in keys]
    assert len(set(seeds)) == len(keys)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_key_that_would_print_differently_elsewhere_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"float64"):
        seed_of("dev", np.float64(0.5))


def test_gaussian_noise_has_the_asked_std_and_zero_mean() -> None:
    noise = gaussian(torch.zeros(400_000, dtype=torch.float64), 0.3, keyed_generator("cpu", 1))
    # standard errors over 400,000 draws: .3/sqrt(2n) = .00034 and .3/sqrt(n) = .00047; 4 of each
    assert noise.std().item() == pytest.approx(0.3, abs=0.0014)
    assert noise.mean().item() == pytest.approx(0.0, abs=0.0019)


def test_no_noise_leaves_the_inputs_alone_and_negative_noise_is_refused() -> None:
    clean = torch.rand(3)
    assert torch.equal(gaussian(clean, 0.0, keyed_generator("cpu", 1)), clean)
    with pytest.raises(InvalidValue, match="at least 0, got -1"):
        gaussian(clean, -1, keyed_generator("cpu", 1))


# --- training batches -----------------------------------------------------------------------------


def naive_sequences(config: ArmConfig) -> list[np.ndarray]:
    """Every training sequence in index order, cut out one by one."""
    data, found = config.data, []
    for clip in task_of(config).video.train:
        for start in range(0, len(clip.frames) - data.frames + 1, data.stride):
            for top in range(0, data.frame_size, data.patch_size):
                for left in range(0, data.frame_size, data.patch_size):
                    window = clip.frames[start : start + data.frames]
                    patch = window[:, top : top + data.patch_size, left : left + data.patch_size]
                    found.append(patch.reshape(data.frames, -1) / 255.0)
    return found


@pytest.mark.parametrize("shuffle_by", ["sequence", "window"])
def test_an_epoch_visits_every_sequence_once_but_the_incomplete_batch(shuffle_by: str) -> None:
    config = RUN.with_fields({"data.max_clips": 3, "data.shuffle_by": shuffle_by})
    task, naive = task_of(config), naive_sequences(config)
    assert task.train_sequences == len(naive)
    assert task.steps_per_epoch == len(naive) // 24
    index = {}
    for i, sequence in enumerate(naive):
        index.setdefault(sequence.tobytes(), []).append(i)
    left = {key: len(found) for key, found in index.items()}
    for step in range(task.steps_per_epoch):
        for sequence in task.train_batch(step).targets:
            left[sequence.numpy().tobytes()] -= 1
    assert min(left.values()) == 0  # none more often than it is there
    assert sum(left.values()) == len(naive) % 24


def test_windows_are_visited_with_all_their_patches() -> None:
    positions = (DATA.frame_size // DATA.patch_size) ** 2
    config = RUN.with_fields({"data.shuffle_by": "window", "batch_size": 3 * positions})
    task, naive = task_of(config), naive_sequences(config)
    index = {sequence.tobytes(): i for i, sequence in enumerate(naive)}
    assert len(index) == len(naive)  # no two alike: each says which it is
    for step in (0, 1, task.steps_per_epoch):
        targets = task.train_batch(step).targets.reshape(3, positions, *naive[0].shape)
        seen = [[index[sequence.numpy().tobytes()] for sequence in window] for window in targets]
        starts = [window[0] for window in seen]
        assert seen == [list(range(first, first + positions)) for first in starts]
        assert all(first % positions == 0 for first in starts)
        assert len(set(starts)) == 3


def test_sequences_are_cut_as_a_plain_loop_cuts_them() -> None:
    task, naive = task_of(), naive_sequences(RUN)
    chosen = np.arange(0, task.train_sequences, 97)
    cut = task.clean_train_samples(chosen) / 255.0
    np.testing.assert_array_equal(cut, np.stack([naive[i] for i in chosen]))


def test_batches_are_a_function_of_seed_and_step_alone() -> None:
    fresh = task_of().train_batch(700)
    used = task_of()
    torch.manual_seed(123)
    for step in (0, 5, 699, 3):
        used.train_batch(step)
        torch.rand(10)
    assert_same(used.train_batch(700), fresh)
    assert_same(used.train_batch(700), fresh)


def test_training_batches_leave_the_global_random_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    task_of().train_batch(2)
    assert torch.equal(torch.get_rng_state(), before)


def test_both_arms_of_a_pair_see_the_same_batches() -> None:
    constrained = dataclasses.replace(RUN, constraint=ConstraintConfig(alpha=0.3))
    arms = [task_of(constrained), task_of(constrained.unconstrained())]
    for step in (0, 1, arms[0].steps_per_epoch):
        assert_same(arms[0].train_batch(step), arms[1].train_batch(step))


def test_other_seeds_steps_and_epochs_give_other_batches() -> None:
    task, other = task_of(), task_of(dataclasses.replace(RUN, seed=1))
    first = task.train_batch(0)
    for batch in (
        other.train_batch(0),
        task.train_batch(1),
        task.train_batch(task.steps_per_epoch),
    ):
        assert not torch.equal(batch.targets, first.targets)
        noises = batch.inputs - batch.targets, first.inputs - first.targets
        assert not torch.equal(*noises)


def test_training_noise_is_train_gamma_times_the_std_of_the_training_pixels() -> None:
    task = task_of()
    noise = torch.cat([b.inputs - b.targets for b in map(task.train_batch, range(40))])
    pixels = np.concatenate([clip.frames.ravel() for clip in task.video.train]) / 255.0
    # 40 x 24 x 5 x 64 = 307,200 draws: relative standard error of a std 1/sqrt(2n) = .0013; 4 of it
    assert noise.std().item() == pytest.approx(0.2 * pixels.std(), rel=0.0052)


def test_a_batch_larger_than_the_training_split_is_refused() -> None:
    config = dataclasses.replace(RUN, batch_size=10**6)
    with pytest.raises(InvalidValue, match=r"batch_size must be at most \d+, .* got 1000000"):
        task_of(config)


def test_float32_runs_see_the_same_clean_pixels_as_float64_runs() -> None:
    single, double = task_of(dtype=torch.float32).train_batch(4), task_of().train_batch(4)
    assert single.inputs.dtype == torch.float32
    torch.testing.assert_close(single.targets.double(), double.targets, rtol=1e-6, atol=0)


# --- held-out units -------------------------------------------------------------------------------


def batches(task: Task, split: str, gamma: float, draw: int) -> Batch:
    found = list(task.held_out(split, gamma, draw))
    units = tuple(unit for batch in found for unit in batch.units)
    inputs, targets = (torch.cat([getattr(b, k) for b in found]) for k in ("inputs", "targets"))
    return Batch(inputs, targets, units)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_units_are_whole_windows_of_their_split_and_never_overlap(split: str) -> None:
    task = task_of()
    names = {"train": task.train_units, "dev": task.dev_units, "test": task.test_units}[split]
    clips = {clip.name: clip.frames for clip in getattr(task.video, split)}
    batch = batches(task, split, 0.0, 0)
    # of dev and train as many as asked for, of test all
    count = sum(c.length // 5 for c in task.video.stored("test")) if split == "test" else 6
    assert len(set(names)) == len(names) == count
    assert batch.units == tuple(i for i in range(count) for _ in range(16))
    taken = set()
    for i, name in enumerate(names):
        clip, start = name.split(":")
        window = clips[clip][int(start) : int(start) + 5] / 255.0
        taken |= {(clip, int(start) + t) for t in range(5)}
        corner = window[:, :8, 8:16].reshape(5, 64)  # the second patch of the first row
        np.testing.assert_allclose(batch.targets[16 * i + 1], corner, rtol=1e-6)
    assert len(taken) == count * 5


def test_units_are_spread_over_all_clips_and_the_same_for_every_run() -> None:
    task = task_of()
    assert {name[:5] for name in task.dev_units} == {"dev00", "dev01"}
    other = dataclasses.replace(RUN, seed=9, train_gamma=0.1, constraint=ConstraintConfig())
    assert task_of(other).dev_units == task.dev_units
    assert len(task.units("dev", 10**6)) == 2 * (120 // 5)


def test_no_unit_of_dev_or_test_lies_in_a_training_clip() -> None:
    task = task_of()
    clips = [
        {name.split(":")[0] for name in names}
        for names in (task.train_units, task.dev_units, task.test_units)
    ]
    assert not clips[0] & clips[1]
    assert not (clips[0] | clips[1]) & clips[2]


def test_held_out_draws_depend_on_unit_gamma_and_draw_and_on_no_training_setting() -> None:
    first = batches(task_of(), "dev", 0.3, 1)
    changed = dataclasses.replace(
        RUN, seed=4, train_gamma=0.1, batch_size=8, constraint=ConstraintConfig(), primal_lr=1.0
    )
    assert_same(batches(task_of(changed), "dev", 0.3, 1), first)
    noise = first.inputs - first.targets
    assert not torch.equal(noise[:16], noise[16:32])
    for split, gamma, draw in (("dev", 0.3, 0), ("dev", 0.31, 1), ("train", 0.3, 1)):
        other = batches(task_of(), split, gamma, draw)
        assert not torch.allclose((other.inputs - other.targets) / gamma, noise / 0.3)


def test_clips_of_the_same_name_in_two_splits_get_other_draws(tmp_path: Path) -> None:
    for name in ("training/frames/01", "training/frames/02", "testing/frames/01"):
        (tmp_path / name).mkdir(parents=True)
        for i in range(5):
            pixels = np.full((32, 32), 40 * i, np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    data = dataclasses.replace(DATA, name="ucsd_ped2", folder=str(tmp_path))
    task = task_of(dataclasses.replace(RUN, data=data, batch_size=1))
    assert task.train_units == task.test_units == ("clip01:0000",)
    train, test = (batches(task, split, 0.2, 0) for split in ("train", "test"))
    assert torch.equal(train.targets, test.targets)
    assert not torch.equal(train.inputs, test.inputs)


def test_held_out_draws_of_a_unit_do_not_depend_on_how_many_units_there_are() -> None:
    task, fewer = task_of(), task_of(dataclasses.replace(RUN, eval_windows=2))
    (name,) = set(task.units("dev", 48)) & {fewer.dev_units[0]}
    every = task_of(dataclasses.replace(RUN, eval_windows=48))
    at = 16 * every.dev_units.index(name)
    many, few = batches(every, "dev", 0.2, 0), batches(fewer, "dev", 0.2, 0)
    assert torch.equal(many.inputs[at : at + 16], few.inputs[:16])


def test_float32_and_float64_runs_are_judged_on_the_same_draws() -> None:
    single, double = (
        batches(task_of(dtype=dtype), "dev", 0.2, 0) for dtype in (torch.float32, torch.float64)
    )
    assert torch.equal(single.inputs.double(), double.inputs)


def test_held_out_noise_has_the_asked_std() -> None:
    task = task_of(dataclasses.replace(RUN, eval_windows=48))
    batch = batches(task, "dev", 0.4, 0)
    noise = batch.inputs - batch.targets
    # 48 x 16 x 5 x 64 = 245,760 draws: relative standard error .0014; 4 of it
    assert noise.std().item() == pytest.approx(0.4 * task.std, rel=0.0058)


def test_gamma_zero_adds_nothing() -> None:
    batch = batches(task_of(), "train", 0.0, 3)
    assert torch.equal(batch.inputs, batch.targets)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"unknown split 'val'\. Known: dev, test, train"):
        next(task_of().held_out("val", 0.1, 0))


# --- loss, metric, scales -------------------------------------------------------------------------


def test_the_loss_is_the_sum_over_the_patch_averaged_over_the_tokens() -> None:
    task = task_of()
    prediction, targets = torch.rand(2, 7, 5, 64, dtype=torch.float64)
    naive = [
        sum((p - t) ** 2 for p, t in zip(a.flatten().tolist(), b.flatten().tolist(), strict=True))
        / 5
        for a, b in zip(prediction, targets, strict=True)
    ]
    torch.testing.assert_close(
        task.loss(prediction, targets), torch.tensor(naive, dtype=torch.float64)
    )


def test_the_metric_is_the_rmse_in_grey_levels() -> None:
    task = task_of()
    clean = torch.zeros(3, 5, 64, dtype=torch.float64)
    loss = task.loss(clean + 10 / 255, clean).mean().item()
    assert task.metric(loss) == pytest.approx(10.0, rel=1e-12)


def test_the_constant_scale_is_the_loss_of_the_best_constant() -> None:
    task = task_of()
    targets = torch.from_numpy(np.stack(naive_all_patches(task)))
    losses = [
        task.loss(torch.full_like(targets, c), targets).mean().item()
        for c in (task.video.mean - 0.01, task.video.mean, task.video.mean + 0.01)
    ]
    assert losses[1] == pytest.approx(task.scales.constant_loss, rel=1e-9)
    assert losses[1] < min(losses[0], losses[2])


def naive_all_patches(task: VideoDenoising) -> list[np.ndarray]:
    """Every patch of every training frame, as sequences of one token."""
    frames = np.concatenate([clip.frames for clip in task.video.train]) / 255.0
    return [
        frame[i : i + 8, j : j + 8].reshape(1, 64)
        for frame in frames
        for i in range(0, 32, 8)
        for j in range(0, 32, 8)
    ]


def test_the_identity_scale_is_the_loss_of_the_unchanged_input_at_train_gamma() -> None:
    task = task_of(dataclasses.replace(RUN, eval_windows=48))
    batch = batches(task, "dev", 0.2, 0)
    measured = task.loss(batch.inputs, batch.targets).mean().item()
    # 245,760 squared draws: relative standard error sqrt(2/n) = .0029; 4 of it
    assert task.scales.identity_loss == pytest.approx(measured, rel=0.0115)


@pytest.mark.parametrize("grid", [(0.0, 0.3, 0.4), (0.0, 0.05, 0.1), (0.01, 0.5)])
def test_without_training_noise_the_identity_scale_is_at_a_gamma_that_no_grid_moves(
    grid: tuple[float, ...],
) -> None:
    task = task_of(dataclasses.replace(RUN, train_gamma=0.0, test_gammas=grid))
    assert task.scales.identity_loss == pytest.approx(64 * (0.05 * task.std) ** 2, rel=1e-12)
    batch = task.train_batch(0)
    assert torch.equal(batch.inputs, batch.targets)


def test_real_ped2_has_the_scales_that_were_measured_before(real_data: Path) -> None:
    data = DataConfig(name="ucsd_ped2", folder=str(real_data / "ped2"))
    task = task_of(ArmConfig(data=data, train_gamma=0.13))
    assert task.train_sequences == 11_600  # stride 5, training clips 01 02 04 07
    assert task.scales.identity_loss == pytest.approx(0.138, abs=5e-4)
    assert task.scales.constant_loss == pytest.approx(8.17, abs=0.02)
    assert math.isclose(task.metric(task.scales.constant_loss), 255 * task.std, rel_tol=1e-12)
