"""Small tokenizers written by the tests themselves, in the layouts they are published in."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = ("train", "test", "film", "was", "good", "bad", "premise", "hypo", "##thesis", "yeah")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,:\"<>/!'"
BERT_TOKENS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *WORDS,
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
)
ROBERTA_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
MERGES = (("f", "i"), ("fi", "l"), ("fil", "m"), ("Ġ", "film"), ("g", "o"), ("Ġ", "w"), ("Ġw", "a"))


def write_bert(folder: Path, **settings: object) -> str:
    """WordPiece, as published: vocab.txt and two small files."""
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(BERT_TOKENS) + "\n")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_size": 8}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True} | settings))
    return str(folder)


def byte_letters() -> list[str]:
    """The 256 letters that byte-level BPE spells bytes with."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    letters = {b: chr(b) for b in shown} | {b: chr(256 + n) for n, b in enumerate(hidden)}
    return [letters[b] for b in range(256)]


def write_roberta(folder: Path) -> str:
    """Byte-level BPE, as older folders hold it: vocab.json and merges.txt alone."""
    folder.mkdir(parents=True)
    tokens = [*ROBERTA_TOKENS, *byte_letters(), *("".join(pair) for pair in MERGES), "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in MERGES)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder)


def write_gpt2(folder: Path) -> str:
    """As RoBERTa's, but without its special tokens."""
    folder.mkdir(parents=True)
    tokens = [*byte_letters(), *("".join(pair) for pair in MERGES), "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in MERGES)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    return str(folder)
