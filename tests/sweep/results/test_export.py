"""The export: whole or not at all, the same bytes again, configurations of the stored arms."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from search_spaces import catalog
from sweep.results import export_folder
from sweep.results.export import export
from sweep.results.export_folder import MANIFEST, ExportManifest, text_of, write_files
from sweep.results.provenance import Totals
from sweep.results.sweep_view import load_sweep
from tests.support.sweeps import (
    DIVERGED,
    ENVIRONMENT,
    FEASIBLE,
    FIRST,
    SECOND,
    SPACE,
    point,
    store_sweep,
)
from trainables.errors import InvalidValue, Misuse, StoreError
from trainables.machine.file_locks import held
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def write(objects: ObjectStore, out: Path, **options: Any) -> list[str]:
    read = ArmStore(objects).record
    return export(load_sweep(objects, "tiny"), {}, out, read=read, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_export_holds_tables_winning_configurations_and_a_manifest(
    stored: ObjectStore, tmp_path: Path
) -> None:
    files = write(stored, tmp_path / "out")
    tables = {
        f"tables/{table}.{form}"
        for table in (
            "results", "layers", "anytime", "shifts", "hyperparameters", "frontier",
            "paper_results", "paper_hyperparameters",
        )
        for form in ("csv", "md", "tex")
    }  # fmt: skip
    tables |= {"tables/tidy.csv", "tables/proposals.csv"}
    assert set(files) == tables | {f"configs/{FIRST}.json", "manifest.json"}
    assert set(contents(tmp_path / "out")) == set(files)


def test_all_adds_the_closest_pairs_marked_as_no_winners(
    stored: ObjectStore, tmp_path: Path
) -> None:
    assert f"configs/{SECOND}.json" in write(stored, tmp_path / "out", everything=True)
    plain = json.loads((tmp_path / "out" / "configs" / f"{SECOND}.json").read_text())
    assert plain["winner"] is False
    assert "layer 2" in plain["why"]


def test_the_same_store_exports_the_same_bytes(stored: ObjectStore, tmp_path: Path) -> None:
    for folder in ("one", "two", "two"):
        write(stored, tmp_path / folder)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_an_export_again_removes_what_no_longer_belongs(
    stored: ObjectStore, tmp_path: Path
) -> None:
    write(stored, tmp_path / "out", everything=True)
    files = write(stored, tmp_path / "out")
    assert set(contents(tmp_path / "out")) == set(files)


def test_a_foreign_folder_is_refused_and_left_alone(stored: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("mine")
    with pytest.raises(Misuse, match="no export wrote"):
        write(stored, tmp_path / "thesis")
    assert contents(tmp_path / "thesis") == {"chapter.tex": b"mine"}


def test_the_export_of_another_sweep_is_refused(stored: ObjectStore, tmp_path: Path) -> None:
    write(stored, tmp_path / "out")
    before = contents(tmp_path / "out")
    store_sweep(stored, {FIRST: [FEASIBLE]}, name="other")
    with pytest.raises(Misuse, match="'tiny', not of 'other'"):
        export(load_sweep(stored, "other"), {}, tmp_path / "out", read=ArmStore(stored).record)
    assert contents(tmp_path / "out") == before


def test_a_place_that_cannot_be_written_is_refused_without_a_trace(
    stored: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(Misuse, match="--out"):
        write(stored, tmp_path / "file" / "below")
    with pytest.raises(Misuse, match="must be a folder"):
        write(stored, tmp_path / "file")
    assert contents(tmp_path)["file"] == b"a file"


@pytest.mark.slow
@pytest.mark.parametrize("there", ["nothing", "an empty folder", "an earlier export"])
@pytest.mark.parametrize("moved", [0, 1, 4])
def test_an_export_killed_at_any_time_does_not_block_its_folder(
    stored: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: str,
    moved: int,
) -> None:
    class Killed(BaseException):
        pass

    out, moves = tmp_path / "out", []
    if there == "an empty folder":
        out.mkdir()
    elif there == "an earlier export":
        write(stored, out, everything=True)

    def move(rename: Any, source: Path, target: Path) -> None:
        if len(moves) == moved:
            raise Killed
        moves.append(target)
        rename(source, target)

    with monkeypatch.context() as patch:  # a killed process cleans up nothing either
        patch.setattr(export_folder.os, "replace", partial(move, os.replace))
        patch.setattr(export_folder.os, "rename", partial(move, os.rename))
        patch.setattr(export_folder.shutil, "rmtree", lambda *_, **__: None)
        if there != "nothing" or moved == 0:  # one rename makes a new folder
            with pytest.raises(Killed):
                write(stored, out)
    if moved and there != "nothing":
        assert json.loads((out / "manifest.json").read_text())["complete"] is False
    files = write(stored, out)
    assert set(contents(out)) == set(files)
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    assert json.loads((out / "manifest.json").read_text())["complete"] is True


@pytest.mark.parametrize("there", ["nothing", "an earlier export"])
def test_exports_into_one_folder_at_once_are_one_after_the_other(
    stored: ObjectStore, tmp_path: Path, there: str
) -> None:
    out, plain = tmp_path / "out", tmp_path / "plain"
    files = write(stored, plain)
    if there != "nothing":
        write(stored, out, everything=True)
    with ThreadPoolExecutor(6) as pool:
        for written in [pool.submit(write, stored, out) for _ in range(12)]:
            assert written.result() == files
    assert contents(out) == contents(plain)
    assert {p.name for p in tmp_path.iterdir() if p.name.startswith(".")} == set()


def test_an_export_that_waits_too_long_for_another_says_so(
    stored: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_folder, "WAIT_S", 0.1)
    files = write(stored, tmp_path / "out")
    before = contents(tmp_path / "out")
    lock = tmp_path / "out" / export_folder.LOCK
    with held(lock), pytest.raises(StoreError, match=r"another.*--out"):
        write(stored, tmp_path / "out")
    assert contents(tmp_path / "out") == before
    lock.touch()  # left over where an export was killed
    assert write(stored, tmp_path / "out") == files


def test_the_manifest_carries_the_provenance_of_both_arms(
    stored: ObjectStore, tmp_path: Path
) -> None:
    view = load_sweep(stored, "tiny")
    signatures = [arm.signature for arm in view.settings[0].arms]
    run_ids = {signature: f"run-{signature}" for signature in signatures}
    export(view, run_ids, tmp_path / "out", read=ArmStore(stored).record)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["environments"] == [ENVIRONMENT]
    assert manifest["data"] == [{"name": "photographs", "fingerprint": "f00d"}]
    assert (manifest["tolerance"], manifest["search_seeds"]) == (0.1, [0, 1])
    assert manifest["sampler"] == {"name": "random", "seed": 0}
    assert manifest["pairs"][FIRST]["matched_capacity"] is True
    pair = manifest["pairs"][FIRST]["seeds"]["1"]
    for arm in ("constrained", "unconstrained"):
        assert pair[arm]["mlflow_run_id"] == f"run-{pair[arm]['signature']}"
        assert pair[arm]["wall_s"] == 49.0
        assert pair[arm]["environment"] == 0
        assert {"device_s", "peak_memory_mb", "status"} <= pair[arm].keys()
    for name, digest in manifest["files"].items():
        content = (tmp_path / "out" / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest


def test_a_manifest_is_read_back_whole(stored: ObjectStore, tmp_path: Path) -> None:
    write(stored, tmp_path / "out")
    text = (tmp_path / "out" / MANIFEST).read_text()
    assert text_of(ExportManifest.from_json(json.loads(text)).to_json()) == text


@pytest.mark.parametrize(
    "damage", [{"kind": "mine"}, {"kind": None}, {"arms": 3}, {"files": ["a"]}, {"pairs": 1}]
)
def test_a_folder_without_a_manifest_of_an_export_is_left_alone(
    stored: ObjectStore, tmp_path: Path, damage: dict[str, Any]
) -> None:
    write(stored, tmp_path / "out")
    path = tmp_path / "out" / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    before = contents(tmp_path / "out")
    with pytest.raises(Misuse, match="no export wrote"):
        write(stored, tmp_path / "out", replace=True)
    assert contents(tmp_path / "out") == before


def test_a_folder_whose_manifest_says_no_kind_is_the_users_own(
    stored: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    name = load_sweep(stored, "tiny", "pairs").definition.name
    (tmp_path / MANIFEST).write_text(json.dumps({"sweep": name, "files": {"mine.txt": None}}))
    before = contents(tmp_path)
    with pytest.raises(Misuse, match="no export wrote"):
        write(stored, tmp_path, replace=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "oddity", [{"arms": None}, {"pairs": None}, {"data": ["a"]}, {"data": [{}]}, {"tomorrow": 1}]
)
def test_an_oddity_of_its_manifest_is_no_reason_not_to_replace_an_export(
    stored: ObjectStore, tmp_path: Path, oddity: dict[str, Any]
) -> None:
    write(stored, tmp_path / "out")
    before = contents(tmp_path / "out")
    path = tmp_path / "out" / MANIFEST
    plain = json.loads(path.read_text())
    plain["pairs"] = {name: {} for name in plain["pairs"]}
    path.write_text(json.dumps(plain | oddity))
    write(stored, tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_the_manifest_marks_pairs_of_unmatched_capacity(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "store")
    paper = SPACE.with_base({"model.name": "dust", "model.variant": "paper"})
    store_sweep(objects, {FIRST: [FEASIBLE]}, space=paper)
    write(objects, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["pairs"][FIRST]["matched_capacity"] is False


def test_an_exported_configuration_reads_back_as_the_stored_arms(
    stored: ObjectStore, tmp_path: Path
) -> None:
    write(stored, tmp_path / "out")
    found = catalog.find(str(tmp_path / "out" / "configs" / f"{FIRST}.json"))
    assert found.name == FIRST
    assert found.space.search_seeds == SPACE.search_seeds
    setting = found.space.settings[0]
    for seed in SPACE.search_seeds:
        stored = SPACE.run(SPACE.setting(FIRST), point(1), seed=seed)
        again = found.space.run(setting, {}, seed=seed)
        assert again == stored
        assert again.signature() == stored.signature()
        assert found.expected is not None
        pair = {stored.signature(), stored.unconstrained().signature()}
        assert pair <= found.expected.arms.keys()


def test_a_configuration_whose_runs_do_not_match_is_refused(
    stored: ObjectStore, tmp_path: Path
) -> None:
    write(stored, tmp_path / "out")
    path = tmp_path / "out" / "configs" / f"{FIRST}.json"
    plain = json.loads(path.read_text())
    plain["runs"]["1"]["config"]["steps"] = 41
    path.write_text(json.dumps(plain))
    with pytest.raises(InvalidValue, match="differ in more than their seed"):
        catalog.find(str(path))


def test_a_sweep_with_nothing_finished_exports_its_rows_and_no_configuration(
    tmp_path: Path,
) -> None:
    objects = ObjectStore(tmp_path / "empty")
    store_sweep(objects, {FIRST: [DIVERGED]})
    files = write(objects, tmp_path / "out", everything=True)
    assert not [name for name in files if name.startswith("configs/")]
    assert (tmp_path / "out" / "tables" / "results.csv").read_text().count("\n") == 3


def test_a_fuller_export_is_not_replaced_unless_asked_for(
    stored: ObjectStore, tmp_path: Path
) -> None:
    """As where arms were forgotten, to be trained again, or a copy of the store lacks some."""
    out = tmp_path / "out"
    write(stored, out)
    before = contents(out)
    view = load_sweep(stored, "tiny")
    chosen = view.settings[0].chosen.winner
    assert chosen is not None
    ArmStore(stored).forget(chosen.pairs[0].constrained.signature)
    with pytest.raises(Misuse, match=r"10 arms, where this one has 9; configs/.*--replace"):
        write(stored, out)
    assert contents(out) == before
    fewer = text_of(ExportManifest(sweep="tiny", arms=Totals(final=9)).to_json())
    with pytest.raises(Misuse, match="fuller export"):  # made elsewhere, as a cluster's is
        write_files(out, "tiny", {MANIFEST: fewer})
    assert contents(out) == before
    files = write(stored, out, replace=True)
    assert set(contents(out)) == set(files)
    assert write(stored, out) == files


def test_an_export_of_before_arms_were_counted_is_replaced_by_as_many_files(
    stored: ObjectStore, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    files = write(stored, out)
    manifest = json.loads((out / "manifest.json").read_text())
    del manifest["arms"], manifest["pairs"]
    (out / "manifest.json").write_text(json.dumps(manifest))
    assert write(stored, out) == files
