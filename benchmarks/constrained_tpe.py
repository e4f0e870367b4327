"""c-TPE: TPE with a density ratio for each constraint, for comparison alone.

Watanabe and Hutter, arXiv 2211.14411: a point is as good as the product of relative density ratios
1 / (gamma + (1 - gamma) g(x) / l(x)), one of the objective and one of every constraint. Here there
is one constraint, and the kernels are Optuna's, so that next to our TPE the acquisition alone
differs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from trainables.plain import Json

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
BETA = 0.25  # the paper's: of N outcomes BETA sqrt(N) feasible ones are good


def met(violations_N: Floats) -> Booleans:
    """Which outcomes meet the constraint; where none does, the one that misses least."""
    return violations_N <= max(0.0, float(violations_N.min()))


def good(objectives_N: Floats, is_met_N: Booleans) -> Booleans:
    """Which outcomes are as good as the ceil(BETA sqrt(N))-th best that meets the constraint.

    Infeasible ones are among them; all are, where fewer meet it.
    """
    wanted = math.ceil(BETA * math.sqrt(len(objectives_N)))
    feasible = np.sort(objectives_N[is_met_N])
    if len(feasible) < wanted:
        return np.ones_like(is_met_N)
    good_N: Booleans = objectives_N <= feasible[wanted - 1]
    return good_N


def log_ratio(share: float, log_below_C: Floats, log_above_C: Floats) -> Floats:
    """Logarithm of the relative density ratio of candidates.

    Args:
        share: gamma, the share of outcomes in the better part.
        log_below_C: log density of the better part at each candidate.
        log_above_C: that of the rest.
    """
    first = math.log(share)
    rest = math.log1p(-share) if share < 1 else -math.inf
    ratio_C: Floats = -np.logaddexp(first, rest + log_above_C - log_below_C)
    return ratio_C


class ConstrainedTPE(TPESampler):
    """The sampler; a trial has one constraint, met at 0 and below."""

    def _sample(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Json]:
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        violations_N = np.array([next(iter(t.constraints.values())) for t in trials])
        objectives_N = np.array([t.value for t in trials])
        better = (met(violations_N), good(objectives_N, violations_N <= 0))

        def density(chosen: Sequence[bool]) -> Json:
            of = [t for t, is_in in zip(trials, chosen, strict=True) if is_in]
            return self._build_parzen_estimator(study, search_space, of, handle_below=False)

        below, above = (
            [density(b.tolist()) for b in better],
            [density((~b).tolist()) for b in better],
        )
        drawn = [one.sample(self._rng.rng, self._n_ei_candidates) for one in below]
        samples = {name: np.hstack([one[name] for one in drawn]) for name in search_space}
        value_C = sum(
            log_ratio(float(b.mean()), low.log_pdf(samples), high.log_pdf(samples))
            for b, low, high in zip(better, below, above, strict=True)
        )
        best = int(np.argmax(value_C))
        return {
            name: of.to_external_repr(float(samples[name][best]))
            for name, of in search_space.items()
        }
