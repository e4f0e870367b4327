"""Table of the built-in models, tasks and data sets: one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from trainables.registry.specs import ModelSpec, TaskSpec
from trainables.registry.task_facts import (
    ACCURACY,
    INSTRUCTION_DATA,
    RMSE,
    SAMPLES_PER_UNIT,
    TEXT_DATA,
    TOKEN_ACCURACY,
    VIDEO_DATA,
    TaskFacts,
)

Group = Literal["models", "tasks", "videos", "texts", "instructions"]

MODELS = {
    "ut": ModelSpec(
        task="video_denoising",
        build="trainables.models.ut:build",
        variants=("distance", "sharp", "literal"),
        folded=("distance", "sharp"),
        fixed_start=True,
        ends_in_relu=True,
    ),
    "dust": ModelSpec(
        task="video_denoising",
        build="trainables.models.dust:build",
        variants=("per_layer", "shared", "paper"),
        fixed_start=True,
        options=("atoms_per_side", "threshold"),
        unmatched=("paper",),
    ),
    "vit": ModelSpec(
        task="frame_denoising",
        build="trainables.models.vit:build",
        variants=("blocks",),
        options=("checkpoint",),
        needs_data=False,
    ),
    "encoder": ModelSpec(
        task="text_classification",
        build="trainables.models.encoder:build",
        variants=("blocks",),
        options=("checkpoint", "pooling", "lora_rank", "recompute"),
        pooling="cls",
        open_depth=True,
        needs_data=False,
    ),
    "text_ut": ModelSpec(
        task="text_classification",
        build="trainables.models.text_ut:build",
        variants=("literal",),
        options=("checkpoint", "pooling"),
        pooling="mean",
        needs_data=False,
    ),
    "decoder": ModelSpec(
        task="instruction_tuning",
        build="trainables.models.decoder:build",
        variants=("blocks", "scratch"),
        options=("checkpoint", "lora_rank", "recompute"),
        open_depth=True,
        needs_data=False,
    ),
}

_OF_FRAMES = ("blur", "salt_and_pepper", "brightness", "compression", "occlusion")  # shifts
_OF_VIDEO = TaskFacts(
    data=VIDEO_DATA,
    shifts=(*_OF_FRAMES, "frame_drop"),
    metric=RMSE,
    near_shift=0.10,
    has_identity=True,
    samples="clips",
    noise_unit="the noise's std over that of the clean pixels",
    sample_shape=lambda data: (data.frames, data.patch_size**2),
    samples_per_unit=lambda data: (data.frame_size // data.patch_size) ** 2,
)
TASKS = {
    "video_denoising": TaskSpec(
        facts=_OF_VIDEO,
        build="trainables.tasks.video_denoising:VideoDenoising",
        resolve="trainables.datasets.video.load:resolve",
    ),
    "frame_denoising": TaskSpec(
        facts=replace(
            _OF_VIDEO,
            data=tuple(name for name in VIDEO_DATA if name != "shuffle_by"),
            shifts=_OF_FRAMES,
            sample_shape=lambda data: (3, data.frame_size, data.frame_size),
            samples_per_unit=lambda data: data.frames,
        ),
        build="trainables.tasks.frame_denoising:FrameDenoising",
        resolve="trainables.datasets.video.load:resolve",
    ),
    "text_classification": TaskSpec(
        facts=TaskFacts(
            data=TEXT_DATA,
            shifts=("token_drop", "token_swap", "typos"),
            metric=ACCURACY,
            near_shift=0.40,
            has_identity=False,
            needs_tokenizer=True,
            samples="texts",
            noise_unit="the noise's std over that of the clean word embeddings",
            sample_shape=lambda data: (data.max_length,),
            samples_per_unit=lambda data: SAMPLES_PER_UNIT,
            test_gammas=tuple(round(0.2 * i, 2) for i in range(11)),
        ),
        build="trainables.tasks.text_classification:TextClassification",
        resolve="trainables.datasets.text.load:resolve",
    ),
    "instruction_tuning": TaskSpec(
        facts=TaskFacts(
            data=INSTRUCTION_DATA,
            shifts=(),
            metric=TOKEN_ACCURACY,
            near_shift=0.40,
            has_identity=False,
            needs_tokenizer=True,
            answers=True,
            samples="instructions",
            noise_unit="the noise's std over that of the clean word embeddings",
            sample_shape=lambda data: (data.max_length,),
            samples_per_unit=lambda data: 1,
            test_gammas=tuple(round(0.1 * i, 2) for i in range(11)),
        ),
        build="trainables.tasks.instruction_tuning:InstructionTuning",
        resolve="trainables.datasets.text.load:resolve_instructions",
    ),
}

# By the name of a DataSetSpec in the data set's own file, as an entry point would give it.
VIDEOS = {
    "photographs": "trainables.datasets.video.photographs:DATA_SET",
    "ucsd_ped2": "trainables.datasets.video.ucsd:PED2",
    "ucsd_ped1": "trainables.datasets.video.ucsd:PED1",
    "cuhk_avenue": "trainables.datasets.video.avenue:DATA_SET",
    "shanghaitech": "trainables.datasets.video.shanghaitech:DATA_SET",
    "clips": "trainables.datasets.video.own_clips:DATA_SET",
}
TEXTS = {
    "imdb": "trainables.datasets.text.imdb:DATA_SET",
    "mnli": "trainables.datasets.text.mnli:DATA_SET",
    "hf:NAME": "trainables.datasets.text.hub:DATA_SET",  # every name that starts so
}
INSTRUCTIONS = {
    "alpaca": "trainables.datasets.text.alpaca:DATA_SET",
    "hf:NAME": "trainables.datasets.text.alpaca:HUB",  # every name that starts so
}
BUILT_IN: Mapping[Group, Mapping[str, object]] = {
    "models": MODELS,
    "tasks": TASKS,
    "videos": VIDEOS,
    "texts": TEXTS,
    "instructions": INSTRUCTIONS,
}
