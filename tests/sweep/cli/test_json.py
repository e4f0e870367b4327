"""Published schemas of `--json`: valid, versioned, described; and that they refuse what is new.

`tests/support/command_line.py` holds every JSON that a test has printed against its schema, so that
finished, running, failed, confirmed and empty sweeps are held where they are tested.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sweep.cli.main import VERBS
from sweep.study.lock import driver_lock
from tests.support import confirmations
from tests.support.code_figures import ROOT
from tests.support.command_line import sweep
from tests.support.schemas import FOLDER, name_of, validator
from tests.support.sweeps import DIVERGED, FIRST, INFEASIBLE, SECOND, store_sweep
from trainables.records.objects import ObjectStore

SCHEMAS = sorted(path.stem for path in FOLDER.glob("*.json"))
GOLDEN = ROOT / "tests/golden"
PAGE = (ROOT / "docs/json.md").read_text(encoding="utf-8")


def parts(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema within a schema, with where it stands."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for kind in ("properties", "$defs", "patternProperties"):
        for name, one in schema.get(kind, {}).items():
            yield from parts(one, f"{path}/{name}")
    for kind in ("items", "additionalProperties"):
        yield from parts(schema.get(kind), f"{path}/{kind}")
    for number, one in enumerate(schema.get("anyOf", ())):
        yield from parts(one, f"{path}/{number}")


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid_has_a_version_and_describes_every_field(name: str) -> None:
    schema = validator(name).schema
    Draft202012Validator.check_schema(schema)
    version = schema["$id"].removeprefix(f"urn:descent-sweep:{name}:")
    assert version.isdecimal()
    for path, part in parts(schema):
        told = part.get("description") or "$ref" in part or part == {"type": "null"}
        assert told or set(part) <= {"type", "const"}, path
        if part.get("description"):
            assert part["description"].endswith("."), path
        if "properties" in part:
            assert part["additionalProperties"] is False, path
    assert f"| [{name}](schemas/{name}.json) | {version} |" in PAGE


def test_a_required_field_that_goes_raises_the_version(golden: Callable[[str, str], None]) -> None:
    required = {}
    for name in SCHEMAS:
        schema = validator(name).schema
        names = {field for _, part in parts(schema) for field in part.get("required", ())}
        required[schema["$id"].removeprefix("urn:descent-sweep:")] = " ".join(sorted(names))
    before = json.loads((GOLDEN / "required.json").read_text(encoding="utf-8"))
    for version in required.keys() & before.keys():  # --update-golden does not let one go, either
        assert set(required[version].split()) >= set(before[version].split()), version
    golden("required.json", json.dumps(required, indent=1) + "\n")


def test_every_verb_with_json_has_a_schema_and_no_schema_is_of_no_verb() -> None:
    titles = " ".join(validator(name).schema["title"] for name in SCHEMAS)
    for verb in VERBS:
        said = f"sweep {verb} " in f"{titles} "
        assert said == ("--json" in sweep(verb, "--help").stdout), verb


def without(schema: dict[str, Any], value: Any) -> Iterator[Any]:
    """The value with a new field in each of its objects that the schema closes, one at a time."""
    for path in list(closed(schema, schema, value)):
        changed = copy.deepcopy(value)
        inner = changed
        for key in path:
            inner = inner[key]
        inner["new"] = 1
        yield changed


def closed(whole: dict[str, Any], schema: dict[str, Any], value: Any) -> Iterator[list[Any]]:
    """Where the value has objects whose fields the schema names, as paths."""
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    if isinstance(value, dict):
        named = schema.get("properties", {})
        if named:
            yield []
        for key, one in value.items():
            of = named.get(key, schema.get("additionalProperties"))
            if isinstance(of, dict):
                yield from ([key, *rest] for rest in closed(whole, of, one))
    elif isinstance(value, list) and value:
        yield from ([0, *rest] for rest in closed(whole, schema.get("items", {}), value[0]))


def printed(*words: str) -> Any:
    """What a verb prints; `sweep` holds it against its schema."""
    return json.loads(sweep(*words, "--json").stdout)


def test_a_field_that_a_schema_does_not_name_fails(stored: ObjectStore) -> None:
    for words in (("list",), ("status", "tiny"), ("best", "tiny"), ("spaces",)):
        value = printed(*words)
        check = validator(name_of(words, value))
        changed = list(without(check.schema, value))
        assert changed, words
        assert not any(map(check.is_valid, changed)), words


def test_what_is_printed_of_sweeps_in_every_state_is_as_published(stored: ObjectStore) -> None:
    store_sweep(stored, {FIRST: [INFEASIBLE] * 3, SECOND: [DIVERGED] * 3}, name="nothing")
    store_sweep(stored, {}, name="begun")
    for name in ("tiny", "nothing", "begun"):
        printed("status", name)
        printed("best", name)
    with driver_lock(stored, "tiny"):
        assert printed("status", "tiny")["driver"]["pid"] > 0
    assert printed("list")


def test_an_empty_storage_is_as_published(root: object) -> None:
    assert printed("list") == []


def test_a_confirmation_is_as_published_before_and_after_it_is_trained(
    objects: ObjectStore,
) -> None:
    confirmations.searched(objects)
    _, definition = confirmations.stored(objects)
    place = ("--storage", objects.root)
    assert printed("best", confirmations.NAME, *place)["families"][0]["counted"] == 0
    confirmations.trained(
        objects, definition, lambda setting, kind, seed: 5.0 + 0.01 * seed - len(kind)
    )
    assert printed("best", confirmations.NAME, *place)["families"][0]["counted"] == 10
    printed("status", confirmations.NAME, *place)


@pytest.mark.slow
def test_a_space_of_texts_is_as_published() -> None:
    printed("spaces", "text_classification_ut", "--gpu", "h100")


@pytest.mark.slow
def test_doctor_is_as_published(root: object) -> None:
    printed("doctor")
