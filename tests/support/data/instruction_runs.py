"""Tiny runs on instructions: a file like Alpaca's, and a small decoder, written by the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from trainables.build import build_model, build_task, parameter_dtype
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig
from trainables.datasets.text.small_decoder import write_small_decoder
from trainables.layer_losses import introduce
from trainables.tasks.instruction_tuning import InstructionTuning

LONGEST = 48  # tokens of a sample
LAYERS = 3
_NOUNS = ("river", "engine", "poem", "island", "market", "planet", "teacher", "violin", "forest")
_VERBS = ("Describe", "Name", "Compare", "Draw", "Rewrite", "Count")


def rows(count: int = 54) -> list[dict[str, str]]:
    """Instructions that differ, every third with an input, and answers of differing length."""
    made = []
    for i in range(count):
        noun, verb = _NOUNS[i % len(_NOUNS)], _VERBS[i // len(_NOUNS) % len(_VERBS)]
        answer = " ".join([f"The {noun} is old."] * (1 + i % 3))
        given = f"a {noun} of {i}" if i % 3 == 0 else ""
        made.append({"instruction": f"{verb} the {noun} {i}.", "input": given, "output": answer})
    return made


def write_alpaca(folder: Path, count: int = 54) -> Path:
    """The file in a folder of its own."""
    folder.mkdir(parents=True)
    (folder / "alpaca_data.json").write_text(json.dumps(rows(count)))
    return folder


def tiny_instructions(root: Path, **fields: Any) -> ArmConfig:
    """A constrained run of a decoder of 3 blocks that starts from scratch, all below ``root``."""
    data, folder = root / "alpaca", root / "decoder"
    if not data.exists():
        write_alpaca(data)
        texts = [text for row in rows() for text in row.values()]
        write_small_decoder(folder, texts, layers=LAYERS, width=32, words=300, positions=LONGEST)
    config = ArmConfig(
        task="instruction_tuning",
        data=DataConfig(
            name="alpaca", folder=str(data), dev_fraction=0.3, max_length=LONGEST, template="plain"
        ),
        model=ModelConfig(name="decoder", variant="scratch", layers=LAYERS, checkpoint=str(folder)),
        train_gamma=0.25,
        test_gammas=(0.0, 0.25, 0.5, 1.0),
        steps=4,
        batch_size=4,
        report_every=2,
        eval_windows=6,
        eval_draws=2,
        constraint=ConstraintConfig(
            alpha=0.05, reference="virtual_layer0", reference_unit="constant", dual_lr=0.05
        ),
    )
    return config.with_fields(fields)


def instruction_task(config: ArmConfig) -> InstructionTuning:
    """The task of a run, its noise calibrated on the run's own model."""
    task = build_task(config, torch.device("cpu"), parameter_dtype(config))
    assert isinstance(task, InstructionTuning)
    introduce(build_model(config, task), task)
    return task
