"""Video data sets by name: decoded once, checked, split by clips, fingerprinted.

Preprocessing: grey, frame_size x frame_size. Dev is carved from the training clips, whole clips
only, so that no frame of a dev scene was trained on (docs/method.md, The task).
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import math
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trainables.config.arm import DataConfig
from trainables.datasets.places import listed_here, require_fingerprint
from trainables.datasets.video.clips import RawClip, RawVideo, StoredClip, VideoClips
from trainables.datasets.video.dev_clips import cut, drawn_dev, idle_options
from trainables.errors import BadData
from trainables.fetching.cache import built_once

ENLARGED = 0.9  # of data.frame_size: shorter sides are told; those of Ped1 (158 of 160) are not
_FORMAT = 1  # raised when what an entry holds, or how frames are decoded, changes


def load_video(data: DataConfig, split_seed: int | None = None) -> VideoClips:
    """The clips of the data set that ``data`` names, from the cache where they were decoded before.

    ``split_seed`` draws which training clips are dev; None: the last ones.

    Raises:
        UnknownName: no such data set.
        InvalidValue: the data set cannot be had at this frame_size, or not be split by a seed.
        BadData: the folder is missing, empty, of another layout or damaged; a clip is shorter than
            ``data.frames``; no dev split can be carved; or the pixels are not those of
            ``data.fingerprint``.
    """
    raw = list_clips(data)
    held_in, dev_count, test = cut(raw, data)
    key = {
        "format": _FORMAT,
        "pillow": _pillow(),
        "name": data.name,
        "root": raw.root,
        "frame_size": data.frame_size,
        "max_clips": data.max_clips,
        "listing": [list(file) for file in raw.listing],
        "clips": [[clip.name for clip in held_in], [clip.name for clip in test]],
    }
    if raw.decoder:  # only then: entries of frames stay valid when the decoder of videos changes
        key["decoder"] = raw.decoder
    folder = built_once("video", key, lambda place: _decode(place, held_in, test, data.frame_size))
    stored = json.loads((folder / "clips.json").read_text())
    training = tuple(StoredClip(*clip) for clip in stored["train"])
    dev = set(range(len(training) - dev_count, len(training)))
    if split_seed is not None:
        dev = drawn_dev(raw, data, len(training), dev_count, split_seed)
    video = VideoClips(
        folder=folder,
        frame_size=data.frame_size,
        train_clips=tuple(clip for i, clip in enumerate(training) if i not in dev),
        dev_clips=tuple(clip for i, clip in enumerate(training) if i in dev),
        test_clips=tuple(StoredClip(*clip) for clip in stored["test"]),
        fingerprint=stored["fingerprint"],
        mixed_clips=() if split_seed is None else training,
        notes=raw.notes + idle_options(raw, data),
    )
    _check(video, data, raw.root)
    return video


def list_clips(data: DataConfig) -> RawVideo:
    """The clips as they lie on disk, nothing decoded; raises as ``listed_here``."""
    return listed_here("videos", data, RawVideo)


def remarks(data: DataConfig) -> tuple[str, ...]:
    """Notes for the user on how these clips are read; raises as ``listed_here``."""
    raw = list_clips(data)
    try:
        width, height = raw.train[0].size() if raw.train and raw.train[0].size else (math.inf,) * 2
    except Exception:  # what is damaged is told where it is decoded
        return raw.notes
    if min(width, height) >= ENLARGED * data.frame_size:
        return raw.notes
    fits = int(min(width, height)) // data.patch_size * data.patch_size
    lower = f"data.frame_size to {fits}" if fits else "data.frame_size and data.patch_size lower"
    return (
        *raw.notes,
        f"frames of {width} x {height} pixels are enlarged to {data.frame_size} x "
        f"{data.frame_size}, which is data.frame_size: between their pixels others are "
        f"interpolated, so that noise is easier to take away. Set {lower} to train on the pixels "
        "that were recorded.",
    )


def resolve(data: DataConfig) -> DataConfig:
    """``data`` with the fingerprint of its pixels. BadData when it already carries another one."""
    return dataclasses.replace(data, fingerprint=load_video(data).fingerprint)


def _pillow() -> str | None:
    """Pillow's version, known without loading it; None where it is not installed."""
    try:
        return importlib.metadata.version("pillow")
    except importlib.metadata.PackageNotFoundError:
        return None


def _check(video: VideoClips, data: DataConfig, root: str) -> None:
    for split in ("train", "dev", "test"):
        for clip in video.stored(split):
            if clip.length < data.frames:
                raise BadData(
                    f"clip {clip.name} ({split}) of {data.name} in {root} has {clip.length} "
                    f"frames, but a sequence takes {data.frames} (data.frames). Give a smaller "
                    "data.frames, or leave that clip out of the folder."
                )
    if video.std == 0:
        raise BadData(
            f"all training pixels of {data.name} in {root} are equal (std 0), so noise has no "
            "scale. Check that the frames were copied completely."
        )
    require_fingerprint(data, video.fingerprint, f"the pixels of {data.name} in {root} changed")


def _decode(
    folder: Path, held_in: tuple[RawClip, ...], test: tuple[RawClip, ...], frame_size: int
) -> None:
    """Write train.npy, test.npy and clips.json into ``folder``."""
    digest = hashlib.sha256()
    splits: dict[str, Any] = {}
    for split, clips in (("train", held_in), ("test", test)):
        with open(folder / f"{split}.npy", "wb") as stream:
            _write_header(stream, 0, frame_size)
            stored = [_append(stream, clip, split, frame_size, digest) for clip in clips]
            _write_header(stream, sum(clip.length for clip in stored), frame_size)
        splits[split] = [dataclasses.astuple(clip) for clip in stored]
    splits["fingerprint"] = digest.hexdigest()[:16]
    (folder / "clips.json").write_text(json.dumps(splits))


def _write_header(stream: BinaryIO, frames: int, frame_size: int) -> None:
    """An .npy header. NumPy pads it for a growing first axis: a later one fits over it."""
    stream.seek(0)
    header = {"descr": "|u1", "fortran_order": False, "shape": (frames, frame_size, frame_size)}
    np.lib.format.write_array_header_1_0(stream, header)


def _append(
    stream: BinaryIO, clip: RawClip, split: str, frame_size: int, digest: Any
) -> StoredClip:
    """Decode one clip to the end of ``stream`` and into the fingerprint."""
    length = pixel_sum = square_sum = 0
    pixels = hashlib.sha256()
    for grey in clip.frames():
        frame = np.ascontiguousarray(grey, dtype=np.uint8)
        if frame.shape != (frame_size, frame_size):
            raise BadData(
                f"a frame of clip {clip.name} ({split}) has the shape {frame.shape}, but must be "
                f"{frame_size} x {frame_size} grey pixels (data.frame_size), scaled by whoever "
                "lists the clips."
            )
        stream.write(frame.data)
        pixels.update(frame.data)
        wide = frame.astype(np.int64)  # whole numbers: sums do not depend on their order
        length, pixel_sum = length + 1, pixel_sum + int(wide.sum())
        square_sum += int((wide * wide).sum())
    digest.update(json.dumps([split, clip.name, length, pixels.hexdigest()]).encode())
    return StoredClip(clip.name, length, pixel_sum, square_sum)
