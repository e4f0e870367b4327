"""Object store: objects put whole under their final name, with a checksum.

Local and NFS: a temporary file in the same folder, fsync, rename over. Object storage: one PUT (a
rename there is copy and delete). Readers accept only objects whose checksum is right; a damaged one
reads as a StoreError that names it, never as an empty one. There are no leases: two writers of one
name are harmless.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import pyarrow.fs

from trainables.errors import DamagedObject, Misuse, StoreError, UnknownName, UnreadableObject
from trainables.machine.atomic_files import left_overs, write_atomically
from trainables.plain import Json

T = TypeVar("T")
P = ParamSpec("P")
Method = Callable[Concatenate["ObjectStore", str, P], T]
CONNECTIONS = 64  # to object storage, at the same time
_FOOTER = b"\nsha256:"
_DIGEST = 64
_CLOCK = ".clock-"  # follows an object's name in those of probes of its age
_DISK_TROUBLE = {errno.ENOSPC, errno.EDQUOT, errno.EIO}  # another root would not be more right


def _tries(what: str) -> Callable[[Method[P, T]], Method[P, T]]:
    """A method of one name that goes through ``_try``, which is told ``what`` with that name."""

    def decorated(method: Method[P, T]) -> Method[P, T]:
        @functools.wraps(method)
        def tried(self: ObjectStore, name: str, /, *args: P.args, **options: P.kwargs) -> T:
            return self._try(what.format(name), lambda: method(self, name, *args, **options))

        return tried

    return decorated


class ObjectStore:
    """Whole objects below one root: a folder, or a URI that pyarrow knows (s3://..., gs://...)."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Name the root; nothing is created before the first put."""
        text = os.fspath(root)
        self.root = text if "://" in text else str(Path(text).expanduser().resolve())
        self.is_local = "://" not in self.root
        self._remote: tuple[pyarrow.fs.FileSystem, str] | None = None

    def below(self, folder: str) -> ObjectStore:
        """A store of its own below this one's root, with the same options of an address."""
        if self.is_local:
            return ObjectStore(Path(self.root, folder))
        address, mark, options = self.root.partition("?")
        return ObjectStore(f"{address.rstrip('/')}/{folder}{mark}{options}")

    def check_writable(self) -> None:
        """Put and delete a probe: a root that cannot be written is refused before any work."""
        probe = f".probe-{uuid.uuid4().hex}"
        try:
            self.put(probe, b"")
            self.delete(probe)
        except StoreError as error:
            if getattr(error.__cause__, "errno", None) in _DISK_TROUBLE:
                raise StoreError(
                    f"{error}. Free some space below {self.root}, or see to its disk."
                ) from error
            raise Misuse(
                f"the storage root {self.root} cannot be written ({error}). "
                "Give a folder you own with --storage or SWEEP_STORAGE."
            ) from error

    @_tries("write {}")
    def put(self, name: str, content: bytes) -> None:
        """Write one whole object. Raises StoreError when the disk is full or the store is away."""
        if self.is_local:
            self._put_local(Path(self.root, name), _sealed(content))
        else:
            filesystem, path = self._place(name)
            with filesystem.open_output_stream(path) as stream:
                stream.write(_sealed(content))

    def get(self, name: str) -> bytes | None:
        """The object's content, or None when there is none; DamagedObject when it is not whole."""
        sealed, before = self._read(name), None
        # Object storage is asked for the size, then for so many bytes: an object that is replaced
        # in between is read torn. What is damaged is the same again.
        while sealed is not None and sealed != before:
            content = sealed[: -_DIGEST - len(_FOOTER)]
            if sealed == _sealed(content):
                return content
            sealed, before = self._read(name), sealed
        if sealed is None:
            return None
        raise DamagedObject(
            f"{name} below {self.root} is damaged (its checksum does not match). Restore it "
            "from a copy, or delete it and give the same `sweep run` again, which makes what "
            "is missing."
        )

    @_tries("read {}")
    def _read(self, name: str) -> bytes | None:
        try:
            if self.is_local:
                return Path(self.root, name).read_bytes()
            filesystem, path = self._place(name)
            with filesystem.open_input_stream(path) as stream:
                content: bytes = stream.read()
                return content
        except FileNotFoundError:
            return None

    def exists(self, name: str) -> bool:
        """True if there is an object of this name, readable or not."""
        return bool(self._info(name).type == pyarrow.fs.FileType.File)

    def put_at_ns(self, name: str) -> int | None:
        """Time of an object's put, by the storage's own clock, since 1970; None: there is none."""
        put_ns: int | None = self._info(name).mtime_ns
        return put_ns

    def age_s(self, name: str) -> float | None:
        """Seconds since the object was put, by the storage's own clock; None when it is not there.

        A probe tells that clock's time; by this machine's where nothing can be written.
        """
        put_ns = self.put_at_ns(name)
        if put_ns is None:
            return None
        probe = f"{name}{_CLOCK}{uuid.uuid4().hex}"
        now_ns: int | None = None
        with suppress(StoreError):
            try:
                self.put(probe, b"")
                now_ns = self._info(probe).mtime_ns
            finally:
                self.delete(probe)
        return ((time.time_ns() if now_ns is None else now_ns) - put_ns) / 1e9

    def delete_clocks(self, name: str) -> None:
        """Delete the probes that killed readers of an object's age left beside it."""
        folder, _, base = name.rpartition("/")
        for other in self.names(folder):
            if other.startswith(f"{base}{_CLOCK}"):
                self.delete(f"{folder}/{other}")

    @_tries("look for {}")
    def _info(self, name: str) -> pyarrow.fs.FileInfo:
        filesystem, path = self._place(name)
        return filesystem.get_file_info(path)

    def put_json(self, name: str, value: Json) -> None:
        """Write one JSON document; ``jq`` reads it after ``head -n -1``."""
        self.put(name, json.dumps(value, sort_keys=True, allow_nan=False).encode())

    def get_json(self, name: str) -> Json:
        """The JSON document, or None when there is none."""
        return self.get_value(name, lambda plain: plain)

    def get_value(self, name: str, parse: Callable[[Json], T]) -> T | None:
        """The JSON document as ``parse`` reads it, or None when there is none.

        Raises UnreadableObject when it makes nothing of it: another version wrote the object.
        """
        content = self.get(name)
        if content is None:
            return None
        try:
            return parse(json.loads(content))
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            where = f"{name} below {self.root}"
            if isinstance(error, UnknownName):
                raise UnreadableObject(
                    f"{where} names what is not installed here: {error} Install the package that "
                    "brings it (the environments of its arms name it), or give another --storage."
                ) from error
            raise UnreadableObject(
                f"{where} is not what this version writes ({type(error).__name__}: {error}). "
                "Read it with the version that wrote it, or give another --storage."
            ) from error

    def get_derived(self, name: str, parse: Callable[[Json], T]) -> T | None:
        """Value that can be made again, as ``get_value``: None also when damaged or foreign."""
        try:
            return self.get_value(name, parse)
        except UnreadableObject:
            return None

    def put_once(self, name: str, content: bytes) -> bytes:
        """Write unless an object is there; return what is there now. The first writer wins.

        Locally this is exact (a hard link refuses an existing name); on object storage two writers
        in the same instant may both believe they were first, and readers then agree on the last.
        """
        there = self.get(name)
        if there is not None:
            return there
        if not self.is_local:
            self.put(name, content)
            return content
        if self._link(name, content):
            return content
        winner = self.get(name)
        # Deleted in this instant, by another's `sweep rm`: then it is this one's to write.
        return self.put_once(name, content) if winner is None else winner

    @_tries("write {}")
    def _link(self, name: str, content: bytes) -> bool:
        """Write unless an object is there; whether this did."""
        path = Path(self.root, name)
        try:
            self._put_local(path, _sealed(content), replace=False)
        except FileExistsError:
            if not path.exists():  # NFS remembers for a while that it was not
                raise OSError(errno.ESTALE, "it exists but cannot be read yet") from None
            return False
        return True

    @_tries("list {}")
    def names(self, folder: str) -> list[str]:
        """Names of the entries directly below ``folder``, sorted; empty when it is not there."""
        if not self.is_local:
            return sorted(info.base_name for info in self._infos(folder))
        try:
            entries = os.listdir(Path(self.root, folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(n for n in entries if not n.startswith(".") and not n.endswith(".tmp"))

    @_tries("list {}")
    def tree(self, folder: str) -> list[str]:
        """Paths below ``folder``, of all objects in all its folders, sorted: one listing."""
        there = f"{self._place(folder)[1]}/"
        infos = self._infos(f"{folder}/", recursive=True)
        files = (info.path for info in infos if info.type == pyarrow.fs.FileType.File)
        return sorted(path.removeprefix(there) for path in files if not path.endswith(".tmp"))

    @_tries("delete {}")
    def delete(self, name: str) -> None:
        """Delete one object; nothing happens when it is not there."""
        filesystem, path = self._place(name)
        with suppress(FileNotFoundError):  # never there, or somebody else was faster
            filesystem.delete_file(path)

    @_tries("set the damaged {} aside")
    def set_aside(self, name: str) -> str | None:
        """Rename a damaged object out of the way, for whoever wants to look; its new name.

        None: it is not there any more; somebody else did so.
        """
        aside = f"{name}.damaged"
        try:
            filesystem, path = self._place(name)
            filesystem.move(path, f"{path}.damaged")
        except OSError:
            if self.exists(name):
                raise
            return None
        return aside

    @_tries("clean {}")
    def delete_left_overs(self, folder: str) -> None:
        """Delete what killed writers left half-written directly below ``folder``.

        A writer that is alive loses its try: a RetryingStore writes again.
        """
        if self.is_local:
            for path in Path(self.root, folder).glob(".*.tmp"):
                path.unlink(missing_ok=True)

    @_tries("clean {}")
    def delete_links(self, name: str) -> None:
        """Delete the second name that a writer killed right after its ``put_once`` left behind.

        What others are writing beside it stays.
        """
        if not self.is_local:
            return
        path = Path(self.root, name)
        for link in left_overs(path):
            with suppress(FileNotFoundError):
                if link.samefile(path):
                    link.unlink()

    @_tries("delete {}")
    def delete_folder(self, folder: str) -> None:
        """Delete a folder and all below it; nothing happens when it is not there."""
        filesystem, path = self._place(folder)
        if filesystem.get_file_info(path).type == pyarrow.fs.FileType.Directory:
            with suppress(FileNotFoundError):  # somebody else was faster
                filesystem.delete_dir(path)

    @_tries("measure {}")
    def size_of(self, folder: str) -> int:
        """Bytes of everything below ``folder``."""
        return sum(info.size or 0 for info in self._infos(folder, recursive=True))

    def _try(self, what: str, action: Callable[[], T]) -> T:
        """Everything that touches the storage goes through here: its errors become StoreError."""
        try:
            return action()
        except OSError as error:
            raise StoreError(f"could not {what} below {self.root}: {error}") from error

    def _place(self, name: str) -> tuple[pyarrow.fs.FileSystem, str]:
        """Filesystem and path of ``name`` for pyarrow."""
        filesystem, prefix = self._filesystem()
        return filesystem, f"{prefix}/{name}"

    def _infos(self, folder: str, *, recursive: bool = False) -> list[pyarrow.fs.FileInfo]:
        filesystem, path = self._place(folder)
        selector = pyarrow.fs.FileSelector(path, recursive=recursive, allow_not_found=True)
        return list(filesystem.get_file_info(selector))

    def _filesystem(self) -> tuple[pyarrow.fs.FileSystem, str]:
        if self._remote is None:
            if self.is_local:
                self._remote = (pyarrow.fs.LocalFileSystem(), self.root)
            else:
                # pyarrow opens as many connections to S3 as it has threads, or 25
                pyarrow.set_io_thread_count(max(CONNECTIONS, pyarrow.io_thread_count()))
                filesystem, prefix = pyarrow.fs.FileSystem.from_uri(_one_put(self.root))
                self._remote = (filesystem, prefix.rstrip("/"))
        return self._remote

    _put_local = staticmethod(write_atomically)


def _one_put(uri: str) -> str:
    """Have S3 take a small object in one request: pyarrow's uploads in parts take three."""
    if not uri.startswith("s3://") or "allow_delayed_open" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}allow_delayed_open=true"


def _sealed(content: bytes) -> bytes:
    return content + _FOOTER + hashlib.sha256(content).hexdigest().encode()
