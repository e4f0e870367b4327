"""Video data sets by name: whole clips in splits, statistics, fingerprints, decoded once."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.data.ped2_folders import config, frame_pixels, write_frames, write_original
from trainables.config.arm import DataConfig
from trainables.datasets.video import load as video
from trainables.datasets.video.clips import StoredClip, VideoClips
from trainables.datasets.video.load import load_video, resolve
from trainables.errors import BadData, UnknownName

pytestmark = pytest.mark.usefixtures("own_cache")


# --- splits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dev_fraction", "dev"),
    [(0.01, ["clip10"]), (0.25, ["clip10"]), (0.26, ["clip04", "clip10"]), (0.99, None)],
)
def test_dev_is_the_last_whole_clips_and_leaves_one_to_train_on(
    tmp_path: Path, dev_fraction: float, dev: list[str] | None
) -> None:
    clips = load_video(config(write_frames(tmp_path / "ped2"), dev_fraction=dev_fraction))
    assert [c.name for c in clips.dev] == (dev or ["clip02", "clip04", "clip10"])
    assert [c.name for c in clips.train + clips.dev] == ["clip01", "clip02", "clip04", "clip10"]
    for clip in clips.dev:
        number = int(clip.name[4:])
        image = Image.fromarray(frame_pixels("train", number, 0))
        expected = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR))
        np.testing.assert_array_equal(clip.frames[0], expected)


def test_max_clips_takes_the_first_clips_of_both_lists(tmp_path: Path) -> None:
    data = config(write_frames(tmp_path / "ped2"), max_clips=2)
    clips = load_video(data)
    names = [[c.name for c in split] for split in (clips.train, clips.dev, clips.test)]
    assert names == [["clip01"], ["clip02"], ["clip01", "clip03"]]
    assert clips.fingerprint != load_video(dataclasses.replace(data, max_clips=None)).fingerprint


def test_mean_and_std_are_those_of_the_training_pixels_alone(tmp_path: Path) -> None:
    clips = load_video(config(write_frames(tmp_path / "ped2")))
    pixels = np.concatenate([clip.frames.ravel() for clip in clips.train]) / 255.0
    assert clips.std == pytest.approx(pixels.std(), rel=1e-12)
    assert clips.mean == pytest.approx(pixels.mean(), rel=1e-12)


@pytest.mark.parametrize("frames", [100, 11_496, 250_000], ids=["some", "Avenue", "ShanghaiTech"])
def test_the_std_of_any_number_of_frames_is_that_of_its_pixels(tmp_path: Path, frames: int) -> None:
    """Half of 160 x 160 pixels are 40 and half are 200: std 80, whatever 64 bits can hold."""
    pixels = frames * 160**2
    sums = pixels * 120, pixels * (40**2 + 200**2) // 2
    clip = StoredClip("all", frames, *sums)
    clips = VideoClips(tmp_path, 160, (clip,), (), (), "")
    assert clips.std == pytest.approx(80 / 255, rel=1e-12)
    assert clips.mean == pytest.approx(120 / 255, rel=1e-12)


def test_frames_are_read_only_and_memory_mapped(tmp_path: Path) -> None:
    frames = load_video(config(write_frames(tmp_path / "ped2"))).train[0].frames
    assert isinstance(frames, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        frames[0, 0, 0] = 1


# --- fingerprint and cache ------------------------------------------------------------------------


def test_the_fingerprint_follows_the_pixels_and_not_the_folder(tmp_path: Path) -> None:
    root = write_frames(tmp_path / "a" / "ped2")
    first = resolve(config(root)).fingerprint
    shutil.copytree(root, tmp_path / "b")
    assert resolve(config(tmp_path / "b")).fingerprint == first
    image = frame_pixels("test", 3, 0)
    image[:8, :8] ^= 255
    Image.fromarray(image).save(tmp_path / "b" / "testing" / "frames" / "03" / "0.png")
    assert resolve(config(tmp_path / "b")).fingerprint != first


def test_changed_pixels_are_refused_with_both_fingerprints(tmp_path: Path) -> None:
    root = write_frames(tmp_path / "ped2")
    resolved = resolve(config(root))
    assert resolve(resolved) == resolved
    (root / "training" / "frames" / "01" / "5.png").unlink()
    with pytest.raises(
        BadData, match=rf"changed: expected fingerprint {resolved.fingerprint}, got"
    ):
        resolve(resolved)


def counted_decodes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    built: list[Path] = []
    real = video._decode

    def decode(folder: Path, *rest: object) -> None:
        built.append(folder)
        real(folder, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(video, "_decode", decode)
    return built


def test_a_data_set_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = counted_decodes(monkeypatch)
    data = config(write_frames(tmp_path / "ped2"))
    for changes in ({}, {"stride": 2}, {"frames": 3}, {"patch_size": 16}, {"dev_fraction": 0.5}):
        load_video(dataclasses.replace(data, **changes))
    assert len(built) == 1
    load_video(dataclasses.replace(data, frame_size=16))
    assert len(built) == 2


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "manifest"])
def test_a_damaged_cache_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    data = config(write_frames(tmp_path / "ped2"))
    clips = load_video(data)
    whole = np.array(clips.train[0].frames)
    path = clips.folder / ("manifest.json" if damage == "manifest" else "train.npy")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if damage in ("truncated", "manifest"):
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        path.write_bytes(content)
    built = counted_decodes(monkeypatch)
    np.testing.assert_array_equal(load_video(data).train[0].frames, whole)
    assert len(built) == 1


def test_the_manifest_says_what_an_entry_was_built_from(tmp_path: Path) -> None:
    clips = load_video(config(write_frames(tmp_path / "ped2")))
    key = json.loads((clips.folder / "manifest.json").read_text())["key"]
    assert key["root"] == str(tmp_path / "ped2")
    assert key["frame_size"] == 32


# --- what can be wrong ----------------------------------------------------------------------------


def test_an_unknown_data_set_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"'ucsd_ped3'.*photographs, shanghaitech, ucsd_ped1"):
        load_video(DataConfig(name="ucsd_ped3"))


def test_a_data_set_with_files_needs_a_folder() -> None:
    with pytest.raises(BadData, match=r"needs data\.folder.*Train/Train001/001\.tif"):
        load_video(config(None))


def test_a_clip_shorter_than_a_sequence_is_named(tmp_path: Path) -> None:
    root = write_frames(tmp_path / "ped2")
    with pytest.raises(BadData, match=r"clip02 \(train\) .* has 5 frames, .* takes 6"):
        load_video(config(root, frames=6))


def test_one_training_clip_leaves_nothing_to_hold_out(tmp_path: Path) -> None:
    root = write_original(tmp_path / "UCSDped2")
    for clip in ("Train002", "Train004", "Train010"):
        shutil.rmtree(root / "Train" / clip)
    with pytest.raises(BadData, match=r"has 1 training clip\(s\), but needs at least 2"):
        load_video(config(root))


def test_a_blank_video_is_refused(tmp_path: Path) -> None:
    root = write_frames(tmp_path / "ped2")
    for path in (root / "training").rglob("*.png"):
        Image.new("L", (64, 48), 7).save(path)
    with pytest.raises(BadData, match="equal"):
        load_video(config(root))


# --- the real data, where they are ----------------------------------------------------------------


def test_real_ped2_frames_have_the_known_std(real_data: Path) -> None:
    clips = load_video(DataConfig(name="ucsd_ped2", folder=str(real_data / "ped2")))
    assert [c.name for c in clips.train] == ["clip01", "clip02", "clip04", "clip07"]
    assert [c.name for c in clips.dev] == ["clip08", "clip10"]
    assert [len(c.frames) for c in clips.test] == [180] * 4
    assert clips.std == pytest.approx(0.1786, abs=2e-4)  # resampling moves the end


@pytest.mark.slow
def test_real_ped2_in_its_original_layout_is_the_same_clips(real_data: Path) -> None:
    published = real_data / "UCSD_Anomaly_Dataset.v1p2"
    original = load_video(DataConfig(name="ucsd_ped2", folder=str(published)))
    frames = load_video(DataConfig(name="ucsd_ped2", folder=str(real_data / "ped2")))
    assert [c.name for c in original.train] == ["clip01", "clip02", "clip04"]
    for a, b in zip(original.train, frames.train, strict=False):
        np.testing.assert_array_equal(a.frames, b.frames)
