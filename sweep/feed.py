"""What tracking is told of a sweep: each stored record with what only the sweep knows of it.

A function of the store, so that `sweep sync` sends what a running driver would have sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from sweep.definition import Definition
from sweep.pairs import Pair, join
from sweep.plan import Arm
from sweep.selection import ProposalResult
from sweep.tracking_rows import TrackedArm
from sweep.views import SweepView
from trainables.object_store import ObjectStore
from trainables.results import (
    FEASIBLE,
    HELD_OUT_LOSS,
    OBJECTIVE,
    OOD_MEAN,
    USEFUL,
    WORST_MISSING_SHARE,
    WORST_MISSING_SHARE_RELAXED,
    WORST_MISSING_SHARE_TRAIN,
    ArmRecord,
)
from trainables.run_store import RunStore

if TYPE_CHECKING:
    from sweep.coordinator import OnProposal, OnRecord

# A pair's differences, constrained minus unconstrained, are metrics of the constrained arm.
_DIFFERENCES = {"objective": OBJECTIVE, "ood_mean": OOD_MEAN, "held_out_loss": HELD_OUT_LOSS}


def tracked_arm(store: RunStore, sweep: str, arm: Arm, record: ArmRecord) -> TrackedArm:
    """The arm as tracking is to show it now; joined to its twin where both are final."""
    constraint = record.config.constraint
    if constraint is None:
        outcome = record.status
        return TrackedArm(
            record=record, sweep=sweep, setting=arm.setting, proposal=arm.proposal, outcome=outcome
        )
    twin = record.config.unconstrained().signature()
    if record.is_final:
        return of_pair(sweep, arm.setting, arm.proposal, join(record, store.record(twin)))
    return TrackedArm(
        record=record,
        sweep=sweep,
        setting=arm.setting,
        proposal=arm.proposal,
        unconstrained_signature=twin,
    )


def of_pair(sweep: str, setting: str, proposal: int | None, pair: Pair) -> TrackedArm:
    """A final constrained arm with its pair's numbers, as far as they are known."""
    return TrackedArm(
        record=pair.constrained,
        sweep=sweep,
        setting=setting,
        proposal=proposal,
        outcome=pair.outcome,
        pair=pair_metrics(pair),
        unconstrained_signature=pair.constrained.config.unconstrained().signature(),
    )


def pair_metrics(pair: Pair) -> dict[str, float]:
    """Feasibility, usefulness and differences, by metric name; empty until both arms are final."""
    judged = pair.judgement
    if judged is None or pair.unconstrained is None:
        return {}
    metrics = {
        WORST_MISSING_SHARE: judged.worst,
        WORST_MISSING_SHARE_TRAIN: float(np.max(judged.training)),
        FEASIBLE: float(judged.feasible),
        USEFUL: float(judged.useful),
    }
    if judged.relaxed is not None:
        metrics[WORST_MISSING_SHARE_RELAXED] = float(np.max(judged.relaxed))
    differences = pair.differences
    if differences:
        metrics |= {f"{metric}_difference": differences[k] for k, metric in _DIFFERENCES.items()}
    return metrics


def tracked_arms(objects: ObjectStore, view: SweepView) -> Iterator[TrackedArm]:
    """Every arm of the sweep that has a record."""
    store = RunStore(objects)
    for place in view.arms.values():
        if place.record is not None:
            arm = Arm(place.record.config, place.signature, place.setting, place.proposal)
            yield tracked_arm(store, view.definition.name, arm, place.record)


def listeners(
    objects: ObjectStore, definition: Definition, offer: Callable[[TrackedArm], None]
) -> tuple[OnRecord, OnProposal]:
    """What a driver is given so that ``offer`` hears of every arm, and of every whole pair."""
    store = RunStore(objects)

    def on_record(arm: Arm, record: ArmRecord) -> None:
        offer(tracked_arm(store, definition.name, arm, record))

    def on_proposal(setting: str, result: ProposalResult) -> None:
        for pair in result.pairs:
            offer(of_pair(definition.name, setting, result.number, pair))

    return on_record, on_proposal
