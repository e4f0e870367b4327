"""Least descent of the built-in spaces: not nothing, not more than is tried first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from search_spaces.catalog import find, space_names
from search_spaces.ranges import Uniform
from trainables.errors import InvalidValue
from trainables.primal_dual.constraints import demanded_descent

DEPTHS = {"distilbert": 6, "roberta": 24, "llama": 32}  # of encoders, whose checkpoints say it


@pytest.mark.parametrize("name", space_names())
def test_the_first_proposal_asks_for_the_least_descent_and_the_weakest_one_does_not(
    name: str,
) -> None:
    space = find(name).space
    for setting in space.settings:
        config = space.run(setting, space.default_point(setting), seed=0)
        assert config.constraint is not None
        layers = config.model.layers or DEPTHS.get(setting.name.split("-")[1], 6)
        of_alpha = space.ranges_of(setting)["constraint.alpha"]
        assert isinstance(of_alpha, Uniform)
        weakest = replace(config.constraint, alpha=of_alpha.low)
        assert demanded_descent(config.constraint, layers) >= setting.least_descent
        if config.train_gamma > 0 and not name.startswith("minilm"):  # those search nothing
            least = setting.least_descent
            assert least > 0
            assert demanded_descent(weakest, layers) <= least + 0.01  # least ones are rounded down


def test_least_descents_and_tolerances_that_are_no_shares_are_refused() -> None:
    space = find("quickstart").space
    for wrong in (1.0, -0.1, float("nan"), "much"):
        settings = (replace(space.settings[0], least_descent=wrong),)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="least_descent of setting"):
            replace(space, settings=settings)
        with pytest.raises(InvalidValue, match="tolerance must be a share"):
            replace(space, tolerance=wrong)  # type: ignore[arg-type]
