"""Interpreter that finds the standard library, this repository and some packages, and no others."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder

OURS = ("tests", "benchmarks", "trainables", "trainables_testing", "sweep", "search_spaces")


def close(packages: Iterable[str]) -> None:
    """From now on this process imports nothing else than what these packages and theirs bring."""
    found = closure(packages)
    by_module = importlib.metadata.packages_distributions()
    theirs = {top for top, owners in by_module.items() if found & set(map(plain, owners))}
    known = theirs | {*OURS, *sys.stdlib_module_names, sysconfig._get_sysconfigdata_name()}  # type: ignore[attr-defined]

    class Closed:
        @staticmethod
        def find_spec(
            name: str, path: Sequence[str] | None = None, target: object = None
        ) -> ModuleSpec | None:
            return PathFinder.find_spec(name, path) if name.partition(".")[0] in known else None

        @staticmethod
        def find_distributions(context: DistributionFinder.Context) -> Iterator[Distribution]:
            for distribution in MetadataPathFinder.find_distributions(context):
                if plain(distribution.metadata["Name"]) in found:
                    yield distribution

    sys.meta_path[:] = [BuiltinImporter, FrozenImporter, Closed]  # type: ignore[list-item]


def closure(packages: Iterable[str]) -> set[str]:
    """These packages and all that they require without extras."""
    found: set[str] = set()
    asked = list(packages)
    while asked:
        name = plain(re.split(r"[^\w.-]", asked.pop())[0])
        if name in found:
            continue
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # of another platform
            continue
        found.add(name)
        asked += [need for need in needs if "extra ==" not in need]
    return found


def plain(package: str) -> str:
    """Its name as packages are compared by."""
    return re.sub(r"[-_.]+", "-", package).lower()
