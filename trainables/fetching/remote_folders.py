"""Remote folders in object storage (s3://, gs://, ...), listed and copied whole.

Objects of a sweep are `ObjectStore`'s; these are the user's own files, without a checksum of ours.
Files and folders whose names begin with a dot are left out: of what tools put beside data, most.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow.fs

from trainables.errors import BadData, StoreError
from trainables.retries import DATA_WAITS_S

T = TypeVar("T")
BLOCK_BYTES = 8 * 2**20
LASTING = (  # what trying again does not mend, in the words of clients
    "access_denied", "accessdenied", "forbidden", "invalidaccesskeyid", "signaturedoesnotmatch",
    "nosuchbucket", "no_such_bucket", "unable to parse", "unrecognized filesystem",
)  # fmt: skip


def is_address(place: str | None) -> bool:
    """True for a place in object storage, False for a folder or name.

    >>> is_address("s3://lab/data"), is_address("/data"), is_address("file:///data")
    (True, False, False)
    """
    return place is not None and "://" in place and not place.startswith("file://")


def without_scheme(folder: str) -> str:
    """The folder without the scheme that file:///folder has.

    >>> without_scheme("file:///data"), without_scheme("~/data")
    ('/data', '~/data')
    """
    return folder.removeprefix("file://")


class Replaced(BadData):
    """Raised when a file is no longer what its listing said."""


@dataclass(frozen=True)
class RemoteFile:
    """One file below an address, as its listing has it."""

    path: str  # below the address
    size: int  # bytes
    modified_ns: int


class RemoteFolder:
    """The files below one address."""

    def __init__(self, address: str) -> None:
        """Resolve an address in object storage; BadData where there can be none like it.

        Options of pyarrow's after a "?" say how its store is reached, and are no part of its name.
        """
        called, _, self.options = address.partition("?")
        self.address = called.rstrip("/")
        reached = self._try("reach", lambda: pyarrow.fs.FileSystem.from_uri(address))
        self._filesystem, self._prefix = reached[0], reached[1].rstrip("/")

    def files(self, below: str = "") -> tuple[RemoteFile, ...]:
        """Every file, or every one in the folder ``below``, in order; none where nothing is."""
        place = "/".join(filter(None, (self._prefix, below)))
        files = (
            RemoteFile(i.path.removeprefix(self._prefix).lstrip("/"), i.size or 0, i.mtime_ns or 0)
            for i in self._infos(place, recursive=True)
            if i.type == pyarrow.fs.FileType.File
        )
        shown = (f for f in files if not any(p.startswith(".") for p in f.path.split("/")))
        return tuple(sorted(shown, key=lambda file: file.path))

    def beside(self) -> list[str]:
        """The names in the folder above it, sorted; none for a bucket."""
        above = self._prefix.rpartition("/")[0]
        if not above:
            return []
        return sorted(info.base_name for info in self._infos(above))

    def _infos(self, place: str, *, recursive: bool = False) -> list[pyarrow.fs.FileInfo]:
        selector = pyarrow.fs.FileSelector(place, recursive=recursive, allow_not_found=True)
        return self._try("list", lambda: self._filesystem.get_file_info(selector))

    def copy(self, file: RemoteFile, to: Path, passed: Callable[[int], None]) -> None:
        """Copy one file out.

        Args:
            file: as the listing has it.
            to: the file to write.
            passed: gets the number of bytes that came; negative where a copy is begun again. What
                it raises ends the copy.

        Raises:
            Replaced: it is gone, or has another size than the listing says.
            StoreError: it could not be read, or ``to`` not be written.
        """

        def copied() -> None:
            done = 0
            try:
                with (
                    self._filesystem.open_input_stream(f"{self._prefix}/{file.path}") as source,
                    open(to, "wb") as target,
                ):
                    while block := source.read(BLOCK_BYTES):
                        target.write(block)
                        done += len(block)
                        passed(len(block))
            except FileNotFoundError as error:
                raise Replaced(f"{file.path} below {self.address} is gone.") from error
            except OSError:
                passed(-done)
                raise
            if done != file.size:
                raise Replaced(
                    f"{file.path} below {self.address} has {done} bytes, where the listing says "
                    f"{file.size}: it was replaced in between."
                )

        self._try(f"copy {file.path} from", copied)

    def _try(self, what: str, action: Callable[[], T]) -> T:
        """Run an action on the address, again after each of DATA_WAITS_S while it fails."""
        for wait_s in (*DATA_WAITS_S, None):
            try:
                return action()
            except (OSError, ValueError) as error:  # ValueError: pyarrow reads no address in it
                is_full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
                is_lasting = any(word in str(error).lower() for word in LASTING)
                if isinstance(error, ValueError) or is_lasting:
                    raise BadData(
                        f"could not {what} {self.address}: {error} Give an address such as "
                        "s3://bucket/path that this machine may read: keys come from the "
                        "environment, ~/.aws or the machine's role."
                    ) from error
                if is_full or wait_s is None:
                    raise StoreError(f"could not {what} {self.address}: {error}") from error
            time.sleep(wait_s)
        raise AssertionError("unreachable")
