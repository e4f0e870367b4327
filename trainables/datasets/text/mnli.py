"""MultiNLI from its original .jsonl files or from GLUE's .tsv files.

An example is a premise, a hypothesis and a label. The test split is the matched validation set,
since the labels of GLUE's test set are not public. A group is a premise: a prompt's hypotheses
(same promptID) and all others to the same premise. Rows without a gold label (-) are left out and
counted.

Source: Williams, Nangia, Bowman, A Broad-Coverage Challenge Corpus for Sentence Understanding
through Inference, NAACL 2018; Wang et al., GLUE, ICLR 2019.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from trainables.config.arm import DataConfig
from trainables.datasets.given_folder import given_folder, listing, other_layout, places_of
from trainables.datasets.text.examples import RawExample, RawSplit, RawText
from trainables.datasets.text.files import Damage, Damaged, decoded, lines, require_whole
from trainables.errors import BadData
from trainables.registry import DataSetSpec

LABELS = ("entailment", "neutral", "contradiction")  # in the order of Hugging Face's copies
_NO_LABEL = "-"  # the annotators did not agree
_SENTENCES = ("sentence1", "sentence2")
_NEEDED = (*_SENTENCES, "gold_label")
FOLDERS = ("multinli_1.0", "MNLI", "mnli", "MultiNLI")
_EXPECTED = (
    "Give a folder that is or contains multinli_1.0/ with multinli_1.0_train.jsonl and "
    "multinli_1.0_dev_matched.jsonl (https://cims.nyu.edu/~sbowman/multinli), or MNLI/ with "
    "train.tsv and dev_matched.tsv (https://gluebenchmark.com/tasks)."
)
_COPY = "Extract the original archive again."

Row = Mapping[str, Any]  # one line, by the names of its columns


@dataclass(frozen=True)
class Layout:
    """One way in which MultiNLI is published."""

    train: str  # file names
    test: str
    rows: Callable[[Path, Damage], Iterator[tuple[int, Row]]]  # notes unreadable lines itself


def list_text(data: DataConfig) -> RawText:
    """Find the two files in ``data.folder``. BadData for every way a folder can be wrong."""
    root, layout = _find(data)
    files = {"train": root / layout.train, "test": root / layout.test}
    return RawText(
        labels=LABELS,
        read=partial(_read, files, layout),
        listing=listing(root, files.values()),
        root=str(root),
    )


DATA_SET = DataSetSpec(list=list_text, folders=FOLDERS)


def _find(data: DataConfig) -> tuple[Path, Layout]:
    given = given_folder(data, _EXPECTED)
    complete, halves = [], []
    for place in places_of(given, FOLDERS):
        for layout in LAYOUTS:
            there = [name for name in (layout.train, layout.test) if _is_there(place / name)]
            if len(there) == 2:
                complete.append((place, layout))
            elif there:
                missing = next(n for n in (layout.train, layout.test) if n not in there)
                halves.append(f"{place} has {there[0]}, but no {missing}")
    if len(complete) > 1:
        copies = " and ".join(str(place / layout.train) for place, layout in complete)
        raise BadData(
            f"data.folder {given} holds {data.name} more than once: {copies}. They may differ in "
            "their sentences. Give the folder of the one you mean, or move the other away."
        )
    if halves and not complete:
        raise BadData(f"{'; '.join(halves)}. {_EXPECTED}")
    if not complete:
        raise other_layout(data, given, _EXPECTED)
    return complete[0]


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()  # a dead link is refused by its name later


def _read(files: dict[str, Path], layout: Layout, split: Literal["train", "test"]) -> RawSplit:
    damage, examples, skipped = Damage(), [], 0
    path = files[split]
    try:
        for number, row in layout.rows(path, damage):
            try:
                example = _example(row)
            except Damaged as error:
                damage.add(f"line {number}", error)
                continue
            if example is None:
                skipped += 1
            else:
                examples.append(example)
    except Damaged as error:
        damage.add(path.name, error)
    if not examples:
        damage.add(path.name, "it has no labelled pair of sentences")
    damage.refuse(str(path), _COPY)
    return RawSplit(examples, skipped)


def _example(row: Row) -> RawExample | None:
    """The pair of a row; None when it has no gold label."""
    missing = [name for name in _NEEDED if not isinstance(row.get(name), str)]
    if missing:
        raise Damaged(f"it has no text {', '.join(missing)}")
    premise, hypothesis = (require_whole(row[name]) for name in _SENTENCES)
    if not (premise.strip() or hypothesis.strip()):
        raise Damaged("both sentences are empty")
    if row["gold_label"] == _NO_LABEL:
        return None
    if row["gold_label"] not in LABELS:
        known = ", ".join((*LABELS, _NO_LABEL))
        raise Damaged(f"gold_label must be one of {known}, got {row['gold_label'][:20]!r}")
    prompt = row.get("promptID")
    keys = () if prompt in (None, "") else (f"prompt {prompt}",)
    return RawExample(premise, hypothesis, LABELS.index(row["gold_label"]), keys)


def _json_rows(path: Path, damage: Damage) -> Iterator[tuple[int, Row]]:
    for number, line in lines(path):
        if not line.strip():
            continue  # the end of the file
        try:
            row = json.loads(decoded(line))
        except Damaged as error:
            damage.add(f"line {number}", error)
        except (ValueError, RecursionError) as error:
            damage.add(f"line {number}", f"it is no JSON ({error})")
        else:
            if isinstance(row, dict):
                yield number, row
            else:
                damage.add(f"line {number}", "it is no JSON object")


def _tab_rows(path: Path, damage: Damage) -> Iterator[tuple[int, Row]]:
    """GLUE quotes nothing: a quotation mark is part of a sentence."""
    names: list[str] = []
    for number, line in lines(path):
        try:
            values = decoded(line).split("\t")
        except Damaged as error:
            damage.add(f"line {number}", error)
            continue
        if number == 1:
            names = values
            if absent := [name for name in _NEEDED if name not in names]:
                damage.add("line 1", f"its header has no column {', '.join(absent)}")
                return
        elif len(values) == len(names):
            yield number, dict(zip(names, values, strict=True))
        elif values != [""]:
            damage.add(f"line {number}", f"it has {len(values)} of {len(names)} columns")


LAYOUTS = (
    Layout("multinli_1.0_train.jsonl", "multinli_1.0_dev_matched.jsonl", _json_rows),
    Layout("train.tsv", "dev_matched.tsv", _tab_rows),
)
