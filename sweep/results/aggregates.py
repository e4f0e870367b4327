"""Aggregates over search seeds, as JSON: arms, gains, references.

Everything is the mean over the seeds: scores, and the losses that verdicts and shares are taken of.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from sweep.study.feasibility import Judgement
from sweep.study.pairs import Pair, ProposalResult
from trainables.config.test_conditions import gamma_key, seen_and_unseen
from trainables.plain import Json
from trainables.records.arm_record import (
    EVAL_SECONDS,
    TRAIN_PEAK_MEMORY_MB,
    TRAIN_SECONDS,
    ArmRecord,
)

ARMS = ("constrained", "unconstrained")
PROBES = ("probe_losses", "probe_scores")  # what each layer holds, whoever reads it
COSTS = {  # key here: scalar of a report
    "train_seconds": TRAIN_SECONDS,  # in primal and dual steps
    "eval_seconds": EVAL_SECONDS,
    "peak_memory_mb": TRAIN_PEAK_MEMORY_MB,  # of the worker's process, its libraries included
}
NO_BLOCKS: dict[str, Json] = {"seen_mean": None, "unseen_mean": None, "shifts": {}}


def arms_entry(
    arms: Sequence[ArmRecord], judgement: Judgement | None, run_ids: Mapping[str, str]
) -> dict[str, Json] | None:
    """One arm of a proposal over its search seeds; None when there is nothing to show.

    Args:
        arms: of every seed; one that ended early may carry the constant prediction's scores.
        judgement: of their mean, by the pair's constraint; None unless all finished.
        run_ids: MLflow run by signature.
    """
    if not arms:
        return None
    first = arms[0]
    done = [record.evaluation for record in arms if record.evaluation is not None]
    whole = len(done) == len(arms)
    at_training = gamma_key(first.config.train_gamma)
    finished = whole and all(record.status == "finished" for record in arms)
    return {
        "signature": first.signature,
        "config": first.config.to_json(),
        "status": [record.status for record in arms],
        "counted_as_constant": sum(r.status != "finished" for r in arms if r.evaluation),
        "reason": next((record.reason for record in arms if record.reason), None),
        "objective": fmean([m.objective for m in done]) if whole else None,
        "ood_mean": fmean([m.ood_mean for m in done]) if whole else None,
        "ood_auc": fmean([m.ood_auc for m in done]) if whole else None,
        "ood_range": list(done[0].gamma_range) if whole else None,
        "ood_step": done[0].gamma_step if whole else None,
        **(_blocks(arms) if whole else NO_BLOCKS),
        "held_out_loss": fmean([m.held_out_losses()[-1] for m in done]) if whole else None,
        **{k: None if judgement is None else of(judgement) for k, of in VERDICT.items()},
        "scores": _means([m.scores for m in done]) if whole else None,
        "layer_losses": _mean_by_layer([m.held_out_losses() for m in done]) if finished else None,
        "layer_scores": _mean_of_rows(
            [m.layer_scores_by_gamma.get(at_training, ()) for m in done], finished
        ),
        **{name: _mean_of_rows([getattr(m, name) for m in done], whole) for name in PROBES},
        "scales": vars(done[0].scales) if whole else None,
        **{name: _cost(arms, scalar) for name, scalar in COSTS.items()},
        "mlflow_run_id": run_ids.get(first.signature),
    }


# What a judgement says: verdict, missing shares by layer, and what the held-out units and the seeds
# say of them.
VERDICT: dict[str, Callable[[Judgement], Json]] = {
    "feasible": lambda j: j.feasible,
    "useful": lambda j: j.useful,
    "why_not_useful": lambda j: j.why_not_useful or None,
    "worst_missing_share": lambda j: j.worst,
    "worst_layer": lambda j: j.worst_layer,
    "first_layer": lambda j: j.first_layer,
    "missing_share": lambda j: j.held_out,
    "missing_share_training": lambda j: j.training,
    "missing_share_relaxed": lambda j: j.relaxed,
    "certificate": lambda j: j.certificate.verdict,
    "certificate_units": lambda j: j.certificate.units,
    "certificate_cluster": lambda j: j.certificate.cluster,
    "certificate_held_out": lambda j: j.certificate.held_out,
    "missing_share_upper": lambda j: j.certificate.upper,
    "missing_share_lower": lambda j: j.certificate.lower,
    "worst_missing_share_upper": lambda j: _worst(j.certificate.upper),
    "units_met": lambda j: j.certificate.met,
    "least_units_met": lambda j: j.certificate.least_met,
    "missing_share_seeds_upper": lambda j: j.seeds_upper,
    "worst_missing_share_seeds_upper": lambda j: _worst(j.seeds_upper),
}


def _cost(arms: Sequence[ArmRecord], scalar: str) -> float | None:
    """Mean over the seeds of what an arm's last report says; None where one says nothing."""
    last = [record.reports[-1].scalars.get(scalar) for record in arms if record.reports]
    found = [value for value in last if value is not None]
    return fmean(found) if len(found) == len(arms) else None


def _mean_of_rows(rows: Sequence[Sequence[float]], whole: bool) -> list[float] | None:
    """Mean by layer; None where an arm has none."""
    return _mean_by_layer(rows) if whole and all(rows) else None


def compared_entry(
    pairs: Sequence[Pair],
    judged: Pair | ProposalResult,
    run_ids: Mapping[str, str],
    *,
    selected: bool,
) -> dict[str, Json]:
    """Both arms of a pair and the gain, over its search seeds.

    Args:
        pairs: of every seed.
        judged: has the verdicts on their means.
        run_ids: MLflow run by signature.
        selected: whether the pair was chosen by its scores.
    """
    theirs = [p.compared or p.unconstrained for p in pairs if p.unconstrained]
    whole = theirs if len(theirs) == len(pairs) else []
    return {
        "constrained": arms_entry([p.constrained for p in pairs], judged.judgement, run_ids),
        "unconstrained": arms_entry(whole, judged.unconstrained_judgement, run_ids),
        "gain": gain_entry(pairs, selected=selected),
    }


def gain_entry(pairs: Sequence[Pair], *, selected: bool) -> dict[str, Json]:
    """The gain over plain training, mean over the seeds; biased where the pair was selected."""
    entry: dict[str, Json] = {"selection_biased": selected}
    gains = [pair.gains for pair in pairs]
    if gains and all(gains):
        entry |= {name: fmean([of[name] for of in gains]) for name in gains[0]}
        theirs = [p.compared for p in pairs if p.compared is not None]
        gain = pairs[0].constrained.config.facts.metric.gain
        entry |= _gain(gain, _blocks([p.constrained for p in pairs]), _blocks(theirs))
    return entry


def _blocks(records: Sequence[ArmRecord]) -> dict[str, Json]:
    """Mean metric over the seen and over the unseen gammas, and under every shift; over the seeds.

    All ``records`` are finished and differ in their seed alone. ``unseen_mean`` is None where every
    test gamma is seen. What counts as seen: ``trainables/config/test_conditions.py``.
    """
    done = [record.evaluation for record in records if record.evaluation is not None]
    means = _means([m.scores for m in done])
    shifts = {s: _means([m.shift_scores[s] for m in done]) for s in done[0].shift_scores}
    return {**seen_and_unseen(records[0].config, means), "shifts": shifts}


def _gain(gain: Callable[[float, float], float], ours: Json, theirs: Json) -> Json:
    """The gain of ``ours`` over ``theirs``, number by number."""
    if isinstance(ours, Mapping):
        return {key: _gain(gain, value, theirs[key]) for key, value in ours.items()}
    return None if ours is None or theirs is None else gain(ours, theirs)


def references_entry(records: Sequence[ArmRecord]) -> dict[str, Json]:
    """The predictors that need no training, on the same data: constant, and in video more."""
    first = next((r for r in records if r.evaluation is not None), None)
    if first is None or first.evaluation is None:
        return {}
    measured = first.evaluation
    return {
        name: {
            "ood_mean": fmean(list(scores.values())),
            "ood_auc": area(scores),
            **seen_and_unseen(first.config, scores),
            "shifts": measured.shift_references.get(name, {}),
            "held_out_loss": measured.reference_losses.get(name),
            "scores": scores,
        }
        for name, scores in measured.references.items()
    }


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


def shift_mean(values: Mapping[str, Json], shift: str) -> float | None:
    """Mean over the severities of one family in an arm's, a gain's or a reference's entry.

    None where the family was not measured, and where one of its values is missing.
    """
    scores = values.get("shifts", {}).get(shift, {}).values()
    whole = scores and None not in scores
    return fmean(list(scores)) if whole else None


def _means(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: fmean([p[key] for p in parts]) for key in parts[0]}


def _mean_by_layer(rows: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(column) for column in zip(*rows, strict=True)]


def _worst(values: Sequence[float] | None) -> float | None:
    """The largest; NaN when any is: what was not measured is never the better one."""
    if values is None:
        return None
    return math.nan if any(map(math.isnan, values)) else max(values)
