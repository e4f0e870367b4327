"""Gang: processes that train one arm together, each on its rows of every batch.

The network, its gradients and the optimiser's state lie in parts on all of them (FSDP2:
``fully_shard`` of torch; Zhao et al. 2023, arXiv 2304.11277). Every process draws the same batches,
noise, sampled tokens and layers, since draws are keyed, and keeps its rows. Losses are summed over
all processes before anything follows them, so that weights, multipliers and reports are the same
everywhere, and those of one process up to the order of sums.

Shape suffixes: F layers' losses, B samples.
"""

from __future__ import annotations

import copy
import json
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import tree_map

from trainables.errors import BadData, InvalidValue, RankLost, StoreError
from trainables.models.base import WithBlocks
from trainables.sharding.ranks import Ranks
from trainables.tasks.base import Batch

# A process may wait for the first one's evaluation; that one died needs no timeout to be noticed.
PATIENCE = timedelta(hours=6)
_FAILURE = "failure"  # key of what another process failed with: [kind, text]
_NO_OUTCOMES = {kind.__name__: kind for kind in (StoreError, BadData)}  # of no arm
_HERE = "here-"  # and of that it came to the place, by rank
_DISCONNECTED = ("Connection closed by peer", "Connection reset", "Broken pipe")


class Gang(Ranks):
    """Several processes; all of them must call its methods alike."""

    def __init__(self, rank: int, count: int, store: Store, device: str) -> None:
        """Meet the ``count`` processes at ``store``; returns when all are there.

        They talk by gloo where ``device`` is "cpu", by NCCL where it is "cuda".
        """
        self.rank, self.count = rank, count
        self.is_first = rank == 0
        self._device = device
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=PATIENCE)
        self._mesh = init_device_mesh(device, (count,))

    def say(self, step: int) -> None:
        """Send the step to the others, who get it from ``heard``."""
        if self.is_first:
            self._broadcast(step)

    def heard(self) -> int:
        """Step to train to, in another process; waits until the first one names it."""
        return self._broadcast(0)

    def _broadcast(self, step: int) -> int:
        shared = torch.tensor([step], device=self._device)
        dist.broadcast(shared, src=0)
        return int(shared)

    def share(self, batch: Batch) -> Batch:
        """This process's rows, about as many as others'. InvalidValue: more processes than rows."""
        rows = len(batch.targets)
        if rows < self.count:
            raise InvalidValue(
                f"processes must be at most {rows}, the samples of a batch (batch_size over "
                f"accumulate), got {self.count}: each trains on rows of its own."
            )
        first, end = (rows * rank // self.count for rank in (self.rank, self.rank + 1))
        return batch.rows(slice(first, end))

    def mean(self, losses_FB: Tensor, samples: int) -> Tensor:
        """Mean over the rows of all processes; its gradient is this one's part times ``count``."""
        # Times count: FSDP takes the mean of gradients over processes, and their sum is wanted.
        part_F = losses_FB.sum(dim=1) / samples
        total_F = part_F.detach().clone()
        dist.all_reduce(total_F)
        return total_F + self.count * (part_F - part_F.detach())

    def copied(self, network: nn.Module) -> nn.Module:
        """Copy of the network, in the first process."""
        return copy.deepcopy(network) if self.is_first else network

    def shard(self, root: nn.Module, network: nn.Module) -> None:
        """Shard a network whose blocks, where it names them, are gathered one by one."""
        for block in network.blocks() if isinstance(network, WithBlocks) else ():
            fully_shard(block, mesh=self._mesh)
        fully_shard(root, mesh=self._mesh)

    def clipped(self, parameters: Sequence[nn.Parameter], most: float) -> Tensor:
        """Clip the gradients by their norm over all processes, which is returned."""
        # Over all processes: each has a part of every gradient.
        norm = _full(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
        nn.utils.clip_grads_with_norm_(parameters, most, norm)
        return norm

    def full_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Full tensors, on the CPU of the first process; all take part, tensor by tensor."""

        def gathered(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            full = _full(value).detach()
            # A clone: on a CPU .cpu() is the very tensor, which training goes on to change.
            return full.cpu().clone() if self.is_first else None

        gathered_state: dict[str, Any] = tree_map(gathered, state)
        return gathered_state if self.is_first else {}

    def parts(self, state: Mapping[Any, Any], like: Mapping[Any, Any]) -> dict[Any, Any]:
        """This process's parts of full tensors, which each has: nothing is sent."""
        return {name: _part(value, like[name]) for name, value in state.items()}


def _full(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def _part(value: Any, like: Any) -> Any:
    if not isinstance(like, DTensor):
        return value
    if isinstance(value, Mapping):  # an optimiser's state of a parameter, whose count stays whole
        return {k: _part(v, like) if v.shape == like.shape else v for k, v in value.items()}
    value = value.to(like.device)
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


def leave() -> None:
    """Close this process's connections to the others, if any, also half-made ones."""
    if dist.is_initialized():
        dist.destroy_process_group()


def meeting_place(host: str, count: int) -> TCPStore:
    """The store of ``count`` processes, opened by the first: at that address alone, on any port."""
    # A socket of ours: by itself the store listens on every address of the machine.
    server = socket.create_server((host, 0))
    return TCPStore(
        host,
        server.getsockname()[1],
        count,
        is_master=True,
        wait_for_workers=False,
        timeout=PATIENCE,
        master_listen_fd=server.detach(),
    )


def found_place(host: str, port: int, count: int) -> TCPStore:
    """The store that ``meeting_place`` opened, in another process."""
    return TCPStore(host, port, count, is_master=False, timeout=PATIENCE)


def say_here(store: Store, rank: int) -> None:
    """Note in the store that process ``rank`` is about to meet the others."""
    store.set(f"{_HERE}{rank}", "")


def say_failed(store: Store, which: str, error: Exception, why: str) -> None:
    """Note in the store why another process ends."""
    kind = next((name for name, kind in _NO_OUTCOMES.items() if isinstance(error, kind)), "")
    store.set(_FAILURE, json.dumps([kind, f"{which}: {why}"]))


def gathered(store: Store, count: int, device: str, has_ended: Callable[[], bool]) -> Gang:
    """The first process's side of a gang, once all others are at the place.

    ``has_ended`` waits a moment and tells whether another process has ended: then this raises
    InvalidValue, or what ``why_gone`` raises.
    """
    others = [f"{_HERE}{rank}" for rank in range(1, count)]
    while not store.check(others):
        if has_ended():
            raise InvalidValue(why_gone(store))
    return Gang(0, count, store, device)


def why_gone(store: Store) -> str:
    """Failure of another process, as text.

    Raises:
        StoreError, BadData: it failed with that.
        RankLost: it died without a word.
    """
    failure = None
    with suppress(RuntimeError):
        if store.check([_FAILURE]):
            failure = store.get(_FAILURE)
    if failure is None:
        raise RankLost("one of the processes of an arm died")
    kind, why = json.loads(failure)
    if kind:
        raise _NO_OUTCOMES[kind](why)
    return str(why)


def is_disconnect(error: BaseException) -> bool:
    """True if an error says no more than that another process is gone."""
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(sign in str(error) for sign in _DISCONNECTED)
    )
