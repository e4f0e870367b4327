"""Shapes that are measured on a GPU, as arms on imitated data; and tiny ones for a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.imitated.text_models import (
    WORDS,
    write_decoder,
    write_encoder,
    write_instructions,
    write_reviews,
)
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig

OF_TEXTS = ConstraintConfig(reference="virtual_layer0", reference_unit="constant")
DECODER_1B = {  # Llama 3.2 1B
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
TINY_DECODER = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
TINY_VIDEO = {
    "data.frame_size": 32,
    "data.patch_size": 8,
    "data.frames": 3,
    "batch_size": 8,
    "eval_windows": 4,
}
_FEW = {"steps": 4, "report_every": 2, "eval_windows": 2, "eval_draws": 1}


def shape(name: str, folder: Path, *, device: str, small: bool) -> ArmConfig:
    """The constrained arm of a name in ``SHAPES``; what it reads is written into ``folder``."""
    config = SHAPES[name](folder, device, small)
    return config.with_fields({"device": device, **(_FEW if small else {})})


def ut(_: Path, __: str, small: bool) -> ArmConfig:
    """Seven layers, patches of 16 x 16 pixels, batches of 32, on the built-in photographs."""
    return _on_photographs("ut", 3 if small else 7, 32, small)


def dust(_: Path, __: str, small: bool) -> ArmConfig:
    """Five layers of 576 atoms, batches of 16."""
    config = _on_photographs("dust", 3 if small else 5, 16, small)
    return config.with_fields({"model.atoms_per_side": 6}) if small else config


def distilbert(folder: Path, _: str, small: bool) -> ArmConfig:
    """An encoder of DistilBERT's size: 32 texts of 128 tokens, in bfloat16."""
    tiny = {"vocab_size": 512, "dim": 32, "hidden_dim": 64, "n_layers": 3, "n_heads": 4}
    write_encoder(folder / "encoder", **(tiny if small else {}))
    write_reviews(folder / "aclImdb", words=500 if small else WORDS)
    return ArmConfig(
        task="text_classification",
        data=DataConfig(
            name="imdb", folder=str(folder / "aclImdb"), max_length=32 if small else 128
        ),
        model=ModelConfig(
            name="encoder", layers=3 if small else 6, checkpoint=str(folder / "encoder")
        ),
        train_gamma=0.4,
        steps=60,
        report_every=30,
        batch_size=8 if small else 32,
        primal_lr=3e-5,
        readout_lr=1e-3,
        eval_draws=2,
        dtype="bfloat16",
        constraint=OF_TEXTS,
    )


def decoder_1b(folder: Path, device: str, small: bool) -> ArmConfig:
    """A decoder of Llama 3.2 1B's size with LoRA of rank 16: 8 texts of 112 tokens, in bfloat16."""
    described: dict[str, Any] = TINY_DECODER if small else DECODER_1B
    write_decoder(folder / "decoder", device=device, **described)
    write_instructions(folder / "alpaca", words=described["vocab_size"] - 1)
    return ArmConfig(
        task="instruction_tuning",
        data=DataConfig(
            name="alpaca",
            folder=str(folder / "alpaca"),
            max_length=48 if small else 112,  # below what an estimate takes Alpaca's texts for
            template="plain",
        ),
        model=ModelConfig(
            name="decoder",
            layers=described["num_hidden_layers"],
            checkpoint=str(folder / "decoder"),
            lora_rank=4 if small else 16,
        ),
        train_gamma=0.25,
        test_gammas=(0.0, 0.25, 0.5, 1.0),
        steps=20,
        report_every=10,
        batch_size=4 if small else 8,
        primal_lr=1e-4,
        eval_windows=16,
        eval_draws=1,
        dtype="bfloat16",
        constraint=OF_TEXTS,
    )


SHAPES = {"ut": ut, "dust": dust, "distilbert": distilbert, "decoder_1b": decoder_1b}


def _on_photographs(model: str, layers: int, batch: int, small: bool) -> ArmConfig:
    config = ArmConfig(
        data=DataConfig(name="photographs"),
        model=ModelConfig(name=model, layers=layers),
        steps=200,
        report_every=100,
        batch_size=batch,
        constraint=ConstraintConfig(),
    )
    return config.with_fields(TINY_VIDEO if small else {})
