"""A folder of the user's own clips: how it is divided, in which order, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.support.data.data_folders import write_frames, write_video
from tests.support.data.ped2_folders import frame_pixels
from trainables.config.arm import DataConfig
from trainables.datasets.video import load as video
from trainables.datasets.video.load import load_video
from trainables.errors import BadData

pytestmark = pytest.mark.usefixtures("own_cache")


def own_clips(root: Path, *names: str) -> DataConfig:
    """Clips by these names: video files where the name has a suffix, else folders of frames."""
    for number, name in enumerate(names):
        frames = [frame_pixels("train", number, i) for i in range(5)]
        if Path(name).suffix:
            write_video(root / name, frames)
        else:
            write_frames(root / name, frames)
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
        (("train/a", "train/b", "test/c", "d.avi"), r"clips next to them: d\.avi\. It is unclear"),
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
    write_frames(tmp_path / "mine", [frame_pixels("train", 0, i) for i in range(5)])
    data = DataConfig(name="clips", folder=str(tmp_path / "mine"))
    with pytest.raises(BadData, match=r"holds frames itself, so it is one clip; at least 3"):
        load_video(data)


def test_a_video_of_a_suffix_that_is_not_read_is_not_passed_over(tmp_path: Path) -> None:
    data = own_clips(tmp_path / "mine", "a", "b", "c")
    (tmp_path / "mine" / "d.mpg").write_bytes(b"")
    with pytest.raises(BadData, match=r"d\.mpg has suffix \.mpg\. Allowed are \.avi"):
        load_video(data)
