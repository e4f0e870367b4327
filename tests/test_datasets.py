"""Data sets: layouts, splits, the cache, and every way a folder can be wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data_folders import LAYOUTS, write_video
from tests.data_folders import write_frames as write_frame_files
from trainables.config import DataConfig
from trainables.datasets import video
from trainables.datasets.cache import built_once, cache_root
from trainables.datasets.clips import Pixels
from trainables.datasets.video import load_video, resolve
from trainables.errors import BadData, Misuse, UnknownName

LENGTHS = {"train": {1: 6, 2: 5, 4: 7, 10: 6}, "test": {1: 5, 3: 6}}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test decodes anew, into its own folder."""
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def frame_pixels(split: str, clip: int, frame: int) -> Pixels:
    """A frame that no other clip, split or number has."""
    random = np.random.default_rng([len(split), clip, frame])
    return random.integers(0, 256, (48, 64), dtype=np.uint8)


def write_original(root: Path) -> Path:
    """The published layout, with what else lies in such folders."""
    for split, name in (("train", "Train"), ("test", "Test")):
        for clip, length in LENGTHS[split].items():
            folder = root / name / f"{name}{clip:03d}"
            folder.mkdir(parents=True)
            for i in range(length):
                Image.fromarray(frame_pixels(split, clip, i)).save(folder / f"{i + 1:03d}.tif")
            (folder / "._001.tif").write_bytes(b"resource fork")
            (folder / ".DS_Store").write_bytes(b"")
    truth = root / "Test" / "Test001_gt"
    truth.mkdir()
    Image.fromarray(frame_pixels("test", 1, 0)).save(truth / "001.bmp")
    (root / "Test" / "UCSDped2.m").write_text("TestVideoFile = {};")
    return root


def write_frames(root: Path) -> Path:
    """Numbered frame folders; PNG, so that the pixels equal those of ``write_original``."""
    for split, name in (("train", "training"), ("test", "testing")):
        for clip, length in LENGTHS[split].items():
            folder = root / name / "frames" / f"{clip:02d}"
            folder.mkdir(parents=True)
            for i in range(length):
                Image.fromarray(frame_pixels(split, clip, i)).save(folder / f"{i}.png")
    (root / "frame_labels.json").write_text("{}")
    return root


def config(folder: Path | str | None, **changes: object) -> DataConfig:
    values = {"frame_size": 32, "frames": 4, "patch_size": 8} | changes
    return DataConfig(name="ucsd_ped2", folder=None if folder is None else str(folder), **values)


# --- layouts and splits ---------------------------------------------------------------------------


def test_decoded_frames_are_the_files_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    clips = load_video(config(write_frames(tmp_path / "ped2"))).train
    assert [clip.name for clip in clips] == ["clip01", "clip02", "clip04"]
    for clip, number in zip(clips, (1, 2, 4), strict=True):
        assert clip.frames.shape == (LENGTHS["train"][number], 32, 32)
        for i, frame in enumerate(clip.frames):
            image = Image.fromarray(frame_pixels("train", number, i))
            expected = image.resize((32, 32), Image.Resampling.BILINEAR)
            np.testing.assert_array_equal(frame, np.asarray(expected))


def test_frames_numbered_without_zeros_are_not_sorted_as_text(tmp_path: Path) -> None:
    root = write_frames(tmp_path / "ped2")
    folder = root / "training" / "frames" / "01"
    for i in range(6, 12):  # 10.png sorts before 2.png as text
        Image.fromarray(frame_pixels("train", 1, i)).save(folder / f"{i}.png")
    clip = load_video(config(root)).train[0]
    last = Image.fromarray(frame_pixels("train", 1, 11)).resize((32, 32), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(clip.frames[11], np.asarray(last))


def test_both_layouts_of_the_same_pixels_have_one_fingerprint(tmp_path: Path) -> None:
    original = resolve(config(write_original(tmp_path / "UCSDped2")))
    frames = resolve(config(write_frames(tmp_path / "elsewhere" / "ped2")))
    assert len(original.fingerprint) == 16
    assert original.fingerprint == frames.fingerprint


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("UCSDped2", "UCSDped2"),
        ("UCSDped2", "."),
        ("UCSD_Anomaly_Dataset.v1p2/UCSDped2", "."),
        ("UCSD_Anomaly_Dataset.v1p2/UCSDped2", "UCSD_Anomaly_Dataset.v1p2"),
    ],
)
def test_the_original_layout_is_found_from_its_folder_and_its_parents(
    tmp_path: Path, written: str, given: str
) -> None:
    write_original(tmp_path / "data" / written)
    assert len(load_video(config(tmp_path / "data" / given)).test) == 2


@pytest.mark.parametrize("given", ["ped2", "."])
def test_the_frames_layout_is_found_from_its_folder_and_its_parent(
    tmp_path: Path, given: str
) -> None:
    write_frames(tmp_path / "data" / "ped2")
    assert len(load_video(config(tmp_path / "data" / given)).test) == 2


def test_a_folder_with_two_copies_is_refused_with_both_named(tmp_path: Path) -> None:
    write_original(tmp_path / "data" / "UCSDped2")
    write_frames(tmp_path / "data" / "ped2")
    with pytest.raises(BadData, match=r"more than once: .*/UCSDped2 and .*/ped2\."):
        load_video(config(tmp_path / "data"))


@pytest.mark.parametrize(
    ("dev_share", "dev"),
    [(0.01, ["clip10"]), (0.25, ["clip10"]), (0.26, ["clip04", "clip10"]), (0.99, None)],
)
def test_dev_is_the_last_whole_clips_and_leaves_one_to_train_on(
    tmp_path: Path, dev_share: float, dev: list[str] | None
) -> None:
    clips = load_video(config(write_frames(tmp_path / "ped2"), dev_share=dev_share))
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
    for changes in ({}, {"stride": 2}, {"frames": 3}, {"patch_size": 16}, {"dev_share": 0.5}):
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


BUILDER = """
import os, pathlib, sys, time
from trainables.datasets.cache import built_once

def build(folder):
    print("built")
    for part in range(20):
        (folder / str(part)).write_text(str(os.getpid()))
        time.sleep(0.01)

start = pathlib.Path(sys.argv[1])
start.with_name(f"ready{os.getpid()}").touch()
while not start.exists():
    time.sleep(0.001)
entry = built_once("test", {"of": "two at once"}, build)
print(*sorted({(entry / str(part)).read_text() for part in range(20)}))
"""


def test_two_processes_at_once_build_one_whole_entry(tmp_path: Path, own_cache: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BUILDER, str(tmp_path / "go")], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    while len(list(tmp_path.glob("ready*"))) < 2:
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    (tmp_path / "go").touch()
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum("built" in output for output in outputs) == 1
    (writer,) = {output[-1] for output in outputs}
    assert writer in {str(process.pid) for process in processes}
    assert list((own_cache / "test").glob(".*.tmp")) == []


def test_a_failed_build_leaves_nothing_behind(own_cache: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise BadData("the frame is damaged")

    with pytest.raises(BadData, match="damaged"):
        built_once("test", 1, build)
    assert [p.name for p in (own_cache / "test").iterdir() if not p.name.endswith(".lock")] == []


def test_the_cache_root_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_root() == tmp_path / "cache"
    monkeypatch.delenv("SWEEP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "descent-sweep"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "home" / ".cache" / "descent-sweep"


def test_a_cache_that_cannot_be_written_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "file"))
    with pytest.raises(Misuse, match=r"cannot be written .* Set SWEEP_CACHE"):
        load_video(DataConfig(frame_size=32))


# --- what can be wrong ----------------------------------------------------------------------------


def test_an_unknown_data_set_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"'ucsd_ped3'.*photographs, shanghaitech, ucsd_ped1"):
        load_video(DataConfig(name="ucsd_ped3"))


def test_a_data_set_with_files_needs_a_folder() -> None:
    with pytest.raises(BadData, match=r"needs data\.folder.*Train/Train001/001\.tif"):
        load_video(config(None))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"/nowhere does not exist.*every machine"):
        load_video(config(tmp_path / "nowhere"))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "archive.zip").write_text("")
    with pytest.raises(BadData, match=r"archive\.zip is not a folder"):
        load_video(config(tmp_path / "archive.zip"))


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadData, match="/empty is empty"):
        load_video(config(tmp_path / "empty"))


def test_another_layout_is_shown_both_expected_ones(tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "01.avi").write_bytes(b"")
    with pytest.raises(
        BadData, match=r"holds: 01\.avi.*Train001/001\.tif.*training/frames/01/000\.jpg"
    ):
        load_video(config(tmp_path / "videos"))


def test_a_split_without_clips_says_how_they_are_named(tmp_path: Path) -> None:
    root = write_original(tmp_path / "UCSDped2")
    for clip in (root / "Test").glob("Test???"):
        shutil.rmtree(clip)
    with pytest.raises(BadData, match=r"Test has no clips.*Test001"):
        load_video(config(root))


def test_a_clip_without_frames_is_named(tmp_path: Path) -> None:
    root = write_original(tmp_path / "UCSDped2")
    (root / "Train" / "Train003").mkdir()
    with pytest.raises(BadData, match=r"Train003 has no frames.*001\.tif"):
        load_video(config(root))


def test_a_gap_in_the_numbers_is_refused(tmp_path: Path) -> None:
    root = write_original(tmp_path / "UCSDped2")
    (root / "Train" / "Train002" / "003.tif").unlink()
    with pytest.raises(BadData, match=r"Train002 .*004\.tif follows number 2"):
        load_video(config(root))


def test_a_frame_without_a_number_is_refused(tmp_path: Path) -> None:
    root = write_original(tmp_path / "UCSDped2")
    shutil.copy(root / "Train" / "Train002" / "003.tif", root / "Train" / "Train002" / "last.tif")
    with pytest.raises(BadData, match=r"last\.tif has no number"):
        load_video(config(root))


@pytest.mark.parametrize("suffix", ["tif", "jpg", "png"])
@pytest.mark.parametrize("kept", [0.0, 0.02, 0.6])
def test_a_truncated_frame_is_named(tmp_path: Path, suffix: str, kept: float) -> None:
    if suffix == "tif":
        root = write_original(tmp_path / "UCSDped2")
        path = root / "Train" / "Train004" / "004.tif"
    else:
        root = write_frames(tmp_path / "ped2")
        folder = root / "training" / "frames" / "04"
        (folder / "4.png").unlink()
        path = folder / f"4.{suffix}"
    Image.fromarray(frame_pixels("train", 4, 4)).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(BadData, match=rf"{path} cannot be decoded.*original archive"):
        load_video(config(root))


def test_a_frame_of_sixteen_bits_is_refused(tmp_path: Path) -> None:
    root = write_original(tmp_path / "UCSDped2")
    path = root / "Test" / "Test003" / "002.tif"
    Image.fromarray(np.full((48, 64), 40_000, np.uint16)).save(path)
    with pytest.raises(BadData, match=r"002\.tif has pixels of mode I;16"):
        load_video(config(root))


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


@pytest.mark.parametrize("folder", ["a\0b", "~nobody-of-this-name/data", "loop"])
def test_a_folder_that_is_no_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    with pytest.raises(BadData, match=r"data\.folder .*(is no path|does not exist|cannot be read)"):
        load_video(config(folder))


def test_a_broken_link_among_the_frames_is_named(tmp_path: Path) -> None:
    root = write_frames(tmp_path / "ped2")
    path = root / "training" / "frames" / "04" / "2.png"
    path.unlink()
    path.symlink_to("/nowhere/2.png")
    with pytest.raises(BadData, match=r"cannot be read: .*04/2\.png'"):
        load_video(config(root))


@pytest.mark.parametrize("closed", ["testing/frames/03", "testing/frames/03/2.png"])
def test_what_may_not_be_read_is_named(monkeypatch: pytest.MonkeyPatch, closed: str) -> None:
    place = Path(tempfile.mkdtemp())  # tmp_path lies in a folder that only its owner may enter
    own = os.geteuid()
    try:
        path = write_frames(place / "ped2") / closed
        path.chmod(0)
        place.chmod(0o755)
        (place / "cache").mkdir(mode=0o777)
        (place / "cache").chmod(0o777)
        monkeypatch.setenv("SWEEP_CACHE", str(place / "cache"))
        if own == 0:  # root may read everything
            os.seteuid(65534)
        with pytest.raises(BadData, match=rf"Permission denied.*{path}"):
            load_video(config(place / "ped2"))
    finally:
        os.seteuid(own)
        path.chmod(0o755)
        shutil.rmtree(place)


def test_frames_of_differing_sizes_are_refused(tmp_path: Path) -> None:
    root = write_frames(tmp_path / "ped2")
    path = root / "training" / "frames" / "04" / "2.png"
    Image.fromarray(frame_pixels("train", 4, 2)[:40]).save(path)
    with pytest.raises(BadData, match=r"2\.png has 64 x 40 pixels, the first .* has 64 x 48"):
        load_video(config(root))


def test_an_absurdly_large_frame_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    root = write_frames(tmp_path / "ped2")
    path = root / "training" / "frames" / "04" / "2.png"
    content = bytearray(path.read_bytes())
    content[16:24] = (9_000).to_bytes(4) * 2  # width and height
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4)
    path.write_bytes(content)
    with pytest.raises(BadData, match=r"2\.png cannot be decoded: 81000000 pixels, but at most"):
        load_video(config(root))


def test_a_frame_that_is_a_program_is_not_run(tmp_path: Path) -> None:
    root = write_frames(tmp_path / "ped2")
    path = root / "training" / "frames" / "04" / "2.png"
    Image.fromarray(frame_pixels("train", 4, 2)).save(path, format="EPS")
    with pytest.raises(BadData, match=r"2\.png cannot be decoded: cannot identify"):
        load_video(config(root))


def test_two_clips_of_one_number_are_refused(tmp_path: Path) -> None:
    root = write_original(tmp_path / "UCSDped2")
    shutil.copytree(root / "Train" / "Train002", root / "Train" / "Train02")
    with pytest.raises(BadData, match=r"two clips of the same number: Train002 and Train02"):
        load_video(config(root))


def test_one_data_set_in_two_layouts_is_refused(tmp_path: Path) -> None:
    root = LAYOUTS["shanghaitech as published"].write(tmp_path / "shanghaitech")
    (root / "training" / "frames" / "01_001").mkdir(parents=True)
    with pytest.raises(BadData, match=r"lie in training/videos and in training/frames\. Their"):
        load_video(DataConfig(name="shanghaitech", folder=str(root)))


def test_one_folder_under_two_names_is_one_folder(tmp_path: Path) -> None:
    """As on a file system that does not tell capital letters from small ones."""
    root = LAYOUTS["shanghaitech as published"].write(tmp_path / "shanghaitech")
    (tmp_path / "ShanghaiTech").symlink_to(root)
    raw = video.list_clips(DataConfig(name="shanghaitech", folder=str(tmp_path)))
    assert len(raw.train) == 4


def test_the_layout_of_another_data_set_is_refused(tmp_path: Path) -> None:
    root = LAYOUTS["cuhk_avenue as published"].write(tmp_path / "Avenue Dataset")
    with pytest.raises(BadData, match=r"does not look like shanghaitech.*training/videos/01_001"):
        load_video(DataConfig(name="shanghaitech", folder=str(root)))
    with pytest.raises(BadData, match=r"does not look like ucsd_ped2.*Train001/001\.tif"):
        load_video(config(root))


def test_clips_numbered_without_zeros_are_not_sorted_as_text(tmp_path: Path) -> None:
    for split in ("training_videos", "testing_videos"):
        for number in (10, 9, 2):
            write_video(tmp_path / split / f"{number}.AVI", [frame_pixels("train", number, 0)] * 5)
    raw = video.list_clips(DataConfig(name="cuhk_avenue", folder=str(tmp_path)))
    assert [clip.name for clip in raw.train] == ["clip02", "clip09", "clip10"]


def test_videos_of_another_name_are_no_clips(tmp_path: Path) -> None:
    root = LAYOUTS["cuhk_avenue as published"].write(tmp_path / "Avenue Dataset")
    for path in (root / "testing_videos").glob("*.avi"):
        path.rename(path.with_name(f"test{path.name}"))
    with pytest.raises(BadData, match=r"testing_videos has no clips: expected files .* 01\.avi"):
        load_video(DataConfig(name="cuhk_avenue", folder=str(root)))


# --- the user's own clips -------------------------------------------------------------------------


def own_clips(root: Path, *names: str) -> DataConfig:
    """Clips by these names: video files where the name has a suffix, else folders of frames."""
    for number, name in enumerate(names):
        frames = [frame_pixels("train", number, i) for i in range(5)]
        if Path(name).suffix:
            write_video(root / name, frames)
        else:
            write_frame_files(root / name, frames)
    return DataConfig(name="clips", folder=str(root), frame_size=32, frames=4, patch_size=8)


def names_of(data: DataConfig) -> list[list[str]]:
    raw = video.list_clips(data)
    return [[clip.name for clip in split] for split in (raw.train, raw.test)]


@pytest.mark.parametrize(("count", "test"), [(3, 1), (4, 1), (5, 2), (8, 2), (9, 3), (12, 3)])
def test_a_quarter_of_own_clips_rounded_up_is_the_test_split(
    tmp_path: Path, count: int, test: int
) -> None:
    data = own_clips(tmp_path / "mine", *(f"clip{i}" for i in range(count)))
    train, held_out = names_of(data)
    assert train + held_out == [f"clip{i}" for i in range(count)]
    assert len(held_out) == test


def test_numbers_in_names_are_ordered_as_numbers(tmp_path: Path) -> None:
    data = own_clips(tmp_path / "mine", "b1", "a10", "a9.avi", "a2 second", "a2.avi", "A3")
    assert names_of(data) == [["A3", "a2", "a2 second", "a9"], ["a10", "b1"]]


def test_a_train_folder_without_a_test_folder_is_divided(tmp_path: Path) -> None:
    data = own_clips(tmp_path / "mine", "train/a", "train/b", "train/c.avi", "train/d")
    assert names_of(data) == [["a", "b", "c"], ["d"]]


def test_own_test_clips_stay_apart_and_may_share_names(tmp_path: Path) -> None:
    data = own_clips(tmp_path / "mine", "train/a", "train/b", "test/a.avi")
    assert names_of(data) == [["a", "b"], ["a"]]
    assert len(load_video(data).test) == 1


def test_max_clips_moves_no_clip_from_one_split_to_the_other(tmp_path: Path) -> None:
    data = own_clips(tmp_path / "mine", *(f"clip{i}" for i in range(8)))
    few = load_video(dataclasses.replace(data, max_clips=2))
    assert [clip.name for clip in few.test] == ["clip6", "clip7"]
    assert [clip.name for clip in few.train + few.dev] == ["clip0", "clip1"]


def test_other_files_beside_own_clips_are_left_out(tmp_path: Path) -> None:
    data = own_clips(tmp_path / "mine", "a", "b.avi", "c")
    for name in ("labels.json", "notes.txt", ".hidden.avi", "poster.jpg"):
        (tmp_path / "mine" / name).write_text("")
    assert names_of(data) == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a", "b"), r"has 2 clip\(s\), but needs at least 3.*Cut a long film"),
        (("a", "b", "c", "a.avi"), r"two clips called a: a and a\.avi\. If they show the same"),
        (("a.mkv", "b", "c", "a.avi"), r"two clips called a: a\.avi and a\.mkv"),
        (("train/a", "train/b", "test/c", "d.avi"), r"clips beside them: d\.avi\. It is unclear"),
        (("test/a", "test/b"), r"has test/, but no train/"),
    ],
)
def test_own_clips_that_cannot_be_divided_are_refused(
    tmp_path: Path, names: tuple[str, ...], message: str
) -> None:
    data = own_clips(tmp_path / "mine", *names)
    with pytest.raises(BadData, match=message):
        load_video(data)


def test_an_empty_split_of_own_clips_is_named(tmp_path: Path) -> None:
    data = own_clips(tmp_path / "mine", "train/a", "train/b")
    (tmp_path / "mine" / "test").mkdir()
    with pytest.raises(BadData, match=r"mine/test has no clips\. Give a folder of clips"):
        load_video(data)


def test_frames_without_a_folder_of_their_own_are_one_clip(tmp_path: Path) -> None:
    write_frame_files(tmp_path / "mine", [frame_pixels("train", 0, i) for i in range(5)])
    data = DataConfig(name="clips", folder=str(tmp_path / "mine"))
    with pytest.raises(BadData, match=r"holds frames itself, so it is one clip; at least 3"):
        load_video(data)


def test_a_video_of_a_suffix_that_is_not_read_is_not_passed_over(tmp_path: Path) -> None:
    data = own_clips(tmp_path / "mine", "a", "b", "c")
    (tmp_path / "mine" / "d.mpg").write_bytes(b"")
    with pytest.raises(BadData, match=r"d\.mpg has suffix \.mpg\. Allowed are \.avi"):
        load_video(data)


# --- the real data, where they are ----------------------------------------------------------------

ped2 = pytest.mark.skipif(
    "SWEEP_TEST_DATA" not in os.environ,
    reason="SWEEP_TEST_DATA is not set to the folder that contains ped2 and UCSD_Anomaly_Dataset",
)


@ped2
def test_real_ped2_frames_have_the_known_std() -> None:
    clips = load_video(DataConfig(name="ucsd_ped2", folder=f"{os.environ['SWEEP_TEST_DATA']}/ped2"))
    assert [c.name for c in clips.train] == ["clip01", "clip02", "clip04", "clip07"]
    assert [c.name for c in clips.dev] == ["clip08", "clip10"]
    assert [len(c.frames) for c in clips.test] == [180] * 4
    assert clips.std == pytest.approx(0.1786, abs=2e-4)  # resampling moves the end


@ped2
def test_real_ped2_in_its_original_layout_is_the_same_clips() -> None:
    root = os.environ["SWEEP_TEST_DATA"]
    original = load_video(DataConfig(name="ucsd_ped2", folder=f"{root}/UCSD_Anomaly_Dataset.v1p2"))
    frames = load_video(DataConfig(name="ucsd_ped2", folder=f"{root}/ped2"))
    assert [c.name for c in original.train] == ["clip01", "clip02", "clip04"]
    for a, b in zip(original.train, frames.train, strict=False):
        np.testing.assert_array_equal(a.frames, b.frames)


def test_the_manifest_says_what_an_entry_was_built_from(tmp_path: Path) -> None:
    clips = load_video(config(write_frames(tmp_path / "ped2")))
    key = json.loads((clips.folder / "manifest.json").read_text())["key"]
    assert key["root"] == str(tmp_path / "ped2")
    assert key["frame_size"] == 32
