"""Files of a tokenizer on this machine, with a fingerprint."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from huggingface_hub import snapshot_download

from trainables.errors import BadData
from trainables.fetching.fetched_folders import on_this_machine

VOCABULARIES = (  # a tokenizer has one of them; merges.txt goes with vocab.json
    *("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt"),
    *("spiece.model", "spm.model", "tokenizer.model"),
    *("sentencepiece.bpe.model", "sentencepiece.model"),
)


_FILES = (  # all that decides what it does, but for the model's kind
    *VOCABULARIES,
    *("bpe.codes", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
)


EXPECTED = (
    "Give a folder with tokenizer.json, or with vocab.txt, or with vocab.json and merges.txt, as "
    "save_pretrained writes them; or the name of a model that is in the Hub's cache on this "
    'machine. On a machine with a network: python -c "import transformers; '
    "transformers.AutoTokenizer.from_pretrained('NAME').save_pretrained('DIR')\"."
)


def tokenizer_folder(place: str) -> Path:
    """The local folder of a tokenizer: given as a folder, an address, or by its model's name.

    Raises BadData where there is none, or it holds no vocabulary.
    """
    place = on_this_machine(place)
    try:
        folder = Path(place).expanduser()
        if not folder.is_dir():
            folder = Path(snapshot_download(place, local_files_only=True))
        names = [name for name in VOCABULARIES if (folder / name).is_file()]
    except (OSError, ValueError, RuntimeError) as error:
        raise BadData(
            f"there is no tokenizer {place!r}: neither a folder nor a model in the Hub's cache. "
            f"{EXPECTED}"
        ) from error
    if names in ([], ["vocab.json"], ["merges.txt"]):
        held = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
        raise BadData(f"{folder} (it holds: {held}) has no complete tokenizer. {EXPECTED}")
    return folder.resolve()


def tokenizer_fingerprint(place: str) -> str:
    """16 hex digits: the hash of a tokenizer's files and of its model's kind; not of its place.

    Raises BadData as ``tokenizer_folder``, and where a file cannot be read.
    """
    folder = tokenizer_folder(place)
    try:
        digest = hashlib.sha256()
        for file in tokenizer_files(folder):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.name} {content}\n".encode())
        digest.update(json.dumps(_kind(folder)).encode())
    except OSError as error:
        raise BadData(
            f"the tokenizer in {folder} cannot be read: {error}. Copy it again."
        ) from error
    return digest.hexdigest()[:16]


def tokenizer_files(folder: Path) -> list[Path]:
    """All files of a tokenizer's folder that decide what it does, but for config.json."""
    return [folder / name for name in _FILES if (folder / name).is_file()]


def _kind(folder: Path) -> list[str | None]:
    """Fields of config.json that decide which tokenizer it is."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return [config.get("model_type"), config.get("tokenizer_class")]
    except FileNotFoundError:
        return []
    except (ValueError, AttributeError) as error:
        raise BadData(
            f"{folder / 'config.json'} is damaged: {error}. It must be a JSON object. Copy it "
            "again."
        ) from error
