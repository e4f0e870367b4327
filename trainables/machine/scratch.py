"""Temporary folders that go with their process, killed ones with a later one.

A folder of this user alone, whose file ``owner.lock`` is locked while its process lives.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainables.machine import file_locks
from trainables.machine.file_locks import NoLocks

PREFIX, OWNER = "sweep-", "owner.lock"
LINK = "r"  # in a folder: to one elsewhere that goes with it


@contextmanager
def held_folder(place: str = "", kind: str = "") -> Iterator[Path]:
    """A new folder in ``place``; those of killed processes there go first.

    Args:
        place: where; default: where the system has such folders.
        kind: what its name tells people, ending in "-".

    Raises OSError where none can be made there.
    """
    place = place or tempfile.gettempdir()
    remove_abandoned_folders(place)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}", dir=place))
    try:
        unnamed = folder / f".{OWNER}"
        with open(unnamed, "w") as owner:
            with suppress(NoLocks):  # then it stays for good where this process is killed
                file_locks.lock(owner, wait=True)
            unnamed.rename(folder / OWNER)  # held before another process can find it
            yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Remove a folder, and what it links to."""
    if (link := folder / LINK).is_symlink():
        shutil.rmtree(link.resolve(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned_folders(place: str) -> None:
    """Remove the folders of processes that were killed: nobody holds their lock any more."""
    for owner in Path(place).glob(f"{PREFIX}*/{OWNER}"):
        try:
            with _own_file(owner) as file:
                file_locks.lock(file)
        except OSError:  # in use, or not ours
            continue
        remove(owner.parent)


@contextmanager
def _own_file(path: Path) -> Iterator[int]:
    """Open a plain file of this user in a folder of this user; OSError for all else.

    The folder above is everybody's: a stranger's pipe would be waited for, for ever.
    """
    if path.parent.lstat().st_uid != os.getuid():
        raise PermissionError(f"{path.parent} is another user's")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid() or not stat.S_ISREG(status.st_mode):
            raise PermissionError(f"{path} is no file of this user")
        yield descriptor
    finally:
        os.close(descriptor)
