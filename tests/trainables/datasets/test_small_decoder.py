"""Small decoder that is made here: its tokenizer, its training, and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.support.data.instruction_runs import write_alpaca
from trainables.datasets.text.small_decoder import END, main, pretrain, write_small_decoder
from trainables.errors import InvalidValue

TEXTS = [f"{i} and {i + 1} make {2 * i + 1}; a wörd." for i in range(400)]


def test_its_tokens_decode_to_any_text_and_end_in_one_of_their_own(tmp_path: Path) -> None:
    write_small_decoder(tmp_path, TEXTS, layers=2, width=32, words=300, positions=16)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    for text in (*TEXTS[:3], "日本 \n\t unseen"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.eos_token == tokenizer.pad_token == END
    assert len(tokenizer) <= 300


@pytest.mark.slow
def test_training_lowers_the_loss_of_texts_and_is_the_same_again(tmp_path: Path) -> None:
    losses, weights = [], []
    for folder in (tmp_path / "a", tmp_path / "b"):
        write_small_decoder(folder, TEXTS, layers=2, width=32, words=300, positions=128)
        losses.append(pretrain(folder, TEXTS * 6, epochs=4))
        network = AutoModelForCausalLM.from_pretrained(folder)
        weights.append(torch.nn.utils.parameters_to_vector(network.parameters()))
    assert losses[0] == losses[1]
    assert torch.equal(*weights)
    assert losses[0][-1] < 0.8 * losses[0][0] < math.log(300)


def test_sizes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for wrong, message in (
        ({"width": 30}, "width must be a multiple of 32, got 30"),
        ({"words": 256}, "words must be 257 or more, got 256"),
        ({"layers": 0}, "layers must be 1 or more, got 0"),
    ):
        sizes = {"layers": 2, "width": 32, "words": 300, "positions": 16} | wrong
        with pytest.raises(InvalidValue, match=message):
            write_small_decoder(tmp_path / "x", TEXTS, **sizes)
    write_small_decoder(tmp_path, TEXTS, layers=1, width=32, words=300, positions=16)
    with pytest.raises(InvalidValue, match="texts must be 2048 tokens or more, got"):
        pretrain(tmp_path, TEXTS[:2], epochs=1)


def test_its_command_reads_the_training_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_alpaca(tmp_path / "alpaca")
    words = [str(tmp_path / "made"), "--data", str(data), "--width", "32", "--words", "300"]
    assert main(words) == 0
    assert "holds a decoder of 4 layers, 32 wide" in capsys.readouterr().out
    assert main([*words[:1], "--data", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*words, "--dev-share", "0.2"])
    assert "--dev-share is called --dev-fraction now." in capsys.readouterr().err
