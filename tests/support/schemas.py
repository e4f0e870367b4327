"""Published schemas of what verbs print with --json (docs/schemas/)."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from jsonschema import Draft202012Validator

from tests.support.code_figures import ROOT

FOLDER = ROOT / "docs/schemas"


@functools.cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def name_of(words: Sequence[str], value: Any) -> str:
    """The schema of what this command line prints."""
    verb = words[0]
    if verb == "confirm":
        kinds = (
            ("replicated", "replications_plan")
            if "--replications" in words
            else ("confirmed", "plan")
        )
        return kinds["--dry-run" in words]
    if verb == "spaces":
        return "spaces" if isinstance(value, list) else "space"
    if verb == "best":
        return "best" if isinstance(value, list) else "confirmed"
    return verb


def as_published(words: Sequence[str], value: Any) -> None:
    """Fail where it is not what the schema says, or says more."""
    name = name_of(words, value)
    wrong = sorted(validator(name).iter_errors(value), key=lambda error: list(error.path))
    assert not wrong, f"docs/schemas/{name}.json: {wrong[0].json_path}: {wrong[0].message}"
