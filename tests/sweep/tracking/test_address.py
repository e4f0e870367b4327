"""Tracking address: what is refused, which one is found again, the id."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.study.definition import load_definition
from sweep.tracking.address import known_id, place_of, remember_place, sweep_id, tracking_uri
from tests.support.sweeps import store_sweep
from tests.support.tracked_arms import SWEEP
from trainables.errors import Misuse
from trainables.records.objects import ObjectStore


def test_where_arms_are_tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracking_uri(str(tmp_path)) == f"sqlite:///{tmp_path}/mlflow.db"
    with pytest.raises(Misuse, match="--mlflow or MLFLOW_TRACKING_URI"):
        tracking_uri("s3://bucket/sweeps")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host:5000")
    assert tracking_uri("s3://bucket/sweeps") == "http://host:5000"
    assert tracking_uri("s3://bucket/sweeps", "http://other:1") == "http://other:1"
    with pytest.raises(Misuse, match="plain folders"):
        tracking_uri(str(tmp_path), "./mlruns")
    with pytest.raises(Misuse, match=r"got 'databricks'\. Change"):
        tracking_uri(str(tmp_path), "databricks")


@pytest.mark.parametrize(
    "uri",
    [
        "http://me:secret@host:5000",
        "http://me:not/escaped?secret@host:5000",
        "http://secret@host:5000",
        "HTTPS://secret@host",
        "postgresql://me:secret@host/db",
        "postgresql://me:[secret@host/db",
        "mysql://h/d?password=secret",
        "mysql://h/d?charset=utf8&passwd=secret",
        "mssql+pyodbc:///?odbc_connect=Server%3Dh%3BUID%3Dme%3BPWD%3Dsecret",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(Misuse, match="without a password") as refused:
        tracking_uri("/root", uri)
    assert "secret" not in str(refused.value)
    assert "MLFLOW_TRACKING_PASSWORD" in str(refused.value)
    for fine in ("postgresql://me@host/db", "http://host:5000/a@b", "http://[::1]:5000"):
        assert tracking_uri("/root", fine) == fine


@pytest.mark.parametrize("name", ["what?mode=memory", "50%20"])
def test_a_root_that_would_lead_the_database_elsewhere_is_refused(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(Misuse, match=r"without '\?' and '%'"):
        tracking_uri(str(tmp_path / name))
    assert tracking_uri(str(tmp_path / name), "http://host:5000") == "http://host:5000"


def test_the_address_last_used_is_found_in_another_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = ObjectStore(tmp_path)
    definition = store_sweep(objects, {})
    below = place_of(objects, definition)
    assert below == tracking_uri(objects.root)
    remember_place(objects, "tiny", below)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host:5000")
    assert place_of(objects, definition) == "http://host:5000"  # what lies below is no choice
    remember_place(objects, "tiny", place_of(objects, definition))
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert place_of(objects, definition) == "http://host:5000"
    assert place_of(objects, definition, "http://other:1") == "http://other:1"
    assert load_definition(objects, "tiny") == definition  # a place is no part of what it is


def test_a_sweep_keeps_its_id(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    assert known_id(objects, SWEEP) is None
    first = sweep_id(objects, SWEEP)
    assert first == sweep_id(objects, SWEEP) == known_id(objects, SWEEP)
    assert first != sweep_id(objects, "other")
