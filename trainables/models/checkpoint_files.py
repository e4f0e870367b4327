"""The files of a checkpoint: where they lie, and a fingerprint of what they hold.

Weights are part of what a run computes, as its pixels are: two checkpoints under one path are two
runs. Hashing them takes about a second per gigabyte, once per process.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from huggingface_hub import snapshot_download

from trainables.errors import BadData

# what is loaded: the network, how images enter it, its weights, whole or in parts
_READ = ("config.json", "preprocessor_config.json", "*.safetensors", "*.safetensors.index.json")
_BLOCK_BYTES = 1 << 20


def checkpoint_fingerprint(checkpoint: str) -> str:
    """16 hex digits: the hash of the files that are loaded, by name; not of where they lie.

    Args:
        checkpoint: a folder, or the name of a downloaded Hugging Face model.

    Raises:
        BadData: there are no such files, or one cannot be read.
    """
    try:
        folder = Path(checkpoint).expanduser()
        if not folder.is_dir():
            folder = Path(snapshot_download(checkpoint, local_files_only=True))
        files = sorted(file for pattern in _READ for file in folder.glob(pattern))
        digest = hashlib.sha256()
        for file in files:
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
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
