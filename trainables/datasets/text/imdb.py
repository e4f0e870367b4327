"""IMDb Large Movie Review Dataset from its original files (aclImdb/train/pos/...).

A group is a review: the same text twice is one review. Where a split's urls_pos.txt and
urls_neg.txt are there, as in the archive, a group is a film: the original test split shares no film
with train, and dev then neither.

Source: Maas et al., Learning Word Vectors for Sentiment Analysis, ACL 2011; the archive's README.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Literal

from trainables.config.arm import DataConfig
from trainables.datasets.given_folder import given_folder, listing, other_layout
from trainables.datasets.text.examples import RawExample, RawSplit, RawText, unread
from trainables.datasets.text.files import Damage, Damaged, whole_text
from trainables.errors import BadData
from trainables.registry import DataSetSpec

FOLDERS = ("aclImdb",)
LABELS = ("neg", "pos")
RATINGS = {"neg": range(1, 5), "pos": range(7, 11)}  # stars; neutral reviews were left out
_NAME = re.compile(r"([0-9]+)_([0-9]+)\.txt")
_FILM = re.compile(r"/title/(tt[0-9]+)")
_EXPECTED = (
    "Give a folder that is or contains aclImdb, with train/pos/0_9.txt, train/neg/, test/pos/ and "
    "test/neg/ as published (aclImdb_v1.tar.gz, https://ai.stanford.edu/~amaas/data/sentiment)."
)
_COPY = "Extract the original archive again, or give another folder."


def list_text(data: DataConfig) -> RawText:
    """Find the reviews in ``data.folder``. BadData for every way a folder can be wrong."""
    root = _root(data)
    reviews = {split: _reviews(root, split) for split in ("train", "test")}
    urls = {split: _urls(root / split) for split in ("train", "test")}
    files = [path for split in reviews.values() for path, *_ in split]
    return RawText(
        labels=LABELS,
        read=partial(_read, reviews, urls),
        listing=listing(root, files + urls["train"] + urls["test"]),
        root=str(root),
        notes=unread(sorted(path.name for path in root.iterdir() if path.is_dir())),
    )


DATA_SET = DataSetSpec(list=list_text, folders=FOLDERS)


Reviews = list[tuple[Path, int, int]]  # file, number, label


def _root(data: DataConfig) -> Path:
    given = given_folder(data, _EXPECTED)
    places = [p for p in (given, *(given / name for name in FOLDERS)) if (p / "train").is_dir()]
    places = [p for p in places if any((p / "train" / label).is_dir() for label in LABELS)]
    if not places:
        raise other_layout(data, given, _EXPECTED)
    if len(places) > 1:
        raise BadData(
            f"data.folder {given} holds {data.name} more than once: {places[0]} and {places[1]}. "
            "They may differ in their reviews. Give the one you mean as data.folder."
        )
    wanted = [f"{split}/{label}" for split in ("train", "test") for label in LABELS]
    missing = [name for name in wanted if not (places[0] / name).is_dir()]
    if missing:
        raise BadData(f"{places[0]} has no folder {', '.join(missing)}. {_EXPECTED}")
    return places[0]


def _reviews(root: Path, split: str) -> Reviews:
    """The files of a split in the order of their labels and numbers."""
    reviews: Reviews = []
    damage = Damage()
    for label, name in enumerate(LABELS):
        folder = root / split / name
        numbers: dict[int, Path] = {}
        for path in sorted(folder.iterdir()):
            if path.name[0] == "." or path.suffix != ".txt":
                continue
            match = _NAME.fullmatch(path.name)
            stars = f"{RATINGS[name][0]} to {RATINGS[name][-1]}"
            if match is None or int(match[2]) not in RATINGS[name]:
                damage.add(
                    path,
                    f"a review in {name}/ is called NUMBER_RATING.txt, with a rating from {stars}",
                )
                continue
            number = int(match[1])
            if number in numbers:
                damage.add(path, f"review {number} exists twice, see {numbers[number].name}")
            numbers[number] = path
        if not numbers:
            damage.add(folder, "it holds no reviews (0_9.txt)")
        reviews += [(path, number, label) for number, path in sorted(numbers.items())]
    damage.refuse(f"the {split} reviews in {root}", _COPY)
    return reviews


def _urls(folder: Path) -> list[Path]:
    """The lists of films behind a split's reviews: those of all labels, or none."""
    files = [folder / f"urls_{label}.txt" for label in LABELS]
    there = [path for path in files if path.exists() or path.is_symlink()]
    if len(there) == 1:
        missing = next(path.name for path in files if path not in there)
        raise BadData(
            f"{folder} has {there[0].name}, but no {missing}. Films are known for both "
            "labels or for none. Copy it again, or remove the other: groups are then reviews."
        )
    return there


def _read(
    reviews: dict[str, Reviews], urls: dict[str, list[Path]], split: Literal["train", "test"]
) -> RawSplit:
    films = [_films(path) for path in urls[split]]
    damage, examples = Damage(), []
    for path, number, label in reviews[split]:
        try:
            keys = (_film(films[label], urls[split][label], number),) if films else ()
            examples.append(RawExample(whole_text(path), None, label, keys))
        except Damaged as error:
            damage.add(path, error)
    damage.refuse(f"{split} reviews", _COPY)
    return RawSplit(examples)


def _films(path: Path) -> list[str]:
    """Line i, from 0: the address of the film that review i is about."""
    try:
        return whole_text(path).split("\n")
    except Damaged as error:
        raise BadData(
            f"{path} cannot be read: {error}. It must hold one address of a film per line. Copy it "
            "again, or remove both urls_*.txt: groups are then reviews."
        ) from error


def _film(addresses: list[str], path: Path, number: int) -> str:
    match = _FILM.search(addresses[number]) if number < len(addresses) else None
    if match is None:
        raise Damaged(
            f"line {number + 1} of {path.name} names no film (copy it again, or remove both "
            "urls_*.txt: groups are then reviews)"
        )
    return f"film {match[1]}"
