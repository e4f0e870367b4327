"""Search objective, from the metric at the gammas that selection looks at. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trainables.config.test_conditions import gamma_key
from trainables.registry.task_facts import Metric

Scores = Mapping[str, float]  # the metric by test gamma ("0.15")


def objective_of(
    metric: Metric, scores: Scores, references: Mapping[str, Scores], gammas: Sequence[float]
) -> float:
    """Objective that the search minimises, of the metric at ``gammas``; lower is better.

    Of a metric of which higher is better, up to 1: what is missing to 1. Else relative to the
    Wiener filter, or to the constant prediction where a task has no such filter.
    """
    if metric.higher_is_better:
        return 1.0 - mean_over(scores, gammas)
    return objective(scores, references.get("wiener", references["constant"]), gammas)


def mean_over(scores: Scores, gammas: Sequence[float]) -> float:
    """Trapezoid mean of the metric over ``gammas``; the value itself where there is but one."""
    values = [scores[gamma_key(g)] for g in gammas]
    if len(values) == 1:
        return values[0]
    return float(np.trapezoid(values, gammas)) / (gammas[-1] - gammas[0])


def objective(scores: Scores, wiener: Scores, gammas: Sequence[float]) -> float:
    """Mean over ``gammas`` of log(metric / the Wiener filter's metric); lower is better.

    The plain mean is ruled by the largest gamma; relative to a linear filter fitted at each gamma,
    all count.
    """
    ratios = [scores[gamma_key(g)] / wiener[gamma_key(g)] for g in gammas]
    return float(np.mean(np.log(ratios)))
