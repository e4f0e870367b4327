"""The built-in data set: a virtual camera over two real photographs. No download, a few seconds to make.

The camera pans, zooms and turns slowly over the photographs that come with scikit-learn (china.jpg and
flower.jpg). Each photograph is cut into three columns, one per split, and a clip's camera never sees a pixel
outside its own column: nothing that dev or test shows was ever trained on. All arithmetic on pixels is in
whole numbers, so every machine makes the same frames.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import sklearn.datasets
from numpy.typing import NDArray
from PIL import Image

from trainables.config import DataConfig
from trainables.datasets.clips import Pixels, RawClip, RawVideo
from trainables.errors import InvalidValue
from trainables.tasks.perturbations import seed_of

PHOTOGRAPHS = ("china.jpg", "flower.jpg")  # 640 x 427 each
COLUMNS = {
    "train": (0, 240),
    "dev": (240, 440),
    "test": (440, 640),
}  # first column, first one after
CLIPS = {"train": 6, "dev": 2, "test": 2}  # alternating between the photographs
CLIP_FRAMES = 120  # two clips give the 24 held-out windows of T = 10 that reports are measured on
VIEW = 160  # rendered at VIEW x VIEW, about one source pixel each; the largest frame_size

_CAMERA_VERSION = 1  # raised when the same names would give other pixels
_ZOOM = (0.80, 1.00)  # source pixels per rendered pixel
_TURN = math.radians(5.0)  # largest angle to either side
_PAN_PERIODS = (500.0, 800.0)  # frames per cycle: at most about one source pixel per frame
_ZOOM_PERIODS = (200.0, 400.0)
_SHAKE_PIXELS = 1.5  # a hand's, on top of the pan
_SHAKE_PERIODS = (25.0, 50.0)
_FINE = 256  # source coordinates are rounded to 1/256 pixel


@dataclass(frozen=True)
class Camera:
    """Where one clip looks: the centre, scale and angle of the view in every frame; shapes [CLIP_FRAMES]."""

    photograph: str
    centre_x: NDArray[np.float64]  # source pixels
    centre_y: NDArray[np.float64]
    zoom: NDArray[np.float64]  # source pixels per rendered pixel
    angle: NDArray[np.float64]  # radians


def list_clips(data: DataConfig) -> RawVideo:
    """The clips of all three splits. ``data.folder`` and ``data.dev_share`` have no meaning here.

    Raises:
        InvalidValue: frame_size is above VIEW, the photographs' own resolution.
    """
    if data.frame_size > VIEW:
        raise InvalidValue(
            f"frame_size must be at most {VIEW} for the data set photographs, got {data.frame_size}: its "
            "photographs hold no finer detail. Give a smaller frame_size, or another data set."
        )
    folder = Path(sklearn.datasets.__file__).parent / "images"
    sizes = [(name, (folder / name).stat().st_size, _CAMERA_VERSION) for name in PHOTOGRAPHS]

    def clips(split: str) -> tuple[RawClip, ...]:
        return tuple(
            RawClip(f"{split}{i:02d}", partial(render, split, i, data.frame_size))
            for i in range(CLIPS[split])
        )

    return RawVideo(
        train=clips("train"),
        dev=clips("dev"),
        test=clips("test"),
        listing=tuple(sizes),
        root="scikit-learn's sample images",
    )


def camera(split: str, index: int) -> Camera:
    """The camera path of clip ``index`` of ``split``: slow sinusoids with keyed phases and periods."""
    random = np.random.default_rng(seed_of("photographs", split, index))

    def wave(periods: tuple[float, float]) -> NDArray[np.float64]:
        period, phase = random.uniform(*periods), random.uniform(0, 2 * math.pi)
        return np.asarray(np.sin(2 * math.pi * np.arange(CLIP_FRAMES) / period + phase))

    photograph = PHOTOGRAPHS[index % len(PHOTOGRAPHS)]
    zoom = _ZOOM[0] + (_ZOOM[1] - _ZOOM[0]) * (1 + wave(_ZOOM_PERIODS)) / 2
    angle = _TURN * wave(_ZOOM_PERIODS)
    reach = _ZOOM[1] * (VIEW - 1) / 2 * (math.cos(_TURN) + math.sin(_TURN))  # of a corner, at most
    left, right = COLUMNS[split]
    height = photograph_pixels(photograph).shape[0]
    centres = []
    for first, end in ((left, right), (0, height)):
        low, high = (
            first + reach + _SHAKE_PIXELS,
            end - 2 - reach - _SHAKE_PIXELS,
        )  # - 2: interpolation
        middle, room = (low + high) / 2, (high - low) / 2
        centres.append(middle + room * wave(_PAN_PERIODS) + _SHAKE_PIXELS * wave(_SHAKE_PERIODS))
    return Camera(photograph, centres[0], centres[1], zoom, angle)


def photograph_pixels(name: str) -> Pixels:
    """One photograph in grey, [height, width]."""
    index = PHOTOGRAPHS.index(name)
    return np.asarray(
        Image.fromarray(sklearn.datasets.load_sample_images().images[index]).convert("L")
    )


def sources(path: Camera, frame: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Source rows and columns, in 1/256 pixel, of every rendered pixel of a frame: two of [VIEW, VIEW].

    Interpolation reads the pixel at the floor of each and the next one.
    """
    offset = path.zoom[frame] * (np.arange(VIEW) - (VIEW - 1) / 2)
    cos, sin = math.cos(path.angle[frame]), math.sin(path.angle[frame])
    rows = path.centre_y[frame] + cos * offset[:, None] + sin * offset[None, :]
    columns = path.centre_x[frame] - sin * offset[:, None] + cos * offset[None, :]
    return np.rint(rows * _FINE).astype(np.int64), np.rint(columns * _FINE).astype(np.int64)


def render(split: str, index: int, frame_size: int) -> Iterator[Pixels]:
    """The frames [frame_size, frame_size] of one clip, by bilinear interpolation, then area scaling."""
    path = camera(split, index)
    photograph = photograph_pixels(path.photograph).astype(np.int64)
    width = photograph.shape[1]
    flat = photograph.ravel()
    for frame in range(CLIP_FRAMES):
        rows, columns = sources(path, frame)
        right, down = columns % _FINE, rows % _FINE
        corner = (rows // _FINE) * width + columns // _FINE
        upper = flat[corner] * (_FINE - right) + flat[corner + 1] * right
        lower = flat[corner + width] * (_FINE - right) + flat[corner + width + 1] * right
        mixed = upper * (_FINE - down) + lower * down
        pixels = ((mixed + _FINE * _FINE // 2) // (_FINE * _FINE)).astype(np.uint8)
        if frame_size != VIEW:
            scaled = Image.fromarray(pixels).resize((frame_size, frame_size), Image.Resampling.BOX)
            pixels = np.asarray(scaled)
        yield pixels
