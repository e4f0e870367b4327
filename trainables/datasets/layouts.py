"""Published layouts: where a data set lies below the given folder, and its clips.

A data set is known by the folders of its two splits. It may be given as its own folder or as one
that contains it under a usual name; two copies, or one data set in two layouts, are refused, since
they may differ in their clips or pixels and a guess would be silent.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainables.config.arm import DataConfig
from trainables.datasets.video.clips import RawClip, RawVideo
from trainables.datasets.video.frame_files import decode_frames, numbered_frames
from trainables.datasets.video.video_files import decode_video, decoder
from trainables.errors import BadData
from trainables.registry import DataSetSpec

IMAGES = (".jpg", ".jpeg", ".png")


class OtherLayout(BadData):
    """The folder holds something, but nothing that looks like the data set."""


@dataclass(frozen=True)
class Split:
    """One split of one layout: its folder, and what a clip in it is called."""

    folder: str  # below the data set's own
    clip: str  # a clip's name without suffix; the groups are numbers, in order of weight
    example: str  # a clip's name, for messages
    suffixes: tuple[str, ...]  # of a clip's frames; of the clip itself where it is a video file
    videos: bool = False  # whether a clip is one video file; else a folder of numbered frames
    flawed: tuple[tuple[int, int], ...] = ()
    # ^ clip and frame, both counted from 1, that are damaged in the archive as it is published


@dataclass(frozen=True)
class Layout:
    """How both splits lie on disk."""

    train: Split
    test: Split


NUMBERED_FRAMES = Layout(
    Split("training/frames", r"(\d+)", "01", IMAGES),
    Split("testing/frames", r"(\d+)", "01", IMAGES),
)


@dataclass(frozen=True)
class Published:
    """Everything that a data set may look like."""

    folders: tuple[str, ...]  # its own folder's usual names, below a folder that contains it
    layouts: tuple[Layout, ...]
    expected: str  # one sentence: what to give

    def data_set(self) -> DataSetSpec:
        """The data set whose clips ``clips`` finds."""
        return DataSetSpec(list=self.clips, folders=self.folders)

    def clips(self, data: DataConfig) -> RawVideo:
        """Find the clips of ``data.name`` in ``data.folder``, which is its folder or contains it.

        A clip is called by its number ("clip08"), or by its own name where that has two numbers
        ("01_014"). Raises BadData for every way a folder can be wrong.
        """
        given = given_folder(data, self.expected)
        root, layout = self._find(data, given)
        notes: list[str] = []
        train, train_files = _clips(root, layout.train, data.frame_size, notes)
        test, test_files = _clips(root, layout.test, data.frame_size, notes)
        return RawVideo(
            train=train,
            test=test,
            listing=listing(root, train_files + test_files),
            root=str(root),
            decoder=decoder() if layout.train.videos or layout.test.videos else "",
            notes=tuple(notes),
        )

    def _find(self, data: DataConfig, given: Path) -> tuple[Path, Layout]:
        found = [
            (place, layout)
            for place in places_of(given, self.folders)
            for layout in self.layouts
            if (place / layout.train.folder).is_dir() and (place / layout.test.folder).is_dir()
        ]
        if not found:
            raise other_layout(data, given, self.expected)
        copies = dict.fromkeys(str(place) for place, _ in found)
        if len(copies) > 1:
            raise BadData(
                f"data.folder {given} holds {data.name} more than once: {' and '.join(copies)}. "
                "They may differ in their clips. Give the one you mean as data.folder."
            )
        if len(found) > 1:
            raise BadData(
                f"{found[0][0]} holds {data.name} in more than one layout: training clips lie in "
                f"{' and in '.join(layout.train.folder for _, layout in found)}. Their pixels may "
                "differ. Move the one you do not mean out of the data set's folder."
            )
        return found[0]


def given_folder(data: DataConfig, expected: str) -> Path:
    """``data.folder``, resolved. BadData when it is none that holds anything."""
    if data.folder is None:
        raise BadData(
            f"data set {data.name} needs data.folder, the folder its files lie in; none was "
            f"given. {expected}"
        )
    try:
        given = Path(data.folder).expanduser().resolve()
        exists, is_folder = given.exists(), given.is_dir()
    except (ValueError, RuntimeError) as error:  # a null byte, an unknown ~user, a loop of links
        raise BadData(
            f"data.folder {data.folder!r} is no path: {error}. Give an absolute path."
        ) from error
    if not is_folder:
        state = "is not a folder" if exists else "does not exist"
        raise BadData(
            f"data.folder {given} {state}. {expected} On a cluster it must be there on "
            "every machine."
        )
    if not any(given.iterdir()):
        raise BadData(f"data.folder {given} is empty. {expected}")
    return given


def listing(root: Path, files: Iterable[Path]) -> tuple[tuple[str, int, int], ...]:
    """Path below ``root``, bytes and mtime in ns of every file. BadData for what is no file."""
    found = []
    for path in files:
        try:
            seen = path.stat()
        except OSError as error:  # a dead link, a loop of links
            raise BadData(
                f"{path} cannot be opened: {error.strerror}. It must be a readable file. Copy it "
                "again from its source."
            ) from error
        if not stat.S_ISREG(seen.st_mode):  # a folder, or a pipe that would never end
            raise BadData(
                f"{path} is named like a file of the data set, but is not a regular file. Move it "
                "away, or copy it again from its source."
            )
        found.append((path.relative_to(root).as_posix(), seen.st_size, seen.st_mtime_ns))
    return tuple(found)


def places_of(given: Path, names: Iterable[str]) -> list[Path]:
    """The given folder, and those of these names below it that are there.

    By identity: some file systems find one folder under several names.
    """
    places: dict[tuple[int, int], Path] = {}
    for place in (given, *(given / name for name in names)):
        if place.is_dir():
            seen = place.stat()
            places.setdefault((seen.st_dev, seen.st_ino), place)
    return list(places.values())


def other_layout(data: DataConfig, given: Path, expected: str) -> OtherLayout:
    """What to raise where a folder holds something else."""
    return OtherLayout(
        f"data.folder {given} (it holds: {contents(given)}) does not look like {data.name}. "
        f"{expected}"
    )


def contents(folder: Path) -> str:
    """The first names in a folder, for messages."""
    return ", ".join(sorted(p.name for p in folder.iterdir())[:5])


def _clips(
    root: Path, split: Split, frame_size: int, notes: list[str]
) -> tuple[tuple[RawClip, ...], list[Path]]:
    """The clips of one split by their numbers, and all their files; notes what is not as it is."""
    folder = root / split.folder
    places: dict[tuple[int, ...], Path] = {}
    for place in sorted(folder.iterdir()):
        numbers = _numbers(place, split)
        if numbers is None:
            continue
        if numbers in places:
            raise BadData(
                f"{folder} has two clips of the same number: {places[numbers].name} and "
                f"{place.name}. Keep one of them."
            )
        places[numbers] = place
    if not places:
        kind = "files" if split.videos else "folders"
        raise BadData(
            f"{folder} has no clips: expected {kind} named like {split.example}, one per clip. "
            "Copy the split again."
        )
    clips: list[RawClip] = []
    files: list[Path] = []
    for numbers, place in sorted(places.items()):
        name = f"clip{numbers[0]:02d}" if len(numbers) == 1 else place.stem
        images = None if split.videos else split.suffixes
        flawed = [frame for clip, frame in split.flawed if (clip,) == numbers]
        clip, of_clip = clip_at(place, name, images, frame_size, flawed)
        clips.append(clip)
        files.extend(dict.fromkeys(of_clip))
        notes.extend(
            f"frame {frame} of {split.folder}/{place.name} is damaged in the published archive: "
            "the frame before it stands in its place."
            for frame in flawed
            if of_clip[frame - 2 : frame - 1] == of_clip[frame - 1 : frame]
        )
    return tuple(clips), files


def clip_at(
    place: Path,
    name: str,
    images: tuple[str, ...] | None,
    frame_size: int,
    flawed: Collection[int] = (),
) -> tuple[RawClip, list[Path]]:
    """One clip and its files: a folder of numbered ``images``; where there are none, a video.

    ``flawed`` frames are those that ``numbered_frames`` may replace by the ones before.
    """
    if images is None:
        return RawClip(name, partial(decode_video, place, frame_size)), [place]
    frames = numbered_frames(place, images, flawed)
    return RawClip(name, partial(decode_frames, frames, frame_size)), frames


def _numbers(place: Path, split: Split) -> tuple[int, ...] | None:
    """The numbers in a clip's name; None for what is no clip."""
    if split.videos:
        could_be = place.suffix.lower() in split.suffixes
        match = re.fullmatch(split.clip, place.stem) if could_be else None
    else:
        match = re.fullmatch(split.clip, place.name) if place.is_dir() else None
    return None if match is None else tuple(int(number) for number in match.groups())
