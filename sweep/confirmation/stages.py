"""Stages of a confirmation that trains until all is decided, from the store."""

from __future__ import annotations

from sweep.confirmation.comparisons import confirmed, is_decided
from sweep.confirmation.plan import Plan, load_plan
from sweep.confirmation.summary import ConfirmationSummary
from sweep.study.definition import Definition
from trainables.errors import StoreError
from trainables.records.objects import ObjectStore


def plan_of(objects: ObjectStore, definition: Definition) -> Plan:
    """The plan of a stored confirmation; StoreError where it is gone."""
    plan = load_plan(objects, definition.name)
    if plan is None:
        raise StoreError(
            f"the plan of {definition.name} is gone below {objects.root}: what it would say is no "
            "confirmation. Restore it from a copy, or confirm again under another --name."
        )
    return plan


def shown_now(objects: ObjectStore, definition: Definition) -> ConfirmationSummary:
    """What a stored confirmation shows now."""
    return confirmed(objects, definition, plan_of(objects, definition))


def next_seeds(objects: ObjectStore, definition: Definition) -> tuple[int, ...]:
    """The seeds that a confirmation goes on with; empty where it has ended."""
    plan = plan_of(objects, definition)
    if not plan.until_decided:
        return ()
    if is_decided(objects, definition, plan):
        return ()
    return plan.more_seeds(len(definition.space.search_seeds))
