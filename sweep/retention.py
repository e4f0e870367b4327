"""Which weights stay: the last iterates of winning pairs; the rest go when their sweep is done.

Records are never touched. An arm may serve several sweeps, so every sweep notes what it keeps and
nothing that another one keeps is dropped.
"""

from __future__ import annotations

from sweep.definition import folder, sweep_names
from sweep.views import SweepView
from trainables.object_store import ObjectStore
from trainables.run_store import RunStore


def keep_winners_weights(objects: ObjectStore, view: SweepView) -> int:
    """Note a finished sweep's winners and drop the weights of its other arms; how many went."""
    winners = [s.chosen.winner for s in view.settings if s.chosen.winner is not None]
    kept = {
        arm.signature
        for winner in winners
        for pair in winner.pairs
        for arm in (pair.constrained, pair.unconstrained)
        if arm is not None
    }
    objects.put_json(_note(view.definition.name), sorted(kept))
    for name in sweep_names(objects):
        kept.update(objects.get_json(_note(name)) or [])
    store = RunStore(objects)
    dropped = [
        arm.signature for arm in view.arms.values() if arm.is_final and arm.signature not in kept
    ]
    for signature in dropped:
        store.drop_weights(signature)
    return len(dropped)


def _note(name: str) -> str:
    return f"{folder(name)}/kept-weights.json"
