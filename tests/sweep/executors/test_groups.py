"""Groups of arms for one worker: who fits, how many, and what is asked for before its turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from search_spaces.alpaca_small import SPACE as ALPACA_SMALL
from search_spaces.space import Sampler, Setting
from sweep.executors.executor import arms_of_a_stack
from sweep.executors.groups import next_group
from sweep.run.budget import Budget, Spending
from sweep.run.coordinator import Coordinator
from sweep.study.arms import Arm
from sweep.study.definition import Definition
from tests.support.toy_sweeps import definition, started, train
from trainables.plain import Json
from trainables.records.objects import ObjectStore


def groups(coordinator: Coordinator, most: int = 8, places: float = 1.0) -> list[list[Arm]]:
    found = []
    while group := next_group(coordinator, most=most, places=places):
        found.append(group)
    return found


def told(group: list[Arm]) -> list[tuple[str, int, int | None]]:
    return [(arm.setting, arm.config.seed, arm.proposal) for arm in group]


def test_a_group_is_of_one_setting_and_seed(objects: ObjectStore) -> None:
    found = groups(started(objects, definition("random", n_proposals=3)))
    assert [told(group) for group in found] == [
        [(setting, seed, proposal) for proposal in (None, 0, 1, 2)]
        for setting in ("g1", "g2")
        for seed in (0, 1)
    ]


def test_settings_that_differ_in_their_constraint_alone_are_one_company(
    objects: ObjectStore,
) -> None:
    asked = definition("random", n_proposals=2, seeds=(0,))
    forms = tuple(
        Setting(name, {"constraint.grad_through_previous": through})
        for name, through in (("lagrangian", True), ("detached", False))
    )
    asked = replace(asked, space=replace(asked.space, settings=forms))
    (group,) = groups(started(objects, asked))
    assert sorted(told(group), key=str) == sorted(
        [
            ("lagrangian", 0, None),  # the unconstrained arm of both
            *((name, 0, number) for name in ("lagrangian", "detached") for number in (0, 1)),
        ],
        key=str,
    )


@pytest.mark.parametrize(("sampler", "first"), [("tpe", 4), ("gp", 4), ("quasi_random", 8)])
def test_proposals_come_before_their_turn_only_where_no_outcome_moves_them(
    objects: ObjectStore, sampler: Sampler, first: int
) -> None:
    """The unconstrained arm, and of TPE and GP the three points before their model."""
    coordinator = started(objects, definition(sampler, n_proposals=7, seeds=(0,), n_settings=1))
    assert len(next_group(coordinator, most=8)) == first


def test_the_points_are_those_of_arms_handed_out_one_by_one(
    objects: ObjectStore, tmp_path: object
) -> None:
    asked = definition("tpe", n_proposals=3, seeds=(0,), n_settings=1)
    together = [arm.signature for arm in next_group(started(objects, asked), most=8)]
    other = ObjectStore(f"{objects.root}-other")
    assert together == [arm.signature for arm in train(started(other, asked))]


def test_what_fits_is_shared_out_among_the_free_places(objects: ObjectStore) -> None:
    coordinator = started(objects, definition("random", n_proposals=6, seeds=(0,), n_settings=1))
    sizes = [len(next_group(coordinator, most=8, places=places)) for places in (3, 2, 1, 1)]
    assert sizes == [3, 2, 2, 0]


def test_places_are_shared_among_companies(objects: ObjectStore) -> None:
    """Two companies of four arms and two places: a whole one each."""
    coordinator = started(objects, definition("random", n_proposals=3, seeds=(0,), n_settings=2))
    sizes = [len(next_group(coordinator, most=8, places=places)) for places in (2, 1, 1)]
    assert sizes == [4, 4, 0]


def test_shares_of_a_gpu_that_were_measured_alone_are_of_no_group(objects: ObjectStore) -> None:
    asked = definition("random", n_proposals=3)
    asked = replace(asked, space=replace(asked.space, gpus_per_arm="measured"))
    assert {len(group) for group in groups(started(objects, asked))} == {1}


def test_no_group_is_larger_than_asked_for(objects: ObjectStore) -> None:
    asked = definition("random", n_proposals=6, seeds=(0,), n_settings=1)
    assert [len(group) for group in groups(started(objects, asked), most=3)] == [3, 3, 1]


def test_one_at_a_time_is_the_plans_own_order(objects: ObjectStore) -> None:
    asked = definition("random")
    alone = [arm for group in groups(started(objects, asked), most=1) for arm in group]
    other = ObjectStore(f"{objects.root}-other")
    assert alone == train(started(other, asked))


def test_arms_of_networks_of_another_size_are_no_company(objects: ObjectStore) -> None:
    asked = definition("random", n_proposals=2, seeds=(0,), n_settings=1)
    dust = {"model.name": "dust", "model.variant": "paper"}
    asked = Definition(asked.name, asked.space.with_base(dust))
    assert [len(group) for group in groups(started(objects, asked))] == [1, 1, 1]


@pytest.mark.parametrize("drawn", [{"inner_tokens": 0.5}, {"inner_layers": 2}])
def test_arms_whose_batches_hold_draws_for_their_constraint_are_no_company(
    objects: ObjectStore, drawn: dict[str, float]
) -> None:
    """A group shares the batches of its first arm: only plain arms could, and there is one."""
    few = {f"constraint.{name}": value for name, value in drawn.items()}
    assert max(map(len, groups(started(objects, Definition("exact", ALPACA_SMALL))))) > 1
    drawing = Definition("drawn", ALPACA_SMALL.with_base(few))
    coordinator = started(objects, drawing)
    assert len(next_group(coordinator, most=8)) == 1
    assert coordinator.plan.arms_total - coordinator.plan.arms_done == 14  # none was asked for yet
    assert {arm.proposal for arm in coordinator.plan.remaining()} == {None}
    assert set(map(len, groups(coordinator))) == {1}


def test_a_budget_of_arms_ends_a_group_too(objects: ObjectStore) -> None:
    asked = definition("random", n_proposals=6, seeds=(0,), n_settings=1)
    spending = Spending(objects, asked, Budget(max_arms=5))
    coordinator = started(objects, asked, spending=spending)
    assert [len(group) for group in groups(coordinator)] == [5]


def test_every_arm_is_handed_out_once_whatever_the_groups(objects: ObjectStore) -> None:
    asked = definition("random", n_proposals=5)
    handed = [arm.signature for group in groups(started(objects, asked), most=4, places=2)
              for arm in group]  # fmt: skip
    assert len(handed) == len(set(handed)) == 2 * 2 * (5 + 1)


@pytest.mark.parametrize(
    ("fields", "arms"),
    [
        ({}, 1),
        ({"device": "cuda"}, 8),
        ({"device": "cuda", "dtype": "bfloat16"}, 1),
        ({"device": "cuda", "data.patch_size": 32, "data.frame_size": 96, "model.layers": 9}, 1),
    ],
)
def test_a_gpu_trains_as_many_small_arms_together_as_a_stack_has_rows(
    fields: dict[str, Json], arms: int
) -> None:
    space = definition("random").space
    assert arms_of_a_stack(replace(space, base=space.base.with_fields(fields))) == arms
