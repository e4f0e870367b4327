"""Options that verbs share: a sweep's name, and seeds as a count or as a list."""

from __future__ import annotations

import pytest

from sweep.study.opening import parse_seeds, refuse_key
from tests.support.command_line import refused
from trainables.records.objects import ObjectStore


def test_an_unknown_sweep_names_the_closest_one_and_the_place(stored: ObjectStore) -> None:
    text = refused("status", "tinny")
    assert "Did you mean 'tiny'" in text
    assert stored.root in text


def test_seeds_are_a_count_or_a_list() -> None:
    assert parse_seeds("2") == (0, 1)
    assert parse_seeds("2", present=(0, 1)) == (0, 1)
    assert parse_seeds("3", present=(7,)) == (7, 0, 1)


@pytest.mark.parametrize(
    "root",
    [
        "abfs://box@account.dfs.core.windows.net/x?tenant_id=t&client_id=c&client_secret=HIDDEN",
        "abfss://box@account/x?account_key=HIDDEN",
        "abfs://box@account/x?sas_token=HIDDEN",
        "s3://bucket/x?secret%5Fkey=HIDDEN",
    ],
)
def test_a_key_among_the_options_of_an_address_is_refused_and_not_repeated(root: str) -> None:
    said = refused("list", "--storage", root)
    assert "must be without a key" in said
    assert "HIDDEN" not in said


def test_other_options_of_an_address_are_no_keys() -> None:
    refuse_key("s3://bucket/x?region=eu-west-1&endpoint_override=127.0.0.1:9000")
