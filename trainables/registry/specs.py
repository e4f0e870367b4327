"""Specifications of models, tasks and data sets: known before they are loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from trainables.errors import InvalidValue, UnknownName, require
from trainables.registry.task_facts import TaskFacts

OPTIONS = (  # of ModelConfig
    "checkpoint", "pooling", "atoms_per_side", "threshold", "lora_rank", "recompute",
)  # fmt: skip
# A function, or "module:name" of one that is imported when it is first called: torch takes seconds.
Function = Callable[..., Any] | str
OwnValue = int | float | str | bool  # of an option that a plug-in's model has for itself


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model: what an entry point of descent_sweep.models refers to."""

    task: str  # the task it is for; another one may name it among its models
    build: Function
    # ^ (run, Task) -> the network at its start, on the CPU: a LayerwiseModel or a TextModel
    #   (models/base.py)
    variants: tuple[str, ...] = ("default",)  # its forwards, the default first: model.variant
    options: tuple[str, ...] = ()
    # ^ which of OPTIONS it reads beside model.name, layers and variant
    own: Mapping[str, OwnValue] = field(default_factory=dict)
    # ^ options that no other model has, with their defaults: model.own.NAME
    pooling: Literal["cls", "mean"] | None = None  # what its classifier reads unless a run says
    open_depth: bool = False  # whether model.layers may be 0: as many as its checkpoint has
    needs_data: bool = True
    # ^ False: ``build`` asks its task for no more than ``classes`` and ``vocabulary``, so that a
    #   sweep can try its checkpoint before it opens data
    fixed_start: bool = False  # whether no seed enters its start, so that a jitter has to
    ends_in_relu: bool = False  # whether its output can die: be 0 everywhere, with no gradient
    unmatched: tuple[str, ...] = ()
    # ^ variants whose two arms differ in how many parameters they train
    folded: tuple[str, ...] = ()
    # ^ variants whose layers are one operation on a CPU, where patches are small: signatures say so

    def __post_init__(self) -> None:
        """Refuse what is of another type; the message names the field."""
        require(isinstance(self.task, str), "task", self.task, "the name of a task")
        _require_function("build", self.build, "a run and its task")
        for name in ("variants", "options", "unmatched", "folded"):
            names = getattr(self, name)
            ok = isinstance(names, tuple) and all(isinstance(text, str) for text in names)
            require(ok, name, names, "a tuple of names")
        require("" not in (self.variants or ("",)), "variants", self.variants, "names, at least 1")
        known = set(self.options) <= set(OPTIONS)
        require(known, "options", self.options, f"some of {', '.join(OPTIONS)}")
        own: object = self.own
        is_own = isinstance(own, Mapping) and all(
            isinstance(name, str) and name.isidentifier() and _is_plain(value)
            for name, value in own.items()
        )
        allowed = "names with a finite number, a text or a bool of Python's as their default"
        require(is_own, "own", self.own, allowed)

    def own_values(self, model: str, given: Mapping[str, object]) -> dict[str, OwnValue]:
        """Values of all own options of the model of this name: those given, else the defaults.

        Raises:
            UnknownName: the model has no such option.
            InvalidValue: a value is of another type than the default.
        """
        for name in given:
            if name not in self.own:
                raise UnknownName.among(f"own option of {model}", name, self.own)
        return {n: _as_own(n, given.get(n, default), default) for n, default in self.own.items()}


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task: what an entry point of descent_sweep.tasks refers to."""

    facts: TaskFacts
    build: Function  # (run, device, dtype) -> a Task (tasks/base.py), its data opened
    resolve: Function
    # ^ DataConfig -> the data with the fingerprint of their content; BadData where they carry
    #   another one. Of videos or texts: ``resolve`` of datasets/video or datasets/text;
    #   of instructions ``resolve_instructions`` of datasets/text

    def __post_init__(self) -> None:
        """Refuse what is of another type; the message names the field."""
        require(isinstance(self.facts, TaskFacts), "facts", self.facts, "TaskFacts")
        _require_function("build", self.build, "run, device and dtype")
        _require_function("resolve", self.resolve, "a DataConfig")


@dataclass(frozen=True, kw_only=True)
class DataSetSpec:
    """A data set: what an entry point of descent_sweep.videos, texts or instructions refers to."""

    list: Function  # DataConfig -> RawVideo (datasets/video/clips.py) or RawText (text/examples.py)
    folders: tuple[str, ...] = ()
    # ^ usual names of its folder below one that holds several data sets, as SWEEP_DATA does
    reads_folder: bool = True  # whether it lies in data.folder; False: nothing has to be given

    def __post_init__(self) -> None:
        """Refuse what is of another type; the message names the field."""
        _require_function("list", self.list, "a DataConfig")
        require(isinstance(self.folders, tuple), "folders", self.folders, "a tuple of names")


def _is_plain(value: object) -> bool:
    """True for what JSON gives back as it was: no subclass, no NaN, no infinity."""
    if type(value) is float:
        return math.isfinite(value)
    return type(value) in (int, str, bool)


def _as_own(name: str, value: object, default: OwnValue) -> OwnValue:
    """The value in the type of its default; a whole number may stand for a float."""
    if type(default) is float and type(value) is int:
        with suppress(OverflowError):
            value = float(value)
    if type(value) is not type(default) or not _is_plain(value):
        raise InvalidValue(
            f"model.own.{name} must be finite and of the type of its default, {default!r}, got "
            f"{value!r}."
        )
    return value


def _require_function(name: str, got: object, arguments: str) -> None:
    ok = callable(got) or (isinstance(got, str) and ":" in got)
    require(ok, name, got, f"a function of {arguments}, or its 'module:name'")
