"""Passes of a stack as CUDA graphs, which the host starts as one each.

The host starts a kernel in 30 us where the kernel takes 2: a captured pass leaves the host one
call. A pass reads from memory that was captured, to which its batch is copied, and the next pass
overwrites its results. In training learning rates, dual steps and Adam stay outside.

Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from trainables.config.arm import ArmConfig
from trainables.fused.update import Parameters
from trainables.memory import exhausted, gpu_is_lost
from trainables.primal_dual.clipping import clip_rows
from trainables.tasks.base import Batch

FEWEST_STEPS = 50  # of a run that is worth capturing: it takes as long as some twenty steps
OURS = "trainables."  # packages whose networks and tasks are known to be captured

log = logging.getLogger(__name__)
T = TypeVar("T")


def is_worth_capturing(config: ArmConfig) -> bool:
    """True if a run's steps are captured: a batch passes at once, in steps enough."""
    return config.accumulate == 1 and config.steps >= FEWEST_STEPS


def can_capture(network: nn.Module, task: object, part: Batch) -> bool:
    """True for batches of one shape on a GPU, of a network and a task of this package.

    Others may look at the host or keep state in Python, which a capture would break or freeze.
    """
    own = (type(network).__module__, type(task).__module__)
    is_ours = all(module.startswith(OURS) for module in own)
    return is_ours and isinstance(part.inputs, Tensor) and part.inputs.is_cuda


def captured(capture: Callable[[], T]) -> T | None:
    """Graphs that ``capture`` makes; None where CUDA cannot make them.

    Raises OutOfMemoryError.
    """
    try:
        return capture()
    except RuntimeError as error:
        for cause in (error, error.__context__):  # the end of a broken capture fails, too
            if cause is not None and exhausted(cause):
                raise cause from None
        if gpu_is_lost():
            raise
        log.warning("passes are not captured, and the host starts every kernel: %s", error)
        return None


class CapturedPasses:
    """Losses of a batch, and their clipped gradient, in memory that stays."""

    def __init__(
        self,
        losses_of: Callable[[Batch], Tensor],
        parameters: Sequence[Tensor],
        example: Batch,
        most: float,
    ) -> None:
        """Capture the passes of batches like ``example``, clipped at the norm ``most``."""
        self._batch = batch = _copy_of(example)
        with _beside():  # libraries start before anything is captured
            losses_HF = losses_of(batch)
            self._weights_HF = torch.zeros_like(losses_HF)
            torch.autograd.grad(losses_HF, parameters, self._weights_HF, allow_unused=True)
            del losses_HF
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._forward):
            losses_HF = losses_of(batch)
        self._losses_HF = losses_HF.detach()
        with torch.cuda.graph(self._backward, pool=self._forward.pool()):
            gradients: Sequence[Tensor | None] = torch.autograd.grad(
                losses_HF, parameters, self._weights_HF, allow_unused=True
            )
            # copies: one gradient may be a view of another, and clipping writes into them
            self.gradients: list[Tensor | None] = [
                None if gradient is None else gradient.clone().contiguous()
                for gradient in gradients
            ]
            self.norms_H = clip_rows([g for g in self.gradients if g is not None], most)

    def takes(self, part: Batch) -> bool:
        """True for a batch of the shape that was captured."""
        return _is_alike(self._batch, part)

    def forward(self, part: Batch) -> Tensor:
        """Mean losses over f_c of every row and layer, [H, F], until the next pass."""
        _overwrite(self._batch, part)
        self._forward.replay()
        return self._losses_HF

    def backward(self, weights_HF: Tensor) -> None:
        """Fill ``gradients``, clipped, and ``norms_H``, the norms before."""
        self._weights_HF.copy_(weights_HF)
        self._backward.replay()


class CapturedEvaluation:
    """Pass without a gradient, for any stack and batch of one shape."""

    def __init__(
        self,
        outcomes_of: Callable[[Parameters, Batch], Sequence[Tensor]],
        rows: Parameters,
        example: Batch,
    ) -> None:
        """Capture ``outcomes_of`` for stacks like ``rows`` and batches like ``example``."""
        self._rows = {name: values.clone() for name, values in rows.items()}
        self._batch = _copy_of(example)
        with _beside():
            outcomes_of(self._rows, self._batch)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outcomes = outcomes_of(self._rows, self._batch)

    def takes(self, batch: Batch) -> bool:
        """True for a batch of the shape that was captured."""
        return _is_alike(self._batch, batch)

    def outcomes(self, rows: Parameters, batch: Batch) -> list[Tensor]:
        """Outcomes of this stack on this batch."""
        for name, values in rows.items():
            self._rows[name].copy_(values)
        _overwrite(self._batch, batch)
        self._graph.replay()
        return [tensor.clone() for tensor in self._outcomes]


@contextmanager
def _beside() -> Iterator[None]:
    """Work on another stream in the block, as before a capture."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    ours = torch.cuda.current_stream()
    stream.wait_stream(ours)
    with torch.cuda.stream(stream):
        yield
    ours.wait_stream(stream)


def _copy_of(batch: Batch) -> Batch:
    assert isinstance(batch.inputs, Tensor)
    return Batch(batch.inputs.clone(), batch.targets.clone())


def _overwrite(captured: Batch, batch: Batch) -> None:
    assert isinstance(captured.inputs, Tensor)
    assert isinstance(batch.inputs, Tensor)
    captured.inputs.copy_(batch.inputs)
    captured.targets.copy_(batch.targets)


def _is_alike(captured: Batch, batch: Batch) -> bool:
    def kind(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
        return tensor.shape, tensor.dtype

    assert isinstance(captured.inputs, Tensor)
    return (
        isinstance(batch.inputs, Tensor)
        and kind(batch.inputs) == kind(captured.inputs)
        and kind(batch.targets) == kind(captured.targets)
    )
