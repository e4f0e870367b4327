"""Drawn clips in the place of the built-in photographs, for machines without Pillow.

Waves of light that pass over a grey ground, in as many clips of as many frames: what training and
evaluation cost is the same, what comes out is not comparable with anything.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import partial

import numpy as np

from trainables.config.arm import DataConfig
from trainables.datasets.video.clips import Pixels, RawClip, RawVideo
from trainables.datasets.video.photographs import CLIP_FRAMES, CLIPS
from trainables.random_keys import seed_of
from trainables.registry import DataSetSpec
from trainables.registry.built_in import VIDEOS

WAVES = 6


def stand_in() -> None:
    """From now on the photographs of this process are drawn, where Pillow is missing."""
    if importlib.util.find_spec("PIL") is None:
        VIDEOS["photographs"] = f"{__name__}:DATA_SET"


def list_clips(data: DataConfig) -> RawVideo:
    """The clips of all three splits; ``data.folder`` has no meaning here."""
    splits = {
        split: tuple(
            RawClip(f"{split}{i:02d}", partial(drawn, split, i, data.frame_size))
            for i in range(count)
        )
        for split, count in CLIPS.items()
    }
    return RawVideo(
        train=splits["train"],
        dev=splits["dev"],
        test=splits["test"],
        listing=(("drawn", WAVES, CLIP_FRAMES),),
        root="drawn clips",
    )


DATA_SET = DataSetSpec(list=list_clips, reads_folder=False)


def drawn(split: str, index: int, frame_size: int) -> Iterator[Pixels]:
    """The frames [frame_size, frame_size] of one clip."""
    random = np.random.default_rng(seed_of("drawn clips", split, index))
    places = np.linspace(0, 2 * np.pi, frame_size, endpoint=False)
    rows_W, columns_W = random.integers(-6, 7, (2, WAVES))
    speeds_W, phases_W = random.uniform(-0.1, 0.1, WAVES), random.uniform(0, 2 * np.pi, WAVES)
    for frame in range(CLIP_FRAMES):
        waves = [
            np.sin(row * places[:, None] + column * places[None, :] + speed * frame + phase)
            for row, column, speed, phase in zip(rows_W, columns_W, speeds_W, phases_W, strict=True)
        ]
        yield np.clip(128 + 40 * np.sum(waves, axis=0), 0, 255).astype(np.uint8)
