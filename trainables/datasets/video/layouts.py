"""Published layouts: where a data set lies below the given folder, and its clips.

A data set is known by the folders of its two splits, and the names of the clips in them. It may be
given as its own folder or as one that contains it under a usual name. Two copies are refused, since
they may differ in their clips or pixels and a guess would be silent. Of several layouts in one
folder the first counts, which is the one as published: what people make from it, such as frames of
its videos, usually lies beside it. That is said.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainables.config.arm import DataConfig
from trainables.datasets.given_folder import (
    contents,
    given_folder,
    listing,
    other_layout,
    places_of,
)
from trainables.datasets.video.clips import RawClip, RawVideo
from trainables.datasets.video.frame_files import decode_frames, image_size, numbered_frames
from trainables.datasets.video.video_files import VIDEO_SUFFIXES, decode_video, decoder, video_size
from trainables.errors import BadData
from trainables.registry import DataSetSpec

IMAGES = (".jpg", ".jpeg", ".png")
TIFF = (".tif", ".tiff")


@dataclass(frozen=True)
class Split:
    """One split of one layout: its folder, and what a clip in it is called."""

    folder: str  # below the data set's own
    clip: str  # a clip's name without suffix; the groups are numbers, in order of weight
    example: str  # a clip's name, for messages
    # Of a clip's frames, or of the clip itself where it is a video file: of several kinds side by
    # side the first counts, which is the one as published.
    kinds: tuple[tuple[str, ...], ...]
    videos: bool = False  # whether a clip is one video file; else a folder of numbered frames
    flawed: tuple[tuple[int, int], ...] = ()
    # ^ clip and frame, both counted from 1, that are damaged in the archive as it is published


@dataclass(frozen=True)
class Layout:
    """How both splits lie on disk."""

    train: Split
    test: Split


def layouts_of(
    folders: Iterable[tuple[str, str]], clip: str, example: str, *, videos: bool = False
) -> tuple[Layout, ...]:
    """Layouts of extracted frames, or of video files, for pairs of training and test folders."""
    kinds = ((".avi",), VIDEO_SUFFIXES) if videos else (IMAGES, TIFF)
    return tuple(
        Layout(*(Split(folder, clip, example, kinds, videos) for folder in pair))
        for pair in folders
    )


# As papers on frame prediction share them, and without the folder between.
EXTRACTED = (("training/frames", "testing/frames"), ("training", "testing"))


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
        root, layout, *notes = self._find(data, given)
        train, train_files = self._clips(root, layout.train, data.frame_size, notes)
        test, test_files = self._clips(root, layout.test, data.frame_size, notes)
        return RawVideo(
            train=train,
            test=test,
            listing=listing(root, train_files + test_files),
            root=str(root),
            decoder=decoder() if layout.train.videos or layout.test.videos else "",
            notes=tuple(notes),
        )

    def _find(self, data: DataConfig, given: Path) -> tuple[Path, Layout, *tuple[str, ...]]:
        """The data set's own folder, its layout, and notes on others beside it."""
        complete: list[tuple[Path, Layout]] = []
        halves: list[tuple[Path, Layout]] = []
        for place in places_of(given, self.folders):
            for layout in self.layouts:
                splits = (layout.train, layout.test)
                if not all((place / split.folder).is_dir() for split in splits):
                    continue
                there = [split for split in splits if _named(place / split.folder, split)]
                if there:
                    (complete if len(there) == len(splits) else halves).append((place, layout))
        if not complete and not halves:
            raise other_layout(data, given, self.expected)
        copies = dict.fromkeys(str(place) for place, _ in complete)
        if len(copies) > 1:
            raise BadData(
                f"data.folder {given} holds {data.name} more than once: {' and '.join(copies)}. "
                "They may differ in their clips. Give the one you mean as data.folder."
            )
        place, layout = (complete or halves)[0]
        notes = [
            f"training clips lie in {layout.train.folder} and in {other.train.folder}: the former "
            "are read. To read the others, move those out of the data set's folder."
            for _, other in complete[1:]
            if other.train.folder != layout.train.folder
        ]
        return place, layout, *notes

    def _clips(
        self, root: Path, split: Split, frame_size: int, notes: list[str]
    ) -> tuple[tuple[RawClip, ...], list[Path]]:
        """The clips of one split by their numbers, and all their files; notes what is mended."""
        folder = root / split.folder
        places = _named(folder, split)
        if not places:
            kind = "files" if split.videos else "folders"
            raise BadData(
                f"{folder} has no clips: expected {kind} named like {split.example}, one per clip; "
                f"it holds: {contents(folder) or 'nothing'}. {self.expected}"
            )
        images = None if split.videos else _kind_of(next(iter(places.values())), split)
        clips: list[RawClip] = []
        files: list[Path] = []
        for numbers, place in sorted(places.items()):
            name = f"clip{numbers[0]:02d}" if len(numbers) == 1 else place.stem
            flawed = [frame for clip_number, frame in split.flawed if (clip_number,) == numbers]
            clip, of_clip = clip_at(place, name, images, frame_size, flawed)
            clips.append(clip)
            files.extend(dict.fromkeys(of_clip))
            notes.extend(
                f"frame {frame} of {split.folder}/{place.name} is damaged in the published "
                "archive: the frame before it stands in its place."
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
        frames_of = partial(decode_video, place, frame_size)
        return RawClip(name, frames_of, partial(video_size, place)), [place]
    frames = numbered_frames(place, images, flawed)
    frames_of = partial(decode_frames, frames, frame_size)
    return RawClip(name, frames_of, partial(image_size, frames[0])), frames


def _named(folder: Path, split: Split) -> dict[tuple[int, ...], Path]:
    """Clips of the split in a folder, by the numbers in their names."""
    there = [(place, _numbers(place, split)) for place in sorted(folder.iterdir())]
    kinds: Iterable[tuple[str, ...]] = split.kinds if split.videos else ((),)
    for kind in kinds:
        places: dict[tuple[int, ...], Path] = {}
        for place, numbers in there:
            if numbers is None or (split.videos and place.suffix.lower() not in kind):
                continue
            if numbers in places:
                raise BadData(
                    f"{folder} has two clips of the same number: {places[numbers].name} and "
                    f"{place.name}. Keep one of them."
                )
            places[numbers] = place
        if places:
            return places
    return {}


def _kind_of(clip: Path, split: Split) -> tuple[str, ...]:
    """The suffixes of a split's frames, by what one clip holds."""
    there = {path.suffix.lower() for path in clip.iterdir() if path.name[0] != "."}
    return next((kind for kind in split.kinds if there & set(kind)), split.kinds[0])


def _numbers(place: Path, split: Split) -> tuple[int, ...] | None:
    """The numbers in a clip's name; None for what is no clip."""
    is_folder = place.is_dir()
    # a folder in a video's place and with its name is told, not left out
    is_video = not is_folder or place.suffix.lower() in VIDEO_SUFFIXES
    if not (is_video if split.videos else is_folder):
        return None
    match = re.fullmatch(split.clip, place.stem if split.videos else place.name)
    return None if match is None else tuple(int(number) for number in match.groups())
