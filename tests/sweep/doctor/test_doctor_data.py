"""Data checks of `sweep doctor`: data sets and checkpoints found, missing, damaged."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from search_spaces.space import SearchSpace, Setting
from sweep.doctor.data import check_folder, check_requirement, take_inventory
from sweep.doctor.scope import Requirement, list_requirements
from tests.support.data.checkpoints import tiny_vit
from tests.support.data.data_folders import LAYOUTS
from tests.support.data.text_folders import TEXT_LAYOUTS
from tests.support.data.text_runs import checkpoint_in, tiny_text
from tests.support.oracles import TINY
from trainables.config.arm import ArmConfig, DataConfig, ModelConfig
from trainables.errors import BadData

# --- folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXT_LAYOUTS)
def test_a_folder_of_texts_is_named_and_counted(tmp_path: Path, name: str) -> None:
    layout = TEXT_LAYOUTS[name]
    root = layout.write(tmp_path / layout.folder)
    for given in (root, tmp_path):
        check = check_folder(str(given))
        assert check.passed
        assert check.finding.startswith(f"{layout.data_set}: ")
        assert check.finding.endswith(f" in {root}")
        assert ("entailment" in check.finding) == (layout.data_set == "mnli")


def test_texts_and_clips_in_one_folder_are_both_named(tmp_path: Path) -> None:
    imdb = TEXT_LAYOUTS["imdb as published"].write(tmp_path / "aclImdb")
    avenue = LAYOUTS["cuhk_avenue as published"]
    clips = avenue.write(tmp_path / avenue.folder)
    check = check_folder(str(tmp_path))
    assert check.passed
    assert f"test clips in {clips}; imdb: " in check.finding
    assert check.finding.endswith(f"neg, pos in {imdb}")


def test_damaged_texts_are_named(tmp_path: Path) -> None:
    imdb = TEXT_LAYOUTS["imdb as published"].write(tmp_path / "aclImdb")
    shutil.rmtree(imdb / "test" / "neg")
    check = check_folder(str(tmp_path))
    assert not check.passed
    assert "has no folder test/neg" in check.finding
    half = TEXT_LAYOUTS["mnli as published"].write(tmp_path / "mnli")
    (half / "multinli_1.0_dev_matched.jsonl").unlink()
    check = check_folder(str(half))
    assert not check.passed
    assert "but no multinli_1.0_dev_matched.jsonl" in check.finding
    assert "docs/data.md" in check.advice


TABLES = {
    "a CSV of two files": (
        {"train.csv": "text,label\na,x\nb,y\n", "test.csv": "text,label\nc,x\nd,y\n"},
        r"hf:NAME: 2 files of texts labelled x, y in ",
        True,
    ),
    "instructions under another name": (
        {"alpaca_data_cleaned.json": '[{"instruction": "a", "input": "", "output": "b"}]'},
        r"hf:NAME: 1 file of instructions in ",
        True,
    ),
    "a CSV of other columns": (
        {"IMDB Dataset.csv": "review,sentiment\nGood.,positive\nBad.,negative\n"},
        r"none of the known data sets \(ucsd.*\)\. As texts \(data\.name=hf:NAME\): "
        r".*columns review, sentiment, so label is missing\. Known are",
        False,
    ),
    "a CSV without test examples": (
        {"train.csv": "text,label\na,x\nb,y\n"},
        r"no labelled test split",
        False,
    ),
    "an archive": (
        {"aclImdb_v1.tar.gz": "x", "notes.md": "y"},
        r"As videos .*\(it holds: aclImdb_v1\.tar\.gz, notes\.md\)",
        False,
    ),
    "nothing of the kind": (
        {"notes.md": "y"},
        r"none of the known data sets \(ucsd_ped2, .*, alpaca\)\. As videos .*: notes\.md\)",
        False,
    ),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_folder_of_the_users_own_is_told_what_it_comes_nearest_to(
    tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("datasets", minversion="4")
    files, said, passes = TABLES[kind]
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    check = check_folder(str(tmp_path))
    assert check.passed == passes
    assert re.search(said, check.finding), check.finding
    assert passes or "unpacked" in check.advice
    assert ("film" in check.finding) == ("As videos" in check.finding)


def test_tables_of_a_sweep_are_read_to_the_last_row(tmp_path: Path) -> None:
    pytest.importorskip("datasets", minversion="4")
    rows = [f"text {number},{'xy'[number % 2]}" for number in range(40)]
    (tmp_path / "test.csv").write_text("\n".join(["text,label", *rows[:6]]))
    train = tmp_path / "train.csv"
    train.write_text("\n".join(["text,label", *rows, "without,"]))
    data = DataConfig(name="hf:mine", folder=str(tmp_path), dev_fraction=0.25)
    needed = Requirement(task="text_classification", data=data)
    check = check_requirement(needed)
    assert check.passed
    assert "(30 train, 10 dev, 6 test)" in check.finding
    assert "rows without label that are left out: 1" in check.finding
    train.write_text("\n".join(["text,label", *rows[:39], ",x"]))
    check = check_requirement(needed)
    assert not check.passed
    assert "row 40: its text is no text, but empty" in check.finding


# --- needs ----------------------------------------------------------------------------------------


def space(base: ArmConfig, *settings: Setting) -> SearchSpace:
    return SearchSpace(
        name="mine", summary="", base=base, settings=settings or (Setting("one", {}),)
    )


def test_a_space_needs_every_data_set_and_checkpoint_once(tmp_path: Path) -> None:
    other = checkpoint_in(tmp_path / "other")
    needs = list_requirements(
        space(
            tiny_text(tmp_path),
            Setting("one", {}),
            Setting("noisy", {"train_gamma": 0.2}),
            Setting("other", {"model.checkpoint": other}),
            Setting("mnli", {"data.name": "mnli"}),
        )
    )
    assert [need.name for need in needs] == [
        *("data imdb", f"checkpoint {tmp_path / 'model'}", f"checkpoint {other}", "data mnli"),
    ]
    assert [Requirement.from_json(need.to_json()) for need in needs] == list(needs)


def test_what_a_space_of_texts_needs_is_found(tmp_path: Path) -> None:
    data, checkpoint = list_requirements(space(tiny_text(tmp_path)))
    check = check_requirement(data)
    assert check.passed
    assert check.finding.endswith(f"labelled neg, pos in {tmp_path / 'aclImdb'}")
    check = check_requirement(checkpoint)
    assert check.passed
    assert check.finding.startswith("3 layers, ")


def test_built_in_data_are_there() -> None:
    (need,) = list_requirements(space(TINY))
    check = check_requirement(need)
    assert (check.name, check.passed) == ("data photographs", True)
    assert "built in" in check.finding


def test_missing_data_are_told_with_what_to_do(tmp_path: Path) -> None:
    base = tiny_text(tmp_path)
    for fields, message in (
        ({"data.folder": str(tmp_path / "none")}, "does not exist"),
        ({"data.folder": None}, "needs data.folder"),
        ({"data.name": "imbd"}, "unknown text data set 'imbd'"),
    ):
        data, _ = list_requirements(space(base.with_fields(fields)))
        check = check_requirement(data)
        assert not check.passed
        assert message in check.finding


@pytest.mark.parametrize("kind", ["texts", "clips", "weights", "network of texts"])
def test_a_copy_is_known_as_one_and_a_changed_one_is_not(tmp_path: Path, kind: str) -> None:
    """Copies have other times; nodes of a cluster hold copies."""
    place = tmp_path / "first" / "it"
    place.parent.mkdir()
    if kind == "texts":
        TEXT_LAYOUTS["imdb as published"].write(place)
    elif kind == "clips":
        LAYOUTS["cuhk_avenue as published"].write(place)
    elif kind == "weights":
        tiny_vit(place)
    else:
        checkpoint_in(place)
    copy = Path(shutil.copytree(place, tmp_path / "second"))
    for file in copy.rglob("*"):
        os.utime(file, (1, 1))

    def digest(folder: Path) -> str:
        if kind == "weights":
            return take_inventory(Requirement("frame_denoising", model=vit(folder))).digest
        if kind == "network of texts":
            return take_inventory(Requirement("text_classification", model=encoder(folder))).digest
        name = "imdb" if kind == "texts" else "cuhk_avenue"
        data = replace(TINY.data, name=name, folder=str(folder))
        task = "text_classification" if kind == "texts" else "video_denoising"
        return take_inventory(Requirement(task, data=data)).digest

    assert digest(place) == digest(copy)
    changed = max(copy.rglob("*"), key=lambda file: file.is_file() and file.stat().st_size)
    if kind in ("weights", "network of texts"):
        content = changed.read_bytes()
        changed.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        some = next(f for f in sorted(copy.rglob("*")) if f.name in ("0_2.txt", "01.avi"))
        some.write_bytes(some.read_bytes() + b" ")
    assert digest(place) != digest(copy)


def vit(folder: Path) -> ModelConfig:
    return ModelConfig(name="vit", layers=2, checkpoint=str(folder))


def encoder(folder: Path) -> ModelConfig:
    return ModelConfig(name="encoder", layers=3, checkpoint=str(folder))


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_checkpoint_that_is_missing_or_damaged_is_told_with_what_to_do(tmp_path: Path) -> None:
    whole = Path(checkpoint_in(tmp_path / "whole"))

    def told(change: str) -> str:
        folder = Path(shutil.copytree(whole, tmp_path / change))
        if change == "short":
            weights = folder / "model.safetensors"
            weights.write_bytes(weights.read_bytes()[:-100])
        elif change == "without words":
            (folder / "vocab.txt").unlink()
        elif change == "without a description":
            (folder / "config.json").write_text("{")
        elif change == "nowhere":
            shutil.rmtree(folder)
        check = check_requirement(Requirement("text_classification", model=encoder(folder)))
        assert check.passed == (change == "as it was")
        return check.finding

    assert "fingerprint" in told("as it was")
    assert "model.safetensors is damaged" in told("short")
    assert "has no complete tokenizer" in told("without words")
    assert "cannot read the configuration" in told("without a description")
    assert "there is no such folder" in told("nowhere")


def test_a_name_that_was_never_downloaded_is_told_with_how_to_get_it() -> None:
    model = ModelConfig(name="encoder", layers=0, checkpoint="nobody/nothing")
    check = check_requirement(Requirement("text_classification", model=model))
    assert not check.passed
    assert "`hf download nobody/nothing`" in check.finding


def test_a_checkpoint_that_is_not_the_one_of_the_fingerprint_is_told(tmp_path: Path) -> None:
    model = encoder(Path(checkpoint_in(tmp_path / "it")))
    fingerprint = take_inventory(Requirement("text_classification", model=model)).digest
    expected = replace(model, checkpoint_fingerprint=fingerprint)
    assert check_requirement(Requirement("text_classification", model=expected)).passed
    with pytest.raises(BadData, match="expected fingerprint f00d"):
        take_inventory(
            Requirement("text_classification", model=replace(model, checkpoint_fingerprint="f00d"))
        )
