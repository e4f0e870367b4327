"""Folder of a predictor, which needs this package alone: no data, no checkpoint.

arm.json      the configuration, and what the network asks of its task: scales, classes
weights.pt    the arm's weights, as the store keeps them
checkpoint/   of a pretrained network, every file of its checkpoint that is read
"""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import asdict
from pathlib import Path

import torch

from trainables.build import require_same_checkpoint
from trainables.config.arm import TRAINING_VERSION, ArmConfig
from trainables.datasets.text.tokenizer_files import tokenizer_files, tokenizer_folder
from trainables.errors import SweepError
from trainables.fetching.checkpoint_files import files_of
from trainables.records.arm_record import ArmRecord
from trainables.training import from_bytes

log = logging.getLogger(__name__)
ARM, WEIGHTS, CHECKPOINT = "arm.json", "weights.pt", "checkpoint"


def write_predictor(folder: Path, record: ArmRecord, weights: bytes) -> None:
    """Write what ``Predictor.load`` reads into an empty folder.

    Raises BadData where the arm's checkpoint is not here, or has changed.
    """
    config, measured = record.config, record.evaluation
    assert measured is not None  # of a finished arm
    classes = class_names(config, weights) if config.facts.reads_texts else []
    plain = config.to_json()
    plain["data"]["folder"] = None  # a place on this machine
    if config.model.checkpoint is not None:
        _copy_checkpoint(config, folder / CHECKPOINT)
        plain["model"]["checkpoint"] = CHECKPOINT
    arm = {
        "training_version": TRAINING_VERSION,
        "config": plain,
        "scales": asdict(measured.scales),
        "classes": classes,
    }
    (folder / ARM).write_text(json.dumps(arm, indent=2) + "\n", encoding="utf-8")
    (folder / WEIGHTS).write_bytes(weights)


def class_names(config: ArmConfig, weights: bytes) -> list[str]:
    """The data set's labels; their numbers, with a warning, where the data are not here."""
    from trainables.datasets.text.load import list_text

    state = from_bytes(weights, torch.device("cpu"))["model"]
    count = next(len(values) for name, values in state.items() if name.startswith("readout."))
    try:
        return list(list_text(config.data).labels)
    except SweepError as error:
        log.warning("classes are called by their numbers, since their names are unknown: %s", error)
        return [str(number) for number in range(count)]


def _copy_checkpoint(config: ArmConfig, folder: Path) -> None:
    require_same_checkpoint(config.model)
    name = str(config.model.checkpoint)
    files = files_of(name)
    if config.facts.reads_texts:
        files += tokenizer_files(tokenizer_folder(name))
    folder.mkdir()
    for file in files:
        shutil.copyfile(file, folder / file.name)
