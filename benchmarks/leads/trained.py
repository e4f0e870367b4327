"""Training of a lead's arms, each once: records come from a store, or go there."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.leads.declared import Lead
from benchmarks.leads.measured import MEASURES
from benchmarks.leads.own_loops import trained_by
from sweep.study.feasibility import judge
from trainables.arm_run import ArmRun
from trainables.config.arm import ArmConfig
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def trained(config: ArmConfig, runs: ArmStore) -> ArmRecord:
    """The final record of an arm that the product trains."""
    run = ArmRun(config, runs)
    while not run.record.is_final:
        run.advance()
    return run.record


def store_of(root: Path, loop: str) -> ArmStore:
    """Where arms of a training loop lie: those of other loops have the same signatures."""
    return ArmStore(ObjectStore(root / loop if loop else root))


def arm_of(lead: Lead, name: str, seed: int, root: Path, split: str = "test") -> Json:
    """What is kept of one arm in the results: trained and measured where the store lacks it."""
    fields = {**lead.pilot, **lead.arms}[name]
    loop = lead.loop_of(name)
    config, runs = lead.config(fields, seed, split), store_of(root, loop)
    record = trained_by(loop, config, runs) if loop else trained(config, runs)
    found: dict[str, Json] = {"signature": record.signature, "status": record.status}
    constraint = config.constraint
    if record.evaluation is None or constraint is None:
        return {**found, "reason": record.reason}
    measure = "record" if split == "dev" else lead.measure
    judgement = judge([record], constraint)
    return {
        **found,
        "points": MEASURES[measure](name, record, runs),
        "scores": record.evaluation.scores,
        "losses": record.evaluation.held_out_losses(),
        "missing_shares": None if judgement is None else list(judgement.held_out),
        "feasible": judgement is not None and judgement.feasible,
        "training_seconds": round(record.reports[-1].scalars["train/seconds"], 1),
    }


def say(seed: int, name: str, found: Json) -> None:
    """One line on standard error."""
    shown = {k: v for k, v in found.items() if k not in ("scores", "losses", "signature")}
    print(f"seed {seed} {name}: {shown}", file=sys.stderr, flush=True)
