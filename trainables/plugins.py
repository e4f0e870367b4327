"""Plug-ins: models, tasks and data sets of other packages, by entry point.

A package brings them under four groups (docs/plugins.md). Which there are is looked up when a name
is asked for that is not built in, and an object is loaded when a configuration names it: nothing
that is installed can slow down, break or change what is built in. Nothing here imports torch.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from trainables.config.fields import require
from trainables.errors import Misuse, SweepError, UnknownName

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    import torch
    from torch import nn

    from trainables.build import OwnReferences
    from trainables.config.arm import DataConfig, RunConfig
    from trainables.config.task_facts import TaskFacts
    from trainables.tasks.base import TrainingTask
    from trainables.tasks.denoising import Denoising

Group = Literal["models", "tasks", "videos", "texts"]
KINDS: dict[Group, str] = {
    "models": "model",
    "tasks": "task",
    "videos": "data set",
    "texts": "text data set",
}  # the entry points' groups are descent_sweep.models, ...; in messages: what is in them
OPTIONS = ("checkpoint", "pooling", "atoms_per_side", "threshold")  # of ModelConfig
PAGE = "docs/plugins.md says what a plug-in is."


@dataclass(frozen=True, kw_only=True)
class ModelPlugin:
    """A model of another package: what an entry point of descent_sweep.models refers to."""

    task: str  # the task it is for; another one may name it among its models
    build: Callable[[RunConfig, TrainingTask], nn.Module]
    # ^ the network at its start, on the CPU: a LayerwiseModel, or a TextModel (models/base.py)
    variants: tuple[str, ...] = ("default",)  # its forwards, the default first: model.variant
    options: tuple[str, ...] = ()
    # ^ which of OPTIONS it reads beside model.name, layers and variant

    def __post_init__(self) -> None:
        """Refuse what is of another type; the message names the field."""
        require(isinstance(self.task, str), "task", self.task, "the name of a task")
        require(callable(self.build), "build", self.build, "a function of a run and its task")
        for name in ("variants", "options"):
            names = getattr(self, name)
            ok = isinstance(names, tuple) and all(isinstance(text, str) for text in names)
            require(ok, name, names, "a tuple of names")
        require("" not in (self.variants or ("",)), "variants", self.variants, "names, at least 1")
        known = set(self.options) <= set(OPTIONS)
        require(known, "options", self.options, f"some of {', '.join(OPTIONS)}")


@dataclass(frozen=True, kw_only=True)
class TaskPlugin:
    """A task of another package: what an entry point of descent_sweep.tasks refers to."""

    facts: TaskFacts
    build: Callable[[RunConfig, torch.device, torch.dtype], Denoising | OwnReferences]
    resolve: Callable[[DataConfig], DataConfig]
    # ^ the data with the fingerprint of their content; BadData where they carry another one.
    #   Of data sets of videos or texts: ``resolve`` of datasets/video.py or datasets/text.py.

    def __post_init__(self) -> None:
        """Refuse what is of another type; the message names the field."""
        from trainables.config.task_facts import TaskFacts

        require(isinstance(self.facts, TaskFacts), "facts", self.facts, "TaskFacts")
        require(callable(self.build), "build", self.build, "a function of run, device and dtype")
        require(callable(self.resolve), "resolve", self.resolve, "a function of a DataConfig")


T = TypeVar("T")


def model_plugin(name: str, built_in: Iterable[str]) -> ModelPlugin:
    """The model called ``name``, which is not built in.

    Raises:
        UnknownName: no installed package brings it.
        Misuse: two packages do, or what one brings cannot be loaded or is none.
    """
    plugin = _found("models", name, built_in)
    if not isinstance(plugin, ModelPlugin):
        raise _wrong_type("models", name, "a ModelPlugin", plugin)
    return plugin


def task_plugin(name: str, built_in: Iterable[str]) -> TaskPlugin:
    """The task called ``name``, which is not built in; raises as ``model_plugin``."""
    plugin = _found("tasks", name, built_in)
    if not isinstance(plugin, TaskPlugin):
        raise _wrong_type("tasks", name, "a TaskPlugin", plugin)
    return plugin


def listing_plugin(
    group: Literal["videos", "texts"], name: str, built_in: Iterable[str], gives: type[T]
) -> Callable[[DataConfig], T]:
    """The function that lists the data set called ``name``, which is not built in.

    It raises Misuse where what it returns is none of ``gives`` (RawVideo or RawText); looking it up
    raises as ``model_plugin``.
    """
    plugin = _found(group, name, built_in)
    if not callable(plugin):
        raise _wrong_type(group, name, "a function of a DataConfig", plugin)

    def listed(data: DataConfig) -> T:
        raw = plugin(data)
        if not isinstance(raw, gives):
            raise wrong_return(group, name, gives, raw)
        return raw

    return listed


def wrong_return(group: Group, name: str, wanted: type, got: object) -> Misuse:
    """What to raise where the function of a plug-in returns something else."""
    return Misuse(
        f"{_described(group, name)} must return {_a(wanted)}, got {_a(type(got))}. {PAGE}"
    )


def require_no_clash(group: Group, name: str) -> None:
    """Misuse where an installed package gives ``name``, which is built in, to something else.

    The built-in one is what the name means, everywhere; but whoever installed such a package may
    believe otherwise.
    """
    if any(point.name == name for point in _entry_points(group)):
        raise Misuse(
            f"{_described(group, name)} has the name of a built-in one. Uninstall that package, or "
            "have its authors give it another name."
        )


def installed() -> dict[str, dict[str, str]]:
    """Package and version of every plug-in that is installed, by group and name."""
    return {
        group: {point.name: _package(point) for point in points}
        for group in KINDS
        if (points := [p for p in _entry_points(group) if _is_name(p.name)])
    }


# --- finding and loading --------------------------------------------------------------------------


@functools.cache
def _entry_points(group: Group) -> tuple[EntryPoint, ...]:
    """Those of all installed packages; read once per process, some hundredths of a second."""
    import importlib.metadata

    return tuple(importlib.metadata.entry_points(group=f"descent_sweep.{group}"))


def _found(group: Group, name: str, built_in: Iterable[str]) -> object:
    points = [point for point in _entry_points(group) if point.name == name and _is_name(name)]
    if not points:
        names = [point.name for point in _entry_points(group)]
        unknown = UnknownName.of(KINDS[group], name, {*built_in, *filter(_is_name, names)})
        raise UnknownName(f"{unknown} Plug-ins are known where their package is installed.")
    if len(points) > 1:
        packages = " and ".join(_package(point) for point in points)
        raise Misuse(
            f"the {KINDS[group]} {name!r} is brought by several packages: {packages}. Uninstall "
            "all but one of them."
        )
    return _loaded(group, points[0])


@functools.cache
def _loaded(group: Group, point: EntryPoint) -> object:
    try:
        return point.load()
    except Exception as error:  # whatever the module of another package does when it is imported
        what = str(error) if isinstance(error, SweepError) else f"{type(error).__name__}: {error}"
        raise Misuse(
            f"{_described(group, point.name)} cannot be loaded: {what}. Mend or uninstall that "
            "package."
        ) from error


def _wrong_type(group: Group, name: str, wanted: str, got: object) -> Misuse:
    return Misuse(f"{_described(group, name)} must be {wanted}, got {_a(type(got))}. {PAGE}")


def _is_name(name: str) -> bool:
    """Whether a name can stand in settings, files and tracking; others are never found."""
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) is not None


def _described(group: Group, name: str) -> str:
    point = next(point for point in _entry_points(group) if point.name == name)
    return f"the {KINDS[group]} {name!r} of {_package(point)} (entry point {name} = {point.value})"


def _package(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _a(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'aeiouAEIOU' else 'a'} {kind.__name__}"
