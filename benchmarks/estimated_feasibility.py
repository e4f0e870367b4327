"""Feasibility that arms reach with estimated inner losses, beside exact ones and plain training.

    python -m benchmarks.estimated_feasibility --data ALPACA --checkpoint FOLDER --store FOLDER
        > benchmarks/results/estimated_feasibility.json

Arms of alpaca_small's Lagrangian at the space's own point, which wins there; nothing but the
estimator differs. FOLDER is the small decoder of docs/text.md. ``missing_shares`` are what each
layer misses of the reduction asked of it on held-out instructions; up to the space's tolerance of
0.1 an arm is feasible. What a step costs is decoder_step's question. Arms are kept in the store, a
sweep's storage for instance, and gone on with: --seed trains one seed, for a process each.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.leads.trained import trained
from search_spaces.alpaca_small import SPACE
from search_spaces.catalog import with_values
from sweep.study.definition import Definition
from sweep.study.feasibility import judge
from sweep.study.registration import resolved
from trainables.plain import Json
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

PLAIN = "plain"
CASES: dict[str, dict[str, Json]] = {
    PLAIN: {},
    "exact": {},
    "tokens_7": {"constraint.inner_tokens": 0.07},
    "tokens_3": {"constraint.inner_tokens": 0.03},
    "layers_1": {"constraint.inner_layers": 1},
}  # by name, what differs from the space's point


def _aside(text: str) -> None:
    print(text, file=sys.stderr)


def main() -> None:
    """Train what the store lacks, and print one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--steps", type=int, help="of every arm; default: the space's")
    parser.add_argument("--seed", type=int, action="append", help="default: 0 and 1")
    options = parser.parse_args()
    values: dict[str, Json] = {
        "data.folder": str(options.data),
        "model.checkpoint": str(options.checkpoint),
    }
    if options.steps is not None:
        values |= {"steps": options.steps, "report_every": options.steps}
    space = resolved(Definition("estimated", with_values(SPACE, values)), say=_aside).space
    setting = space.settings[0]
    runs = ArmStore(ObjectStore(options.store))
    rows: list[dict[str, Json]] = []
    for seed in options.seed or (0, 1):
        at_point = space.run(setting, space.default_point(setting), seed=seed)
        constraint = at_point.constraint
        assert constraint is not None
        for case, fields in CASES.items():
            config = at_point.unconstrained() if case == PLAIN else at_point.with_fields(fields)
            record = trained(config, runs)
            judgement = judge([record], constraint, space.tolerance)
            if record.evaluation is None or judgement is None:
                rows.append({"seed": seed, "case": case, "failed": record.reason})
                continue
            rows.append({
                "seed": seed,
                "case": case,
                "missing_shares": [round(share, 3) for share in judgement.held_out],
                "feasible": judgement.feasible,
                "objective": round(record.evaluation.objective, 4),
                "signature": record.signature,
            })  # fmt: skip
    print(json.dumps({"benchmark": "estimated_feasibility", "arms": rows}, indent=1))


if __name__ == "__main__":
    main()
