"""Tokenizers of Hugging Face models, from local files, with a fingerprint.

A pair is merged as its tokenizer does it: [CLS] premise [SEP] hypothesis [SEP] with types 0 and 1
for BERT, <s> premise </s></s> hypothesis </s> without types for RoBERTa. What is too long is cut
token by token from the end of the longer text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.datasets.text.examples import Example
from trainables.datasets.text.tokenizer_files import EXPECTED, VOCABULARIES, tokenizer_folder
from trainables.errors import BadData, InvalidValue

_ROBERTA_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")

Tokenizer = Any  # a transformers tokenizer; its class depends on the files


@dataclass(frozen=True)
class TokenIds:
    """The tokens of some examples, special ones included."""

    ids: list[list[int]]
    types: list[list[int]] | None
    # ^ 0 for a first text and 1 for a second, where the model asks; 1 for an answer's (answers.py)
    cut: int  # examples that were longer than max_length


def load_tokenizer(place: str, *, answers: bool = False) -> Tokenizer:
    """The tokenizer in a local folder, or of a model in the Hub's cache. Nothing is downloaded.

    With ``answers`` it is a decoder's, whose answers end with its end token; that one pads, too,
    where there is no padding token.

    Raises BadData where there is none, its files are damaged, a package that reads them is missing,
    or it has no padding token (of a decoder: no end token).
    """
    folder = tokenizer_folder(place)
    _require_sentencepiece(folder)
    from transformers import AutoTokenizer  # it and torch take seconds

    from trainables.checkpoints import Checkpoint

    # vocab.json and merges.txt may be GPT-2's or RoBERTa's; published folders do not always say
    kind = {"tokenizer_type": "roberta"} if _is_bare_roberta(folder) else {}
    checkpoint = Checkpoint(str(folder), needs=("config.json", "tokenizer.json"))
    tokenizer = checkpoint.read("tokenizer", AutoTokenizer, **kind)
    if answers:
        _require_end(tokenizer, folder)
    elif tokenizer.pad_token_id is None:
        raise BadData(
            f"the tokenizer in {folder} has no padding token, so its texts cannot share a batch. "
            "Give the tokenizer of an encoder (BERT, DistilBERT, RoBERTa, MiniLM, ...)."
        )
    return tokenizer


def _require_end(tokenizer: Tokenizer, folder: Path) -> None:
    """BadData without an end token; it becomes the padding token, where there is none."""
    if tokenizer.eos_token_id is None:
        raise BadData(
            f"the tokenizer in {folder} has no end token, so an answer would never end. Give the "
            "tokenizer of a decoder (Llama, Qwen, Gemma, GPT-2, ...), or name one of its tokens as "
            '"eos_token" in tokenizer_config.json.'
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # masked, so that no loss reads it


def _require_sentencepiece(folder: Path) -> None:
    """BadData where its reader would be missing; transformers then asks for another package."""
    models = [name for name in VOCABULARIES if name.endswith(".model") and (folder / name).exists()]
    is_plain = any((folder / name).exists() for name in VOCABULARIES if name not in models)
    if models and not is_plain and find_spec("sentencepiece") is None:
        raise BadData(
            f"the tokenizer in {folder} is {models[0]}, which needs the Python package "
            "`sentencepiece`; it is not installed. Install it (pip install sentencepiece), or put "
            "a tokenizer.json next to it, which save_pretrained writes where it is installed."
        )


def _is_bare_roberta(folder: Path) -> bool:
    says = ("tokenizer.json", "tokenizer_config.json", "config.json")
    vocabulary = folder / "vocab.json"
    if any((folder / name).exists() for name in says) or not vocabulary.is_file():
        return False
    try:
        return set(_ROBERTA_TOKENS) <= set(json.loads(vocabulary.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return False  # loading says what is wrong


def encode(tokenizer: Tokenizer, examples: Sequence[Example], max_length: int) -> TokenIds:
    """The tokens of examples that are all single texts or all pairs, cut to ``max_length``.

    Raises:
        InvalidValue: ``max_length`` leaves no room beside the special tokens, or exceeds what the
            tokenizer's model takes.
        BadData: the tokenizer fails.
    """
    if not examples:
        return TokenIds([], None, 0)
    is_pair = examples[0].pair is not None
    _require_room(tokenizer, is_pair, max_length)
    texts = [example.text for example in examples]
    pairs = [example.pair for example in examples] if is_pair else None
    cut = {"truncation": "longest_first", "max_length": max_length}
    made = _called(tokenizer, texts, pairs, **cut, return_overflowing_tokens=False)
    return TokenIds(made["input_ids"], made.get("token_type_ids"), _count_cut(made, max_length))


def require_known_words(tokenizer: Tokenizer, ids_M: NDArray[np.int32]) -> None:
    """BadData unless most of the tokens of some texts stand for something.

    transformers makes a tokenizer without words, and says nothing, where the vocabulary is not
    there under the name that the model's kind reads.
    """
    # of some decoders (GPT-2) the unknown token also begins and ends texts, and they know any byte
    is_framing = tokenizer.unk_token_id in framing_ids(tokenizer)
    unknown = 0 if is_framing else int((ids_M == tokenizer.unk_token_id).sum())
    known = int((~np.isin(ids_M, tokenizer.all_special_ids)).sum())
    if known <= unknown:
        raise BadData(
            f"the tokenizer in {tokenizer.name_or_path} ({type(tokenizer).__name__}, "
            f"{len(tokenizer)} tokens) knows {known} of the {known + unknown} pieces of the "
            "training texts: its vocabulary is another model's or another language's, or lies "
            f"under a name that this kind of model does not read. {EXPECTED}"
        )


def framing_ids(tokenizer: Tokenizer) -> set[int]:
    """The tokens that begin, end and pad texts, where the tokenizer has them."""
    ids = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}
    return ids - {None}


def special_ids(tokenizer: Tokenizer) -> list[int]:
    """The tokens that stand for no part of a text; of some decoders one of them is "unknown"."""
    plain = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    return sorted(plain | framing_ids(tokenizer))


def read_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The tokens of whole texts, without special ones. BadData where the tokenizer fails.

    A text that spells a special token has that spelling's own tokens: it cannot end an answer.
    """
    plain = {"add_special_tokens": False, "split_special_tokens": True, "truncation": False}
    made = _called(tokenizer, list(texts), **plain, return_token_type_ids=False, verbose=False)
    ids: list[list[int]] = made["input_ids"]
    return ids


def require_taken(tokenizer: Tokenizer, max_length: int) -> None:
    """InvalidValue where the tokenizer's model takes fewer tokens than ``max_length``."""
    most = tokenizer.model_max_length  # a huge number where the files do not say
    if max_length > most:
        raise InvalidValue(
            f"data.max_length must be at most {most}, all that this tokenizer's model takes, got "
            f"{max_length}."
        )


def _called(tokenizer: Tokenizer, *texts: Any, **options: Any) -> Any:
    """Result of a tokenizer without padding; BadData where it fails."""
    try:
        return tokenizer(*texts, padding=False, return_attention_mask=False, **options)
    except Exception as error:  # the library raises plain ones
        raise BadData(
            f"the tokenizer in {tokenizer.name_or_path} cannot read the texts: {error}. {EXPECTED}"
        ) from error


def _count_cut(made: Any, max_length: int) -> int:
    """Number of examples that lost tokens; of tokenizers in pure Python, that may have."""
    if made.encodings is None:
        return sum(len(ids) == max_length for ids in made["input_ids"])
    return sum(bool(encoding.overflowing) for encoding in made.encodings)


def _require_room(tokenizer: Tokenizer, is_pair: bool, max_length: int) -> None:
    special = tokenizer.num_special_tokens_to_add(pair=is_pair)
    least = special + 1 + is_pair
    most = tokenizer.model_max_length  # a huge number where the files do not say
    if not least <= max_length <= most:
        upper = f" and at most {most}, all that its model takes" if max_length > most else ""
        raise InvalidValue(
            f"data.max_length must be at least {least} with this tokenizer ({special} special "
            f"tokens){upper}, got {max_length}."
        )
