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

    def forget(arms: list[Arm]) -> bool:
        failed = []
        for arm in arms:
            record = runs.record(arm.signature)
            if record is not None and record.status == "failed":
                runs.forget(arm.signature)
                failed.append(arm.signature)
        forgotten.extend(failed)
        return bool(failed)

    for setting in definition.space.settings:
        forget(baselines(definition, setting.name))
        for stored in stored_proposals(objects, definition.name, setting.name):
            if stored.outcome is not None and stored.outcome.outcome != "failed":
                continue
            arms = arms_of_proposal(definition, setting.name, stored.number, stored.point)
            if forget(arms):
                drop_outcome(objects, definition.name, setting.name, stored.number)
    return forgotten
