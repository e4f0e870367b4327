"""Instructions: Alpaca's file and tables of its columns, against recounts of what was written."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep.doctor.data import check_folder
from tests.support.data.damage import (
    cut_out,
    delete,
    empty,
    flip_bits,
    flip_in_header,
    insert,
    replace_by_dead_link,
    replace_by_folder,
    replace_by_itself,
    replace_by_noise,
    replace_by_pipe,
    replace_by_text,
    require_no_partial_entry,
    truncate,
    zero_a_run,
)
from trainables.config.arm import DataConfig
from trainables.datasets.text.alpaca import is_test
from trainables.datasets.text.examples import RawExample, RawSplit, RawText, TextSplits
from trainables.datasets.text.load import load_text, resolve_instructions
from trainables.errors import BadData, UnknownName
from trainables.registry import DataSetSpec
from trainables.registry.built_in import INSTRUCTIONS
from trainables_testing.data_sets import check_instructions
from trainables_testing.promises import BrokenContract

Row = dict[str, Any]

WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n### Instruction:\n"
    "Sort the numbers.\n\n### Input:\n3 1 2\n\n### Response:"
)
WITHOUT_INPUT = (
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\nName a colour.\n\n### Response:"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test reads anew, into its own folder."""
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))


def row(instruction: str, context: str = "", answer: str = "An answer.") -> Row:
    return {"instruction": instruction, "input": context, "output": answer}


ROWS = [
    row("Sort the numbers.", "3 1 2", "1 2 3"),
    row("Sort the numbers.", "9 8", "8 9"),
    row("Name a colour.", answer="Blue caf\u00e9 \u2028 \U0001f600"),
    *(row(f"Count to {i}.", answer=f"1 to {i}") for i in range(300)),
    *(row(f"Shorten text {i % 20}.", f"text {i}", f"t{i}") for i in range(100)),
]


def written(rows: object, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alpaca_data.json").write_text(json.dumps(rows, indent=4), encoding="utf-8")
    return folder


def loaded(folder: Path, **fields: Any) -> TextSplits:
    data = DataConfig(name="alpaca", folder=str(folder), **fields)
    return load_text(data, group="instructions")


def splits_of(texts: TextSplits) -> dict[str, Counter[tuple[str, str | None]]]:
    return {
        split: Counter((e.text, e.pair) for e in texts.split(split))
        for split in ("train", "dev", "test")
    }


def instructions(texts: Iterable[str]) -> set[str]:
    return {t.partition("### Instruction:\n")[2].partition("\n\n###")[0] for t in texts}


# --- what is read ---------------------------------------------------------------------------------


def test_prompts_are_of_the_published_forms(tmp_path: Path) -> None:
    found = splits_of(loaded(written(ROWS, tmp_path)))
    every = found["train"] + found["dev"] + found["test"]
    assert every[WITH_INPUT, "1 2 3"] == 1
    assert every[WITHOUT_INPUT, "Blue caf\u00e9 \u2028 \U0001f600"] == 1
    assert every.total() == len(ROWS)


def test_a_plain_prompt_is_instruction_and_input(tmp_path: Path) -> None:
    alpaca = loaded(written(ROWS, tmp_path))
    texts = loaded(tmp_path, template="plain")
    plain = splits_of(texts)
    every = plain["train"] + plain["dev"] + plain["test"]
    assert every == Counter(
        (f"{r['instruction']}\n\n" + (f"{r['input']}\n\n" if r["input"] else ""), r["output"])
        for r in ROWS
    )
    assert texts.fingerprint != alpaca.fingerprint
    assert plain["test"].keys() == {
        (text.replace("\n\n### Input:\n", "\n\n").partition("Instruction:\n")[2]
         .removesuffix("### Response:"), answer)
        for text, answer in splits_of(alpaca)["test"]
    }  # fmt: skip


def test_examples_without_an_answer_are_left_out_and_counted(tmp_path: Path) -> None:
    blank = [row(f"Say nothing {i}.", answer=" \n" * (i % 2)) for i in range(40)]
    texts = loaded(written(ROWS + blank, tmp_path))
    assert sum(texts.skipped.values()) == len(blank)
    assert splits_of(texts) == splits_of(loaded(written(ROWS, tmp_path / "whole")))


def test_an_instruction_is_in_one_split_whatever_the_order(tmp_path: Path) -> None:
    first = loaded(written(ROWS, tmp_path))
    shuffled = random.Random(0).sample(ROWS, len(ROWS))
    other = loaded(written(shuffled, tmp_path / "other"))
    assert splits_of(first) == splits_of(other)
    assert first.fingerprint == other.fingerprint
    found = [instructions(text for text, _ in split) for split in splits_of(first).values()]
    assert sum(map(len, found)) == len(set.union(*found)) == len({r["instruction"] for r in ROWS})
    groups = [{e.group for e in part} for part in (first.train, first.dev, first.test)]
    assert sum(map(len, groups)) == len(set.union(*groups))


def test_more_rows_move_no_instruction_into_or_out_of_test(tmp_path: Path) -> None:
    fewer, more = loaded(written(ROWS[:150], tmp_path / "a")), loaded(written(ROWS, tmp_path / "b"))
    assert splits_of(fewer)["test"] <= splits_of(more)["test"]
    assert not splits_of(fewer)["test"] & (splits_of(more)["train"] + splits_of(more)["dev"])


def test_test_is_a_tenth_of_the_instructions(tmp_path: Path) -> None:
    rows = [row(f"Task {i}.") for i in range(5000)]
    texts = loaded(written(rows, tmp_path))
    assert abs(texts.lengths["test"] - 500) < 4 * (5000 * 0.1 * 0.9) ** 0.5
    held_in = texts.lengths["train"] + texts.lengths["dev"]
    assert texts.lengths["dev"] == -(-held_in // 4)


def test_instructions_of_which_none_is_drawn_for_the_test_split_are_refused(
    tmp_path: Path,
) -> None:
    rows = [r for r in ROWS if not is_test(r["instruction"])]
    with pytest.raises(BadData, match=r"the test split of alpaca in .* is empty, .* add more of"):
        loaded(written(rows, tmp_path))


FEW: dict[str, Callable[[int], Row]] = {
    "one": lambda i: row("Translate to Chinese.", f"text {i}", f"t{i}"),
    "three": lambda i: row(f"Task {'abc'[i % 3]}.", f"text {i}", f"t{i}"),
    "a template": lambda i: row(f"Translate to Chinese.\n\ntext {i}", answer=f"t{i}"),
}


@pytest.mark.parametrize("template", ["alpaca", "plain"])
@pytest.mark.parametrize("kind", FEW)
def test_few_instructions_are_divided_with_their_inputs(
    tmp_path: Path, kind: str, template: str
) -> None:
    rows = [FEW[kind](i // 2) for i in range(400)]  # each twice
    texts = loaded(written(rows, tmp_path), template=template)
    found = splits_of(texts)
    prompts = [{text for text, _ in split} for split in found.values()]
    assert all(prompts)
    assert sum(map(len, prompts)) == len(set.union(*prompts)) == 200
    assert len({e.group for e in (*texts.train, *texts.dev, *texts.test)}) == 200
    assert 8 <= len(prompts[2]) <= 35


def test_one_prompt_for_all_rows_cannot_be_divided(tmp_path: Path) -> None:
    rows = [row("Say something.", answer=f"answer {i}") for i in range(40)]
    with pytest.raises(BadData, match=r"share a review, premise or prompt|test split .* is empty"):
        loaded(written(rows, tmp_path))


def test_a_row_may_leave_its_input_out_and_a_file_may_have_a_row_a_line(tmp_path: Path) -> None:
    whole = loaded(written(ROWS, tmp_path / "whole")).fingerprint
    short = [{k: v for k, v in r.items() if v or k != "input"} for r in ROWS]
    assert loaded(written(short, tmp_path / "short")).fingerprint == whole
    (tmp_path / "lines").mkdir()
    lines = "".join(f"{json.dumps(r)}\n" for r in short)
    (tmp_path / "lines" / "alpaca_data.json").write_text(lines)
    assert loaded(tmp_path / "lines").fingerprint == whole


def test_prompts_that_come_out_alike_are_in_one_split(tmp_path: Path) -> None:
    """An input may also be written into the instruction; with "plain" both prompts are the same."""
    rows = [row(f"Shorten {i}.", f"text {i}") for i in range(100)]
    rows += [row(f"Shorten {i}.\n\ntext {i}", answer="Another.") for i in range(100)]
    found = splits_of(loaded(written(rows, tmp_path), template="plain"))
    prompts = [{text for text, _ in split} for split in found.values()]
    assert all(prompts)
    assert sum(map(len, prompts)) == len(set.union(*prompts)) == 100


def test_a_seed_draws_dev_anew_and_leaves_test(tmp_path: Path) -> None:
    data = DataConfig(name="alpaca", folder=str(written(ROWS, tmp_path)))
    one, two = (load_text(data, seed, "instructions") for seed in (1, 2))
    assert splits_of(one)["dev"] != splits_of(two)["dev"]
    assert splits_of(one)["test"] == splits_of(two)["test"]


def test_resolved_data_are_known_by_their_content(tmp_path: Path) -> None:
    data = DataConfig(name="alpaca", folder=str(written(ROWS, tmp_path)))
    resolved = resolve_instructions(data)
    assert resolve_instructions(resolved) == resolved
    written(ROWS[:-1], tmp_path)
    with pytest.raises(BadData, match=r"the texts of alpaca in .* are others"):
        resolve_instructions(resolved)


@pytest.mark.parametrize("template", ["alpaca", "plain"])
def test_every_promise_of_a_data_set_is_kept(tmp_path: Path, template: str) -> None:
    data = DataConfig(name="alpaca", folder=str(written(ROWS, tmp_path)))
    check_instructions(replace(data, template=template))  # type: ignore[arg-type]


def of_seconds(answers: list[str | None]) -> DataSetSpec:
    """A plug-in's data set with these answers, one after the other."""

    def read(split: str) -> RawSplit:
        return RawSplit([RawExample(f"{split} {i}", a, 0) for i, a in enumerate(answers * 4)])

    return DataSetSpec(list=lambda data: RawText(("answer",), read, (), ""))


def test_data_that_break_a_promise_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INSTRUCTIONS, "whole", of_seconds(["yes"]))
    check_instructions(DataConfig(name="whole"))
    for name, wrong in (("texts", None), ("blanks", " ")):
        monkeypatch.setitem(INSTRUCTIONS, name, of_seconds(["yes", wrong]))
        with pytest.raises(BrokenContract, match=rf"instructions {name}: an example must have"):
            check_instructions(DataConfig(name=name))


def test_the_shared_subset(tmp_path: Path) -> None:
    root = os.environ.get("SWEEP_TEST_DATA")
    if root is None or not (Path(root) / "alpaca" / "alpaca_data.json").is_file():
        pytest.skip("SWEEP_TEST_DATA names no folder with alpaca/alpaca_data.json")
    rows = json.loads((Path(root) / "alpaca" / "alpaca_data.json").read_text(encoding="utf-8"))
    texts = loaded(Path(root))
    found = splits_of(texts)
    answers = Counter(answer for split in found.values() for _, answer in split.elements())
    assert answers == Counter(r["output"] for r in rows if r["output"].strip())
    assert sum(texts.lengths.values()) + sum(texts.skipped.values()) == len(rows) == 3000
    splits = [instructions(text for text, _ in split) for split in found.values()]
    assert sum(map(len, splits)) == len(set.union(*splits))
    assert abs(len(splits[2]) - 0.1 * len(set.union(*splits))) < 4 * (3000 * 0.1 * 0.9) ** 0.5


# --- where it lies --------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["alpaca", "."])
def test_a_folder_is_the_data_set_or_contains_it(tmp_path: Path, given: str) -> None:
    written(ROWS, tmp_path / "alpaca")
    assert sum(loaded(tmp_path / given).lengths.values()) == len(ROWS)
    check = check_folder(str(tmp_path / given))
    assert check.passed
    assert check.finding == f"alpaca: 1 file of instructions in {tmp_path / 'alpaca'}"


def test_the_default_folder_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainables.datasets.places import with_default_folder

    written(ROWS, tmp_path / "alpaca")
    monkeypatch.setenv("SWEEP_DATA", str(tmp_path))
    data = with_default_folder("instructions", DataConfig(name="alpaca"))
    assert data.folder == str(tmp_path)
    assert with_default_folder("texts", DataConfig(name="alpaca")).folder is None


def test_two_copies_and_other_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("")
    with pytest.raises(BadData, match=r"\(it holds: a\.txt\) does not look like alpaca\. Give a f"):
        loaded(tmp_path / "other")
    written(ROWS, written(ROWS, tmp_path / "two") / "alpaca")
    with pytest.raises(BadData, match="holds alpaca more than once"):
        loaded(tmp_path / "two")


def test_instructions_are_no_texts_to_classify_nor_the_other_way_round(tmp_path: Path) -> None:
    data = DataConfig(name="alpaca", folder=str(written(ROWS, tmp_path)))
    with pytest.raises(UnknownName, match=r"unknown text data set 'alpaca'.*hf:NAME, imdb, mnli"):
        load_text(data)
    with pytest.raises(
        UnknownName, match=r"unknown data set of instructions 'imdb'.*alpaca, hf:NAME"
    ):
        load_text(replace(data, name="imdb"), group="instructions")


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            '[{"instruction": "a"',
            "is not JSON: Expecting ',' delimiter: line 1 column 21",
        ),
        ('{"instruction": "a"}', "holds a dict; it must be a list of objects with instruction, in"),
        ("[]", "holds an empty list; it must be a list of objects with instruction, input, output"),
        ("", "cannot be read: it is empty"),
        ("[" * 100_000, "is not JSON: "),
        ("null", "holds a NoneType; it must be a list"),
    ],
)
def test_a_file_that_is_no_list_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "alpaca_data.json").write_text(content)
    with pytest.raises(BadData) as caught:
        loaded(tmp_path)
    assert f"{tmp_path / 'alpaca_data.json'} {says}" in str(caught.value)
    assert "opy " in str(caught.value).rpartition(". ")[2]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "alpaca_data.json").write_bytes(b'[{"instruction": "\xff"}]')
    with pytest.raises(BadData, match="cannot be read: byte 18 is not UTF-8"):
        loaded(tmp_path)


def test_all_damaged_rows_are_told_at_once(tmp_path: Path) -> None:
    damaged = [
        {"instruction": "a"},
        row("b", answer=None),  # type: ignore[arg-type]
        row(" \n"),
        "text",
        row("null\0"),
        row("half \ud83d"),
        {"input": "", "output": "c"},
    ]
    written(ROWS[:4] + damaged + ROWS[4:], tmp_path)
    with pytest.raises(BadData) as caught:
        loaded(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'alpaca_data.json'} cannot be read: row 5: it has no output; it has "
        "instruction; row 6: its output is no text; row 7: its instruction is empty; row 8: it is "
        "no object; row 9: it holds null characters, as an interrupted copy does; and 2 more. Each "
        "row must be an object of the texts instruction, input, output (input may be left out); "
        "the first is row 1. Write rows of your own so; copy published ones again."
    )


def test_an_input_of_null_is_none_and_of_anything_else_but_text_is_damage(tmp_path: Path) -> None:
    empty_input = written([*ROWS, row("Name a colour.")], tmp_path / "empty")
    null = written([*ROWS, row("Name a colour.") | {"input": None}], tmp_path / "null")
    assert splits_of(loaded(null)) == splits_of(loaded(empty_input))
    for wrong in (0, False, []):
        folder = written([*ROWS, row("Name a colour.") | {"input": wrong}], tmp_path / "wrong")
        with pytest.raises(BadData, match=f"row {len(ROWS) + 1}: its input is no text"):
            loaded(folder)


DAMAGES = (
    *(truncate, flip_bits, flip_in_header, zero_a_run, cut_out, insert, empty, delete),
    *(replace_by_dead_link, replace_by_folder, replace_by_itself, replace_by_pipe),
    *(replace_by_noise, replace_by_text),
)


@pytest.mark.parametrize("seed", range(len(DAMAGES) * 3))
def test_a_damaged_file_gives_whole_examples_or_names_the_place(tmp_path: Path, seed: int) -> None:
    folder = written(ROWS[:40], tmp_path / "alpaca")
    (folder / "DATA_LICENSE").write_text("CC BY-NC 4.0")
    DAMAGES[seed % len(DAMAGES)](folder / "alpaca_data.json", np.random.default_rng(seed))
    try:
        texts = loaded(folder)
    except BadData as error:
        said = str(error)
    else:
        said = str(folder)
        for example in texts.train + texts.dev + texts.test:
            assert example.text.endswith("### Response:")
            assert (example.pair or "").strip()
    assert str(folder) in said
    require_no_partial_entry(tmp_path / "cache", "text")


# --- tables of the library `datasets` -------------------------------------------------------------


def saved(folder: Path, **splits: list[Row]) -> DataConfig:
    library = pytest.importorskip("datasets", minversion="4")
    tables = {name: library.Dataset.from_list(rows) for name, rows in splits.items()}
    library.DatasetDict(tables).save_to_disk(str(folder))
    return DataConfig(name="hf:anything", folder=str(folder))


def test_tables_give_what_the_file_gives(tmp_path: Path) -> None:
    texts = load_text(saved(tmp_path / "hf", train=ROWS), group="instructions")
    assert texts.fingerprint == loaded(written(ROWS, tmp_path / "file")).fingerprint


def test_a_test_split_of_a_table_is_taken_as_it_is(tmp_path: Path) -> None:
    data = saved(tmp_path / "hf", train=ROWS[3:], test=ROWS[:3])
    found = splits_of(load_text(data, group="instructions"))
    assert found["test"].total() == 3
    assert (found["train"] + found["dev"]).total() == len(ROWS) - 3


def test_tables_of_other_columns_are_refused(tmp_path: Path) -> None:
    data = saved(tmp_path / "hf", train=[{"prompt": "a", "output": "b"}])
    with pytest.raises(
        BadData, match=r"train split has columns prompt, output\. Instructions need"
    ):
        load_text(data, group="instructions")
    with pytest.raises(BadData, match="has splits test; its train split has columns none"):
        load_text(saved(tmp_path / "other", test=ROWS), group="instructions")
