"""Instructions with answers: Stanford Alpaca's file, and tables of its columns.

An example's first text is the prompt that ``data.template`` makes, its second the answer. A group
is an instruction, known by its first paragraph, with all its inputs. There is one file only: a
tenth of the instructions, drawn by a hash, are the test split. Data for one task have one or a few
instructions for all rows: where these cannot be divided, a group is an instruction with its input.

Source: Taori et al., Stanford Alpaca, 2023 (github.com/tatsu-lab/stanford_alpaca): the file's
fields and both forms of the prompt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from trainables.config.arm import DataConfig
from trainables.datasets.given_folder import given_folder, listing, other_layout, places_of
from trainables.datasets.text.examples import RawExample, RawSplit, RawText
from trainables.datasets.text.files import Damage, Damaged, require_whole, whole_text
from trainables.datasets.text.hub import opened_tables, rows_of
from trainables.errors import BadData
from trainables.registry import DataSetSpec

FOLDERS = ("alpaca", "stanford_alpaca")
FILE = "alpaca_data.json"
FIELDS = ("instruction", "input", "output")
NEEDED = ("instruction", "output")  # tables of others leave out an input that no row has
FEW = 30  # instructions: fewer may be divided with their inputs
LABELS = ("answer",)  # there are no classes
TEST_SHARE = 0.1  # of the instructions
_EXPECTED = (
    f"Give a folder that holds {FILE}, or one that contains it as alpaca/, as published "
    "(https://github.com/tatsu-lab/stanford_alpaca)."
)
_COPY = (
    f"Each row must be an object of the texts {', '.join(FIELDS)} (input may be left out); the "
    "first is row 1. Write rows of your own so; copy published ones again."
)

Split = Literal["train", "test"]


def list_text(data: DataConfig) -> RawText:
    """Find ``alpaca_data.json`` in ``data.folder``. BadData for every way a folder can be wrong."""
    given = given_folder(data, _EXPECTED)
    places = [place for place in places_of(given, FOLDERS) if (place / FILE).exists()]
    if not places:
        raise other_layout(data, given, _EXPECTED)
    if len(places) > 1:
        raise BadData(
            f"data.folder {given} holds {data.name} more than once: {places[0]} and {places[1]}. "
            "They may differ in their instructions. Give the one you mean as data.folder."
        )
    path = places[0] / FILE
    return RawText(
        labels=LABELS,
        read=partial(_read, partial(_rows, path), str(path), data.template, True),
        listing=listing(places[0], [path]),
        root=str(places[0]),
    )


def list_tables(data: DataConfig) -> RawText:
    """Open a data set of the library `datasets`; its own test split is taken where it has one.

    Raises BadData where the library or the data are not there, or are of another kind.
    """
    tables = opened_tables(data)
    splits = {name: tables.splits.get(name) for name in ("train", "test")}
    for split, table in splits.items():
        if (table is None and split == "test") or set(NEEDED) <= set(_columns(table)):
            continue
        raise BadData(
            f"{data.name} in {tables.root} has splits {', '.join(tables.splits) or 'none'}; its "
            f"{split} split has columns {', '.join(_columns(table)) or 'none'}. Instructions "
            f"need a train split with {' and '.join(NEEDED)}, and input where rows have "
            "one. Rename its columns (rename_column) and save it again, or give another data set."
        )

    def read(split: Split) -> RawSplit:
        is_whole = splits["test"] is None
        table = splits["train" if is_whole else split]
        what = f"the {'train' if is_whole else split} split in {tables.root}"
        rows = partial(rows_of, table, str(tables.root))
        return _read(rows, what, data.template, is_whole, split)

    return RawText(
        labels=LABELS,
        read=read,
        listing=tables.listing,
        root=str(tables.root),
        reader=tables.reader,
    )


DATA_SET = DataSetSpec(list=list_text, folders=FOLDERS)
HUB = DataSetSpec(list=list_tables)


def prompt(template: str, instruction: str, context: str) -> str:
    r"""Prompt of an instruction, with its input where it has one.

    >>> prompt("plain", "Name the capital.", "France")
    'Name the capital.\n\nFrance\n\n'
    >>> prompt("plain", "Name a colour.", "")
    'Name a colour.\n\n'
    """
    if template == "plain":
        return f"{instruction}\n\n{context}\n\n" if context else f"{instruction}\n\n"
    if context:
        return (
            "Below is an instruction that describes a task, paired with an input that provides "
            "further context. Write a response that appropriately completes the request.\n\n"
            f"### Instruction:\n{instruction}\n\n### Input:\n{context}\n\n### Response:"
        )
    return (
        "Below is an instruction that describes a task. Write a response that appropriately "
        f"completes the request.\n\n### Instruction:\n{instruction}\n\n### Response:"
    )


def is_test(key: str) -> bool:
    """True if the instruction with this first paragraph is held out: one of ten is."""
    drawn = int(hashlib.sha256(f"test {key}".encode()).hexdigest()[:8], 16)
    return drawn < TEST_SHARE * 16**8


def _read(
    rows: Callable[[], Iterable[object]], what: str, template: str, is_whole: bool, split: Split
) -> RawSplit:
    """The examples of a split; where ``is_whole``, the rows are of both. All rows are checked."""
    damage, skipped = Damage(), 0
    texts: list[tuple[str, str, str]] = []
    for number, row in enumerate(rows()):
        try:
            texts.append(_texts(row))
        except Damaged as error:
            damage.add(f"row {number + 1}", error)
    key = _key_of(texts, is_whole)
    examples = []
    for instruction, context, answer in texts:
        group = key(instruction, context)
        if is_whole and is_test(group) != (split == "test"):
            continue
        if not answer.strip():
            skipped += 1
            continue
        text = prompt(template, instruction, context)
        examples.append(RawExample(text, answer, 0, (group,)))
    damage.refuse(what, _COPY)
    return RawSplit(examples, skipped)


def _key_of(rows: Iterable[tuple[str, str, str]], is_whole: bool) -> Callable[[str, str], str]:
    """The key that groups rows: the instruction; with its input where that splits too few rows."""
    keys = {_by_instruction(instruction, "") for instruction, _, answer in rows if answer.strip()}
    drawn = sum(map(is_test, keys)) if is_whole else 1
    held_in = len(keys) - (drawn if is_whole else 0)
    is_coarse = len(keys) < FEW and (drawn < 1 or held_in < 2)
    return _by_prompt if is_coarse else _by_instruction


def _by_instruction(instruction: str, _: str) -> str:
    # equal prompts have equal first paragraphs, in either template
    return instruction.strip().partition("\n\n")[0].strip()


def _by_prompt(instruction: str, context: str) -> str:
    return prompt("plain", instruction.strip(), context.strip()).strip()


def _rows(path: Path) -> Iterator[object]:
    try:
        parsed = json.loads(whole_text(path))
    except Damaged as error:
        raise BadData(f"{path} cannot be read: {error}. Copy it again.") from error
    except (ValueError, RecursionError) as error:
        parsed = _json_lines(path)
        if parsed is None:
            raise BadData(f"{path} is not JSON: {error}. Copy it again.") from error
    if not isinstance(parsed, list) or not parsed:
        kind = "an empty list" if parsed == [] else f"a {type(parsed).__name__}"
        raise BadData(
            f"{path} holds {kind}; it must be a list of objects with {', '.join(FIELDS)}. Write "
            "rows of your own so; copy the published file again."
        )
    yield from parsed


def _json_lines(path: Path) -> list[object] | None:
    """The rows of a file that has one a line, as many tools write them; None where it has not."""
    try:
        return [json.loads(line) for line in whole_text(path).split("\n") if line.strip()]
    except (ValueError, RecursionError):
        return None


def _texts(row: object) -> tuple[str, str, str]:
    """Instruction, input and output of a row."""
    if not isinstance(row, Mapping):
        raise Damaged("it is no object")
    if missing := [name for name in NEEDED if name not in row]:
        raise Damaged(f"it has no {', '.join(missing)}; it has {', '.join(map(str, row))}")
    if row.get("input") is None:  # some tables write null for none, others leave it out
        row = {**row, "input": ""}
    for name in FIELDS:
        if not isinstance(row[name], str):
            raise Damaged(f"its {name} is no text")
    if not row["instruction"].strip():
        raise Damaged("its instruction is empty")
    instruction, context, answer = (require_whole(row[name]) for name in FIELDS)
    return instruction, context, answer


def _columns(table: Any) -> list[str]:
    return [] if table is None else list(table.column_names)
