"""Seconds that `sweep status` and `best` take on a large sweep on a distant S3.

    python -m benchmarks.reading [--pairs N] [--settings N] [--delay-ms N] [--verbs status,best]
                                 [--out FILE]

The sweep is imitated (benchmarks/imitated): finished arms with records of a real one's form, in
moto's S3 on loopback, every request delayed. Each verb is a process of its own, from its start to
its last line, run three times; told are the fastest, all of them, and the HTTP requests of one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pyarrow.fs

from benchmarks.imitated.arms import definition, train
from benchmarks.scale import KEYS, requests_served, s3_server
from sweep.run.coordinator import Coordinator
from sweep.study.definition import Definition, put_definition
from trainables.plain import Json
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

TIMES = 3


def store_sweep(root: str, pairs: int, settings: int) -> int:
    """A finished sweep in a folder, searched at random; how many pairs it has."""
    space = replace(definition(pairs, settings).space, sampler="random")
    objects = ObjectStore(root)
    asked = put_definition(objects, Definition("scale", space))
    coordinator = Coordinator(objects, asked)
    coordinator.start()
    train(coordinator, ArmStore(objects, driver=coordinator.runs.driver), lambda final: None)
    coordinator.close()
    assert coordinator.summary().exit_code == 0, coordinator.summary().problems[:3]
    return space.n_proposals * settings


def measured(verb: str, root: str, port: int) -> dict[str, Json]:
    """One verb of the command line, a few times."""
    command = [sys.executable, "-m", "sweep.cli", verb, *(["scale"] if verb != "list" else [])]
    seconds: list[float] = []
    before = requests_served(port)
    for _ in range(TIMES):
        began = time.perf_counter()
        subprocess.run([*command, "--storage", root], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - began)
    requests = (requests_served(port) - before) / TIMES
    return {"s": min(seconds), "every_s": seconds, "http_requests": requests}


def main() -> None:
    """Parse, store, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=1400)
    parser.add_argument("--settings", type=int, default=175)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--verbs", default="status,best")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    os.environ.update(KEYS)
    with tempfile.TemporaryDirectory(prefix="reading-") as folder, s3_server() as port:
        pairs = store_sweep(folder, options.pairs, options.settings)
        there = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        s3, _ = pyarrow.fs.FileSystem.from_uri(f"s3://bucket?{there}")
        pyarrow.fs.copy_files(folder, "bucket/root", destination_filesystem=s3)
        with urlopen(f"http://127.0.0.1:{port}/delay-ms/{options.delay_ms}", timeout=60):
            pass
        root = f"s3://bucket/root?{there}"
        result = {
            "pairs": pairs,
            "settings": options.settings,
            "delay_ms": options.delay_ms,
            "verbs": {verb: measured(verb, root, port) for verb in options.verbs.split(",")},
        }
    text = json.dumps(result, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
