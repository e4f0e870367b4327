"""Tiny runs on texts: a small real data set and a small checkpoint, both written by the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.support.data.text_checkpoints import tiny_encoder
from tests.support.data.text_folders import TEXT_LAYOUTS
from tests.support.data.tokenizer_folders import BERT_TOKENS, write_bert
from trainables.build import build_model, build_task, parameter_dtype
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig
from trainables.layer_losses import introduce
from trainables.tasks.base import Batch, Tokens
from trainables.tasks.text_classification import TextClassification

LONGEST = 32  # tokens of a text
# Two steps of what the spaces train, on texts of 32 tokens, measured on one unit.
TINY = {
    "data.max_length": LONGEST, "data.dev_fraction": 0.3, "batch_size": 4, "steps": 2,
    "report_every": 2, "eval_windows": 1, "eval_draws": 1, "test_gammas": "[0.0,0.4,1.2,2.0]",
    "n_proposals": 1, "search_seeds": "[0]", "sampler": "random", "device": "cpu",
}  # fmt: skip


def tiny_text(root: Path, layout: str = "imdb without films", **fields: Any) -> ArmConfig:
    """A constrained run of an encoder of 3 blocks, on texts that lie in ``root``."""
    known = TEXT_LAYOUTS[layout]
    data = DataConfig(
        name=known.data_set,
        folder=str(known.write(root / known.folder)),
        dev_fraction=0.4,
        max_length=LONGEST,
    )
    config = ArmConfig(
        task="text_classification",
        data=data,
        model=ModelConfig(name="encoder", layers=3, checkpoint=checkpoint_in(root / "model")),
        train_gamma=0.4,
        test_gammas=(0.0, 0.4, 0.6, 0.8, 2.0),
        steps=4,
        batch_size=4,
        report_every=2,
        eval_windows=6,
        eval_draws=2,
        constraint=ConstraintConfig(
            alpha=0.1, reference="virtual_layer0", reference_unit="constant", dual_lr=0.05
        ),
    )
    return config.with_fields(fields)


def checkpoint_in(folder: Path) -> str:
    """A network of BERT's kind beside its own tokenizer."""
    write_bert(folder)
    tiny_encoder(
        folder, "bert", vocab_size=len(BERT_TOKENS), max_position_embeddings=LONGEST, pad_token_id=0
    )
    return str(folder)


def text_task(config: ArmConfig, device: str = "cpu") -> TextClassification:
    """The task of a run, its noise calibrated on the run's own model."""
    task = build_task(config, torch.device(device), parameter_dtype(config))
    assert isinstance(task, TextClassification)
    introduce(build_model(config, task).to(device), task)
    return task


def tokens_of(batch: Batch) -> Tokens:
    assert isinstance(batch.inputs, Tokens)
    return batch.inputs


def noise_of(batch: Batch) -> Tensor:
    noise = tokens_of(batch).noise
    assert noise is not None
    return noise


def by_sample(batches: Iterator[Batch]) -> dict[tuple[object, ...], tuple[int, Tensor | None]]:
    """Unit, tokens and occurrence -> (label, noise without padding), whatever the batches were."""
    found: dict[tuple[object, ...], tuple[int, Tensor | None]] = {}
    for batch in batches:
        given = tokens_of(batch)
        for row, unit in enumerate(batch.units):
            mask = given.attention_mask[row]
            noise = None if given.noise is None else given.noise[row][mask]
            key = (unit, tuple(given.ids[row][mask].tolist()))
            found[(*key, sum(k[:2] == key for k in found))] = (int(batch.targets[row]), noise)
    return found
