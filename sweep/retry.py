"""Train failed arms once more: forget their records, and what their proposals came to."""

from __future__ import annotations

from sweep.definition import Definition
from sweep.plan import Arm, arms_of_proposal, baselines
from sweep.proposals import drop_outcome, stored_proposals
from trainables.object_store import ObjectStore
from trainables.run_store import RunStore


def forget_failed(objects: ObjectStore, definition: Definition) -> list[str]:
    """Forget every failed arm of the sweep; returns their signatures. Diverged arms are results."""
    runs = RunStore(objects)
    forgotten: list[str] = []

    def failed(arms: list[Arm]) -> list[str]:
        records = [runs.record(arm.signature) for arm in arms]
        return [r.signature for r in records if r is not None and r.status == "failed"]

    def forget(signatures: list[str]) -> None:
        for signature in signatures:
            runs.forget(signature)
        forgotten.extend(signatures)

    for setting in definition.space.settings:
        forget(failed(baselines(definition, setting.name)))
        for stored in stored_proposals(objects, definition.name, setting.name):
            if stored.outcome is not None and stored.outcome.outcome != "failed":
                continue
            arms = arms_of_proposal(definition, setting.name, stored.number, stored.point)
            again = failed(arms)
            if again:  # the outcome first: killed in between, the proposal is judged once more
                drop_outcome(objects, definition.name, setting.name, stored.number)
                forget(again)
    return forgotten
