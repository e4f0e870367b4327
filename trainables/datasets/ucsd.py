"""UCSD Anomaly Detection, Ped1 and Ped2, in its original layout or as numbered frame folders.

Source: Mahadevan, Li, Bhalodia, Vasconcelos, CVPR 2010; frame folders as in Liu, Luo, Lian, Gao,
CVPR 2018.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainables.config import DataConfig
from trainables.datasets.clips import RawClip, RawVideo
from trainables.datasets.frame_files import decode_frames, numbered_frames
from trainables.errors import BadData


@dataclass(frozen=True)
class _Layout:
    train: str  # folder of the training clips, below the data set's own
    test: str
    clip: str  # what a clip's folder is called; ground truth (Test001_gt) is not one
    suffixes: tuple[str, ...]


_LAYOUTS = (
    _Layout("Train", "Test", r"(?:Train|Test)(\d+)", (".tif", ".tiff")),
    _Layout("training/frames", "testing/frames", r"(\d+)", (".jpg", ".jpeg", ".png")),
)
_FOLDERS = {
    "ucsd_ped1": ("UCSDped1", "UCSD_Anomaly_Dataset.v1p2/UCSDped1", "ped1"),
    "ucsd_ped2": ("UCSDped2", "UCSD_Anomaly_Dataset.v1p2/UCSDped2", "ped2"),
}


def list_clips(data: DataConfig) -> RawVideo:
    """Find the clips of ``data.name`` in ``data.folder``, which is its folder or contains it.

    A clip is called by its number ("clip08") in either layout. Raises BadData for every way a
    folder can be wrong.
    """
    root, layout = _find(data)
    train, train_files = _split(root / layout.train, layout, data.frame_size)
    test, test_files = _split(root / layout.test, layout, data.frame_size)
    listing = []
    for path in train_files + test_files:
        seen = path.stat()
        listing.append((path.relative_to(root).as_posix(), seen.st_size, seen.st_mtime_ns))
    return RawVideo(train=train, test=test, listing=tuple(listing), root=str(root))


def _find(data: DataConfig) -> tuple[Path, _Layout]:
    if data.folder is None:
        raise BadData(
            f"data set {data.name} needs data.folder, the folder its files lie in; none was "
            f"given. {_expected(data)}"
        )
    given = Path(data.folder).expanduser().resolve()
    if not given.is_dir():
        state = "is not a folder" if given.exists() else "does not exist"
        raise BadData(
            f"data.folder {given} {state}. {_expected(data)} On a cluster it must be there on "
            "every machine."
        )
    if not any(given.iterdir()):
        raise BadData(f"data.folder {given} is empty. {_expected(data)}")
    places = [given, *(given / name for name in _FOLDERS[data.name])]
    found = [
        (place, layout)
        for place in places
        for layout in _LAYOUTS
        if (place / layout.train).is_dir() and (place / layout.test).is_dir()
    ]
    if not found:
        inside = ", ".join(sorted(p.name for p in given.iterdir())[:5])
        raise BadData(
            f"data.folder {given} (it holds: {inside}) does not look like {data.name}. "
            f"{_expected(data)}"
        )
    if len(found) > 1:
        copies = " and ".join(str(place) for place, _ in found)
        raise BadData(
            f"data.folder {given} holds {data.name} more than once: {copies}. They may differ in "
            "their clips. Give the one you mean as data.folder."
        )
    return found[0]


def _expected(data: DataConfig) -> str:
    original, _, frames = _FOLDERS[data.name]
    return (
        f"Give a folder that is or contains {original}/Train/Train001/001.tif and "
        f"{original}/Test/Test001/001.tif (as published), or {frames}/training/frames/01/000.jpg "
        f"and {frames}/testing/frames/01/000.jpg."
    )


def _split(
    folder: Path, layout: _Layout, frame_size: int
) -> tuple[tuple[RawClip, ...], list[Path]]:
    """The clips of one split by number, and all their files."""
    numbered = []
    for place in folder.iterdir():
        match = re.fullmatch(layout.clip, place.name)
        if match and place.is_dir():
            numbered.append((int(match.group(1)), place))
    if not numbered:
        example = "01" if "/" in layout.train else f"{folder.name}001"
        raise BadData(
            f"{folder} has no clips: expected folders named like {example}, one per clip. "
            "Copy the split again."
        )
    clips, files = [], []
    for number, place in sorted(numbered):
        frames = numbered_frames(place, layout.suffixes)
        clips.append(RawClip(f"clip{number:02d}", partial(decode_frames, frames, frame_size)))
        files.extend(frames)
    return tuple(clips), files
