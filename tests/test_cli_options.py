"""What the verbs share: the name of a sweep, and seeds as a count or as a list."""

from __future__ import annotations

from sweep import cli_options
from tests.command_line import refused
from trainables.object_store import ObjectStore


def test_an_unknown_sweep_names_the_closest_one_and_the_place(stored: ObjectStore) -> None:
    text = refused("status", "tinny")
    assert "Did you mean 'tiny'" in text
    assert stored.root in text


def test_seeds_are_a_count_or_a_list() -> None:
    assert cli_options.parse_seeds("2") == (0, 1)
    assert cli_options.parse_seeds("2", present=(0, 1)) == (0, 1)
    assert cli_options.parse_seeds("3", present=(7,)) == (7, 0, 1)
