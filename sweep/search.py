"""PURE: the k-th proposal of a setting, from the outcomes known when it is asked for.

The only owner of Optuna. Every proposal comes from a fresh sampler seeded by (sampler seed,
setting, k), so a restarted driver asks the same question and never repeats an answer. Proposal 0 is
the space's default point. Random and quasi-random points depend on k alone; TPE and GP see an
in-memory study rebuilt from the outcomes, in the order of their numbers. They minimise the
objective under one constraint: worst missing share minus the tolerance.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial
from scipy.stats import qmc

from search_spaces.space import Choice, LogUniform, Range, SearchSpace
from sweep.proposals import Point, Told
from trainables.errors import InvalidValue
from trainables.primal_dual import TOLERANCE

Json = Any

# Points before a model is trusted, the default point included; Optuna's 10 are whole sweeps.
STARTUP = 3
GP_LIMIT = 100  # outcomes a GP is fitted to (1.3 s an ask; 15 s at 1,000); then TPE takes over
# TPE's ask takes longer the more it is told (3 dimensions: 15 ms at 200, 150 ms at 2,000). What it
# models as good is 25 outcomes at most, which are always among the best ones here.
TOLD_LIMIT, TOLD_BEST = 300, 100
CONSTRAINT = "worst_missing_share"
# What a sampler is told is clipped to this: one exploding layer must not set the scale.
CONSTRAINT_RANGE = (-1.0, 5.0)


def propose(
    space: SearchSpace,
    setting: str,
    number: int,
    told: Sequence[Told],
    pending: Sequence[Point] = (),
) -> Point:
    """The point of proposal ``number``: a function of the arguments, whatever their order.

    Args:
        space: ranges, sampler and sampler seed.
        setting: name of the setting; settings search independently of each other.
        number: k, from 0 up.
        told: outcomes of this setting's other proposals.
        pending: points of stored proposals without an outcome.
    """
    default = space.default_point(space.setting(setting))
    if number == 0 or not space.ranges:
        return default
    if space.sampler == "random":
        shares = np.random.default_rng(_seed(space, setting, number)).random(len(space.ranges))
        return _at(space.ranges, shares.tolist())
    if space.sampler == "quasi_random":
        sequence = qmc.Sobol(len(space.ranges), scramble=True, rng=_seed(space, setting, 0))
        if number > 1:
            sequence.fast_forward(number - 1)
        return _at(space.ranges, sequence.random(1)[0].tolist())
    return _ask(space, _sampler(space, setting, number, told), worth_telling(told), pending)


def worth_telling(told: Sequence[Told]) -> Sequence[Told]:
    """The TOLD_BEST best and the newest of the other measured outcomes, TOLD_LIMIT in all.

    Ranked as TPE does: by objective where the constraint is met, else by how far it is missed. All
    of them, as they are, while they are no more than that.
    """
    if len(told) <= TOLD_LIMIT:
        return told

    def rank(outcome: Told) -> tuple[bool, float, int]:
        missed = constraint_of(outcome)
        return missed > 0, missed if missed > 0 else outcome.objective, outcome.number

    ranked = sorted((t for t in told if t.is_measured), key=rank)
    rest = sorted(ranked[TOLD_BEST:], key=lambda t: t.number)
    return [*ranked[:TOLD_BEST], *rest[TOLD_BEST - TOLD_LIMIT :]]


def constraint_of(told: Told) -> float:
    """The one constraint that a sampler is told: at most 0 when the proposal is feasible.

    >>> round(constraint_of(Told(1, {}, "infeasible", 0.5, worst_missing_share=0.35)), 12)
    0.25
    """
    low, high = CONSTRAINT_RANGE
    return min(max(told.worst_missing_share - TOLERANCE, low), high)


def _ask(
    space: SearchSpace, sampler: BaseSampler, told: Sequence[Told], pending: Sequence[Point]
) -> Point:
    distributions = {name: _distribution(values) for name, values in space.ranges.items()}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=sampler, direction="minimize")
    for outcome in sorted(told, key=lambda t: t.number):
        study.add_trial(finished_trial(space, outcome))
    for point in sorted(pending, key=repr):
        running = create_trial(
            state=TrialState.RUNNING, params=_params(space, point), distributions=distributions
        )
        study.add_trial(running)
    params = study.ask(distributions).params
    return {name: _value(values, params[name]) for name, values in space.ranges.items()}


def finished_trial(space: SearchSpace, told: Told) -> FrozenTrial:
    """One outcome as Optuna sees it: complete with its constraint, or FAIL.

    Never complete without it: TPE would take that for feasible, GP raise at every later ask.
    """
    distributions = {name: _distribution(values) for name, values in space.ranges.items()}
    params = _params(space, told.point)
    if not told.is_measured:
        return create_trial(state=TrialState.FAIL, params=params, distributions=distributions)
    constraint = constraint_of(told)
    if not math.isfinite(constraint):
        raise InvalidValue(
            f"proposal {told.number} has no worst missing share: it cannot be told as complete."
        )
    return create_trial(
        state=TrialState.COMPLETE,
        value=told.objective,
        params=params,
        distributions=distributions,
        constraints={CONSTRAINT: constraint},
    )


def _sampler(space: SearchSpace, setting: str, number: int, told: Sequence[Told]) -> BaseSampler:
    """A fresh sampler with every setting pinned: Optuna's defaults have changed before."""
    seed = _seed(space, setting, number)
    if space.sampler == "gp" and sum(t.is_measured for t in told) <= GP_LIMIT:
        return GPSampler(
            seed=seed,
            n_startup_trials=STARTUP,
            deterministic_objective=False,
            warn_independent_sampling=False,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `multivariate` is to become the only mode
        return TPESampler(
            n_startup_trials=STARTUP,
            n_ei_candidates=24,
            multivariate=True,
            group=False,
            constant_liar=True,  # pending points count as bad ones, so that parallel arms spread
            seed=seed,
        )


def _seed(space: SearchSpace, setting: str, number: int) -> int:
    digest = hashlib.sha256(f"{space.sampler_seed}/{setting}/{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _distribution(values: Range) -> BaseDistribution:
    if isinstance(values, Choice):
        return CategoricalDistribution(
            range(len(values.values))
        )  # by index: a choice may hold any plain value
    return FloatDistribution(values.low, values.high, log=isinstance(values, LogUniform))


def _params(space: SearchSpace, point: Mapping[str, Json]) -> dict[str, Json]:
    return {name: _param(values, point[name]) for name, values in space.ranges.items()}


def _param(values: Range, value: Json) -> Json:
    return values.values.index(value) if isinstance(values, Choice) else value


def _value(values: Range, param: Json) -> Json:
    return values.values[param] if isinstance(values, Choice) else param


def _at(ranges: Mapping[str, Range], shares: Sequence[float]) -> Point:
    """The point that lies at these shares, in [0, 1), of the ranges."""
    return {
        name: _at_share(values, u) for (name, values), u in zip(ranges.items(), shares, strict=True)
    }


def _at_share(values: Range, share: float) -> Json:
    if isinstance(values, Choice):
        return values.values[int(share * len(values.values))]
    if isinstance(values, LogUniform):
        value = math.exp(
            math.log(values.low) + share * (math.log(values.high) - math.log(values.low))
        )
    else:
        value = values.low + share * (values.high - values.low)
    return min(max(value, values.low), values.high)
