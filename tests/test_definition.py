"""Stored definitions: what they accept, how they grow, and what is said of unreadable ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweep.definition import folder, load_definition
from sweep.proposals import stored_proposals
from tests.sweeps import FEASIBLE, SPACE, store_sweep
from trainables.errors import StoreError
from trainables.object_store import ObjectStore
from trainables.run_store import RunStore

SETTING = SPACE.settings[0].name


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path)


def change(objects: ObjectStore, name: str, **values: Any) -> None:
    """Store a JSON object with other fields than this version writes; None takes one away."""
    plain = {**objects.get_json(name), **values}
    objects.put_json(name, {key: value for key, value in plain.items() if value is not None})


def test_what_another_version_wrote_is_named_with_a_remedy(objects: ObjectStore) -> None:
    asked = store_sweep(objects, {SETTING: [FEASIBLE]})
    signature = objects.names("arms")[0]
    outcome = f"{folder(asked.name)}/proposals/{SETTING}/000000.outcome.json"
    definition = f"{folder(asked.name)}/definition.json"
    remedy = "Read it with the version that wrote it, or give another --storage"
    change(objects, f"arms/{signature}/record.json", a_field_of_tomorrow=1)
    with pytest.raises(StoreError, match=rf"{signature}/record\.json .*{remedy}"):
        RunStore(objects).record(signature)
    change(objects, outcome, signatures=None)
    with pytest.raises(StoreError, match=rf"000000\.outcome\.json .*{remedy}"):
        stored_proposals(objects, asked.name, SETTING)
    change(objects, definition, space={"layers": 3})
    with pytest.raises(StoreError, match=rf"definition\.json .*{remedy}"):
        load_definition(objects, asked.name)
    objects.put(definition, b"[1, 2")
    with pytest.raises(StoreError, match=rf"definition\.json .*{remedy}"):
        load_definition(objects, asked.name)
