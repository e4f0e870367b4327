"""Locks of files, which the kernel drops however their holder ends.

Not every file system has them: Lustre mounted without ``flock`` answers ENOSYS, NFS without its
lock service ENOLCK. Others hold a lock on one machine alone, and say nothing: ``binds_here_alone``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

MISSING = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}
LOOK_EVERY_S = 0.05
# By kind of file system, which of its mount options keep locks to one machine; BeeGFS does unless
# its own configuration says otherwise, which cannot be seen here.
HERE_ALONE = {
    "lustre": {"localflock"},
    "nfs": {"nolock", "local_lock=all", "local_lock=flock"},
    "nfs4": {"nolock", "local_lock=all", "local_lock=flock"},
    "beegfs": {"rw", "ro"},
}


class NoLocks(OSError):
    """The file system has no locks."""


def lock(file: IO[str] | int, *, shared: bool = False, wait: bool = False) -> None:
    """Take a lock, which is dropped when the file is closed.

    Raises:
        BlockingIOError: another process has it, and this one does not wait.
        NoLocks: there are none.
    """
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    try:
        fcntl.flock(file, how)
    except OSError as error:
        if error.errno in MISSING:
            raise NoLocks(error.errno, error.strerror) from error
        raise


def wait_for_lock(
    file: IO[str],
    wait_s: float = math.inf,
    wait: Callable[[], None] = lambda: time.sleep(LOOK_EVERY_S),
) -> None:
    """Take a lock once no other process has it; ``wait`` is called between two tries.

    Raises:
        BlockingIOError: another process has it, after ``wait_s`` still.
        NoLocks: there are none.
    """
    give_up = time.monotonic() + wait_s
    while True:
        try:
            return lock(file)
        except BlockingIOError:
            if time.monotonic() >= give_up:
                raise
        wait()


def open_lock(path: Path) -> IO[str]:
    """Open or create the file of a lock, for those alone who may write its folder.

    Whoever may open a file, to read it even, may hold its lock for as long as they like.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    # Of every class that may write the folder: its w, and from it r.
    writers = stat.S_IMODE(path.parent.stat().st_mode) & 0o222
    with contextlib.suppress(OSError):  # another user's
        os.fchmod(descriptor, writers | writers << 1)
    return os.fdopen(descriptor, "a+")


@contextlib.contextmanager
def held(path: Path, wait_s: float = 0.0) -> Iterator[None]:
    """Keep what the file stands for from other processes; the file goes with the lock.

    Where the file system has no locks nothing is kept.

    Raises:
        BlockingIOError: another process has it, after ``wait_s`` still.
    """
    give_up = time.monotonic() + wait_s
    while True:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open_lock(path))
            with contextlib.suppress(NoLocks):
                wait_for_lock(file, give_up - time.monotonic())
            # Else the last holder removed the file while this one waited: a lock on nothing.
            if _has_name(path, file):
                stack.callback(path.unlink, missing_ok=True)  # before it is let go
                yield
                return


def _has_name(path: Path, file: IO[str]) -> bool:
    """True when the file has its name still: its last holder may have removed it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def has_locks(folder: Path) -> bool:
    """True when the folder's file system has locks; one is held for an instant."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        lock(descriptor, shared=True)
    except NoLocks:
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return True


def binds_here_alone(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """True when a lock below the folder binds no other machine that sees it."""
    kind, options = _mounted(folder, mounts)
    return bool(HERE_ALONE.get(kind, set()) & options)


def _mounted(folder: Path, mounts: Path) -> tuple[str, set[str]]:
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:  # of Linux alone
        return "", set()
    deepest: tuple[int, str, set[str]] = (-1, "", set())
    for words in (line.split() for line in lines):
        if len(words) > 3:
            place = words[1].replace("\\040", " ")
            if folder.is_relative_to(place) and len(place) >= deepest[0]:
                deepest = (len(place), words[2], set(words[3].split(",")))
    return deepest[1:]
