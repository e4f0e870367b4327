"""Seeded damage to files: each kind changes one file of a data set, by a generator."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from trainables.fetching.cache import _is_whole

Damage = Callable[[Path, np.random.Generator], None]


def put(file: Path, content: bytes) -> None:
    file.unlink()  # it shares its content with the whole data set that it was linked from
    file.write_bytes(content)


def truncate(file: Path, random: np.random.Generator) -> None:
    content = file.read_bytes()
    put(file, content[: int(random.random() * len(content))])


def flip_bits(file: Path, random: np.random.Generator) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(int(2 ** (6 * random.random()))):
        content[random.integers(len(content))] ^= 1 << int(random.integers(8))
    put(file, bytes(content))


def flip_in_header(file: Path, random: np.random.Generator) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(int(random.integers(1, 9))):
        content[random.integers(min(600, len(content)))] = int(random.integers(256))
    put(file, bytes(content))


def zero_a_run(file: Path, random: np.random.Generator) -> None:
    content = bytearray(file.read_bytes())
    start, length = int(random.integers(len(content))), int(random.integers(1, 4096))
    content[start : start + length] = bytes(len(content[start : start + length]))
    put(file, bytes(content))


def cut_out(file: Path, random: np.random.Generator) -> None:
    content = file.read_bytes()
    start, length = int(random.integers(len(content))), int(random.integers(1, 2048))
    put(file, content[:start] + content[start + length :])


def insert(file: Path, random: np.random.Generator) -> None:
    content = file.read_bytes()
    start = int(random.integers(len(content)))
    put(file, content[:start] + random.bytes(int(random.integers(1, 2048))) + content[start:])


def empty(file: Path, random: np.random.Generator) -> None:
    put(file, b"")


def replace_by_text(file: Path, random: np.random.Generator) -> None:
    texts = (b"<html>404</html>\n", b"#EXTM3U\nother.mkv\n", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"RIFF")
    put(file, texts[random.integers(len(texts))] * int(random.integers(1, 200)))


def replace_by_noise(file: Path, random: np.random.Generator) -> None:
    put(file, random.bytes(int(random.integers(1, 20_000))))


def delete(file: Path, random: np.random.Generator) -> None:
    file.unlink()


def replace_by_folder(file: Path, random: np.random.Generator) -> None:
    file.unlink()
    file.mkdir()


def replace_by_dead_link(file: Path, random: np.random.Generator) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def replace_by_itself(file: Path, random: np.random.Generator) -> None:
    file.unlink()
    file.symlink_to(file.name)


def replace_by_pipe(file: Path, random: np.random.Generator) -> None:
    file.unlink()
    os.mkfifo(file)


def add_a_copy(file: Path, random: np.random.Generator) -> None:
    shutil.copy(file, file.with_name(f"{file.stem}0{file.suffix}"))


def try_many(try_one: Callable[[int], str | None], seeds: range) -> None:
    """Cases by seed; each says what was said of its damage, None where all was read whole."""
    outcomes = [try_one(seed) for seed in seeds]
    named = len(outcomes) - outcomes.count(None)
    assert len(outcomes) / 3 < named < len(outcomes)  # else the damage is none, or too much


def require_no_partial_entry(cache: Path, kind: str, case: str = "") -> None:
    """All that a refusal leaves in the cache is whole."""
    left = [path for path in cache.glob(f"{kind}/*") if path.suffix != ".lock"]
    assert all(_is_whole(path) for path in left), (case, left)
