"""Confirmations that read the same test data: of another sweep, deleted, or of other data."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search_spaces.space import SearchSpace
from sweep.confirmation.comparisons import summarize_confirmation
from tests.support import confirmations as hand
from tests.support.command_line import contents, sweep
from tests.support.sweeps import SPACE
from trainables.records.objects import ObjectStore


def confirm(
    objects: ObjectStore, name: str = hand.NAME, search: str = "tiny", **wanted: Any
) -> str:
    """Everything that departs from the plan of a confirmation that is trained here."""
    of = replace(hand.wanted(seeds=2, **wanted), name=name)
    plan, definition = hand.stored(objects, of, search)
    hand.trained(objects, definition, lambda setting, kind, seed: 9.0 + seed % 7)
    return " ".join(summarize_confirmation(objects, definition, plan).deviations)


def test_the_only_one_departs_from_nothing(objects: ObjectStore) -> None:
    hand.searched(objects)
    assert confirm(objects) == ""


def test_a_deleted_one_is_told_of_by_the_next(objects: ObjectStore) -> None:
    hand.searched(objects)
    confirm(objects)
    told = sweep("rm", hand.NAME, "--yes", "--storage", objects.root).stdout
    # those without a proposal: the others are none of the sweep's, since no driver stored any
    assert "4 arms were evaluated on the test split" in told
    assert hand.NAME not in objects.names("sweeps")
    said = confirm(objects)
    found = re.search(r"tiny.confirmation \(of tiny, plan (\w+), deleted on (\S+) after 4", said)
    assert found, said
    sweep("rm", hand.NAME, "--yes", "--storage", objects.root)
    assert "read 3 times for the same network" in confirm(objects, "tiny.third")


def test_nothing_is_left_of_one_that_never_read_or_of_a_search(objects: ObjectStore) -> None:
    hand.searched(objects)
    hand.stored(objects, hand.wanted(seeds=2))
    before = contents(Path(objects.root))
    told = sweep("rm", hand.NAME, "--storage", objects.root, answer="n\n").stdout
    assert "test split" not in told
    assert contents(Path(objects.root)) == before
    sweep("rm", hand.NAME, "--yes", "--storage", objects.root)
    sweep("rm", "tiny", "--yes", "--storage", objects.root)
    assert objects.names("confirmations") == []


def test_another_search_of_the_same_data_is_no_way_around(objects: ObjectStore) -> None:
    hand.searched(objects)
    hand.searched(objects, name="copy")
    confirm(objects)
    assert "also by tiny.confirmation (of tiny)" in confirm(objects, "copy.c", "copy")


@pytest.mark.parametrize(
    "fields", [{"data.fingerprint": "beef"}, {"model.name": "dust"}], ids=["data", "network"]
)
def test_other_data_and_other_networks_are_another_matter(
    objects: ObjectStore, fields: dict[str, Any]
) -> None:
    other: SearchSpace = replace(SPACE, base=SPACE.base.with_fields(fields))
    hand.searched(objects)
    hand.searched(objects, name="other", space=other)
    confirm(objects)
    assert confirm(objects, "other.confirmation", "other") == ""
