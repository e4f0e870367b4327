"""Growth limits of an autoscaled cluster, read on its head from `ray up`'s files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from sweep.executors.resources import Machine, ResourceClass
from trainables.plain import Json

CONFIG = "~/ray_bootstrap_config.yaml"  # where `ray up` puts it, on the head
_COUNTED = ("CPU", "GPU")


def largest(arm: ResourceClass) -> list[Machine] | None:
    """All machines that the autoscaler may have at once; None when that is not known.

    Known on the head of a cluster that `ray up` made, where every type says what it has. Where the
    types together may have more machines than the cluster, those that hold most such arms.
    """
    try:
        return largest_of(yaml.safe_load(Path(CONFIG).expanduser().read_text()), arm)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, yaml.YAMLError):
        return None


def largest_of(config: Mapping[str, Json], arm: ResourceClass) -> list[Machine] | None:
    """The workers of a cluster.yaml, as `ray up` completed it, at their most; see ``largest``."""
    workers: list[Machine] = []
    for kind in config["available_node_types"].values():
        count = int(kind.get("max_workers", config["max_workers"]))
        resources = counted(kind.get("resources") or {})
        if not count:  # as of a head's own type; Ray gives machines of one's own the head's
            continue
        if not resources.get("CPU"):
            return None
        workers += [resources] * count
    process = replace(arm, processes=1)
    workers.sort(key=lambda machine: process.slots([machine]), reverse=True)
    return workers[: int(config["max_workers"])]


def counted(resources: Mapping[str, float]) -> Machine:
    """Resources of a machine that arms can hold: CPUs and GPUs."""
    return {name: float(resources[name]) for name in _COUNTED if resources.get(name)}


def unused_gpus(arm: ResourceClass, machines: Sequence[Machine], sweep: str, *, stop: str) -> str:
    """Warning where no arm uses a GPU and every machine that trains has some; else empty.

    ``stop`` is the command that stops the sweep.

    >>> node, stop = {"CPU": 8.0, "GPU": 1.0}, "sweep stop mine"
    >>> print(unused_gpus(ResourceClass(1), [{}, node, node], "mine", stop=stop))
    no setting of mine uses a GPU, and every machine of this cluster that trains has some (2 in \
all): up to 16 arms will train on CPUs. If that is not meant: `sweep stop mine`, and start it \
again with --set device=cuda and another --name.
    >>> unused_gpus(ResourceClass(1, 0.5), [node], "mine", stop=stop)
    ''
    >>> unused_gpus(ResourceClass(1), [node, {"CPU": 8.0}], "mine", stop=stop)
    ''
    """
    training = [machine for machine in machines if machine.get("CPU")]
    if arm.gpus or not training or not all(machine.get("GPU") for machine in training):
        return ""
    gpus = sum(machine["GPU"] for machine in training)
    return (
        f"no setting of {sweep} uses a GPU, and every machine of this cluster that trains has some "
        f"({gpus:g} in all): up to {arm.slots(training)} arms will train on CPUs. If that is not "
        f"meant: `{stop}`, and start it again with --set device=cuda and another --name."
    )
