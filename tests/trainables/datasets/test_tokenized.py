"""Tokens of texts: against naive tokenizers, made once, opened split by split."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.support.data.text_folders import TEXT_LAYOUTS
from tests.support.data.tokenizer_folders import (
    BERT_TOKENS,
    MERGES,
    ROBERTA_TOKENS,
    byte_letters,
    write_bert,
    write_gpt2,
    write_roberta,
)
from trainables.config.arm import DataConfig
from trainables.datasets.text.examples import Example, TextSplits
from trainables.datasets.text.load import load_text, resolve
from trainables.datasets.text.tokenized import TokenizedSplit, tokenized
from trainables.datasets.text.tokenizer import encode, load_tokenizer
from trainables.datasets.text.tokenizer_files import tokenizer_fingerprint, tokenizer_folder
from trainables.errors import BadData, InvalidValue

REPOSITORY = Path(__file__).parents[3]
CLS, SEP, PAD = 2, 3, 0  # of the small BERT


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test reads and tokenizes anew, into its own folder."""
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=["imdb without films", "mnli as published"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> DataConfig:
    layout = TEXT_LAYOUTS[request.param]
    folder = str(layout.write(tmp_path / "data"))
    return DataConfig(name=layout.data_set, folder=folder, dev_fraction=0.3)


@pytest.fixture
def bert(tmp_path: Path) -> str:
    return write_bert(tmp_path / "bert")


@pytest.fixture
def roberta(tmp_path: Path) -> str:
    return write_roberta(tmp_path / "roberta")


# --- the oracles: both tokenizers in a few lines --------------------------------------------------


def word_pieces(text: str) -> list[int]:
    """BERT: lower case, no accents, split at blanks and around punctuation, longest piece first."""
    plain = unicodedata.normalize("NFD", text.lower())
    plain = "".join(c for c in plain if unicodedata.category(c) not in ("Mn", "Cc"))
    found = []
    for word in re.findall(r"[\w]+|[^\w\s]", plain):
        pieces, rest = [], word
        while rest:
            start = "##" if pieces else ""
            ends = [n for n in range(len(rest), 0, -1) if start + rest[:n] in BERT_TOKENS]
            if not ends:
                pieces = ["[UNK]"]
                break
            pieces.append(start + rest[: ends[0]])
            rest = rest[ends[0] :]
        found += [BERT_TOKENS.index(piece) for piece in pieces]
    return found


def byte_pairs(text: str) -> list[int]:
    """RoBERTa: words with the blank before them, as bytes, the first merge that fits, again."""
    tokens = [*ROBERTA_TOKENS, *byte_letters(), *("".join(pair) for pair in MERGES)]
    found = []
    for word in re.findall(r" ?[^\W\d_]+| ?\d+| ?[^\s\w]+|\s+(?!\S)|\s+", text):
        parts = [byte_letters()[byte] for byte in word.encode()]
        for pair in MERGES:
            i = 0
            while i < len(parts) - 1:
                if tuple(parts[i : i + 2]) == pair:
                    parts[i : i + 2] = ["".join(pair)]
                i += 1
        found += [tokens.index(part) for part in parts]
    return found


def cut_evenly(first: list[int], second: list[int], room: int) -> tuple[list[int], list[int]]:
    """The longer one loses a token until both fit; of equals, the one that was no longer."""
    kept = (list(first), list(second))
    shorter = kept[1] if len(first) > len(second) else kept[0]
    while sum(map(len, kept)) > room:
        (shorter if len(kept[0]) == len(kept[1]) else max(kept, key=len)).pop()
    return kept


def merged_as_bert(example: Example, max_length: int) -> tuple[list[int], list[int]]:
    """Ids and types."""
    first, second = word_pieces(example.text), word_pieces(example.pair or "")
    first, second = cut_evenly(first, second, max_length - 2 - (example.pair is not None))
    ids, types = [CLS, *first, SEP], [0] * (len(first) + 2)
    if example.pair is not None:
        ids, types = [*ids, *second, SEP], types + [1] * (len(second) + 1)
    return ids, types


def merged_as_roberta(example: Example, max_length: int) -> list[int]:
    first, second = byte_pairs(example.text), byte_pairs(example.pair or "")
    room = max_length - (2 if example.pair is None else 4)
    first, second = cut_evenly(first, second, room)
    return [0, *first, 2] if example.pair is None else [0, *first, 2, 2, *second, 2]


# --- against them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("max_length", [6, 9, 10, 100])
def test_bert_sees_texts_and_pairs_as_in_the_oracle(
    data: DataConfig, bert: str, max_length: int
) -> None:
    splits = load_text(data)
    made = tokenized(data, splits, bert, max_length)
    for name in ("train", "dev", "test"):
        split, examples = made.split(name), splits.split(name)
        expected = [merged_as_bert(example, max_length) for example in examples]
        assert [split.tokens(i).tolist() for i in range(len(split))] == [ids for ids, _ in expected]
        assert split.types_M is not None
        assert split.types_M.tolist() == [kind for _, types in expected for kind in types]
        whole = [len(merged_as_bert(example, 10_000)[0]) for example in examples]
        assert split.cut == sum(length > max_length for length in whole)
        assert split.lengths_N.tolist() == [min(length, max_length) for length in whole]


@pytest.mark.parametrize("max_length", [8, 11, 200])
def test_roberta_sees_texts_and_pairs_as_in_the_oracle(
    data: DataConfig, roberta: str, max_length: int
) -> None:
    splits = load_text(data)
    made = tokenized(data, splits, roberta, max_length).train
    # the oracle's splitting into words is rougher than the original at rare characters
    plain = [i for i, e in enumerate(splits.train) if (e.text + (e.pair or "")).isascii()]
    assert plain
    for i in plain:
        assert made.tokens(i).tolist() == merged_as_roberta(splits.train[i], max_length)
    assert made.types_M is None


def test_labels_groups_and_order_are_those_of_the_texts(data: DataConfig, bert: str) -> None:
    splits = load_text(data)
    made = tokenized(data, splits, bert, 32)
    assert made.labels == splits.labels
    for name in ("train", "dev", "test"):
        split, examples = made.split(name), splits.split(name)
        assert split.labels_N.tolist() == [example.label for example in examples]
        names = [split.group_names[group] for group in split.groups_N]
        assert names == [example.group for example in examples]
        assert list(split.group_names) == sorted({example.group for example in examples})


def test_padded_batches_are_the_tokens_and_padding_behind_them(
    data: DataConfig, bert: str, roberta: str
) -> None:
    splits = load_text(data)
    for tokenizer, pad in ((bert, PAD), (roberta, 1)):
        split = tokenized(data, splits, tokenizer, 24).train
        chosen = [5, 0, 3, 3, len(split) - 1]
        batch = split.padded(chosen)
        widest = max(len(split.tokens(i)) for i in chosen)
        assert batch.ids.shape == batch.mask.shape == (5, widest)
        for row, i in enumerate(chosen):
            tokens = split.tokens(i).tolist()
            beyond = widest - len(tokens)
            assert batch.ids[row].tolist() == tokens + [pad] * beyond
            assert batch.mask[row].tolist() == [True] * len(tokens) + [False] * beyond
            if split.types_M is not None and batch.types is not None:
                types = split.types_M[split.offsets[i] : split.offsets[i + 1]].tolist()
                assert batch.types[row].tolist() == types + [0] * beyond
        assert (batch.types is None) == (tokenizer == roberta)
        assert split.padded([]).ids.shape == (0, 0)


def test_special_tokens_and_vocabulary_are_the_tokenizers(
    data: DataConfig, bert: str, roberta: str
) -> None:
    splits = load_text(data)
    made = tokenized(data, splits, bert, 24)
    assert (made.vocabulary, made.pad_id) == (len(BERT_TOKENS), PAD)
    assert made.special_ids == (0, 2, 3, 4)  # [UNK] stands for a word
    assert made.train.ids_M.max() < made.vocabulary
    made = tokenized(data, splits, roberta, 24)
    assert (made.vocabulary, made.pad_id) == (4 + 256 + len(MERGES) + 1, 1)
    assert made.special_ids == (0, 1, 2, made.vocabulary - 1)


# --- made once, opened split by split -------------------------------------------------------------


def test_arrays_are_mapped_from_one_cache_entry_and_read_only(data: DataConfig, bert: str) -> None:
    splits = load_text(data)
    first, second = (tokenized(data, splits, bert, 24) for _ in range(2))
    for made in (first, second):
        assert isinstance(made.train.ids_M, np.memmap)
        assert made.train.ids_M.dtype == np.int32
        with pytest.raises(ValueError, match="read-only"):
            made.train.ids_M[0] = 1
    assert first.train.ids_M.filename == second.train.ids_M.filename  # type: ignore[attr-defined]


WATCHED_RUN = """
import sys
opened = []
sys.addaudithook(lambda event, args: event == "open" and opened.append(str(args[0])))
from trainables.config.arm import DataConfig
from trainables.datasets.text.load import load_text
from trainables.datasets.text.tokenized import tokenized
data = DataConfig.from_json({data!r})
made = tokenized(data, load_text(data), {tokenizer!r}, 24)
print(len(made.train), len(made.dev))
print([name for name in opened if name.startswith({root!r}) or name.endswith("test.jsonl")])
print(sorted(set(sys.modules) & {{"torch", "transformers"}}))
"""


def test_a_second_process_reads_tokens_alone(data: DataConfig, bert: str) -> None:
    """No file of the data set is opened again, nor one of the test split; nothing is tokenized."""
    data = resolve(data)
    made = tokenized(data, load_text(data), bert, 24)
    sizes = f"{len(made.train)} {len(made.dev)}"
    code = WATCHED_RUN.format(data=data.to_json(), tokenizer=bert, root=data.folder)
    ran = subprocess.run(
        (sys.executable, "-c", code), cwd=REPOSITORY, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [sizes, "[]", "[]"]


def test_the_test_split_is_tokenized_when_it_is_asked_for(
    data: DataConfig, bert: str, own_cache: Path
) -> None:
    def splits_there() -> list[str]:
        found = own_cache.glob("tokens/*/manifest.json")
        return sorted(json.loads(path.read_text())["key"]["split"] for path in found)

    made = tokenized(data, load_text(data), bert, 24)
    assert (len(made.train) > 0, len(made.dev) > 0) == (True, True)
    assert splits_there() == ["dev", "train"]
    assert len(made.test) > 0
    assert splits_there() == ["dev", "test", "train"]


def test_the_key_knows_texts_tokenizer_and_length_but_no_place(
    data: DataConfig, bert: str, tmp_path: Path, own_cache: Path
) -> None:
    splits = load_text(data)

    def entries() -> int:
        return len(list(own_cache.glob("tokens/*/manifest.json")))

    def assert_new(count: int, splits: TextSplits, tokenizer: str, max_length: int) -> None:
        before = entries()
        tokenized(data, splits, tokenizer, max_length)
        assert entries() - before == count

    assert_new(1, splits, bert, 24)
    assert_new(1, splits, bert, 25)
    few = dataclasses.replace(data, max_items=3)
    assert_new(1, load_text(few), bert, 24)
    assert_new(1, splits, write_bert(tmp_path / "cased", do_lower_case=False), 24)
    shutil.copytree(bert, tmp_path / "moved")
    config = json.loads((tmp_path / "moved" / "config.json").read_text())
    (tmp_path / "moved" / "config.json").write_text(json.dumps(config | {"hidden_size": 16}))
    assert_new(0, splits, str(tmp_path / "moved"), 24)  # another network, the same tokenizer


# --- what cannot be had ---------------------------------------------------------------------------


def no_vocabulary(folder: Path) -> str:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return str(folder)


def half(folder: Path) -> str:
    write_roberta(folder)
    (folder / "merges.txt").unlink()
    return str(folder)


def damaged(folder: Path) -> str:
    write_bert(folder)
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model"')
    return str(folder)


def damaged_vocabulary(folder: Path) -> str:
    write_roberta(folder)
    (folder / "vocab.json").write_bytes(b"\xff{")
    return str(folder)


def damaged_config(folder: Path) -> str:
    write_bert(folder)
    (folder / "config.json").write_text("[]")
    return str(folder)


def null_byte(folder: Path) -> str:
    return f"{folder}\0"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (str, "neither a folder nor a model in the Hub's cache. Give a folder with tokenizer.json"),
        (null_byte, "neither a folder nor a model"),
        (lambda folder: "no-such-model", "neither a folder nor a model"),
        (no_vocabulary, "it holds: config.json) has no complete tokenizer. Give a folder"),
        (half, "it holds: vocab.json) has no complete tokenizer"),
        (damaged, "cannot read the tokenizer of"),
        (damaged_vocabulary, "cannot read the tokenizer of"),
        (damaged_config, "config.json is damaged"),
        (write_gpt2, "has no padding token"),
    ],
)
def test_a_tokenizer_that_cannot_be_had_is_told_in_one_message(
    data: DataConfig, tmp_path: Path, make: Callable[[Path], str], message: str, own_cache: Path
) -> None:
    with pytest.raises(BadData, match=re.escape(message)):
        tokenized(data, load_text(data), make(tmp_path / "made"), 24)
    assert not list(own_cache.glob("tokens/*/manifest.json"))


def kind(model_type: str, write: Callable[[Path], str]) -> Callable[[Path], str]:
    """A folder whose config.json says that its vocabulary is another kind's."""

    def make(folder: Path) -> str:
        write(folder)
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
        return str(folder)

    return make


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (kind("deberta-v2", write_bert), r"made \(\w+, \d+ tokens\) knows 0 of the \d+ pieces"),
        (kind("albert", write_bert), r"made \(\w+, \d+ tokens\) knows \d+ of the \d+ pieces"),
        (kind("mpnet", write_roberta), "made cannot read the texts: "),
    ],
)
def test_a_vocabulary_that_the_models_kind_does_not_read_is_refused(
    data: DataConfig, tmp_path: Path, make: Callable[[Path], str], message: str, own_cache: Path
) -> None:
    """transformers would make a tokenizer of it all the same, to which every word is unknown."""
    with pytest.raises(BadData, match=message) as caught:
        tokenized(data, load_text(data), make(tmp_path / "made"), 24)
    assert "Give a folder with tokenizer.json" in str(caught.value)
    assert not list(own_cache.glob("tokens/*/manifest.json"))


@pytest.mark.skipif(find_spec("sentencepiece") is not None, reason="sentencepiece is installed")
def test_a_package_that_a_vocabulary_needs_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}')
    (tmp_path / "spm.model").write_bytes(b"anything")
    with pytest.raises(BadData, match=r"is spm\.model, which needs .*`sentencepiece`.*pip install"):
        load_tokenizer(str(tmp_path))


def test_a_length_without_room_for_a_token_of_each_text_is_refused(
    data: DataConfig, bert: str, roberta: str
) -> None:
    splits = load_text(data)
    is_pair = splits.train[0].pair is not None
    for tokenizer, special in ((bert, 3 if is_pair else 2), (roberta, 4 if is_pair else 2)):
        least = special + 1 + is_pair
        tokenized(data, splits, tokenizer, least)
        with pytest.raises(InvalidValue, match=rf"max_length must be at least {least} .* got"):
            tokenized(data, splits, tokenizer, least - 1)


def test_a_length_beyond_what_the_model_takes_is_refused(data: DataConfig, tmp_path: Path) -> None:
    short = write_bert(tmp_path / "short", model_max_length=32)
    tokenized(data, load_text(data), short, 32)
    with pytest.raises(InvalidValue, match="at most 32, all that its model takes, got 33"):
        tokenized(data, load_text(data), short, 33)


def test_no_examples_have_no_tokens(bert: str) -> None:
    assert encode(load_tokenizer(bert), [], 24).ids == []


# --- real files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["imdb", "mnli"])
def test_real_texts_by_bert_equal_the_tokenizers_library(real_data: Path, name: str) -> None:
    """An independent reading of the same files, without transformers."""
    from tokenizers import Tokenizer

    folder = real_data / "tokenizers" / "bert-base-uncased"
    oracle = Tokenizer.from_file(str(folder / "tokenizer.json"))
    oracle.enable_truncation(64)
    oracle.no_padding()
    data = DataConfig(name=name, folder=str(real_data), dev_fraction=0.1, max_items=60)
    splits = load_text(data)
    split = tokenized(data, splits, str(folder), 64).dev
    assert len(split) == 60
    for i, example in enumerate(splits.dev):
        expected = oracle.encode(example.text, example.pair)
        assert split.tokens(i).tolist() == expected.ids
    assert split.tokens(0)[0] == 101  # [CLS] of the published vocabulary


def test_real_texts_by_roberta_equal_the_tokenizers_library(real_data: Path) -> None:
    from tokenizers import ByteLevelBPETokenizer

    folder = real_data / "tokenizers" / "roberta-base"
    files = (str(folder / "vocab.json"), str(folder / "merges.txt"))
    oracle = ByteLevelBPETokenizer(*files)
    data = DataConfig(name="mnli", folder=str(real_data), dev_fraction=0.1, max_items=60)
    splits = load_text(data)
    made = tokenized(data, splits, str(folder), 512)
    for i, example in enumerate(splits.dev):
        first, second = (oracle.encode(text).ids for text in (example.text, example.pair))
        assert made.dev.tokens(i).tolist() == [0, *first, 2, 2, *second, 2]
    assert made.vocabulary == 50265


def test_fingerprints_of_published_tokenizers_do_not_know_their_place(
    real_data: Path, tmp_path: Path
) -> None:
    folder = real_data / "tokenizers" / "roberta-base"
    shutil.copytree(folder, tmp_path / "here")
    assert tokenizer_fingerprint(str(folder)) == tokenizer_fingerprint(str(tmp_path / "here"))


@pytest.mark.parametrize(
    "name",
    ["tokenizer.json", "vocab.txt", "spiece.model", "spm.model", "sentencepiece.bpe.model"],
)
def test_a_vocabulary_under_any_published_name_is_found_and_hashed(
    tmp_path: Path, name: str
) -> None:
    """DeBERTa v3, say, is published with spm.model alone."""
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}')
    prints = []
    for content in (b"one", b"another", b"one"):
        (tmp_path / name).write_bytes(content)
        assert tokenizer_folder(str(tmp_path)) == tmp_path
        prints.append(tokenizer_fingerprint(str(tmp_path)))
    assert prints[0] == prints[2] != prints[1]


def test_lengths_are_offsets_apart() -> None:
    split = TokenizedSplit(
        ids_M=np.arange(5, dtype=np.int32),
        offsets=np.array([0, 2, 5]),
        types_M=None,
        labels_N=np.array([0, 1]),
        groups_N=np.array([0, 0]),
        group_names=("g",),
        cut=0,
        pad_id=9,
    )
    assert split.lengths_N.tolist() == [2, 3]
    assert split.padded([1, 0]).ids.tolist() == [[2, 3, 4], [0, 1, 9]]
