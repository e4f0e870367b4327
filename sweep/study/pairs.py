"""Pairs: joins of a constrained arm and its baseline. Pure.

The join is by config, never by position: an arm that is not the other's baseline is refused. The
baseline is the setting's unconstrained run; a listed point may differ from it in what it sets. Both
arms are judged under the constraint of the pair. A proposal comes to one pair for each search seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from sweep.study.feasibility import Judgement, judge
from trainables.config.arm import ConstraintConfig
from trainables.config.constraint import TOLERANCE
from trainables.errors import InvalidValue
from trainables.objective import objective_of
from trainables.plain import Json
from trainables.primal_dual.constraints import demanded_descent
from trainables.records.arm_record import ArmRecord, Outcome, Status
from trainables.records.evaluation import Evaluation

# An unconstrained arm that ended so counts as the best constant prediction: that training came to
# nothing is a result. One that failed (no memory, no disk) says nothing, and is trained again.
COUNTED: tuple[Status, ...] = ("diverged", "stopped")
ReadRecord = Callable[[str], ArmRecord | None]  # by signature; None: the arm never reported
# What keeps a feasible proposal from winning; those that are least far from winning come first.
Hindrance = Literal[
    "",
    "no unconstrained arm",
    "asks for too little",
    "not binding",
    "beats no trivial predictor",
    "not feasible",
]
ROUNDING = 1e-9  # by which a demand may miss the least one


@dataclass(frozen=True)
class PairGains:
    """How much better a constrained arm is than its baseline, by measure; above 0 it is better.

    Each is in its measure's own unit. Gains of a search's winners are selection-biased
    (docs/decisions/0008).
    """

    objective: float
    mean_over_gammas: float
    ood_auc: float
    held_out_loss: float
    at_gamma: dict[str, float]  # in the metric, by test gamma


@dataclass(frozen=True)
class Pair:
    """A constrained arm and its baseline."""

    constrained: ArmRecord
    unconstrained: ArmRecord | None  # None while it is not finished
    judgement: Judgement | None  # of the constrained arm; None unless it finished
    unconstrained_judgement: Judgement | None  # of its baseline, under the same constraint
    outcome: Outcome
    tolerance: float = TOLERANCE  # the missing share that is still feasible

    @property
    def arms(self) -> list[ArmRecord]:
        """Its arms that have a record, the constrained one first."""
        return [arm for arm in (self.constrained, self.unconstrained) if arm is not None]

    @property
    def is_not_binding(self) -> bool:
        """The unconstrained arm meets the constraint by itself, so the pair tests nothing.

        False with a control, which tests something else.
        """
        constraint, judgement = self.constrained.config.constraint, self.unconstrained_judgement
        assert constraint is not None
        return judgement is not None and judgement.feasible and not constraint.is_control

    @cached_property
    def compared(self) -> ArmRecord | None:
        """The unconstrained arm as it is compared; None where there is nothing to compare with.

        One that diverged or was stopped carries the evaluation of the best constant prediction.
        """
        plain, measured = self.unconstrained, self.constrained.evaluation
        if plain is None or plain.status not in COUNTED or measured is None:
            return plain if plain is not None and plain.evaluation is not None else None
        return replace(plain, evaluation=_constant_prediction(self.constrained, measured))

    @property
    def gains(self) -> PairGains | None:
        """Gains over plain training; None until both arms can be compared."""
        ours = self.constrained.evaluation
        plain = None if self.compared is None else self.compared.evaluation
        if ours is None or plain is None:
            return None
        gain = self.constrained.config.facts.metric.gain
        return PairGains(
            objective=plain.objective - ours.objective,
            mean_over_gammas=gain(ours.mean_over_gammas, plain.mean_over_gammas),
            ood_auc=gain(ours.ood_auc, plain.ood_auc),
            held_out_loss=plain.held_out_losses()[-1] - ours.held_out_losses()[-1],
            at_gamma={g: gain(score, plain.scores[g]) for g, score in ours.scores.items()},
        )


@dataclass(frozen=True)
class ProposalResult:
    """One proposal over its search seeds; ``pairs`` are in the order of the seeds."""

    number: int
    point: dict[str, Json]
    pairs: tuple[Pair, ...]
    least_descent: float = 0.0  # what the setting demands of a winner, over all layers

    @cached_property
    def judgement(self) -> Judgement | None:
        """Judgement of the mean losses over the seeds; None unless every seed finished."""
        return judge([p.constrained for p in self.pairs], self.constraint, self.tolerance)

    @cached_property
    def unconstrained_judgement(self) -> Judgement | None:
        """Judgement of the baselines' mean losses, likewise, under the same constraint."""
        return judge(self._baselines, self.constraint, self.tolerance)

    @property
    def _baselines(self) -> list[ArmRecord]:
        """The unconstrained arms, in the order of the seeds; empty until every one is there."""
        arms = [p.unconstrained for p in self.pairs if p.unconstrained is not None]
        return arms if len(arms) == len(self.pairs) else []

    @property
    def constraint(self) -> ConstraintConfig:
        """The constraint of its arms, on every seed the same."""
        constraint = self.pairs[0].constrained.config.constraint
        assert constraint is not None  # of a constrained arm
        return constraint

    @property
    def tolerance(self) -> float:
        """The missing share that is still feasible."""
        return self.pairs[0].tolerance

    @property
    def demanded_descent(self) -> float:
        """The fraction of f0 that all layers together are asked to remove."""
        return demanded_descent(self.constraint, self.pairs[0].constrained.config.model.layers)

    @property
    def outcome(self) -> Outcome:
        """The worst way in which a seed ended; of finished ones whether their mean is feasible."""
        worst_first: tuple[Outcome, ...] = ("failed", "diverged", "stopped")
        ended = (o for o in worst_first if any(p.outcome == o for p in self.pairs))
        is_feasible = self.judgement is not None and self.judgement.feasible
        return next(ended, "feasible" if is_feasible else "infeasible")

    @property
    def objective(self) -> float:
        """Mean objective over the seeds, lower is better; NaN unless every seed finished."""
        measured = [p.constrained.evaluation for p in self.pairs]
        return math.fsum(m.objective if m else math.nan for m in measured) / len(measured)

    @property
    def worst_missing_share(self) -> float:
        """The worst layer's missing share of the mean losses; NaN unless every seed finished."""
        return math.nan if self.judgement is None else self.judgement.worst

    @property
    def gain(self) -> float:
        """Gain of the constrained arms in the metric, mean over the test gammas and the seeds.

        NaN unless both arms finished on every seed: the constant prediction that stands for an
        unconstrained arm that diverged counts only where there is room to say so.
        """
        plain = [pair.unconstrained for pair in self.pairs]
        if any(arm is None or arm.status != "finished" for arm in plain):
            return math.nan
        gains = [pair.gains for pair in self.pairs]
        return math.fsum(g.mean_over_gammas if g else math.nan for g in gains) / len(gains)

    @property
    def observed_objective(self) -> float:
        """Mean objective over the seeds that finished; NaN when none did."""
        measured = [p.constrained.evaluation for p in self.pairs]
        values = [evaluation.objective for evaluation in measured if evaluation]
        return math.fsum(values) / len(values) if values else math.nan

    @property
    def observed_missing_share(self) -> float:
        """``worst_missing_share``; without it the worst of the seeds that measured one.

        A stopped seed measured it in its last report: one noise draw, and before its end. A control
        that finished misses nothing: a search over controls follows the objective alone.
        """
        if self.constraint.is_control and self.judgement is not None:
            return 0.0
        if not math.isnan(self.worst_missing_share):
            return self.worst_missing_share
        shares = [
            p.judgement.worst if p.judgement else p.constrained.reported_missing_share
            for p in self.pairs
            if p.outcome != "diverged"
        ]
        return max((share for share in shares if not math.isnan(share)), default=math.nan)

    @property
    def beats_trivial(self) -> bool:
        """The constrained arms, on average, beat the trivial predictors."""
        return self.judgement is not None and self.judgement.beats_trivial

    @cached_property
    def not_binding(self) -> bool:
        """The unconstrained arms meet the constraint by themselves, in the mean. No control is.

        Only arms with a result count: divergence says nothing of what plain training meets.
        """
        ended = [arm for arm in self._baselines if arm.status == "finished" and arm.evaluation]
        judgement = self.unconstrained_judgement or judge(ended, self.constraint, self.tolerance)
        return judgement is not None and judgement.feasible and not self.constraint.is_control

    @property
    def hindrance(self) -> Hindrance:
        """The most basic thing that keeps it from winning; empty where it can win.

        A control (``ConstraintConfig.weights_by``) need not be feasible, nor demand any descent.
        """
        is_control = self.constraint.is_control
        fits = self.outcome == "feasible" or (is_control and self.outcome == "infeasible")
        if not fits or not math.isfinite(self.objective):
            return "not feasible"
        if not self.beats_trivial:
            return "beats no trivial predictor"
        if self.not_binding:
            return "not binding"
        if self.demanded_descent < self.least_descent - ROUNDING and not is_control:
            return "asks for too little"
        if any(p.compared is None for p in self.pairs):
            return "no unconstrained arm"
        return ""

    @property
    def can_win(self) -> bool:
        """True when it may be a winner at all."""
        return not self.hindrance

    @property
    def reason(self) -> str:
        """The first reason that an arm gives for its end; empty when they finished."""
        return next((p.constrained.reason for p in self.pairs if p.constrained.reason), "")

    @property
    def certificate(self) -> str:
        """The verdict of the confidence bounds; empty where nothing was judged."""
        return "" if self.judgement is None else self.judgement.certificate.verdict


def join(
    constrained: ArmRecord,
    unconstrained: ArmRecord | None,
    tolerance: float = TOLERANCE,
    sets: Iterable[str] = (),
) -> Pair:
    """Join two arms into a pair; InvalidValue unless they differ in the constraint alone.

    They may differ as well in what the proposal itself ``sets``. The constrained one is final; a
    baseline that is not counts as none.
    """
    constraint = constrained.config.constraint
    if constraint is None:
        raise InvalidValue(
            f"arm {constrained.signature} has no constraint: "
            "it cannot be the constrained arm of a pair."
        )
    if unconstrained is not None and not _is_baseline(constrained, unconstrained, sets):
        raise InvalidValue(
            f"arm {unconstrained.signature} is not the baseline of {constrained.signature}: "
            "they differ in more than the constraint."
        )
    judgement = judge([constrained], constraint, tolerance)
    if constrained.status == "running":
        raise InvalidValue(
            f"arm {constrained.signature} is still running: a pair is joined from final records."
        )
    if judgement is None:
        outcome: Outcome = "failed" if constrained.status == "finished" else constrained.status
    else:
        outcome = "feasible" if judgement.feasible else "infeasible"
    final = unconstrained if unconstrained is not None and unconstrained.is_final else None
    baseline = None if final is None else judge([final], constraint, tolerance)
    return Pair(constrained, final, judgement, baseline, outcome, tolerance)


def pairs_of(
    arms: Iterable[tuple[str, str]], read: ReadRecord, tolerance: float, sets: Iterable[str]
) -> Iterator[Pair | None]:
    """Join constrained arms, each with its baseline's signature; None until an arm is final.

    ``sets`` are the fields that the proposal itself sets.
    """
    for constrained, baseline in arms:
        record = read(constrained)
        is_final = record is not None and record.is_final
        yield join(record, read(baseline), tolerance, sets) if record and is_final else None


def judge_proposal(
    number: int,
    point: dict[str, Json],
    arms: Sequence[tuple[str, str]],
    read: ReadRecord,
    tolerance: float,
    least_descent: float,
) -> ProposalResult | None:
    """Judge a proposal over its search seeds; None until its constrained arms are all final."""
    pairs = tuple(pair for pair in pairs_of(arms, read, tolerance, point) if pair is not None)
    return ProposalResult(number, point, pairs, least_descent) if len(pairs) == len(arms) else None


def _is_baseline(constrained: ArmRecord, unconstrained: ArmRecord, sets: Iterable[str]) -> bool:
    plain = unconstrained.config
    primal = [name for name in sets if not name.startswith("constraint.")]
    expected = constrained.config.unconstrained()
    if primal:
        expected = expected.with_fields({name: plain.value_of(name) for name in primal})
    return unconstrained.signature == expected.signature()


def _constant_prediction(record: ArmRecord, measured: Evaluation) -> Evaluation:
    """Evaluation of the best constant prediction on the data that ``record`` was measured on.

    It holds scores, objective and held-out loss, and nothing by layer.
    """
    scores = dict(measured.constant_scores)
    gammas = sorted(scores, key=float)
    facts = record.config.facts
    return replace(
        measured,
        dev_units=["constant prediction"],
        dev_losses=[[measured.reference_losses["constant"]]],
        train_units=[],
        train_losses=[],
        scores=scores,
        layer_losses_by_gamma={},
        ood_auc=float(np.trapezoid([scores[g] for g in gammas], list(map(float, gammas)))),
        objective=objective_of(
            facts.metric, scores, measured.references, measured.objective_gammas
        ),
        descent_ratio_quantiles=[],
        descent_fraction=[],
        multipliers=[],
        shift_scores=measured.shift_references.get("constant", {}),
        shift_layer_losses={},
        layer_scores_by_gamma={},
        probe_losses=[],
        probe_train_losses=[],
        probe_scores=[],
    )
