"""Every early sign fires on what it names, and stays silent on a sane run."""

from __future__ import annotations

from dataclasses import replace

from tests.oracles import TINY
from trainables.config import RunConfig
from trainables.early_signs import early_signs
from trainables.primal_dual import Scales
from trainables.results import Report

SCALES = Scales(constant_loss=1.0, identity_loss=0.5)
SANE = {
    "losses": [0.5, 0.4, 0.3, 0.2],
    "missing_shares": [0.0, 0.0, 0.0],
    "violations": [-0.1, -0.1, -0.1],
    "multipliers": [0.0, 0.1, 0.0],
    "weights": [0.0, 0.1, 0.1, 1.0],
}


def signs(config: RunConfig = TINY, step: int = 20, **layers: list[float]) -> list[str]:
    before = Report(step=step - 10, timestamp_ms=1, layers=SANE)
    return early_signs(
        config, SCALES, [before, Report(step=step, timestamp_ms=2, layers={**SANE, **layers})]
    )


def adam() -> RunConfig:
    assert TINY.constraint is not None
    return replace(TINY, constraint=replace(TINY.constraint, dual_optimizer="adam"))


def test_a_sane_run_gives_none() -> None:
    assert signs() == []
    assert signs(adam(), multipliers=[0.0, 0.05, 0.0]) == []


def test_a_blank_output_is_named() -> None:
    assert "blank" in signs(losses=[0.5, 2.0, 2.0, 2.0])[0]


def test_an_output_that_is_no_better_than_the_input_is_named_after_a_quarter() -> None:
    flat = [0.5, 0.5, 0.5, 0.5]
    assert "unchanged input" in signs(losses=flat)[0]
    assert signs(step=9, losses=flat) == []


def test_a_multiplier_that_only_rose_while_its_layer_misses_is_named() -> None:
    # dual_lr 0.05, clip 1, 20 steps: at most 1.0
    wound = {"multipliers": [0.0, 0.9, 0.0], "missing_shares": [0.0, 0.7, 0.0]}
    assert "layer 2 only ever rose" in signs(**wound)[0]
    assert signs(multipliers=[0.0, 0.9, 0.0]) == []  # its constraint is met
    assert signs(**{**wound, "multipliers": [0.0, 0.7, 0.0]}) == []


def test_without_a_clip_a_huge_multiplier_is_named() -> None:
    assert TINY.constraint is not None
    unclipped = replace(TINY, constraint=replace(TINY.constraint, signal_clip=None))
    missed = [0.0, 0.7, 0.0]
    assert signs(unclipped, multipliers=[0.0, 19.0, 0.0], missing_shares=missed) != []
    assert signs(unclipped, multipliers=[0.0, 10.0, 0.0], missing_shares=missed) == []


def test_a_layer_that_is_paid_to_rise_is_named() -> None:
    risen = [0.5, 1.6, 0.3, 0.2]
    assert "Layer 1 is paid" in signs(losses=risen, weights=[0.0, -0.1, 0.1, 1.0])[0]
    assert signs(losses=risen) == []
    assert signs(losses=[0.5, 1.4, 0.3, 0.2], weights=[0.0, -0.1, 0.1, 1.0]) == []


def test_stale_moments_of_adam_are_named() -> None:
    stale = {"multipliers": [0.0, 0.099, 0.0], "violations": [-0.1, -0.6, -0.1]}
    assert "stale moments" in signs(adam(), **stale)[0]
    assert signs(**stale) == []  # not Adam
    assert signs(adam(), **{**stale, "violations": [-0.1, -0.1, -0.1]}) == []
