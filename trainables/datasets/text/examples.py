"""Text data set before its split (``RawText``) and after (``TextSplits``).

One example is one text, or two that belong together (premise and hypothesis), and its label.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainables.datasets.by_split import BySplit, SplitName

Entries = Callable[[], Path]  # the folder of a cache entry; built when it is missing


@dataclass(frozen=True, slots=True)
class Example:
    """One text, or a pair of texts, with its label."""

    text: str
    pair: str | None  # the second text of a pair
    label: int  # an index into the data set's labels
    group: str  # what may not be divided between splits: 16 hex digits (splits.py)


@dataclass(frozen=True, slots=True)
class RawExample:
    """An example as its file holds it, before groups are known."""

    text: str
    pair: str | None
    label: int
    keys: tuple[str, ...] = ()  # examples that share one, or their text, are of one group


@dataclass(frozen=True)
class RawSplit:
    """All labelled examples of a split's files, and how many of them had no label."""

    examples: list[RawExample]
    skipped: int = 0


@dataclass(frozen=True)
class RawText:
    """A text data set as it lies on disk. Nothing of it is read before ``read`` is called."""

    labels: tuple[str, ...]
    read: Callable[[Literal["train", "test"]], RawSplit]  # reads the split's files anew
    listing: tuple[tuple[str, int, int], ...]  # per file: path below the root, bytes, mtime in ns
    root: str  # resolved folder, for the cache's key and for messages
    reader: str = ""  # name and version of the library that reads the files; "" where none does
    notes: tuple[str, ...] = ()  # what a reader of results must know of these files, by sentence


DEV_LIKE = ("val", "valid", "validation", "dev")


def unread(names: Iterable[str]) -> tuple[str, ...]:
    """A note where splits that are called as dev often is are not read; else none."""
    passed_over = [name for name in names if name in DEV_LIKE]
    return (
        (f"{', '.join(passed_over)}: not read; dev is a fraction of train, data.dev_fraction",)
        if passed_over
        else ()
    )


@dataclass(frozen=True)
class TextSplits(BySplit[tuple[Example, ...]]):
    """The examples of one data set, by split. ``test`` is opened only when it is asked for.

    Within a split examples are in the order of a hash of their content: the same wherever they lie
    and in whatever layout, and unrelated to label and source.
    """

    name: str  # of the data set
    labels: tuple[str, ...]
    lengths: dict[SplitName, int]  # examples per split
    skipped: dict[str, int]  # examples without a label that "train" and "test" held besides
    fingerprint: str  # hash of texts, labels, groups and splits; not of where they lie
    held_in: Path  # the cache entry with train.jsonl and dev.jsonl
    shared: int  # examples of test whose text (the first one of a pair) train and dev have, too
    open_test: Entries = field(compare=False, repr=False)  # -> the cache entry with test.jsonl

    def _opened(self, split: SplitName) -> tuple[Example, ...]:
        """BadData where the files of test are not those that the fingerprint was made of."""
        folder = self.open_test() if split == "test" else self.held_in
        return read_examples(folder / f"{split}.jsonl")


def text_digest(*texts: str | None) -> str:
    """Hash of one text or of several, 64 hex digits."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def split_digest(examples: Iterable[Example]) -> str:
    """Hash of all that a split holds, in its order."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(_line(example))
    return digest.hexdigest()


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Write one JSON list per line, which ``read_examples`` reads."""
    with open(path, "wb") as stream:
        stream.writelines(map(_line, examples))


def read_examples(path: Path) -> tuple[Example, ...]:
    """The examples of a file that ``write_examples`` wrote."""
    with open(path, "rb") as stream:
        return tuple(Example(*json.loads(line)) for line in stream)


def _line(example: Example) -> bytes:
    return json.dumps(dataclasses.astuple(example)).encode() + b"\n"
