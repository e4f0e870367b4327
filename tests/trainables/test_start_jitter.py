"""Jittered starts: keyed by the seed and the parameter's name, alike in both arms."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.support.oracles import TINY
from trainables.build import build_model, build_task
from trainables.config.arm import ArmConfig
from trainables.models.ut import UT
from trainables.random_keys import keyed_generator


def start(config: ArmConfig) -> dict[str, Tensor]:
    task = build_task(config, torch.device("cpu"), torch.float32)
    return dict(build_model(config, task).named_parameters())


@pytest.mark.parametrize("model", ["ut", "dust"])
def test_a_jittered_start_is_that_of_the_formula_and_the_same_in_both_arms(model: str) -> None:
    plain = TINY.with_fields({"model.name": model, "seed": 3})
    jittered = plain.with_fields({"model.start_jitter": 0.5})
    before, after = start(plain), start(jittered)
    for name, parameter in before.items():
        rms = parameter.detach().square().mean().sqrt()
        drawn = torch.randn(parameter.shape, generator=keyed_generator("cpu", 3, "start", name))
        # 1e-6: float32
        torch.testing.assert_close(
            after[name].detach(), parameter.detach() + 0.5 * rms * drawn, rtol=1e-6, atol=1e-6
        )
    for name, parameter in start(jittered.unconstrained()).items():
        assert torch.equal(parameter, after[name])
    other = start(replace(jittered, seed=4))
    assert not any(torch.equal(other[name], after[name]) for name in after if after[name].any())
    alike = start(replace(plain, seed=4))
    assert all(torch.equal(before[name], alike[name]) for name in before)


def test_what_is_zero_or_not_trained_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(UT):
        def __init__(self) -> None:
            super().__init__(layers=2, patch_size=4, variant="distance", noise_energy=1.0)
            self.zero = nn.Parameter(torch.zeros(3))
            self.fixed = nn.Parameter(torch.ones(3), requires_grad=False)

    monkeypatch.setattr("trainables.build.returning", lambda *_: lambda *_: Odd())
    found = dict(
        build_model(TINY.with_fields({"model.start_jitter": 0.5}), None).named_parameters()
    )
    assert torch.equal(found["zero"], torch.zeros(3))
    assert torch.equal(found["fixed"], torch.ones(3))
