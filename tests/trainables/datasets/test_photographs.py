"""The built-in clips: disjoint splits, exact rendering, slow motion, the same pixels everywhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from trainables.config.arm import DataConfig
from trainables.datasets.video import photographs
from trainables.datasets.video.load import load_video
from trainables.errors import InvalidValue

pytestmark = pytest.mark.usefixtures("own_cache")


def built_in_clips() -> Iterator[tuple[str, int]]:
    for split, count in photographs.CLIPS.items():
        yield from ((split, i) for i in range(count))


def overlap(a: photographs.Box, b: photographs.Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def footprint(split: str, index: int) -> tuple[str, photographs.Box]:
    """The photograph of a clip and the smallest box of it that the clip's frames are made of."""
    path = photographs.camera(split, index)
    boxes = []
    for frame in range(photographs.CLIP_FRAMES):
        fine = photographs.source_pixels(path, frame)
        rows, columns = (axis // photographs._FINE for axis in fine)
        boxes.append((columns.min(), rows.min(), columns.max() + 2, rows.max() + 2))
    left, top = np.min(boxes, axis=0)[:2]
    right, bottom = np.max(boxes, axis=0)[2:]
    return path.photograph, (int(left), int(top), int(right), int(bottom))


def test_the_splits_see_disjoint_parts_of_the_photographs() -> None:
    seen = {clip: footprint(*clip) for clip in built_in_clips()}
    for (a, (photo_a, box_a)), (b, (photo_b, box_b)) in itertools.combinations(seen.items(), 2):
        if a[0] != b[0] and photo_a == photo_b:
            assert not overlap(box_a, box_b), (a, b)
    for (split, _), (photo, box) in seen.items():
        left, top, right, bottom = photographs.REGIONS[split][photo]
        assert left <= box[0] < box[2] <= right, (split, photo)
        assert top <= box[1] < box[3] <= bottom, (split, photo)


def test_a_pixel_outside_a_clips_footprint_never_reaches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    photo, (left, top, right, bottom) = footprint("dev", 1)
    before = next(photographs.render("dev", 1, 160))
    pixels = photographs.photograph_pixels(photo).copy()
    inside = pixels[top:bottom, left:right].copy()
    pixels[:] = 255 - pixels
    pixels[top:bottom, left:right] = inside
    monkeypatch.setattr(photographs, "photograph_pixels", lambda name: pixels)
    np.testing.assert_array_equal(next(photographs.render("dev", 1, 160)), before)


def test_rendering_interpolates_between_the_four_nearest_pixels() -> None:
    path = photographs.camera("train", 0)
    photo = photographs.photograph_pixels(path.photograph).astype(float)
    frame = next(photographs.render("train", 0, 160))
    middle = (photographs.VIEW - 1) / 2
    for i, j in [(0, 0), (0, 159), (80, 3), (159, 159)]:
        x, y = path.zoom_N[0] * (j - middle), path.zoom_N[0] * (i - middle)
        cos, sin = math.cos(path.angle_N[0]), math.sin(path.angle_N[0])
        row, column = path.row_N[0] + cos * y + sin * x, path.column_N[0] - sin * y + cos * x
        r, c = int(row), int(column)
        a, b = row - r, column - c
        value = (1 - a) * ((1 - b) * photo[r, c] + b * photo[r, c + 1])
        value += a * ((1 - b) * photo[r + 1, c] + b * photo[r + 1, c + 1])
        # half a grey level of rounding, and at most 255/256 for coordinates in 1/256 pixel
        assert abs(frame[i, j] - value) <= 1.5


def test_nothing_moves_more_than_three_pixels_a_frame() -> None:
    for clip in built_in_clips():
        path = photographs.camera(*clip)
        for frame in range(0, photographs.CLIP_FRAMES - 1, 7):
            here, there = (photographs.source_pixels(path, f) for f in (frame, frame + 1))
            moved = np.hypot(*(b - a for a, b in zip(here, there, strict=True))) / 256
            assert 0 < moved.max() < 3


def test_the_built_in_clips_need_no_folder_and_have_their_own_dev() -> None:
    clips = load_video(DataConfig(frame_size=32))
    assert [len(split) for split in (clips.train, clips.dev, clips.test)] == [6, 2, 2]
    assert {c.frames.shape for c in clips.train + clips.dev + clips.test} == {(120, 32, 32)}
    assert len({c.name for c in clips.train + clips.dev + clips.test}) == 10


def test_max_clips_of_the_built_in_clips_leaves_both_splits() -> None:
    clips = load_video(DataConfig(frame_size=32, max_clips=3))
    names = [[c.name for c in split] for split in (clips.train, clips.dev, clips.test)]
    assert names == [["train00", "train01"], ["dev00"], ["test00", "test01"]]


def test_the_built_in_clips_are_the_same_pixels_everywhere() -> None:
    """Other pixels under the same name would make stored results incomparable."""
    assert load_video(DataConfig(frame_size=32)).fingerprint == "a6888ce28623fe59"


def test_frames_larger_than_the_photographs_are_refused() -> None:
    with pytest.raises(InvalidValue, match=r"frame_size must be at most 160 .* got 176"):
        load_video(DataConfig(frame_size=176))
