"""`sweep export`: the files that it prints, and what it says of what it left out."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from sweep.results.sweep_view import load_sweep
from tests.support.command_line import refused, sweep
from tests.support.sweeps import DIVERGED, FIRST, INFEASIBLE, SECOND, store_sweep
from trainables.code_version import code_version
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def test_export_prints_its_files_and_what_it_left_out(stored: ObjectStore, tmp_path: Path) -> None:
    result = sweep("export", "tiny", "--out", str(tmp_path / "out"))
    assert str(tmp_path / "out" / "manifest.json") in result.stdout.splitlines()
    assert SECOND in result.stderr
    assert "--all" in result.stderr


def test_export_offers_no_closest_pair_where_none_finished(root: Path, tmp_path: Path) -> None:
    store_sweep(ObjectStore(root), {FIRST: [DIVERGED], SECOND: [INFEASIBLE]}, name="ended")
    out = str(tmp_path / "out")
    for words, offered in (((), True), (("--all",), False)):
        note = sweep("export", "ended", "--out", out, *words).stderr
        assert note.endswith(f"no configuration for {FIRST}: no finished pair.\n")
        assert (f"no configuration for {SECOND}: no winner. --all" in note) == offered


def test_the_manifest_names_the_code_also_where_there_is_no_git(
    trained: Path, tmp_path: Path
) -> None:
    sweep("export", "mine", "--out", str(tmp_path / "out"))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [environment["code"] for environment in manifest["environments"]] == [code_version()]


def test_export_replaces_more_by_less_only_where_it_is_told_to(
    stored: ObjectStore, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    sweep("export", "tiny", "--out", out)
    for signature in stored.names("arms"):
        ArmStore(stored).forget(signature)
    assert "10 arms" in refused("export", "tiny", "--all", "--out", out)
    sweep("export", "tiny", "--all", "--out", out, "--replace")


def test_a_search_is_written_as_optuna_has_it(stored: ObjectStore, tmp_path: Path) -> None:
    journal = tmp_path / "tiny.log"
    words = ("export", "tiny", "--out", str(tmp_path / "out"), "--optuna", str(journal))
    assert str(journal) in sweep(*words).stdout.splitlines()
    view = load_sweep(stored, "tiny")
    storage = JournalStorage(JournalFileBackend(str(journal)))
    for setting in view.settings:
        name = setting.setting.name
        study = optuna.load_study(study_name=f"tiny/{name}", storage=storage)
        told = {trial.user_attrs["proposal"]: trial for trial in study.trials}
        assert list(told) == [one.number for one in setting.results]
        for one in setting.results:
            trial = told[one.number]
            assert trial.user_attrs["outcome"] == one.outcome
            is_feasible = trial.constraints is not None and max(trial.constraints.values()) <= 0
            assert is_feasible == (one.outcome == "feasible")
        winner = setting.chosen.winner
        assert winner is None or study.best_trial.user_attrs["proposal"] == winner.number
    assert "exists, and --optuna writes a new file" in refused(*words)
    for place, message in (
        (tmp_path / "out", "lies in --out"),
        (tmp_path / "out" / "a.log", "lies in --out"),
        (journal / "a.log", "cannot make the folder"),
    ):
        assert message in refused(*words[:-1], str(place))
    sweep(*words[:-1], str(tmp_path / "new" / "a.log"))
