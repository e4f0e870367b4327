"""Stored records joined with their sweep's context (setting, proposal, pair).

That is all that tracking is told of a sweep. A function of the store, so that `sweep sync` sends
what a running driver would have sent. A driver says which arms changed; their records are read when
they are sent, so that none waits in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from search_spaces.effects.edges import edges_of
from sweep.study.arms import Arm, RecordReader, stored_arms
from sweep.study.definition import Definition
from sweep.study.pairs import COUNTED, Pair, ProposalResult, pairs_of
from sweep.tracking.marks import setting_labels
from sweep.tracking.rows import OBJECTIVE_GAIN, Curve, PairTags, TrackedArm
from trainables.config.test_conditions import seen_and_unseen
from trainables.primal_dual.certificate import counted
from trainables.primal_dual.constraints import demanded_descent
from trainables.records.arm_record import (
    BEATS_TRIVIAL,
    DEMANDED_DESCENT,
    FEASIBLE,
    HELD_OUT_LOSS,
    MEAN_OVER_GAMMAS,
    MISSING_SHARE_CURVE,
    PLAIN_MISSING_SHARE_CURVE,
    UNITS_MET,
    UNKNOWN_CODE,
    UNSEEN_MEAN,
    WORST_MISSING_SHARE,
    WORST_MISSING_SHARE_RELAXED,
    WORST_MISSING_SHARE_TRAIN,
    WORST_MISSING_SHARE_UPPER,
    ArmRecord,
)
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

if TYPE_CHECKING:
    from sweep.study.arms import OnRecord
    from sweep.study.selection import OnProposal


class StoredArms:
    """Reads arms of one sweep as tracking is to show them now."""

    def __init__(self, objects: ObjectStore, definition: Definition) -> None:
        self._read = RecordReader(ArmStore(objects))
        self._sweep, self._space = definition.name, definition.space
        settings = [setting.name for setting in self._space.settings]
        self._labels, self._settings = setting_labels(settings), settings

    def __call__(self, arm: Arm) -> TrackedArm | None:
        """The arm, joined to its baseline where both are final; None when it has no record."""
        record = self._read(arm.signature)
        if record is None:
            return None
        baseline, pair, searched = None, None, {}
        setting = self._space.setting(arm.setting)
        if arm.proposal is not None:
            sets = self._space.sets(setting, arm.proposal)
            names = dict.fromkeys([*self._space.ranges, *sets])
            searched = {name: arm.config.value_of(name) for name in names}
            unconstrained = self._space.run(setting, {}, seed=arm.config.seed).unconstrained()
            baseline = unconstrained.signature()

            def read(signature: str) -> ArmRecord | None:
                return record if signature == arm.signature else self._read(signature)

            both = [(arm.signature, baseline)]
            (pair,) = pairs_of(both, read, self._space.tolerance, sets)
        gains = None if pair is None else pair.gains
        return TrackedArm(
            record=record,
            sweep=self._sweep,
            setting=arm.setting,
            proposal=arm.proposal,
            label=self._labels[arm.setting],
            place=self._settings.index(arm.setting),
            searched=searched,
            outcome=record.status if pair is None else pair.outcome,
            pair={} if pair is None else pair_metrics(pair),
            curves={} if pair is None else pair_curves(pair),
            gains={} if gains is None else gains.at_gamma,
            verdict=PairTags() if pair is None else self._verdict(arm, pair),
            unconstrained_signature=baseline,
            phase=self._space.phase,
        )

    def _verdict(self, arm: Arm, pair: Pair) -> PairTags:
        setting, plain = self._space.setting(arm.setting), pair.unconstrained
        point = {name: arm.config.value_of(name) for name in self._space.ranges}
        certificate = None if pair.judgement is None else pair.judgement.certificate
        counts = certificate and (certificate.units, certificate.cluster, certificate.held_out)
        codes = {one.code or UNKNOWN_CODE for one in (pair.constrained, plain) if one is not None}
        are_several = len(codes) > 1 or ", then " in "".join(codes)
        return PairTags(
            certificate=certificate.verdict if certificate else "",
            certificate_counts=counted(*counts) if counts else "",
            codes=" and by ".join(sorted(codes)) if are_several else "",
            edges="; ".join(edges_of(self._space, setting, point)),
            not_binding="yes" if pair.is_not_binding else "",
            unconstrained_ended=plain.status if plain and plain.status in COUNTED else "",
        )


def pair_metrics(pair: Pair) -> dict[str, float]:
    """Verdict and gains, by metric name; empty until both arms are final."""
    judged = pair.judgement
    if judged is None or pair.unconstrained is None:
        return {}
    metrics = {
        WORST_MISSING_SHARE: judged.worst,
        WORST_MISSING_SHARE_TRAIN: float(np.max(judged.training)),
        FEASIBLE: float(judged.feasible),
        BEATS_TRIVIAL: float(judged.beats_trivial),
        UNITS_MET: judged.certificate.least_met,
    }
    if judged.certificate.units > 1:  # of one clip nothing bounds another one
        metrics[WORST_MISSING_SHARE_UPPER] = float(np.max(judged.certificate.upper))
    config = pair.constrained.config
    if config.constraint is not None:
        metrics[DEMANDED_DESCENT] = demanded_descent(config.constraint, config.model.layers)
    if judged.relaxed is not None:
        metrics[WORST_MISSING_SHARE_RELAXED] = float(np.max(judged.relaxed))
    if (gains := pair.gains) is not None:
        metrics |= {
            OBJECTIVE_GAIN: gains.objective,
            f"{MEAN_OVER_GAMMAS}_gain": gains.mean_over_gammas,
            f"{HELD_OUT_LOSS}_gain": gains.held_out_loss,
        }
        _, unseen = seen_and_unseen(config, gains.at_gamma)
        if unseen is not None:
            metrics[f"{UNSEEN_MEAN}_gain"] = unseen
    return metrics


def pair_curves(pair: Pair) -> dict[str, Curve]:
    """Missing fractions of both arms under the pair's constraint, by metric name and layer."""
    if not pair_metrics(pair):
        return {}
    judged = {
        MISSING_SHARE_CURVE: pair.judgement,
        PLAIN_MISSING_SHARE_CURVE: pair.unconstrained_judgement,
    }
    return {
        name: dict(enumerate(judgement.held_out, judgement.first_layer))
        for name, judgement in judged.items()
        if judgement is not None
    }


def tracked_arms(objects: ObjectStore, definition: Definition) -> Iterator[TrackedArm]:
    """Every arm of the sweep that has a record, one at a time."""
    read = StoredArms(objects, definition)
    for arm in stored_arms(objects, definition):
        tracked = read(arm)
        if tracked is not None:
            yield tracked


def listeners(offer: Callable[[Arm, bool], None]) -> tuple[OnRecord, OnProposal]:
    """Listeners for a driver by which ``offer`` gets every arm, and every complete pair."""

    def on_proposal(setting: str, result: ProposalResult) -> None:
        for pair in result.pairs:  # the baseline may have become final after the arm
            ours = pair.constrained
            offer(Arm(ours.config, ours.signature, setting, result.number), True)

    return offer, on_proposal
