"""Digests of the code that trains an arm: this project's, and its plug-ins'.

Of this project: the files that training imports for this task, model and data set, and no others.
Comments, docstrings, layout and the words of errors count for nothing: they move no number
(source_digest.py). What counts of a plug-in is told in plugin_code.py.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.registry.built_in import BUILT_IN, Group
from trainables.registry.find_plugins import (
    data_set_spec,
    entry_point_module,
    model_spec,
    task_spec,
)
from trainables.registry.plugin_code import OURS, plugin_code
from trainables.registry.source_digest import source

if TYPE_CHECKING:
    from trainables.registry.specs import DataSetSpec, ModelSpec, TaskSpec

TRAINING = (f"{OURS}.arm_run", f"{OURS}.fused.group")  # what every arm is trained by
# What is imported there and decides no number: where things lie, how they are fetched and told.
DECIDES_NOTHING = tuple(
    f"{OURS}.{name}"
    for name in (
        "fetching", "trial", "predictors", "environment", "code_version", "errors", "retries",
        "records.arms", "records.objects", "records.stored_files", "records.parallel_reads",
        "records.retrying", "registry.built_in", "registry.find_plugins", "registry.plugin_code",
        "registry.source_digest", "registry.training_code", "datasets.places", "machine",
    )
)  # fmt: skip
_ROOT = Path(__file__).parents[2]
_LENGTH = 8  # hex digits


def training_code(task: str, model: str, data: str, *, as_loaded: bool = False) -> dict[str, str]:
    """Digest by what it is of: "trainables", and "model tiny" where a package brings that.

    With ``as_loaded`` of what this process runs, where a file was changed since it was imported;
    else of what a new process would run.
    """
    group = task_spec(task).facts.data_group
    named: list[tuple[str, Group, str, ModelSpec | TaskSpec | DataSetSpec]] = [
        ("task", "tasks", task, task_spec(task)),
        ("model", "models", model, model_spec(model)),
        ("data", group, data, data_set_spec(group, data)),
    ]
    roots = set(TRAINING)
    specs, plugins = [], {}
    for what, in_group, name, spec in named:
        modules = _modules_of(in_group, name, spec)
        described = f"{name} {_canonical(spec)}"
        roots |= {module for module in modules if _is_ours(module)}
        if entry := entry_point_module(in_group, name):
            digests, imported = plugin_code(entry, modules, as_loaded=as_loaded)
            plugins[f"{what} {name}"] = _short([described, *digests])
            roots |= imported
        else:
            specs.append(described)
    return {OURS: _short([*specs, *_of_ours(frozenset(roots))]), **plugins}


def _short(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_LENGTH]


# --- specifications -------------------------------------------------------------------------------


def _modules_of(group: Group, name: str, spec: object) -> set[str]:
    """Modules of a specification and of its functions."""
    modules = {entry_point_module(group, name)}
    row = BUILT_IN[group].get(name)
    if isinstance(row, str):
        modules.add(row)
    for field in dataclasses.fields(spec):  # type: ignore[arg-type]
        value = getattr(spec, field.name)
        while isinstance(value, functools.partial):
            value = value.func
        if isinstance(value, str) and ":" in value:
            modules.add(value)
        elif callable(value):
            modules.add(getattr(value, "__module__", "") or "")
    return {module.partition(":")[0] for module in modules} - {""}


def _canonical(value: object) -> str:
    """A specification as text that is the same in every process."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((f.name, _canonical(getattr(value, f.name))) for f in dataclasses.fields(value))
        return ", ".join(f"{name}={text}" for name, text in fields)
    if callable(value):
        return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"
    return repr(value)


# --- files of this project ------------------------------------------------------------------------


def _is_ours(module: str) -> bool:
    return module == OURS or module.startswith(f"{OURS}.")


def _decides(module: str) -> bool:
    return not any(module == m or module.startswith(f"{m}.") for m in DECIDES_NOTHING)


_as_imported = functools.cache(source)  # of this project, which is read when it is imported


@functools.cache
def _of_ours(roots: frozenset[str]) -> list[str]:
    """Every module that these import, with the digest of its file."""
    digests: dict[str, str] = {}
    left = sorted(roots)
    while left:
        module = left.pop()
        path = _path(_ROOT, module)
        if module in digests or path is None or not _decides(module):
            continue
        read = _as_imported(path)
        digests[module] = read.digest
        left += [name for name in read.imports if _is_ours(name)]
    return [f"{module} {digest}" for module, digest in sorted(digests.items())]


def _path(folder: Path, module: str) -> Path | None:
    """The file of a module below a folder; None: it is none."""
    place = folder.joinpath(*module.split("."))
    for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
        if path.is_file():
            return path
    return None
