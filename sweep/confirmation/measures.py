"""Measures of one arm that a confirmation compares, all of its metric. Pure.

Intention to treat: an arm that diverged, was stopped or failed is not left out. It counts as the
best constant prediction does on the same data, which was planned before (``Plan.worst_score``); and
so does one that finished below it, so that to diverge is never better than to finish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from search_spaces.space import SearchSpace
from sweep.confirmation.plan import Measure
from sweep.results.aggregates import area
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import gamma_key, seen_and_unseen, unseen_gammas
from trainables.errors import Misuse
from trainables.records.arm_record import ArmRecord, Status
from trainables.records.evaluation import Evaluation

Measures = dict[Measure, float]  # the task's metric; what was not measured is not there


@dataclass(frozen=True)
class Outcome:
    """The end of one arm of a confirmation, and the measures that it counts for."""

    record: ArmRecord
    measures: Measures
    counted_as_constant: bool  # it has no result of its own

    @property
    def status(self) -> Status:
        """Status with which its training ended."""
        return self.record.status


def planned_measure(space: SearchSpace, wanted: Measure | None) -> Measure:
    """The measure that is wanted, else the mean over unseen test gammas, or over all without any.

    Raises Misuse where a setting does not have what is wanted.
    """
    runs = [space.run(setting, {}, seed=0) for setting in space.settings]
    having: dict[Measure, list[bool]] = {
        "unseen_mean": [bool(unseen_gammas(run)) for run in runs],
        "shift_mean": [bool(run.shifts) for run in runs],
    }
    if wanted is None:
        return "unseen_mean" if all(having["unseen_mean"]) else "mean_over_gammas"
    if not all(has := having.get(wanted, [])):
        needs = {"unseen_mean": "larger test_gammas", "shift_mean": "shifts"}[wanted]
        field = needs.split()[-1]
        choose = (
            "settings by --only" if any(has) else f"run the sweep anew with --set {field}=[...]"
        )
        raise Misuse(
            f"--measure {wanted} needs {needs} in every setting of {space.name}. Choose another "
            f"measure, or {choose}."
        )
    return wanted


def measures_of(config: ArmConfig, evaluation: Evaluation) -> Measures:
    """The metric's means over blocks of test conditions, and over layers."""
    by_layer = evaluation.layer_scores(gamma_key(config.train_gamma))[1:]
    return _measures(config, evaluation.scores, evaluation.shift_scores, by_layer)


def constant_of(config: ArmConfig, evaluation: Evaluation) -> Measures:
    """The same of the best constant prediction, on the data that an arm was measured on."""
    shifts = evaluation.shift_references.get("constant", {})
    scores = evaluation.constant_scores  # noise does not change what is constant
    return _measures(config, scores, shifts, list(scores.values())[:1])


def outcomes(
    records: Iterable[ArmRecord], worst_of: Callable[[int], Measures]
) -> dict[int, Outcome]:
    """Final arms of one setting and kind by their seed, each with what it counts for.

    ``worst_of`` gives what one without a result counts for, by seed; empty: not known yet.
    """
    by_seed = {}
    for record in records:
        if record.is_final:
            own = record.evaluation if record.status == "finished" else None
            measures = worst = worst_of(record.config.seed)
            if own is not None:
                measures = _bounded(measures_of(record.config, own), worst, sign_of(record.config))
            by_seed[record.config.seed] = Outcome(record, measures, own is None)
    return by_seed


def _bounded(own: Measures, worst: Measures, sign: int) -> Measures:
    """No arm counts for less than the constant prediction, whether it diverged or finished.

    Nor does one that finished and whose score is no number, under noise that it never saw.
    """
    return {
        name: sign * max(sign * value, sign * worst[name], key=_or_least)
        if name in worst
        else value
        for name, value in own.items()
    }


def _or_least(value: float) -> float:
    # max() keeps a NaN or drops it by its place: as a score it is the least (docs/decisions/0177).
    return -math.inf if math.isnan(value) else value


def sign_of(config: ArmConfig) -> int:
    """1 where a higher metric is better, -1 where a lower one is."""
    return 1 if config.facts.metric.higher_is_better else -1


def _measures(
    config: ArmConfig,
    scores: Mapping[str, float],
    shifts: Mapping[str, Mapping[str, float]],
    by_layer: Sequence[float],
) -> Measures:
    seen, unseen = seen_and_unseen(config, scores)
    means: dict[Measure, float | None] = {
        "unseen_mean": unseen,
        "seen_mean": seen,
        "shift_mean": _mean([score for family in shifts.values() for score in family.values()]),
        "mean_over_gammas": _mean(list(scores.values())),
        "ood_auc": area(scores) if len(scores) > 1 else None,
        "anytime_mean": _mean(by_layer),
    }
    return {name: mean for name, mean in means.items() if mean is not None}


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
