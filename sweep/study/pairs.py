"""Pairs: joins of a constrained arm and its baseline. Pure.

The join is by config, never by position: an arm that is not the other's baseline is refused. Both
arms are judged under the constraint of the pair.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sweep.study.feasibility import Judgement, judge
from trainables.config.constraint import TOLERANCE
from trainables.errors import InvalidValue
from trainables.objective import objective_of
from trainables.records.arm_record import ArmRecord, Evaluation, Outcome, Status

# An unconstrained arm that ended so counts as the best constant prediction: that training came to
# nothing is a result. One that failed (no memory, no disk) says nothing, and is trained again.
COUNTED: tuple[Status, ...] = ("diverged", "stopped")


@dataclass(frozen=True)
class Pair:
    """A constrained arm and its baseline. ``differences`` are constrained minus unconstrained."""

    constrained: ArmRecord
    unconstrained: ArmRecord | None  # None while it is not finished
    judgement: Judgement | None  # of the constrained arm; None unless it finished
    unconstrained_judgement: Judgement | None  # of its baseline, under the same constraint
    outcome: Outcome
    tolerance: float = TOLERANCE  # the missing share that is still feasible

    @property
    def is_vacuous(self) -> bool:
        """The unconstrained arm meets the constraint by itself, so the pair tests nothing."""
        return self.unconstrained_judgement is not None and self.unconstrained_judgement.feasible

    @cached_property
    def compared(self) -> ArmRecord | None:
        """The unconstrained arm as it is compared; None where there is nothing to compare with.

        One that diverged or was stopped carries what the best constant prediction would come to.
        """
        theirs, ours = self.unconstrained, self.constrained.evaluation
        if theirs is None or theirs.status not in COUNTED or ours is None:
            return theirs if theirs is not None and theirs.evaluation is not None else None
        return replace(theirs, evaluation=constant_prediction(self.constrained, ours))

    @property
    def differences(self) -> dict[str, float]:
        """Constrained minus unconstrained, by measure; empty until both arms can be compared.

        Those of a search's winners are selection-biased (decision: search on few seeds).
        """
        ours = self.constrained.evaluation
        theirs = None if self.compared is None else self.compared.evaluation
        if ours is None or theirs is None:
            return {}
        difference = {
            "objective": ours.objective - theirs.objective,
            "ood_mean": ours.ood_mean - theirs.ood_mean,
            "ood_auc": ours.ood_auc - theirs.ood_auc,
            "held_out_loss": ours.held_out_losses()[-1] - theirs.held_out_losses()[-1],
        }
        difference |= {f"at_gamma_{g}": ours.scores[g] - theirs.scores[g] for g in ours.scores}
        return difference


def join(
    constrained: ArmRecord, unconstrained: ArmRecord | None, tolerance: float = TOLERANCE
) -> Pair:
    """Join two arms into a pair; InvalidValue unless they differ in the constraint alone."""
    constraint = constrained.config.constraint
    if constraint is None:
        raise InvalidValue(
            f"arm {constrained.signature} has no constraint: "
            "it cannot be the constrained arm of a pair."
        )
    if (
        unconstrained is not None
        and unconstrained.signature != constrained.config.unconstrained().signature()
    ):
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
    beside = None if final is None else judge([final], constraint, tolerance)
    return Pair(constrained, final, judgement, beside, outcome, tolerance)


def constant_prediction(record: ArmRecord, measured: Evaluation) -> Evaluation:
    """What the best constant prediction comes to on the data that ``record`` was measured on.

    Scores, objective and held-out loss; nothing by layer, since it has none.
    """
    scores = dict(measured.references["constant"])
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
        descent_share=[],
        multipliers=[],
        shift_scores=measured.shift_references.get("constant", {}),
        shift_layer_losses={},
        layer_scores_by_gamma={},
        probe_losses=[],
        probe_train_losses=[],
        probe_scores=[],
    )
