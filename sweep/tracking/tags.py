"""MLflow tags of one stored arm record, and of a sweep. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields

from sweep.study.selection import outcome_text
from sweep.tracking.marks import COLOUR, colour
from sweep.tracking.notes import run_note
from sweep.tracking.rows import (
    PairTags,
    TrackedArm,
    cut,
    final_values,
    flattened,
    last_step,
    report_metrics,
)
from trainables.records.arm_record import Outcome, Status

# Characters; MLflow cuts at 8000 in silence, and a cut tag would be sent again and again.
LONGEST_TAG = 5000
NOTE = "mlflow.note.content"
NAMED_NON_FINITE = 5  # how many values the tag `non_finite` spells out
# What is sent of an arm. A run that holds something else, of an earlier version, is made anew.
LAYOUT, LAYOUT_VERSION = "layout", "4"

# Tags that an arm may have at one time and not at another, beside those of its environment.
_MAY_GO = (
    "proposal",
    "reason",
    "unconstrained_signature",
    "non_finite",
    *(tag.name for tag in fields(PairTags)),
)

RUN_STATUS: Mapping[Status, str] = {
    "running": "RUNNING",
    "finished": "FINISHED",
    "diverged": "FAILED",
    "failed": "FAILED",
    "stopped": "KILLED",
}


def first_tags(arm: TrackedArm) -> dict[str, str]:
    """Tags that an arm's run is created with: its keys, and a colour that may change later."""
    return {
        "kind": "arm",
        "sweep": arm.sweep,
        "signature": arm.signature,
        LAYOUT: LAYOUT_VERSION,
        COLOUR: colour(arm.place, arm.proposal),
    }


def tags_of(arm: TrackedArm) -> dict[str, str]:
    """The arm's tags; only strings, nothing empty."""
    record = arm.record
    tags = {
        "kind": "arm",
        "sweep": arm.sweep,
        "setting": arm.setting,
        "proposal": "" if arm.proposal is None else str(arm.proposal),
        "seed": str(record.config.seed),
        "arm": record.config.arm,
        "phase": arm.phase,
        "signature": arm.signature,
        "outcome": arm.outcome,
        "status": record.status,
        "reason": record.reason,
        "unconstrained_signature": arm.unconstrained_signature or "",
        "matched_capacity": "" if record.config.matched_capacity else "no",
        **arm.verdict.to_json(),
        "non_finite": _non_finite(arm),
        NOTE: run_note(arm),
    }
    where = flattened(record.environment, "environment.")
    tags |= {name: value for name, value in where.items() if value != "null"}
    return {name: cut(value, LONGEST_TAG) for name, value in tags.items() if value}


def stale_tags(there: Mapping[str, str], tags: Mapping[str, str]) -> list[str]:
    """Names of a run's tags that ``tags_of`` once gave it and gives it no longer.

    >>> stale_tags({"reason": "nan", "synced_step": "3", "kind": "arm"}, {"kind": "arm"})
    ['reason']
    """
    ours = (name for name in there if name in _MAY_GO or name.startswith("environment."))
    return [name for name in ours if name not in tags]


def summary_tags(sweep: str, outcomes: Mapping[str, Mapping[Outcome, int]]) -> dict[str, str]:
    """Tags of a sweep's own run: how many arms ended how, by setting and in all."""
    total: Counter[Outcome] = Counter()
    for counts in outcomes.values():
        total.update(counts)
    lines = {setting: outcome_text(counts) for setting, counts in outcomes.items()}
    note = "\n".join(f"* {setting}: {line}" for setting, line in lines.items())
    tags = {"kind": "sweep", "sweep": sweep, "outcomes": outcome_text(total)}
    tags |= {f"outcomes.{setting}": line for setting, line in lines.items()}
    return tags | {NOTE: cut(f"Outcomes by setting\n\n{note}", LONGEST_TAG)}


def _non_finite(arm: TrackedArm) -> str:
    """The first values that are no numbers, by metric and step: '' when all are."""
    record = arm.record
    values = [(n, v, r.step) for r in record.reports for n, v in report_metrics(r).items()]
    if record.is_final:
        final = final_values(arm).items()
        values += [(name, value, last_step(record)) for name, value in final]
    texts = [f"{n} is {v} at step {s}" for n, v, s in values if not math.isfinite(v)]
    more = len(texts) - NAMED_NON_FINITE
    return "; ".join(texts[:NAMED_NON_FINITE] + ([f"and {more} more"] if more > 0 else []))
