"""Cache of folders built once per machine, whole or not at all, for all arms.

An entry is a folder of files with a manifest of their sizes and checksums. It is built beside its
place and renamed into it, under a lock, so that of several processes at once one builds and the
others wait; where the file system has no locks they all build and the first one's entry stays. A
damaged entry is built again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from trainables.errors import Misuse, StoreError
from trainables.machine import file_locks
from trainables.plain import Json

log = logging.getLogger(__name__)
_MANIFEST = "manifest.json"
_BLOCK_BYTES = 1 << 20
_LOOK_EVERY_S, _TELL_AFTER_S = 0.1, 5.0


def cache_root() -> Path:
    """SWEEP_CACHE, else $XDG_CACHE_HOME/descent-sweep, else ~/.cache/descent-sweep.

    Who has no home that can be written gets a folder below the temporary one, closed to others.
    """
    if own := os.environ.get("SWEEP_CACHE"):
        return Path(own).expanduser().resolve()
    given = os.environ.get("XDG_CACHE_HOME")
    base = Path(given or os.path.expanduser("~/.cache")).expanduser().resolve()
    nearest = next(path for path in (base, *base.parents) if os.path.exists(path))
    if given or os.access(nearest, os.W_OK):
        return base / "descent-sweep"
    return _closed_to_others(Path(tempfile.gettempdir(), f"descent-sweep-{os.getuid()}"))


def _closed_to_others(folder: Path) -> Path:
    """The folder, made for this user; anybody may have put another one in its place."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        is_own = folder.stat().st_uid == os.getuid() and not folder.is_symlink()
    except OSError as error:
        raise Misuse(f"{folder} cannot be made ({error}). Set SWEEP_CACHE to a folder.") from error
    if not is_own:
        raise Misuse(f"{folder} is another user's. Set SWEEP_CACHE to a folder you own.")
    return folder


def built_once(kind: str, key: Json, build: Callable[[Path], None]) -> Path:
    """The folder of the entry named by ``key``; ``build`` fills it when it is missing or damaged.

    Args:
        kind: the folder below the cache root, e.g. "video".
        key: JSON value; everything the entry's content depends on.
        build: writes the entry's files into the empty folder it is given.

    Raises:
        Misuse: the cache root cannot be written.
        StoreError: the entry could not be written, e.g. on a full disk.
    """
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_root() / kind
    entry = folder / name
    if _is_whole(entry):
        return entry
    with lock_file(folder, name) as lock:
        with contextlib.suppress(file_locks.NoLocks):  # renames alone keep entries whole
            file_locks.wait_for_lock(lock, wait=_Waiting(entry).once_more)
        if not _is_whole(entry):  # again, now that the lock is held: another may have built it
            _build(entry, key, build)
    return entry


def lock_file(folder: Path, name: str) -> IO[str]:
    """The file of an entry's lock; closing it lets go of the lock.

    Raises Misuse where the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return file_locks.open_lock(folder / f".{name}.lock")
    except OSError as error:
        raise Misuse(
            f"the cache folder {folder} cannot be written ({error}). "
            "Set SWEEP_CACHE to a folder you own."
        ) from error


class _Waiting:
    """A wait for an entry that another process builds, which is logged once."""

    def __init__(self, entry: Path) -> None:
        self._entry, self._tell_at = entry, time.monotonic() + _TELL_AFTER_S

    def once_more(self) -> None:
        """Sleep for an instant; log a warning once the wait has lasted ``_TELL_AFTER_S``."""
        if time.monotonic() > self._tell_at:
            log.warning(
                "waiting for another process that decodes the same data, and holds %s",
                self._entry.with_name(f".{self._entry.name}.lock"),
            )
            self._tell_at = float("inf")
        time.sleep(_LOOK_EVERY_S)


def _build(entry: Path, key: Json, build: Callable[[Path], None]) -> None:
    temporary = entry.with_name(f".{entry.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.mkdir()
        build(temporary)
        files = {path.name: _seen(path) for path in sorted(temporary.iterdir())}
        (temporary / _MANIFEST).write_text(json.dumps({"key": key, "files": files}))
        _move_into_place(temporary, entry)
    except OSError as error:
        raise StoreError(
            f"the cache entry {entry} could not be written: {error}. "
            "Free some space there, or set SWEEP_CACHE to a folder on another disk."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move_into_place(temporary: Path, entry: Path) -> None:
    if entry.exists() and not _is_whole(entry):
        damaged = entry.with_name(f".{entry.name}.{uuid.uuid4().hex}.damaged")
        with contextlib.suppress(FileNotFoundError):  # another builder moved it away first
            entry.rename(damaged)  # readers that have it mapped keep their pages
        shutil.rmtree(damaged, ignore_errors=True)
    try:
        temporary.rename(entry)
    except OSError:
        if not _is_whole(entry):  # else another builder was first: its entry is as good
            raise


def _is_whole(entry: Path) -> bool:
    """True when every file of the manifest is there with its size and checksum."""
    try:
        files = json.loads((entry / _MANIFEST).read_text())["files"]
        return all(_seen(entry / name) == seen for name, seen in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _seen(path: Path) -> list[int]:
    """Size in bytes and CRC-32 of a file."""
    seen = path.stat()
    return [seen.st_size, _checksum(path, seen.st_mtime_ns, seen.st_ino)]


@functools.lru_cache(maxsize=64)
def _checksum(path: Path, modified_ns: int, inode: int) -> int:
    """CRC-32 of a file, computed once per process while the file stays the same."""
    checksum = 0
    with open(path, "rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum
