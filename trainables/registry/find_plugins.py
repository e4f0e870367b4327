"""Look-up of models, tasks and data sets: built-in ones, then entry points.

Which other packages bring some is looked up when a name is asked for that is not built in, and an
object is loaded when a configuration names it: nothing that is installed can slow down, break or
change what is built in.
"""

from __future__ import annotations

import functools
import pkgutil
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from trainables.errors import Misuse, SweepError, UnknownName, UnknownPlugin
from trainables.registry.built_in import BUILT_IN, Group
from trainables.registry.specs import DataSetSpec, Function, ModelSpec, TaskSpec
from trainables.registry.task_facts import DataGroup, TaskFacts

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

KINDS: dict[Group, str] = {
    "models": "model",
    "tasks": "task",
    "videos": "data set",
    "texts": "text data set",
    "instructions": "data set of instructions",
}  # the entry points' groups are descent_sweep.models, ...; in messages: what is in them
PAGE = "docs/plugins.md says what a plug-in is."
HUB = "hf:"  # hf:NAME or hf:NAME:CONFIGURATION, through the library `datasets`
T = TypeVar("T")
S = TypeVar("S", ModelSpec, TaskSpec, DataSetSpec)


def model_spec(name: str) -> ModelSpec:
    """The model called ``name``.

    Raises:
        UnknownName: it is not built in, and no installed package brings it.
        Misuse: two packages do, or what one brings cannot be loaded or is none.
    """
    return _spec_of("models", name, ModelSpec)


def task_spec(name: str) -> TaskSpec:
    """The task called ``name``; raises as ``model_spec``."""
    return _spec_of("tasks", name, TaskSpec)


def data_set_spec(group: DataGroup, name: str) -> DataSetSpec:
    """The data set called ``name``; raises as ``model_spec``."""
    return _spec_of(group, _row(name), DataSetSpec)


def facts_of(task: str) -> TaskFacts:
    """Facts of a task, known without loading it; raises as ``model_spec``."""
    return task_spec(task).facts


def listed(group: DataGroup, name: str, gives: type[T]) -> Callable[..., T]:
    """The function that lists the data set called ``name`` from a DataConfig.

    It raises Misuse where what it returns is none of ``gives`` (RawVideo or RawText); looking it up
    raises as ``model_spec``.
    """
    return returning(group, _row(name), data_set_spec(group, name).list, gives)


def returning(group: Group, name: str, function: Function, gives: type[T]) -> Callable[..., T]:
    """A specification's function, imported; Misuse where it cannot be, or returns another type."""
    called: Callable[..., Any] = (
        _attempted(group, name, functools.partial(pkgutil.resolve_name, function))
        if isinstance(function, str)
        else function
    )

    def checked(*given: object) -> T:
        result = called(*given)
        if isinstance(result, gives):
            return result
        raise Misuse(
            f"{_described(group, name)} must return {_a(gives)}, got {_a(type(result))}. {PAGE}"
        )

    return checked


def known_data_set(group: DataGroup, name: str) -> DataSetSpec | None:
    """The data set of this group called ``name``; None where there is none."""
    named = _row(name) in BUILT_IN[group]
    if named or any(point.name == name for point in _entry_points(group)):
        return data_set_spec(group, name)
    return None


def require_no_clash(group: Group, name: str) -> None:
    """Misuse where an installed package gives ``name``, which is built in, to something else.

    The built-in one is what the name means, everywhere; but whoever installed such a package may
    believe otherwise.
    """
    if name in BUILT_IN[group] and any(point.name == name for point in _entry_points(group)):
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


def entry_point_module(group: Group, name: str) -> str:
    """Module that the entry point of a plug-in's name refers to; empty: it is built in."""
    if _row(name) in BUILT_IN[group]:
        return ""
    return next((point.module for point in _entry_points(group) if point.name == name), "")


# --- finding and loading --------------------------------------------------------------------------


@functools.cache
def _entry_points(group: Group) -> tuple[EntryPoint, ...]:
    """Entry points of all installed packages; read once per process, in some 10 ms."""
    import importlib.metadata

    return tuple(importlib.metadata.entry_points(group=f"descent_sweep.{group}"))


def _row(data_set: str) -> str:
    """The row of a data set's name: one for all of the library `datasets`."""
    return f"{HUB}NAME" if data_set.startswith(HUB) else data_set


def _spec_of(group: Group, name: str, kind: type[S]) -> S:
    spec = _built_in(group, name) if name in BUILT_IN[group] else _of_package(group, name)
    if not isinstance(spec, kind):
        raise Misuse(f"{_described(group, name)} must be {_a(kind)}, got {_a(type(spec))}. {PAGE}")
    return spec


def _built_in(group: Group, name: str) -> object:
    row = BUILT_IN[group][name]
    return pkgutil.resolve_name(row) if isinstance(row, str) else row


def _of_package(group: Group, name: str) -> object:
    points = [point for point in _entry_points(group) if point.name == name and _is_name(name)]
    if not points:
        names = [point.name for point in _entry_points(group)]
        unknown = UnknownName.among(
            KINDS[group], name, {*BUILT_IN[group], *filter(_is_name, names)}
        )
        missing = UnknownPlugin(f"{unknown} Plug-ins are known where their package is installed.")
        missing.name = name
        raise missing
    if len(points) > 1:
        packages = " and ".join(_package(point) for point in points)
        raise Misuse(
            f"the {KINDS[group]} {name!r} is brought by several packages: {packages}. Uninstall "
            "all but one of them."
        )
    return _loaded(group, points[0])


@functools.cache
def _loaded(group: Group, point: EntryPoint) -> object:
    return _attempted(group, point.name, point.load)


def _attempted(group: Group, name: str, load: Callable[[], Any]) -> Any:
    """Result of ``load``; Misuse where the module of another package fails to load."""
    try:
        return load()
    except Exception as error:
        if name in BUILT_IN[group]:
            raise
        what = str(error) if isinstance(error, SweepError) else f"{type(error).__name__}: {error}"
        raise Misuse(
            f"{_described(group, name)} cannot be loaded: {what}. Mend or uninstall that package."
        ) from error


def _is_name(name: str) -> bool:
    """True if a name may stand in settings, files and tracking; others are never found."""
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) is not None


def _described(group: Group, name: str) -> str:
    for point in _entry_points(group):
        if point.name == name:
            where = f"{_package(point)} (entry point {name} = {point.value})"
            return f"the {KINDS[group]} {name!r} of {where}"
    return f"the {KINDS[group]} {name!r}"


def _package(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _a(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'aeiouAEIOU' else 'a'} {kind.__name__}"
