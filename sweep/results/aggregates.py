"""Aggregates over search seeds: arms, gains, references.

Everything is the mean over the seeds: scores, and the losses that verdicts and shares are taken of.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from sweep.results.summary import ArmName, ArmSummary, Gain, PairSummary, Reference
from sweep.study.feasibility import Judgement
from sweep.study.pairs import Pair, ProposalResult
from trainables.config.test_conditions import gamma_key, seen_and_unseen
from trainables.records.arm_record import (
    EVAL_SECONDS,
    TRAIN_PEAK_MEMORY_MB,
    TRAIN_SECONDS,
    ArmRecord,
)

ARMS: tuple[ArmName, ArmName] = ("constrained", "unconstrained")
COSTS = {  # key here: scalar of a report
    "train_seconds": TRAIN_SECONDS,  # in primal and dual steps
    "eval_seconds": EVAL_SECONDS,
    "peak_memory_mb": TRAIN_PEAK_MEMORY_MB,  # of the worker's process, its libraries included
}


# Mean metric over the seen and over the unseen test gammas, and under every shift.
Blocks = tuple[float | None, float | None, dict[str, dict[str, float]]]


def arm_summary(
    arms: Sequence[ArmRecord], judgement: Judgement | None, run_ids: Mapping[str, str]
) -> ArmSummary | None:
    """One arm of a proposal over its search seeds; None when there is nothing to show.

    Args:
        arms: of every seed; one that ended early may carry the constant prediction's scores.
        judgement: of their mean, by the pair's constraint; None unless all finished.
        run_ids: MLflow run by signature.
    """
    if not arms:
        return None
    first = arms[0]
    summary = ArmSummary(
        signature=first.signature,
        config=first.config.to_json(),
        status=[record.status for record in arms],
        counted_as_constant=sum(r.status != "finished" for r in arms if r.evaluation),
        reason=next((record.reason for record in arms if record.reason), None),
        train_seconds=_cost(arms, TRAIN_SECONDS),
        eval_seconds=_cost(arms, EVAL_SECONDS),
        peak_memory_mb=_cost(arms, TRAIN_PEAK_MEMORY_MB),
        mlflow_run_id=run_ids.get(first.signature),
    )
    if judgement is not None:
        certificate = judgement.certificate
        summary = replace(
            summary,
            feasible=judgement.feasible,
            beats_trivial=judgement.beats_trivial,
            why_not_better=judgement.why_not_better or None,
            worst_missing_share=judgement.worst,
            worst_layer=judgement.worst_layer,
            first_layer=judgement.first_layer,
            missing_share=judgement.held_out,
            missing_share_training=judgement.training,
            missing_share_relaxed=judgement.relaxed,
            certificate=certificate.verdict,
            certificate_units=certificate.units,
            certificate_cluster=certificate.cluster,
            certificate_held_out=certificate.held_out,
            missing_share_upper=certificate.upper,
            missing_share_lower=certificate.lower,
            worst_missing_share_upper=_worst(certificate.upper),
            units_met=certificate.met,
            least_units_met=certificate.least_met,
            missing_share_seeds_upper=judgement.seeds_upper,
            worst_missing_share_seeds_upper=_worst(judgement.seeds_upper),
        )
    done = [record.evaluation for record in arms if record.evaluation is not None]
    if len(done) < len(arms):
        return summary
    at_training = gamma_key(first.config.train_gamma)
    seen, unseen, shifts = _blocks(arms)
    summary = replace(
        summary,
        objective=fmean([m.objective for m in done]),
        mean_over_gammas=fmean([m.mean_over_gammas for m in done]),
        ood_auc=fmean([m.ood_auc for m in done]),
        ood_range=list(done[0].gamma_range),
        ood_step=done[0].gamma_step,
        seen_mean=seen,
        unseen_mean=unseen,
        shifts=shifts,
        held_out_loss=fmean([m.held_out_losses()[-1] for m in done]),
        scores=_means([m.scores for m in done]),
        probe_losses=_mean_of_rows([m.probe_losses for m in done]),
        probe_scores=_mean_of_rows([m.probe_scores for m in done]),
        scales=vars(done[0].scales),
    )
    if any(record.status != "finished" for record in arms):
        return summary
    scores = [m.layer_scores_by_gamma.get(at_training, ()) for m in done]
    return replace(
        summary,
        layer_losses=_mean_of_rows([m.held_out_losses() for m in done]),
        layer_scores=_mean_of_rows(scores),
    )


def _cost(arms: Sequence[ArmRecord], scalar: str) -> float | None:
    """Mean over the seeds of what an arm's last report says; None where one says nothing."""
    last = [record.reports[-1].scalars.get(scalar) for record in arms if record.reports]
    known = [value for value in last if value is not None]
    return fmean(known) if len(known) == len(arms) else None


def _mean_of_rows(rows: Sequence[Sequence[float]]) -> list[float] | None:
    """Mean by layer; None where an arm has none."""
    return [fmean(layer) for layer in zip(*rows, strict=True)] if all(rows) else None


def pair_summary(
    pairs: Sequence[Pair],
    judged: Pair | ProposalResult,
    run_ids: Mapping[str, str],
    *,
    selected: bool,
) -> PairSummary:
    """Both arms of a pair and the gain, over its search seeds.

    Args:
        pairs: of every seed.
        judged: has the verdicts on their means.
        run_ids: MLflow run by signature.
        selected: whether the pair was chosen by its scores.
    """
    plain = [p.compared or p.unconstrained for p in pairs if p.unconstrained]
    baselines = plain if len(plain) == len(pairs) else []
    return PairSummary(
        constrained=arm_summary([p.constrained for p in pairs], judged.judgement, run_ids),
        unconstrained=arm_summary(baselines, judged.unconstrained_judgement, run_ids),
        gain=gain_over_seeds(pairs, selected=selected),
    )


def gain_over_seeds(pairs: Sequence[Pair], *, selected: bool) -> Gain:
    """The gain over plain training, mean over the seeds; biased where the pair was selected."""
    gains = [gains for pair in pairs if (gains := pair.gains) is not None]
    if not gains or len(gains) < len(pairs):
        return Gain(selection_biased=selected)
    first = pairs[0].constrained
    gain = first.config.facts.metric.gain
    seen, unseen, shifts = _blocks([p.constrained for p in pairs])
    plain = _blocks([p.compared for p in pairs if p.compared is not None])
    plain_seen, plain_unseen, plain_shifts = plain
    return Gain(
        selection_biased=selected,
        objective=fmean(g.objective for g in gains),
        mean_over_gammas=fmean(g.mean_over_gammas for g in gains),
        ood_auc=fmean(g.ood_auc for g in gains),
        held_out_loss=fmean(g.held_out_loss for g in gains),
        at_gamma=_means([g.at_gamma for g in gains]),
        seen_mean=_gain(gain, seen, plain_seen),
        unseen_mean=_gain(gain, unseen, plain_unseen),
        shifts={
            shift: {s: gain(score, plain_shifts[shift][s]) for s, score in scores.items()}
            for shift, scores in shifts.items()
        },
    )


def _blocks(records: Sequence[ArmRecord]) -> Blocks:
    """Mean metric over the seen and over the unseen gammas, and under every shift; over the seeds.

    All ``records`` have an evaluation and differ in their seed alone. The second is None where
    every test gamma is seen. What counts as seen: ``trainables/config/test_conditions.py``.
    """
    done = [record.evaluation for record in records if record.evaluation is not None]
    seen, unseen = seen_and_unseen(records[0].config, _means([m.scores for m in done]))
    shifts = {s: _means([m.shift_scores[s] for m in done]) for s in done[0].shift_scores}
    return seen, unseen, shifts


def _gain(
    gain: Callable[[float, float], float], ours: float | None, plain: float | None
) -> float | None:
    return None if ours is None or plain is None else gain(ours, plain)


def reference_summaries(records: Sequence[ArmRecord]) -> dict[str, Reference]:
    """The predictors that need no training, on the same data: constant, and in video more."""
    first = next((r for r in records if r.evaluation is not None), None)
    if first is None or first.evaluation is None:
        return {}
    measured, summaries = first.evaluation, {}
    for name, scores in measured.references.items():
        seen, unseen = seen_and_unseen(first.config, scores)
        summaries[name] = Reference(
            mean_over_gammas=fmean(scores.values()),
            ood_auc=area(scores),
            seen_mean=seen,
            unseen_mean=unseen,
            shifts=measured.shift_references.get(name, {}),
            held_out_loss=measured.reference_losses.get(name),
            scores=scores,
        )
    return summaries


def area(scores: Mapping[str, float]) -> float:
    """``ood_auc`` of a metric by test gamma: the trapezoid area (docs/results.md, Scores).

    >>> area({"0.00": 0.0, "0.10": 4.0, "0.20": 8.0})
    0.8
    """
    points = sorted((float(gamma), score) for gamma, score in scores.items())
    return math.fsum(
        (right - left) * (low + high) / 2
        for (left, low), (right, high) in itertools.pairwise(points)
    )


def _means(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: fmean([p[key] for p in parts]) for key in parts[0]}


def _worst(values: Sequence[float] | None) -> float | None:
    """The largest; NaN when any is: what was not measured is never the better one."""
    if values is None:
        return None
    return math.nan if any(map(math.isnan, values)) else max(values)
