"""Files of a Hugging Face checkpoint on this machine, with a fingerprint."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.constants import HF_HUB_CACHE

from trainables.errors import BadData
from trainables.fetching.fetched_folders import on_this_machine

# a network, and how images enter it, in either file
_DESCRIBED = ("config.json", "preprocessor_config.json", "processor_config.json")


_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")  # whole or in parts


_OLD_WEIGHTS = ("pytorch_model*.bin", "pytorch_model.bin.index.json")  # read where there are none


def files_of(name: str) -> list[Path]:
    """The files of a checkpoint's network, in order.

    Raises OSError and ValueError where it is neither a folder nor downloaded, or cannot be listed.
    """
    folder = local_folder(name)
    if not folder.is_dir():
        folder = Path(snapshot_download(name, local_files_only=True))
    weights = matching_files(folder, _WEIGHTS) or matching_files(folder, _OLD_WEIGHTS)
    return sorted(matching_files(folder, _DESCRIBED) + weights)


def checkpoint_fingerprint(checkpoint: str) -> str:
    """16 hex digits: the hash of the files that are loaded, by name; not of where they lie.

    Raises BadData where there are no such files, or one cannot be read.
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


def downloaded() -> list[str]:
    """The names of the models in this machine's Hugging Face cache."""
    folders = Path(HF_HUB_CACHE).glob("models--*")
    return sorted(folder.name.removeprefix("models--").replace("--", "/") for folder in folders)


def local_folder(name: str) -> Path:
    """The folder on this machine that a checkpoint's name stands for, whether it exists or not."""
    name = on_this_machine(name)
    try:
        return Path(name).expanduser()
    except RuntimeError:  # no such user
        return Path(name)


def matching_files(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Files of a folder, in the order of the patterns that they match."""
    return [file for pattern in patterns for file in folder.glob(pattern)]


@functools.lru_cache(maxsize=64)
def _hash(file: Path, size: int, modified_ns: int) -> str:
    """SHA-256 of one file, computed once per process while it stays the same."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
