"""Optimisers without torch's compiler: its bits, and that no arm imports it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from trainables import optimizers

KINDS = [(optimizers.Adam, torch.optim.Adam), (optimizers.AdamW, torch.optim.AdamW)]

ARM = """
import sys
from dataclasses import replace
from tests.support.oracles import TINY
from trainables.arm_run import ArmRun
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

constraint = replace(TINY.constraint, **eval(sys.argv[2]))
arm = ArmRun(replace(TINY, constraint=constraint), ArmStore(ObjectStore(sys.argv[1])))
while not arm.advance().is_final:
    pass
print(arm.record.status, arm.record.reason)
print([name for name in sys.modules if name.startswith(("torch._dynamo", "sympy"))])
"""


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(s, generator=generator)) for s in ((7,), (16, 3), (64, 64))]


def take_steps(optimizer: torch.optim.Optimizer, count: int, seed: int) -> list[Tensor]:
    """Steps on random gradients; the parameters after each of them."""
    generator, after = torch.Generator().manual_seed(seed), list[Tensor]()
    own = optimizer.param_groups[0]["params"]
    for _ in range(count):
        for parameter in own:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        assert all(parameter.grad is None for parameter in own)
        after.extend(parameter.detach().clone() for parameter in own)
    return after


def equal(ones: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ones, others, strict=True))


@pytest.mark.parametrize(("kind", "of_torch"), KINDS)
@pytest.mark.parametrize("options", [{"fused": True}, {"maximize": True, "weight_decay": 0.1}])
def test_its_steps_and_its_state_are_torchs_own(
    kind: type[optimizers.Adam] | type[optimizers.AdamW],
    of_torch: type[torch.optim.Adam] | type[torch.optim.AdamW],
    options: dict[str, object],
) -> None:
    mine, other = (k(parameters(), lr=1e-2, **options) for k in (kind, of_torch))  # type: ignore[arg-type]
    assert equal(take_steps(mine, 5, 1), take_steps(other, 5, 1))
    again = kind(parameters(), lr=1.0, **options)  # type: ignore[arg-type]
    for one, there in zip(
        again.param_groups[0]["params"], mine.param_groups[0]["params"], strict=True
    ):
        one.data.copy_(there.data)
    again.load_state_dict(other.state_dict())
    assert equal(take_steps(again, 5, 2), take_steps(mine, 5, 2))


@pytest.mark.parametrize("form", [{}, {"dual_optimizer": "adam"}, {"dual_optimizer": "adamw"}])
def test_an_arm_trains_without_torchs_compiler(form: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", ARM, str(tmp_path), repr(form)]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    assert out.stdout.splitlines() == ["finished ", "[]"], out.stdout + out.stderr
