"""UCSD Ped2 in miniature, written by the tests in both of its layouts."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from tests.support.data.data_folders import noise
from tests.support.data.data_folders import write_frames as write_clip
from trainables.config.arm import DataConfig
from trainables.datasets.video.clips import Pixels

LENGTHS = {"train": {1: 6, 2: 5, 4: 7, 10: 6}, "test": {1: 5, 3: 6}}


def frame_pixels(split: str, clip: int, frame: int) -> Pixels:
    """A frame that no other clip, split or number has."""
    return noise(len(split), clip, frame)


def frames_of(split: str, clip: int) -> list[Pixels]:
    return [frame_pixels(split, clip, i) for i in range(LENGTHS[split][clip])]


def write_original(root: Path) -> Path:
    """The published layout, with what else lies in such folders."""
    for split, name in (("train", "Train"), ("test", "Test")):
        for clip in LENGTHS[split]:
            folder = root / name / f"{name}{clip:03d}"
            write_clip(folder, frames_of(split, clip), "{:03d}.tif")
            (folder / "._001.tif").write_bytes(b"resource fork")
            (folder / ".DS_Store").write_bytes(b"")
    truth = root / "Test" / "Test001_gt"
    truth.mkdir()
    Image.fromarray(frame_pixels("test", 1, 0)).save(truth / "001.bmp")
    (root / "Test" / "UCSDped2.m").write_text("TestVideoFile = {};")
    return root


def write_frames(root: Path) -> Path:
    """Numbered frame folders; PNG, so that the pixels equal those of ``write_original``."""
    for split, name in (("train", "training"), ("test", "testing")):
        for clip in LENGTHS[split]:
            write_clip(root / name / "frames" / f"{clip:02d}", frames_of(split, clip), "{:d}.png")
    (root / "frame_labels.json").write_text("{}")
    return root


def config(folder: Path | str | None, **changes: object) -> DataConfig:
    values = {"frame_size": 32, "frames": 4, "patch_size": 8} | changes
    return DataConfig(name="ucsd_ped2", folder=None if folder is None else str(folder), **values)
