"""Network by itself on a GPU, in no stack, with its passes as CUDA graphs.

A step of an encoder of DistilBERT's size keeps an H200 busy for 5 of the 19 ms in which the host
starts its kernels. One shape of batches is captured at a time, that which came often enough first:
texts differ in length, and every graph holds all that a pass does. Between two reports graphs are
let go, so that evaluation has the memory for itself.

The bits are those of passes that the host starts. That is tried on a batch, and a graph that gives
others is not taken: a library may choose other kernels while it is captured, as transformers does
where it would look whether a mask hides anything.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from trainables.fused.graph import CapturedPasses, can_capture, captured, shape_of
from trainables.tasks.base import Batch
from trainables.training import Kind, Training

SEEN = 2  # times that a shape comes before it is captured: libraries have started then
FEWEST_LEFT = 20  # steps to the next report: a capture takes as long as some three to five

log = logging.getLogger(__name__)


class ByItself:
    """Training whose passes are captured where they are of one shape."""

    def __init__(self, training: Training) -> None:
        """Take a training of one process on a GPU."""
        self.training = training
        config = training.config
        self._parameters = list(training.parameters)
        # Parts of a batch and drawn layers have sums of their own. Blocks that are computed again
        # look at the state of the generator of random numbers, which no capture allows. Decoders
        # are given another mask while they are captured, and so other bits.
        self._may_capture = (
            config.accumulate == 1
            and not config.model.recompute
            and not config.facts.answers
            and (config.constraint is None or config.constraint.inner_layers is None)
        )
        self._passes: CapturedPasses | None = None
        self._key: tuple[object, ...] = ()  # of what was captured
        self._seen: Counter[tuple[object, ...]] = Counter()
        self._target = 0

    def run_to(self, step: int) -> None:
        """Take primal steps until ``step`` are done."""
        self._target = step
        try:
            self.training.run_to(step, self._backward)
        finally:
            self._let_go()

    def _backward(self, step: int, batch: Batch) -> Tensor:
        training = self.training
        passes = self._passes_of(step, batch)
        if passes is None:
            return training.backward(step, batch)
        seen_F = passes.forward(batch).clone()  # the next pass writes to the same memory
        passes.backward(training.weighting.weights(step, seen_F))
        for parameter, gradient in zip(self._parameters, passes.gradients, strict=True):
            parameter.grad = gradient
        return seen_F

    def _passes_of(self, step: int, batch: Batch) -> CapturedPasses | None:
        """Captured passes of batches like this one; None: the host starts them."""
        training, kind = self.training, self.training.kind(step)
        if not self._may_capture or not can_capture(training.model, training.task, batch):
            return None
        key = (kind, *shape_of(batch))
        if self._passes is not None and key == self._key:
            return self._passes
        self._seen[key] += 1
        is_held = self._passes is not None and self._key[0] == kind
        if is_held or self._seen[key] <= SEEN or self._target - step < FEWEST_LEFT:
            return None
        self._let_go()
        self._key, self._passes = key, self._captured(kind, batch)
        self._may_capture = self._passes is not None
        return self._passes

    def _captured(self, kind: Kind, batch: Batch) -> CapturedPasses | None:
        """Passes with the bits of those that the host starts; None: there are none."""

        def losses_of(part: Batch) -> Tensor:
            return self.training.losses_of(part, kind)

        losses_F = losses_of(batch)
        weights_F = torch.ones_like(losses_F)
        own = torch.autograd.grad(losses_F, self._parameters, weights_F, allow_unused=True)
        losses_F = losses_F.detach()
        torch.cuda.empty_cache()  # of what these passes held
        passes = captured(lambda: CapturedPasses(losses_of, self._parameters, batch))
        if passes is None:
            return None
        seen_F = passes.forward(batch)
        passes.backward(weights_F)
        if torch.equal(seen_F, losses_F) and _are_same(passes.gradients, own):
            return passes
        log.info("passes are not captured: their bits are others than those of the host's")
        return None

    def _let_go(self) -> None:
        if self._passes is None:
            return
        for parameter in self._parameters:
            parameter.grad = None
        self._passes, self._seen = None, Counter()
        torch.cuda.empty_cache()


def _are_same(one: Sequence[Tensor | None], other: Sequence[Tensor | None]) -> bool:
    return all(
        a is b if a is None or b is None else torch.equal(a, b)
        for a, b in zip(one, other, strict=True)
    )
