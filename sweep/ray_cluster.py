"""A running Ray cluster as the driver sees it: machines, how far it may grow, and a board.

The board is the key-value store of the cluster's head, since it is the cluster that drivers share
and not their storage; it goes with the head, as they do. This, and what the autoscaler was told, is
not part of Ray's public interface: Ray is pinned, and tests run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
import yaml
from ray.exceptions import RayError
from ray.experimental import internal_kv
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.placement_group import PlacementGroup

from sweep.resources import Machine, ResourceClass
from trainables.errors import Failure

Json = Any
AUTOSCALER_CONFIG = "~/ray_bootstrap_config.yaml"  # where `ray up` puts it, on the head
NAMESPACE = b"descent-sweep"
_COUNTED = ("CPU", "GPU")


class RayCluster:
    """The cluster that this process is attached to."""

    def __init__(self) -> None:
        self._asked: list[PlacementGroup] = []

    def machines(self) -> list[Machine]:
        """The resources of every machine that is there."""
        with _head():
            nodes: list[dict[str, Json]] = ray.nodes()  # type: ignore[no-untyped-call]
        return [_counted(node["Resources"]) for node in nodes if node["Alive"]]

    def largest(self, arm: ResourceClass) -> list[Machine] | None:
        """All machines that the autoscaler may have at once; None when that is not known.

        Known on the head of a cluster that `ray up` made, where every type says what it has. Where
        the types together may have more machines than the cluster, those that hold most such arms.
        """
        try:
            config = yaml.safe_load(Path(AUTOSCALER_CONFIG).expanduser().read_text())
            return largest_of(config, arm)
        except (OSError, ValueError, TypeError, LookupError, AttributeError, yaml.YAMLError):
            return None

    def waiting(self) -> int:
        """How many of the places that were asked for have not come. The others are let go."""
        with _head():
            states = [placement_group_table(group).get("state") for group in self._asked]
        came = [g for g, state in zip(self._asked, states, strict=True) if state == "CREATED"]
        for group in came:
            self._let_go(group)
        return len(self._asked)

    def ask(self, bundle: Mapping[str, float], count: int) -> None:
        """Ask for ``count`` places of this size in all, beside those that are there."""
        for group in self._asked[count:]:
            self._let_go(group)
        while len(self._asked) < count:
            with _head():
                self._asked.append(placement_group([dict(bundle)]))

    def _let_go(self, group: PlacementGroup) -> None:
        with _head():
            remove_placement_group(group)
        self._asked.remove(group)

    def put(self, key: str, content: bytes) -> None:
        """See Board."""
        with _head():
            internal_kv._internal_kv_put(key, content, overwrite=True, namespace=NAMESPACE)

    def read(self) -> dict[str, bytes]:
        """See Board."""
        with _head():
            keys: list[bytes] = internal_kv._internal_kv_list("", namespace=NAMESPACE)
            found = {k.decode(): internal_kv._internal_kv_get(k, namespace=NAMESPACE) for k in keys}
        return {key: content for key, content in found.items() if content}  # or dropped by now

    def drop(self, key: str) -> None:
        """See Board."""
        with _head():
            internal_kv._internal_kv_del(key, namespace=NAMESPACE)


@contextmanager
def _head() -> Iterator[None]:
    """What is asked of the head; Failure where it does not answer."""
    try:
        yield
    except (RayError, OSError) as error:
        raise Failure(f"the head of the cluster does not answer: {error}") from error


def largest_of(config: Mapping[str, Json], arm: ResourceClass) -> list[Machine] | None:
    """The workers of a cluster.yaml, as `ray up` completed it, at their most; see ``largest``."""
    workers: list[Machine] = []
    for kind in config["available_node_types"].values():
        count = int(kind.get("max_workers", config["max_workers"]))
        resources = _counted(kind.get("resources") or {})
        if not count:  # as of a head's own type; Ray gives machines of one's own the head's
            continue
        if not resources.get("CPU"):
            return None
        workers += [resources] * count
    workers.sort(key=lambda machine: arm.slots([machine]), reverse=True)
    return workers[: int(config["max_workers"])]


def _counted(resources: Mapping[str, float]) -> Machine:
    return {name: float(resources[name]) for name in _COUNTED if resources.get(name)}
