"""Tokens of prompts and answers: against the library `tokenizers`, cut, masked and padded."""

from __future__ import annotations

import json
import os
import shutil
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from tests.support.data.tokenizer_folders import write_bert, write_gpt2
from trainables.config.arm import DataConfig
from trainables.datasets.text.answers import encode_answers
from trainables.datasets.text.examples import Example
from trainables.datasets.text.load import load_text
from trainables.datasets.text.tokenized import tokenized
from trainables.datasets.text.tokenizer import load_tokenizer
from trainables.datasets.text.tokenizer_files import tokenizer_fingerprint
from trainables.errors import BadData, InvalidValue
from trainables.fetching.cache import built_once

PAIRS = [
    ("Name a colour.\n\n", "Blue."),
    ("Sort the numbers: 3, 1, 2\n\n", "1, 2, 3 \U0001f600 caf\u00e9"),
    ("Translate into French.\n\nGood morning, and welcome!\n\n", "Bonjour, et bienvenue !\n"),
    ("Say <s> twice", " <s> no"),
]
EXAMPLES = [Example(prompt, answer, 0, f"{i:016x}") for i, (prompt, answer) in enumerate(PAIRS)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test reads and tokenizes anew, into its own folder."""
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))


def write_trained(folder: Path, **settings: object) -> tuple[str, tokenizers.Tokenizer]:
    """A small byte-level BPE, trained on the texts, and its folder as it would be published."""
    plain = tokenizers.Tokenizer(tokenizers.models.BPE())
    plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<begin>", "<end>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator([text for pair in PAIRS for text in pair], trainer)
    folder.mkdir(parents=True)
    plain.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"} | settings
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return str(folder), plain


@pytest.fixture
def small(tmp_path: Path) -> tuple[Any, tokenizers.Tokenizer]:
    folder, plain = write_trained(tmp_path / "small", bos_token="<begin>")
    return load_tokenizer(folder, answers=True), plain


@pytest.fixture
def gpt2(tmp_path: Path) -> tuple[Any, tokenizers.Tokenizer]:
    files = Path(os.environ.get("SWEEP_TEST_DATA", "")) / "tokenizers" / "gpt2"
    if not (files / "vocab.json").is_file():
        pytest.skip("SWEEP_TEST_DATA names no folder with tokenizers/gpt2/vocab.json")
    folder = tmp_path / "gpt2"
    shutil.copytree(files, folder)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    plain = tokenizers.ByteLevelBPETokenizer(str(files / "vocab.json"), str(files / "merges.txt"))
    return load_tokenizer(str(folder), answers=True), plain


@pytest.fixture(params=["small", "gpt2"])
def both(request: pytest.FixtureRequest) -> tuple[Any, tokenizers.Tokenizer, int, int]:
    """The tokenizer, the library's own, and the ids that begin and end an example."""
    tokenizer, plain = request.getfixturevalue(request.param)
    return (tokenizer, plain, *((0, 1) if request.param == "small" else (50256, 50256)))


Both = tuple[Any, tokenizers.Tokenizer, int, int]


# --- ids and types --------------------------------------------------------------------------------


def test_tokens_are_the_prompts_then_the_answers(both: Both) -> None:
    tokenizer, plain, begin, end = both
    made = encode_answers(tokenizer, EXAMPLES, 512)
    assert made.types is not None
    assert made.cut == 0
    for (prompt, answer), ids, types in zip(PAIRS, made.ids, made.types, strict=True):
        before, after = plain.encode(prompt).ids, plain.encode(answer).ids
        assert ids == [begin, *before, *after, end]
        assert types == [0] * (1 + len(before)) + [1] * (len(after) + 1)
        assert plain.decode(ids[1:-1]) == prompt + answer


def test_a_text_that_spells_a_special_token_ends_nothing(both: Both) -> None:
    tokenizer, plain, begin, end = both
    spelt = tokenizer.eos_token
    made = encode_answers(tokenizer, [Example(f"Say {spelt}.", f"a{spelt}b", 0, "0" * 16)], 512)
    assert [made.ids[0][0], made.ids[0][-1]] == [begin, end]
    inside = made.ids[0][1:-1]
    assert not {begin, end} & set(inside)
    assert plain.decode(inside) == f"Say {spelt}.a{spelt}b"


def test_without_a_beginning_token_the_prompt_begins(tmp_path: Path) -> None:
    folder, plain = write_trained(tmp_path / "small")
    made = encode_answers(load_tokenizer(folder, answers=True), EXAMPLES[:1], 512)
    assert made.ids == [[*plain.encode(PAIRS[0][0]).ids, *plain.encode(PAIRS[0][1]).ids, 1]]


def test_no_examples_have_no_tokens(small: tuple[Any, tokenizers.Tokenizer]) -> None:
    assert encode_answers(small[0], [], 512).ids == []


@pytest.mark.parametrize("side", ["left", "right"])
def test_what_is_too_long_loses_the_end_of_its_answer(both: Both, side: str) -> None:
    tokenizer, _, _, end = both
    tokenizer.truncation_side = tokenizer.padding_side = side
    whole = encode_answers(tokenizer, EXAMPLES, 512)
    assert whole.types is not None
    least = 1 + max(types.index(1) for types in whole.types)
    lengths = [len(ids) for ids in whole.ids]
    for max_length in range(least, max(lengths) + 2):
        made = encode_answers(tokenizer, EXAMPLES, max_length)
        assert made.ids == [ids[:max_length] for ids in whole.ids]
        assert made.types == [types[:max_length] for types in whole.types]
        assert made.cut == sum(length > max_length for length in lengths)
        assert [ids[-1] == end for ids in made.ids] == [n <= max_length for n in lengths]


# --- what is refused ------------------------------------------------------------------------------


def test_prompts_that_leave_no_room_are_counted_with_the_length_that_would_do(both: Both) -> None:
    tokenizer, *_ = both
    whole = encode_answers(tokenizer, EXAMPLES, 512)
    assert whole.types is not None
    prompts = sorted(types.index(1) for types in whole.types)
    with pytest.raises(InvalidValue) as caught:
        encode_answers(tokenizer, EXAMPLES * 600, prompts[2])
    full = 600 * sum(length >= prompts[2] for length in prompts)
    assert 0 < full < 2400
    assert str(caught.value) == (
        f"data.max_length must leave room for an answer behind its prompt, got {prompts[2]}: "
        f"{full} of 2400 prompts fill it. {prompts[-1] + 1} gives each answer one token; give "
        "more, or shorter instructions."
    )
    assert len(encode_answers(tokenizer, EXAMPLES, prompts[-1] + 1).ids) == len(EXAMPLES)


def test_a_tokenizer_without_an_end_token_is_refused(tmp_path: Path) -> None:
    folder, _ = write_trained(tmp_path / "endless", eos_token=None)
    with pytest.raises(BadData) as caught:
        load_tokenizer(folder, answers=True)
    assert str(caught.value) == (
        f"the tokenizer in {folder} has no end token, so an answer would never end. Give the "
        "tokenizer of a decoder (Llama, Qwen, Gemma, GPT-2, ...), or name one of its tokens as "
        '"eos_token" in tokenizer_config.json.'
    )


def test_the_end_token_pads_answers_and_no_classification(tmp_path: Path) -> None:
    folder, _ = write_trained(tmp_path / "small")
    assert load_tokenizer(folder, answers=True).pad_token_id == 1
    with pytest.raises(BadData, match="has no padding token"):
        load_tokenizer(folder)
    own, _ = write_trained(tmp_path / "own", pad_token="<begin>")
    assert load_tokenizer(own, answers=True).pad_token_id == 0


def test_more_tokens_than_the_model_takes_are_refused(tmp_path: Path) -> None:
    folder, _ = write_trained(tmp_path / "small", model_max_length=128)
    tokenizer = load_tokenizer(folder, answers=True)
    with pytest.raises(InvalidValue, match=r"at most 128, all that this .* takes, got 129\."):
        encode_answers(tokenizer, EXAMPLES, 129)
    assert encode_answers(tokenizer, EXAMPLES, 128).cut == 0


# --- a data set -----------------------------------------------------------------------------------


def alpaca(folder: Path, rows: int = 60) -> DataConfig:
    folder.mkdir()
    written = [
        {"instruction": f"Count to {i}.", "input": "", "output": ", ".join(map(str, range(i)))}
        for i in range(1, rows)
    ]
    (folder / "alpaca_data.json").write_text(json.dumps(written))
    return DataConfig(name="alpaca", folder=str(folder), template="plain")


def test_tokens_of_a_data_set_carry_its_answers(tmp_path: Path) -> None:
    data = alpaca(tmp_path / "alpaca")
    folder, _ = write_trained(tmp_path / "small", bos_token="<begin>")
    splits = load_text(data, group="instructions")
    tokens = tokenized(data, splits, folder, 64, answers=True)
    tokenizer = load_tokenizer(folder, answers=True)
    assert tokens.special_ids == (0, 1)
    assert tokens.pad_id == 1
    for split in (tokens.train, tokens.dev, tokens.test):
        examples = splits.train if split is tokens.train else splits.dev
        examples = splits.test if split is tokens.test else examples
        made = encode_answers(tokenizer, examples, 64)
        assert made.types is not None
        assert split.types_M is not None
        assert split.types_M.tolist() == [*chain.from_iterable(made.types)]
        assert split.ids_M.tolist() == [*chain.from_iterable(made.ids)]
        assert split.cut == made.cut
    batch = tokens.train.padded(range(len(tokens.train)))
    assert batch.types is not None
    assert not batch.types[~batch.mask].any()
    assert (batch.ids[~batch.mask] == 1).all()
    assert tokens.train.cut > 0


def test_encodings_are_cached_apart_and_older_entries_stay(tmp_path: Path) -> None:
    data = alpaca(tmp_path / "alpaca")
    folder = write_bert(tmp_path / "bert", eos_token="[SEP]")
    splits = load_text(data, group="instructions")
    pairs = tokenized(data, splits, folder, 64)
    answers = tokenized(data, splits, folder, 64, answers=True)
    assert not np.array_equal(pairs.train.ids_M, answers.train.ids_M)
    key = {
        "format": 1,
        "name": "alpaca",
        "data": splits.fingerprint,
        "tokenizer": tokenizer_fingerprint(folder),
        "max_length": 64,
        "libraries": [version("transformers"), version("tokenizers")],
        "split": "train",
    }

    def missing(_: Path) -> None:
        pytest.fail("the entry has another key")

    assert np.array_equal(
        np.load(built_once("tokens", key, missing) / "ids.npy"), pairs.train.ids_M
    )


def test_the_unknown_token_may_begin_and_end_examples(tmp_path: Path) -> None:
    """As GPT-2's does: short texts are not mistaken for unknown ones, its end for a word."""
    data = alpaca(tmp_path / "alpaca")
    folder = write_gpt2(tmp_path / "gpt2")
    tokenizer = load_tokenizer(folder, answers=True)
    assert tokenizer.unk_token_id == tokenizer.eos_token_id == tokenizer.bos_token_id
    tokens = tokenized(data, load_text(data, group="instructions"), folder, 512, answers=True)
    assert tokens.special_ids == (tokenizer.eos_token_id,)


def test_a_tokenizer_without_words_is_refused(tmp_path: Path) -> None:
    data = alpaca(tmp_path / "alpaca")
    folder = Path(write_gpt2(tmp_path / "gpt2"))
    (folder / "vocab.json").write_text('{"<|endoftext|>": 0}')
    (folder / "merges.txt").write_text("#version: 0.2\n")
    splits = load_text(data, group="instructions")
    with pytest.raises(BadData, match=r"\(GPT2.*, 1 tokens\) knows 0 of the 0 pieces"):
        tokenized(data, splits, str(folder), 512, answers=True)
