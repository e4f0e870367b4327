"""The fingerprint of a checkpoint: what the files of its network hold.

Weights are part of what a run computes, as its pixels are: two checkpoints under one path are two
runs. Hashing them takes about a second per gigabyte, once per process.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from trainables.checkpoints import files_of
from trainables.errors import BadData


def checkpoint_fingerprint(checkpoint: str) -> str:
    """16 hex digits: the hash of the files that are loaded, by name; not of where they lie.

    Args:
        checkpoint: a folder, or the name of a downloaded Hugging Face model.

    Raises:
        BadData: there are no such files, or one cannot be read.
    """
    try:
        digest = hashlib.sha256()
        for file in files_of(checkpoint):
            seen = file.stat()
            digest.update(f"{file.name} {_hash(file, seen.st_size, seen.st_mtime_ns)}\n".encode())
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BadData(
            f"cannot read the files of checkpoint {checkpoint!r}: {reason} Download or copy it "
            "again."
        ) from error
    return digest.hexdigest()[:16]


@functools.lru_cache(maxsize=64)
def _hash(file: Path, size: int, modified_ns: int) -> str:
    """Of one file, once per process while it stays the same."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
