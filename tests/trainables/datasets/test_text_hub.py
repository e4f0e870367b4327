"""Data sets of the library `datasets`: saved, copied or in the Hub's cache; skipped without it."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search_spaces import catalog
from sweep.results.sweep_view import load_sweep
from tests.support.command_line import refused, sweep
from tests.support.data.text_folders import (
    MNLI_LABELS,
    PAIRS,
    PAIRS_TEST,
    REVIEWS,
    REVIEWS_TEST,
    TEXT_LAYOUTS,
)
from tests.support.data.text_runs import TINY, checkpoint_in
from trainables.config.arm import DataConfig
from trainables.datasets.text.load import load_text, remarks, resolve
from trainables.errors import BadData
from trainables.records.objects import ObjectStore

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test reads anew, into its own folder."""
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    library = pytest.importorskip("datasets", minversion="4")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "hub" / "datasets")
    return library


def reviews(library: Any, **splits: list[Any]) -> Any:
    features = library.Features(
        {"text": library.Value("string"), "label": library.ClassLabel(names=["neg", "pos"])}
    )
    splits = {"train": REVIEWS, "test": REVIEWS_TEST} | splits
    return library.DatasetDict(
        {
            name: library.Dataset.from_dict(
                {"text": [r[0] for r in rows], "label": [r[2] for r in rows]}, features=features
            )
            for name, rows in splits.items()
        }
    )


def pairs(library: Any, test_name: str = "validation_matched") -> Any:
    features = library.Features(
        {
            "premise": library.Value("string"),
            "hypothesis": library.Value("string"),
            "label": library.ClassLabel(names=list(MNLI_LABELS)),
        }
    )
    splits = {"train": PAIRS, test_name: PAIRS_TEST}
    return library.DatasetDict(
        {
            name: library.Dataset.from_dict(
                {
                    "premise": [r[0] for r in rows],
                    "hypothesis": [r[1] for r in rows],
                    "label": [-1 if r[2] is None else r[2] for r in rows],
                },
                features=features,
            )
            for name, rows in splits.items()
        }
    )


def hub(folder: Path | None, name: str = "hf:anything") -> DataConfig:
    return DataConfig(name=name, folder=None if folder is None else str(folder), dev_fraction=0.3)


def saved(data_set: Any, folder: Path) -> Path:
    data_set.save_to_disk(str(folder))
    return folder


def test_saved_data_sets_are_those_of_the_original_files(library: Any, tmp_path: Path) -> None:
    """Texts, labels, groups and splits: one fingerprint, whoever stored them."""
    for kind, made in (("imdb without films", reviews), ("mnli as published", pairs)):
        layout = TEXT_LAYOUTS[kind]
        root = layout.write(tmp_path / kind)
        original = load_text(DataConfig(name=layout.data_set, folder=str(root), dev_fraction=0.3))
        copy = load_text(hub(saved(made(library), tmp_path / f"{kind} saved")))
        assert copy.fingerprint == original.fingerprint
        assert (copy.train, copy.dev, copy.test) == (original.train, original.dev, original.test)
        assert (copy.labels, copy.skipped) == (original.labels, original.skipped)


def test_a_copy_of_a_repository_is_read(library: Any, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    root.mkdir()
    made = reviews(library)
    for split in ("train", "test"):
        made[split].to_parquet(str(root / f"{split}.parquet"))
    copied = resolve(hub(root))
    assert copied.fingerprint == resolve(hub(saved(made, tmp_path / "saved"))).fingerprint


WATCHED_RUN = """
import sys
seen = []
sys.addaudithook(lambda event, args: event == "socket.connect" and seen.append(args))
from trainables.config.arm import DataConfig
from trainables.datasets.text.load import load_text, remarks
print(load_text(DataConfig.from_json({data!r})).fingerprint, seen)
"""


@pytest.mark.slow
def test_the_hubs_cache_is_read_without_a_network(
    library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "hub" / "hub" / "datasets--some--reviews"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    made = reviews(library)
    for split in ("train", "test"):
        made[split].to_parquet(str(snapshot / f"{split}.parquet"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    code = WATCHED_RUN.format(data=hub(None, "hf:some/reviews").to_json())
    ran = subprocess.run(
        (sys.executable, "-c", code), cwd=REPOSITORY, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    saved_as = resolve(hub(saved(made, tmp_path / "saved"))).fingerprint
    assert ran.stdout.split() == [saved_as, "[]"]
    assert ran.stderr == ""  # no bars, no warnings


def test_hidden_test_labels_give_way_to_a_validation_split(library: Any, tmp_path: Path) -> None:
    hidden = [(text, None, -1) for text, *_ in REVIEWS_TEST]
    made = reviews(library, test=hidden, validation=REVIEWS_TEST)
    splits = load_text(hub(saved(made, tmp_path / "saved")))
    assert Counter(e.text for e in splits.test) == Counter(row[0] for row in REVIEWS_TEST)
    assert splits.skipped == {"train": 0, "test": 0}
    assert remarks(hub(tmp_path / "saved"), "texts") == ()
    both = saved(reviews(library, validation=REVIEWS_TEST), tmp_path / "both")
    assert [said.partition(":")[0] for said in remarks(hub(both), "texts")] == ["validation"]


def test_labels_may_be_words_or_numbers(library: Any, tmp_path: Path) -> None:
    words = [{"sentence": f"sentence {i}", "label": ("no", "yes")[i % 2]} for i in range(8)]
    numbers = [{"sentence": f"sentence {i}", "label": i % 2} for i in range(8)]
    for name, rows in (("words", words), ("numbers", numbers)):
        table = library.Dataset.from_list(rows)
        made = library.DatasetDict({"train": table, "validation": table})
        splits = load_text(hub(saved(made, tmp_path / name)))
        assert splits.labels == (("no", "yes") if name == "words" else ("0", "1"))
        assert {(e.text, e.label) for e in splits.test} == {
            (row["sentence"], i % 2) for i, row in enumerate(words)
        }


@pytest.mark.parametrize("labels", [["spam"], [0], [-1], [3]])
def test_one_label_is_nothing_to_classify(library: Any, tmp_path: Path, labels: list[Any]) -> None:
    rows = [{"text": f"a text {i}", "label": labels[i % len(labels)]} for i in range(8)]
    made = library.Dataset.from_list(rows)
    tested = library.Dataset.from_list([{**row, "label": 0} for row in rows])
    if labels == ["spam"]:
        tested = made
    library.DatasetDict(train=made, test=tested).save_to_disk(tmp_path / "saved")
    with pytest.raises(BadData, match="but classification needs at least 2: with one there is"):
        load_text(DataConfig(name="hf:one", folder=str(tmp_path / "saved")))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"words": "a", "label": 0}], "has columns words, label, so a text is missing. Known"),
        ([{"text": "a", "stars": 0}], "has columns text, stars, so label is missing. Known are"),
        ([{"text": "a", "label": 0.5}], "They must be classes: a ClassLabel"),
        ([{"text": None, "label": 0}, {"text": "b", "label": 1}], "row 1: its text is no text"),
        ([{"text": "a\0", "label": 0}, {"text": "b", "label": 1}], "row 1: it holds null"),
    ],
)
def test_tables_of_another_kind_are_told(
    library: Any, tmp_path: Path, rows: list[dict[str, object]], message: str
) -> None:
    table = library.Dataset.from_list(rows)
    with pytest.raises(BadData) as caught:
        load_text(hub(saved(library.DatasetDict(train=table, test=table), tmp_path / "saved")))
    assert message in str(caught.value)


def test_missing_splits_are_told(library: Any, tmp_path: Path) -> None:
    made = reviews(library)
    del made["test"]
    with pytest.raises(BadData, match=r"has splits train, but no labelled test split"):
        load_text(hub(saved(made, tmp_path / "no test")))
    made = reviews(library)
    del made["train"]
    with pytest.raises(BadData, match=r"has splits test, but no labelled train split"):
        load_text(hub(saved(made, tmp_path / "no train")))


def test_one_split_saved_by_itself_is_told_what_is_missing(library: Any, tmp_path: Path) -> None:
    made = reviews(library)
    with pytest.raises(BadData) as caught:
        load_text(hub(saved(made["train"], tmp_path / "one")))
    said = str(caught.value)
    assert "has splits train, but no labelled test split" in said
    assert "DatasetDict with train and test" in said
    assert "load_from_disk" not in said


def test_the_librarys_message_is_told_to_its_end(library: Any, tmp_path: Path) -> None:
    """That names the configurations in a second line."""
    for name in ("alpha", "beta"):
        (tmp_path / name).mkdir()
        for split in ("train", "test"):
            reviews(library)[split].to_parquet(str(tmp_path / name / f"{split}.parquet"))
    configs = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: train\n    path: {name}/train.parquet\n"
        f"  - split: test\n    path: {name}/test.parquet\n"
        for name in ("alpha", "beta")
    )
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    with pytest.raises(BadData, match=r"'alpha', 'beta'.*hf:NAME:CONFIGURATION"):
        load_text(hub(tmp_path))
    assert load_text(hub(tmp_path, "hf:x:beta")).lengths["test"] == len(REVIEWS_TEST)


def test_csv_files_of_ones_own_are_read(library: Any, tmp_path: Path) -> None:
    rows = {"train": REVIEWS, "test": REVIEWS_TEST}
    for split, those in rows.items():
        table = library.Dataset.from_dict(
            {"text": [r[0] for r in those], "label": [("neg", "pos")[r[2]] for r in those]}
        )
        table.to_csv(str(tmp_path / f"{split}.csv"), index=False)
    own = load_text(hub(tmp_path))
    assert own.labels == ("neg", "pos")
    assert own.lengths["test"] == len(REVIEWS_TEST)
    with open(tmp_path / "train.csv", "a") as file:
        file.write(",pos\n")
    with pytest.raises(
        BadData, match=rf"row {len(REVIEWS) + 1}: its text is no text, but empty\. Corr"
    ):
        load_text(hub(tmp_path))


def test_other_columns_of_a_csv_are_told_with_how_to_call_them(
    library: Any, tmp_path: Path
) -> None:
    (tmp_path / "IMDB Dataset.csv").write_text("review,sentiment\nGood.,positive\nBad.,negative\n")
    with pytest.raises(BadData, match=r"review, sentiment, so label is.* first line of a CSV"):
        load_text(hub(tmp_path))


# The library leaves the file that it refuses open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("text,sentiment", r"test\.csv has columns text, sentiment, so label is missing"),
        ("Awful from start to end and far too long for what it is,pos", r"has columns Awful from"),
        ("text;label", r"columns text;label, so label and a text .*separated by commas,"),
        ("\n\nwords", r"has columns words, so label and a text is missing"),
    ],
)
def test_a_wrong_header_of_one_file_is_told_of_that_file(
    library: Any, tmp_path: Path, names: str, said: str
) -> None:
    (tmp_path / "train.csv").write_text("text,label\nGood.,pos\nBad.,neg\n")
    (tmp_path / "test.csv").write_text(f"{names}\nGood.,pos\nBad.,neg\n")
    try:
        load_text(hub(tmp_path))
        refusal = ""
    except BadData as error:
        refusal = str(error)
    gc.collect()
    assert re.search(said, refusal), refusal
    assert "The first line of a CSV must name them" in refusal
    assert "for what it is" not in refusal  # a text that takes the header's place is cut


def test_labels_of_test_may_be_hidden_and_lines_before_a_header_blank(
    library: Any, tmp_path: Path
) -> None:
    rows = "text,label\n" + "".join(f"text {n},{'xy'[n % 2]}\n" for n in range(12))
    (tmp_path / "train.csv").write_text(rows)
    (tmp_path / "validation.csv").write_text("\n" + rows)
    (tmp_path / "test.csv").write_text("text,label\nunknown,\n")
    assert load_text(hub(tmp_path)).lengths["test"] == 12


def test_a_folder_that_is_not_there_is_answered_with_what_it_must_hold(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"does not exist\. It must be .*train\.csv and test\.csv"):
        load_text(hub(tmp_path / "nowhere"))


def test_a_prompt_id_that_all_rows_share_divides_nothing(library: Any, tmp_path: Path) -> None:
    made = pairs(library)
    with_ids = library.DatasetDict(
        {name: table.add_column("promptID", ["7"] * len(table)) for name, table in made.items()}
    )
    without, given = hub(saved(made, tmp_path / "without")), hub(saved(with_ids, tmp_path / "with"))
    for seed, fields in ((None, {}), (1, {}), (1, {"max_items": 4})):
        whole, read = (load_text(replace(data, **fields), seed) for data in (without, given))
        assert read.fingerprint == whole.fingerprint  # of the groups of test, too
        assert read.lengths == whole.lengths
        assert (read.dev, read.test) == (whole.dev, whole.test)


def test_a_damaged_copy_is_told(library: Any, tmp_path: Path) -> None:
    root = saved(reviews(library), tmp_path / "saved")
    for path in root.rglob("*.arrow"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadData, match=r"saved cannot be (opened|read): .*Copy it again"):
        load_text(hub(root))


def test_a_folder_that_holds_no_data_set_is_told(library: Any, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.xyz").write_text("")
    with pytest.raises(BadData, match=r"notes cannot be opened: .* save_to_disk"):
        load_text(hub(tmp_path / "notes"))


def test_a_data_set_that_is_nowhere_is_told_with_the_way_to_fetch_it(
    library: Any, tmp_path: Path
) -> None:
    with pytest.raises(BadData, match=r"nor in the Hub's cache .*load_dataset\('a/b', 'c'\)"):
        load_text(hub(None, "hf:a/b:c"))
    words = ("--data", "hf:a/b", "--set", f"model.checkpoint={checkpoint_in(tmp_path / 'encoder')}")
    said = refused("run", "text_classification_ut", *words, "--set", "device=cpu")
    assert "Give the folder or address with --set data.folder=DIR." in said


def test_without_the_library_the_message_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['datasets'] = None;"
        "from trainables.config.arm import DataConfig;"
        "from trainables.datasets.text.load import load_text;"
        "load_text(DataConfig(name='hf:imdb', folder='.'))"
    )
    ran = subprocess.run(
        (sys.executable, "-c", code), cwd=REPOSITORY, capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert "needs the Python package `datasets`, version 4 or newer; it is not" in ran.stderr


@pytest.mark.slow
def test_a_built_in_space_trains_on_a_data_set_of_the_library(library: Any, tmp_path: Path) -> None:
    """As README and docs/data.md say it; the settings are those of the space's first data set."""
    folder = saved(reviews(library), tmp_path / "saved")
    checkpoint = checkpoint_in(tmp_path / "encoder")
    small = TINY | {"model.checkpoint": checkpoint, "dtype": "float32", "data.folder": str(folder)}
    words = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    space, data = "text_classification_ut", "hf:some/reviews"
    storage = ("--storage", str(tmp_path / "root"), "--where", "inline")
    ran = sweep("run", space, "--data", data, "--only", "*-L3-g0.2", *words, *storage)
    assert "2 of 2 arms are final" in ran.stdout
    view = load_sweep(ObjectStore(tmp_path / "root"), space)
    assert [s.setting.name for s in view.settings] == ["hf-some-reviews-ut-L3-g0.2"]


def test_another_data_set_takes_the_place_of_the_first_of_a_space() -> None:
    space = catalog.find("text_classification_distilbert").space
    other = catalog.with_data_set(space, "hf:glue:qnli")
    assert {other.run(s, {}, seed=0).data.name for s in other.settings} == {"hf:glue:qnli"}
    imdb = [s.name for s in space.settings if s.name.startswith("imdb-")]
    assert [s.name for s in other.settings] == [n.replace("imdb", "hf-glue-qnli") for n in imdb]
    assert "Give other texts with --data hf:NAME" in refused(
        "run", "text_classification_ut", "--set", "data.name=hf:glue:qnli"
    )
    assert "names texts" in refused("run", "quickstart", "--data", "hf:glue:qnli")
