"""Alpha up to which plain training meets the constraint, against judging it at every alpha."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from search_spaces.effects.descent import largest_alpha
from search_spaces.ranges import Choice, Uniform
from search_spaces.settings import Setting
from search_spaces.space import SearchSpace
from sweep.study.feasibility import judge, plain_meets_up_to
from tests.support.oracles import TINY
from tests.support.records import ended, finished
from trainables.config.arm import ConstraintConfig
from trainables.primal_dual.constraints import Scales, binding_alpha
from trainables.records.arm_record import ArmRecord

REFERENCES = ("bound_first", "virtual_layer0", "bound_zero")


def space_of(tolerance: float = 0.1, setting: Setting | None = None, **fields: Any) -> SearchSpace:
    """A space whose only setting has these fields of the constraint."""
    constraint = {f"constraint.{name}": value for name, value in fields.items()}
    return SearchSpace(
        name="toy",
        base=TINY.with_fields(constraint),
        settings=(setting or Setting("one", {}),),
        ranges={"constraint.alpha": Uniform(0.1, 0.5)},
        tolerance=tolerance,
    )


def _is_met(
    plain: list[ArmRecord], constraint: ConstraintConfig, tolerance: float, alpha: float
) -> bool:
    verdict = judge(plain, replace(constraint, alpha=alpha), tolerance)
    assert verdict is not None
    return verdict.feasible


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_it_is_the_alpha_at_which_judging_turns(reference: str, seeds: int) -> None:
    """Random losses and scales by seed; feasible at alpha is tried on a grid, as pairs are."""
    rng = np.random.default_rng([REFERENCES.index(reference), seeds])
    seen = set()
    for tolerance in (0.0, 0.1, 0.5):
        space = space_of(tolerance, reference=reference)
        for _ in range(20):
            start = rng.uniform(0.2, 0.55)  # f0 is the input's loss, 0.5
            losses_SF = [
                list(start * np.cumprod([1.0, *rng.uniform(0.4, 1.05, TINY.model.layers)]))
                for _ in range(seeds)
            ]
            units = rng.uniform(0.9, 1.1, seeds)
            plain = [
                finished(TINY.unconstrained(), losses_F, scales=Scales(unit, identity_loss=0.5))
                for losses_F, unit in zip(losses_SF, units, strict=True)
            ]
            limit = plain_meets_up_to(space, space.settings[0], plain)
            constraint = space.base.constraint
            assert limit is not None
            assert constraint is not None

            is_met = partial(_is_met, plain, constraint, tolerance)
            exceeds = any(
                max(losses_F[:2]) / unit > 0.5 / units[0]
                for losses_F, unit in zip(losses_SF, units, strict=True)
            )
            if not exceeds and limit < 0.99:  # then a seed may meet an alpha, and not a smaller one
                assert not any(map(is_met, (min(limit + 1e-9, 0.999), *rng.uniform(limit, 1.0, 5))))
            for alpha in (*rng.uniform(0.0, 1.0, 5), limit - 1e-9):
                if 0.0 < alpha < limit:
                    assert is_met(alpha)
            seen.add(limit > 0)
    assert seen == {False, True}


def test_a_layer_after_nothing_has_nothing_to_remove() -> None:
    config = ConstraintConfig()
    assert binding_alpha(config, np.array([1.0, 0.5, 0.0, 0.0]), 1.0, 0.1) == 1.0
    assert binding_alpha(config, np.array([1.0, 0.5, 0.0, 0.1]), 1.0, 0.1) == 0.0


def test_f0_that_no_alpha_reaches_is_met_by_none() -> None:
    config = ConstraintConfig()
    assert binding_alpha(config, np.array([2.0, 1.5, 0.5]), 1.0, 0.1) == 0.0
    assert binding_alpha(config, np.array([2.0, 1.01, 0.5]), 1.0, 0.1) == 0.0  # nor a small one
    assert binding_alpha(config, np.array([2.0, 0.99, 0.5]), 1.0, 0.1) > 0.5  # f_0 is not asked


def test_a_loss_that_is_no_number_meets_nothing() -> None:
    for place in (1, 2):
        losses_F = np.array([1.0, 0.5, 0.2])
        losses_F[place] = np.nan
        assert binding_alpha(ConstraintConfig(), losses_F, 1.0, 0.1) == 0.0


def test_nothing_is_known_of_arms_that_have_not_all_finished_or_of_another_question() -> None:
    space = space_of()
    plain = TINY.unconstrained()
    done = finished(plain, [0.5, 0.4, 0.3, 0.2])
    one = space.settings[0]
    assert plain_meets_up_to(space, one, [done]) is not None
    assert plain_meets_up_to(space, one, []) is None
    assert plain_meets_up_to(space, one, [done, ended(plain, "diverged", "nan")]) is None
    control = space_of(weights_by="last_layer")
    assert plain_meets_up_to(control, control.settings[0], [done]) is None
    searched = replace(space, ranges={"constraint.reference_loss": Uniform(0.5, 1.0)})
    assert plain_meets_up_to(searched, one, [done]) is None
    for field, value in (("reference", "bound_zero"), ("weights_by", "last_layer")):
        listed = Setting("one", {}, points={"a": {f"constraint.{field}": value}})
        assert plain_meets_up_to(space_of(setting=listed), listed, [done]) is None
    base = space.base.with_fields({"early_stop": False})
    confirmation = replace(space, base=base, phase="confirmation", ranges={})
    assert plain_meets_up_to(confirmation, one, [done]) is None


def test_the_largest_alpha_is_of_the_range_and_of_listed_points() -> None:
    space = space_of()
    assert largest_alpha(space, space.settings[0]) == 0.5
    narrow = Setting("one", {}, ranges={"constraint.alpha": Choice((0.1, 0.3))})
    assert largest_alpha(space_of(setting=narrow), narrow) == 0.3
    listed = Setting("one", {}, points={"a": {"constraint.alpha": 0.7}})
    assert largest_alpha(space_of(setting=listed), listed) == 0.7
    fixed = replace(space_of(alpha=0.25), ranges={"constraint.dual_lr": Uniform(0.1, 0.2)})
    assert largest_alpha(fixed, fixed.settings[0]) == 0.25
