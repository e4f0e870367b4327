"""The plan: what comes next is a function of the set of facts, and every signature comes once."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.space import Choice, SearchSpace, Setting
from sweep.study.arms import Arm
from sweep.study.definition import Definition
from sweep.study.plan import Ask, Plan
from trainables.config.arm import ArmConfig, ConstraintConfig

ALPHAS = (0.1, 0.2, 0.3, 0.4)


def definition(
    n_settings: int = 2, n_proposals: int = 3, seeds: tuple[int, ...] = (0, 1)
) -> Definition:
    space = SearchSpace(
        name="toy",
        summary="",
        base=ArmConfig(constraint=ConstraintConfig()),
        settings=tuple(Setting(f"L{n}", {"model.layers": n}) for n in range(2, 2 + n_settings)),
        ranges={"constraint.alpha": Choice(ALPHAS)},
        n_proposals=n_proposals,
        search_seeds=seeds,
    )
    return Definition("toy", space)


def point(alpha: float) -> dict[str, float]:
    return {"constraint.alpha": alpha}


def order_of(plan: Plan) -> list[Arm | Ask]:
    """Everything that the plan hands out when nothing more happens."""
    found = []
    while (step := plan.next()) is not None:
        found.append(step)
    return found


def test_unconstrained_arms_come_first_then_proposals_number_by_number() -> None:
    plan = Plan(definition())
    steps = []
    while (step := plan.next()) is not None:
        steps.append(step)
        if isinstance(step, Ask):
            plan.add_proposal(step.setting, step.number, point(ALPHAS[step.number]))
    arms = [(s.proposal, s.setting, s.config.seed) for s in steps if isinstance(s, Arm)]
    baselines = [(None, setting, seed) for setting in ("L2", "L3") for seed in (0, 1)]
    proposed = [(k, setting, seed) for k in range(3) for setting in ("L2", "L3") for seed in (0, 1)]
    assert arms == baselines + proposed
    assert plan.is_handed_out
    assert not plan.is_done


def test_a_setting_that_wants_fewer_proposals_is_asked_for_no_more() -> None:
    space = definition().space
    first, second = space.settings
    capped = dataclasses.replace(first, n_proposals=1)
    plan = Plan(Definition("toy", dataclasses.replace(space, settings=(capped, second))))
    assert plan.arms_total == 4 + (1 + 3) * 2
    asked, arms = [], []
    while (step := plan.next()) is not None:
        if isinstance(step, Ask):
            asked.append((step.number, step.setting))
            plan.add_proposal(step.setting, step.number, point(ALPHAS[step.number]))
        else:
            arms.append(step)
    assert asked == [(0, "L2"), (0, "L3"), (1, "L3"), (2, "L3")]
    assert len(arms) == plan.arms_total
    for arm in arms:
        assert not plan.is_done
        plan.arm_is_final(arm.signature)
    assert plan.is_done


def test_a_baseline_shared_by_settings_is_handed_out_once() -> None:
    space = definition(n_settings=1).space
    twice = dataclasses.replace(
        space,
        settings=(
            Setting("detached", {"constraint.grad_through_previous": False}),
            Setting("lagrangian", {"constraint.grad_through_previous": True}),
        ),
    )
    plan = Plan(Definition("toy", twice))
    arms = [s for s in order_of(plan) if isinstance(s, Arm)]
    assert [arm.config.seed for arm in arms] == [0, 1]
    assert plan.arms_total == 2 + 2 * 3 * 2


def test_equal_points_are_trained_once_and_count_for_both_proposals() -> None:
    plan = Plan(definition(n_settings=1, n_proposals=2, seeds=(0,)))
    plan.add_proposal("L2", 1, point(0.2))
    plan.add_proposal("L2", 0, point(0.2))
    arms = [s for s in order_of(plan) if isinstance(s, Arm)]
    assert [arm.proposal for arm in arms] == [None, 0]
    for arm in arms:
        plan.arm_is_final(arm.signature)
    assert plan.is_done


def test_a_sweep_is_done_when_every_arm_is_final_and_not_before() -> None:
    plan = Plan(definition(n_settings=1, n_proposals=1, seeds=(0,)))
    baseline, ask = plan.next(), plan.next()
    assert isinstance(baseline, Arm)
    assert ask == Ask("L2", 0)
    assert not plan.is_handed_out  # the asked-for proposal will bring an arm
    plan.add_proposal("L2", 0, point(0.1))
    plan.arm_is_final(baseline.signature)
    assert not plan.is_done
    arm = plan.next()
    assert isinstance(arm, Arm)
    assert plan.is_handed_out
    plan.arm_is_final(arm.signature)
    assert plan.is_done
    assert (plan.arms_done, plan.arms_total) == (2, 2)


def test_a_retired_setting_is_asked_for_nothing_and_its_stored_arms_are_trained() -> None:
    plan = Plan(definition(n_settings=2, n_proposals=2, seeds=(0,)))
    plan.add_proposal("L2", 0, point(0.1))
    plan.retire("L2")
    steps = order_of(plan)
    assert [s for s in steps if isinstance(s, Ask)] == [Ask("L3", 0), Ask("L3", 1)]
    assert [s.setting for s in steps if isinstance(s, Arm)] == ["L2", "L3", "L2"]


def test_an_arm_that_is_given_back_comes_again_at_its_place() -> None:
    plan = Plan(definition(n_settings=1, seeds=(0, 1)))
    first, second = plan.next(), plan.next()
    assert isinstance(first, Arm)
    assert isinstance(second, Arm)
    plan.give_back(first)
    plan.give_back(first)  # twice is once
    assert plan.next() == first
    assert isinstance(plan.next(), Ask)
    plan.arm_is_final(second.signature)
    plan.give_back(second)  # too late: it is final
    assert isinstance(plan.next(), Ask)


def test_more_proposals_or_seeds_ask_for_what_is_missing_only() -> None:
    small = definition(n_settings=1, n_proposals=1, seeds=(0,))
    plan = Plan(small.extended(n_proposals=2, search_seeds=(0, 1)))
    old = Plan(small)
    final = [a.signature for a in old.add_proposal("L2", 0, point(0.1))]
    final += [a.signature for a in old.baselines["L2"]]
    plan.add_proposal("L2", 0, point(0.1))
    for signature in final:
        plan.arm_is_final(signature)
    steps = order_of(plan)
    arms = [(s.proposal, s.config.seed) for s in steps if isinstance(s, Arm)]
    assert arms == [(None, 1), (0, 1)]
    assert steps[-1] == Ask("L2", 1)


def test_upcoming_says_what_next_would_ask_for_and_changes_nothing() -> None:
    plan = Plan(definition(n_settings=1, n_proposals=1, seeds=(0,)))
    assert plan.upcoming() is None  # a baseline is next
    plan.next()
    assert plan.upcoming() == Ask("L2", 0)
    assert plan.next() == Ask("L2", 0)
    assert plan.upcoming() is None


# A fact is a stored proposal, a final arm or a retired setting; in between, a driver is at work.
@st.composite
def histories(draw: st.DrawFn) -> tuple[Definition, list[tuple[str, int, float]], list[int], bool]:
    asked = definition(
        n_settings=draw(st.integers(1, 3)),
        n_proposals=draw(st.integers(1, 4)),
        seeds=draw(st.sampled_from([(0,), (0, 1), (3, 1)])),
    )
    names = [s.name for s in asked.space.settings]
    keys = [(name, k) for name in names for k in range(asked.space.n_proposals)]
    stored = draw(st.lists(st.sampled_from(keys), unique=True))
    proposals = [(name, k, draw(st.sampled_from(ALPHAS))) for name, k in stored]
    return asked, proposals, draw(st.lists(st.integers(0, 40), max_size=20)), draw(st.booleans())


@settings(max_examples=60, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_the_plan_is_a_function_of_the_set_of_facts(
    history: tuple[Definition, list[tuple[str, int, float]], list[int], bool], rng: random.Random
) -> None:
    asked, proposals, final, retires = history
    signatures = [a.signature for arms in Plan(asked).baselines.values() for a in arms]
    known = Plan(asked)
    signatures += [a.signature for s, k, x in proposals for a in known.add_proposal(s, k, point(x))]
    finals = [signatures[i % len(signatures)] for i in final]
    facts: list[tuple[object, ...]] = [("proposed", *p) for p in proposals]
    facts += [("final", signature) for signature in finals]
    facts += [("retired", asked.space.settings[0].name)] if retires else []

    def tell(plan: Plan, fact: tuple[object, ...]) -> None:
        if fact[0] == "proposed":
            plan.add_proposal(fact[1], fact[2], point(fact[3]))  # type: ignore[arg-type]
        elif fact[0] == "final":
            plan.arm_is_final(fact[1])  # type: ignore[arg-type]
        else:
            plan.retire(fact[1])  # type: ignore[arg-type]

    rebuilt = Plan(asked)
    for fact in facts:
        tell(rebuilt, fact)
    lived = Plan(asked)
    handed_out: list[Arm] = []
    for fact in rng.sample(facts, len(facts)):
        for _ in range(rng.randrange(3)):
            step = lived.next()
            if isinstance(step, Arm):
                handed_out.append(step)
        tell(lived, fact)

    # Each signature once, and the baselines before everything else that was known with them.
    assert len({arm.signature for arm in handed_out}) == len(handed_out)
    assert lived.is_done == rebuilt.is_done
    assert (lived.arms_done, lived.arms_total) == (rebuilt.arms_done, rebuilt.arms_total)
    for arm in handed_out:
        lived.give_back(arm)
    assert list(lived.remaining()) == list(rebuilt.remaining())
    ours = [step for step in order_of(lived) if isinstance(step, Arm)]
    theirs = [step for step in order_of(rebuilt) if isinstance(step, Arm)]
    assert ours == theirs
    proposed = [arm.proposal is not None for arm in ours]
    assert proposed == sorted(proposed)


@pytest.mark.parametrize("n_proposals", [1, 5])
def test_arms_total_counts_what_is_still_to_be_proposed(n_proposals: int) -> None:
    plan = Plan(definition(n_settings=2, n_proposals=n_proposals, seeds=(0, 1)))
    assert plan.arms_total == 2 * 2 + 2 * 2 * n_proposals
    plan.add_proposal("L2", 0, point(0.1))
    assert plan.arms_total == 2 * 2 + 2 * 2 * n_proposals
    plan.retire("L3")
    assert plan.arms_total == 2 * 2 + 2 * n_proposals
