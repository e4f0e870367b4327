"""Files that appear under their name whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

# The answers of a file system without hard links to a link.
WITHOUT_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}

_NAMED = 50  # characters of the name, of up to 4 bytes: a file's name has at most 255


@contextlib.contextmanager
def atomic_file(path: Path, *, replace: bool = True) -> Iterator[Path]:
    """A temporary path beside ``path``; what the block writes there takes the name at its end.

    Raises FileExistsError where the name is taken, and ``replace`` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:_NAMED]}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        if replace:
            os.replace(temporary, path)
        else:
            _link_or_move(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file as ``atomic_file`` does, and have it on the disk before it has its name."""
    with atomic_file(path, replace=replace) as temporary:
        write_durably(temporary, content)  # before the rename: else a crash may leave an empty file


def write_durably(path: Path, content: bytes) -> None:
    """Write a file that nobody reads yet, and have it on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def left_overs(path: Path) -> Iterator[Path]:
    """Temporary files of ``path``: of writers that were killed, or that are alive still."""
    return path.parent.glob(f".{glob.escape(path.name[:_NAMED])}.{'[0-9a-f]' * 32}.tmp")


def remove_temporary_files(path: Path) -> None:
    """Remove temporary files of ``path``; a writer that is alive would fail, so hold its lock."""
    for temporary in left_overs(path):
        temporary.unlink(missing_ok=True)


def _link_or_move(temporary: Path, path: Path) -> None:
    """Give a file a name that is not taken: exactly, where there are hard links."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        # A rival whose file has the name may have cleared ours away, too.
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        if error.errno not in WITHOUT_LINKS:
            raise
        os.replace(temporary, path)
