"""Seconds to a sweep's table: this project beside a stock Ray Tune script, by turns.

    python -m benchmarks.time_to_table [--out FILE] [--repeats 5] [--only NAME ...]
        [--space quickstart] [--set NAME=VALUE ...]

Each repeat runs every variant once as a process of its own, in an order that turns from repeat to
repeat, with the repeat's number as the search seed: the seed of training, and of stock's sampler.

* ``stock``: benchmarks/imitated/stock_tune.py; ``stock shared``: it trains plain arms once;
  ``strong stock``: it also keeps its workers; ``strong stock, our ut``: it also has the product's
  UT; ``stock untracked``: without MLflow;
* ``product``: `sweep run`, as installed; ``product fused``: with `--fuse 8`; ``product untracked``:
  without MLflow (and without the estimate of what the sweep will take). Against the last one:
  ``product new workers``, with a process for every arm, and ``product no early ends``.

Seconds are of the wall, from start to exit. ``training_s`` are those that workers spent in training
and evaluating arms; the rest of cores x wall is start-up, waiting, tracking. ``best`` is the best
feasible objective of each setting (lower is better, null without a feasible pair): what is
quick must not find less. ``regret`` is how far that is from the best which any variant found on the
same seed, the mean over settings and repeats that have a winner. ``quality`` tests the product's
objectives: a repeat's gain over a script is the mean over settings where both found a winner,
above 0 where the product's is better; p is of a one-sided t test over repeats against a gain of
-MARGIN. Of denoising an objective is a mean log ratio, so that MARGIN is 2 % of an RMSE. FILE is
rewritten after every run and gone on with, so that nothing is lost.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

from scipy.stats import ttest_1samp

from search_spaces.catalog import find, with_values
from sweep.cli.options import parse_values
from sweep.executors import tune
from sweep.executors.executor import Executor
from sweep.results.sweep_view import load_sweep
from sweep.run.run_sweep import run_sweep
from sweep.study.definition import Definition, put_definition
from sweep.study.registration import resolved
from trainables.machine.cores import usable_cores
from trainables.records.arm_record import EVAL_SECONDS, TRAIN_SECONDS
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

STOCK = {
    "stock": [],
    "stock shared": ["--share-plain"],
    "strong stock": ["--share-plain", "--reuse-actors"],
    "strong stock, our ut": ["--share-plain", "--reuse-actors", "--product-ut"],
    "stock untracked": ["--no-mlflow"],
}
PRODUCT = {"product": [], "product fused": ["--fuse", "8"]}
IN_PROCESS = ("product untracked", "product new workers", "product no early ends")
VARIANTS = (*STOCK, *PRODUCT, *IN_PROCESS)
RATIOS = {
    "all": ("stock", "product"),
    "all, against the strong script": ("strong stock", "product"),
    "all but UT's operation": ("strong stock, our ut", "product"),
    "UT's operation": ("strong stock", "strong stock, our ut"),
    "all, with fusion": ("stock", "product fused"),
    "shared plain arms": ("stock", "stock shared"),
    "stock's kept workers": ("stock shared", "strong stock"),
    "stock's tracking": ("stock", "stock untracked"),
    "all but shared plain arms": ("stock shared", "product"),
    "fusion": ("product", "product fused"),
    "our tracking": ("product", "product untracked"),
    "kept workers": ("product new workers", "product untracked"),
    "early ends": ("product no early ends", "product untracked"),
}
NAME = "table"
MARGIN = 0.02  # of a mean loss of the product's objectives that does not matter


def untracked(variant: str, storage: str, space: str, values: list[str]) -> None:
    """The product without MLflow, in this process, and without what the variant leaves out."""
    objects = ObjectStore(storage)
    if variant == "product new workers":
        patch.object(tune, "TuneConfig", without_reuse(tune.TuneConfig)).start()  # type: ignore[attr-defined]
    if variant == "product no early ends":
        values = [*values, "early_stop=false"]
    asked = Definition(NAME, with_values(find(space).space, parse_values(values)))
    asked = resolved(asked, say=print)
    run_sweep(objects, put_definition(objects, asked), Executor(workers=cores()), display=False)


def without_reuse(config: Any) -> Any:
    """Tune's configuration, whatever the executor says, of a process for every trial."""
    return lambda **options: config(**{**options, "reuse_actors": False})


def cores() -> int:
    """How many this process may use."""
    return usable_cores()


def stock(variant: str, options: list[str]) -> dict[str, Any]:
    """One run of the stock script."""
    module = "benchmarks.imitated.stock_tune"
    wall_s, out = timed(["-m", module, *options, *STOCK[variant]])
    found = json.loads(out.splitlines()[-1])
    settings = found["settings"]
    return {
        "wall_s": wall_s,
        "training_s": found["shared_s"] + sum(s["training_s"] for s in settings.values()),
        "best": {name: setting["best"] for name, setting in settings.items()},
        "feasible": {name: setting["feasible"] for name, setting in settings.items()},
    }


def product(variant: str, space: str, values: list[str]) -> dict[str, Any]:
    """One run of `sweep run` in a folder of its own."""
    sets = [word for value in values for word in ("--set", value)]
    with tempfile.TemporaryDirectory() as storage:
        if variant in IN_PROCESS:
            module = "benchmarks.time_to_table"
            command = ["-m", module, "--untracked", variant, storage, "--space", space, *sets]
        else:
            command = ["-m", "sweep.cli", "run", space, "--name", NAME, "--storage", storage]
            command += [*sets, *PRODUCT[variant]]
        wall_s, _ = timed(command)
        objects = ObjectStore(storage)
        settings = load_sweep(objects, NAME, "outcomes").settings
        store = ArmStore(objects)
        records = [store.record(name) for name in objects.names("arms")]
    feasible = {
        view.setting.name: [r.objective for r in view.results if r.outcome == "feasible"]
        for view in settings
    }
    scalars = [record.reports[-1].scalars for record in records if record is not None]
    return {
        "wall_s": wall_s,
        "training_s": sum(s[TRAIN_SECONDS] + s[EVAL_SECONDS] for s in scalars),
        "best": {name: min(found, default=None) for name, found in feasible.items()},
        "feasible": {name: len(found) for name, found in feasible.items()},
    }


def timed(command: list[str]) -> tuple[float, str]:
    """Wall seconds of a Python process and its standard output; it must end well."""
    began = time.perf_counter()
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    wall_s = time.perf_counter() - began
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")
    return wall_s, ended.stdout


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of variants, and ratios within repeats."""

    def walls(variant: str) -> dict[int, float]:
        return {run["repeat"]: run["wall_s"] for run in runs if run["variant"] == variant}

    ratios = {}
    for name, (slow, quick) in RATIOS.items():
        ours = walls(quick)
        of = sorted(wall / ours[n] for n, wall in walls(slow).items() if n in ours)
        if of:
            ratios[name] = {
                "of": f"{slow} / {quick}",
                "median": round(statistics.median(of), 2),
                "range": [round(of[0], 2), round(of[-1], 2)],
                "repeats": len(of),
            }
    variants = {}
    for variant in VARIANTS:
        mine = [run for run in runs if run["variant"] == variant]
        if mine:
            wall_s = statistics.median(run["wall_s"] for run in mine)
            training_s = statistics.median(run["training_s"] for run in mine)
            variants[variant] = {
                "wall_s": round(wall_s, 1),
                "training_s": round(training_s, 1),
                **quality(runs, mine),
            }
    scripts = [name for name in STOCK if name in variants and "product" in variants]
    tested = {name: not_inferior(runs, name) for name in scripts}
    return {"variants": variants, "ratios": ratios, "quality": tested}


def not_inferior(runs: list[dict[str, Any]], script: str) -> dict[str, Any]:
    """Test that the product's objectives are not worse than the script's by MARGIN.

    Of settings where both found a winner; who alone found none is counted, and where that is the
    product there is no p.
    """
    found = {(run["variant"], run["repeat"]): run["best"] for run in runs}
    gains, settings, without = [], 0, Counter[str]()
    for (variant, repeat), best in found.items():
        other = found.get((script, repeat))
        if variant != "product" or other is None:
            continue
        both = []
        for setting, ours in best.items():
            theirs = other[setting]
            if ours is not None and theirs is not None:
                both.append(theirs - ours)
            elif ours is not theirs:
                without["product" if ours is None else "script"] += 1
        settings += len(both)
        gains += [statistics.mean(both)] if both else []
    counts = {"repeats": len(gains), "settings": settings, "without_a_winner": dict(without)}
    if len(gains) < 2:
        return counts
    spread = statistics.stdev(gains)
    p = None
    if spread > 0 and not without["product"]:
        p = float(f"{ttest_1samp(gains, -MARGIN, alternative='greater').pvalue:.1e}")
    return {
        "gain": round(statistics.mean(gains), 4),
        "standard_error": round(spread / len(gains) ** 0.5, 4),
        "margin": MARGIN,
        "p": p,
        **counts,
    }


def quality(runs: list[dict[str, Any]], mine: list[dict[str, Any]]) -> dict[str, Any]:
    """Feasible pairs, settings without a winner, and the mean regret of the others."""
    regrets, without = [], 0
    for run in mine:
        for setting, best in run["best"].items():
            of_seed = [other["best"][setting] for other in runs if other["repeat"] == run["repeat"]]
            if best is None:
                without += 1
            else:
                regrets.append(best - min(found for found in of_seed if found is not None))
    return {
        "feasible": sum(sum(run["feasible"].values()) for run in mine),
        "settings_without_winner": f"{without} of {without + len(regrets)}",
        "regret": round(statistics.mean(regrets), 4) if regrets else None,
        "worst_regret": round(max(regrets), 4) if regrets else None,
    }


def main() -> None:
    """Run what is missing, by turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="go on with this file; default: print alone")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", action="append", choices=VARIANTS)
    parser.add_argument("--space", default="quickstart")
    parser.add_argument("--set", action="append", default=[], dest="values", metavar="NAME=VALUE")
    parser.add_argument("--untracked", nargs=2, default=(), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.untracked:
        variant, storage = options.untracked
        untracked(variant, storage, options.space, options.values)
        return
    result: dict[str, Any] = {
        "benchmark": "time_to_table",
        "space": options.space,
        "set": options.values,
        "cpus": cores(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "runs": [],
    }
    if options.out and options.out.exists():
        result = json.loads(options.out.read_text())
    runs = result["runs"]
    variants = options.only or list(VARIANTS)
    for repeat in range(options.repeats):
        turned = variants[repeat % len(variants) :] + variants[: repeat % len(variants)]
        for variant in turned:
            if any((run["variant"], run["repeat"]) == (variant, repeat) for run in runs):
                continue
            values = [*options.values, f"search_seeds=[{repeat}]"]
            if variant in STOCK:
                sets = [word for value in values for word in ("--set", value)]
                run = stock(variant, ["--space", options.space, *sets])
            else:
                run = product(variant, options.space, values)
            load = round(os.getloadavg()[0], 1)
            runs.append({"variant": variant, "repeat": repeat, "load": load, **run})
            result |= summary(runs)
            if options.out:
                options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
