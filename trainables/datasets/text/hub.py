"""Data sets of the library `datasets`, from disk: tables, and classification.

The one place that knows that library, which is optional. ``hf:NAME`` or ``hf:NAME:CONFIGURATION``
is read from ``data.folder`` (written by ``save_to_disk``, a copy of its repository, or tables such
as train.csv and test.csv), else from the Hub's cache. Nothing is downloaded.

The test split is the one called so, unless its labels are hidden (-1), as in GLUE: then, and where
there is none, a validation split. Dev is always carved from train.
"""

from __future__ import annotations

import csv
import importlib
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import snapshot_download

from trainables.config.arm import DataConfig
from trainables.datasets.given_folder import given_folder, listing
from trainables.datasets.text.examples import RawExample, RawSplit, RawText, unread
from trainables.datasets.text.files import Damage, Damaged, require_whole
from trainables.errors import BadData, list_first
from trainables.fetching.stand_ins import first_stand_in, stand_in
from trainables.registry import DataSetSpec

PAIRS = (  # columns of two texts, the one that groups first
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text1", "text2"),
)
SINGLE = ("text", "sentence", "review", "content")
MEND = "Correct these rows (the first below a header is 1), or leave them out, in your own files"
_OLDEST = 4  # earlier versions may run a script that lies beside the data
TABLES = (".arrow", ".parquet", ".csv", ".tsv", ".json", ".jsonl")  # files that may hold rows
READERS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
_LAYOUT = (
    "It must be a folder written by save_to_disk (a DatasetDict with train and test), a copy of "
    "the data set's repository, or tables of its splits, such as train.csv and test.csv"
)
_SHOWN_NAME = 40  # characters of a column's name: without a header it is a text
_SHOWN = 600  # characters of the library's own message: it lists configurations, for example
TESTS = ("test", "validation_matched", "validation")  # the first one whose labels are known

Table = Any  # a datasets.Dataset


class Unopened(BadData):
    """The library cannot open the tables, for a reason of its own."""


@dataclass(frozen=True)
class Tables:
    """A data set of the library as it lies on disk, by split."""

    splits: dict[str, Table]
    root: Path
    listing: tuple[tuple[str, int, int], ...]  # as of RawText
    reader: str  # name and version of the library


def list_text(data: DataConfig) -> RawText:
    """Find the files of the data set and open its tables; texts are read later.

    Raises BadData where the library or the data are not there, or are of another kind.
    """
    try:
        tables = opened_tables(data)
    except Unopened:
        if data.folder is not None:
            _check_headers(data)  # the library names no file
        raise
    splits, root = tables.splits, tables.root
    train = _required(splits.get("train"), "train", splits, data, root)
    columns, labels = _columns(train, data, root), _labels(train, data, root)
    test = _required(_test(splits), "test", splits, data, root)
    return RawText(
        labels=labels,
        read=partial(_read, {"train": train, "test": test}, columns, labels, str(root)),
        listing=tables.listing,
        root=str(root),
        reader=tables.reader,
        notes=unread(name for name, table in splits.items() if table is not test),
    )


DATA_SET = DataSetSpec(list=list_text)


def opened_tables(data: DataConfig) -> Tables:
    """The tables of the data set that ``data`` names; their rows are read later.

    Raises BadData where the library or the data are not there, or cannot be opened.
    """
    library = _library(data)
    name, _, configuration = data.name.removeprefix("hf:").partition(":")
    root = _root(data, name, configuration)
    files = sorted(path for path in root.rglob("*") if not path.is_dir() and path.name[0] != ".")
    seen = listing(root, files)
    sizes = [(root / path, size) for path, size, _ in seen if Path(path).suffix in TABLES]
    if (wrong := first_stand_in(sizes)) is not None:
        raise BadData(f"{wrong[0]} {wrong[1]}")
    splits = _opened(library, root, configuration, data)
    return Tables(splits, root, seen, f"datasets {library.__version__}")


def _library(data: DataConfig) -> Any:
    """The library; BadData where it is not installed, or so old that it runs the data's code."""
    state = "not installed"
    try:
        library = importlib.import_module("datasets")
        state = f"version {library.__version__}"
        if int(library.__version__.partition(".")[0]) >= _OLDEST:
            return library
    except ImportError:
        pass
    raise BadData(
        f"data set {data.name} needs the Python package `datasets`, version {_OLDEST} or newer; it "
        f"is {state}. Install it: pip install 'descent-sweep[hub]'. Without it imdb, mnli and "
        "alpaca are read, from their original files."
    )


def _root(data: DataConfig, name: str, configuration: str) -> Path:
    wanted = f"'{name}', '{configuration}'" if configuration else f"'{name}'"
    fetch = (
        f'On a machine with a network: python -c "import datasets; datasets.load_dataset({wanted})'
        ".save_to_disk('DIR')\"; copy DIR here and give it as data.folder."
    )
    if data.folder is not None:
        return given_folder(data, f"{_LAYOUT}.")
    try:
        return Path(snapshot_download(name, repo_type="dataset", local_files_only=True))
    except (OSError, ValueError, RuntimeError) as error:
        raise BadData(
            f"data set {data.name} is neither given as data.folder nor in the Hub's cache on this "
            f"machine. {fetch}"
        ) from error


def _opened(library: Any, root: Path, configuration: str, data: DataConfig) -> dict[str, Table]:
    """The tables of a data set by split."""
    showed_bars = not library.are_progress_bars_disabled()
    library.disable_progress_bars()
    try:
        if (root / "dataset_dict.json").exists():
            return dict(library.load_from_disk(str(root)))
        if (root / "state.json").exists() and (root / "dataset_info.json").exists():
            return {"train": library.load_from_disk(str(root))}  # one split, saved by itself
        if not configuration and (own := _tables_by_split(root)):
            reader, files = own
            return dict(library.load_dataset(reader, data_files=files))
        return dict(library.load_dataset(str(root), configuration or None))
    # the library's own errors are many, and pyarrow's and fsspec's come through
    except Exception as error:
        for path in sorted(path for path in root.rglob("*") if path.suffix in TABLES):
            if (problem := stand_in(path)) is not None:
                raise BadData(f"{path} {problem}") from error
        words = " ".join(str(error).split()) or type(error).__name__
        reason = textwrap.shorten(words, _SHOWN, placeholder=" ...").rstrip(".")
        raise Unopened(
            f"{data.name} in {root} cannot be opened: {reason}. {_LAYOUT}; a configuration is "
            "given as hf:NAME:CONFIGURATION. Where its files are damaged: Copy it again."
        ) from error
    finally:
        if showed_bars:
            library.enable_progress_bars()


def _tables_by_split(root: Path) -> tuple[str, dict[str, str]] | None:
    """The reader and the files of tables that are called by their split; None where there are none.

    The library would also take a word in the path of the folder for the name of a split.
    """
    for suffix, reader in READERS.items():
        names = ("train", *TESTS)
        files = {name: str(root / f"{name}{suffix}") for name in names}
        files = {name: file for name, file in files.items() if Path(file).is_file()}
        if "train" in files:
            return reader, files
    return None


def _required(
    table: Table | None, split: str, splits: dict[str, Table], data: DataConfig, root: Path
) -> Table:
    if table is None:
        wanted = "called train" if split == "train" else f"called one of {', '.join(TESTS)}"
        raise BadData(
            f"{data.name} in {root} has splits {', '.join(splits) or 'none'}, but no labelled "
            f"{split} split, {wanted}. Add it, or give another data set. {_LAYOUT}."
        )
    return table


def _test(splits: dict[str, Table]) -> Table | None:
    """The first of the usual splits that has labels: hidden ones are -1 or missing."""
    for table in (splits[name] for name in TESTS if name in splits):
        if "label" in table.column_names and set(table.unique("label")) - {None, -1}:
            return table
    return None


def _check_headers(data: DataConfig) -> None:
    """BadData where the first line of a CSV of a split does not name the columns."""
    reader, files = _tables_by_split(given_folder(data, f"{_LAYOUT}.")) or ("", {})
    for file in files.values() if reader == "csv" else ():
        try:
            with open(file, encoding="utf-8-sig", newline="") as stream:
                first = next(filter(None, csv.reader(stream)), [])
        except (OSError, UnicodeDecodeError, csv.Error):
            return  # the library says what is wrong
        _text_columns(first, file)


def _columns(table: Table, data: DataConfig, root: Path) -> tuple[str, ...]:
    """The columns of the text or of the two texts."""
    return _text_columns(table.column_names, f"{data.name} in {root}")


def _text_columns(have: Sequence[str], what: str) -> tuple[str, ...]:
    """The column of the text, or those of the two texts; BadData without them."""
    choices: list[tuple[str, ...]] = [pair for pair in PAIRS if set(pair) <= set(have)]
    choices = choices or [(name,) for name in SINGLE if name in have]
    if choices and "label" in have:
        return choices[0]
    pairs = ", ".join(f"{a} and {b}" for a, b in PAIRS)
    shown = list_first((textwrap.shorten(n, _SHOWN_NAME, placeholder=" ...") for n in have), 12)
    by_comma = ", separated by commas," * any(re.search(r"\w[;\t|]\w", name) for name in have)
    lacks = " and ".join(["label"] * ("label" not in have) + ["a text"] * (not choices))
    raise BadData(
        f"{what} has columns {shown or 'none'}, so {lacks} is missing. Known are label with one of "
        f"{', '.join(SINGLE)}, or with two: {pairs}. The first line of a CSV must name "
        f"them{by_comma}; of other tables, rename the columns and save them again."
    )


def _labels(table: Table, data: DataConfig, root: Path) -> tuple[str, ...]:
    feature = table.features["label"]
    if names := getattr(feature, "names", None):
        return tuple(names)
    values = {value for value in table.unique("label") if value is not None}
    if values and all(isinstance(value, str) for value in values):
        return tuple(sorted(values))
    if values and all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return tuple(str(value) for value in sorted(value for value in values if value >= 0))
    raise BadData(
        f"the labels of {data.name} in {root} are {feature}. They must be classes: a ClassLabel, "
        "whole numbers from 0, or words. Change the column (class_encode_column) and save it again."
    )


def _read(
    tables: dict[str, Table],
    columns: tuple[str, ...],
    labels: tuple[str, ...],
    root: str,
    split: Literal["train", "test"],
) -> RawSplit:
    table = tables[split]
    damage, examples, skipped = Damage(), [], 0
    has_prompts = len(columns) == 2 and "promptID" in table.column_names
    for number, row in enumerate(rows_of(table, root)):
        try:
            label = _label(row["label"], table, labels)
            texts = [require_whole(_text(row.get(column), column)) for column in columns]
        except Damaged as error:
            damage.add(f"row {number + 1}", error)
            continue
        if label is None:
            skipped += 1
            continue
        keys = (f"prompt {row['promptID']}",) if has_prompts and row["promptID"] is not None else ()
        examples.append(RawExample(texts[0], texts[1] if len(texts) > 1 else None, label, keys))
    damage.refuse(f"the {split} split in {root}", f"{MEND}. Copy it again where it is not yours.")
    return RawSplit(examples, skipped)


def rows_of(table: Table, root: str) -> Iterator[dict[str, Any]]:
    """The rows of a table, by column. BadData where it is damaged."""
    try:
        yield from table
    except Exception as error:  # as in _opened: a damaged table fails in many ways
        raise BadData(f"{root} cannot be read: {error}. Copy it again.") from error


def _text(value: object, column: str) -> str:
    if not isinstance(value, str):
        raise Damaged(f"its {column} is no text" + (", but empty" if value is None else ""))
    return value


def _label(value: object, table: Table, labels: Sequence[str]) -> int | None:
    """The label's index; None for a row without a label."""
    if value is None or value == -1:
        return None
    if getattr(table.features["label"], "names", None):
        if isinstance(value, int) and 0 <= value < len(labels):
            return value
    elif str(value) in labels:
        return labels.index(str(value))
    raise Damaged(f"its label {value!r} is none of the training labels, {', '.join(labels)}")
