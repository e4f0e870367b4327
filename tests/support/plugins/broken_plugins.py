"""Models, tasks and data sets that each break one promise of the contract suite, and whole ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from trainables.config.arm import ArmConfig, DataConfig
from trainables.datasets.text import load as text
from trainables.datasets.text.examples import RawExample, RawSplit, RawText
from trainables.datasets.video import load as video
from trainables.datasets.video.clips import Pixels, RawClip, RawVideo
from trainables.models.base import TextInputs
from trainables.models.readout import TextClassifier
from trainables.models.text_ut import text_ut
from trainables.registry import DataSetSpec, ModelSpec, TaskSpec
from trainables.registry.built_in import TASKS
from trainables.tasks.base import Batch, Task, Tokens
from trainables.tasks.text_classification import TextClassification
from trainables.tasks.video_denoising import VideoDenoising

# --- models: the variants of one plug-in ----------------------------------------------------------


class Whole(nn.Module):
    """What the broken ones are made of: every layer adds a linear map."""

    def __init__(self, layers: int, pixels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(pixels, pixels) for _ in range(layers))

    def forward(self, inputs: Tensor) -> list[Tensor]:
        predictions = [inputs]
        for layer in self.layers:
            predictions.append(predictions[-1] + layer(predictions[-1]))
        return predictions


class WithoutLayer0(Whole):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        return super().forward(inputs)[1:]


class OfAnotherShape(Whole):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        return [prediction[..., :1] for prediction in super().forward(inputs)]


class Overflowing(Whole):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        return [prediction / 0 for prediction in super().forward(inputs)]


class InDouble(Whole):
    def to(self, *args: Any, **kwargs: Any) -> Any:
        return super().to(torch.float64)

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return super().forward(inputs.double())


class CoarseUnderAutocast(Whole):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        predictions = super().forward(inputs)
        if torch.is_autocast_enabled("cpu"):
            return [(2 * prediction).round() / 2 for prediction in predictions]
        return predictions


class WithDropout(Whole):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        return [nn.functional.dropout(p, 0.1, self.training) for p in super().forward(inputs)]


class DrawnByNumPy(Whole):
    def __init__(self, layers: int, pixels: int) -> None:
        super().__init__(layers, pixels)
        drawn = np.random.default_rng().normal(size=(pixels, pixels))
        self.layers[0].weight.data = torch.tensor(0.1 * drawn, dtype=torch.float32)


class WithIdleParameter(Whole):
    def __init__(self, layers: int, pixels: int) -> None:
        super().__init__(layers, pixels)
        self.idle = nn.Parameter(torch.zeros(1))


class Backwards(Whole):
    def forward(self, inputs: Tensor) -> list[Tensor]:
        first, *others, last = super().forward(inputs)
        return [first, *others[::-1], last]


class Forgetful(Whole):
    """It counts its steps, predicts by them, and does not keep the count."""

    def __init__(self, layers: int, pixels: int) -> None:
        super().__init__(layers, pixels)
        self.register_buffer("steps", torch.zeros(()), persistent=False)
        self.layers[0].weight.register_hook(self._count)

    def _count(self, gradient: Tensor) -> None:
        self.steps += 1

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return [prediction + 0.01 * self.steps for prediction in super().forward(inputs)]


MODELS: dict[str, type[Whole]] = {
    kind.__name__: kind
    for kind in (
        *(Whole, WithoutLayer0, OfAnotherShape, Overflowing, InDouble, CoarseUnderAutocast),
        *(WithDropout, DrawnByNumPy, WithIdleParameter, Backwards, Forgetful),
    )
}


def _build(config: ArmConfig, task: Task) -> nn.Module:
    if config.model.variant == "DeeperInOneArm":
        return Whole(config.model.layers + (config.constraint is None), 16)
    return MODELS[config.model.variant](config.model.layers, 16)


MODEL = ModelSpec(task="video_denoising", build=_build, variants=(*MODELS, "DeeperInOneArm"))


class ReadsPadding(TextClassifier):
    def features(self, inputs: TextInputs) -> list[Tensor]:
        return [state.mean(1) for state in self.states(inputs)]


def _build_text(config: ArmConfig, task: Task) -> nn.Module:
    made = text_ut(
        str(config.model.checkpoint), layers=2, classes=2, pooling="mean", seed=config.seed
    )
    return ReadsPadding(made.words, made.states, made.readout)


TEXT_MODEL = ModelSpec(task="text_classification", build=_build_text, options=("checkpoint",))

# --- tasks ----------------------------------------------------------------------------------------


class OfAnotherType(VideoDenoising):
    def __init__(self, config: ArmConfig, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(config, device, dtype)
        self.dtype = torch.float64


class DrawnGlobally(VideoDenoising):
    def train_batch(self, step: int) -> Batch:
        batch = super().train_batch(step)
        return replace(batch, inputs=batch.inputs + 0.1 * torch.randn(batch.inputs.shape))


class OfOneSeed(VideoDenoising):
    def __init__(self, config: ArmConfig, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(replace(config, seed=0), device, dtype)


class ByArm(VideoDenoising):
    def train_batch(self, step: int) -> Batch:
        batch = super().train_batch(step)
        more = 0.01 * (self._config.constraint is None)
        return replace(batch, inputs=batch.inputs + more)


class JudgedBySeed(VideoDenoising):
    def held_out(self, split: str, gamma: float, draw: int) -> Iterator[Batch]:
        return super().held_out(split, gamma, draw + self._config.seed)


class WithoutAUnit(VideoDenoising):
    def held_out(self, split: str, gamma: float, draw: int) -> Iterator[Batch]:
        batches = super().held_out(split, gamma, draw)
        next(batches)
        return batches


class Undisturbed(VideoDenoising):
    def held_out(self, split: str, gamma: float, draw: int) -> Iterator[Batch]:
        return super().held_out(split, 0.0, draw)


class OfNegativeLoss(VideoDenoising):
    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return super().loss(prediction, targets) - 1000


class WithShiftedTargets(VideoDenoising):
    def shifted(self, split: str, shift: str, severity: float, draw: int) -> Iterator[Batch]:
        for batch in super().shifted(split, shift, severity, draw):
            yield replace(batch, targets=batch.targets + severity)


class WithNoisyPadding(TextClassification):
    def train_batch(self, step: int) -> Batch:
        batch = super().train_batch(step)
        assert isinstance(batch.inputs, Tokens)
        noise = torch.ones_like(batch.inputs.noise)
        return replace(batch, inputs=replace(batch.inputs, noise=noise))


def _of_any_content(data: DataConfig) -> DataConfig:
    return replace(data, fingerprint="the same")


def _of_videos(build: Any, resolve: Any = video.resolve, **facts: Any) -> TaskSpec:
    known = replace(TASKS["video_denoising"].facts, models=("ut",), **facts)
    return TaskSpec(facts=known, build=build, resolve=resolve)


WHOLE = _of_videos(VideoDenoising)
UNKNOWN_DATA = _of_videos(VideoDenoising, resolve=lambda data: data)
ANY_DATA = _of_videos(VideoDenoising, resolve=_of_any_content)
OF_ANOTHER_TYPE = _of_videos(OfAnotherType)
DRAWN_GLOBALLY = _of_videos(DrawnGlobally)
OF_ONE_SEED = _of_videos(OfOneSeed)
BY_ARM = _of_videos(ByArm)
JUDGED_BY_SEED = _of_videos(JudgedBySeed)
WITHOUT_A_UNIT = _of_videos(WithoutAUnit)
UNDISTURBED = _of_videos(Undisturbed)
OF_NEGATIVE_LOSS = _of_videos(OfNegativeLoss)
WITHOUT_IDENTITY = _of_videos(VideoDenoising, has_identity=False)
UNNAMED_REFERENCE = _of_videos(
    VideoDenoising, metric=replace(TASKS["video_denoising"].facts.metric, references=("constant",))
)
WITH_SHIFTED_TARGETS = _of_videos(WithShiftedTargets)
WITH_NOISY_PADDING = TaskSpec(
    facts=replace(TASKS["text_classification"].facts, models=("encoder",)),
    build=WithNoisyPadding,
    resolve=text.resolve,
)

# --- data sets ------------------------------------------------------------------------------------


def _listed(function: Callable[[DataConfig], RawVideo | RawText]) -> DataSetSpec:
    return DataSetSpec(list=function)


def _clip(name: str, first: int, kind: Literal["whole", "float", "random"] = "whole") -> RawClip:
    def frames() -> Iterator[Pixels]:
        for number in range(first, first + 4):
            key = None if kind == "random" else (number,)
            drawn = np.random.default_rng(key).integers(0, 256, (8, 8), dtype=np.uint8)
            yield drawn / 255 if kind == "float" else drawn

    return RawClip(name, frames)


def _videos(*train: RawClip, test: RawClip) -> RawVideo:
    return RawVideo(train=train, test=(test,), listing=(), root="written by a test")


@_listed
def whole_videos(data: DataConfig) -> RawVideo:
    return _videos(_clip("a", 0), _clip("b", 10), test=_clip("c", 20))


@_listed
def shared_frames(data: DataConfig) -> RawVideo:
    return _videos(_clip("a", 0), _clip("b", 10), test=_clip("c", 3))


@_listed
def float_frames(data: DataConfig) -> RawVideo:
    return _videos(_clip("a", 0), _clip("b", 10, "float"), test=_clip("c", 20))


@_listed
def random_frames(data: DataConfig) -> RawVideo:
    return _videos(_clip("a", 0), _clip("b", 10), test=_clip("c", 20, "random"))


@_listed
def one_name(data: DataConfig) -> RawVideo:
    return _videos(_clip("a", 0), _clip("a", 10), test=_clip("c", 20))


@_listed
def no_test(data: DataConfig) -> RawVideo:
    first, second = _clip("a", 0), _clip("b", 10)
    return RawVideo(train=(first, second), test=(), listing=(), root="written by a test")


def _texts(labels: tuple[str, ...], first: str = "", last: str = "") -> RawText:
    def read(split: str) -> RawSplit:
        texts = [first or f"{split} 0{last}", *(f"{split} {i}{last}" for i in range(1, 12))]
        return RawSplit([RawExample(t, None, i % 2) for i, t in enumerate(texts)])

    return RawText(labels=labels, read=read, listing=(), root="written by a test")


@_listed
def whole_texts(data: DataConfig) -> RawText:
    return _texts(("bad", "good"))


@_listed
def labels_of_one_name(data: DataConfig) -> RawText:
    return _texts(("bad", "bad"))


@_listed
def an_empty_text(data: DataConfig) -> RawText:
    return _texts(("bad", "good"), first=" ")


@_listed
def texts_by_chance(data: DataConfig) -> RawText:
    return _texts(("bad", "good"), last=f" {np.random.default_rng().random()}")
