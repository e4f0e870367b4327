"""Counted operations and bytes of a training step, on tensors without numbers.

The run's own network is built and asked for its losses under ``FakeTensorMode``: shapes alone pass
through it, so that neither data nor memory are needed, and any model can be counted. PyTorch's
scaled dot product is counted as its matrix products; it keeps no scores for the backward pass.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from sweep.cost.noise_task import noise_task
from trainables.build import build_model, depth_of, placed
from trainables.config.arm import ArmConfig, ModelConfig
from trainables.errors import BadData, Misuse, SweepError, UnknownName
from trainables.fetching.remote_folders import is_address
from trainables.layer_losses import last_loss, layer_losses
from trainables.machine import scratch
from trainables.tasks.base import Batch, TrainingTask

T = TypeVar("T")
Reader = Callable[[nn.Module, TrainingTask, Batch], Tensor]  # losses by layer

# Of checkpoints that are not here, by a word in their name; of others, and in all else, the
# defaults of transformers: 12 layers of width 768.
SIZES: Mapping[str, dict[str, int]] = {
    "distil": {"num_hidden_layers": 6},
    "mini": {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536},
    "large": {
        "num_hidden_layers": 24,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
    },
}

# The same of decoders, of the shape of Llama 3; of others, Llama's with a vocabulary of 32,000.
DECODERS: Mapping[str, dict[str, int]] = {
    "8b": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
    },
}
SMALL_DECODER = {"hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12}

# What torch's counter has no formula for: the kernel that attention is on a CPU.
_UNCOUNTED = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value)  # type: ignore[no-untyped-call]
    )
}


_NO_KERNELS = (torch.ops.aten._unsafe_view.default, torch.ops.aten.empty.memory_format)

MOST_ANSWERS = 1000  # a loop over numbers that are none may never end


class NotCounted(Misuse):
    """A run's network cannot be built, or asked for its losses, without the run's data."""


@dataclass(frozen=True)
class Work:
    """Operations and bytes of an arm's steps."""

    layers: int
    forward_flops: float  # of one sample, two per multiply-add
    parameters: int  # that are trained
    state_bytes: int  # of them, their gradients and Adam's moments, and of what is not trained
    numbers: int  # in all parameters, trained or not
    kept_bytes: int  # for the backward pass: of a batch, or of the part that passes at once
    guess: str = ""  # says which checkpoint is not on this machine, so that its size is a guess


@dataclass(frozen=True)
class ForwardPass:
    """Kernels and memory of a forward pass without gradient, losses included."""

    launches: int  # kernels; of any number of samples
    peak_bytes: int  # of a batch and what is made of it, weights left out


@lru_cache(maxsize=256)
def counted_work(config: ArmConfig) -> Work:
    """Operations and bytes of one step of a run, from its configuration alone.

    A checkpoint's weights are not read; of one that is not on this machine the size is guessed.

    Raises:
        NotCounted: the run itself would be refused, or its network asks for more of its task than
            noise in the shape of its samples.
    """
    work, is_guess = _without_numbers(config, _counted)
    guess = f"the size of {config.model.checkpoint}, which is not here, guessed by its name"
    return replace(work, guess=guess) if is_guess else work


@lru_cache(maxsize=256)
def counted_pass(config: ArmConfig) -> ForwardPass:
    """Kernels and memory of one forward pass of a run's batch; raises as ``counted_work``."""
    return _without_numbers(config, _passed)[0]


def _without_numbers(config: ArmConfig, count: Callable[[ArmConfig], T]) -> tuple[T, bool]:
    """Count on tensors without numbers; True where the size of a checkpoint is guessed."""
    model = config.model
    with scratch.held_folder(kind="counted-") as folder:
        try:
            if model.checkpoint is not None:
                config = replace(config, model=_described(config, folder))
            is_guess = config.model.checkpoint == str(folder)
            fake_tensor.log.disabled = True  # an error is told below, in a line
            with _no_numbers(), _Answers():  # type: ignore[no-untyped-call]
                return count(config), is_guess
        except Exception as error:  # whatever the code of another package does
            what = str(error).strip().partition("\n")[0].replace(str(folder), str(model.checkpoint))
            if not isinstance(error, SweepError):
                what = f"{type(error).__name__}: {what}"
            raise NotCounted(
                f"model {model.name!r} does not run on noise of the shape of the samples "
                f"of {config.task}: {what}"
            ) from error
        finally:
            fake_tensor.log.disabled = False


def _counted(config: ArmConfig) -> Work:
    model, task, part, read = _read_by(config)
    kept: dict[int, torch.UntypedStorage] = {}  # held, or their addresses would be used again

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage  # private to torch: the address of the storage itself
        return tensor

    counter = FlopCounterMode(display=False, custom_mapping=_UNCOUNTED)
    with counter, saved_tensors_hooks(keep, lambda tensor: tensor):
        read(model, task, part)
    trained = [p for p in model.parameters() if p.requires_grad]
    others = [*(p for p in model.parameters() if not p.requires_grad), *model.buffers()]
    own = {tensor.untyped_storage()._cdata for tensor in (*trained, *others)}
    return Work(
        layers=config.model.layers,
        forward_flops=counter.get_total_flops() / len(part.targets),
        parameters=sum(p.numel() for p in trained),
        numbers=sum(p.numel() for p in model.parameters()),
        state_bytes=sum(4 * p.nbytes for p in trained) + sum(t.nbytes for t in others),
        kept_bytes=sum(kept[key].nbytes() for key in kept.keys() - own),
    )


def _passed(config: ArmConfig) -> ForwardPass:
    model, task, part, read = _read_by(config)
    with torch.no_grad(), _Pass() as forward:
        read(model, task, part)
    return ForwardPass(forward.launches, forward.peak_bytes + 2 * part.targets.nbytes)


def _read_by(config: ArmConfig) -> tuple[nn.Module, TrainingTask, Batch, Reader]:
    """The network, a task of noise, what passes at once, and the losses that training reads."""
    task = noise_task(config)
    model = placed(config, build_model(config, task), torch.device("cpu"))
    # elsewhere what the layers before the last are read by costs next to nothing
    reads_last = config.constraint is None and config.facts.answers
    part = task.train_batch(0).parts(config.accumulate)[0]
    return model, task, part, last_loss if reads_last else layer_losses


class _Pass(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Kernels that operations start, and the bytes of the tensors that are alive at once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.launches, self.peak_bytes, self._bytes = 0, 0, 0
        self._alive: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.is_view:  # also of weights, which a pass does not make
            return result
        made = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.launches += bool(made) and func not in _NO_KERNELS
        for storage in (tensor.untyped_storage() for tensor in made):
            if storage._cdata not in self._alive:
                self._alive.add(storage._cdata)
                self._bytes += storage.nbytes()
                weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())
        self.peak_bytes = max(self.peak_bytes, self._bytes)
        return result

    def _free(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self._bytes -= size


def _no_numbers() -> FakeTensorMode:
    """Tensors of shape alone, in modules that may be moved to another type."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    # torch refuses to swap what it holds weakly here: the first of each kind of tensor
    mode.fake_tensor_converter.set_tensor_memo = lambda t, v: None  # type: ignore[method-assign]
    return mode


class _Answers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Answers where a network asks tensors for numbers that they do not hold.

    A number is 1, what should be close is, and of truths none holds: so that most loops end, and
    what is looked for to be refused is not found. Whoever asks MOST_ANSWERS times is given none.
    """

    answers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.data_dependent_output not in func.tags:
            return func(*args, **(kwargs or {}))
        self.answers += 1
        if self.answers > MOST_ANSWERS:
            raise RuntimeError(f"it asks its tensors for numbers more than {MOST_ANSWERS} times")
        if func is torch.ops.aten._local_scalar_dense.default and args[0].dtype != torch.bool:
            return 1
        return func is torch.ops.aten.allclose.default


def _described(config: ArmConfig, folder: Path) -> ModelConfig:
    """The run's model with its depth, of a checkpoint that this machine has the description of.

    Where it has none, ``folder`` becomes one, described by its name and by what the run asks of it.
    """
    model, data = config.model, config.data
    name = str(model.checkpoint)
    if not is_address(name):  # a gigabyte to fetch, for an estimate
        try:
            depth = depth_of(model)
            return replace(model, layers=model.layers or depth)
        except (UnknownName, BadData):  # a run says what is wrong; here the cost is asked
            pass
    is_decoder = config.facts.answers
    sizes = {"num_hidden_layers": 12} | (SMALL_DECODER if is_decoder else {})
    for word, of_word in (DECODERS if is_decoder else SIZES).items():
        sizes |= of_word if word in name.lower() else {}
    layers = model.layers or sizes["num_hidden_layers"]
    side = data.frame_size
    described: dict[str, object] = {"model_type": "vit", "image_size": side}
    if is_decoder:
        described = {"model_type": "llama", "max_position_embeddings": max(2048, data.max_length)}
    elif config.facts.reads_texts:
        described = {"model_type": "bert", "max_position_embeddings": max(512, data.max_length)}
    images = {"image_processor_type": "ViTImageProcessor", "size": {"height": side, "width": side}}
    described |= sizes | {"num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(described))
    (folder / "preprocessor_config.json").write_text(json.dumps(images))
    return replace(model, checkpoint=str(folder), layers=layers)
