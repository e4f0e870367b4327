"""Landscapes in closed form: a lattice of arms whose outcomes are functions of their place."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from benchmarks.landscape.landscape import Landscape
from search_spaces.quickstart import SPACE
from search_spaces.ranges import LogUniform, Uniform, at_fraction
from trainables.plain import Json

RANGES = {"constraint.alpha": Uniform(0.05, 0.25), "constraint.dual_lr": LogUniform(1e-4, 1e-2)}
STEPS = 40


def lattice(side: int) -> list[tuple[float, float]]:
    """The centres of side x side equal cells of the unit square."""
    centres = [(index + 0.5) / side for index in range(side)]
    return list(itertools.product(centres, centres))


def landscape_of(
    places: list[tuple[float, float]], came_to: Callable[[float, float], dict[str, Json]]
) -> Landscape:
    """Finished arms, better than trivial, at fractions of the box; ``came_to`` has their results.

    It gives at least ``objective`` and ``missing``, the share reported at every quarter of the
    steps; feasible is what misses 0.1 at most.
    """
    arms = []
    for number, shares in enumerate(places):
        said = came_to(*shares)
        missing, losses = said["missing"], said.get("losses", [1.0] * 4)
        point = {n: at_fraction(r, u) for (n, r), u in zip(RANGES.items(), shares, strict=True)}
        reports = [
            {"step": step, "loss": loss, "worst_missing_share": share, "largest_multiplier": 0.0}
            for step, loss, share in zip((10, 20, 30, STEPS), losses, missing, strict=True)
        ]
        arms.append(
            {
                "number": number,
                "shares": list(shares),
                "point": point,
                "status": "finished",
                "worst_missing_share": missing[-1],
                "feasible": missing[-1] <= 0.1,
                "beats_trivial": True,
                "not_binding": False,
                "objective": said["objective"],
                "demanded_descent": said.get("demanded_descent", 1.0),
                "would_end": said.get("would_end"),
                "reports": reports,
            }
        )
    setting = SPACE.settings[0]
    return Landscape(
        {
            "space": "quickstart",
            "setting": setting.name,
            "base": SPACE.run(setting, {}, seed=0).with_fields({"steps": STEPS}).to_json(),
            "ranges": {name: values.to_json() for name, values in RANGES.items()},
            "tolerance": 0.1,
            "unconstrained": {"objective": 0.0},
            "arms": arms,
        }
    )
