"""Shifts beside Gaussian noise: pixel arithmetic against oracles, what is keyed, what is seen."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor

from tests.support.oracles import TINY
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import (
    FAMILIES,
    VIDEO_FAMILIES,
    family_of,
    near_shift_gammas,
    seen_gammas,
    severity_key,
    unseen_gammas,
)
from trainables.errors import InvalidValue, UnknownName
from trainables.random_keys import keyed_generator
from trainables.tasks.base import Batch
from trainables.tasks.denoising import Denoising
from trainables.tasks.frame_denoising import FrameDenoising
from trainables.tasks.perturbations import (
    after_noise,
    before_noise,
    compressed,
    gaussian_blur,
    lost_frames,
    occluded,
    salt_and_pepper,
)
from trainables.tasks.video_denoising import VideoDenoising


def generator(*key: str | int) -> torch.Generator:
    return keyed_generator("cpu", "test_shifts", *key)


def frames(*shape: int) -> Tensor:
    return torch.rand(shape, generator=generator("frames"))


# --- the grid -------------------------------------------------------------------------------------


def test_the_families_are_those_that_a_configuration_may_name() -> None:
    hint = typing.get_type_hints(ArmConfig)["shifts"]
    assert set(typing.get_args(typing.get_args(hint)[0])) == set(FAMILIES)


@pytest.mark.parametrize("shift", FAMILIES)
def test_severities_rise_and_have_keys_of_their_own(shift: str) -> None:
    severities = FAMILIES[shift].severities
    assert len(severities) == len({severity_key(s) for s in severities}) == 3
    assert list(severities) == sorted(severities)
    assert all(float(severity_key(s)) == s > 0 for s in severities)


@pytest.mark.parametrize(
    ("train_gamma", "test_gammas", "seen"),
    [
        (0.15, (0.0, 0.15, 0.2, 0.25, 0.3, 0.5), [0.0, 0.15, 0.2, 0.25]),
        (0.0, (0.0, 0.05, 0.1, 0.15), [0.0, 0.05, 0.1]),
        (0.15, (0.0, 0.5, 0.6), [0.0, 0.5]),  # nothing near: selection looks at the first beyond
        (0.6, (0.0, 0.5), [0.0, 0.5]),
        (0.2, (0.1, 0.3, 0.31), [0.1, 0.3]),  # 0.2 + 0.1 exceeds 0.3 in binary
    ],
)
def test_seen_is_all_that_training_or_selection_looks_at(
    train_gamma: float, test_gammas: tuple[float, ...], seen: list[float]
) -> None:
    config = replace(TINY, train_gamma=train_gamma, test_gammas=test_gammas)
    assert seen_gammas(config) == seen
    assert unseen_gammas(config) == [g for g in test_gammas if g not in seen]
    assert set(near_shift_gammas(config)) <= set(seen)


# --- blur -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.2, 0.8, 3.2, 20.0])  # the last reaches far beyond the frame
def test_blur_is_scipys_gaussian_filter(sigma: float) -> None:
    clean = frames(2, 12, 20)
    expected = ndimage.gaussian_filter(clean.double().numpy(), (0, sigma, sigma), mode="reflect")
    # float32 sums of 20 x 20 numbers in [0, 1]
    np.testing.assert_allclose(gaussian_blur(clean, sigma).numpy(), expected, atol=1e-6)


def test_blur_keeps_a_frames_mean_and_a_constant_frame() -> None:
    clean = frames(3, 16, 16).double()
    means = gaussian_blur(clean, 2.5).mean((1, 2))
    torch.testing.assert_close(means, clean.mean((1, 2)), rtol=1e-12, atol=0)
    constant = torch.full((1, 16, 16), 0.3, dtype=torch.float64)
    torch.testing.assert_close(gaussian_blur(constant, 2.5), constant, rtol=1e-12, atol=0)


def test_blur_is_in_percent_of_the_frames_side() -> None:
    for side in (32, 160):
        clean = frames(1, side, side)
        expected = gaussian_blur(clean, 0.02 * side)
        assert before_noise(clean, "blur", 2.0, 0.1, generator()).equal(expected)


# --- brightness -----------------------------------------------------------------------------------


@pytest.mark.parametrize("severity", VIDEO_FAMILIES["brightness"].severities)
def test_brightness_disturbs_as_much_as_the_gamma_of_its_number(severity: float) -> None:
    clean = frames(2, 8, 8).double()
    error = before_noise(clean, "brightness", severity, 0.2, generator()) - clean
    # the energy of noise at gamma = severity, but for the rounding of x + b - x
    torch.testing.assert_close(error, torch.full_like(error, severity * 0.2), rtol=1e-12, atol=0)


# --- salt and pepper ------------------------------------------------------------------------------


def test_salt_and_pepper_replaces_a_share_of_pixels_by_black_and_white() -> None:
    clean = 0.25 + 0.5 * frames(50, 8, 100)
    share = 0.1
    got = salt_and_pepper(clean, share, generator("sp"))
    black, white = got == 0, got == 1
    # binomial: 4 standard deviations of 40,000 pixels
    spread = 4 * math.sqrt(share / 2 / clean.numel())
    assert black.float().mean().item() == pytest.approx(share / 2, abs=spread)
    assert white.float().mean().item() == pytest.approx(share / 2, abs=spread)
    assert got[~black & ~white].equal(clean[~black & ~white])


def test_the_identitys_error_under_salt_and_pepper_has_its_closed_form() -> None:
    clean = frames(50, 8, 100)
    share = 0.2
    got = (salt_and_pepper(clean, share, generator("energy")) - clean).square().mean().item()
    expected = share * 0.5 * (clean.square() + (1 - clean).square()).mean().item()
    assert got == pytest.approx(expected, rel=0.05)  # 4 standard deviations of 8,000 lost pixels


# --- frame drop -----------------------------------------------------------------------------------


def naive_lost_frames(window: Tensor, share: float, draws: list[float]) -> Tensor:
    """Frame by frame: what a viewer of the stream sees."""
    shown: list[Tensor] = []
    for t in range(window.shape[1]):
        if t > 0 and draws[t] < share:
            shown.append(shown[-1])
        else:
            shown.append(window[:, t])
    return torch.stack(shown, dim=1)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_a_lost_frame_shows_the_last_one_received_in_every_patch(share: float) -> None:
    window = frames(5, 40, 3)
    draws = torch.rand(40, generator=generator("drop")).tolist()
    expected = naive_lost_frames(window, share, draws)
    assert lost_frames(window, share, generator("drop")).equal(expected)


def test_the_share_of_lost_frames_is_that_asked_for() -> None:
    window = torch.arange(2001.0).reshape(1, 2001, 1)
    shown = lost_frames(window, 0.3, generator("share"))
    lost = (shown != window)[0, 1:].float().mean().item()
    assert lost == pytest.approx(0.3, abs=4 * math.sqrt(0.3 * 0.7 / 2000))
    assert shown[0, 0] == window[0, 0]  # the first frame is always there


# --- compression and occlusion --------------------------------------------------------------------


@pytest.mark.parametrize("lost", [25.0, 98.0])
def test_compression_is_that_of_a_file_of_that_quality(lost: float, tmp_path: Path) -> None:
    clean = frames(5, 7).repeat_interleave(8, 0).repeat_interleave(8, 1)
    pixels = Image.fromarray((clean * 255).round().to(torch.uint8).numpy())
    pixels.save(tmp_path / "frame.jpg", quality=int(100 - lost))
    expected = np.array(Image.open(tmp_path / "frame.jpg"), dtype=np.float32) / 255
    got = compressed(torch.stack([clean.flip(0), clean]), lost)
    np.testing.assert_array_equal(got[1].numpy(), expected)
    assert not got[0].equal(got[1])


def test_a_black_square_has_its_share_of_every_frame_at_one_place() -> None:
    clean = 0.25 + 0.5 * frames(5, 40, 60)
    places = set()
    for key in range(20):
        got = occluded(clean, 0.06, generator("square", key))
        black = got == 0
        assert got[~black].equal(clean[~black])
        assert black.equal(black[:1].expand_as(black))
        rows, columns = black[0].any(1), black[0].any(0)
        assert rows.sum() == columns.sum() == 12  # the root of 0.06 x 40 x 60
        assert black[0].sum() == 144
        places.add((int(rows.int().argmax()), int(columns.int().argmax())))
    assert len(places) > 15


# --- all of them ----------------------------------------------------------------------------------


def whole(shift: str, severity: float, window: Tensor, key: str = "all") -> Tensor:
    """Both stages without noise between them; frames [T, H, W] as one patch each."""
    scene = before_noise(window, shift, severity, 0.2, generator(key))
    return after_noise(scene.flatten(1)[None], shift, severity, generator(key))


@pytest.mark.parametrize("shift", VIDEO_FAMILIES)
def test_severity_0_changes_nothing_and_more_is_worse(shift: str) -> None:
    window = frames(10, 96, 96)  # the mildest blur moves nothing between larger pixels
    plain = window.flatten(1)[None]
    assert whole(shift, 0.0, window).equal(plain)
    errors = [
        (whole(shift, s, window) - plain).square().mean().item()
        for s in VIDEO_FAMILIES[shift].severities
    ]
    assert 0 < errors[0] < errors[1] < errors[2]


@pytest.mark.parametrize("shift", ["salt_and_pepper", "frame_drop", "occlusion"])
def test_a_higher_severity_disturbs_what_the_lower_one_did(shift: str) -> None:
    window = 0.25 + 0.5 * frames(40, 8, 8)
    plain = window.flatten(1)[None]
    mild, strong = ((whole(shift, s, window) != plain) for s in (0.2, 0.5))
    assert mild.any()
    assert (strong | ~mild).all()
    assert strong.sum() > mild.sum()


@pytest.mark.parametrize("shift", VIDEO_FAMILIES)
def test_every_family_acts_either_before_or_after_the_noise(shift: str) -> None:
    window = frames(10, 16, 16)
    severity = VIDEO_FAMILIES[shift].severities[-1]
    before = not before_noise(window, shift, severity, 0.2, generator("one")).equal(window)
    after = not after_noise(window, shift, severity, generator("one")).equal(window)
    assert before != after
    assert before == (shift not in ("salt_and_pepper", "frame_drop"))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: before_noise(x, "blur", -1.0, 0.1, generator()),
        lambda x: before_noise(x, "compression", 101.0, 0.1, generator()),
        lambda x: before_noise(x, "occlusion", 1.5, 0.1, generator()),
        lambda x: after_noise(x, "salt_and_pepper", 1.5, generator("bad")),
        lambda x: after_noise(x, "frame_drop", math.nan, generator("bad")),
        lambda x: gaussian_blur(x, math.nan),
    ],
)
def test_a_severity_that_means_nothing_is_refused(call: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(InvalidValue, match="must be"):
        call(frames(1, 4, 4))


# --- in a task ------------------------------------------------------------------------------------

LAST = {name: family.severities[-1] for name, family in VIDEO_FAMILIES.items()}


@pytest.fixture(scope="module")
def task() -> VideoDenoising:
    return VideoDenoising(TINY, torch.device("cpu"), torch.float32)


def batches(task: Denoising, shift: str, severity: float, draw: int = 0) -> list[Batch]:
    return list(task.shifted("dev", shift, severity, draw))


@pytest.mark.parametrize("shift", VIDEO_FAMILIES)
def test_severity_0_is_the_very_score_in_distribution(task: VideoDenoising, shift: str) -> None:
    plain = list(task.held_out("dev", TINY.train_gamma, 1))
    for there, here in zip(plain, batches(task, shift, 0.0, draw=1), strict=True):
        assert here.inputs.equal(there.inputs)
        assert here.targets.equal(there.targets)
        assert here.units == there.units


@pytest.mark.parametrize("shift", VIDEO_FAMILIES)
def test_targets_stay_clean_and_inputs_are_keyed_by_the_draw(
    task: VideoDenoising, shift: str
) -> None:
    clean = [batch.targets for batch in task.held_out("dev", 0.0, 0)]
    once, again, other = (batches(task, shift, LAST[shift], draw) for draw in (0, 0, 1))
    for target, one, two, three in zip(clean, once, again, other, strict=True):
        assert one.targets.equal(target)
        assert one.inputs.equal(two.inputs)
        assert not one.inputs.equal(three.inputs)


@pytest.mark.parametrize("shift", VIDEO_FAMILIES)
def test_neither_seed_nor_model_nor_constraint_changes_a_disturbance(
    task: VideoDenoising, shift: str
) -> None:
    others = (
        replace(TINY, seed=7),
        TINY.unconstrained(),
        TINY.with_fields({"model.layers": 5, "constraint.alpha": 0.4, "primal_lr": 0.1}),
    )
    here = torch.cat([batch.inputs for batch in batches(task, shift, LAST[shift])])
    for config in others:
        other = VideoDenoising(config, torch.device("cpu"), torch.float32)
        assert torch.cat([b.inputs for b in batches(other, shift, LAST[shift])]).equal(here)


def test_blur_crosses_the_borders_of_patches(task: VideoDenoising) -> None:
    """Blurred as whole frames and cut then: against SciPy on the frames, put together by hand."""
    config = replace(TINY, train_gamma=0.0)
    silent = VideoDenoising(config, torch.device("cpu"), torch.float32)
    unit = silent.dev_units[0]
    window_TSS = silent.window("dev", unit)
    sigma = 0.05 * 32
    blurred = ndimage.gaussian_filter(window_TSS.numpy(), (0, sigma, sigma), mode="reflect")
    inputs = batches(silent, "blur", 5.0)[0].inputs
    patch = TINY.data.patch_size
    for position in range(64):
        row, column = divmod(position, 8)
        for t in range(3):
            square = blurred[t, patch * row :, patch * column :][:patch, :patch]
            np.testing.assert_allclose(inputs[position, t].numpy(), square.flatten(), atol=1e-6)


def test_a_frame_is_lost_after_its_noise_and_in_every_patch(task: VideoDenoising) -> None:
    noisy = list(task.held_out("dev", TINY.train_gamma, 0))
    lost = 0
    for there, here in zip(noisy, batches(task, "frame_drop", 0.8), strict=True):
        for t in range(TINY.data.frames):
            shown = [
                source
                for source in range(t + 1)
                if here.inputs[:, t].equal(there.inputs[:, source])
            ]
            assert len(shown) == 1  # one frame as it was received, the noise included
            lost += shown[0] != t
    assert lost > 0


def test_frames_one_by_one_are_blurred_and_peppered_alike_in_every_channel() -> None:
    config = TINY.with_fields({"data.patch_size": 4})
    vit = replace(config.model, name="vit", variant="", checkpoint="any", layers=3)
    config = replace(config, task="frame_denoising", model=vit)
    frames_task = FrameDenoising(config, torch.device("cpu"), torch.float32)
    for shift in set(VIDEO_FAMILIES) - {"frame_drop"}:
        for batch in batches(frames_task, shift, LAST[shift]):
            assert batch.inputs.shape == batch.targets.shape
            assert batch.inputs[:, 0].equal(batch.inputs[:, 2])
            assert not batch.inputs.equal(batch.targets)


def test_an_unknown_family_is_refused_with_the_known_ones() -> None:
    for call in (
        lambda: family_of("fog"),
        lambda: before_noise(frames(1, 4, 4), "fog", 1.0, 0.1, generator()),
        lambda: after_noise(frames(1, 4, 4), "fog", 1.0, generator("fog")),
    ):
        with pytest.raises(UnknownName, match="salt_and_pepper"):
            call()
