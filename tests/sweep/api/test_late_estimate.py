"""The estimate of a sweep, which is stored beside its first arms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sweep.api.training import _LateEstimate
from sweep.cost.spent import stored_estimate
from sweep.study.definition import Definition, put_definition
from tests.support.drivers import tiny
from trainables.records.objects import ObjectStore


def one_setting() -> Definition:
    asked = tiny()
    return replace(asked, space=replace(asked.space, settings=asked.space.settings[:1]))


def test_it_is_made_once_an_arm_has_reported(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    estimate = _LateEstimate(objects, put_definition(objects, one_setting()))
    estimate.end()
    assert stored_estimate(objects, "tiny") is None
    estimate.begin()
    estimate.begin()  # the next report
    estimate.end()
    stored = stored_estimate(objects, "tiny")
    assert stored is not None
    assert set(stored["seconds_per_arm"]) == {"L2"}


def test_a_store_that_is_away_ends_no_sweep(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    definition = put_definition(objects, one_setting())
    (tmp_path / "sweeps/tiny/estimate.json").mkdir()
    estimate = _LateEstimate(objects, definition)
    estimate.begin()
    estimate.end()
    assert not estimate._thread.is_alive()
