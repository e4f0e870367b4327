"""Files below one root, a folder or object storage; errors become StoreError."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import pyarrow.fs

from trainables.errors import StoreError
from trainables.machine.atomic_files import left_overs, write_atomically

T = TypeVar("T")
P = ParamSpec("P")
Method = Callable[Concatenate["StoredFiles", str, P], T]
CONNECTIONS = 64  # to object storage, at the same time


def _tries(what: str) -> Callable[[Method[P, T]], Method[P, T]]:
    """A method of one name that goes through ``_try``, which is told ``what`` with that name."""

    def decorated(method: Method[P, T]) -> Method[P, T]:
        @functools.wraps(method)
        def tried(self: StoredFiles, name: str, /, *args: P.args, **options: P.kwargs) -> T:
            return self._try(what.format(name), lambda: method(self, name, *args, **options))

        return tried

    return decorated


class StoredFiles:
    """Files below one root: a folder, or a URI that pyarrow knows (s3://..., gs://...)."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Name the root; nothing is created before the first put."""
        text = os.fspath(root)
        self.root = text if "://" in text else str(Path(text).expanduser().resolve())
        self.is_local = "://" not in self.root
        self._remote: tuple[pyarrow.fs.FileSystem, str] | None = None

    @_tries("write {}")
    def _write(self, name: str, content: bytes) -> None:
        if self.is_local:
            self._put_local(Path(self.root, name), content)
        else:
            filesystem, path = self._place(name)
            with filesystem.open_output_stream(path) as stream:
                stream.write(content)

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

    @_tries("look for {}")
    def _info(self, name: str) -> pyarrow.fs.FileInfo:
        filesystem, path = self._place(name)
        return filesystem.get_file_info(path)

    @_tries("write {}")
    def _link(self, name: str, content: bytes) -> bool:
        """Write unless an object is there; whether this did."""
        path = Path(self.root, name)
        try:
            self._put_local(path, content, replace=False)
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
            if self.exists(name):  # else somebody else was first
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
