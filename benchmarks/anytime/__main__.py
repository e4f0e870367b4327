"""Comparison of networks that may stop at any layer: constraints, supervision and others.

    python -m benchmarks.anytime --only ped2_ut --set data.folder=/data/ped2 \
        --also cuhk_avenue=/data/Avenue_Dataset --also photographs=

Every network of a setting is trained on every seed and scored layer by layer on the test split. A
seed is trained by one process and kept in the folder ``--kept``, so that a run that is ended goes
on, and one whose seeds are all there trains nothing. ``--also`` names other data sets whose test
clips it is scored on, with their folders. ``--pilot`` trains the wider grids that the declared
points were chosen from, on the dev split of one seed, and judges nothing. ``--draw`` writes the
figures of the settings.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping
from concurrent.futures import Future, as_completed
from pathlib import Path

from benchmarks.anytime.declared import FIRST_SEED, PILOT_SEEDS, SEEDS, SETTINGS, Setting
from benchmarks.anytime.drawn import draw
from benchmarks.anytime.judged import judged
from benchmarks.anytime.measured import scored, units
from benchmarks.trained import put
from benchmarks.workers import spawned
from search_spaces.start_points import parse_point
from trainables.plain import Json

RESULTS = Path(__file__).parents[1] / "results" / "anytime.json"


def main() -> None:
    """Train what the folder lacks, setting by setting, then judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SETTINGS, nargs="+", required=True)
    parser.add_argument(
        "--kept", type=Path, default=RESULTS.parent / "kept", help="folder of scores, a file a seed"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pilot", action="store_true")
    parser.add_argument("--draw", type=Path, help="folder of figures")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--also", action="append", default=[], metavar="DATA=FOLDER")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    options = parser.parse_args()
    places = {name: value for one in options.set for name, value in parse_point(one).items()}
    others = dict(one.split("=", 1) for one in options.also)
    options.kept.mkdir(parents=True, exist_ok=True)
    seeds = PILOT_SEEDS if options.pilot else range(FIRST_SEED, FIRST_SEED + options.seeds)
    with spawned(options.workers) as pool:
        for name in options.only:
            setting, stem = SETTINGS[name], f"{name}-pilot" if options.pilot else name
            files = {seed: options.kept / f"{stem}-{seed}.json" for seed in seeds}
            of = digest(setting, places, others)
            missing = {seed: file for seed, file in files.items() if not file.exists()}
            running: dict[Future[Json], Path] = {
                pool.submit(scored, setting, places, others, seed, is_pilot=options.pilot): file
                for seed, file in missing.items()
            }
            for done in as_completed(running):
                half = running[done].with_suffix(".part")
                half.write_text(json.dumps({"of": of, **done.result()}), encoding="utf-8")
                half.replace(running[done])
                print(running[done].stem, file=sys.stderr, flush=True)
            by_seed = {seed: kept(file, of) for seed, file in files.items()}
            if not options.pilot:
                config = setting.base.with_fields(places)
                found = {**judged(setting, config, by_seed), "units": units(config, others)}
                put(options.out, name, found)
                if options.draw:
                    draw(found, options.draw / f"{name}.svg")


def digest(setting: Setting, places: Mapping[str, Json], others: Mapping[str, str]) -> str:
    """Hash of all that decides a seed's scores, but for the code."""
    config = setting.base.with_fields(dict(places)).with_fields({"data.folder": None})
    declared = (config.changed(), setting.networks, setting.pilots, sorted(others))
    return hashlib.sha256(repr(declared).encode()).hexdigest()[:16]


def kept(file: Path, of: str) -> Json:
    """Scores of a seed, from the folder; SystemExit where they are of other declarations."""
    scores = json.loads(file.read_text("utf-8"))
    if scores.pop("of") != of:
        sys.exit(f"{file} is of other networks or other options: remove it, or give another --kept")
    return scores


if __name__ == "__main__":
    main()
