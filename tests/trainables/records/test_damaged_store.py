"""Derived objects of a store, made again when damaged: no verb stops at one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweep.results.sweep_view import load_sweep
from sweep.run.retention import keep_winners_weights
from sweep.tracking.address import known_id, sweep_id
from tests.support.command_line import sweep
from tests.support.proposals import stored_proposals
from tests.support.sweeps import FEASIBLE, FIRST, store_sweep
from tests.support.toy_sweeps import definition, outcomes, started, train
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


@pytest.mark.parametrize("content", [b"torn", None], ids=["damaged", "of another version"])
def test_a_damaged_outcome_is_judged_again(objects: ObjectStore, content: bytes | None) -> None:
    asked = definition(n_settings=1, seeds=(0,))
    train(started(objects, asked))
    whole = outcomes(objects, asked)
    name = "sweeps/toy/proposals/g1/judged.json"
    if content is None:
        objects.put_json(name, {"1": {"outcome": "feasible"}})
    else:
        Path(objects.root, name).write_bytes(content)
    assert stored_proposals(objects, "toy", "g1")[1].outcome is None
    again = started(objects, asked)
    assert again.summary().is_done
    assert train(again) == []
    assert outcomes(objects, asked) == whole


@pytest.mark.parametrize("name", ["proposals/only/judged.json", "id.json"])
def test_a_damaged_derived_file_stops_no_verb(trained: Path, tmp_path: Path, name: str) -> None:
    best = json.loads(sweep("best", "mine", "--json").stdout)[0]["constrained"]["objective"]
    path = trained / "sweeps" / "mine" / name
    path.write_bytes(path.read_bytes()[:-3])
    entry = json.loads(sweep("status", "mine", "--json").stdout)
    assert (entry["state"], entry["arms"]["final"]) == ("finished", 2)
    assert json.loads(sweep("best", "mine", "--json").stdout)[0]["constrained"]["objective"] == best
    sweep("export", "mine", "--out", str(tmp_path / "out"))
    ran = sweep("resume", "mine", "--where", "inline")
    assert "2 of 2 arms are final" in ran.stdout
    ObjectStore(trained).get_json(f"sweeps/mine/{name}")  # whole again


def test_a_damaged_id_is_replaced_and_kept_aside(
    objects: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    first = sweep_id(objects, "toy")
    assert known_id(objects, "toy") == sweep_id(objects, "toy") == first
    Path(objects.root, "sweeps/toy/id.json").write_bytes(b"torn")
    assert known_id(objects, "toy") is None
    assert sweep_id(objects, "toy") == sweep_id(objects, "toy") != first
    assert "MLflow gets a new experiment" in caplog.text


def test_what_another_sweep_keeps_stays_while_its_note_is_damaged(objects: ObjectStore) -> None:
    for name in ("one", "two"):
        store_sweep(objects, {FIRST: [FEASIBLE]}, name=name)
        keep_winners_weights(objects, load_sweep(objects, name))
    arms = objects.names("arms")
    for signature in arms:
        ArmStore(objects).put_weights(signature, b"weights")
    Path(objects.root, "sweeps/two/kept-weights.json").write_bytes(b"torn")
    keep_winners_weights(objects, load_sweep(objects, "one"))
    assert all(ArmStore(objects).weights(signature) is not None for signature in arms)


def test_damaged_records_are_told_and_trained_again_by_the_next_resume(
    trained: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arms = sorted((trained / "arms").iterdir())
    for path in (trained / "arms").glob("*/record.json"):
        path.write_bytes(path.read_bytes()[:-3])
    ran = sweep("resume", "mine", "--where", "inline")
    assert "0 of 2 arms are done" in ran.output
    assert "2 of 2 arms are final" in ran.output
    for arm in arms:
        assert (arm / "record.json.damaged").exists()
        assert f"trains arm {arm.name} again" in caplog.text
    assert "2 of 2 arms are final" in sweep("resume", "mine", "--where", "inline").stdout
