"""Files of IMDb and MultiNLI: what is read, what is refused, and real copies."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.data.text_folders import FILMS, MNLI_LABELS, TEXT_LAYOUTS, write_imdb_films
from trainables.config.arm import DataConfig
from trainables.datasets.text.examples import TextSplits
from trainables.datasets.text.load import load_text
from trainables.errors import BadData


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test reads anew, into its own folder."""
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def aclimdb(tmp_path: Path) -> Path:
    return TEXT_LAYOUTS["imdb as published"].write(tmp_path / "aclImdb")


def imdb(folder: Path, **changes: object) -> TextSplits:
    return load_text(
        DataConfig(name="imdb", folder=str(folder), **({"dev_fraction": 0.3} | changes))
    )


def mnli(folder: Path, **changes: object) -> TextSplits:
    return load_text(
        DataConfig(name="mnli", folder=str(folder), **({"dev_fraction": 0.3} | changes))
    )


# --- IMDb -----------------------------------------------------------------------------------------


def test_no_film_is_both_trained_on_and_held_out(aclimdb: Path) -> None:
    splits = imdb(aclimdb)
    films = [{FILMS[example.text] for example in split} for split in (splits.train, splits.dev)]
    assert not films[0] & films[1]
    groups = {example.group for example in splits.train + splits.dev}
    assert len(groups) == len(set(FILMS.values()))


def test_the_last_line_of_a_list_of_films_needs_no_line_end(aclimdb: Path) -> None:
    before = imdb(aclimdb).fingerprint
    for path in aclimdb.glob("*/urls_*.txt"):
        path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert imdb(aclimdb).fingerprint == before


def test_without_the_lists_of_films_a_group_is_a_review(aclimdb: Path) -> None:
    for path in aclimdb.glob("*/urls_*.txt"):
        path.unlink()
    splits = imdb(aclimdb)
    examples = splits.train + splits.dev
    assert len({e.group for e in examples}) == len({e.text for e in examples}) < len(examples)


def test_reviews_are_read_as_they_are(aclimdb: Path) -> None:
    path = next((aclimdb / "train" / "pos").glob("1_*.txt"))
    path.write_bytes("A b\r\n\tc\u2028d <br /> \U0001f600 \n".encode())
    assert "A b\r\n\tc\u2028d <br /> \U0001f600 \n" in {e.text for e in imdb(aclimdb).train} | {
        e.text for e in imdb(aclimdb).dev
    }


def rename(name: str) -> Callable[[Path], object]:
    return lambda root: (root / "train" / "pos" / "1_9.txt").rename(root / "train" / "pos" / name)


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes(content)


REVIEWS_REFUSED = {
    "a rating of the other label": (rename("1_3.txt"), "with a rating from 7 to 10"),
    "a neutral rating": (rename("1_5.txt"), "train/pos/1_5.txt: a review in pos/"),
    "another name": (rename("one.txt"), "train/pos/one.txt: .* NUMBER_RATING.txt"),
    "a number twice": (
        write("train/pos/1_8.txt", b"x"),
        "train/pos/1_9.txt: review 1 exists twice, see 1_8.txt",
    ),
    "an empty review": (write("test/neg/0_2.txt", b" \n"), "test/neg/0_2.txt: it is empty"),
    "other bytes": (write("test/neg/0_2.txt", b"caf\xe9"), "neg/0_2.txt: byte 3 is not UTF-8"),
    "null characters": (write("train/pos/1_9.txt", b"a\0b"), "1_9.txt: it holds null characters"),
    "a film without an address": (
        write("train/urls_pos.txt", b"http://www.imdb.com/title/tt1/\nnothing\n"),
        "train/pos/1_9.txt: line 2 of urls_pos.txt names no film",
    ),
    "too few films": (
        write("train/urls_pos.txt", b"http://www.imdb.com/title/tt1/\n"),
        "line 2 of urls_pos.txt names no film .*remove both",
    ),
    "an unreadable list of films": (
        write("test/urls_neg.txt", b"\xff"),
        "test/urls_neg.txt cannot be read: byte 0 is not UTF-8.* remove both",
    ),
    "one list of films": (
        lambda root: (root / "train" / "urls_pos.txt").unlink(),
        "train has urls_neg.txt, but no urls_pos.txt",
    ),
    "a folder for a review": (
        lambda root: (root / "train" / "pos" / "99_9.txt").mkdir(),
        "99_9.txt is named like a file .* but is not a regular file",
    ),
    "a dead link": (
        lambda root: (root / "train" / "pos" / "99_9.txt").symlink_to("nowhere"),
        "99_9.txt cannot be opened",
    ),
}


@pytest.mark.parametrize("damage", REVIEWS_REFUSED)
def test_damaged_reviews_are_named(aclimdb: Path, damage: str) -> None:
    change, message = REVIEWS_REFUSED[damage]
    change(aclimdb)
    with pytest.raises(BadData, match=message):
        imdb(aclimdb)


def test_all_damaged_reviews_are_named_in_one_message(aclimdb: Path) -> None:
    paths = sorted((aclimdb / "train" / "neg").glob("[0-9]*.txt"))
    for path in paths[:8]:
        path.write_bytes(b"\xff")
    with pytest.raises(BadData) as caught:
        imdb(aclimdb)
    named = [path for path in paths if str(path) in str(caught.value)]
    assert len(named) == 5
    assert "; and 3 more. Extract the original archive again" in str(caught.value)


def test_all_missing_folders_are_named_in_one_message(aclimdb: Path) -> None:
    for name in ("train/neg", "test/pos"):
        (aclimdb / name).rename(aclimdb / name.replace("/", " "))
    with pytest.raises(BadData, match=r"has no folder train/neg, test/pos\. Give a folder"):
        imdb(aclimdb)


# --- MultiNLI -------------------------------------------------------------------------------------


@pytest.fixture(params=["mnli as published", "mnli of GLUE"])
def multinli(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return TEXT_LAYOUTS[request.param].write(tmp_path / "data")


def training_file(root: Path) -> Path:
    return next(path for path in root.iterdir() if path.name.endswith(("train.jsonl", "train.tsv")))


def change_line(root: Path, number: int, change: Callable[[str], str]) -> None:
    path = training_file(root)
    lines = path.read_text(encoding="utf-8").split("\n")
    lines[number - 1] = change(lines[number - 1])
    path.write_text("\n".join(lines), encoding="utf-8")


def test_prompts_join_premises_that_differ(tmp_path: Path) -> None:
    """A prompt's premise may be spelled differently from row to row; it stays on one side."""
    root = TEXT_LAYOUTS["mnli as published"].write(tmp_path / "data")
    before = {e.group for e in mnli(root).train + mnli(root).dev}
    path = training_file(root)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    for i, row in enumerate(rows):
        row["sentence1"] += " " * (i % 3)
    path.write_text("\n".join(map(json.dumps, rows)))
    splits = mnli(root)
    assert len({e.group for e in splits.train + splits.dev}) == len(before)
    stripped = [{e.text.strip() for e in split} for split in (splits.train, splits.dev)]
    assert not stripped[0] & stripped[1]


def test_line_ends_of_other_systems_and_a_byte_order_mark_change_nothing(multinli: Path) -> None:
    before = mnli(multinli).fingerprint
    path = training_file(multinli)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert mnli(multinli).fingerprint == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: line.replace("neutral", "nutral"), "must be one of entailment, neutral"),
        (lambda line: line[: len(line) // 2], "line 7: it"),
        (lambda line: line.replace("hypothesis", "hypo\0thesis"), "line 7: it"),
        (lambda line: "<html>404</html>", "line 7: it"),
        (lambda line: "[1, 2]", "line 7: it"),
        (lambda line: '{"a":' * 100_000, "line 7: it"),
    ],
)
def test_damaged_rows_are_named(multinli: Path, change: Callable[[str], str], message: str) -> None:
    for number in range(4, 8):  # some of them are neutral
        change_line(multinli, number, change)
    with pytest.raises(BadData, match=message) as caught:
        mnli(multinli)
    assert str(training_file(multinli)) in str(caught.value)
    assert str(caught.value).endswith("Extract the original archive again.")


def test_a_row_of_bytes_is_named(multinli: Path) -> None:
    path = training_file(multinli)
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"hypothesis", b"hypothesis \xff")
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(BadData, match=r"line 3: byte \d+ is not UTF-8"):
        mnli(multinli)


def test_missing_columns_are_named(multinli: Path) -> None:
    path = training_file(multinli)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("sentence2", "sentence_2").replace("gold_label", "label"))
    with pytest.raises(BadData, match="sentence2, gold_label"):
        mnli(multinli)


def test_halves_of_surrogates_are_named(tmp_path: Path) -> None:
    root = TEXT_LAYOUTS["mnli as published"].write(tmp_path / "data")
    change_line(root, 2, lambda line: line.replace("hypothesis", r"hypo\ud800thesis"))
    with pytest.raises(BadData, match="line 2: character 4 is half of a surrogate pair"):
        mnli(root)


def test_an_empty_file_is_named(multinli: Path) -> None:
    training_file(multinli).write_bytes(b"")
    with pytest.raises(BadData, match=r"train\.\w+: it has no labelled pair of sentences"):
        mnli(multinli)


def test_a_missing_file_is_named(multinli: Path) -> None:
    training_file(multinli).unlink()
    with pytest.raises(BadData, match=r"has \S*dev_matched\.\w+, but no \S*train\.\w+\. Give a"):
        mnli(multinli)


def test_both_layouts_in_one_folder_are_refused(tmp_path: Path) -> None:
    for name in ("mnli as published", "mnli of GLUE"):
        TEXT_LAYOUTS[name].write(tmp_path / "data")
    with pytest.raises(BadData, match=r"more than once: .*train\.jsonl and .*train\.tsv\. They"):
        mnli(tmp_path / "data")


# --- real copies ----------------------------------------------------------------------------------


def naive_dev_share(splits: TextSplits) -> float:
    return len(splits.dev) / (len(splits.dev) + len(splits.train))


def test_the_real_reviews_are_read_as_the_shell_reads_them(real_data: Path) -> None:
    splits = imdb(real_data, dev_fraction=0.1)
    assert splits.lengths == {"train": 2700, "dev": 300, "test": 1500}
    assert Counter(e.label for e in splits.dev) == {0: 150, 1: 150}
    files = sorted((real_data / "aclImdb" / "test").glob("*/*.txt"))
    expected = Counter((path.read_bytes().decode(), path.parent.name) for path in files)
    assert Counter((e.text, splits.labels[e.label]) for e in splits.test) == expected


def test_the_real_pairs_are_read_as_pandas_reads_them(real_data: Path) -> None:
    pandas = pytest.importorskip("pandas")
    splits = mnli(real_data, dev_fraction=0.1)
    path = real_data / "mnli" / "multinli_1.0_train.jsonl"
    frame = pandas.read_json(path, lines=True, dtype=False)
    columns = zip(frame["sentence1"], frame["sentence2"], frame["gold_label"], strict=True)
    found = Counter((e.text, e.pair, MNLI_LABELS[e.label]) for e in splits.train + splits.dev)
    assert found == Counter(columns)
    assert splits.lengths["test"] == 2400
    assert splits.skipped == {"train": 0, "test": 0}
    assert 0.1 <= naive_dev_share(splits) < 0.11
    assert not {e.text for e in splits.train} & {e.text for e in splits.dev}


def test_few_real_items_have_every_label_equally_often(real_data: Path) -> None:
    for splits in (imdb(real_data, max_items=60), mnli(real_data, max_items=60)):
        for split in ("train", "dev", "test"):
            counts = Counter(e.label for e in splits.split(split))
            assert set(counts.values()) == {60 // len(splits.labels)}


def test_a_message_shows_no_sentence_of_the_data(multinli: Path) -> None:
    """Texts may be private, and a log is read by many."""
    change_line(multinli, 3, lambda line: line.replace("contradiction", "Zanzibar was secret"))
    change_line(multinli, 4, lambda line: line.replace("contradiction", "Zanzibar was secret"))
    with pytest.raises(BadData) as caught:
        mnli(multinli)
    assert not re.search("premise \\d", str(caught.value))


def test_reviews_without_films_beside_tests_with_them_are_read(tmp_path: Path) -> None:
    layout = TEXT_LAYOUTS["imdb without films"]
    root = layout.write(tmp_path / "data")
    write_imdb_films(root, "test", layout.test)
    splits = imdb(root)
    assert len({e.group for e in splits.test}) <= len({e.text for e in splits.test})
