"""A folder of the user's own clips: video files and folders of numbered frames.

The two may be mixed. A clip is called by its file's name without suffix, or by its folder's. Order
is that of names, with numbers in them as numbers: walk2 before walk10. Where there is no test/
folder, the last clips are the test split, ``TEST_SHARE`` of all, rounded up. They are chosen before
``data.max_clips`` is looked at, so that it never moves a clip from one split to the other.
"""

from __future__ import annotations

import itertools
import math
import mimetypes
import re
from pathlib import Path

from trainables.config.arm import DataConfig
from trainables.datasets.given_folder import contents, given_folder, listing
from trainables.datasets.video.clips import RawClip, RawVideo
from trainables.datasets.video.layouts import clip_at
from trainables.datasets.video.video_files import VIDEO_SUFFIXES, decoder
from trainables.errors import BadData
from trainables.registry import DataSetSpec

TEST_SHARE = 0.25  # of all clips, where they are not divided already
_FEWEST = 3  # one to train on, one for dev, one for test
IMAGES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp")
_FILE_TYPES = mimetypes.MimeTypes()  # Python's own table: the same on every machine
_EXPECTED = (
    f"Give a folder of clips: video files ({', '.join(VIDEO_SUFFIXES)}) or folders of numbered "
    "frames (001.jpg, 002.jpg, ...), one per clip; or such clips below train/ and test/."
)


def list_clips(data: DataConfig) -> RawVideo:
    """Find the clips in ``data.folder``, or in its folder ``clips`` where it holds nothing else.

    Raises BadData for every way a folder can be wrong.
    """
    root = given_folder(data, _EXPECTED)
    if [place.name for place in _places(root)] == ["clips"] and _places(root / "clips"):
        root = root / "clips"
    if (root / "train").is_dir() or (root / "test").is_dir():
        train, test = _divided(root)
    else:
        train, test = _undivided(root)
    clips = [_clip(place, data.frame_size) for place in train + test]
    return RawVideo(
        train=tuple(clip for clip, _ in clips[: len(train)]),
        test=tuple(clip for clip, _ in clips[len(train) :]),
        listing=listing(root, itertools.chain.from_iterable(files for _, files in clips)),
        root=str(root),
        decoder=decoder() if any(_is_video(place) for place in train + test) else "",
    )


DATA_SET = DataSetSpec(list=list_clips)


def _divided(root: Path) -> tuple[list[Path], list[Path]]:
    """Training and test clips of a folder with train/, and test/ beside it or not."""
    beside = [place.name for place in _places(root) if place.name not in ("train", "test")]
    if beside:
        raise BadData(
            f"{root} has train/ or test/, and clips next to them: {', '.join(beside[:5])}. It is "
            "unclear which split these belong to. Move them into train/ or test/."
        )
    if not (root / "train").is_dir():
        raise BadData(f"{root} has test/, but no train/. {_EXPECTED}")
    if not (root / "test").is_dir():
        return _undivided(root / "train")
    train, test = _ordered(root / "train"), _ordered(root / "test")
    for split, clips in (("train", train), ("test", test)):
        if not clips:
            raise BadData(f"{root / split} has no clips. {_EXPECTED}")
    return train, test


def _undivided(folder: Path) -> tuple[list[Path], list[Path]]:
    """All clips but the last, and the last ones."""
    clips = _ordered(folder)
    if not clips and any(p.suffix.lower() in IMAGES for p in folder.iterdir()):
        raise BadData(
            f"{folder} holds frames itself, so it is one clip; at least {_FEWEST} clips are needed "
            f"to train, select and test on different ones. {_EXPECTED}"
        )
    if len(clips) < _FEWEST:
        raise BadData(
            f"{folder} (it holds: {contents(folder)}) has {len(clips)} clip(s), but needs at least "
            f"{_FEWEST}: one each to train on, for dev and for test. {_EXPECTED} Cut a long film "
            "into clips."
        )
    last = math.ceil(len(clips) * TEST_SHARE)  # leaves two of three, and more of more
    return clips[:-last], clips[-last:]


def _ordered(folder: Path) -> list[Path]:
    """The clips of a folder in the order of their names. BadData when two share a name."""
    by_name: dict[str, Path] = {}
    for place in sorted(_places(folder)):
        name = _name(place)
        if name in by_name:
            raise BadData(
                f"{folder} has two clips called {name}: {by_name[name].name} and {place.name}. "
                "If they show the same, one may be trained on and the other tested on. Keep one, "
                "or give the other a name of its own."
            )
        by_name[name] = place
    return [by_name[name] for name in sorted(by_name, key=_natural)]


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sorts numbers in names as numbers; names that differ in leading zeros only, as text."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if i % 2 else (-1, part) for i, part in enumerate(parts)], name


def _places(folder: Path) -> list[Path]:
    """Whatever is a clip or should be one; other files (labels, notes) are left out."""
    return [place for place in folder.iterdir() if place.name[0] != "." and _is_clip(place)]


def _is_clip(place: Path) -> bool:
    if place.is_dir() or _is_video(place):
        return True
    kind = _FILE_TYPES.guess_type(place.name)[0] or ""
    if kind.startswith("video/"):
        raise BadData(
            f"the video {place} has suffix {place.suffix}. Allowed are "
            f"{', '.join(VIDEO_SUFFIXES)}. Convert it, or move it out of the folder."
        )
    return False


def _is_video(place: Path) -> bool:
    return place.suffix.lower() in VIDEO_SUFFIXES and not place.is_dir()


def _name(place: Path) -> str:
    return place.stem if _is_video(place) else place.name


def _clip(place: Path, frame_size: int) -> tuple[RawClip, list[Path]]:
    return clip_at(place, _name(place), None if _is_video(place) else IMAGES, frame_size)
