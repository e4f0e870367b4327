"""Frames that tests put into video files, and what decoding must give back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tests.support.data.data_folders import noise, scene
from trainables.datasets.video.clips import Pixels
from trainables.datasets.video.video_files import decode_video

SIZE = 32
SCENE = [scene(i) for i in range(12)]
NOISE = [noise(i) for i in range(5)]

# Where a container says how long it is, in each of its ways, with a codec that is common there.
FILES = [
    ("clip.avi", "ffv1", "gray"),
    ("clip.avi", "mpeg4", "yuv420p"),
    ("clip.avi", "mjpeg", "yuvj420p"),
    ("clip.mp4", "libx264", "yuv420p"),
    ("clip.mov", "mpeg4", "yuv420p"),
    ("clip.mkv", "libx264", "yuv420p"),
    ("clip.webm", "libvpx-vp9", "yuv420p"),
]


def scaled(pixels: Pixels) -> NDArray[np.int64]:
    image = Image.fromarray(pixels).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return np.asarray(image).astype(np.int64)


def decoded(path: Path) -> NDArray[np.int64]:
    return np.stack(list(decode_video(path, SIZE))).astype(np.int64)


def spread(luma: Pixels) -> Pixels:
    """Luma of 16..235 as grey of 0..255, in real numbers."""
    return np.clip(np.rint((luma.astype(float) - 16) * 255 / 219), 0, 255).astype(np.uint8)


def assert_in_order(shown: NDArray[np.int64]) -> None:
    """Every frame of SCENE is there, as ``spread`` luma, and is nearest to itself."""
    distance = np.abs(shown[:, None] - [scaled(spread(p)) for p in SCENE])
    assert distance.mean(axis=(2, 3)).argmin(axis=1).tolist() == list(range(len(SCENE)))
