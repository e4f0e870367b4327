"""`sweep rm` and `doctor`: what they delete and what they advise."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from search_spaces import catalog
from sweep.cli.main import main
from sweep.results.sweep_view import load_sweep
from sweep.study.lock import driver_lock
from tests.support.command_line import contents, refused, sweep
from tests.support.servers.mlflow_servers import free_port
from tests.support.sweeps import FEASIBLE, FIRST, SPACE, store_sweep
from trainables.records.objects import ObjectStore

# --- rm -------------------------------------------------------------------------------------------


def test_rm_shows_what_it_would_delete_and_asks(stored: ObjectStore) -> None:
    before = contents(Path(stored.root))
    result = sweep("rm", "tiny", answer="n\n")
    assert "10 arms" in result.stdout
    assert contents(Path(stored.root)) == before
    sweep("rm", "tiny", "--yes")
    assert stored.names("arms") == []
    assert json.loads(sweep("list", "--json").stdout) == []


def test_a_stored_sweep_of_longer_names_than_new_ones_may_have_is_used_to_its_end(
    root: Path, tmp_path: Path
) -> None:
    settings = (replace(SPACE.settings[0], name="x" * 180), SPACE.settings[1])
    space = replace(SPACE, name="y" * 200, settings=settings)
    store_sweep(ObjectStore(root), {"x" * 180: [FEASIBLE]}, space=space, name="long")
    assert json.loads(sweep("list", "--json").stdout)[0]["space"] == "y" * 200
    assert "x" * 180 in sweep("best", "long", "--json").stdout
    sweep("export", "long", "--out", str(tmp_path / "out"))
    (configuration,) = (tmp_path / "out").rglob("x*.json")
    assert catalog.find(str(configuration)).space.settings[0].name == "x" * 180
    sweep("rm", "long", "--yes")
    assert json.loads(sweep("list", "--json").stdout) == []


def test_rm_keeps_arms_that_another_sweep_uses(stored: ObjectStore) -> None:
    store_sweep(stored, {FIRST: [FEASIBLE]}, name="other")
    result = sweep("rm", "tiny", "--yes")
    assert "kept for other sweeps: 6 arms" in result.stdout
    view = load_sweep(stored, "other")
    assert all(arm.is_final for arm in view.settings[0].arms)


def test_rm_refuses_a_sweep_that_runs(stored: ObjectStore) -> None:
    with driver_lock(stored, "tiny"):
        assert "is running" in refused("rm", "tiny", "--yes")
    assert len(stored.names("arms")) == 10


def test_rm_refuses_a_sweep_that_began_to_run_while_it_asked(
    stored: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as driver:

        def answered(question: str) -> bool:
            driver.enter_context(driver_lock(stored, "tiny"))
            return True

        monkeypatch.setattr("click.confirm", answered)
        assert "is running" in sweep("rm", "tiny", exits=2).stderr
    assert len(stored.names("arms")) == 10
    assert stored.exists("sweeps/tiny/definition.json")


def test_a_damaged_sweep_is_listed_as_such_and_can_be_removed(stored: ObjectStore) -> None:
    store_sweep(stored, {FIRST: [FEASIBLE]}, name="broken")
    Path(stored.root, "sweeps", "broken", "definition.json").write_text("damaged")
    result = sweep("list", "--json")
    entries = {entry["name"]: entry["state"] for entry in json.loads(result.stdout)}
    assert entries == {"broken": "damaged", "tiny": "stopped"}
    assert "broken" in result.stderr
    assert "damaged" in sweep("list").stdout
    arms = stored.names("arms")
    assert "no arm is deleted" in sweep("rm", "tiny", answer="n\n").stdout  # broken may use them
    assert "no arm is deleted" in sweep("rm", "broken", "--yes").stdout
    assert stored.names("arms") == arms
    sweep("rm", "tiny", "--yes")
    assert stored.names("sweeps") == []


def test_a_sweep_whose_plug_in_is_not_installed_is_not_called_damaged(stored: ObjectStore) -> None:
    store_sweep(stored, {FIRST: [FEASIBLE]}, name="hers")
    plain: dict[str, Any] = stored.get_json("sweeps/hers/definition.json")
    plain["space"]["base"]["model"]["name"] = "tiny_former"
    stored.put_json("sweeps/hers/definition.json", plain)
    result = sweep("list", "--json")
    entries = {entry["name"]: entry for entry in json.loads(result.stdout)}
    assert entries["hers"]["state"] == "needs a plug-in"
    assert entries["hers"]["plug_in"] == "tiny_former"
    assert entries["tiny"]["plug_in"] is None
    assert "names what is not installed here: unknown model 'tiny_former'" in result.stderr
    assert "this version writes" not in result.stderr
    assert "needs a plug-in: tiny_former" in sweep("list").stdout
    said = sweep("rm", "tiny", answer="n\n").stdout
    assert "may use any: hers (needs a plug-in: tiny_former)" in said


def test_verbs_that_ask_no_cluster_say_so_where_others_do(
    stored: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("rm", "tiny")
    assert "SWEEP_ADDRESS" not in sweep(*words, answer="n\n").stderr
    monkeypatch.setenv("SWEEP_ADDRESS", "cluster.yaml")
    assert "but `sweep rm` is about this machine" in sweep(*words, answer="n\n").stderr
    assert "`sweep submit`" in refused("run", "no-such-space")


def test_ui_of_a_folder_without_sweeps_says_so(root: Path) -> None:
    said = refused("ui", "--storage", str(root), "--port", str(free_port()))
    assert f"no sweeps below {root}" in said
    assert "sweep run quickstart" in said
    assert not root.exists()


def command_line(*words: str) -> Result:
    """A verb that cannot be met, whatever it exits with."""
    return CliRunner().invoke(main, list(words))


def test_what_sweep_address_sent_away_says_so(
    stored: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SWEEP_ADDRESS", "http://127.0.0.1:9")
    result = command_line("best", "tiny", "--only", "a*")
    assert "SWEEP_ADDRESS=http://127.0.0.1:9 sent `sweep best` to that cluster" in result.stderr
    assert "`SWEEP_ADDRESS= sweep best tiny --only 'a*'` is about this machine." in result.stderr
    given = command_line("best", "tiny", "--address", "http://127.0.0.1:9")
    assert "SWEEP_ADDRESS" not in given.stderr
    assert "this machine" not in command_line("logs", "tiny").stderr
    monkeypatch.delenv("SWEEP_ADDRESS")
    assert "SWEEP_ADDRESS" not in command_line("best", "none").stderr


# --- doctor ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_doctor_passes_here_and_fails_with_advice_where_it_must(root: Path, tmp_path: Path) -> None:
    found: list[dict[str, Any]] = json.loads(sweep("doctor", "--json").stdout)
    assert {"Python", "packages", "torch", "storage", "disk", "cache", "MLflow", "Ray"} <= {
        check["name"] for check in found
    }
    assert not root.exists()
    (tmp_path / "file").write_text("")
    assert "it is a file" in refused("doctor", "--storage", str(tmp_path / "file"))
    text = sweep("doctor", "--storage", str(tmp_path / "file" / "below"), exits=1).stdout
    assert "FAIL  storage" in text
    assert "--storage" in text
    text = sweep("doctor", "--data", str(tmp_path), exits=1).stdout
    assert "FAIL  data" in text
