"""Tokenized text data sets: made once per machine and tokenizer, memory-mapped.

Shape suffixes: N examples of a split, M tokens of a split, B examples of a batch, T tokens of the
longest example in a batch.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.config.arm import DataConfig
from trainables.datasets.by_split import BySplit, SplitName
from trainables.datasets.text.answers import encode_answers
from trainables.datasets.text.examples import Example, TextSplits
from trainables.datasets.text.tokenizer import (
    Tokenizer,
    encode,
    load_tokenizer,
    require_known_words,
    special_ids,
)
from trainables.datasets.text.tokenizer_files import tokenizer_fingerprint
from trainables.fetching.cache import built_once
from trainables.plain import Json

_FORMAT = 1  # raised when what an entry holds, or how texts become tokens, changes
_CHUNK = 1000  # texts that are tokenized at a time: bounds memory, changes nothing

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PaddedBatch:
    """Examples of differing lengths side by side; what lies beyond an example's end is padding."""

    ids: Ints  # [B, T], the padding token beyond the end
    mask: NDArray[np.bool_]  # [B, T], True on tokens, special ones included
    types: Ints | None  # [B, T], 0 for first texts and 1 for second, or for answers; None: no types


@dataclass(frozen=True)
class TokenizedSplit:
    """The examples of one split as tokens, in the order of ``TextSplits``; arrays are read-only."""

    ids_M: NDArray[np.int32]  # the tokens of all examples, one after the other
    offsets: Ints  # [N + 1]: example i has the tokens offsets[i] to offsets[i + 1]
    types_M: NDArray[np.int8] | None  # beside ids_M: 1 on answers; None: no types
    labels_N: Ints
    groups_N: Ints  # indices into group_names
    group_names: tuple[str, ...]  # sorted
    cut: int  # examples that were longer than max_length and lost their end
    pad_id: int

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def lengths_N(self) -> Ints:
        """Tokens per example, special ones included."""
        return np.diff(self.offsets)

    def tokens(self, index: int) -> NDArray[np.int32]:
        """The tokens of one example, without padding."""
        return self.ids_M[self.offsets[index] : self.offsets[index + 1]]

    def padded(self, indices_B: Sequence[int] | Ints) -> PaddedBatch:
        """The examples ``indices_B`` side by side, as wide as the longest of them."""
        chosen = np.asarray(indices_B, dtype=np.int64)
        starts, ends = self.offsets[chosen], self.offsets[chosen + 1]
        lengths = ends - starts
        columns = np.arange(lengths.max(initial=0))
        mask = columns < lengths[:, None]
        places = (starts[:, None] + columns)[mask]
        ids = np.full(mask.shape, self.pad_id, dtype=np.int64)
        ids[mask] = self.ids_M[places]
        if self.types_M is None:
            return PaddedBatch(ids, mask, None)
        types = np.zeros(mask.shape, dtype=np.int64)
        types[mask] = self.types_M[places]
        return PaddedBatch(ids, mask, types)


@dataclass(frozen=True)
class TokenizedSplits(BySplit[TokenizedSplit]):
    """The tokens of one data set, by split. ``test`` is opened only when it is asked for."""

    labels: tuple[str, ...]
    vocabulary: int  # token ids are below it
    pad_id: int
    special_ids: tuple[int, ...]  # [CLS], [SEP], padding, ...: what stands for no part of a text
    fingerprint: str  # the texts'
    tokenizer_fingerprint: str
    max_length: int
    open_split: Callable[[str], Path] = field(compare=False, repr=False)  # -> its cache entry

    def _opened(self, split: SplitName) -> TokenizedSplit:
        folder = self.open_split(split)

        def array(name: str) -> NDArray[Any]:
            values: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r")
            return values

        stored = json.loads((folder / "split.json").read_text())
        return TokenizedSplit(
            ids_M=array("ids"),
            offsets=array("offsets"),
            types_M=array("types") if (folder / "types.npy").exists() else None,
            labels_N=array("labels"),
            groups_N=array("groups"),
            group_names=tuple(stored["group_names"]),
            cut=stored["cut"],
            pad_id=stored["pad_id"],
        )


def tokenized(
    data: DataConfig, splits: TextSplits, tokenizer: str, max_length: int, *, answers: bool = False
) -> TokenizedSplits:
    """The tokens of ``splits``, loaded from ``data``, from the cache where they were made before.

    Texts are read only where tokens are missing; with ``answers`` second texts are a decoder's to
    write (answers.py).

    Raises:
        BadData: the tokenizer is not there, damaged, or knows few of the training texts' words.
        InvalidValue: ``max_length`` does not suit the tokenizer.
    """
    print_of_tokenizer = tokenizer_fingerprint(tokenizer)
    key: dict[str, Json] = {
        "format": _FORMAT,
        "name": data.name,
        "data": splits.fingerprint,
        "tokenizer": print_of_tokenizer,
        "max_length": max_length,
        "libraries": [version("transformers"), version("tokenizers")],
    }
    if answers:
        key["encoding"] = "answers, specials spelt out"
    loaded = functools.cache(lambda: load_tokenizer(tokenizer, answers=answers))

    def open_split(name: str) -> Path:
        def write(folder: Path) -> None:
            _write(folder, splits.split(name), loaded(), max_length, answers)
            if name == "train":
                require_known_words(loaded(), np.load(folder / "ids.npy"))

        return built_once("tokens", {**key, "split": name}, write)

    stored = json.loads((open_split("train") / "split.json").read_text())
    return TokenizedSplits(
        labels=splits.labels,
        vocabulary=stored["vocabulary"],
        pad_id=stored["pad_id"],
        special_ids=tuple(stored["special_ids"]),
        fingerprint=splits.fingerprint,
        tokenizer_fingerprint=print_of_tokenizer,
        max_length=max_length,
        open_split=open_split,
    )


def _write(
    folder: Path, examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, answers: bool
) -> None:
    """Write the arrays of one split, and split.json, into ``folder``."""
    ids, lengths, types, cut = [], [0], [], 0
    encoded, chunk = (encode_answers, len(examples) or 1) if answers else (encode, _CHUNK)
    for first in range(0, len(examples), chunk):
        made = encoded(tokenizer, examples[first : first + chunk], max_length)
        ids.append(_flat(made.ids, np.int32))
        lengths += map(len, made.ids)
        cut += made.cut
        if made.types is not None:
            types.append(_flat(made.types, np.int8))
    names = sorted({example.group for example in examples})
    place = {name: i for i, name in enumerate(names)}
    arrays: dict[str, NDArray[Any]] = {
        "ids": np.concatenate([np.empty(0, np.int32), *ids]),
        "offsets": np.cumsum(lengths, dtype=np.int64),
        "labels": np.array([example.label for example in examples], dtype=np.int64),
        "groups": np.array([place[example.group] for example in examples], dtype=np.int64),
    }
    if types:
        arrays["types"] = np.concatenate(types)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    stored = {
        "group_names": names,
        "cut": cut,
        "pad_id": tokenizer.pad_token_id,
        "special_ids": special_ids(tokenizer),
        "vocabulary": len(tokenizer),
    }
    (folder / "split.json").write_text(json.dumps(stored))


def _flat(rows: Sequence[Sequence[int]], dtype: type) -> NDArray[Any]:
    return np.fromiter(itertools.chain.from_iterable(rows), dtype=dtype)
