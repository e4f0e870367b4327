"""Joint weighting of arms against the weighting of each alone: every bit, in every form."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.training.forms import EPOCH, FORMS, config_of
from trainables.build import weighting_of
from trainables.config.arm import ArmConfig
from trainables.errors import InvalidValue
from trainables.fused.weighting import JointWeighting, has_same_bits
from trainables.primal_dual import constraints
from trainables.primal_dual import dual_variables as duals
from trainables.primal_dual.constraints import Scales
from trainables.primal_dual.lagrangian import PrimalDual
from trainables.primal_dual.weighting import LastLayer, Weighting
from trainables_testing.tiny_runs import CPU

STEPS = 3 * EPOCH + 2
SCALES = Scales(constant_loss=2.0, identity_loss=1.7)
# Adam and slacks stay each arm's own.
OWN = ("adam", "slack", "all at once")


def arms_of(form: dict[str, Any], count: int = 5) -> list[ArmConfig]:
    """Of one form and other numbers, every other one detached, with a plain arm among them."""
    base = config_of(form, dtype="float32")
    assert base.constraint is not None
    arms = []
    for k in range(count):
        fields = {
            "constraint.alpha": 0.05 + 0.9 * k / count,
            "constraint.dual_lr": base.constraint.dual_lr * (1 + k / 3),
            "constraint.resilience": base.constraint.resilience * (1 + k / 7),
            "constraint.grad_through_previous": k % 2 == 0,
        }
        try:
            arms.append(base.with_fields(fields))
        except InvalidValue:  # of forms that allow no other decay, or no detached arm
            arms.append(base.with_fields({"constraint.alpha": 0.05 + 0.9 * k / count}))
    return [arms[0], base.unconstrained(), *arms[1:]]


def weightings_of(configs: list[ArmConfig]) -> list[Weighting]:
    return [
        weighting_of(config, SCALES, CPU, torch.float32, steps_per_epoch=EPOCH)
        for config in configs
    ]


def losses_of(arms: int, layers: int, step: int) -> Tensor:
    return torch.rand(arms, layers + 1, generator=torch.Generator().manual_seed(step)) * 1.5


def parts_of(weightings: list[Weighting]) -> int:
    return len(JointWeighting(weightings)._parts)


@pytest.mark.parametrize("form", FORMS)
def test_arms_together_have_the_weights_and_the_state_of_each_alone(form: str) -> None:
    configs = arms_of(FORMS[form])
    alone, together = weightings_of(configs), weightings_of(configs)
    layers = configs[0].model.layers
    assert has_same_bits(alone, layers)
    joint = JointWeighting(together)
    for step in range(STEPS):
        losses_KF = losses_of(len(configs), layers, step)
        own = [w.weights(step, f) for w, f in zip(alone, losses_KF, strict=True)]
        assert torch.equal(joint.weights(step, losses_KF), torch.stack(own))
        for weighting, losses_F in zip(alone, losses_KF, strict=True):
            weighting.observe(step, losses_F, 1 - step / 50)
        joint.observe(step, losses_KF, 1 - step / 50)
        if step % 7 == 4:  # a report
            joint.give_back()
            for mine, theirs in zip(alone, together, strict=True):
                same(mine.series(), theirs.series())
                same(mine.state_dict(), theirs.state_dict())
            joint = JointWeighting(together)


def same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize("form", FORMS)
def test_constraints_that_differ_in_numbers_are_one_weighting(form: str) -> None:
    weightings = weightings_of(arms_of(FORMS[form]))
    constrained = [w for w in weightings if not isinstance(w, LastLayer)]
    if any(word in form for word in OWN):
        assert parts_of(constrained) == len(constrained)
    else:
        assert parts_of(constrained) <= 2  # a ratio's detached arms are another formula
        assert parts_of(weightings) == parts_of(constrained) + 1


class Counted(TorchDispatchMode):
    """Counts operations."""

    count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_the_operations_of_a_step_do_not_grow_with_the_arms() -> None:
    counts, at_reports = [], []
    for arms in (4, 32):
        configs = arms_of({}, arms)
        joint = JointWeighting(weightings_of(configs))
        with Counted() as counted:
            losses_KF = losses_of(len(configs), configs[0].model.layers, 0)
            joint.weights(0, losses_KF)
            joint.observe(0, losses_KF, 1.0)
        with Counted() as at_report:
            joint.give_back()
        counts.append(counted.count)
        at_reports.append(at_report.count / len(configs))
    assert counts[0] == counts[1]
    assert at_reports[1] < 1.2 * at_reports[0]


@pytest.mark.parametrize("form", [{}, {"dual_every": 9}, {"dual_every_unit": "epoch"}])
def test_where_a_stack_rounds_in_another_way_arms_keep_their_own_weightings(
    form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    weightings = weightings_of(arms_of(form))
    before = copy.deepcopy(weightings)
    assert has_same_bits(weightings, 3)
    for one, other in zip(before, weightings, strict=True):  # it was tried on copies
        same(one.state_dict(), other.state_dict())
        assert not isinstance(one, PrimalDual) or one.config == other.config
    for holder, name in ((constraints, "_times"), (constraints, "_mixed"), (duals, "dual_step")):
        exact = getattr(holder, name)

        def rounded(first: Tensor, *others: Any, exact: Any = exact, **rates: Any) -> Tensor:
            found: Tensor = exact(first, *others, **rates)
            joint = max(value.ndim for value in (first, *others))
            return found * (1 + 2**-20) if joint > (1 if rates else 2) else found

        with monkeypatch.context() as patched:
            patched.setattr(holder, name, rounded)
            assert not has_same_bits(weightings, 3), name
