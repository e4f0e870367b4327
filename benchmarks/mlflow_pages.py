"""Seconds until MLflow's pages of a sweep of 500 arms can be used, in Chromium.

    python -m benchmarks.mlflow_pages > pages.json

Stores and tracks an imitated sweep (50 settings, 9 proposals each, trained by nobody) in a
temporary folder, serves it as `sweep ui` does and opens, each several times in a browser of its
own,

* the saved view *Winner pairs*: until its 100 runs are listed and its first six charts are drawn,
* the view *All arms*: until runs are listed and the parallel coordinates of all are drawn,
* the table *Feasible proposals*: until its rows are there,
* *Winner pairs* with all 100 runs on each chart, in the place of the first 20, and
* MLflow's page that compares 100 runs.

The goals are 5 s for the first three and 20 s for the others. The first opening loads MLflow's
scripts from its server, so it is told apart. Other programs on the machine make all slower:
``load`` is its load average over a minute, before and after. Needs Debian's package chromium.
Prints one JSON document; takes about five minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.imitated.arms import definition, train
from sweep.api.training import sweep_pages
from sweep.results.sweep_view import load_sweep
from sweep.run.coordinator import Coordinator
from sweep.study.definition import Definition, put_definition
from sweep.tracking.address import sweep_id, tracking_uri
from sweep.tracking.client import make_client, search_runs
from sweep.tracking.sources import tracked_arms
from sweep.tracking.tracker import Tracker, sync_all
from sweep.tracking.views import DRAWN, TAG, View, searched_fields, views
from tests.support.browser import browser
from tests.support.servers.mlflow_servers import free_port
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

PAIRS, SETTINGS = 450, 50  # and an unconstrained arm of each setting
REPEATS = 5
COMPARED = 100
SIZE = (1600, 1400)
GOAL_S, COMPARISON_GOAL_S = 5.0, 20.0
GIVE_UP_S = 300.0
LISTED = "document.querySelectorAll('.ag-row').length >= 15"
PLOTS = "[...document.querySelectorAll('.js-plotly-plot')]"


def tracked(root: Path, asked: Definition) -> str:
    """An imitated sweep, stored below ``root`` and tracked; returns MLflow's address."""
    objects = ObjectStore(root)
    put_definition(objects, asked)
    coordinator = Coordinator(objects, asked)
    coordinator.start()
    train(coordinator, ArmStore(objects), lambda _: None)
    uri = tracking_uri(str(root))
    tracker = Tracker(uri, sweep_id=sweep_id(objects, asked.name))
    sync_all(tracker, tracked_arms(objects, asked), say=_aside)
    tracker.sync_sweep(sweep_pages(load_sweep(objects, asked.name), 0, objects.root))
    return uri


def pages(uri: str, asked: Definition, compared: int) -> dict[str, tuple[str, str]]:
    """Of each page, behind the server's address: where it is, and when it can be used."""
    searched = searched_fields(asked.space)
    pairs, _, every, feasible = views(searched)
    client = make_client(uri)
    whole = View("whole", "All of them", {**pairs.state, "runsHiddenMode": "SHOW_ALL"})
    client.set_experiment_tag("1", TAG + whole.key, whole.text(0))
    runs = search_runs(client, "1", "tags.in_shown_pair = 'yes'")
    ids = [run.info.run_id for run in runs][:compared]
    assert len(ids) == compared
    numbers = f"runs={quote(json.dumps(ids))}&experiments={quote(json.dumps(['1']))}"
    return {  # on a chart of constrained arms alone half of the runs have a line
        "winner_pairs": (pairs.address("1"), f"{LISTED} && {_drawn(6, min(DRAWN, compared) // 2)}"),
        "all_arms": (
            every.address("1"),
            f"{LISTED} && document.querySelectorAll('.plotly, .parcoords, canvas').length > 1",
        ),
        "feasible_proposals": (feasible.address("1"), LISTED),
        f"winner_pairs_{compared}_runs": (
            whole.address("1"),
            f"{LISTED} && {_drawn(3, compared // 2)}",
        ),
        f"compare_{compared}_runs": (
            f"#/compare-runs?{numbers}",
            f"document.body.innerText.includes('Comparing {compared} Runs') && {PLOTS}.length > 0"
            " && document.body.innerText.includes('train_gamma')",
        ),
    }


def _drawn(charts: int, runs: int) -> str:
    """That so many charts have lines of at least so many runs, as an expression in the page."""
    count = "new Set((p.data || []).filter(d => d.x && d.metricKey).map(d => d.name)).size"
    return f"{PLOTS}.filter(p => {count} >= {runs}).length >= {charts}"


@contextmanager
def served(uri: str, root: Path) -> Iterator[str]:
    """`sweep ui` of the sweep; its address."""
    words = [sys.executable, "-m", "sweep.cli", "ui", "scale", "--storage", str(root)]
    with subprocess.Popen(
        [*words, "--port", str(free_port())], stdout=subprocess.PIPE, text=True
    ) as ui:
        try:
            assert ui.stdout is not None
            yield ui.stdout.readline().partition("#")[0]
        finally:
            ui.terminate()


def opened(base: str, address: str, ready: str) -> tuple[float, float]:
    """Seconds until a page can be used: with nothing in the browser's cache, and then again."""
    seconds = []
    with browser(SIZE) as page:
        for _ in range(2):
            page.open("about:blank")
            started = time.monotonic()
            page.open(base + address)
            page.wait_for(ready, GIVE_UP_S)
            seconds.append(time.monotonic() - started)
    return seconds[0], seconds[1]


def spread(seconds: list[float]) -> dict[str, float]:
    """Median and range."""
    ordered = sorted(seconds)
    at = {"median": ordered[len(ordered) // 2], "min": ordered[0], "max": ordered[-1]}
    return {name: round(value, 2) for name, value in at.items()}


def _aside(text: str) -> None:
    print(text, file=sys.stderr)


def main() -> None:
    """Run it and print the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--settings", type=int, default=SETTINGS)
    parser.add_argument("--compared", type=int, default=COMPARED, help="at most two a setting")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    asked = definition(options.pairs, options.settings)
    before = os.getloadavg()[0]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        uri = tracked(root, asked)
        with served(uri, root) as base:
            for name, (address, ready) in pages(uri, asked, options.compared).items():
                times = [opened(base, address, ready) for _ in range(options.repeats)]
                first, again = ([pair[k] for pair in times] for k in (0, 1))
                goal = COMPARISON_GOAL_S if name.endswith("_runs") else GOAL_S
                found[name] = {"first": spread(first), "again": spread(again), "goal": goal}
                _aside(f"{name}: {found[name]}")
    about = {
        "benchmark": "mlflow_pages",
        "arms": options.pairs + options.settings,
        "repeats": options.repeats,
        "mlflow": version("mlflow"),
        "cpus": os.cpu_count(),
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
        "python": platform.python_version(),
    }
    print(json.dumps(about | {"seconds": found}, indent=2))


if __name__ == "__main__":
    main()
