"""Seeded damage to data files of every format: whole clips or BadData that names the place."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.command_line import refused, sweep
from tests.support.data.damage import (
    Damage,
    add_a_copy,
    cut_out,
    delete,
    empty,
    flip_bits,
    flip_in_header,
    insert,
    replace_by_dead_link,
    replace_by_folder,
    replace_by_itself,
    replace_by_noise,
    replace_by_pipe,
    replace_by_text,
    require_no_partial_entry,
    truncate,
    try_many,
    zero_a_run,
)
from tests.support.data.data_folders import LAYOUTS, noise, scene, write_video
from trainables.config.arm import DataConfig
from trainables.datasets.video.load import load_video, resolve
from trainables.datasets.video.video_files import VIDEO_SUFFIXES
from trainables.errors import BadData

FRAMES = 5
QUICK, ALL = 72, 1800  # cases of damage, over all kinds of folders
SUFFIXES = (*VIDEO_SUFFIXES, ".jpg", ".png", ".tif", ".bmp", ".txt", "")

# Folders of four clips each, for every way to store a clip.
VIDEOS = {
    "avi-ffv1": ("avi", "ffv1", "gray"),
    "avi-mpeg4": ("avi", "mpeg4", "yuv420p"),
    "avi-mjpeg": ("avi", "mjpeg", "yuvj420p"),
    "avi-raw": ("avi", "rawvideo", "bgr24"),
    "mp4-h264": ("mp4", "libx264", "yuv420p"),
    "mov-mpeg4": ("mov", "mpeg4", "yuv420p"),
    "mkv-ffv1": ("mkv", "ffv1", "gray"),
    "webm-vp9": ("webm", "libvpx-vp9", "yuv420p"),
}
IMAGES = {"jpg": {}, "png": {}, "bmp": {}, "tif": {}, "tiff": {"compression": "tiff_lzw"}}


def _write(root: Path, kind: str) -> tuple[str, int]:
    """Write a whole data set of this kind; returns its name and its number of frames."""
    if kind in LAYOUTS:
        layout = LAYOUTS[kind]
        layout.write(root)
        films = (*layout.train.values(), *layout.test.values())
        return layout.data_set, sum(map(len, films))
    for clip in range(4):
        place = root / f"clip{clip}"
        if kind in VIDEOS:
            suffix, codec, pixel_format = VIDEOS[kind]
            frames = [scene(20 * clip + i) for i in range(FRAMES)]
            write_video(place.with_suffix(f".{suffix}"), frames, codec, pixel_format)
        else:
            place.mkdir(parents=True)
            for i in range(FRAMES):
                image = Image.fromarray(noise(clip, i))
                image.save(place / f"{i:03d}.{kind}", **IMAGES[kind])
    return "clips", 4 * FRAMES


Whole = dict[str, tuple[Path, str, int]]
KINDS = (*VIDEOS, *IMAGES, *LAYOUTS)


# --- kinds of damage: each changes one file -------------------------------------------------------


def swap_suffix(file: Path, random: np.random.Generator) -> None:
    file.rename(file.with_suffix(SUFFIXES[random.integers(len(SUFFIXES))]))


DAMAGES: tuple[Damage, ...] = (
    *(truncate, flip_bits, flip_in_header, zero_a_run, cut_out, insert) * 2,
    *(empty, replace_by_text, replace_by_noise, swap_suffix, delete, add_a_copy),
    *(replace_by_folder, replace_by_dead_link, replace_by_itself, replace_by_pipe),
)
# These cannot give a data set whose every file is whole.
ALWAYS_REFUSED = {
    empty,
    replace_by_text,
    replace_by_noise,
    replace_by_folder,
    replace_by_dead_link,
    replace_by_itself,
    replace_by_pipe,
}
# A clip or a frame less, or one more, where that leaves a data set: these are no damage in a file.
CHANGE_THE_LENGTH = {delete, swap_suffix, add_a_copy}


# --- the suite ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A whole data set of every kind: its folder, its name, and how many frames it has."""
    folder = tmp_path_factory.mktemp("whole")
    return {kind: (folder / kind, *_write(folder / kind, kind)) for kind in KINDS}


def config(folder: Path, name: str) -> DataConfig:
    return DataConfig(name=name, folder=str(folder), frame_size=16, frames=4, patch_size=8)


def _damaged(source: Path, place: Path, seed: int) -> tuple[Path, Callable[..., None]]:
    """A copy of ``source`` at ``place`` with one file damaged: which, and how."""
    random = np.random.default_rng(seed)
    shutil.copytree(source, place, copy_function=os.link)
    files = sorted(p for p in place.rglob("*") if p.is_file() and p.suffix not in (".txt", ""))
    files = [p for p in files if "_gt" not in p.parent.name]
    file = files[random.integers(len(files))]
    damage = DAMAGES[random.integers(len(DAMAGES))]
    damage(file, random)
    return file, damage


def _try_one(
    whole: Whole,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    seed: int,
) -> str | None:
    """One case, cleaned up: what was said of the damage (None: whole clips)."""
    kind = KINDS[seed % len(KINDS)]
    source, name, whole_length = whole[kind]
    place = tmp_path / "data"
    file, damage = _damaged(source, place, seed)
    case = f"seed {seed}: {damage.__name__} of {file.relative_to(place)} in {kind}"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = None
    try:
        resolved = resolve(config(place, name))
        clips, length = load_video(resolved), 0
        for split in ("train", "dev", "test"):
            stored = clips.stored(split)
            assert stored, case
            assert all(clip.length >= 4 for clip in stored), case
            length += sum(clip.length for clip in stored)
            assert clips.stacked(split).shape[1:] == (16, 16), case
        assert 0 < clips.std < 1, case
        assert damage in CHANGE_THE_LENGTH or whole_length - 1 <= length <= whole_length, case
        assert damage not in ALWAYS_REFUSED, case
    except BadData as error:
        said = str(error)
        clip = file.parent.name if file.parent.name != place.name else file.stem
        named = (file.name, str(file.parent), file.stem, clip)
        assert any(text in said for text in named), f"{case}: {said}"
        assert said.count(". ") >= 1, f"{case}: no advice in {said}"
    require_no_partial_entry(tmp_path / "cache", "video", case)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 1_000_000, f"{case}: {grown} kB more, as a damaged header asked for"
    printed = capfd.readouterr()
    if ".tif" not in file.suffix:  # libtiff prints what it thinks, past Python and Pillow
        assert printed == ("", ""), case
    shutil.rmtree(place)
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    return said


def _try_many(
    whole: Whole,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    seeds: range,
) -> None:
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    try_many(lambda seed: _try_one(whole, tmp_path, capfd, seed), seeds)


def test_whole_files_of_every_kind_are_read(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    for folder, name, _ in whole.values():
        assert load_video(config(folder, name)).std > 0


def test_damage_is_named_or_does_not_matter(
    whole: Whole,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    _try_many(whole, tmp_path, monkeypatch, capfd, range(QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_much_damage_is_named_or_does_not_matter(
    whole: Whole,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    part: int,
) -> None:
    first = QUICK + part * ALL // 6
    _try_many(whole, tmp_path, monkeypatch, capfd, range(first, first + ALL // 6))


# --- through the command line ---------------------------------------------------------------------

SPACE_FILE = """
from dataclasses import replace
from search_spaces.space import SearchSpace, Setting, Uniform
from tests.support.oracles import TINY

SPACE = SearchSpace(
    name="mine",
    summary="any data set",
    base=replace(TINY, steps=2, report_every=1),
    settings=(Setting("only", {{"data.name": "{name}"}}),),
    ranges={{"constraint.alpha": Uniform(0.1, 0.3)}},
    n_proposals=1,
    search_seeds=(0,),
    sampler="random",
)
"""


def _command(tmp_path: Path, name: str, folder: Path) -> list[str]:
    space = tmp_path / "mine.py"
    space.write_text(SPACE_FILE.format(name=name))
    storage = str(tmp_path / "storage")
    return ["run", str(space), "--data", str(folder), "--where", "inline", "--storage", storage]


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("ucsd_ped2 as published", empty),
        ("cuhk_avenue as published", replace_by_text),
        ("shanghaitech as published", truncate),
        ("avi-mpeg4", replace_by_dead_link),
        ("mkv-ffv1", replace_by_pipe),
        ("webm-vp9", replace_by_folder),
    ],
)
def test_the_command_line_names_a_damaged_file_and_writes_nothing(
    whole: Whole,
    tmp_path: Path,
    own_cache: Path,
    kind: str,
    damage: Damage,
) -> None:
    source, name, _ = whole[kind]
    place = tmp_path / "data"
    shutil.copytree(source, place, copy_function=os.link)
    suffixes = (".tif", ".avi", ".mkv", ".webm")
    file = min(path for path in place.rglob("*") if path.suffix in suffixes)
    damage(file, np.random.default_rng(0))
    assert file.stem in refused(*_command(tmp_path, name, place))
    assert not (tmp_path / "storage").exists()
    require_no_partial_entry(own_cache, "video")


@pytest.mark.usefixtures("own_cache")
def test_the_command_line_trains_on_video_files(whole: Whole, tmp_path: Path) -> None:
    folder, name, _ = whole["cuhk_avenue as published"]
    assert "2 of 2 arms are final" in sweep(*_command(tmp_path, name, folder)).stdout
