"""Hugging Face checkpoints on this machine: where they lie, and what they hold.

Nothing is downloaded here: an arm runs where there may be no network, many at a time. No code that
lies beside the weights is run. Base weights are read once per process, since a worker trains one
arm after another from the same ones.

Weights are part of what a run computes, as its pixels are: two checkpoints under one path are two
runs, told apart by a fingerprint. Hashing them takes about a second per gigabyte, once per process.
"""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.constants import HF_HUB_CACHE
from torch import Tensor, nn
from torch._guards import detect_fake_mode
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
from transformers.utils import logging

from trainables.errors import BadData, InvalidValue, UnknownName
from trainables.fetching.checkpoint_files import downloaded, files_of, local_folder, matching_files
from trainables.fetching.remote_folders import is_address
from trainables.fetching.stand_ins import stand_in

_NAMES_SHOWN = 8
_MADE = "small_decoder"  # is made of the data, and nowhere to be had
# What names of weights begin with where a wrapper was saved in the place of its network.
_WRAPPERS = {"module.": "DistributedDataParallel", "_orig_mod.": "torch.compile"}


@dataclass(frozen=True)
class Checkpoint:
    """A folder, an address, or the name of a downloaded Hugging Face model, and its parts."""

    name: str  # model.checkpoint, as the user gave it
    needs: tuple[str, ...]  # the files that a folder must hold, for messages

    def __post_init__(self) -> None:
        """UnknownName where it looks like a folder, and there is none."""
        if is_address(self.name):
            return
        looks_local = self.name.startswith((".", "/", "~")) or self.name.count("/") > 1
        if looks_local and not (folder := local_folder(self.name)).is_dir():
            raise UnknownName(
                f"no checkpoint {self.name!r}: there is no such folder ({folder.absolute()}). "
                f"model.checkpoint must be a folder with {self._files}, an address such as "
                "s3://bucket/path that has them, or the name of a downloaded Hugging Face model."
            )

    def config(self) -> Any:
        """The checkpoint's configuration; raises as ``read``."""
        return self.read("configuration", AutoConfig)

    def read(self, what: str, reader: Any, **options: Any) -> Any:
        """``reader.from_pretrained`` on files of this machine, its many errors as two of ours.

        ``what`` is read, for messages, by ``reader``, a class of transformers.

        Raises:
            UnknownName: it is neither a folder nor among the downloads.
            BadData: files are missing or damaged.
        """
        folder = local_folder(self.name)
        verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            # without trust_remote_code it would ask at a terminal whether to run code of the files
            return reader.from_pretrained(
                str(folder) if folder.is_dir() else self.name,
                local_files_only=True,
                trust_remote_code=False,
                **options,
            )
        except Exception as error:
            if what == "configuration" and not folder.is_dir():
                raise UnknownName(self._never_downloaded()) from error
            if (folder / "adapter_config.json").is_file():
                raise BadData(
                    f"checkpoint {self.name!r} holds an adapter of PEFT and no network: merge it "
                    "into its base model (merge_and_unload), and give the folder that "
                    "save_pretrained then writes, with its tokenizer."
                ) from error
            for file in sorted(matching_files(folder, ("*.*",))):
                if (problem := stand_in(file)) is not None:
                    raise BadData(f"{file} {problem}") from error
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise BadData(
                f"cannot read the {what} of checkpoint {self.name!r}: {reason.rstrip('.')}. It "
                f"needs {self._files}, as save_pretrained writes them: download or copy it again."
            ) from error
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()  # type: ignore[no-untyped-call]

    def network(self) -> nn.Module:
        """A copy of its base network on the CPU in float32, without a pooler, in eval mode.

        Attention is PyTorch's scaled dot product wherever the architecture has it.

        Raises BadData where weights are missing or damaged, or do not fill the network.
        """
        # A copy, since the cached one is shared; under fake tensors it is made anew by each call.
        base = self._base()
        return base if detect_fake_mode() is not None else copy.deepcopy(base)

    def causal_network(self, *, drawn: bool) -> Any:
        """Network as ``network``, with the head that writes the next token: a PreTrainedModel.

        Where ``drawn``, its configuration alone is read, and torch's global generator draws its
        weights.

        Raises:
            BadData: as ``network``.
            InvalidValue: its architecture has no such head.
        """
        described = self.config()
        # Private to transformers, which is pinned; its own error would not name the way out.
        if type(described) not in AutoModelForCausalLM._model_mapping:
            raise InvalidValue(
                f"checkpoint {self.name!r} is of type {described.model_type!r}, which has no head "
                "that writes the next token. model decoder takes Llama, Qwen, Gemma, GPT-2 and "
                "other networks that write text."
            )
        if drawn or detect_fake_mode() is not None:
            return AutoModelForCausalLM.from_config(described, dtype=torch.float32).eval()  # type: ignore[no-untyped-call]
        return _filled(self, AutoModelForCausalLM).eval()

    def word_embeddings(self) -> Tensor:
        """A copy of its word embeddings [vocabulary, width].

        Raises:
            BadData: as ``network``.
            InvalidValue: its network is not one of texts.
        """
        base = self._base()
        try:
            table = base.get_input_embeddings()  # type: ignore[operator]  # of a PreTrainedModel
        except NotImplementedError:
            table = None
        if type(table) is not nn.Embedding:
            raise InvalidValue(
                f"checkpoint {self.name!r} is of type {base.config.model_type!r}, "  # type: ignore[union-attr]
                "which has no plain table of word embeddings: give model.checkpoint an encoder of "
                "texts, such as distilbert-base-uncased or roberta-base."
            )
        return table.weight.detach().clone()

    def depth(self) -> int:
        """Number of layers, from the configuration alone.

        Raises:
            UnknownName, BadData: as ``config``.
            InvalidValue: its configuration does not say.
        """
        config = self.config()
        depth = getattr(config, "num_hidden_layers", None)
        if not isinstance(depth, int):
            raise InvalidValue(
                f"checkpoint {self.name!r} is of type {config.model_type!r}, which does not state "
                "its number of layers: give model.checkpoint one encoder, not several in one."
            )
        return depth

    def check_depth(self, layers: int) -> None:
        """InvalidValue unless ``layers`` is its depth."""
        if layers != (depth := self.depth()):
            raise InvalidValue(
                f"model.layers must be {depth}, the depth of checkpoint {self.name!r}, got "
                f"{layers}."
            )

    def check_positions(self, room: int, max_length: int) -> None:
        """InvalidValue unless its ``room`` positions hold a text of ``max_length`` tokens."""
        if max_length > room:
            raise InvalidValue(
                f"data.max_length must be at most {room}, the positions of checkpoint "
                f"{self.name!r}, got {max_length}."
            )

    def _base(self) -> nn.Module:
        """Not to be changed: all of this process share it."""
        if detect_fake_mode() is not None:
            return _shaped_network(self)
        try:
            files = [(str(f), (s := f.stat()).st_size, s.st_mtime_ns) for f in files_of(self.name)]
        except (OSError, ValueError):  # reading says it better
            return _read_network(self)
        return _base_network(self, tuple(files))

    @property
    def _files(self) -> str:
        return f"{', '.join(self.needs[:-1])} and {self.needs[-1]}"

    def _never_downloaded(self) -> str:
        names = downloaded()
        more = ", ..." if len(names) > _NAMES_SHOWN else ""
        get = f"Where there is a network, run `hf download {self.name}` (HF_HOME says where to)"
        if self.name == _MADE:
            get = f"Make it: `python -m trainables.datasets.text.{_MADE} {_MADE} --data FOLDER`"
        return (
            f"no checkpoint {self.name!r}: it is neither a folder below {Path.cwd()} nor a "
            f"complete download in {HF_HUB_CACHE}, and training downloads nothing. Downloaded: "
            f"{', '.join(names[:_NAMES_SHOWN]) or 'none'}{more}. {get}, or copy the "
            f"model's folder, with {self._files}, here and give model.checkpoint its path."
        )


@functools.lru_cache(maxsize=1)
def _base_network(checkpoint: Checkpoint, files: tuple[tuple[str, int, int], ...]) -> nn.Module:
    """Network of one checkpoint, read once per process while its files stay the same."""
    return _read_network(checkpoint)


def _shaped_network(checkpoint: Checkpoint) -> nn.Module:
    """Network of the configuration alone: fake tensors need no weights."""
    return _blocks(AutoModel.from_config(checkpoint.config()))  # type: ignore[no-untyped-call]


def _read_network(checkpoint: Checkpoint) -> nn.Module:
    return _blocks(_filled(checkpoint, AutoModel))


def _filled(checkpoint: Checkpoint, reader: Any) -> Any:
    """A network with all of its weights; BadData where some are missing."""
    checkpoint.config()  # where nothing is there at all, it says what to do
    with torch.random.fork_rng(devices=[]):  # what a checkpoint lacks is drawn, then dropped
        network, loading = checkpoint.read(
            "weights", reader, dtype=torch.float32, output_loading_info=True
        )
    lacking = sorted(k for k in loading["missing_keys"] if not k.startswith("pooler."))
    if lacking:
        mend = "Download or copy it again."
        for prefix, wrapper in _WRAPPERS.items():
            if any(name.startswith(prefix) for name in loading["unexpected_keys"]):
                mend = f"Its names begin with {prefix!r}, of {wrapper}: save the network within it."
        raise BadData(
            f"checkpoint {checkpoint.name!r} lacks {len(lacking)} weights of its own network, the "
            f"first being {lacking[0]}. {mend}"
        )
    return network


def _blocks(network: Any) -> nn.Module:
    network.pooler = None
    blocks: nn.Module = network.eval()
    return blocks
