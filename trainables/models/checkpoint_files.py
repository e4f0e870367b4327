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

# what is loaded: the network, and how images enter it, in either file
_SETTINGS = ("config.json", "preprocessor_config.json", "processor_config.json")
# its weights, whole or in parts; the older kind is read where there are none of the first
_WEIGHTS = (("*.safetensors", "*.safetensors.index.json"), ("*.bin", "*.bin.index.json"))
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
        digest = hashlib.sha256()
        for file in _read(folder):
            seen = file.stat()
            digest.update(f"{file.name} {_hash(file, seen.st_size, seen.st_mtime_ns)}\n".encode())
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BadData(
            f"cannot read the files of checkpoint {checkpoint!r}: {reason} Download or copy it "
            "again."
        ) from error
    return digest.hexdigest()[:16]


def _read(folder: Path) -> list[Path]:
    """The files that are loaded, in the order of their names."""
    kinds = [[file for pattern in kind for file in folder.glob(pattern)] for kind in _WEIGHTS]
    settings = [folder / name for name in _SETTINGS if (folder / name).is_file()]
    return sorted(settings + next(filter(None, kinds), []))


@functools.lru_cache(maxsize=64)
def _hash(file: Path, size: int, modified_ns: int) -> str:
    """Of one file, once per process while it stays the same."""
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
