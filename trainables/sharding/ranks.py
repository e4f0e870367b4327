"""Ranks: a training loop's view of the processes that train one arm (gang.py).

Of one process by itself these are identities: nothing is shared, and no bit changes. Torch's
sharding is imported where there are more: two seconds that nobody else pays.

Shape suffixes: F layers' losses, B samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from trainables.config.arm import ArmConfig
from trainables.primal_dual.clipping import clip
from trainables.tasks.base import Batch


class Ranks:
    """One process by itself; a gang overrides all of it."""

    count = 1
    is_first = True  # the process that reports, stores and evaluates

    def say(self, step: int) -> None:
        """Have the others train to ``step``, too."""

    def share(self, batch: Batch) -> Batch:
        """The rows of a training batch that this process trains on."""
        return batch

    def mean(self, losses_FB: Tensor, samples: int) -> Tensor:
        """Mean losses [F] over the ``samples`` of a batch, of which these are this process's."""
        return losses_FB.mean(dim=1)

    def copied(self, network: nn.Module) -> nn.Module:
        """Network that evaluation loads full tensors into: itself, if it is not sharded."""
        return network

    def shard(self, root: nn.Module, network: nn.Module) -> None:
        """Keep no more than this process's part of a network; ``root`` is what is called."""

    def clipped(self, parameters: Sequence[nn.Parameter], most: float) -> Tensor:
        """Clip the gradients by their norm before, which is returned."""
        return clip(parameters, most)

    def full_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """State with full tensors, on the CPU, in the first process; empty in the others."""
        return state

    def parts(self, state: Mapping[Any, Any], like: Mapping[Any, Any]) -> dict[Any, Any]:
        """This process's parts of whole tensors, as ``like`` has those of the same name."""
        return dict(state)


ALONE = Ranks()


class Company(Protocol):
    """The other processes of an arm, as ``ArmRun`` asks for them."""

    count: int  # of processes, this one included

    def gather(self, config: ArmConfig, step: int) -> Ranks:
        """Start them on an arm that goes on from its checkpoint of ``step``, or anew at -1."""

    def why_gone(self, error: BaseException) -> str:
        """Failure of another process, where an error comes of its end; else empty.

        Raises RankLost where it died without a word.
        """
