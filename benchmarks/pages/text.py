"""Table of estimated inner losses in docs/text.md, from two files of results."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.pages.made import Made, number, table
from trainables.config.constraint import TOLERANCE

RESULTS = Path(__file__).parents[1] / "results"
CASES = {
    "plain": "plain training",
    "exact": "exact losses",
    "tokens_7": "7 % of the tokens",
    "tokens_3": "3 % of the tokens",
    "layers_1": "one inner layer a step",
}


def made() -> Made:
    """What the page has of results."""
    arms, steps = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("estimated_feasibility", "decoder_step")
    )
    missed = {(a["case"], a["seed"]): max(a["missing_shares"]) for a in arms["arms"]}
    seeds = sorted({seed for _, seed in missed})
    rows = []
    for case, called in CASES.items():
        step = steps["cases"].get(case)
        time = "" if step is None else number(step["time_ratio"]["median"], 2)
        worst = (number(missed[case, seed], 2, short=True) for seed in seeds)
        rows.append([called, *worst, time])
    head = ["inner losses", *(f"worst layer misses, seed {s}" for s in seeds), "time of a step"]
    facts = [f"(allowed {number(TOLERANCE, 2, short=True)})", f"of {steps['layers']} layers"]
    return Made(
        {"estimated": table(head, rows)}, facts, "**Estimated inner losses.**", "\n\n**Answers"
    )
