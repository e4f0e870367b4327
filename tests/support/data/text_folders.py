"""Text data sets written by the tests themselves, in the layouts they are published in."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Texts = tuple[str, str | None, int | None]  # first text, second text, label (None: no gold label)

MNLI_LABELS = ("entailment", "neutral", "contradiction")
GLUE_COLUMNS = (
    *("index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse"),
    *("sentence1_parse", "sentence2_parse", "sentence1", "sentence2", "label1", "gold_label"),
)


@dataclass(frozen=True)
class TextLayout:
    """One way in which one data set lies on disk."""

    data_set: str
    folder: str  # its usual name
    train: Sequence[Texts]
    test: Sequence[Texts]
    write_split: Callable[[Path, str, Sequence[Texts]], None]  # root, split, rows
    clusters: dict[str, str] = field(default_factory=dict)  # what else joins texts: text -> name

    def write(self, root: Path) -> Path:
        """Every file, with what else lies in such folders."""
        for split, rows in (("train", self.train), ("test", self.test)):
            self.write_split(root, split, rows)
        (root / ".DS_Store").write_bytes(b"\0")
        (root / "README").write_text("what this is")
        return root


# Characters that some libraries take for line ends or columns, and others that are not ASCII.
_ODD = (
    "caf\u00e9 \u0085 next \u2028 line",
    'he said: "no',
    "a <br /><br /> b",
    "\U0001f600 ok, ok",
)


def _reviews(split: str, count: int) -> list[Texts]:
    rows: list[Texts] = [
        (f"{split} film {i} was {('bad', 'good')[i % 2]}. {_ODD[i % 4]}", None, i % 2)
        for i in range(count)
    ]
    return [*rows, rows[3], rows[3]]  # one review three times


def _pairs(split: str, premises: int) -> list[Texts]:
    rows: list[Texts] = []
    for i in range(premises):
        premise = "yeah" if i in (2, 5) else f"{split} premise {i}: {_ODD[i % 4]}"
        rows += [(premise, f"hypothesis {i} {label}", label) for label in range(3)]
    rows.insert(4, (f"{split} premise 1: {_ODD[1]}", "nobody agreed", None))
    return rows


REVIEWS, REVIEWS_TEST = _reviews("train", 24), _reviews("test", 12)
PAIRS, PAIRS_TEST = _pairs("train", 10), _pairs("test", 5)
# Reviews 0, 4, 8, ... are about one film, 1, 5, 9, ... about another; the others stand alone.
FILMS = {row[0]: f"tt{i % 4:07d}" for i, row in enumerate(REVIEWS) if i % 4 < 2}
FILMS |= {row[0]: f"tt9{i:06d}" for i, row in enumerate(REVIEWS) if i % 4 >= 2}
TEST_FILMS = {row[0]: f"tt8{i:06d}" for i, row in enumerate(REVIEWS_TEST)}


def write_imdb(root: Path, split: str, rows: Sequence[Texts]) -> None:
    for label in ("pos", "neg"):
        (root / split / label).mkdir(parents=True, exist_ok=True)
    for number, (text, _, label) in enumerate(rows):
        rating = (2, 9)[label or 0]
        path = root / split / ("neg", "pos")[label or 0] / f"{number}_{rating}.txt"
        path.write_bytes(text.encode())
    (root / split / "pos" / "._0_9.txt").write_bytes(b"\0")  # as some archives carry
    (root / split / "labeledBow.feat").write_text("9 0:1")
    (root / split / "unsup").mkdir(exist_ok=True)
    (root / split / "unsup" / "0_0.txt").write_text("")


def write_imdb_films(root: Path, split: str, rows: Sequence[Texts]) -> None:
    write_imdb(root, split, rows)
    films = FILMS | TEST_FILMS
    lines = [
        f"http://www.imdb.com/title/{films.get(text, 'tt7777777')}/usercomments"
        for text, *_ in rows
    ]
    for label in ("pos", "neg"):
        (root / split / f"urls_{label}.txt").write_text("\n".join(lines) + "\n")


def _prompts(rows: Sequence[Texts]) -> list[str]:
    """Prompts 2 and 5 have one premise; a prompt is three rows, and more where a row was put in."""
    return [str(700 + int((pair or "").split()[1])) if label is not None else "701"
            for _, pair, label in rows]  # fmt: skip


def write_jsonl(root: Path, split: str, rows: Sequence[Texts]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    name = {"train": "train", "test": "dev_matched"}[split]
    with open(root / f"multinli_1.0_{name}.jsonl", "w", encoding="utf-8") as stream:
        for prompt, (premise, hypothesis, label) in zip(_prompts(rows), rows, strict=True):
            row = {
                "annotator_labels": ["neutral"],
                "genre": "fiction",
                "gold_label": "-" if label is None else MNLI_LABELS[label],
                "pairID": f"{prompt}x",
                "promptID": prompt,
                "sentence1": premise,
                "sentence1_parse": "(ROOT)",
                "sentence2": hypothesis,
            }
            stream.write(json.dumps(row, ensure_ascii=len(hypothesis or "") % 2 == 0) + "\n")
    (root / "multinli_1.0_dev_mismatched.jsonl").write_text("never read")


def write_subset(root: Path, split: str, rows: Sequence[Texts]) -> None:
    """As shared subsets are: without promptID."""
    write_jsonl(root, split, rows)
    for path in root.glob("*d*.jsonl"):
        if "mismatched" not in path.name:
            lines = path.read_text(encoding="utf-8").split("\n")[:-1]
            kept = [{k: v for k, v in json.loads(x).items() if k != "promptID"} for x in lines]
            path.write_text("\n".join(map(json.dumps, kept)), encoding="utf-8")


def write_tsv(root: Path, split: str, rows: Sequence[Texts]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    name = {"train": "train", "test": "dev_matched"}[split]
    extra = ("label2", "label3") if split == "test" else ()  # the two files differ in columns
    columns = (*GLUE_COLUMNS[:-1], *extra, GLUE_COLUMNS[-1])
    with open(root / f"{name}.tsv", "w", encoding="utf-8", newline="\n") as stream:
        stream.write("\t".join(columns) + "\n")
        for i, (prompt, (premise, hypothesis, label)) in enumerate(
            zip(_prompts(rows), rows, strict=True)
        ):
            gold = "-" if label is None else MNLI_LABELS[label]
            row = {"index": str(i), "promptID": prompt, "sentence1": premise, "gold_label": gold}
            row["sentence2"] = hypothesis or ""
            stream.write("\t".join(row.get(column, "x") for column in columns) + "\n")


TEXT_LAYOUTS = {
    "imdb as published": TextLayout(
        "imdb", "aclImdb", REVIEWS, REVIEWS_TEST, write_imdb_films, FILMS
    ),
    "imdb without films": TextLayout("imdb", "aclImdb", REVIEWS, REVIEWS_TEST, write_imdb),
    "mnli as published": TextLayout("mnli", "multinli_1.0", PAIRS, PAIRS_TEST, write_jsonl),
    "mnli without prompts": TextLayout("mnli", "mnli", PAIRS, PAIRS_TEST, write_subset),
    "mnli of GLUE": TextLayout("mnli", "MNLI", PAIRS, PAIRS_TEST, write_tsv),
}
