"""A script: a sweep on a cluster that grows from no worker, as the only program of its namespaces.

Ray's fake provider starts nodes that look for their head at port 6379 of this machine. The sweep is
stopped once its arms have met (tests/support/faults.py). Prints as JSON where they met, how many
machines were there then and in the end, and how the driver ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_TYPE as HEAD

from sweep.executors.autoscaling import CONFIG as AUTOSCALER_CONFIG
from sweep.run.signals import request_stop
from tests.support.drivers import Driver, wait_until
from tests.support.faults import Faults
from tests.support.servers.ray_nodes import RayNodes, run_attached
from trainables.records.objects import ObjectStore

ADDRESS = "10.99.0.1"
IDLE_S = 6
COMMANDS = (
    "initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands",
    "head_start_ray_commands", "worker_start_ray_commands",
)  # fmt: skip


def config(workers: int, resources: dict[str, float]) -> dict[str, Any]:
    """A cluster of Ray's fake provider: no worker at first, and at most so many."""
    memory = {"object_store_memory": 80 * 2**20}
    provider = {
        "type": "fake_multinode",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    }
    types = {  # under another name than its own Ray starts a head, and ends it, again and again
        HEAD: {"resources": {}, "node_config": {}, "max_workers": 0},
        "gpu": {
            "resources": {**resources, **memory},
            "node_config": {},
            "min_workers": 0,
            "max_workers": workers,
        },
    }
    return {
        "cluster_name": "fake", "max_workers": 8, "provider": provider,
        "available_node_types": types, "head_node_type": HEAD, "auth": {}, "docker": {},
        "idle_timeout_minutes": IDLE_S / 60, "upscaling_speed": 1.0, "file_mounts": {},
        "cluster_synced_files": [], "file_mounts_sync_continuously": False, "rsync_exclude": [],
        "rsync_filter": [], **{name: [] for name in COMMANDS},
    }  # fmt: skip


def main(root: str, folder: str, workers: int, resources: str, arms: int) -> None:
    """Run the stored sweep called tiny below ``root`` until so many arms have met."""
    for line in ("link set lo up", f"addr add {ADDRESS}/24 dev lo", "route add default dev lo"):
        subprocess.run(["ip", *line.split()], check=True)
    limits = Path(AUTOSCALER_CONFIG).expanduser()
    limits.write_text(json.dumps(config(workers, json.loads(resources))))
    fake = {**os.environ, "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
    nodes = RayNodes(Path(folder), fake, address=ADDRESS, port=6379, autoscaling=limits)
    environment = nodes.driver_environment()
    objects, faults = ObjectStore(root), Faults.of_this_process()
    driver = Driver(objects, where="cluster", workers=None, fuse=1, environment=environment)
    wait_until(lambda: len(faults.met()) >= arms, timeout_s=240)
    met, peak = faults.met(), machines(environment)
    request_stop(objects, "tiny")
    code, out, err = driver.wait(timeout_s=240)
    give_up = time.monotonic() + 120
    while (left := machines(environment)) > 1 and time.monotonic() < give_up:
        time.sleep(1)
    told = {"code": code, "out": out, "err": err, "met": met, "peak": peak, "left": left}
    told["autoscaler"] = nodes.autoscaler_log()
    print(json.dumps(told))


def machines(environment: dict[str, str]) -> int:
    """How many machines the cluster has now, the head included."""
    count: int = run_attached(environment, "len(cluster.machines())")
    return count


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
