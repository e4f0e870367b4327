"""Command of the leads: trains what a store lacks, and judges what it has.

    python -m benchmarks.leads --only H1 --store FOLDER [--seeds 6] [--pilot]
        --set data.folder=FOLDER

All but H3 read UCSD Ped2; H3 reads IMDb and asks for ``--set model.checkpoint=FOLDER``, the
words (docs/text.md). Seeds come one after the other, and the results of a lead are rewritten after
each, so that what is ended early leaves whole seeds; those that a store holds are not trained
again.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from benchmarks.leads.declared import LEADS, PILOT_SEEDS, Lead
from benchmarks.leads.frontier import Point
from benchmarks.leads.judged import Scored, verdict
from benchmarks.leads.measured import DEPTHS
from benchmarks.leads.trained import arm_of, say
from benchmarks.trained import put
from sweep.cli.options import parse_values
from trainables.plain import Json

RESULTS = Path(__file__).parents[1] / "results" / "leads.json"


def results_of(lead: Lead, by_seed: Json) -> Json:
    """Everything of one lead, from what is kept of its arms by seed and name."""
    scored = {seed: _scored(lead, arms) for seed, arms in by_seed.items()}
    plain = _labels(lead, list(lead.plain))
    if lead.measure == "depth":
        judged = [f"{name} at {DEPTHS[-1]}" for name in lead.judged]
    else:
        judged = list(lead.judged)
    return {
        "asks": lead.asks,
        "smallest_effect": lead.smallest,
        "arms": {name: dict(fields) for name, fields in lead.arms.items()},
        "plain": plain,
        "verdicts": {name: verdict(scored, name, plain, lead.smallest) for name in judged},
        "controls": {
            name: verdict(scored, name, plain, lead.smallest)
            for name in _labels(lead, list(lead.controls))
            if lead.measure != "depth" or name.endswith(f" {DEPTHS[-1]}")
        },
        "by_seed": by_seed,
    }


def _labels(lead: Lead, names: list[str]) -> list[str]:
    """The names of the points of these arms."""
    if lead.measure != "depth":
        return names
    return [f"{name} at {depth}" for name in names for depth in DEPTHS]


def _scored(lead: Lead, arms: Json) -> Scored:
    points: dict[str, Point | None] = dict.fromkeys(_labels(lead, list(arms)))
    for arm in arms.values():
        points.update({label: Point(*p) for label, p in arm.get("points", {}).items()})
    return points


def main() -> None:
    """Train and judge the leads that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=LEADS, nargs="+", default=list(LEADS))
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--most-steps", type=int, help="of every arm; default: as declared")
    parser.add_argument("--pilot", action="store_true", help="the pilot's arms, on dev, instead")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    options = parser.parse_args()
    places = parse_values(options.set)
    for name in options.only:
        base = LEADS[name].base.with_fields(places)
        lead = replace(LEADS[name], base=base, most_steps=options.most_steps)
        for seed in PILOT_SEEDS if options.pilot else ():
            for arm in lead.pilot:
                say(seed, arm, arm_of(lead, arm, seed, options.store, "dev"))
        by_seed: dict[str, Json] = {}
        seeds = range(lead.first_seed, lead.first_seed + options.seeds)
        for seed in () if options.pilot else seeds:
            found: dict[str, Json] = {}
            for arm in lead.arms:
                found[arm] = arm_of(lead, arm, seed, options.store)
                say(seed, arm, found[arm])
            by_seed[str(seed)] = found
            declared = {"base": LEADS[name].base.to_json()}  # without places of this machine
            put(options.out, name, results_of(lead, by_seed) | declared, decimals=6)


if __name__ == "__main__":
    main()
