"""Digests of the code that trains an arm: this project's, and its plug-ins'.

Of this project: the files that training imports for this task, model and data set, and no others.
Comments, docstrings, layout and the words of errors count for nothing: they move no number. What a
plug-in brings is all of its package, and the modules beside it that it imports.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.registry.built_in import BUILT_IN, Group
from trainables.registry.lookup import data_set_spec, model_spec, task_spec

if TYPE_CHECKING:
    from trainables.registry.specs import DataSetSpec, ModelSpec, TaskSpec

OURS = "trainables"
TRAINING = (f"{OURS}.arm_run", f"{OURS}.fused.group")  # what every arm is trained by
# What is imported there and decides no number: where things lie, how they are fetched and told.
DECIDES_NOTHING = tuple(
    f"{OURS}.{name}"
    for name in (
        "contracts", "fetching", "trial", "predictor", "environment", "code_version", "errors",
        "retries", "records.arms", "records.objects", "records.parallel_reads", "records.retrying",
        "registry.built_in", "registry.lookup", "registry.training_code", "datasets.places",
        "machine",
    )
)  # fmt: skip
_ROOT = Path(__file__).parents[2]
_FILES_OF_A_PACKAGE = ("*.py", "*.json", "*.yaml", "*.yml", "*.toml", "*.so", "*.pyd")
_LENGTH = 8  # hex digits


def training_code(task: str, model: str, data: str, *, as_loaded: bool = False) -> dict[str, str]:
    """Digest by what it is of: "trainables", and "model tiny" where a package brings that.

    Args:
        task: name of the task.
        model: name of the model.
        data: name of the data set.
        as_loaded: what this process runs, where a file was changed since it was imported; else
            what a new process would run.
    """
    group = task_spec(task).facts.data_group
    named: list[tuple[str, Group, str, ModelSpec | TaskSpec | DataSetSpec]] = [
        ("task", "tasks", task, task_spec(task)),
        ("model", "models", model, model_spec(model)),
        ("data", group, data, data_set_spec(group, data)),
    ]
    roots = set(TRAINING)
    specs, found = [], {}
    for what, in_group, name, spec in named:
        modules = _modules_of(in_group, name, spec)
        specs.append(f"{name} {_told(spec)}")
        roots |= {module for module in modules if _is_ours(module)}
        theirs = sorted(module for module in modules if not _is_ours(module))
        if theirs:
            digest, imported = (_loaded if as_loaded else _of_modules)(tuple(theirs))
            found[f"{what} {name}"] = digest
            roots |= imported
    return {OURS: _short([*specs, *_of_ours(frozenset(roots))]), **found}


def _short(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_LENGTH]


# --- specifications -------------------------------------------------------------------------------


def _modules_of(group: Group, name: str, spec: object) -> set[str]:
    """Modules of a specification and of its functions."""
    from trainables.registry.lookup import entry_point_module

    found = {entry_point_module(group, name)}
    row = BUILT_IN[group].get(name)
    if isinstance(row, str):
        found.add(row)
    for field in dataclasses.fields(spec):  # type: ignore[arg-type]
        value = getattr(spec, field.name)
        if isinstance(value, str) and ":" in value:
            found.add(value)
        elif callable(value):
            found.add(getattr(value, "__module__", "") or "")
    return {module.partition(":")[0] for module in found} - {""}


def _told(value: object) -> str:
    """A specification as text that is the same in every process."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((f.name, _told(getattr(value, f.name))) for f in dataclasses.fields(value))
        return ", ".join(f"{name}={text}" for name, text in fields)
    if callable(value):
        return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"
    return repr(value)


# --- files of this project ------------------------------------------------------------------------


def _is_ours(module: str) -> bool:
    return module == OURS or module.startswith(f"{OURS}.")


def _decides(module: str) -> bool:
    return not any(module == m or module.startswith(f"{m}.") for m in DECIDES_NOTHING)


@functools.cache
def _of_ours(roots: frozenset[str]) -> list[str]:
    """Every module that these import, with the digest of its file."""
    found: dict[str, str] = {}
    left = sorted(roots)
    while left:
        module = left.pop()
        path = _path(_ROOT, module)
        if module in found or path is None or not _decides(module):
            continue
        read = _read_once(path)
        found[module] = read.digest
        left += [name for name in read.imports if _is_ours(name)]
    return [f"{module} {digest}" for module, digest in sorted(found.items())]


def training_modules(task: str, model: str, data: str) -> set[str]:
    """Modules of this project that the digest of such an arm is of; all of it must be built in."""
    group = task_spec(task).facts.data_group
    roots = set(TRAINING)
    roots |= _modules_of("tasks", task, task_spec(task))
    roots |= _modules_of("models", model, model_spec(model))
    roots |= _modules_of(group, data, data_set_spec(group, data))
    return {line.partition(" ")[0] for line in _of_ours(frozenset(roots))}


def _path(folder: Path, module: str) -> Path | None:
    """The file of a module below a folder; None: it is none."""
    place = folder.joinpath(*module.split("."))
    for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
        if path.is_file():
            return path
    return None


# --- one file -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _File:
    digest: str
    imports: frozenset[str]  # names that may be modules; those for type checkers alone are not


def _read(path: Path) -> _File:
    content = path.read_bytes()
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return _File(hashlib.sha256(content).hexdigest(), frozenset())
    text: list[str] = []
    _tell(tree, text, words=True)
    digest = hashlib.sha256("\0".join(text).encode("utf-8", "surrogatepass")).hexdigest()
    return _File(digest, frozenset(_imports(tree)))


_read_once = functools.cache(_read)  # this project's files as they were when they were imported
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _tell(node: ast.AST, text: list[str], *, words: bool) -> None:
    """A syntax tree without docstrings, places, and the words of errors; the same on any Python."""
    text.append(type(node).__name__)
    if isinstance(node, ast.Constant):
        if words or not isinstance(node.value, str):
            text.append(repr(node.value))
        return
    is_error = isinstance(node, ast.Raise) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "require"
    )
    words = words and not is_error
    for name in node._fields:
        value: Any = getattr(node, name, None)
        if isinstance(node, _WITH_DOCSTRING) and name == "body" and _is_docstring(value):
            value = value[1:]
        if value is None or value == [] or name in ("ctx", "kind", "type_comment", "type_ignores"):
            continue
        text.append(name)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST):
                _tell(one, text, words=words)
            else:
                text.append(repr(one))


def _is_docstring(body: object) -> bool:
    first = body[0] if isinstance(body, list) and body else None
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not isinstance(node, ast.expr):
            yield from _imports(node)


# --- packages of others ---------------------------------------------------------------------------

_known: dict[tuple[str, ...], tuple[object, tuple[str, frozenset[str]]]] = {}


def _loaded(modules: tuple[str, ...]) -> tuple[str, frozenset[str]]:
    """As ``_of_modules``, of what this process has imported: as it was when it was first asked."""
    specs = [getattr(sys.modules.get(module), "__spec__", None) for module in modules]
    before = _known.get(modules)
    if before is None or before[0] != specs or None in specs:
        _known[modules] = (specs, _of_modules(modules))
    return _known[modules][1]


def _of_modules(modules: tuple[str, ...]) -> tuple[str, frozenset[str]]:
    """Digest of all files that these modules are of, and what of this project they import."""
    files: dict[str, str] = {}
    ours: set[str] = set()
    seen: set[str] = set()
    left = sorted({module.partition(".")[0] for module in modules})
    folders: set[Path] = set()  # where their authors work: modules beside them are theirs, too
    while left:
        top = left.pop()
        if top in seen:
            continue
        seen.add(top)
        for place, path in _files_of(top):
            if path.suffix != ".py":
                files[place] = hashlib.sha256(path.read_bytes()).hexdigest()
                continue
            if not _is_installed(path):
                folders.add(path.parents[place.count("/")])
            read = _read(path)
            files[place] = read.digest
            ours |= {name for name in read.imports if _is_ours(name)}
            named = {name.partition(".")[0] for name in read.imports} - {OURS, "", *seen, *left}
            left += sorted(n for n in named if any(_is_beside(folder, n) for folder in folders))
    return _short(f"{place} {digest}" for place, digest in sorted(files.items())), frozenset(ours)


def _files_of(top: str) -> Iterator[tuple[str, Path]]:
    """The files of a module or package of the highest level, by their place in it."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None:
        return
    folders = [Path(place) for place in spec.submodule_search_locations or ()]
    for folder in folders:
        paths = {path for kind in _FILES_OF_A_PACKAGE for path in folder.rglob(kind)}
        for path in sorted(paths):
            yield f"{top}/{path.relative_to(folder).as_posix()}", path
    if not folders and spec.origin is not None and Path(spec.origin).is_file():
        yield Path(spec.origin).name, Path(spec.origin)


def _is_installed(path: Path) -> bool:
    """Whether a file lies among those of all packages, where what is beside it is not its own."""
    return any(part in ("site-packages", "dist-packages") for part in path.parts)


def _is_beside(folder: Path, top: str) -> bool:
    return (folder / f"{top}.py").is_file() or (folder / top / "__init__.py").is_file()
