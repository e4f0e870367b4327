"""Fetched folders of object storage: once per machine, whole or not at all.

An address is listed, and the files of the listing are copied into a folder of the cache whose name
stands for both. One process copies under a lock, and the others wait. Files that a killed process
had copied, or that an earlier listing shares, are not copied again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import IO

from trainables.errors import BadData, Misuse, StoreError
from trainables.fetching.cache import cache_root, lock_file
from trainables.fetching.remote_folders import (
    RemoteFile,
    RemoteFolder,
    Replaced,
    is_address,
    without_scheme,
)
from trainables.machine import file_locks
from trainables.machine.atomic_files import atomic_file

KIND = "fetched"  # the folder below the cache root
COPIES = 16  # at a time: small files take as long as an answer takes
LISTINGS = 3  # of an address whose files change while they are copied
TELL_EVERY_S = 1.0
KEPT_WITHIN_NS = 2 * 10**9  # of a file's time: FAT keeps it by 2 s, some network shares by 1 s
LOOK_EVERY_S = 0.2  # at a lock that somebody else holds
_FULL = (errno.ENOSPC, errno.EDQUOT)

Tell = Callable[[str], None]  # gets the progress, in one line
_folders: dict[tuple[str, tuple[str, ...]], Path] = {}  # by address and names, of this process


def fetched(address: str, names: Sequence[str] = (), *, tell: Tell | None = None) -> Path:
    """The folder on this machine with what lies below ``address``, which is listed once a process.

    Args:
        address: in object storage.
        names: folders below it that are enough, those of them that are there; else all of it.
        tell: gets the progress, about once a second while it is fetched.

    Raises:
        BadData: nothing lies there, it may not be read, or it changes all the time.
        StoreError: it could not be read, or this machine's disk is full.
        Misuse: the cache cannot be written.
    """
    key = (address.rstrip("/"), tuple(names))
    known = _folders.get(key)
    if known is None or not known.is_dir():
        known = _Fetch(*key, tell or (lambda text: None)).folder()
        _folders[key] = known
    return known


def on_this_machine(place: str, names: Sequence[str] = (), *, tell: Tell | None = None) -> str:
    """A folder of this machine for an address, as ``fetched``; another place as it is."""
    place = without_scheme(place)
    return str(fetched(place, names, tell=tell)) if is_address(place) else place


def listed(address: str, names: Sequence[str] = ()) -> tuple[tuple[RemoteFile, ...], int]:
    """The files that ``fetched`` would have here, and how many of their bytes are missing yet.

    Raises BadData where nothing lies there, or it may not be read.
    """
    fetch = _Fetch(address.rstrip("/"), tuple(names), lambda text: None)
    files = _listed(fetch.remote, names)
    return files, fetch.missing(files)


def _listed(folder: RemoteFolder, names: Sequence[str]) -> tuple[RemoteFile, ...]:
    files = [file for name in dict.fromkeys(names) for file in folder.files(name)]
    if result := tuple(files) or folder.files():
        return result
    above, _, last = folder.address.rpartition("/")
    sought = f"folders {', '.join(names)}, then any file" if names else "any file"
    above_has = f"{above} has: {', '.join(folder.beside()[:8]) or 'nothing'}. "
    store = " --endpoint-url URL" if "endpoint_override" in folder.options else ""
    raise BadData(
        f"there is nothing below {folder.address} (looked for: {sought}). "
        f"{'' if above.endswith('/') else above_has}Upload it (for S3: "
        f"`aws s3 sync DIR {folder.address}{store}`), or give the address where it is. A folder "
        f"{last!r} without files counts as nothing."
    )


def size_text(size: float, total: float) -> str:
    """Bytes out of a ``total``, both in the unit of the total.

    >>> size_text(3.1e9, 8e9), size_text(500_000, 5_200_000)
    ('3.1 of 8.0 GB', '0.5 of 5.2 MB')
    """
    unit, name = (1e9, "GB") if total >= 1e9 else (1e6, "MB")
    return f"{size / unit:.1f} of {total / unit:.1f} {name}"


class _GivenUp(Exception):
    """Raised in a copy once another file could not be copied."""


class _Fetch:
    """One fetch of an address: its listing, and its lock, part and entry in the cache."""

    def __init__(self, address: str, names: tuple[str, ...], tell: Tell) -> None:
        self.remote, self._names, self._tell = RemoteFolder(address), names, tell
        called = self.remote.address
        place = hashlib.sha256(json.dumps([called, names]).encode()).hexdigest()[:12]
        last = re.sub(r"[^A-Za-z0-9._-]+", "-", called.rpartition("/")[2]).lstrip(".")
        self._name = f"{last[:40]}-{place}"
        self._cache = cache_root() / KIND
        self._part = self._cache / f".{self._name}.part"
        self._progress = self._cache / f".{self._name}.progress"
        self._done = self._total = 0
        self._reported_s = 0.0
        self._counting = threading.Lock()
        self._given_up = threading.Event()

    def folder(self) -> Path:
        """The folder, with all files of one listing."""
        for _ in range(LISTINGS):
            files = _listed(self.remote, self._names)
            entry = self._entry(files)
            if _is_whole(entry, files):
                return entry
            with self._lock_file() as lock:
                with contextlib.suppress(file_locks.NoLocks):  # renames alone keep entries whole
                    file_locks.wait_for_lock(lock, wait=self._report_other)
                if _is_whole(entry, files) or self._complete(entry, files):
                    return entry
        raise BadData(
            f"{self.remote.address} changes while it is fetched: {LISTINGS} times what was copied "
            "was no longer what its listing has. Let whoever writes there finish first."
        )

    def missing(self, files: Sequence[RemoteFile]) -> int:
        """The number of bytes that are to be copied yet."""
        entry = self._entry(files)
        place, within_ns = (entry, KEPT_WITHIN_NS) if entry.is_dir() else (self._part, 0)
        return sum(f.size for f in files if not _is_there(place, f, within_ns))

    def _entry(self, files: Sequence[RemoteFile]) -> Path:
        plain = [[file.path, file.size, file.modified_ns] for file in files]
        listing = hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:12]
        return self._cache / f"{self._name}-{listing}"

    def _complete(self, entry: Path, files: Sequence[RemoteFile]) -> bool:
        """Copy what is missing and move all of it into place; False: the listing has changed."""
        try:
            if entry.exists():  # damaged
                shutil.rmtree(self._part, ignore_errors=True)
                entry.rename(self._part)
            self._part.mkdir(exist_ok=True)
            self._keep(files)
            self._copy([file for file in files if not _is_there(self._part, file)], files)
            # Listed anew before the rename: an entry is one listing, never a mixture of two.
            if _listed(self.remote, self._names) != tuple(files):
                return False
            self._part.rename(entry)
        except Replaced:
            return False
        except OSError as error:
            if _is_whole(entry, files):  # where there are no locks, somebody else was first
                return True
            raise self._unwritable(error) from error
        finally:
            self._progress.unlink(missing_ok=True)
        return True

    def _keep(self, files: Sequence[RemoteFile]) -> None:
        """Leave in the part only files of the listing, and link in those of earlier listings."""
        wanted = {file.path: file for file in files}
        for path in [path for path in self._part.rglob("*") if not path.is_dir()]:
            file = wanted.get(path.relative_to(self._part).as_posix())
            if file is None or not _is_there(self._part, file):
                path.unlink()
        for earlier in self._cache.glob(f"{self._name}-*"):
            for file in files:
                if _is_there(earlier, file) and not _is_there(self._part, file):
                    (self._part / file.path).parent.mkdir(parents=True, exist_ok=True)
                    with contextlib.suppress(OSError):  # no links here, or a stranger's: copied
                        os.link(earlier / file.path, self._part / file.path)

    def _copy(self, missing: Sequence[RemoteFile], files: Sequence[RemoteFile]) -> None:
        self._total = sum(file.size for file in files)
        needed = sum(file.size for file in missing)
        self._done = self._total - needed
        if needed > (free := shutil.disk_usage(self._cache).free):
            raise OSError(
                errno.ENOSPC, f"it needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} are free"
            )
        pool = ThreadPoolExecutor(COPIES, thread_name_prefix="fetch")
        try:
            for copy in as_completed([pool.submit(self._copy_one, file) for file in missing]):
                copy.result()
        finally:
            self._given_up.set()  # first: copies under way end, and the shutdown waits for them
            pool.shutdown(cancel_futures=True)
            self._given_up.clear()

    def _copy_one(self, file: RemoteFile) -> None:
        try:
            with atomic_file(self._part / file.path) as temporary:
                self.remote.copy(file, temporary, self._passed)
                # The listing's time, before the file has its name: ``_is_there`` compares it.
                os.utime(temporary, ns=(file.modified_ns, file.modified_ns))
        except StoreError as error:
            if isinstance(cause := error.__cause__, OSError) and cause.errno in _FULL:
                raise cause from error
            raise StoreError(
                f"{error} {socket.gethostname()} has {size_text(self._done, self._total)} of it; "
                "the next try goes on there."
            ) from error

    def _passed(self, size: int) -> None:
        if self._given_up.is_set():
            raise _GivenUp
        with self._counting:
            self._done += size
            now_s = time.monotonic()
            if now_s < self._reported_s + TELL_EVERY_S:
                return
            self._reported_s = now_s
            done = self._done
        with contextlib.suppress(OSError):
            self._progress.write_text(json.dumps([done, self._total]))
        self._tell(self._text(done, self._total))

    def _text(self, done: int, total: int) -> str:
        return f"fetching data: {size_text(done, total)} on {socket.gethostname()}"

    def _lock_file(self) -> IO[str]:
        try:
            return lock_file(self._cache, self._name)
        except Misuse as error:
            if isinstance(cause := error.__cause__, OSError) and cause.errno in _FULL:
                raise self._unwritable(cause) from cause
            raise

    def _report_other(self) -> None:
        """Pass on the progress of the process that has the lock, then sleep."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._tell(self._text(*json.loads(self._progress.read_text())))
        time.sleep(LOOK_EVERY_S)

    def _unwritable(self, error: OSError) -> StoreError:
        return StoreError(
            f"{self.remote.address} could not be fetched into {self._cache} on "
            f"{socket.gethostname()}: {error}. Free some space there, or set SWEEP_CACHE to a "
            "folder on another disk."
        )


def _is_whole(entry: Path, files: Sequence[RemoteFile]) -> bool:
    """True when the entry has all files of its listing, up to the rounding of their times."""
    return all(_is_there(entry, file, KEPT_WITHIN_NS) for file in files)


def _is_there(folder: Path, file: RemoteFile, within_ns: int = 0) -> bool:
    """True when a folder, even one of another listing, has the file as its listing says."""
    try:
        seen = (folder / file.path).stat()
    except OSError:
        return False
    return seen.st_size == file.size and abs(seen.st_mtime_ns - file.modified_ns) <= within_ns
