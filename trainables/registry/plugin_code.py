"""Files of a plug-in that train its arms: modules, imports, data beside them.

A module counts unless the standard library, this project or another installed package brings it.
Modules are named, not placed, so that a checkout and what is installed of it have one digest.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainables.registry.source_digest import ANY, source

OURS = "trainables"
_NOT_THEIRS = {OURS, "search_spaces", "sweep", "__main__", *sys.stdlib_module_names}
_DATA = re.compile(
    r".*\.(jsonl?|ya?ml|toml|xml|ini|cfg|[ct]sv|txt|dat|vocab|bpe|merges|model|jinja2?|np[yz]|mat"
    r"|pth?|ckpt|bin|safetensors|onnx|pb|pkl|pickle|parquet|arrow|h5|cuh?|cpp|h|pyx)(\.(gz|bz2|xz))?",
    re.IGNORECASE,
)
_NO_FOLDERS = ("__pycache__", "tests", "test", "site-packages", "node_modules")
_OF_A_STORAGE = ("arms/*/record.json", "arms/*/progress.json", "sweeps/*/definition.json")


@dataclasses.dataclass(frozen=True)
class _Unit:
    """One module with the data beside it."""

    digests: dict[str, str]
    imports: list[str]


@dataclasses.dataclass(frozen=True)
class _Place:
    """Place of a module; of a namespace and of a compiled module there is no file."""

    file: Path | None
    folders: list[Path]  # of a package


_loaded: dict[str, tuple[object, _Unit]] = {}


def plugin_code(
    entry: str, modules: Iterable[str], *, as_loaded: bool
) -> tuple[list[str], frozenset[str]]:
    """Digests of all that trains an arm of a plug-in, and what of this project it imports.

    Args:
        entry: the module of its entry point, whose package's modules are its own.
        modules: others that its specification names.
        as_loaded: what this process runs, where a file was changed since it was imported.
    """
    digests: dict[str, str] = {}
    seen: set[str] = set()
    _place.cache_clear()  # files may have come or gone since the last look
    own = _owner(entry)
    left = [entry, *modules]
    while left:
        module = left.pop()
        if not module or module in seen:
            continue
        seen.add(module)
        if module.partition(".")[0] in _NOT_THEIRS:
            continue
        unit = _unit_as_loaded(module, own) if as_loaded else _unit(module, own)
        digests |= unit.digests
        left += [module.rpartition(".")[0], *unit.imports]
    lines = [f"{what} {digest}" for what, digest in sorted(digests.items())]
    return lines, frozenset(name for name in seen if name.partition(".")[0] == OURS)


def _unit_as_loaded(module: str, own: str) -> _Unit:
    """The unit as of the first call with the module loaded, or the last one before that."""
    spec = getattr(sys.modules.get(module.removesuffix(".*")), "__spec__", None)
    known_for, unit = _loaded.get(module, (None, None))
    if unit is None or spec is None or not (known_for is None or known_for is spec):
        unit = _unit(module, own)
    _loaded[module] = spec, unit
    return unit


def _unit(module: str, own: str) -> _Unit:
    if module.endswith(".*"):
        return _Unit({}, _below(module[:-2], own))
    place = _place(module)
    if place is None or place.file is None or _owner(module) not in ("", own):
        return _Unit({}, [])
    read = source(place.file)
    package = module if place.folders else module.rpartition(".")[0]
    every = f"{module.partition('.')[0]}.*"
    imports = [every if name == ANY else _absolute(name, package) for name in read.imports]
    if ANY in read.imports:
        named = [text.partition(":")[0] for text in read.names]
        imports += [name for name in named if _is_beside(name, module)]
    folder = place.file.parent
    data = {f"{module}:{path}": folder / path for path in read.names if ".." not in path}
    if place.folders and not _is_in_package(module):
        files = _files(folder)
        data |= {f"{module}/{file}": folder / file for file in files if _DATA.fullmatch(file)}
    digests = {module: read.digest}
    for what, path in data.items():
        counts = path.suffix != ".py" or ANY in read.imports  # which may run it
        if counts and os.path.isfile(path) and _owner(module, path) in ("", own):
            digests[what] = source(path).digest
    return _Unit(digests, imports)


def _absolute(name: str, package: str) -> str:
    """The name of an import in a module of this package; empty: it has none."""
    try:
        return importlib.util.resolve_name(name, package)
    except ImportError:
        return ""


# --- where modules lie ----------------------------------------------------------------------------


@functools.cache  # while one plug-in is looked at
def _place(module: str) -> _Place | None:
    """Place of a module, without importing anything; None: there is no such module."""
    package, _, name = module.rpartition(".")
    if package:
        above = _place(package)
        places = [_in_folder(folder, name) for folder in above.folders] if above else []
        there = [one for one in places if one is not None]
        regular = [one for one in there if one.file is not None]
        every = [folder for one in there for folder in one.folders]
        return regular[0] if regular else _Place(None, every) if there else None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None:
        return None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    return _Place(_code(Path(spec.origin)) if spec.origin else None, folders)


def _in_folder(folder: Path, name: str) -> _Place | None:
    package = folder / name
    for file in (package / "__init__.py", package / "__init__.pyc"):
        if os.path.isfile(file):
            return _Place(file, [package])
    for file in (folder / f"{name}.py", folder / f"{name}.pyc"):
        if os.path.isfile(file):
            return _Place(file, [])
    return _Place(None, [package]) if package.is_dir() else None


def _root(module: str) -> Path | None:
    """The folder on Python's path that has a module."""
    place = _place(module)
    lies_in = place and (place.folders[0] if place.folders else place.file)
    return lies_in.parents[module.count(".")] if lies_in else None


def _is_beside(name: str, module: str) -> bool:
    """True if a text names a module in the folder on Python's path that ``module`` is below."""
    parts = name.split(".")
    return all(map(str.isidentifier, parts)) and _root(parts[0]) == _root(module)


def _code(file: Path) -> Path | None:
    """The file, where it is code; of a compiled module the source beside it."""
    beside = file.with_name(f"{file.name.partition('.')[0]}.py")
    files = (one for one in (beside, file) if os.path.isfile(one) and one.suffix in (".py", ".pyc"))
    return next(files, None)


def _is_in_package(module: str) -> bool:
    """True if its package is a file, with which the data of both count."""
    parent = module.rpartition(".")[0]
    place = _place(parent) if parent else None
    return place is not None and place.file is not None


def _below(package: str, own: str) -> list[str]:
    """All modules of one of a plug-in's packages, without its tests."""
    modules: list[str] = []
    place = None if package.partition(".")[0] in _NOT_THEIRS else _place(package)
    if place is None or (place.file is not None and _owner(package) not in ("", own)):
        return modules
    for folder in place.folders:
        for file in _files(folder):
            name, _, suffix = file.partition(".")
            is_test = name.rpartition("/")[2].startswith(("test_", "conftest"))
            if suffix in ("py", "pyc") and not is_test:
                modules.append(f"{package}.{name.replace('/', '.')}".removesuffix(".__init__"))
    return modules


def _files(folder: Path) -> Iterator[str]:
    """Files below a folder, but for hidden ones, tests, and what a storage of sweeps keeps."""
    for parent, folders, names in os.walk(folder):
        if any(next(Path(parent).glob(kind), None) for kind in _OF_A_STORAGE):
            folders.clear()
            continue
        folders[:] = sorted(n for n in folders if n[0] != "." and n not in _NO_FOLDERS)
        place = Path(parent).relative_to(folder)
        yield from ((place / name).as_posix() for name in sorted(names) if name[0] != ".")


# --- whose they are -------------------------------------------------------------------------------


def _owner(module: str, file: Path | None = None) -> str:
    """Installed package that brought a module, or a file beside it; empty: none."""
    place, root = _place(module), _root(module)
    if place is None or place.file is None or root is None:
        return ""
    brought = (file or place.file).relative_to(root).as_posix()
    owners = _installed(root).get(brought.partition("/")[0], [])
    if len(owners) > 1:
        owners = [one for one in owners if brought in _record(one)]
    return owners[0].name.partition("-")[0] if owners else ""


@functools.cache
def _installed(root: Path) -> dict[str, list[Path]]:
    """Packages installed into a folder, by their names at its top level."""
    kinds = ["*.dist-info"]
    if root.name in ("site-packages", "dist-packages"):
        kinds.append("*.egg-info")  # elsewhere it is of a checkout
    by_name: dict[str, list[Path]] = {}
    for info in sorted(path for kind in kinds for path in root.glob(kind)):
        names = {line.partition("/")[0] for line in _record(info)}
        if not names:
            tops = _lines(info / "top_level.txt") or [info.name.partition("-")[0]]
            names = {name for top in tops for name in (top, f"{top}.py", f"{top}.pyc")}
        for name in names:
            by_name.setdefault(name, []).append(info)
    return by_name


@functools.cache
def _record(info: Path) -> frozenset[str]:
    """Files that an installer says it brought."""
    return frozenset(line.rsplit(",", 2)[0] for line in _lines(info / "RECORD"))


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line]
