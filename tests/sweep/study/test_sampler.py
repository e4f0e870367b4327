"""The search: proposals are functions of what is known, and constraints reach the samplers."""

from __future__ import annotations

import math
import random
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from search_spaces.space import SAMPLERS, Choice, LogUniform, Sampler, SearchSpace, Setting, Uniform
from sweep.study.proposals import Observation, Point
from sweep.study.sampler import (
    CONSTRAINT,
    MOST_BEST,
    MOST_OBSERVED,
    constraint_of,
    finished_trial,
    informative,
    propose,
    stand_in,
    write_journal,
)
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.records.arm_record import Outcome

ALPHA, DUAL_LR = "constraint.alpha", "constraint.dual_lr"


def space(sampler: Sampler, *, sampler_seed: int = 0, narrow: bool = False) -> SearchSpace:
    """Two settings and three ranges; ``narrow``: alpha alone."""
    ranges = {ALPHA: Uniform(0.05, 0.95)}
    if not narrow:
        ranges |= {
            DUAL_LR: LogUniform(1e-4, 1e-1),
            "constraint.reference": Choice(("bound_first", "virtual_layer0")),
        }
    return SearchSpace(
        name="toy",
        summary="",
        base=ArmConfig(constraint=ConstraintConfig(alpha=0.1, dual_lr=0.02)),
        settings=(Setting("a", {}), Setting("b", {"model.layers": 5})),
        ranges=ranges,
        sampler=sampler,
        sampler_seed=sampler_seed,
    )


def told_of(number: int, point: Point, objective: float, missing: float) -> Observation:
    return Observation(
        number, point, "feasible" if missing <= 0.1 else "infeasible", objective, missing
    )


def history(asked: SearchSpace, n: int) -> list[Observation]:
    """n outcomes at points of the random sampler."""
    points = [propose(space("random"), "a", k, []) for k in range(n)]
    kept = [{name: point[name] for name in asked.ranges} for point in points]
    return [told_of(k, p, p[ALPHA] ** 2, p[ALPHA] - 0.5) for k, p in enumerate(kept)]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_proposal_zero_is_the_default_point(sampler: Sampler) -> None:
    default = {ALPHA: 0.1, DUAL_LR: 0.02, "constraint.reference": "bound_first"}
    assert propose(space(sampler), "a", 0, []) == default


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_proposal_is_a_function_of_the_set_of_outcomes(sampler: Sampler) -> None:
    asked = space(sampler)
    told = history(asked, 6)
    pending = [propose(space("random"), "a", 20 + k, []) for k in range(2)]
    first = propose(asked, "a", 6, told, pending)
    shuffled = random.Random(0).sample(told, len(told))
    assert propose(asked, "a", 6, shuffled, pending[::-1]) == first


# Not a GP: with the same outcomes, its best next point is the same whatever the seed.
@pytest.mark.parametrize("sampler", ["tpe", "random", "quasi_random"])
def test_points_differ_between_numbers_settings_and_sampler_seeds(sampler: Sampler) -> None:
    told = history(space(sampler), 4)
    points = [propose(space(sampler), "a", k, told) for k in (4, 5, 6)]
    points.append(propose(space(sampler), "b", 4, told))
    points.append(propose(space(sampler, sampler_seed=1), "a", 4, told))
    assert len({repr(point) for point in points}) == len(points)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_points_lie_in_their_ranges(sampler: Sampler) -> None:
    asked = space(sampler)
    told = history(asked, 5)
    for k in range(1, 8):
        point = propose(asked, "a", k, told)
        assert list(point) == list(asked.ranges)
        assert 0.05 <= point[ALPHA] <= 0.95
        assert 1e-4 <= point[DUAL_LR] <= 1e-1
        assert point["constraint.reference"] in ("bound_first", "virtual_layer0")


@pytest.mark.parametrize("sampler", ["random", "quasi_random"])
def test_an_order_free_point_depends_on_its_number_alone(sampler: Sampler) -> None:
    asked = space(sampler)
    assert propose(asked, "a", 5, history(asked, 4)) == propose(asked, "a", 5, [])


def test_quasi_random_points_fill_the_range_evenly() -> None:
    asked = space("quasi_random")
    points = [propose(asked, "a", k, []) for k in range(1, 33)]
    alphas = [(p[ALPHA] - 0.05) / 0.9 for p in points]
    logs = [math.log(p[DUAL_LR] / 1e-4) / math.log(1e3) for p in points]
    for shares in (alphas, logs):  # 32 Sobol points: exactly four in each eighth
        assert np.bincount((np.array(shares) * 8).astype(int)).tolist() == [4] * 8


def test_a_restarted_search_does_not_repeat_its_first_points() -> None:
    asked = space("tpe")
    told = [told_of(k, propose(asked, "a", k, []), 0.5, 0.0) for k in range(3)]
    again = [propose(asked, "a", k, told) for k in (3, 4, 5)]
    assert not any(point == t.point for point in again for t in told)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_the_best_feasible_point_is_found_where_the_best_point_is_infeasible(
    sampler: Sampler,
) -> None:
    """Minimise 1 - alpha subject to alpha <= 0.5: unconstrained, alpha = 0.95 would win.

    This is what shows that the samplers read the constraint that create_trial is given.
    """
    asked = space(sampler, narrow=True)

    def last_points(constrained: bool) -> list[float]:
        told: list[Observation] = []
        n = 24 if sampler == "tpe" else 10
        for k in range(n):
            alpha = (point := propose(asked, "a", k, told))[ALPHA]
            missing = 0.1 + (alpha - 0.5) if constrained else 0.0
            told.append(told_of(k, point, 1 - alpha, missing))
        return [t.point[ALPHA] for t in told[n // 2 :]]

    # Half of the later points, at least, are where the respective optimum is.
    assert np.median(last_points(constrained=False)) > 0.8
    assert 0.3 < np.median(last_points(constrained=True)) < 0.6


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_a_pending_point_is_not_proposed_again(sampler: Sampler) -> None:
    asked = space(sampler, narrow=True)
    told = [told_of(k, {ALPHA: 0.1 + 0.1 * k}, abs(0.3 - 0.1 * k), 0.0) for k in range(8)]
    alone = propose(asked, "a", 8, told)
    assert propose(asked, "a", 8, told, [alone] * 5) != alone


def test_a_journal_has_every_outcome_and_no_parameters_outside_the_ranges(tmp_path: Path) -> None:
    asked = space("tpe")
    told = history(asked, 3)
    outside = replace(told[1], point={**told[1].point, ALPHA: 0.99})
    write_journal(tmp_path / "journal", "toy", asked, {"a": [told[2], outside, told[0]]})
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal")))
    trials = optuna.load_study(study_name="toy/a", storage=storage).trials
    assert [trial.user_attrs["proposal"] for trial in trials] == [0, 1, 2]
    assert [bool(trial.params) for trial in trials] == [True, False, True]
    assert trials[1].user_attrs[ALPHA] == 0.99
    assert [trial.value for trial in trials] == [one.objective for one in told]


# --- what ended early -----------------------------------------------------------------------------


def trial_of(asked: SearchSpace, told: Observation, missing_objective: float = 0.7) -> FrozenTrial:
    return finished_trial(asked, asked.setting("a"), told, missing_objective)


def test_a_failed_proposal_says_nothing_of_its_point() -> None:
    asked = space("tpe", narrow=True)
    told = [
        Observation(1, {ALPHA: 0.3}, "failed", 0.5, 0.0),
        Observation(1, {ALPHA: 0.3}, "feasible", math.nan, 0.0),  # absence is never success
        Observation(1, {ALPHA: 0.3}, "feasible", 0.5, math.nan),
    ]
    assert {trial_of(asked, t).state for t in told} == {TrialState.FAIL}


@pytest.mark.parametrize(
    ("outcome", "missing", "constraint"),
    [
        ("stopped", 2.1, 2.0),  # its last report's
        ("stopped", 0.15, 0.9),  # never nearly feasible
        ("stopped", math.nan, 0.9),  # stored before its report was
        ("stopped", 80.0, 5.0),
        ("diverged", math.nan, 5.0),
        ("diverged", -0.2, 5.0),  # what the other seed measured
        ("infeasible", math.inf, 5.0),
        ("infeasible", math.nan, 5.0),  # the same, read back
    ],
)
def test_what_ended_early_is_told_as_infeasible(
    outcome: Outcome, missing: float, constraint: float
) -> None:
    trial = trial_of(
        space("tpe", narrow=True), Observation(1, {ALPHA: 0.3}, outcome, math.nan, missing), 0.7
    )
    assert trial.state == TrialState.COMPLETE
    assert trial.constraints == {CONSTRAINT: pytest.approx(constraint)}
    assert trial.value == 0.7


def test_a_missing_objective_is_the_worst_that_was_measured() -> None:
    told = [
        told_of(1, {}, 0.2, 0.0),
        told_of(2, {}, 0.6, 3.0),
        Observation(3, {}, "stopped", math.nan, 1.2),
        Observation(4, {}, "diverged", 0.9, math.nan),  # of the seed that finished
    ]
    for _ in range(3):
        assert stand_in(random.sample(told, 4)) == 0.9
    assert stand_in(told[2:3]) == 0.0  # nothing was measured yet
    kept = trial_of(
        space("tpe", narrow=True), Observation(4, {ALPHA: 0.3}, "diverged", 0.9, math.nan)
    )
    assert kept.value == 0.9


@pytest.mark.parametrize("outcome", ["stopped", "diverged"])
def test_a_dead_half_of_the_box_is_left_alone(outcome: Outcome) -> None:
    """Every second point of the box ends early. Told as failures, .95 of these came from there."""
    searches, proposals = 6, 16
    dead = 0
    for seed in range(searches):
        asked = space("tpe", sampler_seed=seed)
        told: list[Observation] = []
        for k in range(proposals):
            point = propose(asked, "a", k, told)
            if point[ALPHA] > 0.5:
                told.append(Observation(k, point, outcome, math.nan, 1.2))
            else:
                told.append(told_of(k, point, point[ALPHA], 0.0))
        dead += sum(t.point[ALPHA] > 0.5 for t in told[-5:])
    assert dead / (5 * searches) < 0.2


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_a_search_in_which_everything_ends_early_goes_on(sampler: Sampler) -> None:
    asked = space(sampler)
    points = [propose(space("random"), "a", k, []) for k in range(5)]
    for shares in ([1.1] * 5, [1.0, 1.1, 1.3, 2.0, 9.0]):  # alike: a GP has nothing to model
        told = [
            Observation(k, points[k], "stopped", math.nan, share) for k, share in enumerate(shares)
        ]
        point = propose(asked, "a", 5, told)
        assert point not in points
        asked.run(asked.setting("a"), point, seed=0)


def test_a_complete_trial_always_carries_its_constraint() -> None:
    trial = trial_of(space("gp", narrow=True), told_of(1, {ALPHA: 0.3}, 0.5, 0.4))
    assert trial.state == TrialState.COMPLETE
    assert trial.constraints == {CONSTRAINT: pytest.approx(0.3)}
    lenient = replace(space("gp", narrow=True), tolerance=0.45)
    trial = trial_of(lenient, told_of(1, {ALPHA: 0.3}, 0.5, 0.4))
    assert trial.constraints == {CONSTRAINT: pytest.approx(-0.05)}


@pytest.mark.parametrize(
    ("missing", "told"), [(0.1, 0.0), (0.35, 0.25), (-9.0, -1.0), (1e9, 5.0), (math.inf, 5.0)]
)
def test_the_constraint_is_the_missing_share_over_the_tolerance_clipped(
    missing: float, told: float
) -> None:
    assert constraint_of(told_of(1, {}, 0.5, missing), 0.1) == pytest.approx(told)


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_failed_outcomes_do_not_disturb_later_proposals(sampler: Sampler) -> None:
    asked = space(sampler)
    told = history(asked, 5)
    lost = Observation(9, propose(space("random"), "a", 9, []), "failed", math.nan, math.nan)
    point = propose(asked, "a", 10, [*told, lost])
    assert point.keys() == asked.ranges.keys()
    asked.run(asked.setting("a"), point, seed=0)  # a point of the space, not NaN


def test_a_gp_hands_over_to_tpe_when_it_would_become_slow() -> None:
    """101 outcomes: the same point as TPE, which is seeded alike."""
    told = history(space("gp"), 101)
    assert propose(space("gp"), "a", 101, told) == propose(space("tpe"), "a", 101, told)


def test_of_many_outcomes_the_best_and_the_newest_are_told() -> None:
    """An ask costs no more in a setting of thousands; what TPE models as good stays."""
    rng = random.Random(0)
    told = [told_of(k, {ALPHA: 0.3}, rng.random(), rng.random() / 5) for k in range(2000)]
    lost = [Observation(2000 + k, {ALPHA: 0.3}, "failed", math.nan, math.nan) for k in range(50)]
    kept = informative(rng.sample(told + lost, 2050), 0.1)
    assert len(kept) == MOST_OBSERVED
    feasible = sorted((t for t in told if t.worst_missing_share <= 0.1), key=lambda t: t.objective)
    assert [t.number for t in kept[:MOST_BEST]] == [t.number for t in feasible[:MOST_BEST]]
    others = [t.number for t in told if t not in feasible[:MOST_BEST]]
    assert [t.number for t in kept[MOST_BEST:]] == others[-(MOST_OBSERVED - MOST_BEST) :]


def test_few_outcomes_are_told_as_they_are() -> None:
    told = history(space("tpe"), 6)
    assert informative(told, 0.1) is told


def test_where_nothing_is_feasible_the_closest_are_told() -> None:
    told = [told_of(k, {ALPHA: 0.3}, 0.5, 5.0 - k / 1000) for k in range(1000)]
    closest = range(999, 999 - MOST_BEST, -1)
    assert [t.number for t in informative(told, 0.1)[:MOST_BEST]] == list(closest)


def test_the_search_raises_no_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sampler in SAMPLERS:
            propose(space(sampler), "a", 6, history(space(sampler), 6))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_listed_points_come_first_whatever_the_sampler(sampler: Sampler) -> None:
    plain = space(sampler)
    points = {"mine": {ALPHA: 0.3}, "longer": {"steps": 2000}, "outside": {ALPHA: 0.99}}
    listed = replace(plain, settings=(Setting("a", {}, points=points), plain.settings[1]))
    rest = {ALPHA: 0.1, DUAL_LR: 0.02, "constraint.reference": "bound_first"}
    found = [propose(listed, "a", k, []) for k in range(3)]
    assert found == [rest | point for point in points.values()]
    assert propose(listed, "b", 0, []) == rest
    told = [told_of(k, point, 0.1 * k, 0.0) for k, point in enumerate(found)]
    then = propose(listed, "a", 3, told, pending=[found[1]])
    assert set(then) == set(rest)
    assert then == propose(listed, "a", 3, told[:1])  # what lies outside the ranges is not told
    if sampler == "quasi_random":
        assert [propose(listed, "a", 3 + k, []) for k in range(4)] == [
            propose(plain, "a", 1 + k, []) for k in range(4)
        ]
