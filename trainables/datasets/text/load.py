"""Text data sets by name: read once, checked, split by groups, fingerprinted.

Dev is carved from the training examples, whole groups only (reviews or films, premises,
instructions), so that nothing of a dev group was trained on. The test split is read once, when the
data are resolved, so that damage is found before an arm starts; its examples are opened by
confirmation only.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from pathlib import Path

from trainables.config.arm import DataConfig
from trainables.datasets.places import listed_here, require_fingerprint
from trainables.datasets.text.examples import (
    Example,
    RawText,
    TextSplits,
    read_examples,
    split_digest,
    write_examples,
)
from trainables.datasets.text.splits import carved, grouped, in_order, limited
from trainables.errors import BadData
from trainables.fetching.cache import built_once
from trainables.plain import Json
from trainables.registry.task_facts import DataGroup

_FORMAT = 3  # raised when what an entry holds, or how files are read and split, changes


def load_text(
    data: DataConfig, split_seed: int | None = None, group: DataGroup = "texts"
) -> TextSplits:
    """The examples of the data set that ``data`` names, from the cache where they were read before.

    ``split_seed`` draws the groups of dev anew from those of train and dev; the fingerprint of the
    data stays that of the split without a seed. None: the same dev for all.

    Raises:
        UnknownName: no such data set.
        BadData: the folder is missing, empty, of another layout or damaged; a label has no training
            examples; no dev split can be carved; or the texts are not those of
            ``data.fingerprint``.
    """
    raw = list_text(data, group)
    key: dict[str, Json] = {
        "format": _FORMAT,
        "name": data.name,
        "root": raw.root,
        "listing": hashlib.sha256(json.dumps(raw.listing).encode()).hexdigest(),
        "reader": raw.reader,
        "max_items": data.max_items,
    }
    if group == "instructions":
        key |= {"group": group, "template": data.template}
    write_held_in = functools.partial(_write_held_in, raw=raw, data=data)
    # The key has the field's first name: what is prepared already stays so.
    held_in = built_once("text", {**key, "dev_share": data.dev_fraction}, write_held_in)
    stored = json.loads((held_in / "splits.json").read_text())
    what = f"the texts of {data.name} in {raw.root} are others"
    require_fingerprint(data, stored["fingerprint"], what)
    write_test = functools.partial(_write_test, raw=raw, data=data, digest=stored["test_digest"])
    if split_seed is not None:
        held_in = built_once(
            "text",
            {**key, "dev_share": data.dev_fraction, "split_seed": split_seed},
            functools.partial(_divide, source=held_in, raw=raw, data=data, seed=split_seed),
        )
        stored = stored | json.loads((held_in / "splits.json").read_text())
    return TextSplits(
        name=data.name,
        labels=raw.labels,
        lengths=stored["lengths"],
        skipped=stored["skipped"],
        fingerprint=stored["fingerprint"],
        held_in=held_in,
        shared=stored["shared"],
        open_test=functools.partial(built_once, "text", {**key, "split": "test"}, write_test),
    )


def remarks(data: DataConfig, group: DataGroup) -> tuple[str, ...]:
    """Notes for the user on how these texts are read; raises as ``load_text``."""
    return (*list_text(data, group).notes, *skipped_rows(load_text(data, group=group), group))


def skipped_rows(texts: TextSplits, group: DataGroup) -> tuple[str, ...]:
    """A note on rows that were left out, where there are any."""
    skipped = sum(texts.skipped.values())
    lacking = "answer" if group == "instructions" else "label"
    return (f"rows without {lacking} that are left out: {skipped:,}",) if skipped else ()


def list_text(data: DataConfig, group: DataGroup = "texts") -> RawText:
    """The files of the data set, none of them read.

    Raises:
        BadData: as ``listed_here``; or the texts are to be classified, and all have one label.
    """
    raw = listed_here(group, data, RawText)
    labels = raw.labels
    if group == "texts" and len(labels) < 2:
        raise BadData(
            f"{data.name} in {raw.root} has {len(labels)} label(s) ({', '.join(labels)}), but "
            "classification needs at least 2: with one there is nothing to classify, and the "
            "constant prediction is never wrong. Add examples of another label, or give another "
            "data set."
        )
    return raw


def resolve(data: DataConfig) -> DataConfig:
    """``data`` with the fingerprint of its texts. BadData when it already carries another one."""
    return dataclasses.replace(data, fingerprint=load_text(data).fingerprint)


def resolve_instructions(data: DataConfig) -> DataConfig:
    """Resolve a data set of instructions, as ``resolve``."""
    return dataclasses.replace(data, fingerprint=load_text(data, group="instructions").fingerprint)


def _write_held_in(folder: Path, *, raw: RawText, data: DataConfig) -> None:
    """Write train.jsonl, dev.jsonl and what is known of all splits into ``folder``."""
    read = raw.read("train")
    train, dev = carved(grouped(read.examples), data.dev_fraction)
    held_in = {"train": limited(train, data.max_items), "dev": limited(dev, data.max_items)}
    _check(held_in["train"], held_in["dev"], raw, data)
    test, skipped = _test(raw, data)
    if not test:
        raise BadData(
            f"the test split of {data.name} in {raw.root} is empty, so that no winner could be "
            "confirmed. Add the data set's test examples; of instructions without a split of their "
            "own a tenth is drawn: add more of them, or of inputs to them."
        )
    for split, examples in held_in.items():
        write_examples(folder / f"{split}.jsonl", examples)
    splits = {**held_in, "test": test}
    digests = {split: split_digest(examples) for split, examples in splits.items()}
    content = json.dumps([raw.labels, digests["train"], digests["dev"], digests["test"]])
    stored = {
        "fingerprint": hashlib.sha256(content.encode()).hexdigest()[:16],
        "lengths": {split: len(examples) for split, examples in splits.items()},
        "skipped": {"train": read.skipped, "test": skipped},
        "test_digest": digests["test"],
        "shared": _shared([*train, *dev], test),
    }
    (folder / "splits.json").write_text(json.dumps(stored))


def _shared(training: list[Example], test: list[Example]) -> int:
    """Number of test examples whose text (the first of a pair) is in train or dev."""
    known = {example.text for example in training}
    return sum(example.text in known for example in test)


def _divide(folder: Path, *, source: Path, raw: RawText, data: DataConfig, seed: int) -> None:
    """Write train.jsonl, dev.jsonl and what is known of them, drawn by ``seed`` from all examples.

    Those in ``source`` are all, unless there are more than ``data.max_items``.
    """
    if data.max_items is None:
        held_in = [*read_examples(source / "train.jsonl"), *read_examples(source / "dev.jsonl")]
        train, dev = carved(in_order(held_in), data.dev_fraction, seed)
    else:  # a fraction of what max_items left would be a smaller dev than without a seed
        train, dev = carved(grouped(raw.read("train").examples), data.dev_fraction, seed)
    splits = {"train": limited(train, data.max_items), "dev": limited(dev, data.max_items)}
    _check(splits["train"], splits["dev"], raw, data)
    known = json.loads((source / "splits.json").read_text())
    for split, examples in splits.items():
        write_examples(folder / f"{split}.jsonl", examples)
    digests = [split_digest(examples) for examples in splits.values()]
    content = json.dumps([raw.labels, *digests, known["test_digest"]])
    stored = {
        "fingerprint": hashlib.sha256(content.encode()).hexdigest()[:16],
        "lengths": known["lengths"] | {split: len(drawn) for split, drawn in splits.items()},
    }
    (folder / "splits.json").write_text(json.dumps(stored))


def _test(raw: RawText, data: DataConfig) -> tuple[list[Example], int]:
    read = raw.read("test")
    return limited(grouped(read.examples), data.max_items), read.skipped


def _write_test(folder: Path, *, raw: RawText, data: DataConfig, digest: str) -> None:
    """Write test.jsonl into ``folder``, if the files still hold what they held."""
    test, _ = _test(raw, data)
    if split_digest(test) != digest:
        raise BadData(
            f"the test split of {data.name} in {raw.root} is not the one that this sweep was "
            "started on: its files changed since. Restore them, or start a new sweep on them."
        )
    write_examples(folder / "test.jsonl", test)


def _check(train: list[Example], dev: list[Example], raw: RawText, data: DataConfig) -> None:
    if not dev or not train:
        groups = len({example.group for example in train + dev})
        raise BadData(
            f"{data.name} in {raw.root} has {groups} group(s) of training examples (those that "
            "share a review, premise or prompt, or what they are about: film, promptID, "
            "instruction), but needs at least 2 of one label: one is held out as dev. Add training "
            "examples of other groups."
        )
    missing = [
        label for i, label in enumerate(raw.labels) if i not in {example.label for example in train}
    ]
    if missing:
        raise BadData(
            f"{data.name} in {raw.root} has no training examples of the label "
            f"{', '.join(missing)}; there must be some of each of {', '.join(raw.labels)}. Copy "
            "the data set again, or give data.max_items at least the number of its labels."
        )
