"""`sweep list`, `status` and `best`: what they show of a sweep in every state."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sweep as program
from sweep.api.listed import newest_first
from sweep.cli.text.best import print_best
from sweep.results.best import best_entries
from sweep.results.findings import findings
from sweep.results.summary import SettingSummary
from sweep.results.sweep_view import load_sweep
from sweep.study.definition import Definition, load_definition, put_definition
from sweep.study.lock import driver_lock
from sweep.study.proposals import put_retired
from sweep.tracking.address import sweep_id
from tests.support import confirmations
from tests.support.command_line import refused, sweep
from tests.support.servers.clouds import BUCKET, Cloud
from tests.support.sweeps import DIVERGED, FEASIBLE, FIRST, INFEASIBLE, SECOND, SPACE, store_sweep
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

# --- list and status ------------------------------------------------------------------------------


def test_list_shows_the_newest_sweep_first_with_its_state(stored: ObjectStore) -> None:
    everything = [INFEASIBLE, FEASIBLE, DIVERGED]
    store_sweep(stored, {FIRST: everything, SECOND: everything}, name="later")
    failing = SPACE.with_base({"steps": 41})
    came_to: list[Any] = ["failed"] * 3
    store_sweep(stored, {FIRST: came_to, SECOND: came_to}, name="latest", space=failing)
    entries = json.loads(sweep("list", "--json").stdout)
    assert [(e["name"], e["state"]) for e in entries] == [
        ("latest", "failed"), ("later", "finished"), ("tiny", "stopped"),
    ]  # fmt: skip
    assert {e["storage"] for e in entries} == {stored.root}
    assert {e["space"] for e in entries} == {"tiny"}
    assert "later" in sweep("list").stdout
    frame = program.sweeps(stored.root)
    assert json.loads(frame.to_json(orient="records")) == entries


def test_no_sweeps_are_a_frame_without_rows(root: Path) -> None:
    assert list(program.sweeps(root).columns) == [
        "name", "space", "state", "proposals", "retired", "plug_in", "storage",
    ]  # fmt: skip


def test_a_confirmed_sweep_says_where_fresh_seeds_say_what_it_found(root: Path) -> None:
    objects = ObjectStore(root)
    confirmations.searched(objects)
    said = "Results of its pairs on fresh seeds: `sweep best tiny.confirmation"
    for is_confirmed in (False, True):
        if is_confirmed:
            confirmations.stored(objects)
        for verb in ("best", "status"):
            assert (said in " ".join(sweep(verb, "tiny").stdout.split())) == is_confirmed, verb
        best = " ".join(sweep("best", "tiny").stdout.split())
        assert "selection-biased: measured on the data that picked the pair" in best
        assert ("so no result before fresh seeds confirm it." in best) != is_confirmed
        assert said not in sweep("status", "tiny", "--json").stdout


def test_on_object_storage_the_newest_is_first_too(cloud: Cloud) -> None:
    objects = ObjectStore(f"s3://{BUCKET}/root")
    for name in ("b", "c", "a"):
        put_definition(objects, Definition(name, SPACE))
        time.sleep(1)  # its times are of whole seconds
    assert newest_first(objects) == ["a", "c", "b"]


def test_a_sweep_is_watched_until_its_driver_ends(
    stored: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as driver:
        driver.enter_context(driver_lock(stored, "tiny"))
        monkeypatch.setattr(time, "sleep", lambda seconds: driver.close())  # it ends meanwhile
        text = sweep("status", "tiny", "--watch").stdout
    assert text.index("tiny is running") < text.index("tiny is stopped")
    assert "give one of them" in refused("status", "tiny", "--watch", "--json")


def test_a_sweep_whose_driver_holds_the_lock_is_running(stored: ObjectStore) -> None:
    with driver_lock(stored, "tiny"):
        assert json.loads(sweep("list", "--json").stdout)[0]["state"] == "running"
        entry = json.loads(sweep("status", "tiny", "--json").stdout)
        assert (entry["state"], entry["arms"]["final"]) == ("running", 10)
        assert entry["driver"]["pid"] > 0
        assert json.loads(sweep("best", "tiny", "--json").stdout)[0]["winner"] is True
    assert json.loads(sweep("list", "--json").stdout)[0]["state"] == "stopped"


def test_an_empty_root_lists_no_sweeps_and_says_where_it_looked(root: Path) -> None:
    result = sweep("list")
    assert result.stdout == ""
    assert str(root) in result.stderr
    assert json.loads(sweep("list", "--json").stdout) == []
    assert not root.exists()


def test_status_names_failures_and_how_to_continue(root: Path) -> None:
    store_sweep(ObjectStore(root), {FIRST: [DIVERGED]}, name="broken")
    text = sweep("status", "broken").stdout
    assert "the loss is nan" in " ".join(text.split())
    assert "sweep resume broken" in text


def test_status_prints_a_few_reasons_and_what_failed_first(root: Path) -> None:
    came_to: list[Any] = ["stopped", "stopped", "failed"]
    store_sweep(ObjectStore(root), {FIRST: came_to, SECOND: came_to}, name="ended")
    failures = json.loads(sweep("status", "ended", "--json").stdout)["failures"]
    assert [f["status"] for f in failures] == ["failed"] * 4 + ["stopped"] * 8
    text = " ".join(sweep("status", "ended").stdout.split())
    assert text.count("the loss is nan at step 20") == 4  # the failed ones
    assert text.count("the loss is nan") == 6
    assert "and 6 more arms: `--json` has every reason" in text


def test_status_says_what_a_running_sweep_waits_for(stored: ObjectStore) -> None:
    with driver_lock(stored, "tiny") as beats:
        beats.watch(lambda: "a machine: none holds an arm", lambda why: None)
        give_up = time.monotonic() + 30
        while "waits for" not in (text := sweep("status", "tiny").stdout):
            assert time.monotonic() < give_up, text
            time.sleep(0.1)
    assert "tiny is running" in text
    assert "waits for a machine: none holds an arm" in text
    assert "waits for" not in sweep("status", "tiny").stdout


def test_arms_without_a_driver_are_interrupted_not_in_training(stored: ObjectStore) -> None:
    definition = load_definition(stored, "tiny")
    store = ArmStore(stored)
    config = definition.space.run(definition.space.settings[0], {}, seed=0).unconstrained()
    record = store.record(config.signature())
    assert record is not None
    store.forget(record.signature)
    store.put_record(replace(record, status="running", evaluation=None))
    assert "1 interrupted" in sweep("status", "tiny").stdout
    with driver_lock(stored, "tiny"):
        assert "1 in training\n" in sweep("status", "tiny").stdout
        store.forget(record.signature)
        said = sweep("status", "tiny").stdout
        assert "0 in training (an arm counts from its first report on)" in said
    assert "from its first report" not in sweep("status", "tiny").stdout


def test_settings_whose_search_ended_early_are_shown(stored: ObjectStore) -> None:
    put_retired(stored, "tiny", {SECOND: "no such kernel"})
    status = json.loads(sweep("status", "tiny", "--json").stdout)
    assert status["retired"] == {SECOND: "no such kernel"}
    assert "no such kernel" in sweep("status", "tiny").stdout
    assert json.loads(sweep("list", "--json").stdout)[0]["retired"] == [SECOND]
    assert "1 retired" in sweep("list").stdout


def test_the_state_comes_from_the_records(stored: ObjectStore) -> None:
    everything = [INFEASIBLE, FEASIBLE, DIVERGED]
    store_sweep(stored, {FIRST: everything, SECOND: everything}, name="later")
    space = load_definition(stored, "later").space
    baseline = space.run(space.settings[0], {}, seed=0).unconstrained().signature()
    ArmStore(stored).forget(baseline)  # every proposal has its outcome, one arm has no record
    states = {e["name"]: e["state"] for e in json.loads(sweep("list", "--json").stdout)}
    assert states["later"] == "stopped"
    assert json.loads(sweep("status", "later", "--json").stdout)["state"] == "stopped"


# --- best -----------------------------------------------------------------------------------------


def test_best_has_an_entry_per_setting_with_everything_that_was_promised(
    stored: ObjectStore,
) -> None:
    entries = json.loads(sweep("best", "tiny", "--json").stdout)
    assert [e["setting"] for e in entries] == [FIRST, SECOND]
    assert [e["winner"] for e in entries] == [True, False]
    assert "layer 2" in entries[1]["why"]
    arm = {
        "signature", "config", "objective", "feasible", "beats_trivial", "worst_missing_share",
        "missing_share", "scores", "layer_losses", "mlflow_run_id",
    }  # fmt: skip
    for entry in entries:
        assert set(entry["outcomes"]) == {
            "feasible", "infeasible", "diverged", "stopped", "failed",
        }  # fmt: skip
        assert arm <= entry["constrained"].keys()
        assert arm <= entry["unconstrained"].keys()
        assert entry["gain"]["selection_biased"] is True
        assert len(entry["constrained"]["missing_share"]) == 3
        assert len(entry["constrained"]["layer_losses"]) == 4


def test_best_keeps_its_labels_whole_beside_the_small_losses_of_frames(
    stored: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Per pixel, as ViT's are: what a short run on UCSD Ped2 came to."""
    entry = best_entries(load_sweep(stored, "tiny"), {})[0]
    losses = {"constrained": 0.0846112, "unconstrained": 0.0846107, "gain": 4.8112e-7}
    for who, loss in losses.items():
        entry[who]["held_out_loss"] = loss
    entry["constrained"]["mean_over_gammas"] = entry["unconstrained"]["mean_over_gammas"] = 73.7861
    entry["gain"]["mean_over_gammas"] = 0.000306112
    entry["references"]["identity"]["held_out_loss"] = 0.00043971
    entry["references"]["wiener"]["held_out_loss"] = 0.00025571
    print_best([SettingSummary.from_json(entry)])
    text = capsys.readouterr().out
    assert "  unconstrained  " in text
    assert "0.0846" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_best_says_why_it_names_no_mlflow_runs(stored: ObjectStore) -> None:
    told = "sweep: without MLflow run ids: {}\n"
    assert told.format("tiny was not tracked yet.") in sweep("best", "tiny", "--json").stderr
    sweep_id(stored, "tiny")
    nowhere = f"nothing is tracked at sqlite:///{stored.root}/mlflow.db yet."
    assert told.format(nowhere) in sweep("best", "tiny", "--json").stderr
    stored.put_json("sweeps/tiny/tracking.json", {"uri": "file:///folder"})
    assert "an MLflow address must be like" in sweep("best", "tiny", "--json").stderr
    assert sweep("best", "tiny").stderr == ""  # which shows none


def test_best_for_people_fits_80_columns_and_names_what_matters(stored: ObjectStore) -> None:
    text = sweep("best", "tiny").stdout
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text
    for words in (
        "winner",
        "no winner",
        "ut (distance)",
        "alpha",
        "Identity",
        "Wiener",
        "selection-biased",
    ):
        assert words in text


def test_a_search_that_has_ended_names_the_command_that_follows(stored: ObjectStore) -> None:
    """Neither one that runs nor one that was stopped does: it would be refused, or train more."""
    three = [INFEASIBLE, FEASIBLE, INFEASIBLE]
    store_sweep(stored, {FIRST: three, SECOND: three}, name="won")
    confirm = f"Next: `sweep confirm won --storage {stored.root}`."
    assert confirm in " ".join(sweep("best", "won").stdout.split())
    with driver_lock(stored, "won"):
        assert "Next:" not in sweep("best", "won").stdout
    assert "Next:" not in sweep("best", "tiny").stdout  # stopped


def test_the_answer_comes_first(stored: ObjectStore) -> None:
    printed = json.loads(sweep("best", "tiny", "--json").stdout)
    answer = " ".join(findings([SettingSummary.from_json(entry) for entry in printed]))
    for words in (("best", "tiny"), ("best", "tiny", "--full")):
        assert " ".join(sweep(*words).stdout.split()).startswith(answer)
    store_sweep(stored, {FIRST: [INFEASIBLE]}, name="lost")
    begins = "1 of 6 proposals have finished. None of 2 settings has a winner"
    assert sweep("best", "lost").stdout.startswith(begins)


def test_the_outcome_of_a_confirmation_comes_first(objects: ObjectStore) -> None:
    confirmations.searched(objects)
    _, definition = confirmations.stored(objects)
    scores = {FIRST: 1.0, SECOND: 0.0}  # by how much the constrained arm is better

    def score_of(setting: str, kind: str, seed: int) -> float:
        gain = scores[setting] + 0.2 * (-1) ** seed
        return 12.0 - gain * (kind == "constrained")

    confirmations.trained(objects, definition, score_of)
    shown = sweep("best", confirmations.NAME, "--storage", objects.root).stdout
    entry = json.loads(
        sweep("best", confirmations.NAME, "--json", "--storage", objects.root).stdout
    )
    marked = [one["contrasts"]["unconstrained"]["marked"] for one in entry["settings"]]
    assert marked[0] == "better" != marked[1]
    assert " ".join(shown.split()).startswith(
        "On fresh seeds and the test split, constrained against plain training: better in 1 "
        f"setting (gain +1 grey levels); {marked[1]} in 1 setting (gain +0 grey levels). "
        "tiny.confirmation: "
    )


# --- which sweep ----------------------------------------------------------------------------------


def test_verbs_that_change_nothing_take_the_newest_sweep(
    stored: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_sweep(stored, {FIRST: [FEASIBLE]}, name="other")
    monkeypatch.chdir(tmp_path)
    out = str(tmp_path / "out")
    for words in (["status"], ["best"], ["export", "--out", out], ["report", "--page"]):
        result = sweep(*words)
        assert result.stderr.startswith("sweep: other, the newest sweep:"), words
    assert json.loads(sweep("status", "--json").stdout)["name"] == "other"
    assert (tmp_path / "other-report").is_dir()


def test_verbs_that_change_something_ask_for_a_name_and_tell_those_there_are(
    stored: ObjectStore, tmp_path: Path
) -> None:
    for verb in ("rm", "stop", "resume", "sync", "confirm", "reproduce", "register"):
        assert "Missing argument 'NAME'. Sweeps here: tiny." in refused(verb)
    store_sweep(ObjectStore(tmp_path / "b"), {FIRST: [FEASIBLE]}, name="second")
    assert "Sweeps here: second." in refused("rm", "--storage", str(tmp_path / "b"))


@pytest.mark.parametrize("verb", ["status", "best", "report"])
def test_without_sweeps_a_verb_says_how_one_is_started(verb: str, root: Path) -> None:
    assert f"no sweeps below {root}. Start one with `sweep run quickstart" in refused(verb)
    assert "Missing argument 'NAME'." in refused("rm")
