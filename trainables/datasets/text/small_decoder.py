"""Small decoder made here: a Llama-like configuration, and words of a data set.

    python -m trainables.datasets.text.small_decoder FOLDER --data ALPACA [--layers 4] [--width 128]

writes config.json and a tokenizer (byte-level BPE, learnt from the training split's prompts and
answers) into FOLDER, for runs of model ``decoder`` whose variant is ``scratch``: they draw the
weights themselves. For machines and questions too small for a pretrained decoder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from trainables.config.arm import DataConfig
from trainables.errors import SweepError, require

END = "<|end|>"  # of an answer; it pads, too
HEAD_WIDTH = 32


def write_small_decoder(
    folder: Path, texts: Iterable[str], *, layers: int, width: int, words: int, positions: int
) -> None:
    """Write the folder of a decoder that has no weights yet.

    Args:
        folder: made where it is missing.
        texts: what the tokenizer's words are learnt from.
        layers: blocks.
        width: H, a multiple of 32: heads are 32 wide.
        words: V, at most; 257 or more: every byte is one, and the end of an answer.
        positions: tokens of the longest sample.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    require(width > 0 and width % HEAD_WIDTH == 0, "width", width, f"a multiple of {HEAD_WIDTH}")
    require(words > 256, "words", words, "257 or more")
    require(layers > 0, "layers", layers, "1 or more")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=words,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    whole = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token=END, pad_token=END
    )
    end = whole.eos_token_id
    config = LlamaConfig(
        vocab_size=len(whole),
        hidden_size=width,
        intermediate_size=8 * width // 3 // HEAD_WIDTH * HEAD_WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=width // HEAD_WIDTH,
        max_position_embeddings=positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=end,
    )
    folder.mkdir(parents=True, exist_ok=True)
    whole.save_pretrained(folder)
    config.save_pretrained(folder)


def main(arguments: list[str] | None = None) -> int:
    """Read the data and write the folder; returns the exit code."""
    from trainables.datasets.text.load import load_text

    parser = argparse.ArgumentParser(
        prog="python -m trainables.datasets.text.small_decoder",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("folder", type=Path, help="where it is written")
    parser.add_argument("--data", required=True, help="the folder of the data set")
    parser.add_argument("--name", default="alpaca", help="its name (default: alpaca)")
    for option, default in {"layers": 4, "width": 128, "words": 2048, "positions": 512}.items():
        parser.add_argument(f"--{option}", type=int, default=default, help=f"default: {default}")
    given = parser.parse_args(arguments)
    try:
        read = load_text(DataConfig(name=given.name, folder=given.data), group="instructions")
        texts = [text for e in read.split("train") for text in (e.text, e.pair or "")]
        write_small_decoder(
            given.folder,
            texts,
            layers=given.layers,
            width=given.width,
            words=given.words,
            positions=given.positions,
        )
    except SweepError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{given.folder} holds a decoder of {given.layers} layers, {given.width} wide.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
