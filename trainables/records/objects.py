"""Object store: objects put whole under their final name, with a checksum.

Local and NFS: a temporary file in the same folder, fsync, rename over. Object storage: one PUT (a
rename there is copy and delete). Readers accept only objects whose checksum is right; a damaged one
reads as a StoreError that names it, never as an empty one. There are no leases: two writers of one
name are harmless.
"""

from __future__ import annotations

import errno
import hashlib
import json
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from trainables.errors import DamagedObject, Misuse, StoreError, UnknownName, UnreadableObject
from trainables.plain import Json
from trainables.records.stored_files import StoredFiles

T = TypeVar("T")
_FOOTER = b"\nsha256:"
_DIGEST = 64
_CLOCK = ".clock-"  # follows an object's name in those of probes of its age
_DISK_TROUBLE = {errno.ENOSPC, errno.EDQUOT, errno.EIO}  # another root would not be more right


class ObjectStore(StoredFiles):
    """Whole objects below one root."""

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

    def put(self, name: str, content: bytes) -> None:
        """Write one whole object. Raises StoreError when the disk is full or the store is away."""
        self._write(name, _sealed(content))

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
        if self._link(name, _sealed(content)):
            return content
        winner = self.get(name)
        # Deleted in this instant, by another's `sweep rm`: then it is this one's to write.
        return self.put_once(name, content) if winner is None else winner

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


def _sealed(content: bytes) -> bytes:
    return content + _FOOTER + hashlib.sha256(content).hexdigest().encode()
