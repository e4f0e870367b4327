"""Video data set before decoding (``RawVideo``) and after (``VideoClips``).

Shape suffixes: N frames of a clip or split, S frame_size (frames are S x S grey pixels).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainables.datasets.by_split import BySplit

Pixels = NDArray[np.uint8]  # grey, 0..255


@dataclass(frozen=True)
class RawClip:
    """One clip that has not been decoded yet."""

    name: str
    frames: Callable[[], Iterator[Pixels]]  # decodes anew at every call: frames [S, S] in order
    size: Callable[[], tuple[int, int]] | None = None  # width and height on disk, read anew


@dataclass(frozen=True)
class RawVideo:
    """A data set as it lies on disk. Clips are in the order of their names.

    ``dev`` is empty where the data set has no dev split of its own: it is then carved from
    ``train``.
    """

    train: tuple[RawClip, ...]
    test: tuple[RawClip, ...]
    listing: tuple[tuple[str, int, int], ...]  # per file: path below the root, bytes, mtime in ns
    root: str  # resolved folder, for the cache's key and for messages
    dev: tuple[RawClip, ...] = ()
    decoder: str = ""  # name and version of what decodes video files; "" where there are none
    notes: tuple[str, ...] = ()  # what a reader of results must know of these files, by sentence


@dataclass(frozen=True)
class Clip:
    """One decoded clip; its pixels are read from disk when they are touched."""

    name: str
    frames: Pixels  # [N, S, S], read-only, memory-mapped


@dataclass(frozen=True)
class StoredClip:
    """Cached facts of one clip. The sums are exact: std is the same everywhere."""

    name: str
    length: int  # N
    pixel_sum: int  # over all pixels, 0..255
    square_sum: int

    def starts(self, frames: int, stride: int) -> range:
        """First frames of the windows of ``frames`` frames, every ``stride`` frames."""
        return range(0, self.length - frames + 1, stride)


@dataclass(frozen=True)
class VideoClips(BySplit[tuple[Clip, ...]]):
    """The decoded clips of one data set, by split. ``test`` is opened only when it is asked for."""

    folder: Path  # the cache entry: train.npy (train, then dev; or as in mixed_clips) and test.npy
    frame_size: int  # S
    train_clips: tuple[StoredClip, ...]
    dev_clips: tuple[StoredClip, ...]
    test_clips: tuple[StoredClip, ...]
    fingerprint: str  # hash of the decoded pixels, clip names and splits; not of where they lie
    mixed_clips: tuple[StoredClip, ...] = ()  # train and dev as they lie, where a seed divides them
    notes: tuple[str, ...] = ()  # as ``RawVideo.notes``

    @property
    def mean(self) -> float:
        """Mean over the clean pixels of the training clips, pixels in [0, 1]."""
        return sum(c.pixel_sum for c in self.train_clips) / self._train_pixels / 255.0

    @property
    def std(self) -> float:
        """Population std over the clean pixels of the training clips, pixels in [0, 1]."""
        count = self._train_pixels
        total = sum(c.pixel_sum for c in self.train_clips)
        squares = sum(c.square_sum for c in self.train_clips)
        # of integers, which numpy refuses from 2^64 on: some thousand frames
        return math.sqrt(count * squares - total * total) / count / 255.0

    @property
    def _train_pixels(self) -> int:
        return sum(c.length for c in self.train_clips) * self.frame_size**2

    def stored(self, split: str) -> tuple[StoredClip, ...]:
        """Names and lengths of the clips of "train", "dev" or "test"."""
        by_split = {"train": self.train_clips, "dev": self.dev_clips, "test": self.test_clips}
        return by_split[split]

    def first_frames(self, split: str) -> dict[str, int]:
        """Index in ``stacked`` of each clip's first frame."""
        is_mixed = bool(self.mixed_clips) and split != "test"
        clips = self.mixed_clips if is_mixed else self.stored(split)
        first = np.cumsum([0] + [c.length for c in clips])
        return {c.name: int(f) for c, f in zip(clips, first, strict=False)}

    def window_starts(self, split: str, frames: int, stride: int) -> NDArray[np.int64]:
        """Indices in ``stacked`` of the first frames of all clips' windows."""
        first = self.first_frames(split)
        starts = [np.array(c.starts(frames, stride)) + first[c.name] for c in self.stored(split)]
        return np.concatenate(starts)

    def stacked(self, split: str) -> Pixels:
        """All frames of a split, clip after clip: [N, S, S], read-only, memory-mapped.

        Where a seed divides train and dev, those of both: nothing is copied.
        """
        clips = self.stored(split)
        name = "test.npy" if split == "test" else "train.npy"
        frames: Pixels = np.load(self.folder / name, mmap_mode="r")
        if self.mixed_clips and split != "test":
            return frames
        first = sum(c.length for c in self.train_clips) if split == "dev" else 0
        return frames[first : first + sum(c.length for c in clips)]

    def _opened(self, split: str) -> tuple[Clip, ...]:
        frames, firsts = self.stacked(split), self.first_frames(split)
        return tuple(
            Clip(c.name, frames[firsts[c.name] : firsts[c.name] + c.length])
            for c in self.stored(split)
        )
