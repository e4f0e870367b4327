"""Imitated checkpoints and texts: shapes of published networks, random weights and words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

WORDS = 30_517  # with the five special tokens DistilBERT's vocabulary of 30,522
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
END = "[END]"  # of an answer


def write_encoder(folder: Path, **shape: Any) -> None:
    """An encoder of DistilBERT's kind, in fields of its configuration; DistilBERT's own without."""
    from transformers import DistilBertConfig, DistilBertModel

    torch.manual_seed(0)
    described = DistilBertConfig(**shape)
    DistilBertModel(described).save_pretrained(folder)
    _write_tokenizer(folder, described.vocab_size - len(SPECIAL), SPECIAL, frames=True)


def write_decoder(folder: Path, *, device: str = "cpu", **shape: Any) -> None:
    """A decoder of Llama's kind, in fields of its configuration; weights are drawn on ``device``.

    They are kept in bfloat16, as those of Llama 3 are.
    """
    from transformers import LlamaForCausalLM

    described = llama(**shape)
    torch.manual_seed(0)
    with torch.device(device):
        network = LlamaForCausalLM(described).bfloat16()
    network.save_pretrained(folder)
    _write_tokenizer(folder, described.vocab_size - 1, (END,), frames=False)


def llama(**shape: Any) -> Any:
    """A configuration whose answers end with the tokenizer's END."""
    from transformers import LlamaConfig

    return LlamaConfig(**{"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0, **shape})


def _write_tokenizer(folder: Path, words: int, special: tuple[str, ...], *, frames: bool) -> None:
    """Words w0, w1, ... behind the special tokens, which frame a text or pad and end one."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    known = {word: i for i, word in enumerate([*special, *(f"w{k}" for k in range(words))])}
    unknown = "[UNK]" if "[UNK]" in known else "w0"
    tokenizer = Tokenizer(models.WordLevel(known, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"eos_token": END, "pad_token": END}
    if frames:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B [SEP]",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
        kinds = {"pad_token": 0, "unk_token": 1, "cls_token": 2, "sep_token": 3, "mask_token": 4}
        names = {kind: SPECIAL[at] for kind, at in kinds.items()}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)  # type: ignore[no-untyped-call]


def write_reviews(folder: Path, *, words: int = WORDS, each: int = 40) -> None:
    """Reviews of 200 words in IMDb's layout, ``each`` of a label and split."""
    random = np.random.default_rng(0)
    for split in ("train", "test"):
        for label, rating in (("neg", 1), ("pos", 10)):
            (folder / split / label).mkdir(parents=True)
            for k in range(each):
                text = _text(random, words, 200)
                (folder / split / label / f"{k}_{rating}.txt").write_text(text)


def write_instructions(folder: Path, *, words: int, count: int = 80) -> None:
    """Instructions of 8 words and answers of 200 in Alpaca's layout."""
    random = np.random.default_rng(0)
    rows = [
        {
            "instruction": _text(random, words, 8),
            "input": "",
            "output": _text(random, words, 200),
        }
        for _ in range(count)
    ]
    folder.mkdir(parents=True)
    (folder / "alpaca_data.json").write_text(json.dumps(rows))


def _text(random: np.random.Generator, words: int, length: int) -> str:
    return " ".join(f"w{i}" for i in random.integers(words, size=length))
