"""Published layouts: found from their folders and parents; others are refused with advice."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.support.data.data_folders import LAYOUTS, write_video
from tests.support.data.ped2_folders import config, frame_pixels, write_frames, write_original
from trainables.config.arm import DataConfig
from trainables.datasets.video import load as video
from trainables.datasets.video.load import load_video, resolve
from trainables.errors import BadData

pytestmark = pytest.mark.usefixtures("own_cache")


# --- what is found --------------------------------------------------------------------------------


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


def test_one_folder_under_two_names_is_one_folder(tmp_path: Path) -> None:
    """As on a file system that does not tell capital letters from small ones."""
    root = LAYOUTS["shanghaitech as published"].write(tmp_path / "shanghaitech")
    (tmp_path / "ShanghaiTech").symlink_to(root)
    raw = video.list_clips(DataConfig(name="shanghaitech", folder=str(tmp_path)))
    assert len(raw.train) == 4


def test_clips_numbered_without_zeros_are_not_sorted_as_text(tmp_path: Path) -> None:
    for split in ("training_videos", "testing_videos"):
        for number in (10, 9, 2):
            write_video(tmp_path / split / f"{number}.AVI", [frame_pixels("train", number, 0)] * 5)
    raw = video.list_clips(DataConfig(name="cuhk_avenue", folder=str(tmp_path)))
    assert [clip.name for clip in raw.train] == ["clip02", "clip09", "clip10"]


# --- what can be wrong ----------------------------------------------------------------------------


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


@pytest.mark.parametrize("folder", ["a\0b", "~nobody-of-this-name/data", "loop"])
def test_a_folder_that_is_no_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    with pytest.raises(BadData, match=r"data\.folder .*(is no path|does not exist|cannot be read)"):
        load_video(config(folder))


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


def test_another_layout_is_shown_both_expected_ones(tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "01.avi").write_bytes(b"")
    with pytest.raises(
        BadData, match=r"holds: 01\.avi.*Train001/001\.tif.*training/frames/01/000\.jpg"
    ):
        load_video(config(tmp_path / "videos"))


def test_the_layout_of_another_data_set_is_refused(tmp_path: Path) -> None:
    root = LAYOUTS["cuhk_avenue as published"].write(tmp_path / "Avenue Dataset")
    with pytest.raises(BadData, match=r"does not look like shanghaitech.*training/videos/01_001"):
        load_video(DataConfig(name="shanghaitech", folder=str(root)))
    with pytest.raises(BadData, match=r"does not look like ucsd_ped2.*Train001/001\.tif"):
        load_video(config(root))


def test_a_folder_with_two_copies_is_refused_with_both_named(tmp_path: Path) -> None:
    write_original(tmp_path / "data" / "UCSDped2")
    write_frames(tmp_path / "data" / "ped2")
    with pytest.raises(BadData, match=r"more than once: .*/UCSDped2 and .*/ped2\."):
        load_video(config(tmp_path / "data"))


def test_one_data_set_in_two_layouts_is_refused(tmp_path: Path) -> None:
    root = LAYOUTS["shanghaitech as published"].write(tmp_path / "shanghaitech")
    (root / "training" / "frames" / "01_001").mkdir(parents=True)
    with pytest.raises(BadData, match=r"lie in training/videos and in training/frames\. Their"):
        load_video(DataConfig(name="shanghaitech", folder=str(root)))


def test_a_split_without_clips_says_how_they_are_named(tmp_path: Path) -> None:
    root = write_original(tmp_path / "UCSDped2")
    for clip in (root / "Test").glob("Test???"):
        shutil.rmtree(clip)
    with pytest.raises(BadData, match=r"Test has no clips.*Test001"):
        load_video(config(root))


def test_two_clips_of_one_number_are_refused(tmp_path: Path) -> None:
    root = write_original(tmp_path / "UCSDped2")
    shutil.copytree(root / "Train" / "Train002", root / "Train" / "Train02")
    with pytest.raises(BadData, match=r"two clips of the same number: Train002 and Train02"):
        load_video(config(root))


def test_videos_of_another_name_are_no_clips(tmp_path: Path) -> None:
    root = LAYOUTS["cuhk_avenue as published"].write(tmp_path / "Avenue Dataset")
    for path in (root / "testing_videos").glob("*.avi"):
        path.rename(path.with_name(f"test{path.name}"))
    with pytest.raises(BadData, match=r"testing_videos has no clips: expected files .* 01\.avi"):
        load_video(DataConfig(name="cuhk_avenue", folder=str(root)))
