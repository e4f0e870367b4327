"""Published layouts: found from their folders and parents; others are refused with advice."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.data.data_folders import LAYOUTS, write_video
from tests.support.data.data_folders import write_frames as write_clip
from tests.support.data.ped2_folders import config, frame_pixels, write_frames, write_original
from trainables.config.arm import DataConfig
from trainables.datasets.video import load as video
from trainables.datasets.video.clips import RawClip, RawVideo
from trainables.datasets.video.dev_clips import few_dev
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


AVENUE = [
    *("AvenueDataset", "avenue_dataset", "CUHK_Avenue", "Avenue Dataset/Avenue Dataset", "Avenue"),
    *("Avenue_Dataset/avenue-dataset", "AVENUE"),
]
CAMPUS = ["shanghai", "Shanghai", "shanghaitech/ShanghaiTech", "ShanghaiTech_Campus"]
PED2 = ["UCSDPed2", "UCSD_ped2", "ucsd_ped2", "Ped2", "UCSD_Anomaly_Dataset/UCSDped2", "ped2/ped2"]


@pytest.mark.parametrize(
    ("layout", "folder"),
    [
        *(("cuhk_avenue as published", folder) for folder in AVENUE),
        *(("shanghaitech as frames", folder) for folder in CAMPUS),
        *(("ucsd_ped2 as published", folder) for folder in PED2),
    ],
)
def test_the_names_that_people_give_the_folder_are_known(
    tmp_path: Path, layout: str, folder: str
) -> None:
    root = LAYOUTS[layout].write(tmp_path / "data" / folder)
    given = DataConfig(name=LAYOUTS[layout].data_set, folder=str(tmp_path / "data"))
    raw = video.list_clips(given)
    assert (raw.root, len(raw.train), len(raw.test)) == (str(root), 4, 2)


# By data set, where clips of the one or the other split lie, and what they are called.
ELSEWHERE = {
    "HF2-VAD": ("ucsd_ped2", "{}ing/frames/{}{:03d}", "jpg"),
    "converted": ("ucsd_ped2", "{}/{}{:03d}", "png"),
    "without frames/": ("ucsd_ped2", "{}ing/{:.0}{:02d}", "jpg"),
    "without frames/, named": ("ucsd_ped1", "{}ing/{}{:03d}", "tif"),
    "frames in the place of videos": ("cuhk_avenue", "{}ing_videos/{:.0}{:02d}", "jpg"),
    "videos, sorted": ("cuhk_avenue", "{0}ing/{0}ing_videos/{2:02d}", "avi"),
    "videos, in folders of videos": ("cuhk_avenue", "{}ing/videos/{:.0}{:02d}", "avi"),
    "videos, converted": ("cuhk_avenue", "{}ing_videos/{:.0}{:02d}", "mp4"),
    "campus without frames/": ("shanghaitech", "{}ing/{:.0}{:02d}_001", "jpg"),
    "campus as videos": ("shanghaitech", "{}ing/videos/{:.0}{:02d}_001", "avi"),
}


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_layouts_in_which_others_keep_them_are_read(tmp_path: Path, kind: str) -> None:
    name, place, suffix = ELSEWHERE[kind]
    for split in ("train", "test"):
        for number in (1, 2, 11):
            word = split.capitalize()
            first = word if place.startswith("{}/") else split
            clip = tmp_path / place.format(first, word, number)
            shown = [frame_pixels(split, number, i) for i in range(5)]
            if suffix in ("avi", "mp4"):
                codec = {} if suffix == "avi" else {"codec": "mpeg4", "pixel_format": "yuv420p"}
                write_video(clip.with_name(f"{clip.name}.{suffix}"), shown, **codec)
            else:
                write_clip(clip, shown, f"{{:03d}}.{suffix}")
    if name == "ucsd_ped2":
        (tmp_path / "Test" / "Test001_gt").mkdir(parents=True)
    raw = video.list_clips(DataConfig(name=name, folder=str(tmp_path), frame_size=32))
    assert len(raw.train) == len(raw.test) == 3
    assert len(list(raw.test[2].frames())) == 5
    assert raw.notes == ()


def test_converted_videos_of_the_campus_are_read_where_no_others_lie(tmp_path: Path) -> None:
    root = LAYOUTS["shanghaitech as published"].write(tmp_path / "shanghaitech")
    data = DataConfig(name="shanghaitech", folder=str(root))
    names = [clip.name for clip in video.list_clips(data).train]
    (root / "training" / "videos").rename(root / "training" / "converted_videos")
    assert [clip.name for clip in video.list_clips(data).train] == names


def test_frames_that_were_converted_beside_the_published_ones_change_nothing(
    tmp_path: Path,
) -> None:
    root = write_original(tmp_path / "UCSDped2")
    before = video.list_clips(config(root)).listing
    clip = root / "Train" / "Train001"
    (clip / "001.jpg").write_bytes(b"")
    assert video.list_clips(config(root)).listing == before


# --- pixels that were not recorded ----------------------------------------------------------------


@pytest.mark.parametrize("layout", ["ucsd_ped2 as frames", "cuhk_avenue as published"])
def test_frames_that_are_enlarged_are_said(tmp_path: Path, layout: str) -> None:
    """Of 64 x 48 pixels."""
    root = LAYOUTS[layout].write(tmp_path)
    data = DataConfig(name=LAYOUTS[layout].data_set, folder=str(root))
    (said,) = video.remarks(data)
    assert "frames of 64 x 48 pixels are enlarged to 160 x 160" in said
    assert "Set data.frame_size to 48" in said
    assert video.remarks(replace(data, frame_size=48)) == ()


@pytest.mark.parametrize(("clips", "dev"), [(1, 0), (8, 2), (36, 9), (37, 10)])
def test_too_few_dev_clips_for_a_certificate_are_said(clips: int, dev: int) -> None:
    """A quarter of the training clips, rounded up; of one there is no dev."""
    train = tuple(RawClip(f"{number}", lambda: iter(())) for number in range(clips))
    notes = few_dev(RawVideo(train, train[:1], (), ""), DataConfig(name="clips"))
    assert len(notes) == (0 < dev < 10)
    assert not notes or f"dev has {dev} clips, and fewer than 10 certify nothing" in notes[0]


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


def test_of_two_layouts_in_one_folder_the_published_one_is_read_and_said(tmp_path: Path) -> None:
    root = LAYOUTS["shanghaitech as published"].write(tmp_path / "shanghaitech")
    data = DataConfig(name="shanghaitech", folder=str(root))
    alone = video.list_clips(data)
    write_clip(root / "training" / "frames" / "01_001", [frame_pixels("train", 1, 0)] * 5)
    raw = video.list_clips(data)
    assert (raw.listing, alone.notes) == (alone.listing, ())
    (said,) = raw.notes
    assert "in training/videos and in training/frames: the former are read." in said
    assert said in video.remarks(data)


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
