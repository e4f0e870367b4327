"""The built-in data set: a virtual camera over two real photographs.

No download, seconds to make. The camera pans, zooms and turns slowly over the photographs that come
with scikit-learn. Each photograph is cut into three rectangles, one per split, and a clip's camera
never sees a pixel outside its own: nothing that dev or test shows was ever trained on. All
arithmetic on pixels is in whole numbers, so every machine makes the same frames.

Shape suffix: N frames of a clip.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainables.config.arm import DataConfig
from trainables.datasets.video.clips import Pixels, RawClip, RawVideo
from trainables.errors import BadData, InvalidValue
from trainables.random_keys import seed_of
from trainables.registry import DataSetSpec

Floats = NDArray[np.float64]
Box = tuple[int, int, int, int]  # left, top, and the first column and row that lie outside

PHOTOGRAPHS = ("china.jpg", "flower.jpg")  # 640 x 427 each
REGIONS: dict[str, dict[str, Box]] = {  # each holds some of what the photograph shows
    "train": {"china.jpg": (0, 0, 240, 427), "flower.jpg": (90, 0, 310, 427)},
    "dev": {"china.jpg": (240, 0, 440, 427), "flower.jpg": (310, 0, 520, 213)},
    "test": {"china.jpg": (440, 120, 640, 427), "flower.jpg": (310, 213, 520, 427)},
}
CLIPS = {"train": 6, "dev": 2, "test": 2}  # alternating between the photographs
CLIP_FRAMES = 120  # two clips give the 24 held-out windows of T = 10 that reports measure
VIEW = 160  # rendered at VIEW x VIEW, about one source pixel each; the largest frame_size

_CAMERA_VERSION = 1  # raised when the same names would give other pixels
_ZOOM = (0.80, 1.00)  # source pixels per rendered pixel
_TURN = math.radians(5.0)  # largest angle to either side
_PAN_SPEED = (0.5, 1.0)  # source pixels per frame, at most
_TURN_PERIOD = (200.0, 400.0)  # frames; also of the zoom
_SHAKE_PIXELS = 1.5  # a hand's, on top of the pan
_SHAKE_PERIOD = (25.0, 50.0)
_FINE = 256  # source coordinates are rounded to 1/256 pixel


@dataclass(frozen=True)
class Camera:
    """View of one clip in every frame, in source pixels and radians."""

    photograph: str
    row_N: Floats  # centre of the view
    column_N: Floats
    zoom_N: Floats  # source pixels per rendered pixel
    angle_N: Floats


def list_clips(data: DataConfig) -> RawVideo:
    """The clips of all three splits. ``data.folder`` has no meaning here.

    Raises InvalidValue where frame_size is above VIEW, the photographs' own resolution.
    """
    if data.frame_size > VIEW:
        raise InvalidValue(
            f"frame_size must be at most {VIEW} for the data set photographs, got "
            f"{data.frame_size}: its photographs hold no finer detail. Give a smaller frame_size, "
            "or another data set."
        )
    folder = _images()

    def clips(split: str) -> tuple[RawClip, ...]:
        return tuple(
            RawClip(f"{split}{i:02d}", partial(render, split, i, data.frame_size))
            for i in range(CLIPS[split])
        )

    return RawVideo(
        train=clips("train"),
        dev=clips("dev"),
        test=clips("test"),
        listing=tuple((n, (folder / n).stat().st_size, _CAMERA_VERSION) for n in PHOTOGRAPHS),
        root="scikit-learn's sample images",
    )


DATA_SET = DataSetSpec(list=list_clips, reads_folder=False)


def camera(split: str, index: int) -> Camera:
    """The path of clip ``index`` of ``split``: slow sinusoids with keyed phases and periods."""
    random = np.random.default_rng(seed_of("photographs", split, index))
    photograph = PHOTOGRAPHS[index % len(PHOTOGRAPHS)]
    left, top, right, bottom = REGIONS[split][photograph]
    corner = _ZOOM[1] * (VIEW - 1) / 2 * (math.cos(_TURN) + math.sin(_TURN))  # at most so far off

    def wave(shortest: float, longest: float) -> Floats:
        period, phase = random.uniform(shortest, longest), random.uniform(0, 2 * math.pi)
        return np.asarray(np.sin(2 * math.pi * np.arange(CLIP_FRAMES) / period + phase))

    def pan(first: int, end: int) -> Floats:
        low, high = first + corner + _SHAKE_PIXELS, end - 2 - corner - _SHAKE_PIXELS
        room = (high - low) / 2  # end - 2: interpolation also reads the next pixel
        cycle = 2 * math.pi * room
        swing = room * wave(cycle / _PAN_SPEED[1], cycle / _PAN_SPEED[0])
        return (low + high) / 2 + swing + _SHAKE_PIXELS * wave(*_SHAKE_PERIOD)

    return Camera(
        photograph=photograph,
        row_N=pan(top, bottom),
        column_N=pan(left, right),
        zoom_N=_ZOOM[0] + (_ZOOM[1] - _ZOOM[0]) * (1 + wave(*_TURN_PERIOD)) / 2,
        angle_N=_TURN * wave(*_TURN_PERIOD),
    )


def photograph_pixels(name: str) -> Pixels:
    """One photograph in grey, [height, width]."""
    from PIL import Image

    with Image.open(_images() / name) as colour:
        return np.asarray(colour.convert("L"))


def _images() -> Path:
    """Folder of scikit-learn's images, without the second that importing it costs."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise BadData(
            "the data set photographs needs scikit-learn, whose photographs it shows; it is not "
            "installed. Install it, or choose another data set."
        )
    return Path(package.origin).parent / "datasets" / "images"


def source_pixels(path: Camera, frame: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the photograph, in 1/256 pixel, that one frame shows: [VIEW, VIEW] each.

    Interpolation reads the pixel at the floor of each and the next one.
    """
    offset = path.zoom_N[frame] * (np.arange(VIEW) - (VIEW - 1) / 2)
    cos, sin = math.cos(path.angle_N[frame]), math.sin(path.angle_N[frame])
    rows = path.row_N[frame] + cos * offset[:, None] + sin * offset[None, :]
    columns = path.column_N[frame] - sin * offset[:, None] + cos * offset[None, :]
    return np.rint(rows * _FINE).astype(np.int64), np.rint(columns * _FINE).astype(np.int64)


def render(split: str, index: int, frame_size: int) -> Iterator[Pixels]:
    """The frames [frame_size, frame_size] of one clip: bilinear, then scaled by area."""
    from PIL import Image

    path = camera(split, index)
    photograph = photograph_pixels(path.photograph).astype(np.int64)
    width, flat = photograph.shape[1], photograph.ravel()
    for frame in range(CLIP_FRAMES):
        rows, columns = source_pixels(path, frame)
        down, right = rows % _FINE, columns % _FINE
        corner = (rows // _FINE) * width + columns // _FINE
        upper = flat[corner] * (_FINE - right) + flat[corner + 1] * right
        lower = flat[corner + width] * (_FINE - right) + flat[corner + width + 1] * right
        mixed = upper * (_FINE - down) + lower * down
        pixels = ((mixed + _FINE * _FINE // 2) // (_FINE * _FINE)).astype(np.uint8)
        if frame_size != VIEW:
            scaled = Image.fromarray(pixels).resize((frame_size,) * 2, Image.Resampling.BOX)
            pixels = np.asarray(scaled)
        yield pixels
