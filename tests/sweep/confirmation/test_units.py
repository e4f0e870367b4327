"""Intervals over seeds and test units, from stored unit scores, against oracles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from search_spaces.space import SearchSpace
from sweep.confirmation.arms import read_arms
from sweep.confirmation.comparisons import summarize_confirmation
from sweep.confirmation.plan import Plan
from sweep.confirmation.tables import confirmed_table
from sweep.confirmation.units import over_units, reader
from sweep.confirmation.words import of_setting
from sweep.statistics.two_sources import variance_components
from sweep.study.definition import Definition
from tests.support import confirmations as hand
from tests.support.records import ended, finished
from tests.support.sweeps import FEASIBLE, PLAIN, SPACE
from tests.support.training.text_records import TEXT
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import unseen_gammas
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.unit_scores import UnitScores, at_gamma

GREY = 255 / 4  # RMSE of patches of 4 x 4 over the root of their mean loss
GAMMAS = (0.0, 0.2, 0.4, 0.6, 0.8)  # the last ones of them unseen
VIDEO = replace(SPACE, base=replace(SPACE.base, test_gammas=GAMMAS))
TEXTS = replace(
    SPACE,
    base=replace(TEXT, data=replace(TEXT.data, fingerprint="f00d"), test_gammas=GAMMAS),
)
Put = Callable[[ArmStore, ArmConfig, str, int], None]


def keyed(kind: str, seed: int, gamma: float) -> np.random.Generator:
    return np.random.default_rng([len(kind), seed, round(1000 * gamma)])


def by_losses(
    units: int, of: Callable[[str, int], Any] | None = None
) -> tuple[Callable[..., Any], Put]:
    """Losses of every unit, and what stores an arm that came to them.

    Args:
        units: how many.
        of: losses by kind and seed, at every gamma; drawn where it is left out.
    """

    def losses_U(config: ArmConfig, kind: str, seed: int, gamma: float) -> Any:
        if of is None:
            shared = np.random.default_rng([round(1000 * gamma)]).uniform(0.2, 0.6, units)
            found = shared + keyed(kind, seed, gamma).uniform(0.0, 0.1, units)
        else:
            found = of(kind, seed)
        return found.astype(np.float32).astype(np.float64)  # as they are stored

    def put(store: ArmStore, config: ArmConfig, kind: str, seed: int) -> None:
        rows = {g: losses_U(config, kind, seed, g) for g in config.test_gammas}
        own = list(PLAIN if kind == "unconstrained" else FEASIBLE)
        record = finished(
            config,
            own,
            split="test",
            dev_units=unit_names(units),
            dev_losses=[own] * units,
            scores={f"{g:.2f}": GREY * np.sqrt(rows[g].mean()) for g in rows},
            references={"constant": {f"{g:.2f}": 50.0 for g in rows}},
            layer_losses_by_gamma={f"{g:.2f}": [*own[:-1], rows[g].mean()] for g in rows},
        )
        inner = np.ones((units, len(own) - 1))
        losses = {
            at_gamma(g): np.column_stack([inner, row]).astype(np.float32) for g, row in rows.items()
        }
        stored(store, record, UnitScores("test", unit_names(units), [1] * units, losses))

    return losses_U, put


def by_samples(sizes: list[int]) -> tuple[Callable[..., Any], Put]:
    """Which samples every arm has right, and what stores such an arm."""

    def right_N(config: ArmConfig, kind: str, seed: int, gamma: float) -> Any:
        ease = np.random.default_rng([round(1000 * gamma)]).uniform(0.5, 0.9, len(sizes))
        ease += 0.08 * (kind == "constrained")
        return (keyed(kind, seed, gamma).random(sum(sizes)) < np.repeat(ease, sizes)).astype(float)

    def put(store: ArmStore, config: ArmConfig, kind: str, seed: int) -> None:
        rows = {g: right_N(config, kind, seed, g) for g in config.test_gammas}
        own = list(PLAIN if kind == "unconstrained" else FEASIBLE)
        record = finished(
            config,
            own,
            split="test",
            dev_units=unit_names(len(sizes)),
            dev_losses=[own] * len(sizes),
            scores={f"{g:.2f}": rows[g].mean() for g in rows},
            references={"constant": {f"{g:.2f}": 0.0 for g in rows}},
        )
        losses = {at_gamma(g): np.ones((len(sizes), 4), dtype=np.float32) for g in rows}
        scores = {at_gamma(g): row.astype(np.float32) for g, row in rows.items()}
        stored(store, record, UnitScores("test", unit_names(len(sizes)), sizes, losses, scores))

    return right_N, put


def unit_names(units: int) -> list[str]:
    return [f"c{u}:0" for u in range(units)]


def stored(store: ArmStore, record: ArmRecord, scores: UnitScores) -> None:
    store.put_unit_scores(record.signature, scores)
    store.put_record(record)


def shown(
    objects: ObjectStore, put: Put, seeds: int, space: SearchSpace = VIDEO, **wanted: Any
) -> tuple[Json, Plan, Definition]:
    hand.searched(objects, space=space)
    plan, definition = hand.stored(objects, hand.wanted(seeds=seeds, **wanted))
    assert plan.measure == "unseen_mean"
    for _, kind, config in hand.every_arm(definition):
        put(ArmStore(objects), config, kind, config.seed)
    return summarize_confirmation(objects, definition, plan), plan, definition


def unseen(definition: Definition, setting: str) -> tuple[ArmConfig, list[float]]:
    config = definition.space.run(definition.space.setting(setting), {}, seed=0)
    gammas = unseen_gammas(config)
    assert 0 < len(gammas) < len(GAMMAS)
    return config, gammas


def bootstrapped(differences: Callable[[list[int], list[int]], float], seeds: int, units: int):
    """The 95 % percentile interval of a crossed bootstrap, draw by draw."""
    generator = np.random.default_rng(99)
    found = [
        differences(
            generator.integers(0, seeds, seeds).tolist(),
            generator.integers(0, units, units).tolist(),
        )
        for _ in range(2_000)
    ]
    return np.quantile(found, [0.025, 0.975])


def test_of_two_seeds_and_two_units_it_runs_from_the_least_cell_to_the_largest(
    objects: ObjectStore,
) -> None:
    """A sixteenth of all draws takes one seed and one unit twice: more than a tail of 2.5 %."""
    losses_U, put = by_losses(2)
    entry, plan, definition = shown(objects, put, 2)
    for one in entry.settings:
        config, gammas = unseen(definition, one.setting)
        cells = [
            np.mean([
                GREY * np.sqrt(losses_U(config, "unconstrained", seed, g)[u])
                - GREY * np.sqrt(losses_U(config, "constrained", seed, g)[u])
                for g in gammas
            ])
            for seed in plan.seeds
            for u in range(2)
        ]  # fmt: skip
        found = one.contrasts["unconstrained"].units
        assert (found.low, found.high) == pytest.approx((min(cells), max(cells)), rel=1e-6)


def test_of_losses_it_is_that_of_a_naive_bootstrap(objects: ObjectStore) -> None:
    losses_U, put = by_losses(12)
    entry, plan, definition = shown(objects, put, 6)
    one = entry.settings[0]
    config, gammas = unseen(definition, one.setting)
    losses = {
        kind: [[losses_U(config, kind, seed, g) for g in gammas] for seed in plan.seeds]
        for kind in ("constrained", "unconstrained")
    }

    def difference(seeds: list[int], units: list[int]) -> float:
        def rmse(kind: str, k: int) -> float:
            return float(np.mean([GREY * np.sqrt(row[units].mean()) for row in losses[kind][k]]))

        return float(np.mean([rmse("unconstrained", k) - rmse("constrained", k) for k in seeds]))

    found = one.contrasts["unconstrained"].units
    assert found.mean == pytest.approx(difference(list(range(6)), list(range(12))), rel=1e-9)
    assert found.mean == pytest.approx(one.contrasts["unconstrained"].mean, rel=1e-6)
    low, high = bootstrapped(difference, 6, 12)
    near = 0.1 * (high - low)  # 2.5 % quantiles of 2,000 draws: a standard error of 1.7 % each
    assert (found.low, found.high) == pytest.approx((low, high), abs=near)


def test_variance_components_are_those_of_jackknife_pseudo_values(objects: ObjectStore) -> None:
    """To first order: another linearisation, of twelve units, comes within a tenth."""
    losses_U, put = by_losses(12)
    entry, plan, definition = shown(objects, put, 6)
    one = entry.settings[0]
    config, gammas = unseen(definition, one.setting)
    every = list(range(12))

    def difference(seed: int, units: list[int]) -> float:
        def rmse(kind: str) -> float:
            rows = [losses_U(config, kind, seed, g)[units] for g in gammas]
            return float(np.mean([GREY * np.sqrt(row.mean()) for row in rows]))

        return rmse("unconstrained") - rmse("constrained")

    pseudo_KU = np.array([
        [
            12 * difference(seed, every) - 11 * difference(seed, [v for v in every if v != u])
            for u in every
        ]
        for seed in plan.seeds
    ])  # fmt: skip
    found = one.contrasts["unconstrained"].units.variance
    expected = variance_components(pseudo_KU)
    assert expected.rest > 0
    assert found.to_json() == pytest.approx(vars(expected), rel=0.1)
    (row,) = [r for r in confirmed_table(entry).rows if r["setting"] == one.setting]
    assert row["variance_unit"] == found.unit


def test_of_accuracy_it_counts_the_samples_of_every_unit(objects: ObjectStore) -> None:
    sizes = [1, 2, 3, 1, 12, 1, 2, 30, 1, 5, 1, 1]
    right_N, put = by_samples(sizes)
    entry, plan, definition = shown(objects, put, 5, TEXTS)
    one = entry.settings[0]
    assert entry.metric == "accuracy"
    config, gammas = unseen(definition, one.setting)
    starts = np.cumsum([0, *sizes])

    right = {
        (kind, seed): [np.split(right_N(config, kind, seed, g), starts[1:-1]) for g in gammas]
        for kind in ("constrained", "unconstrained")
        for seed in plan.seeds
    }

    def accuracy(kind: str, seed: int, units: list[int]) -> float:
        drawn = [np.concatenate([by[u] for u in units]) for by in right[kind, seed]]
        return float(np.mean([values.mean() for values in drawn]))

    def difference(seeds: list[int], units: list[int]) -> float:
        kinds = ("constrained", "unconstrained")
        return float(
            np.mean([
                np.subtract(*(accuracy(kind, plan.seeds[k], units) for kind in kinds))
                for k in seeds
            ])
        )  # fmt: skip

    found = one.contrasts["unconstrained"].units
    assert found.mean == pytest.approx(difference(list(range(5)), list(range(12))), rel=1e-9)
    assert found.mean == pytest.approx(one.contrasts["unconstrained"].mean, rel=1e-6)
    low, high = bootstrapped(difference, 5, 12)
    near = 0.1 * (high - low)  # as above
    assert (found.low, found.high) == pytest.approx((low, high), abs=near)


def test_every_contrast_needs_seeds_and_units_to_agree(objects: ObjectStore) -> None:
    """One unit of twelve makes the whole difference to the control, on every seed."""

    def losses_U(kind: str, seed: int) -> Any:
        own = np.random.default_rng([len(kind), seed]).uniform(0.3, 0.301, 12)
        if kind == "constrained":
            own += 0.002  # a little worse on eleven units
            own[3] -= 0.2
        return own if kind != "unconstrained" else own + 0.3

    entry, _, _ = shown(objects, by_losses(12, losses_U)[1], 8, controls=("detached",))
    one = entry.settings[0]
    plain, control = (one.contrasts[name] for name in ("unconstrained", "detached"))
    assert (plain.outcome, plain.marked) == ("better", "better")
    assert control.units.low < 0 < control.low
    assert (control.outcome, control.marked) == ("better", "undecided")
    said = of_setting(one, entry)
    assert "not shown to beat detached" in said
    assert "better than detached" not in said
    rows = {row["against"]: row for row in confirmed_table(entry).rows if row["level"] == "setting"}
    assert rows["detached"]["outcome"] == "undecided"
    assert rows["detached"]["units_low"] == control.units.low


def test_without_a_result_an_arm_is_the_constant_on_every_unit(objects: ObjectStore) -> None:
    put = by_losses(12)[1]

    def one_fails(store: ArmStore, config: ArmConfig, kind: str, seed: int) -> None:
        if (kind, seed) == ("detached", 1002):
            store.put_record(ended(config, "diverged", "the loss is nan."))
        else:
            put(store, config, kind, seed)

    entry, _, _ = shown(objects, one_fails, 5, controls=("detached",))
    contrasts = entry.settings[0].contrasts
    assert contrasts["unconstrained"].units is not None
    found = contrasts["detached"]
    assert found.units.seeds == found.counted == 5
    assert found.units.mean == pytest.approx(found.mean, rel=1e-6)


def test_an_arm_below_the_constant_prediction_counts_for_more_than_its_units(
    objects: ObjectStore,
) -> None:
    def losses_U(kind: str, seed: int) -> Any:
        far = kind == "unconstrained" and seed == 1001
        return np.random.default_rng([len(kind), seed]).uniform(0.3, 0.4, 12) + far * 10

    entry, _, _ = shown(objects, by_losses(12, losses_U)[1], 5)
    found = entry.settings[0].contrasts["unconstrained"]
    assert found.units.mean == pytest.approx(found.mean, rel=1e-6)


def test_a_replication_without_a_winner_counts_as_no_difference_over_units_too(
    objects: ObjectStore,
) -> None:
    """Replications leave the arms of a seed out where its search found none: both train plainly."""
    put = by_losses(12)[1]
    entry, plan, definition = shown(objects, put, 5)
    arms = read_arms(ArmStore(objects).record, definition, plan)[0]
    left = {
        kind: {seed: one for seed, one in of.items() if seed != 1002}
        for kind, of in arms.outcomes.items()
    }
    read = reader(objects, arms, "unseen_mean")
    with_none = replace(arms, outcomes=left)
    found = over_units(with_none, "unconstrained", plan.seeds, "unseen_mean", read)
    assert found is not None
    assert found.seeds == 5
    per_seed = dict(entry.settings[0].contrasts["unconstrained"].per_seed)
    per_seed["1002"] = 0.0
    assert found.mean == pytest.approx(np.mean(list(per_seed.values())), rel=1e-6)


def test_seeds_without_stored_unit_scores_are_left_out_and_named(objects: ObjectStore) -> None:
    put = by_losses(12)[1]

    def one_lost(store: ArmStore, config: ArmConfig, kind: str, seed: int) -> None:
        put(store, config, kind, seed)
        if seed == 1002:
            objects.delete(f"arms/{config.signature()}/scores.npz")

    entry, _, _ = shown(objects, one_lost, 5)
    found = entry.settings[0].contrasts["unconstrained"].units
    assert found.seeds == 4
    assert "4 of 5 seeds, whose unit scores are stored" in found.name
