"""Packages with plug-ins, written as an installer leaves them, and the ones of docs/plugins.md."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
EntryPoints = Mapping[str, Mapping[str, str]]  # by group ("models"): name -> "module:object"


def write_package(
    folder: Path, name: str, version: str, entry_points: EntryPoints, files: Mapping[str, str]
) -> Path:
    """The package's files and its metadata in ``folder``, which is to be put on sys.path."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in entry_points.items():
        lines.append(f"[descent_sweep.{group}]")
        lines += [f"{point} = {value}" for point, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for file, text in files.items():
        (folder / file).write_text(text)
    return folder


def files_of_the_page() -> dict[str, list[str]]:
    """The blocks of docs/plugins.md by the file that each says it is of, in their order."""
    page = (REPOSITORY / "docs" / "plugins.md").read_text(encoding="utf-8")
    files: dict[str, list[str]] = {}
    for text in re.findall(r"^```\w+\n(.*?)^```$", page, flags=re.M | re.S):
        first, _, rest = text.partition("\n")
        files.setdefault(first.removeprefix("# "), []).append(rest)
    return files


def package_of_the_page(folder: Path) -> Path:
    """The package of docs/plugins.md as its installation leaves it, its space and its test."""
    files = {name: "".join(blocks) for name, blocks in files_of_the_page().items()}
    project = tomllib.loads(files.pop("pyproject.toml"))["project"]
    points = {g.removeprefix("descent_sweep."): p for g, p in project["entry-points"].items()}
    return write_package(folder, project["name"], project["version"], points, files)
