"""Retention of weights: winners' last iterates stay, others go after the sweep.

Records are never touched. An arm may serve several sweeps, so every sweep notes what it keeps, one
that is not done keeps all that it has asked for, and nothing that another sweep keeps is dropped.
Unconstrained arms keep their weights: they are few, and baselines of winners that are yet to come.
"""

from __future__ import annotations

from sweep.results.sweep_view import SweepView
from sweep.study.advice import command, note
from sweep.study.arms import all_judged, stored_arms
from sweep.study.definition import Definition, definition_of_any_version, folder, sweep_names
from trainables.errors import UnknownName, UnreadableObject
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def keep_winners_weights(objects: ObjectStore, view: SweepView) -> int:
    """Note a finished sweep's winners and drop the weights of its other arms; return how many.

    None are dropped, with a note to the user, while another sweep cannot be read: it may keep any
    of them. Raises StoreError when the store cannot be written; the sweep's results are stored all
    the same.
    """
    winners = [s.chosen.winner for s in view.settings if s.chosen.winner is not None]
    kept = {pair.constrained.signature for winner in winners for pair in winner.pairs}
    name = view.definition.name
    # Noted before anything is dropped: another sweep that ends meanwhile reads which arms to keep.
    objects.put_json(_note_name(name), sorted(kept))
    for other in sweep_names(objects):
        if other == name:
            continue
        try:
            definition = definition_of_any_version(objects, other)
        except UnknownName:  # removed meanwhile
            continue
        except UnreadableObject as error:
            again = command("resume", name, storage=objects.root)
            note(
                f"the weights of arms that did not win stay: {other} may keep them. {error} Then "
                f"`{again}` drops what nobody keeps."
            )
            return 0
        kept |= _kept_by(objects, definition)
    store = ArmStore(objects)
    dropped = [
        arm.signature
        for arm in view.arms.values()
        if arm.is_final and arm.proposal is not None and arm.signature not in kept
    ]
    for signature in dropped:
        store.drop_weights(signature)
    return len(dropped)


def _kept_by(objects: ObjectStore, definition: Definition) -> set[str]:
    """Arms that a sweep noted, and all arms of its proposals while it is not done."""
    noted: set[str] | None = objects.get_derived(_note_name(definition.name), set)
    if noted is not None and all_judged(objects, definition):
        return noted
    arms = stored_arms(objects, definition)
    return {arm.signature for arm in arms if arm.proposal is not None} | (noted or set())


def _note_name(name: str) -> str:
    return f"{folder(name)}/kept-weights.json"
