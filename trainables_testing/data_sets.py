"""Contract of data sets: whole samples, disjoint splits, content that is known."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np

from trainables.config.arm import DataConfig
from trainables.datasets.text import load as text
from trainables.datasets.video import load as video
from trainables_testing.promises import check, require_kept


def check_videos(data: DataConfig) -> None:
    """Every promise of a data set of videos, decoded anew for it.

    Raises:
        BrokenContract: a promise is not kept.
        Misuse: the data cannot be loaded. What the data set's own code raises comes through.
    """
    with own_cache():
        check(f"data set {data.name}", VIDEOS, data)


def check_texts(data: DataConfig) -> None:
    """Every promise of a data set of texts, read anew for it; raises as ``check_videos``."""
    with own_cache():
        check(f"text data set {data.name}", TEXTS, data)


def check_instructions(data: DataConfig) -> None:
    """Every promise of a data set of instructions, read anew; raises as ``check_videos``."""
    with own_cache():
        check(f"data set of instructions {data.name}", INSTRUCTIONS, data)


def frames_are_grey_pixels_of_frame_size(data: DataConfig) -> None:
    """Clips of named, whole frames: uint8 [S, S], the same whenever they are decoded."""
    raw, side = video.list_clips(data), data.frame_size
    for split, clips in (("train", raw.train), ("dev", raw.dev), ("test", raw.test)):
        names = [clip.name for clip in clips]
        is_empty = not names and split != "dev"  # which may be carved from train
        require_kept(not is_empty, f"{split} must have clips", names)
        require_kept(len(set(names)) == len(names), f"names of {split} clips must differ", names)
        for clip in clips:
            of = f"frames of clip {clip.name} ({split})"
            frames, again = list(clip.frames()), list(clip.frames())
            for frame in frames:
                kind = (str(frame.dtype), frame.shape)
                require_kept(kind == ("uint8", (side, side)), f"{of} must be uint8 {side}^2", kind)
            same = np.array_equal(np.stack(frames), np.stack(again))
            require_kept(same, f"{of} must be the same when they are decoded again")


def no_frame_is_in_two_splits(data: DataConfig) -> None:
    """Nothing that dev or test shows was trained on."""
    clips = video.load_video(data)
    seen: dict[bytes, str] = {}
    for split, of_split in (("train", clips.train), ("dev", clips.dev), ("test", clips.test)):
        for clip in of_split:
            for number, frame in enumerate(clip.frames):
                there = seen.setdefault(frame.tobytes(), split)
                of = f"frame {number} of clip {clip.name} ({split})"
                require_kept(there == split, f"{of} must not be in {there}, too")


def videos_are_known_by_their_pixels(data: DataConfig) -> None:
    """Decoded anew they have the same fingerprint; resolving them again changes nothing."""
    _known_by_content(data, video.resolve)


def labels_and_texts_are_whole(data: DataConfig) -> None:
    """Two labels or more, each example with text and one of them."""
    labels = text.list_text(data).labels
    unique = len(set(labels)) == len(labels) > 1
    require_kept(unique, "there must be labels, at least 2, each under its own name", labels)
    splits = text.load_text(data)
    for split in (splits.train, splits.dev, splits.test):
        require_kept(len(split) > 0, "every split must have examples")
        for example in split:
            require_kept(0 <= example.label < len(labels), "a label must be known", example.label)
            require_kept(example.text.strip() != "", "an example must have a text")


def no_group_of_texts_is_in_train_and_dev(data: DataConfig) -> None:
    """What belongs together stays together."""
    splits = text.load_text(data)
    both = {e.group for e in splits.train} & {e.group for e in splits.dev}
    require_kept(not both, "no group of texts may be in train and dev", both)


def texts_are_known_by_their_content(data: DataConfig) -> None:
    """Read anew they have the same fingerprint; resolving them again changes nothing."""
    _known_by_content(data, text.resolve)


def prompts_have_answers(data: DataConfig) -> None:
    """Each example is a prompt and what to write behind it."""
    splits = text.load_text(data, group="instructions")
    for split in (splits.train, splits.dev, splits.test):
        require_kept(len(split) > 0, "every split must have examples")
        for example in split:
            require_kept(example.text.strip() != "", "an example must have a prompt")
            whole = example.pair is not None and example.pair.strip() != ""
            require_kept(whole, "an example must have an answer", example.pair)


def no_instruction_is_in_train_and_dev(data: DataConfig) -> None:
    """What belongs together stays together."""
    splits = text.load_text(data, group="instructions")
    both = {e.group for e in splits.train} & {e.group for e in splits.dev}
    require_kept(not both, "no instruction may be in train and dev", both)


def instructions_are_known_by_their_content(data: DataConfig) -> None:
    """Read anew they have the same fingerprint; resolving them again changes nothing."""
    _known_by_content(data, text.resolve_instructions)


@contextlib.contextmanager
def own_cache() -> Iterator[None]:
    """A cache that holds nothing yet, for as long as it lasts."""
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, SWEEP_CACHE=folder):
        yield


def _known_by_content(data: DataConfig, resolve: Callable[[DataConfig], DataConfig]) -> None:
    resolved = resolve(data)
    with own_cache():
        again = resolve(data)
    require_kept(
        resolved == again,
        f"read anew, the data must have the fingerprint {resolved.fingerprint}",
        again.fingerprint,
    )
    require_kept(resolve(resolved) == resolved, "resolved data must resolve to themselves")


VIDEOS: tuple[Callable[[DataConfig], None], ...] = (
    frames_are_grey_pixels_of_frame_size,
    no_frame_is_in_two_splits,
    videos_are_known_by_their_pixels,
)
TEXTS: tuple[Callable[[DataConfig], None], ...] = (
    labels_and_texts_are_whole,
    no_group_of_texts_is_in_train_and_dev,
    texts_are_known_by_their_content,
)
INSTRUCTIONS: tuple[Callable[[DataConfig], None], ...] = (
    prompts_have_answers,
    no_instruction_is_in_train_and_dev,
    instructions_are_known_by_their_content,
)
