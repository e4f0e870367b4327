"""Frames as image files: listed in the order of their numbers, decoded strictly."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trainables.datasets.video.clips import Pixels
from trainables.errors import BadData
from trainables.fetching.stand_ins import stand_in

if TYPE_CHECKING:  # imported where it is used: texts and machines that only train do without
    from PIL import Image

# Eight bits per channel; wider modes would be clipped, not scaled, when made grey.
_MODES = ("L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "1")
# What an image's content may be, whatever its name says. Others are not even tried: some start
# programs (EPS) or hold no frame of a clip.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
LARGEST_FRAME = 1 << 26  # pixels, e.g. 8192 x 8192: a damaged header may ask for any amount


def numbered_frames(
    folder: Path, suffixes: tuple[str, ...], flawed: Collection[int] = ()
) -> list[Path]:
    """The image files of one clip, by the number in their name: 2.jpg before 10.jpg.

    Hidden files (some archives carry ``._001.tif``) and other suffixes are left out. Where a frame
    that is ``flawed`` as published, counted from 1, is missing or cannot be decoded, the frame
    before it is there twice.

    Raises BadData where there are none, or a number between the first and the last is missing or
    there twice.
    """
    images = [p for p in folder.iterdir() if p.suffix.lower() in suffixes and p.name[0] != "."]
    numbered = sorted((_number(path), path) for path in images)
    numbered = _with_stand_ins(numbered, flawed)
    if not numbered:
        raise BadData(
            f"the clip {folder} has no frames: expected files like 001{suffixes[0]}, numbered in "
            "order. Copy the clip again, or remove its folder."
        )
    for (before, _), (after, path) in itertools.pairwise(numbered):
        if after != before + 1:
            raise BadData(
                f"the frames of the clip {folder} are not numbered in one row: {path.name} follows "
                f"number {before}. Frames must be consecutive in time. Copy the clip again."
            )
    return [path for _, path in numbered]


Numbered = list[tuple[int, Path]]


def _with_stand_ins(numbered: Numbered, flawed: Collection[int]) -> Numbered:
    by_number = dict(numbered)
    if len(by_number) < len(numbered):
        return numbered  # a number is there twice
    first = min(by_number, default=0)
    for number in (first + frame - 1 for frame in flawed):
        before, there = by_number.get(number - 1), by_number.get(number)
        if before is None or number > max(by_number):
            continue
        if there is None or not _is_decodable(there):
            by_number[number] = before
    return sorted(by_number.items())


def _is_decodable(path: Path) -> bool:
    """True if an image can be decoded. OSError where its file cannot be read at all."""
    path.read_bytes()
    try:
        _decoded(path)
    except BadData:
        return False
    return True


def _number(path: Path) -> int:
    digits = re.findall(r"\d+", path.stem)
    if not digits:
        raise BadData(
            f"the frame {path} has no number in its name, so its place in time is unknown. "
            "Name frames by number (001.jpg), or move the file away."
        )
    return int(digits[-1])


def decode_frames(paths: list[Path], frame_size: int) -> Iterator[Pixels]:
    """Grey frames [S, S] scaled to ``frame_size``, in the order of ``paths``.

    Raises BadData where a file is truncated, is no image, has more than 8 bits per channel or more
    than ``LARGEST_FRAME`` pixels, or is of another size than the first.
    """
    size = None
    for path in paths:
        grey = _decoded(path)
        size = size or grey.size
        if grey.size != size:
            raise BadData(
                f"the frame {path} has {grey.width} x {grey.height} pixels, the first of its clip "
                f"has {size[0]} x {size[1]}. All frames of a clip must be of one size. Copy the "
                "clip again from the original archive."
            )
        yield scaled(grey, frame_size)


def image_size(path: Path) -> tuple[int, int]:
    """Width and height that an image file declares; no pixel is decoded."""
    from PIL import Image

    with Image.open(path, formats=_FORMATS) as image:
        return image.size


def scaled(grey: Image.Image, frame_size: int) -> Pixels:
    """A grey image as [S, S]: bilinear, over the whole image where it shrinks."""
    from PIL import Image

    return np.asarray(grey.resize((frame_size, frame_size), Image.Resampling.BILINEAR))


def _decoded(path: Path) -> Image.Image:
    """The image in grey. BadData when it is not all there."""
    from PIL import Image

    try:
        # Pillow warns about odd metadata, which does not touch the pixels; damage raises.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=_FORMATS) as image:
                pixels = image.width * image.height
                if pixels > LARGEST_FRAME:
                    raise ValueError(f"{pixels} pixels, but at most {LARGEST_FRAME} are read")
                image.load()
                mode = image.mode
                grey = image.convert("L")
    # Pillow has no error of its own for damage: whatever a parser ran into comes out.
    except Exception as error:
        if (problem := stand_in(path)) is not None:
            raise BadData(f"the frame {path} {problem}") from error
        raise BadData(
            f"the frame {path} cannot be decoded: {error}. It must be a complete image file. "
            "Copy it again from the original archive."
        ) from error
    if mode not in _MODES:
        raise BadData(
            f"the frame {path} has pixels of mode {mode}. Allowed are 8 bits per channel "
            f"({', '.join(_MODES)}). Convert the clip to 8-bit images."
        )
    return grey
