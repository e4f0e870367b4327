"""Files of an exported confirmation: table, entry, plan."""

from __future__ import annotations

from sweep.confirmation.comparisons import confirmed
from sweep.confirmation.stages import plan_of
from sweep.confirmation.tables import confirmed_table
from sweep.results.export import table_files, text_of
from sweep.results.sweep_view import ReadRecord
from sweep.study.definition import Definition
from trainables.records.objects import ObjectStore


def files_of(objects: ObjectStore, definition: Definition, record: ReadRecord) -> dict[str, str]:
    """Every file by name, but the manifest; ``record``: as for ``load_sweep``."""
    plan = plan_of(objects, definition)
    entry = confirmed(objects, definition, plan, record=record)
    return {
        **table_files(confirmed_table(entry), definition.name),
        "confirmed.json": text_of(entry),
        "plan.json": text_of({**plan.to_json(), "digest": plan.digest}),
    }
