"""Frame denoising: whole frames on the clips, units, draws and scale of video denoising."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.support.data.checkpoints import tiny_vit
from tests.support.oracles import denoise
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig
from trainables.errors import InvalidValue
from trainables.evaluation.measuring import measure
from trainables.objective import objective
from trainables.tasks import linear_references as references_module
from trainables.tasks.denoising import cut_into_patches
from trainables.tasks.frame_denoising import FrameDenoising
from trainables.tasks.linear_references import linear_references
from trainables.tasks.video_denoising import VideoDenoising

CPU = torch.device("cpu")
DATA = DataConfig(frame_size=16, patch_size=4, frames=5, stride=3)
VIDEO = ArmConfig(data=DATA, train_gamma=0.2, batch_size=24, eval_windows=6, eval_draws=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ArmConfig:
    folder = tiny_vit(tmp_path_factory.mktemp("vit"))
    model = ModelConfig(name="vit", layers=2, checkpoint=str(folder))
    return replace(VIDEO, task="frame_denoising", model=model)


def task_of(config: ArmConfig) -> FrameDenoising:
    return FrameDenoising(config, CPU, torch.float64)


def training_frames(task: FrameDenoising) -> np.ndarray:
    return np.concatenate([clip.frames for clip in task.video.train]) / 255.0


def test_an_epoch_visits_every_training_frame_once_but_the_incomplete_batch(
    run: ArmConfig,
) -> None:
    task = task_of(run)
    frames = training_frames(task)
    left: dict[bytes, int] = {}
    for frame in frames:
        left[frame.tobytes()] = left.get(frame.tobytes(), 0) + 1
    assert task.train_sequences == len(frames)
    assert task.steps_per_epoch == len(frames) // 24
    for step in range(task.steps_per_epoch):
        for target in task.train_batch(step).targets:
            left[target[0].contiguous().numpy().tobytes()] -= 1
    assert min(left.values()) == 0
    assert sum(left.values()) == len(frames) % 24


def test_fields_of_the_data_that_do_nothing_are_told(run: ArmConfig) -> None:
    assert task_of(run).notes == ("data.stride 3 does nothing: every training frame is a sample.",)
    plain = run.with_fields({"data.stride": 5})
    assert task_of(plain).notes == ()
    own_dev = "data.dev_fraction 0.5 does nothing: photographs has a dev split of its own."
    assert task_of(plain.with_fields({"data.dev_fraction": 0.5})).notes == (own_dev,)
    limited = plain.with_fields({"data.dev_fraction": 0.5, "data.max_clips": 4})
    assert task_of(limited).notes == ()


def test_the_noise_is_drawn_once_and_repeated_in_three_equal_channels(run: ArmConfig) -> None:
    task = task_of(run)
    for batch in (task.train_batch(0), next(iter(task.held_out("dev", 0.2, 0)))):
        assert batch.inputs.shape == batch.targets.shape == (len(batch.inputs), 3, 16, 16)
        for channel in (1, 2):
            assert torch.equal(batch.inputs[:, channel], batch.inputs[:, 0])
            assert torch.equal(batch.targets[:, channel], batch.targets[:, 0])
        assert not torch.equal(batch.inputs, batch.targets)


def test_noise_has_the_asked_std_in_training_and_held_out(run: ArmConfig) -> None:
    task = task_of(replace(run, eval_windows=48))
    std = training_frames(task).std()
    trained = [task.train_batch(step) for step in range(40)]
    for batches, gamma in ((trained, 0.2), (list(task.held_out("dev", 0.4, 0)), 0.4)):
        noise = torch.cat([(b.inputs - b.targets)[:, 0] for b in batches])
        # at least 48 x 5 x 256 = 61,440 draws: relative standard error .0029; 4 of it
        assert noise.std().item() == pytest.approx(gamma * std, rel=0.0115)


def test_units_are_those_of_video_denoising_frame_by_frame(run: ArmConfig) -> None:
    frames, video = task_of(run), VideoDenoising(VIDEO, CPU, torch.float64)
    assert (frames.dev_units, frames.train_units) == (video.dev_units, video.train_units)
    clips = {clip.name: clip.frames for clip in frames.video.dev}
    batches = list(frames.held_out("dev", 0.0, 0))
    assert [unit for b in batches for unit in b.units] == [i for i in range(6) for _ in range(5)]
    for batch, name in zip(batches, frames.dev_units, strict=True):
        clip, start = name.split(":")
        window = clips[clip][int(start) : int(start) + 5] / 255.0
        np.testing.assert_allclose(batch.targets[:, 0], window, rtol=1e-6)
        assert torch.equal(batch.inputs, batch.targets)  # gamma 0


def test_held_out_draws_are_keyed_and_shared_by_both_arms(run: ArmConfig) -> None:
    changed = replace(run, seed=4, batch_size=8, constraint=ConstraintConfig(), primal_lr=1.0)
    first, same, other, draw = (
        torch.cat([b.inputs for b in task_of(c).held_out("dev", gamma, k)])
        for c, gamma, k in ((run, 0.3, 1), (changed, 0.3, 1), (run, 0.31, 1), (run, 0.3, 0))
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert not torch.equal(first, draw)


def test_the_metric_is_the_rmse_in_grey_levels_as_in_video_denoising(run: ArmConfig) -> None:
    task = task_of(run)
    clean = torch.zeros(3, 3, 16, 16, dtype=torch.float64)
    assert task.loss(clean + 10 / 255, clean).shape == (3,)
    assert task.metric(task.loss(clean + 10 / 255, clean).mean().item()) == pytest.approx(10.0)
    mixed = clean + torch.tensor([3.0, 0.0, 6.0]).view(1, 3, 1, 1) / 255
    expected = math.sqrt((9 + 0 + 36) / 3)  # over pixels and channels
    assert task.metric(task.loss(mixed, clean).mean().item()) == pytest.approx(expected)


def test_the_scales_are_those_of_video_denoising_per_pixel(run: ArmConfig) -> None:
    frames, video = task_of(run), VideoDenoising(VIDEO, CPU, torch.float64)
    assert 16 * frames.scales.constant_loss == pytest.approx(video.scales.constant_loss)
    assert 16 * frames.scales.identity_loss == pytest.approx(video.scales.identity_loss)
    clean = torch.from_numpy(training_frames(frames)).unsqueeze(1).expand(-1, 3, -1, -1)
    best = frames.loss(torch.full_like(clean, frames.video.mean), clean).mean().item()
    assert best == pytest.approx(frames.scales.constant_loss, rel=1e-9)


def test_a_batch_larger_than_the_training_split_is_refused(run: ArmConfig) -> None:
    with pytest.raises(InvalidValue, match=r"batch_size must be at most \d+, the number of train"):
        task_of(replace(run, batch_size=10**6))


# --- linear references ----------------------------------------------------------------------------


def test_references_have_the_wiener_filter_of_a_patch_and_none_in_time(run: ArmConfig) -> None:
    found = linear_references(run, task_of(run))
    assert (
        set(found.metrics)
        == set(found.losses)
        == {"identity", "constant", "wiener", "wiener_train"}
    )
    assert found.losses["wiener"] < found.losses["identity"] < found.losses["constant"]
    assert objective(found.metrics["identity"], found.metrics["wiener"], [0.25]) > 0


def test_references_equal_sums_written_out_on_the_models_own_draws(run: ArmConfig) -> None:
    task = task_of(run)
    found = linear_references(run, task)
    fit = references_module._fitted(run, task, 1)
    for gamma in (0.2, 0.5):
        losses: dict[str, list[float]] = {"identity": [], "constant": [], "wiener": []}
        for batch in task.held_out("dev", gamma, 0):
            for noisy, clean in zip(batch.inputs[:, 0], batch.targets[:, 0], strict=True):
                patches = [
                    denoise(
                        fit,
                        noisy[y : y + 4, x : x + 4].reshape(1, 16).numpy().astype(np.float32),
                        gamma * task.std,
                    ).reshape(4, 4)
                    for y in range(0, 16, 4)
                    for x in range(0, 16, 4)
                ]
                rows = [np.concatenate(patches[i : i + 4], axis=1) for i in range(0, 16, 4)]
                denoised = torch.from_numpy(np.concatenate(rows))
                losses["wiener"].append((denoised - clean).square().mean().item())
                losses["identity"].append((noisy - clean).square().mean().item())
                losses["constant"].append((clean - task.video.mean).square().mean().item())
        for name, of_frames in losses.items():
            expected = 255 * math.sqrt(np.mean(of_frames))
            assert found.metrics[name][f"{gamma:.2f}"] == pytest.approx(expected, rel=1e-4)


def test_references_of_frames_and_of_sequences_agree_where_both_are_defined(
    run: ArmConfig,
) -> None:
    """Same units and pixels: the constant's RMSE is equal; the others differ by their draws."""
    every = replace(run, eval_windows=10**6)
    frames = linear_references(every, task_of(every)).metrics
    video_config = replace(VIDEO, eval_windows=10**6)
    video = linear_references(
        video_config, VideoDenoising(video_config, CPU, torch.float64)
    ).metrics
    assert frames["constant"]["0.20"] == pytest.approx(video["constant"]["0.20"], rel=1e-5)
    for name in ("identity", "wiener"):
        # 61,440 squared draws: relative standard error of an RMSE .0029; 4 of it, twice
        assert frames[name]["0.20"] == pytest.approx(video[name]["0.20"], rel=0.0115 * 1.5)


def test_patches_are_cut_row_by_row() -> None:
    frame = torch.arange(64).reshape(1, 8, 8)
    patches = cut_into_patches(frame, 4)
    assert patches.shape == (1, 4, 16)
    assert torch.equal(patches[0, 1].reshape(4, 4), frame[0, :4, 4:])
    assert torch.equal(patches[0, 2].reshape(4, 4), frame[0, 4:, :4])


def test_the_identity_is_measured_as_such(run: ArmConfig) -> None:
    class Unchanged(torch.nn.Module):
        def forward(self, inputs: torch.Tensor) -> list[torch.Tensor]:
            return [inputs, inputs]

    task = task_of(run)
    measured = measure(Unchanged(), task, "dev", 0.2, 1)
    found = linear_references(run, task)
    assert measured.units.shape == (6, 2)
    score = task.metric(float(measured.units.mean(axis=0)[-1]))
    assert score == pytest.approx(found.metrics["identity"]["0.20"], rel=1e-5)
