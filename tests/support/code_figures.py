"""Figures of the code and its pages, and the limits they keep; `make check` prints them.

    python -m tests.support.code_figures

prints one line for each figure, and exits 1 where one is over its limit.
"""

from __future__ import annotations

import functools
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
PACKAGES = ("sweep", "search_spaces", "trainables")
LONGEST_MODULE, NINE_IN_TEN_MODULES = 400, 280  # lines
STRING_KEYS = 150  # lines of sweep/ with entry["name"], which mypy cannot check
MOST_MODULES = 18  # in a folder
MOST_MODULES_OF_THE_SERVICE = 15  # in a folder of sweep/
README_LINES, README_WORDS, README_LINE = 150, 1000, 110
LONGEST_LINE = 100  # characters of prose; a table's row, a link's and a command's may be longer

STRING_KEY = re.compile(r'\["[a-z_]+"\]')

# Folders and files that git ignores, for a copy that is no git checkout.
IGNORED = re.compile(
    r"\.(?!ci$|gitignore$|pre-commit)|__pycache__$|.*\.egg-info$|(sweeps|build|dist)$"
)


@dataclass(frozen=True)
class Figure:
    """One figure, its limit if it has one, and where it was found."""

    name: str
    value: int
    limit: int | None = None
    where: str = ""

    @property
    def is_within(self) -> bool:
        """Whether it keeps to its limit."""
        return self.limit is None or self.value <= self.limit

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" (at most {self.limit})"
        where = f": {self.where}" if self.where else ""
        return f"{'' if self.is_within else 'OVER '}{self.name} {self.value:,}{limit}{where}"


def listed_files() -> list[Path]:
    """Files that git tracks, relative to the root; outside git all that it would not ignore.

    What a user keeps beside them, a space or a report, is none of the project's.
    """
    return list(_listed_once())


@functools.cache
def _listed_once() -> list[Path]:
    git = ("git", "ls-files", "-z")
    try:
        names = subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        files = [Path(name) for name in names.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
        files = [file for file in files if not any(map(IGNORED.match, file.parts))]
    return sorted({file for file in files if (ROOT / file).is_file()})


def modules() -> list[Path]:
    """Files of the product, relative to the root."""
    return [f for f in listed_files() if f.suffix == ".py" and f.parts[0] in PACKAGES]


def figures() -> Iterator[Figure]:
    """Every figure, in the order of printing."""
    for what, with_types in (("when it runs", False), ("with imports for types", True)):
        found = circles(*PACKAGES, with_types=with_types)
        yield Figure(f"circles of imports {what}:", len(found), 0, "; ".join(found))
    folders = Counter(file.parent for file in modules() if file.name != "__init__.py")
    service = {f: n for f, n in folders.items() if f.parts[0] == "sweep"}
    others = {f: n for f, n in folders.items() if f not in service}
    yield _largest("modules in a folder of sweep:", service, MOST_MODULES_OF_THE_SERVICE)
    yield _largest("modules in another folder:", others, MOST_MODULES)
    lines = {file: len(_lines(file)) for file in modules()}
    yield _largest("lines of the longest module:", lines, LONGEST_MODULE)
    nine_in_ten = int(statistics.quantiles(lines.values(), n=10)[-1])
    yield Figure("nine in ten modules have at most:", nine_in_ten, NINE_IN_TEN_MODULES)
    of_sweep = [line for file in lines if file.parts[0] == "sweep" for line in _lines(file)]
    keys = sum(map(bool, map(STRING_KEY.search, of_sweep)))
    yield Figure("lines of sweep with a string key:", keys, STRING_KEYS)
    for package in PACKAGES:
        of = [n for file, n in lines.items() if file.parts[0] == package]
        yield Figure(f"lines of {package}:", sum(of), where=f"{len(of)} files")
    readme = _lines(Path("README.md"))
    yield Figure("lines of the README:", len(readme), README_LINES)
    yield Figure("words of the README:", sum(len(line.split()) for line in readme), README_WORDS)
    yield Figure("its longest line:", max(map(len, readme)), README_LINE)
    pages = [f for f in listed_files() if f.suffix == ".md" and f.parts[0] != "tests"]
    yield _largest("longest line of docs:", _longest(pages), LONGEST_LINE)


def circles(*packages: str, with_types: bool) -> list[str]:
    """Groups of modules that import each other, directly or over others.

    Args:
        packages: where they are looked for.
        with_types: also count imports under ``if TYPE_CHECKING``.
    """
    graph = grimp.build_graph(
        *packages, exclude_type_checking_imports=not with_types, cache_dir=None
    )
    groups = {
        frozenset({module, *both})
        for module in graph.modules
        if (both := graph.find_upstream_modules(module) & graph.find_downstream_modules(module))
    }
    return sorted(", ".join(sorted(group)) for group in groups)


def _largest(name: str, sizes: dict[Path, int], limit: int | None) -> Figure:
    size, where = max((size, str(path)) for path, size in sizes.items())
    return Figure(name, size, limit, where)


def _longest(pages: list[Path]) -> dict[Path, int]:
    """Characters of the longest line of prose of each page."""
    return {page: max(map(len, _prose(page)), default=0) for page in pages}


def _prose(page: Path) -> Iterator[str]:
    is_code = False
    for line in _lines(page):
        is_code ^= line.startswith("```")
        if not is_code and not re.match(r"\s*\||#|    |\s*- \[[^]]*\]\(", line):
            yield line


def _lines(file: Path) -> list[str]:
    return (ROOT / file).read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    found = list(figures())
    print(*found, sep="\n")
    sys.exit(not all(figure.is_within for figure in found))
