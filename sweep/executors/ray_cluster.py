"""View of a running Ray cluster: machines, growth limits, the drivers' board.

The board is the key-value store of the cluster's head, since it is the cluster that drivers share
and not their storage; it goes with the head, as they do. This, and what the autoscaler was told, is
not part of Ray's public interface: Ray is pinned, and tests run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import ray
from ray.exceptions import RayError
from ray.experimental import internal_kv
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.placement_group import PlacementGroup

from sweep.executors import autoscaling
from sweep.executors.autoscaling import counted
from sweep.executors.resources import Machine, ResourceClass
from trainables.errors import Failure
from trainables.plain import Json

NAMESPACE = b"descent-sweep"


class RayCluster:
    """The cluster that this process is attached to; Failure where its head does not answer."""

    leaving: Sequence[str] = ()  # machines that take no more arms, by Ray's ids
    why_waiting = ""  # what is known of machines that have not come
    trouble = ""  # why none will ever come; empty: they may

    def __init__(self) -> None:
        self._requests: list[PlacementGroup] = []

    def machines(self) -> list[Machine]:
        """The resources of every machine that is there, and stays."""
        return [counted(node["Resources"]) for node in self.nodes()]

    def nodes(self) -> list[dict[str, Json]]:
        """Every machine that is there, in Ray's words."""
        with _head():
            nodes: list[dict[str, Json]] = ray.nodes()  # type: ignore[no-untyped-call]
        return [node for node in nodes if node["Alive"]]

    def largest(self, arm: ResourceClass) -> list[Machine] | None:
        """Machines that the autoscaler may have at once; None when they are not known."""
        return autoscaling.largest(arm)

    def waiting(self) -> int:
        """Count the requested places that have not come; the others are let go."""
        with _head():
            states = [placement_group_table(group).get("state") for group in self._requests]
        came = [g for g, state in zip(self._requests, states, strict=True) if state == "CREATED"]
        # One that came holds the very place that an arm is to get: it has done its work.
        for group in came:
            self._let_go(group)
        return len(self._requests)

    def ask(self, arm: ResourceClass, count: int) -> None:
        """Ask for places of ``count`` arms of this class in all, beside those that are there."""
        for group in self._requests[count:]:
            self._let_go(group)
        while len(self._requests) < count:
            with _head():
                self._requests.append(placement_group([arm.bundle] * arm.processes))

    def _let_go(self, group: PlacementGroup) -> None:
        with _head():
            remove_placement_group(group)
        self._requests.remove(group)

    def put(self, key: str, content: bytes) -> None:
        """Write to the board; it replaces the content under this key."""
        with _head():
            internal_kv._internal_kv_put(key, content, overwrite=True, namespace=NAMESPACE)

    def read(self) -> dict[str, bytes]:
        """Contents of the board, by key."""
        with _head():
            keys: list[bytes] = internal_kv._internal_kv_list("", namespace=NAMESPACE)
            contents = {
                k.decode(): internal_kv._internal_kv_get(k, namespace=NAMESPACE) for k in keys
            }
        return {key: content for key, content in contents.items() if content}  # or dropped by now

    def drop(self, key: str) -> None:
        """Delete a key of the board, if it is there."""
        with _head():
            internal_kv._internal_kv_del(key, namespace=NAMESPACE)


@contextmanager
def _head() -> Iterator[None]:
    """Turn errors of requests to the head in the block into Failure."""
    try:
        yield
    except (RayError, OSError) as error:
        raise Failure(f"the head of the cluster does not answer: {error}") from error
