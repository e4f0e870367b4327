"""Passes of runs over their training data, counted from published sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces.space import SearchSpace
from trainables.config.arm import ArmConfig


@dataclass(frozen=True)
class _Clips:
    """The published size of a video data set, whose clips are of about the same length."""

    clips: int
    frames: int  # in all
    has_dev: bool = False  # False: dev is carved from them


# Training clips, or training examples, as published.
_VIDEOS: Mapping[str, _Clips] = {
    "photographs": _Clips(6, 720, has_dev=True),
    "ucsd_ped1": _Clips(34, 6_800),
    "ucsd_ped2": _Clips(16, 2_550),
    "cuhk_avenue": _Clips(16, 15_328),
    "shanghaitech": _Clips(330, 274_515),
}
_TEXTS: Mapping[str, int] = {
    "imdb": 25_000,
    "mnli": 392_702,
    "alpaca": 46_800,  # less the tenth that is drawn for the test split
}


def epoch_steps(config: ArmConfig) -> int | None:
    """Approximate steps of one pass over a run's training data; None: only the data say."""
    samples = _samples(config)
    return None if samples is None else max(1, samples // config.batch_size)


def passes(config: ArmConfig) -> float | None:
    """Approximate passes of a run over its training data; None: only the data say.

    >>> run = ArmConfig().with_fields({"data.name": "ucsd_ped2", "steps": 4000})
    >>> epoch_steps(run), round(passes(run), 1)
    (1125, 3.6)
    """
    steps = epoch_steps(config)
    return None if steps is None else config.steps / steps


def passes_text(space: SearchSpace) -> str:
    """A sentence that counts the passes of a space's runs over each data set's training data."""
    runs_by_data: dict[str, list[ArmConfig]] = {}
    for setting in space.settings:
        run = space.base.with_fields(setting.fields)
        runs_by_data.setdefault(run.data.name, []).append(run)
    parts = [_of_data_set(name, runs) for name, runs in runs_by_data.items()]
    return f"Passes over the training data: {'; '.join(parts)}."


def _of_data_set(name: str, runs: list[ArmConfig]) -> str:
    counts = [count for count in map(passes, runs) if count is not None]
    if len(counts) < len(runs):
        return f"{name} known once they are read"
    least, most = f"{min(counts):.2g}", f"{max(counts):.2g}"
    steps = {epoch_steps(run) for run in runs}
    each = f" ({steps.pop():,} steps each)" if len(steps) == 1 else ""
    return f"{name} about {least}{f' to {most}' * (least != most)}{each}"


def _samples(config: ArmConfig) -> int | None:
    data = config.data
    if config.facts.reads_texts:
        known = _TEXTS.get(data.name)
        if known is None:
            return None
        train = known - math.ceil(round(known * data.dev_fraction, 9))
        return train if data.max_items is None else min(train, data.max_items)
    clips = _VIDEOS.get(data.name)
    if clips is None or config.task not in ("video_denoising", "frame_denoising"):
        return None
    count = _training_clips(clips, config)
    if config.task == "frame_denoising":
        return count * clips.frames // clips.clips
    windows = (clips.frames // clips.clips - data.frames) // data.stride + 1
    return count * max(0, windows) * config.facts.samples_per_unit(data)


def _training_clips(clips: _Clips, config: ArmConfig) -> int:
    """The number of clips that are left for training once dev is taken."""
    most = config.data.max_clips
    count = clips.clips if most is None else min(clips.clips, most)
    if clips.has_dev and most is None:
        return count
    return count - min(math.ceil(round(count * config.data.dev_fraction, 9)), count - 1)
