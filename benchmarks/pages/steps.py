"""Tables of steps' costs in docs/fusion.md and docs/text.md."""

from __future__ import annotations

from benchmarks.pages.made import Made, number, results, table
from trainables.config.constraint import TOLERANCE

CASES = {
    "plain": "plain training",
    "exact": "exact losses",
    "tokens_7": "7 % of the tokens",
    "tokens_3": "3 % of the tokens",
    "layers_1": "one inner layer a step",
}


def fused() -> Made:
    """What docs/fusion.md has of results."""
    found = results("fused_arms")
    head = ["patch of d pixels, batch; arms:", *map(str, found["options"]["arms"])]
    rows = [
        [
            f"d = {case['width']}, {case['batch']}",
            *(number(of["ratio"], 2) for of in case["companies"]),
        ]
        for case in found["cases"]
    ]
    best = max(
        (of for case in found["cases"] for of in case["companies"]), key=lambda of: of["ratio"]
    )
    facts = [
        f"UT with {found['options']['layers']} layers",
        f"{best['fused_per_s']:,.0f} model-steps a second of {best['arms']} arms against "
        f"{best['alone_per_s']:.0f}",
    ]
    return Made({"fused arms": table(head, rows)}, facts, "## When it pays")


def estimated() -> Made:
    """What docs/text.md has of estimated inner losses."""
    steps, missed = results("decoder_step"), {}
    for arm in results("estimated_feasibility")["arms"]:
        missed[arm["case"], arm["seed"]] = max(arm["missing_shares"])
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
