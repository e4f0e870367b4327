"""Groups of arms that one worker trains together: which, and how many."""

from __future__ import annotations

import math

from sweep.run.coordinator import Coordinator
from sweep.study.arms import Arm


def next_group(coordinator: Coordinator, *, most: int, places: float = 1.0) -> list[Arm]:
    """The next arm, and arms of its configuration and seed that may be trained with it.

    Their proposals are asked for before their turn only where no outcome could move them. Those
    that fit are shared out among the places that are free, so that no worker idles for another's
    group.
    """
    first = coordinator.next_arm()
    if first is None:
        return []
    group = [first]

    def fits(arm: Arm) -> bool:
        return arm.unconstrained_signature == first.unconstrained_signature and not _draws(arm)

    plan = coordinator.plan
    measured = plan.definition.space.gpus_per_arm == "measured"  # of arms alone, not of groups
    if most > 1 and first.config.matched_capacity and not measured and not _draws(first):
        # ^ without matched capacity plain arms have another network
        fitting, waiting = (1 + plan.count_fitting(f) for f in (fits, lambda arm: True))
        size = min(most, fitting, math.ceil(waiting / max(1.0, places)))
        while len(group) < size and (arm := coordinator.next_arm(fits)) is not None:
            group.append(arm)
    return group


def _draws(arm: Arm) -> bool:
    """True if its constraint draws samples of its own, so that it cannot share batches."""
    return arm.config.constraint is not None and arm.config.constraint.draws_losses
