"""Sampler: a setting's k-th proposal, from the outcomes known by then. Pure.

The only owner of Optuna. Every proposal comes from a fresh sampler seeded by (sampler seed,
setting, k), so a restarted driver asks the same question and never repeats an answer. Listed points
come first, whatever the sampler; without any, proposal 0 is the space's default point. Random and
quasi-random points depend on k alone; TPE and GP see an in-memory study rebuilt from the outcomes,
in the order of their numbers. They minimise the objective under one constraint: worst missing share
minus the tolerance. Stopped and diverged proposals are observed, too, as infeasible: what is left
out looks unexplored (docs/decisions/0004).
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from search_spaces.ranges import at_fraction
from search_spaces.space import STARTUP, Choice, Range, SearchSpace, Setting
from sweep.study.proposals import Observation, Point
from trainables.plain import Json

GP_LIMIT = 100  # outcomes a GP is fitted to (1.3 s an ask; 15 s at 1,000); then TPE takes over
# TPE's ask takes longer the more it observes (3 dimensions: 15 ms at 200, 150 ms at 2,000). What it
# models as good is 25 outcomes at most, which are always among the best ones here.
MOST_OBSERVED, MOST_BEST = 300, 100
CONSTRAINT = "worst_missing_share"
# The constraint is clipped to this: one exploding layer must not set the scale.
CONSTRAINT_RANGE = (-1.0, 5.0)
# A stopped arm counts as one with a layer that removes nothing, at least: of those that were
# trained to their end all the same, none came near (docs/decisions/0015).
STOPPED_SHARE = 1.0


def propose(
    space: SearchSpace,
    setting: str,
    number: int,
    observations: Sequence[Observation],
    pending: Sequence[Point] = (),
) -> Point:
    """The point of proposal ``number``, from 0 up: a function of the arguments.

    Settings search independently: ``observations`` are the outcomes of this setting's other
    proposals, in any order, and ``pending`` the points of those without an outcome.
    """
    condition = space.setting(setting)
    listed = space.listed(condition, number)
    if listed is not None:
        return listed
    if number == 0 or not space.ranges:
        return space.default_point(condition)
    if space.sampler == "random":
        shares = np.random.default_rng(_seed(space, setting, number)).random(len(space.ranges))
        return _point_at(space, condition, shares.tolist())
    if space.sampler == "quasi_random":
        from scipy.stats import qmc  # a second, which other samplers do not pay

        # One sequence a setting, whatever the number: only together do its points lie evenly.
        sequence = qmc.Sobol(len(space.ranges), scramble=True, rng=_seed(space, setting, 0))
        before = max(len(condition.points), 1)
        if number > before:
            sequence.fast_forward(number - before)
        return _point_at(space, condition, sequence.random(1)[0].tolist())
    if condition.points:  # what lies outside the ranges is nothing that can be modelled on them
        observations = [t for t in observations if space.is_in_box(condition, t.point)]
        pending = [point for point in pending if space.is_in_box(condition, point)]
    sampler = _sampler(space, setting, number, observations)
    return ask(space, condition, sampler, observations, pending)


def informative(observations: Sequence[Observation], tolerance: float) -> Sequence[Observation]:
    """The MOST_BEST best usable observations and the newest of the others, MOST_OBSERVED in all.

    Ranked as TPE does: by objective where the constraint is met, else by how far it is missed. Up
    to MOST_OBSERVED all of them are returned as they are.
    """
    if len(observations) <= MOST_OBSERVED:
        return observations

    def rank(one: Observation) -> tuple[bool, float, int]:
        missed = constraint_of(one, tolerance)
        return missed > 0, missed if missed > 0 else one.objective, one.number

    ranked = sorted((t for t in observations if t.is_usable), key=rank)
    rest = sorted(ranked[MOST_BEST:], key=lambda t: t.number)
    return [*ranked[:MOST_BEST], *rest[MOST_BEST - MOST_OBSERVED :]]


def constraint_of(observation: Observation, tolerance: float) -> float:
    """The one constraint that a sampler sees: at most 0 when the proposal is feasible.

    A diverged proposal has the upper end of CONSTRAINT_RANGE; a stopped one what its last report
    missed, and STOPPED_SHARE at least.

    >>> round(constraint_of(Observation(1, {}, "infeasible", 0.5, 0.35), tolerance=0.1), 12)
    0.25
    >>> round(constraint_of(Observation(1, {}, "stopped", math.nan, 0.35), tolerance=0.1), 12)
    0.9
    >>> constraint_of(Observation(1, {}, "diverged", 0.5, 0.35), tolerance=0.1)
    5.0
    """
    low, high = CONSTRAINT_RANGE
    share = observation.worst_missing_share
    if observation.outcome == "stopped":
        share = STOPPED_SHARE if math.isnan(share) else max(share, STOPPED_SHARE)
    if observation.outcome == "diverged" or math.isnan(share):  # infinite ones are stored as absent
        return high
    return min(max(share - tolerance, low), high)


def stand_in(observations: Sequence[Observation]) -> float:
    """The objective of proposals of which no seed has one: the worst that was measured.

    TPE does not look at it, since they are infeasible; a GP models the objective over all.

    >>> both = (1, {}, "feasible", 0.5, 0.0), (2, {}, "stopped", math.nan, 1.2)
    >>> stand_in([Observation(*one) for one in both])
    0.5
    """
    return max((t.objective for t in observations if math.isfinite(t.objective)), default=0.0)


def ask(
    space: SearchSpace,
    setting: Setting,
    sampler: BaseSampler,
    observations: Sequence[Observation],
    pending: Sequence[Point] = (),
) -> Point:
    """The point that a sampler proposes after these observations."""
    ranges = space.ranges_of(setting)
    distributions = distributions_of(space, setting)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=sampler, direction="minimize")
    missing = stand_in(observations)
    # In the order of their numbers: the samplers' answers depend on the order of trials.
    for observation in sorted(informative(observations, space.tolerance), key=lambda t: t.number):
        study.add_trial(finished_trial(space, setting, observation, missing))
    # In a fixed order, likewise: pending points have none of their own.
    for point in sorted(pending, key=repr):
        params = _params(space, setting, point)
        running = create_trial(state=TrialState.RUNNING, params=params, distributions=distributions)
        study.add_trial(running)
    params = study.ask(distributions).params
    coordinates = {
        n: r.values[params[n]] if isinstance(r, Choice) else params[n] for n, r in ranges.items()
    }
    return space.point_of(setting, coordinates)


def finished_trial(
    space: SearchSpace, setting: Setting, observation: Observation, missing_objective: float
) -> FrozenTrial:
    """One outcome as Optuna sees it: complete with its constraint, or FAIL.

    Never complete without it: TPE would take that for feasible, GP raise at every later ask. FAIL
    is what is no fault of the point; every sampler forgets it.
    """
    params = _params(space, setting, observation.point)
    missing = missing_objective
    return _trial(space, observation, missing, params, distributions_of(space, setting), {})


def _trial(
    space: SearchSpace,
    observation: Observation,
    missing_objective: float,
    params: dict[str, Json],
    distributions: dict[str, BaseDistribution],
    attributes: dict[str, Json],
) -> FrozenTrial:
    if not observation.is_usable:
        return create_trial(
            state=TrialState.FAIL, params=params, distributions=distributions, user_attrs=attributes
        )
    return create_trial(
        state=TrialState.COMPLETE,
        value=observation.objective if math.isfinite(observation.objective) else missing_objective,
        params=params,
        distributions=distributions,
        user_attrs=attributes,
        constraints={CONSTRAINT: constraint_of(observation, space.tolerance)},
    )


def _sampler(
    space: SearchSpace, setting: str, number: int, observations: Sequence[Observation]
) -> BaseSampler:
    """A fresh sampler with every setting pinned: Optuna's defaults have changed before."""
    seed = _seed(space, setting, number)
    missed = [constraint_of(t, space.tolerance) for t in observations if t.is_usable]
    is_flat = min(missed, default=0.0) > 0 and len(set(missed)) == 1  # a GP would divide by 0
    if space.sampler == "gp" and len(missed) <= GP_LIMIT and not is_flat:
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
    # Not hash(): that of a text differs from process to process.
    digest = hashlib.sha256(f"{space.sampler_seed}/{setting}/{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def distributions_of(space: SearchSpace, setting: Setting) -> dict[str, BaseDistribution]:
    """The ranges of a setting as Optuna has them, in their coordinates."""
    return {name: _distribution(values) for name, values in space.ranges_of(setting).items()}


class _Shared:
    """A distribution that all trials share: Optuna copies it with every one, and changes none.

    For studies in memory: neither Optuna's storages nor its own distributions know these types.
    """

    def __deepcopy__(self, memo: object) -> Self:
        return self


class _Category(_Shared, CategoricalDistribution):
    pass


class _Number(_Shared, FloatDistribution):
    pass


def _distribution(values: Range) -> BaseDistribution:
    if isinstance(values, Choice):
        return _Category(range(len(values.values)))  # by index: a choice may hold any plain value
    return _Number(values.low, values.high, log=values.is_log)


def _params(space: SearchSpace, setting: Setting, point: Mapping[str, Json]) -> dict[str, Json]:
    ranges = space.ranges_of(setting)
    values = space.coordinates_of(setting, point)
    indices = {n: r.values.index(values[n]) for n, r in ranges.items() if isinstance(r, Choice)}
    return values | indices


def _point_at(space: SearchSpace, setting: Setting, shares: Sequence[float]) -> Point:
    """The point that lies at these shares, in [0, 1), of the ranges."""
    ranges = space.ranges_of(setting).items()
    drawn = {name: at_fraction(values, u) for (name, values), u in zip(ranges, shares, strict=True)}
    return space.point_of(setting, drawn)


# --- for Optuna's own tools -----------------------------------------------------------------------


def write_journal(
    path: Path, sweep: str, space: SearchSpace, observed: Mapping[str, Sequence[Observation]]
) -> None:
    """Write a new Optuna journal: a study for each setting, a trial for each of its outcomes.

    ``optuna-dashboard`` and ``optuna.load_study`` open it. A trial's constraint is at most 0 where
    the proposal is feasible; its attributes have the number of the proposal, the fields that were
    trained, and the outcome. A listed proposal outside the ranges has these alone, no parameters.
    Choices are texts: Optuna's storages have no others.

    Args:
        path: a file that does not exist.
        sweep: its name; a study is called SWEEP/SETTING.
        space: the sweep's.
        observed: outcomes by setting.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(JournalFileBackend(str(path)))
    for name, observations in observed.items():
        setting = space.setting(name)
        study = optuna.create_study(
            storage=storage, study_name=f"{sweep}/{name}", direction="minimize"
        )
        missing = stand_in(observations)
        trials = [
            _plain_trial(space, setting, one, missing)
            for one in sorted(observations, key=lambda one: one.number)
        ]
        study.add_trials(trials)


def _plain_trial(
    space: SearchSpace, setting: Setting, observation: Observation, missing_objective: float
) -> FrozenTrial:
    """An outcome in distributions that Optuna's storages know; outside the ranges in none."""
    distributions: dict[str, BaseDistribution] = {}
    params: dict[str, Json] = {}
    if space.is_in_box(setting, observation.point):
        params = _params(space, setting, observation.point)
        for name, values in space.ranges_of(setting).items():
            if isinstance(values, Choice):  # any plain value, where Optuna has numbers and texts
                texts = list(map(str, values.values))
                distributions[name] = CategoricalDistribution(texts)
                params[name] = texts[params[name]]
            else:
                distributions[name] = FloatDistribution(values.low, values.high, log=values.is_log)
    attributes = {
        **observation.point, "outcome": observation.outcome, "proposal": observation.number,
    }  # fmt: skip
    return _trial(space, observation, missing_objective, params, distributions, attributes)
