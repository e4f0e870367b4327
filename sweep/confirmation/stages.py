"""Stored confirmations: what they show, the next seeds, the files of an export."""

from __future__ import annotations

from sweep.confirmation.arms import read_arms
from sweep.confirmation.comparisons import is_decided, summarize_confirmation
from sweep.confirmation.paper_tables import paper_confirmed_table, trained_arms
from sweep.confirmation.plan import Plan, load_plan
from sweep.confirmation.summary import ConfirmationSummary
from sweep.confirmation.tables import confirmed_table
from sweep.results.export import table_files
from sweep.results.export_folder import text_of
from sweep.results.tables.paper_hyperparameters import paper_hyperparameters_table
from sweep.study.definition import Definition
from sweep.study.pairs import ReadRecord
from trainables.errors import StoreError
from trainables.records.objects import ObjectStore


def plan_of(objects: ObjectStore, definition: Definition) -> Plan:
    """The plan of a stored confirmation; StoreError where it is gone."""
    plan = load_plan(objects, definition.name)
    if plan is None:
        raise StoreError(
            f"the plan of {definition.name} is gone below {objects.root}: without it there is no "
            "confirmation. Restore it from a copy, or confirm again under another --name."
        )
    return plan


def summarize_stored(objects: ObjectStore, definition: Definition) -> ConfirmationSummary:
    """The summary of a stored confirmation as far as it is now."""
    return summarize_confirmation(objects, definition, plan_of(objects, definition))


def next_seeds(objects: ObjectStore, definition: Definition) -> tuple[int, ...]:
    """The seeds that a confirmation goes on with; empty where it has ended."""
    plan = plan_of(objects, definition)
    if not plan.until_decided or is_decided(objects, definition, plan):
        return ()
    return plan.more_seeds(len(definition.space.search_seeds))


def files_of(
    objects: ObjectStore, definition: Definition, record: ReadRecord, *, beside_paper: bool = False
) -> dict[str, str]:
    """Every file by name, but the manifest; ``record`` is read twice for each arm."""
    plan = plan_of(objects, definition)
    entry = summarize_confirmation(objects, definition, plan, record=record)
    space, trained = definition.space, trained_arms(read_arms(record, definition, plan), entry)
    tables = (
        confirmed_table(entry),
        paper_confirmed_table(space, entry, beside_paper=beside_paper),
        paper_hyperparameters_table(space, trained, beside_paper=beside_paper),
    )
    files: dict[str, str] = {}
    for table in tables:
        files |= table_files(table, definition.name)
    return {
        **files,
        "confirmed.json": text_of(entry.to_json()),
        "plan.json": text_of({**plan.to_json(), "digest": plan.digest}),
    }
