"""Small decoder made here: a Llama-like configuration, and words of a data set.

    python -m trainables.datasets.text.small_decoder FOLDER --data ALPACA [--epochs 5]

writes config.json and a tokenizer (byte-level BPE, learnt from the training split's prompts and
answers) into FOLDER, and with ``--epochs`` weights that were trained to write on in those texts,
for runs of model ``decoder`` on the same splits (their data.template and data.dev_fraction).
Without weights its variant is ``scratch``: runs draw their own. For machines and questions
too small for a published decoder.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from trainables.config.arm import DataConfig
from trainables.config.renamed import RENAMED
from trainables.errors import SweepError, require

END = "<|end|>"  # of an answer; it pads, too
HEAD_WIDTH = 32
WINDOW, BATCH, RATE = 128, 16, 3e-3  # of its training


def write_small_decoder(
    folder: Path, texts: Sequence[str], *, layers: int, width: int, words: int, positions: int
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
    wrapped = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token=END, pad_token=END
    )
    end = wrapped.eos_token_id
    config = LlamaConfig(
        vocab_size=len(wrapped),
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
    wrapped.save_pretrained(folder)
    config.save_pretrained(folder)


def pretrain(folder: Path, texts: Sequence[str], *, epochs: int, seed: int = 0) -> list[float]:
    """Train the decoder in ``folder`` to write on, and put its weights there.

    The texts, an end after each, are one stream of windows of WINDOW tokens, in a new order every
    epoch; AdamW with a linear warm-up and fall.

    Returns:
        the mean loss of every epoch, in nats by token.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [i for text in texts for i in (*tokenizer(text)["input_ids"], tokenizer.eos_token_id)]
    count = len(ids) // WINDOW
    require(count >= BATCH, "texts", f"{len(ids)} tokens", f"{BATCH * WINDOW} tokens or more")
    windows = torch.tensor(ids[: count * WINDOW]).view(count, WINDOW)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        described = AutoConfig.from_pretrained(folder)
        network = AutoModelForCausalLM.from_config(described)  # type: ignore[no-untyped-call]
        steps = epochs * (count // BATCH)
        optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda k: min((k + 1) / (0.05 * steps + 1), (steps - k) / (0.95 * steps))
        )
        epoch_losses = []
        for _ in range(epochs):
            losses = []
            for rows in torch.randperm(count)[: count // BATCH * BATCH].view(-1, BATCH):
                loss = network(input_ids=windows[rows], labels=windows[rows]).loss
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                losses.append(loss.detach())
            epoch_losses.append(float(torch.stack(losses).mean()))
    network.save_pretrained(folder)
    return epoch_losses


class _Renamed(argparse.Action):
    """An option by an earlier name, refused with its present one."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        name = RENAMED[self.dest].replace("_", "-")
        parser.error(f"{self.option_strings[0]} is called --{name} now.")


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
    for option, default in {"layers": 4, "width": 128, "words": 2048, "positions": 1024}.items():
        parser.add_argument(f"--{option}", type=int, default=default, help=f"default: {default}")
    # as the space has them, or what was trained on here is held out there
    parser.add_argument("--template", default="plain", help="data.template of the runs (plain)")
    parser.add_argument("--dev-fraction", type=float, default=0.1, help="data.dev_fraction (0.1)")
    parser.add_argument("--dev-share", action=_Renamed, help=argparse.SUPPRESS)
    parser.add_argument("--epochs", type=int, default=0, help="of training (default: none)")
    given = parser.parse_args(arguments)
    try:
        data = DataConfig(
            name=given.name,
            folder=given.data,
            template=given.template,
            dev_fraction=given.dev_fraction,
        )
        read = load_text(data, group="instructions")
        texts = [f"{example.text}{example.pair}" for example in read.split("train")]
        write_small_decoder(
            given.folder,
            texts,
            layers=given.layers,
            width=given.width,
            words=given.words,
            positions=given.positions,
        )
        started = time.monotonic()
        if given.epochs > 0:
            losses = pretrain(given.folder, texts, epochs=given.epochs)
            shown = ", ".join(f"{loss:.2f}" for loss in losses)
            print(f"loss by epoch: {shown}; {time.monotonic() - started:.0f} s")
    except SweepError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{given.folder} holds a decoder of {given.layers} layers, {given.width} wide.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
