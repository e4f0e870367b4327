"""Least descent: of built-in spaces where alpha begins, of others told where it asks for less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from search_spaces.catalog import find, space_names
from search_spaces.effects.idle import idle_ranges
from search_spaces.paper.spaces import PAPER_SPACES
from search_spaces.ranges import Choice, Uniform
from sweep.study.pairs import ROUNDING
from sweep.study.sampler import propose
from trainables.errors import InvalidValue
from trainables.primal_dual.constraints import demanded_descent

DEPTHS = {"distilbert": 6, "roberta": 24, "llama": 32}  # of encoders, whose checkpoints say it


@pytest.mark.parametrize("name", sorted({*space_names()} - {*PAPER_SPACES}))
def test_ranges_of_alpha_begin_where_a_winner_may_lie(name: str) -> None:
    """What asks for less cannot win, whatever it comes to: an arm spent on it is wasted."""
    space = find(name).space
    for setting in space.settings:
        config = space.run(setting, space.default_point(setting), seed=0)
        assert config.constraint is not None
        layers = config.model.layers or DEPTHS.get(setting.name.split("-")[1], 6)
        of_alpha = space.ranges_of(setting)["constraint.alpha"]
        assert isinstance(of_alpha, Uniform)
        least = setting.least_descent
        demanded = [
            demanded_descent(replace(config.constraint, alpha=alpha), layers)
            for alpha in (of_alpha.low, config.constraint.alpha)
        ]
        assert min(demanded) >= least - ROUNDING
        if config.train_gamma > 0 and not name.startswith("minilm"):  # those search nothing
            below = replace(config.constraint, alpha=of_alpha.low - 0.003)  # rounded up
            assert demanded_descent(below, layers) < least


@pytest.mark.parametrize("setting", ["ucsd_ped2-ut-L5-g0.15", "ucsd_ped2-ut-L5-g0.15-detached"])
def test_no_proposal_of_a_built_in_space_asks_for_too_little(setting: str) -> None:
    space = find("ped2_ut").space
    one = space.setting(setting)
    for number in range(12):
        point = propose(space, setting, number, [])
        run = space.run(one, point, seed=0)
        assert run.constraint is not None
        assert demanded_descent(run.constraint, run.model.layers) >= one.least_descent


def test_a_space_whose_alpha_asks_for_too_little_is_told_so() -> None:
    space = find("ped2_ut").space
    own = {**space.settings[-1].ranges, "constraint.alpha": Uniform(0.05, 0.39)}
    wide = replace(space, settings=(replace(space.settings[-1], ranges=own),))
    (warning,) = idle_ranges(wide)
    assert "constraint.alpha cannot win in 16% of its range" in warning
    assert "must ask for 36% of f0" in warning
    assert "Begin the range there." in warning
    chosen = {**own, "constraint.alpha": Choice((0.1, 0.106))}
    (warning,) = idle_ranges(replace(space, settings=(replace(wide.settings[0], ranges=chosen),)))
    assert "in 50% of its range" in warning
    assert "below 0.106" in warning
    free = replace(wide.settings[0], least_descent=0.0)
    assert idle_ranges(replace(wide, settings=(free,))) == []


def test_least_descents_and_tolerances_that_are_no_shares_are_refused() -> None:
    space = find("quickstart").space
    for wrong in (1.0, -0.1, float("nan"), "much"):
        settings = (replace(space.settings[0], least_descent=wrong),)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="least_descent of setting"):
            replace(space, settings=settings)
        with pytest.raises(InvalidValue, match="tolerance must be a fraction"):
            replace(space, tolerance=wrong)  # type: ignore[arg-type]
