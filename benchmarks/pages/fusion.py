"""Table and figures of docs/fusion.md, from results/fused_arms.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pages.made import Made, number, table
from trainables.plain import Json

RESULTS = Path(__file__).parents[1] / "results/fused_arms.json"


def made() -> Made:
    """What the page has of results."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    head = ["patch of d pixels, batch; arms:", *map(str, found["options"]["arms"])]
    rows = [
        [
            f"d = {case['width']}, {case['batch']}",
            *(number(of["ratio"], 2) for of in case["companies"]),
        ]
        for case in found["cases"]
    ]
    return Made({"fused arms": table(head, rows)}, list(_facts(found)), "## When it pays")


def _facts(found: Json) -> Iterator[str]:
    options = found["options"]
    yield f"UT with {options['layers']} layers"
    best = max(
        (of for case in found["cases"] for of in case["companies"]), key=lambda of: of["ratio"]
    )
    yield (
        f"{best['fused_per_s']:,.0f} model-steps a second of {best['arms']} arms against "
        f"{best['alone_per_s']:.0f}"
    )
