"""Company of an arm on Ray: an actor in each further bundle of its trial.

Ray Tune asks for the group, so that an arm begins when there is room for all of its processes, and
takes it back when the arm's worker ends, however that ends. The first process is Tune's worker; the
others die with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import ray
from ray.util import get_current_placement_group, get_node_ip_address
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from torch.distributed import Store  # type: ignore[attr-defined]

from trainables.config.arm import ArmConfig
from trainables.sharding.gang import gathered, is_disconnect, leave, meeting_place, why_gone
from trainables.sharding.order import PeerOrder
from trainables.sharding.ranks import Ranks

LOOK_S = 0.1  # whether the others are there


@ray.remote
class _Peer:
    def follow(self, order: PeerOrder) -> None:
        """Train until the first process ends this one."""
        from trainables.sharding.peer import follow

        follow(order)


class PlacedCompany:
    """``Company`` of Ray actors, one in each further bundle of the trial."""

    def __init__(
        self, count: int, bundle: Mapping[str, float], root: str, patience_s: float
    ) -> None:
        """Take note of the processes, one for each ``bundle``; ``gather`` starts them."""
        self.count = count
        self._bundle = bundle
        self._order = PeerOrder(root=root, patience_s=patience_s, count=count)
        self._peers: list[Any] = []
        self._place: Store | None = None

    def gather(self, config: ArmConfig, step: int) -> Ranks:
        """Start the others on an arm, as ``Company``; returns when all are there."""
        host: str = get_node_ip_address()  # type: ignore[no-untyped-call]
        self._place = place = meeting_place(host, self.count)
        group = get_current_placement_group()
        assert group is not None  # Tune's (trial.py)
        ended: list[Any] = []  # what others return: nothing while they train
        for rank in range(1, self.count):
            peer = _Peer.options(  # type: ignore[attr-defined]
                num_cpus=self._bundle["CPU"],
                num_gpus=self._bundle.get("GPU", 0.0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=rank
                ),
            ).remote()
            self._peers.append(peer)
            order = replace(self._order, config=config.to_json(), step=step, rank=rank)
            ended.append(peer.follow.remote(replace(order, host=host, port=place.port)))
        return gathered(
            place, self.count, config.device, lambda: bool(ray.wait(ended, timeout=LOOK_S)[0])
        )

    def why_gone(self, error: BaseException) -> str:
        """Failure of another process, as ``Company``."""
        return why_gone(self._place) if self._place and is_disconnect(error) else ""

    def end(self) -> None:
        """End the other processes, wherever they are; others can be gathered afterwards."""
        with suppress(RuntimeError):
            leave()
        for peer in self._peers:
            ray.kill(peer)
        self._peers = []
