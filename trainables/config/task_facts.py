"""Task facts known without loading it: its fields, metric and kind of data.

The one place that says which metric a task reports, in which unit, and whether higher is better;
the tasks of other packages bring their own facts (plugins.py). A field that a task never reads must
keep its default, so that two runs that train alike have one signature and nobody tunes what does
nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainables.config.fields import require
from trainables.plugins import model_plugin, task_plugin

if TYPE_CHECKING:
    from trainables.config.arm import DataConfig, RunConfig

VIDEO_DATA = ("frame_size", "patch_size", "frames", "stride", "max_clips")
TEXT_DATA = ("max_length", "max_items")
# of texts: eval_windows stand for so many samples each, however large groups are (a premise has 3,
# an IMDb film about 7)
SAMPLES_PER_UNIT = 3


@dataclasses.dataclass(frozen=True)
class Metric:
    """What a task reports of a model at every test gamma. The objective is always minimised."""

    key: str  # in the names of columns and files
    label: str  # in tables
    unit: str  # in words, after the label
    higher_is_better: bool
    references: tuple[str, ...]  # predictors that need no training and stand beside both arms
    shown: tuple[str, ...]  # those of them that short tables have room for

    @property
    def direction(self) -> str:
        """Which way is better, in words."""
        return f"{'higher' if self.higher_is_better else 'lower'} is better"


def reference_label(name: str) -> str:
    """What tables call a predictor that needs no training.

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
)
ACCURACY = Metric(
    key="accuracy",
    label="accuracy",
    unit="shares of samples",
    higher_is_better=True,
    references=("constant",),
    shown=("constant",),
)


@dataclasses.dataclass(frozen=True)
class TaskFacts:
    """What one task reads of a configuration, where others read something else, and reports."""

    models: tuple[str, ...]  # and those of other packages that say they are for it
    data: tuple[str, ...]  # fields of DataConfig that only such tasks read
    shifts: tuple[str, ...]  # beside Gaussian noise
    metric: Metric
    near_shift: float  # the objective looks at gammas in (train_gamma, train_gamma + this]
    has_identity: bool  # whether returning the input is a prediction
    samples: str  # what held-out units are made of, in messages
    noise_unit: str  # what a gamma of 1 is
    test_gammas: tuple[float, ...] = tuple(round(0.05 * i, 2) for i in range(11))
    # ^ what a run is scored at unless it names others

    @property
    def reads_texts(self) -> bool:
        """Whether samples are texts, so that models have a tokenizer and a readout."""
        return "max_length" in self.data

    @property
    def unit(self) -> str:
        """What one held-out unit is: a window of a clip, a text (with those of its group)."""
        if self.reads_texts:
            return "text"
        return "window" if "frames" in self.data else "unit"


_PIXELS = "the noise's std over that of the clean pixels"

TASKS: Mapping[str, TaskFacts] = {
    "video_denoising": TaskFacts(
        models=("ut", "dust"),
        data=VIDEO_DATA,
        shifts=("blur", "salt_and_pepper", "frame_drop", "brightness"),
        metric=RMSE,
        near_shift=0.10,
        has_identity=True,
        samples="clips",
        noise_unit=_PIXELS,
    ),
    "frame_denoising": TaskFacts(
        models=("vit",),
        data=VIDEO_DATA,
        shifts=("blur", "salt_and_pepper", "brightness"),
        metric=RMSE,
        near_shift=0.10,
        has_identity=True,
        samples="clips",
        noise_unit=_PIXELS,
    ),
    "text_classification": TaskFacts(
        models=("encoder", "text_ut"),
        data=TEXT_DATA,
        shifts=("token_drop", "token_swap", "typos"),
        metric=ACCURACY,
        near_shift=0.40,
        has_identity=False,
        samples="texts",
        noise_unit="the noise's std over that of the clean word embeddings",
        test_gammas=tuple(round(0.2 * i, 2) for i in range(11)),
    ),
}


def facts_of(task: str) -> TaskFacts:
    """What is known of a task, built in or a plug-in's.

    Raises:
        UnknownName, Misuse: as ``task_plugin``.
    """
    return TASKS[task] if task in TASKS else task_plugin(task, TASKS).facts


def shift_references(task: TaskFacts) -> tuple[str, ...]:
    """The predictors without training that are measured under shifts beside Gaussian noise."""
    return ("identity", "constant") if task.has_identity else ("constant",)


def task_of_model(model: str) -> str:
    """The task that a model is for.

    Raises:
        UnknownName, Misuse: as ``model_plugin``.
    """
    of_model = {name: task for task, facts in TASKS.items() for name in facts.models}
    return of_model[model] if model in of_model else model_plugin(model, of_model).task


def check_task_fields(run: RunConfig) -> None:
    """Raise InvalidValue where a field is set that the run's task never reads."""
    task, fields = run.task, facts_of(run.task)
    if run.model.name not in fields.models:
        own = task_of_model(run.model.name)
        require(task == own, "task", task, f"{own!r} for model {run.model.name}")
    require(
        task != "text_classification" or run.model.checkpoint is not None,
        "model.checkpoint",
        run.model.checkpoint,
        f"given for model {run.model.name}",
        "its tokenizer makes the tokens; a plug-in has 'checkpoint' among its options.",
    )
    _check_data(run.data, task, fields)
    is_frame = task == "frame_denoising" or (task == "video_denoising" and run.data.frames == 1)
    require(
        not is_frame or "frame_drop" not in run.shifts,
        "shifts",
        list(run.shifts),
        "without 'frame_drop' where a sample is one frame",
        "a frame that is lost cannot be restored from itself.",
    )
    for shift in run.shifts:
        require(
            shift in fields.shifts,
            "shifts",
            list(run.shifts),
            f"without {shift!r} in {task}",
            f"it takes {', '.join(fields.shifts)}.",
        )
    require(
        run.readout_lr is None or fields.reads_texts,
        "readout_lr",
        run.readout_lr,
        f"left at None in {task}",
        "its models have no readout.",
    )
    if run.constraint is not None:
        require(
            fields.has_identity or run.constraint.reference_unit != "identity",
            "reference_unit",
            run.constraint.reference_unit,
            f"'constant' or 'absolute' in {task}",
            "the unchanged input is no prediction there.",
        )


def _check_data(data: DataConfig, task: str, fields: TaskFacts) -> None:
    for f in dataclasses.fields(data):
        is_others = f.name in VIDEO_DATA + TEXT_DATA and f.name not in fields.data
        value = getattr(data, f.name)
        require(
            not is_others or value == f.default,
            f"data.{f.name}",
            value,
            f"left at {f.default!r} in {task}",
            f"it reads {', '.join(fields.data) or 'none of these fields'}.",
        )
