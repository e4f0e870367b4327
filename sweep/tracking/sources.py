"""Stored records joined with their sweep's context (setting, proposal, pair).

That is all that tracking is told of a sweep. A function of the store, so that `sweep sync` sends
what a running driver would have sent. A driver says which arms changed; their records are read when
they are sent, so that none waits in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from sweep.study.arms import Arm, RecordReader, stored_arms
from sweep.study.definition import Definition
from sweep.study.edges import edges_of
from sweep.study.pairs import COUNTED, Pair, ProposalResult, join
from sweep.tracking.rows import OBJECTIVE_DIFFERENCE, TrackedArm
from trainables.primal_dual.constraints import demanded_descent
from trainables.records.arm_record import (
    DEMANDED_DESCENT,
    FEASIBLE,
    HELD_OUT_LOSS,
    OOD_MEAN,
    UNITS_MET,
    USEFUL,
    WORST_MISSING_SHARE,
    WORST_MISSING_SHARE_RELAXED,
    WORST_MISSING_SHARE_TRAIN,
    WORST_MISSING_SHARE_UPPER,
)
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

if TYPE_CHECKING:
    from sweep.study.arms import OnRecord
    from sweep.study.selection import OnProposal

# A pair's differences, constrained minus unconstrained, are metrics of the constrained arm.
_DIFFERENCES = {
    "objective": OBJECTIVE_DIFFERENCE,
    "ood_mean": f"{OOD_MEAN}_difference",
    "held_out_loss": f"{HELD_OUT_LOSS}_difference",
}


class StoredArms:
    """Reads arms of one sweep as tracking is to show them now."""

    def __init__(self, objects: ObjectStore, definition: Definition) -> None:
        """Nothing is read yet."""
        self._read = RecordReader(ArmStore(objects))
        self._sweep, self._space = definition.name, definition.space

    def __call__(self, arm: Arm) -> TrackedArm | None:
        """The arm, joined to its baseline where both are final; None when it has no record."""
        record = self._read(arm.signature)
        if record is None:
            return None
        baseline, pair = None, None
        if arm.proposal is not None:
            setting = self._space.setting(arm.setting)
            theirs = self._space.run(setting, {}, seed=arm.config.seed).unconstrained()
            baseline = theirs.signature()
            if record.is_final:
                sets = self._space.sets(setting, arm.proposal)
                pair = join(record, self._read(baseline), self._space.tolerance, sets)
        return TrackedArm(
            record=record,
            sweep=self._sweep,
            setting=arm.setting,
            proposal=arm.proposal,
            outcome=record.status if pair is None else pair.outcome,
            pair={} if pair is None else pair_metrics(pair),
            verdict={} if pair is None else self._verdict(arm, pair),
            unconstrained_signature=baseline,
            phase=self._space.phase,
        )

    def _verdict(self, arm: Arm, pair: Pair) -> dict[str, str]:
        """What else is to be known of a pair, as tags."""
        setting = self._space.setting(arm.setting)
        point = {name: arm.config.value_of(name) for name in self._space.ranges}
        tags = {"edges": "; ".join(edges_of(self._space, setting, point))}
        if pair.judgement is not None:
            tags["certificate"] = pair.judgement.certificate.verdict
        if pair.is_vacuous:
            tags["vacuous"] = "yes"
        if pair.unconstrained is not None and pair.unconstrained.status in COUNTED:
            tags["unconstrained_ended"] = pair.unconstrained.status
        return {name: value for name, value in tags.items() if value}


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
        WORST_MISSING_SHARE_UPPER: float(np.max(judged.certificate.upper)),
        UNITS_MET: judged.certificate.least_met,
    }
    config = pair.constrained.config
    if config.constraint is not None:
        metrics[DEMANDED_DESCENT] = demanded_descent(config.constraint, config.model.layers)
    if judged.relaxed is not None:
        metrics[WORST_MISSING_SHARE_RELAXED] = float(np.max(judged.relaxed))
    differences = pair.differences
    if differences:
        metrics |= {metric: differences[name] for name, metric in _DIFFERENCES.items()}
    return metrics


def tracked_arms(objects: ObjectStore, definition: Definition) -> Iterator[TrackedArm]:
    """Every arm of the sweep that has a record, one at a time."""
    read = StoredArms(objects, definition)
    for arm in stored_arms(objects, definition):
        tracked = read(arm)
        if tracked is not None:
            yield tracked


def listeners(offer: Callable[[Arm, bool], None]) -> tuple[OnRecord, OnProposal]:
    """What a driver is given so that ``offer`` hears of every arm, and of every whole pair."""

    def on_proposal(setting: str, result: ProposalResult) -> None:
        for pair in result.pairs:  # the baseline may have become final after the arm
            ours = pair.constrained
            offer(Arm(ours.config, ours.signature, setting, result.number), True)

    return offer, on_proposal
