"""Given folder of a data set: what is in it, and what is refused."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from pathlib import Path

from trainables.config.arm import DataConfig
from trainables.errors import BadData


class OtherLayout(BadData):
    """The folder holds something, but nothing that looks like the data set."""


def given_folder(data: DataConfig, expected: str) -> Path:
    """``data.folder``, resolved. BadData when it is none that holds anything."""
    if data.folder is None:
        raise BadData(
            f"data set {data.name} needs data.folder, the folder its files lie in; none was "
            f"given. {expected}"
        )
    try:
        given = Path(data.folder).expanduser().resolve()
        exists, is_folder = given.exists(), given.is_dir()
    except (ValueError, RuntimeError) as error:  # a null byte, an unknown ~user, a loop of links
        raise BadData(
            f"data.folder {data.folder!r} is no path: {error}. Give an absolute path."
        ) from error
    if not is_folder:
        state = "is not a folder" if exists else "does not exist"
        raise BadData(
            f"data.folder {given} {state}. {expected} On a cluster it must exist on every machine."
        )
    if not any(given.iterdir()):
        raise BadData(f"data.folder {given} is empty. {expected}")
    return given


def listing(root: Path, files: Iterable[Path]) -> tuple[tuple[str, int, int], ...]:
    """Path below ``root``, bytes and mtime in ns of every file. BadData for what is no file."""
    entries = []
    for path in files:
        try:
            seen = path.stat()
        except OSError as error:  # a dead link, a loop of links
            raise BadData(
                f"{path} cannot be opened: {error.strerror}. It must be a readable file. Copy it "
                "again from its source."
            ) from error
        if not stat.S_ISREG(seen.st_mode):  # a folder, or a pipe that would never end
            raise BadData(
                f"{path} is named like a file of the data set, but is not a regular file. Move it "
                "away, or copy it again from its source."
            )
        entries.append((path.relative_to(root).as_posix(), seen.st_size, seen.st_mtime_ns))
    return tuple(entries)


def places_of(given: Path, names: Iterable[str]) -> list[Path]:
    """The given folder, and those of these names below it.

    Also twice below: archives are often unpacked into a folder of their own name. Capital letters,
    blanks and the like make no difference. By identity: some file systems find one folder under
    several names.
    """
    wanted = {_plain(part) for name in names for part in name.split("/")}
    places: dict[tuple[int, int], Path] = {}
    level = [given]
    for _ in range(3):
        below = []
        for place in level:
            seen = place.stat()
            if (seen.st_dev, seen.st_ino) not in places:
                places[seen.st_dev, seen.st_ino] = place
                below += [p for p in place.iterdir() if _plain(p.name) in wanted and p.is_dir()]
        level = sorted(below)
    return list(places.values())


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def other_layout(data: DataConfig, given: Path, expected: str) -> OtherLayout:
    """The error for a folder that holds something else."""
    return OtherLayout(
        f"data.folder {given} (it holds: {contents(given)}) does not look like {data.name}. "
        f"{expected}"
    )


def contents(folder: Path) -> str:
    """The first names in a folder, for messages."""
    return ", ".join(sorted(p.name for p in folder.iterdir())[:5])
