"""Passes as CUDA graphs, which the host starts as one each.

The host starts a kernel in 30 us where the kernel takes 2: a captured pass leaves the host one
call. A pass reads from memory that was captured, to which its batch is copied, and the next pass
overwrites its results. In training learning rates, dual steps and Adam stay outside.

Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from trainables.config.arm import ArmConfig
from trainables.fused.update import Parameters
from trainables.memory import exhausted, gpu_is_lost
from trainables.primal_dual.clipping import clip_rows
from trainables.tasks.base import Batch, Tokens

FEWEST_STEPS = 50  # of a run that is worth capturing: it takes as long as some twenty steps
OURS = "trainables."  # packages whose networks and tasks are known to be captured

log = logging.getLogger(__name__)
T = TypeVar("T")


def is_worth_capturing(config: ArmConfig) -> bool:
    """True if a run's steps are captured: a batch passes at once, in steps enough."""
    return config.accumulate == 1 and config.steps >= FEWEST_STEPS


def can_capture(network: nn.Module, task: object, part: Batch) -> bool:
    """True for batches on a GPU of a network and a task of this package.

    Others may look at the host or keep state in Python, which a capture would break or freeze; so
    does a batch whose layers are drawn on the host.
    """
    own = (type(network).__module__, type(task).__module__)
    is_ours = all(module.startswith(OURS) for module in own)
    is_drawn = isinstance(part.inputs, Tokens) and part.inputs.layers is not None
    return is_ours and part.targets.is_cuda and not is_drawn


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
    """Losses of a batch, and their gradient, in memory that stays."""

    def __init__(
        self,
        losses_of: Callable[[Batch], Tensor],
        parameters: Sequence[Tensor],
        example: Batch,
        most: float | None = None,
    ) -> None:
        """Capture the passes of batches like ``example``.

        With ``most`` losses are those of rows, [H, F], and each row's gradient is clipped at that
        norm. Without it they are of one network, [F], which has taken a step before: libraries
        have started, and no second copy of what a pass holds is kept for that.
        """
        self._batch = batch = _copy_of(example)
        if most is not None:
            with _beside():  # libraries start before anything is captured
                losses = losses_of(batch)
                torch.autograd.grad(losses, parameters, torch.zeros_like(losses), allow_unused=True)
                del losses
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._forward):
            losses = losses_of(batch)
        self._losses = losses.detach()
        self._weights = torch.zeros_like(self._losses)
        with torch.cuda.graph(self._backward, pool=self._forward.pool()):
            gradients: Sequence[Tensor | None] = torch.autograd.grad(
                losses, parameters, self._weights, allow_unused=True
            )
            # copies: one gradient may be a view of another, and clipping writes into them
            self.gradients: list[Tensor | None] = [
                None if gradient is None else gradient.clone().contiguous()
                for gradient in gradients
            ]
            if most is not None:
                self.norms_H = clip_rows([g for g in self.gradients if g is not None], most)

    def takes(self, part: Batch) -> bool:
        """True for a batch of the shape that was captured."""
        return shape_of(self._batch) == shape_of(part)

    def forward(self, part: Batch) -> Tensor:
        """Mean losses over f_c of every row and layer, [H, F] or [F], until the next pass."""
        _overwrite(self._batch, part)
        self._forward.replay()
        return self._losses

    def backward(self, weights: Tensor) -> None:
        """Fill ``gradients`` with those of the weighted losses; of rows ``norms_H``, too."""
        self._weights.copy_(weights)
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
        return shape_of(self._batch) == shape_of(batch)

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


def shape_of(batch: Batch) -> tuple[object, ...]:
    """All of a batch that a captured pass cannot have otherwise: a key."""
    kinds = {name: (part.shape, part.dtype) for name, part in _tensors(batch).items()}
    is_full = isinstance(batch.inputs, Tokens) and batch.inputs.is_full
    return (is_full, *kinds.items())


def _tensors(batch: Batch) -> dict[str, Tensor]:
    """Tensors of a batch on the device, by name."""
    inputs = batch.inputs
    if isinstance(inputs, Tensor):
        return {"inputs": inputs, "targets": batch.targets}
    held = {field.name: getattr(inputs, field.name) for field in fields(inputs)}
    tensors = {name: part for name, part in held.items() if isinstance(part, Tensor)}
    return {**tensors, "targets": batch.targets}


def _copy_of(batch: Batch) -> Batch:
    copies: dict[str, Any] = {name: part.clone() for name, part in _tensors(batch).items()}
    targets = copies.pop("targets")
    if isinstance(batch.inputs, Tensor):
        return Batch(copies["inputs"], targets)
    return Batch(replace(batch.inputs, **copies), targets)


def _overwrite(captured: Batch, batch: Batch) -> None:
    given = _tensors(batch)
    for name, part in _tensors(captured).items():
        part.copy_(given[name])
