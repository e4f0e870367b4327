"""Which fields belong to which task: its models, its data's fields, its shifts.

A field that a task never reads must keep its default, so that two runs that train alike have one
signature and nobody tunes what does nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainables.sections import require

if TYPE_CHECKING:
    from trainables.config import DataConfig, RunConfig

VIDEO_DATA = ("frame_size", "patch_size", "frames", "stride", "max_clips")
TEXT_DATA = ("max_length", "max_items")


@dataclasses.dataclass(frozen=True)
class TaskFields:
    """What one task reads of a configuration, where others read something else."""

    models: tuple[str, ...]
    data: tuple[str, ...]  # fields of DataConfig that only such tasks read
    shifts: tuple[str, ...]  # beside Gaussian noise
    has_identity: bool  # whether returning the input is a prediction


TASKS: Mapping[str, TaskFields] = {
    "video_denoising": TaskFields(
        models=("ut", "dust"),
        data=VIDEO_DATA,
        shifts=("blur", "salt_and_pepper", "frame_drop", "brightness"),
        has_identity=True,
    ),
    "frame_denoising": TaskFields(
        models=("vit",),
        data=VIDEO_DATA,
        shifts=("blur", "salt_and_pepper", "brightness"),
        has_identity=True,
    ),
    "text_classification": TaskFields(
        models=("encoder", "text_ut"),
        data=TEXT_DATA,
        shifts=("token_drop", "token_swap", "typos"),
        has_identity=False,
    ),
}


def task_of_model(model: str) -> str:
    """The task that a model is for."""
    return next(name for name, task in TASKS.items() if model in task.models)


def check_task_fields(run: RunConfig) -> None:
    """Raise InvalidValue where a field is set that the run's task never reads."""
    task = task_of_model(run.model.name)
    require(run.task == task, "task", run.task, f"{task!r} for model {run.model.name}")
    fields = TASKS[task]
    _check_data(run.data, task, fields)
    for shift in run.shifts:
        require(
            shift in fields.shifts,
            "shifts",
            list(run.shifts),
            f"without {shift!r} in {task}",
            "a frame that is lost cannot be restored from itself."
            if shift == "frame_drop" and task == "frame_denoising"
            else f"it takes {', '.join(fields.shifts)}.",
        )
    require(
        run.readout_lr is None or task == "text_classification",
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


def _check_data(data: DataConfig, task: str, fields: TaskFields) -> None:
    for f in dataclasses.fields(data):
        is_others = f.name in VIDEO_DATA + TEXT_DATA and f.name not in fields.data
        value = getattr(data, f.name)
        require(
            not is_others or value == f.default,
            f"data.{f.name}",
            value,
            f"left at {f.default!r} in {task}",
            f"it reads {', '.join(fields.data)}.",
        )
