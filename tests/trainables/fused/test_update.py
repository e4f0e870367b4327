"""Joint update against every arm's own clipping and optimiser: every bit, whatever the sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from trainables.fused.update import JointUpdate

SHAPES = ((), (2,), (33,), (16,), (3, 5), (64, 64), (7, 16, 3), (1,))
ARMS, STEPS, MOST = 5, 60, 1.0


def arms_of(seed: int, count: int = ARMS) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        {str(s): nn.Parameter(torch.randn(s, generator=generator)) for s in SHAPES}
        for _ in range(count)
    ]


def optimizer_of(arm: dict[str, Tensor], decay: float) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    vectors, others = (
        [p for p in arm.values() if (p.ndim == 1) == is_one] for is_one in (True, False)
    )
    groups = [
        {"params": vectors, "lr": 1e-2, "weight_decay": 0.0},
        {"params": others, "lr": 1e-3, "weight_decay": decay},
    ]
    return kind(groups, fused=True)


@pytest.mark.parametrize(("decay", "count"), [(0.0, ARMS), (0.1, ARMS), (0.0, 1)])
def test_a_joint_step_is_every_arms_own(decay: float, count: int) -> None:
    """Gradients of all sizes, from far below the clip to infinite; given back twice on the way."""
    alone, together = arms_of(0, count), arms_of(0, count)
    own = [optimizer_of(arm, decay) for arm in alone]
    theirs = [optimizer_of(arm, decay) for arm in together]
    generator = torch.Generator().manual_seed(1)
    update = JointUpdate(together, theirs)
    for step in range(STEPS):
        lrs = [1e-2 * 0.9**step, 1e-3 * 0.9**step]
        for name, rows in update.stack.items():
            if name == "(1,)" and step < 3:
                continue  # no loss depends on it yet: it has no gradient
            drawn = torch.randn(rows.shape, generator=generator) * 10.0 ** (step % 7 - 5)
            if step == STEPS - 1:
                drawn[0] = torch.inf
            rows.grad = drawn
            for row, arm in enumerate(alone):
                arm[name].grad = drawn[row].clone()
        norms = []
        for arm, optimizer in zip(alone, own, strict=True):
            norms.append(nn.utils.clip_grad_norm_(arm.values(), MOST))
            for group, lr in zip(optimizer.param_groups, lrs, strict=True):
                group["lr"] = lr
            optimizer.step()
        assert torch.equal(update.step(MOST, lrs), torch.stack(norms))
        if step in (20, 40, STEPS - 1):
            update.give_back()
            for mine, other in zip([*alone, *own], [*together, *theirs], strict=True):
                require_equal(mine, other)
            update = JointUpdate(together, theirs)


def require_equal(
    mine: dict[str, Tensor] | torch.optim.Optimizer,
    other: dict[str, Tensor] | torch.optim.Optimizer,
) -> None:
    if isinstance(mine, torch.optim.Optimizer):
        assert isinstance(other, torch.optim.Optimizer)
        states = mine.state_dict(), other.state_dict()
        assert states[0]["param_groups"] == states[1]["param_groups"]
        assert states[0]["state"].keys() == states[1]["state"].keys()
        for at, state in states[0]["state"].items():
            require_equal(state, states[1]["state"][at])
        return
    assert isinstance(other, dict)
    for name, value in mine.items():
        assert torch.equal(value.nan_to_num(7.0), other[name].nan_to_num(7.0)), name


def test_arms_that_have_not_stepped_equally_often_are_refused() -> None:
    arms = arms_of(0)
    optimizers = [optimizer_of(arm, 0.0) for arm in arms]
    for arm, optimizer in zip(arms[:2], optimizers, strict=False):
        for parameter in arm.values():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    with pytest.raises(RuntimeError, match="as many steps"):
        JointUpdate(arms, optimizers)


def test_what_an_arm_stores_is_its_own_memory_alone() -> None:
    """A view would drag all arms' rows into its checkpoint."""
    arms = arms_of(0)
    optimizers = [optimizer_of(arm, 0.0) for arm in arms]
    update = JointUpdate(arms, optimizers)
    for rows in update.stack.values():
        rows.grad = torch.ones_like(rows)
    update.step(MOST, [1e-2, 1e-3])
    update.give_back()
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for moment in (state["exp_avg"], state["exp_avg_sq"]):
                assert moment.untyped_storage().nbytes() == parameter.untyped_storage().nbytes()
