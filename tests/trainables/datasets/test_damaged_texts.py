"""Seeded damage to text files of every layout: whole examples or BadData that names the place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.data.damage import (
    Damage,
    add_a_copy,
    cut_out,
    delete,
    empty,
    flip_bits,
    flip_in_header,
    insert,
    put,
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
from tests.support.data.text_folders import TEXT_LAYOUTS
from trainables.config.arm import DataConfig
from trainables.datasets.text.examples import TextSplits
from trainables.datasets.text.load import load_text
from trainables.errors import BadData

QUICK, ALL = 100, 1000  # cases of damage, over all layouts
KINDS = tuple(TEXT_LAYOUTS)


# --- damage that only texts have ------------------------------------------------------------------


def drop_a_line(file: Path, random: np.random.Generator) -> None:
    lines = file.read_bytes().split(b"\n")
    del lines[random.integers(len(lines))]
    put(file, b"\n".join(lines))


def join_two_lines(file: Path, random: np.random.Generator) -> None:
    lines = file.read_bytes().split(b"\n")
    place = int(random.integers(len(lines)))
    lines[place : place + 2] = [b"".join(lines[place : place + 2])]
    put(file, b"\n".join(lines))


def encode_otherwise(file: Path, random: np.random.Generator) -> None:
    text = file.read_text(encoding="utf-8", errors="replace")
    put(file, text.encode(("latin-1", "utf-16", "cp1252")[random.integers(3)], errors="replace"))


def change_a_word(file: Path, random: np.random.Generator) -> None:
    """Labels, keys, tabs and quotation marks among them."""
    words = (b"neutral", b"sentence1", b"gold_label", b"\t", b'"', b"tt", b"premise", b"film")
    word = words[random.integers(len(words))]
    parts = file.read_bytes().split(word)
    place = int(random.integers(len(parts)))
    parts[place : place + 2] = [b"?".join(parts[place : place + 2])]
    put(file, word.join(parts))


def rename(file: Path, random: np.random.Generator) -> None:
    names = ("0_9.txt", "3_5.txt", "-1_9.txt", "7_9.txt.part", "train.tsv", "x.jsonl", ".hidden")
    file.rename(file.with_name(names[random.integers(len(names))]))


DAMAGES: tuple[Damage, ...] = (
    *(truncate, flip_bits, flip_in_header, zero_a_run, cut_out, insert, change_a_word) * 2,
    *(drop_a_line, join_two_lines, encode_otherwise, rename, delete, add_a_copy, empty),
    *(replace_by_text, replace_by_noise, replace_by_folder, replace_by_dead_link),
    *(replace_by_itself, replace_by_pipe),
)
# Whatever file of a data set these hit, it cannot be read.
ALWAYS_REFUSED = {
    *(empty, replace_by_folder, replace_by_dead_link, replace_by_itself, replace_by_pipe)
}


# --- the suite ------------------------------------------------------------------------------------

Whole = dict[str, tuple[Path, TextSplits]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A whole data set of every layout: its folder, and its examples."""
    folder = tmp_path_factory.mktemp("whole")
    made = {}
    for number, (kind, layout) in enumerate(TEXT_LAYOUTS.items()):
        root = layout.write(folder / str(number))
        made[kind] = (root, load_text(config(kind, root)))
    return made


def config(kind: str, folder: Path) -> DataConfig:
    return DataConfig(name=TEXT_LAYOUTS[kind].data_set, folder=str(folder), dev_fraction=0.3)


def is_read(file: Path) -> bool:
    """Whether a file is one of the data set's own, not one that lies beside them."""
    beside = file.name[0] == "." or "mismatched" in file.name or file.parent.name == "unsup"
    return file.suffix in (".txt", ".jsonl", ".tsv") and not beside


def contents(splits: TextSplits) -> tuple[object, ...]:
    return splits.labels, splits.train, splits.dev, splits.test


def try_one(whole: Whole, tmp_path: Path, seed: int) -> str | None:
    """One case, cleaned up: what was said of the damage (None: whole examples)."""
    kind = KINDS[seed % len(KINDS)]
    source, undamaged = whole[kind]
    place, random = tmp_path / "data", np.random.default_rng(seed)
    shutil.copytree(source, place, copy_function=os.link)
    files = sorted(filter(is_read, place.rglob("*")))
    file, damage = files[random.integers(len(files))], DAMAGES[random.integers(len(DAMAGES))]
    damage(file, random)
    case = f"seed {seed}: {damage.__name__} of {file.relative_to(place)} in {kind}"
    said = None
    try:
        splits = load_text(config(kind, place))
        assert damage not in ALWAYS_REFUSED, case
        same = contents(splits) == contents(undamaged)
        assert (splits.fingerprint == undamaged.fingerprint) == same, case
        for examples in (splits.train, splits.dev, splits.test):
            assert examples, case
            assert {e.label for e in examples} <= set(range(len(splits.labels))), case
            assert all((e.text + (e.pair or "")).strip() for e in examples), case
        assert not {e.group for e in splits.train} & {e.group for e in splits.dev}, case
    except BadData as error:
        said = str(error)
        assert str(tmp_path) in said, f"{case}: {said}"
        assert any(name in said for name in (file.name, str(file.parent))), f"{case}: {said}"
        assert said.count(". ") >= 1, f"{case}: no advice in {said}"
        assert len(said) < 3000, case
    require_no_partial_entry(tmp_path / "cache", "text", case)
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
    try_many(lambda seed: try_one(whole, tmp_path, seed), seeds)
    assert capfd.readouterr() == ("", "")


def test_damage_is_named_or_is_in_the_fingerprint(
    whole: Whole,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    _try_many(whole, tmp_path, monkeypatch, capfd, range(QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_much_damage_is_named_or_is_in_the_fingerprint(
    whole: Whole,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    part: int,
) -> None:
    first = QUICK + part * ALL // 5
    _try_many(whole, tmp_path, monkeypatch, capfd, range(first, first + ALL // 5))
