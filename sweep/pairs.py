"""PURE: join the two arms of a pair, and judge both under the pair's own constraint.

A pair is a constrained arm and the unconstrained arm that differs in nothing else. The join is by
config, never by position: arms that are no twins are refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainables.config import ConstraintConfig
from trainables.errors import InvalidValue
from trainables.primal_dual import (
    TOLERANCE,
    descent_constraints,
    is_feasible,
    missing_shares,
    slack,
)
from trainables.results import ArmRecord, Evaluation, Outcome, first_layer

Shares = tuple[float, ...]


@dataclass(frozen=True)
class Judgement:
    """One finished arm under one constraint: missing shares of its layers, and the verdict."""

    held_out: Shares  # dev units at train_gamma, unrelaxed: what feasibility is judged by
    training: Shares  # training units, fresh draws, unrelaxed
    # ^ tells a generalisation gap from a failed optimisation
    relaxed: Shares | None  # dev, with the slack c lambda, or where slacks are variables with those
    # ^ of the last report; None for an arm without multipliers
    feasible: bool
    useful: bool
    why_not_useful: str  # empty when useful
    first_layer: int = 1  # the layer of the first share: 0 with ``bound_zero``

    @property
    def worst(self) -> float:
        """The worst layer's missing share on held-out data."""
        return float(np.max(self.held_out))  # NaN stays NaN

    @property
    def worst_layer(self) -> int:
        """The layer that misses most, as layers are numbered: the input is 0."""
        return self.first_layer + int(np.argmax(self.held_out))


@dataclass(frozen=True)
class Pair:
    """A constrained arm beside its twin. ``differences`` are constrained minus unconstrained."""

    constrained: ArmRecord
    unconstrained: ArmRecord | None  # None while it is not finished
    judgement: Judgement | None  # of the constrained arm; None unless it finished
    unconstrained_judgement: Judgement | None  # of its twin, under the constrained arm's constraint
    outcome: Outcome

    @property
    def is_vacuous(self) -> bool:
        """The unconstrained arm meets the constraint by itself, so the pair tests nothing."""
        return self.unconstrained_judgement is not None and self.unconstrained_judgement.feasible

    @property
    def differences(self) -> dict[str, float]:
        """Constrained minus unconstrained, by measure; empty until both arms finished.

        Those of a search's winners are selection-biased (decision 0008).
        """
        ours = self.constrained.evaluation
        theirs = None if self.unconstrained is None else self.unconstrained.evaluation
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


def join(constrained: ArmRecord, unconstrained: ArmRecord | None) -> Pair:
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
            f"arm {unconstrained.signature} is no twin of {constrained.signature}: "
            "they differ in more than the constraint."
        )
    judgement = judge(constrained, constraint)
    if constrained.status == "running":
        raise InvalidValue(
            f"arm {constrained.signature} is still running: a pair is joined from final records."
        )
    if judgement is None:
        outcome: Outcome = "failed" if constrained.status == "finished" else constrained.status
    else:
        outcome = "feasible" if judgement.feasible else "infeasible"
    final_twin = unconstrained if unconstrained is not None and unconstrained.is_final else None
    twin = None if final_twin is None else judge(final_twin, constraint)
    return Pair(constrained, final_twin, judgement, twin, outcome)


def judge(
    record: ArmRecord, constraint: ConstraintConfig, tolerance: float = TOLERANCE
) -> Judgement | None:
    """Judge an arm under ``constraint``, which may be its twin's; None unless it finished."""
    measured = record.evaluation
    if record.status != "finished" or measured is None:
        return None
    constraints = descent_constraints(constraint, record.config.model.layers, measured.scales)
    unit = measured.scales.constant_loss
    held_out_F = np.array(measured.held_out_losses()) / unit
    training_F = np.array(measured.training_losses()) / unit
    held_out_L = missing_shares(constraints, held_out_F)
    relaxed: Shares | None = None
    if measured.multipliers:
        slack_L = np.array(record.reports[-1].layers.get("slacks", ()))
        if constraint.resilience_form == "decay" or not slack_L.size:
            slack_L = slack(constraint, constraints, np.array(measured.multipliers), held_out_F)
        relaxed = tuple(missing_shares(constraints, held_out_F, slack_L).tolist())
    why = why_not_useful(record, measured)
    return Judgement(
        held_out=tuple(held_out_L.tolist()),
        training=tuple(missing_shares(constraints, training_F).tolist()),
        relaxed=relaxed,
        feasible=is_feasible(held_out_L, tolerance),
        useful=not why,
        why_not_useful=why,
        first_layer=first_layer(len(held_out_F), len(held_out_L)),
    )


def why_not_useful(record: ArmRecord, measured: Evaluation) -> str:
    """Why a finished arm is not *useful*, or an empty string when it is.

    Useful: the held-out loss at train_gamma is below that of the best constant prediction and,
    where the unchanged input is a prediction, of that (identity): there the input is its own answer
    at train_gamma 0, so nothing can be useful (docs/method.md, Feasible, useful, winner).
    """
    loss = measured.held_out_losses()[-1]
    facts = record.config.facts
    if facts.has_identity and record.config.train_gamma == 0:
        return "train_gamma is 0: the input is its own answer"
    for name in ("identity", "constant") if facts.has_identity else ("constant",):
        reference = measured.reference_losses[name]
        if not loss < reference:
            return f"held-out loss {loss:.4g} is not below the {name} prediction's {reference:.4g}"
    return ""
