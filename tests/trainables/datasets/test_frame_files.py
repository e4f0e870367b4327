"""Frames stored as image files: read in the order of their numbers; every way one can be wrong."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.data.ped2_folders import (
    LENGTHS,
    config,
    frame_pixels,
    write_frames,
    write_original,
)
from trainables.datasets.video.load import load_video
from trainables.errors import BadData

pytestmark = pytest.mark.usefixtures("own_cache")


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


# --- what can be wrong ----------------------------------------------------------------------------


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


def test_a_broken_link_among_the_frames_is_named(tmp_path: Path) -> None:
    root = write_frames(tmp_path / "ped2")
    path = root / "training" / "frames" / "04" / "2.png"
    path.unlink()
    path.symlink_to("/nowhere/2.png")
    with pytest.raises(BadData, match=r"04/2\.png cannot be opened"):
        load_video(config(root))


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
