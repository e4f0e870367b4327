"""Task facts known without loading it: its fields, metric and kind of data.

They say which metric a task reports, in which unit, and whether higher is better. A field that a
task never reads must keep its default, so that two runs that train alike have one signature and
nobody tunes what does nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

VIDEO_DATA = (
    "frame_size", "patch_size", "frames", "stride", "shuffle_by", "max_clips", "split_by_seed",
)  # fmt: skip
TEXT_DATA = ("max_length", "max_items", "split_by_seed")
INSTRUCTION_DATA = (*TEXT_DATA, "template")
# of texts: eval_windows stand for so many samples each, however large groups are (a premise has 3,
# an IMDb film about 7)
SAMPLES_PER_UNIT = 3


@dataclasses.dataclass(frozen=True)
class Metric:
    """Metric that a task reports at every test gamma. The objective is always minimised."""

    key: str  # in the names of columns and files
    label: str  # in tables
    unit: str  # in words, after the label
    higher_is_better: bool
    references: tuple[str, ...]  # predictors that need no training and stand beside both arms
    shown: tuple[str, ...]  # those of them that short tables have room for
    smallest_effect: float  # of interest to a reader: two arms closer than this are equivalent

    @property
    def direction(self) -> str:
        """Direction that is better, in words."""
        return f"{'higher' if self.higher_is_better else 'lower'} is better"

    def gain(self, score: float, baseline: float) -> float:
        """Gain of a score over that of the baseline, in the metric's unit; above 0 it is better.

        >>> RMSE.gain(11.2, 11.5) == ACCURACY.gain(11.5, 11.2) > 0
        True
        """
        return score - baseline if self.higher_is_better else baseline - score


def reference_label(name: str) -> str:
    """Label in tables of a predictor that needs no training.

    >>> reference_label("wiener"), reference_label("wiener_train")
    ('Wiener', 'Wiener (train)')
    """
    return {"wiener_train": "Wiener (train)"}.get(name, name.capitalize().replace("_", " "))


RMSE = Metric(
    key="rmse",
    label="RMSE",
    unit="grey levels",
    higher_is_better=False,
    references=("identity", "constant", "wiener", "wiener_train", "wiener_temporal"),
    shown=("identity", "wiener", "wiener_train"),
    smallest_effect=0.2,
)
ACCURACY = Metric(
    key="accuracy",
    label="accuracy",
    unit="fractions of samples",
    higher_is_better=True,
    references=("constant",),
    shown=("constant",),
    smallest_effect=0.01,
)
TOKEN_ACCURACY = dataclasses.replace(
    ACCURACY,
    key="token_accuracy",
    label="token accuracy",
    unit="fractions of an answer's tokens",
    smallest_effect=0.005,
)

DataGroup = Literal["videos", "texts", "instructions"]


@dataclasses.dataclass(frozen=True)
class TaskFacts:
    """Facts of one task: the fields that it alone reads, its metric, data and units."""

    data: tuple[str, ...]  # fields of DataConfig that only such tasks read
    shifts: tuple[str, ...]  # beside Gaussian noise
    metric: Metric
    near_shift: float  # the objective looks at gammas in (train_gamma, train_gamma + this]
    has_identity: bool  # whether returning the input is a prediction
    samples: str  # what held-out units are made of, in messages
    noise_unit: str  # what a gamma of 1 is
    sample_shape: Callable[..., tuple[int, ...]]
    # ^ DataConfig -> of what a model is given of one sample: a tensor, or as many token ids
    samples_per_unit: Callable[..., int]  # DataConfig -> about so many has a held-out unit
    test_gammas: tuple[float, ...] = tuple(round(0.05 * i, 2) for i in range(11))
    # ^ what a run is scored at unless it names others
    models: tuple[str, ...] = ()  # that it takes beside those that say they are for it
    needs_tokenizer: bool = False  # whether a model must have a checkpoint, for its tokenizer
    answers: bool = False  # whether samples are instructions with an answer to write

    @property
    def reads_texts(self) -> bool:
        """True if samples are texts, so that models have a tokenizer and a readout."""
        return "max_length" in self.data

    @property
    def data_group(self) -> DataGroup:
        """Kind of data set that a run's data.name is one of."""
        if self.answers:
            return "instructions"
        return "texts" if self.reads_texts else "videos"

    @property
    def unit(self) -> str:
        """Name of one held-out unit: a window of a clip, a text (with those of its group)."""
        if self.reads_texts:
            return "text"
        return "window" if "frames" in self.data else "unit"


def shift_references(task: TaskFacts) -> tuple[str, ...]:
    """The predictors without training that are measured under shifts beside Gaussian noise."""
    return ("identity", "constant") if task.has_identity else ("constant",)
