"""The command line: its verbs and options, what it reads, and what it says to bad input."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from search_spaces import catalog
from sweep import cli_options, cli_running, requirements
from sweep.cli import main
from sweep.definition import load_definition
from sweep.lock import driver_lock
from sweep.proposals import put_retired
from sweep.views import load_sweep
from tests.oracles import TINY
from tests.sweeps import DIVERGED, FEASIBLE, INFEASIBLE, SPACE, store_sweep
from trainables.config import TRAINING_VERSION
from trainables.datasets import video
from trainables.errors import StoreError
from trainables.object_store import ObjectStore
from trainables.run_store import RunStore

FIRST, SECOND = (s.name for s in SPACE.settings)

# Two arms in a second or two: what a run that trains is tried with.
SPACE_FILE = """
from dataclasses import replace
from search_spaces.space import SearchSpace, Setting, Uniform
from tests.oracles import TINY

SPACE = SearchSpace(
    name="mine",
    summary="my own",
    base=replace(TINY, steps=4, report_every=2),
    settings=(Setting("only", {}),),
    ranges={"constraint.alpha": Uniform(0.1, 0.3)},
    n_proposals=1,
    search_seeds=(0,),
    sampler="random",
)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The storage root that every verb of a test uses; it does not exist yet."""
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def objects(root: Path) -> ObjectStore:
    store = ObjectStore(root)
    store_sweep(store, {FIRST: [INFEASIBLE, FEASIBLE], SECOND: [INFEASIBLE]})
    return store


@pytest.fixture(scope="module")
def space_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("space") / "mine.py"
    path.write_text(SPACE_FILE)
    return str(path)


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory, space_file: str) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "root"
    ran = sweep("run", space_file, "--where", "inline", "--storage", str(folder))
    assert "2 of 2 arms are final" in ran.stdout
    return folder


@pytest.fixture
def trained(root: Path, trained_once: Path) -> Path:
    """The storage root with the finished sweep of ``space_file`` in it: a copy of its own."""
    shutil.copytree(trained_once, root)
    return root


def sweep(*words: str, exits: int = 0, answer: str | None = None) -> Result:
    result = CliRunner().invoke(main, list(words), input=answer)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == exits, result.output
    return result


def refused(*words: str) -> str:
    """The message of a verb that exits 2: on standard error, without a traceback."""
    result = sweep(*words, exits=2)
    assert "Traceback" not in result.output
    assert result.stdout == ""
    return result.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# --- the surface ----------------------------------------------------------------------------------


def helps(command: click.Command, words: list[str]) -> Iterator[str]:
    yield CliRunner().invoke(main, [*words, "--help"], prog_name="sweep", terminal_width=100).output
    if isinstance(command, click.Group):
        for name, verb in command.commands.items():
            yield from helps(verb, [*words, name])


def test_verbs_and_options_are_those_that_were_reviewed(
    golden: Callable[[str, str], None],
) -> None:
    golden("help.txt", "\n".join(helps(main, [])))


def test_the_verbs_are_those_of_the_design() -> None:
    verbs = "spaces run resume stop list status best export ui sync rm doctor"
    assert set(main.commands) == set(verbs.split())


def test_every_reading_verb_has_json() -> None:
    for verb in ("spaces", "list", "status", "best", "doctor"):
        assert any("--json" in option.opts for option in main.commands[verb].params), verb


def test_reading_verbs_load_no_heavy_library(objects: ObjectStore) -> None:
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from sweep.cli import main\n"
        "for words in (['spaces'], ['list'], ['status', 'tiny'], ['best', 'tiny']):\n"
        "    result = CliRunner().invoke(main, words)\n"
        "    assert result.exit_code == 0, result.output\n"
        "print(*sorted({'torch', 'ray', 'mlflow', 'optuna', 'pandas'} & set(sys.modules)))\n"
    )
    folder = Path(__file__).parents[1]
    ran = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == []


# --- reading --------------------------------------------------------------------------------------


def test_spaces_lists_every_built_in_space_and_shows_one() -> None:
    listed = sweep("spaces").stdout
    assert all(name in listed for name in catalog.space_names())
    shown = sweep("spaces", "quickstart").stdout
    assert "constraint.alpha" in shown
    assert all(s.name in shown for s in catalog.find("quickstart").space.settings)
    plain = json.loads(sweep("spaces", "quickstart", "--json").stdout)
    assert plain["arms"] == catalog.arm_count(catalog.find("quickstart").space)
    assert {entry["name"] for entry in json.loads(sweep("spaces", "--json").stdout)} == set(
        catalog.space_names()
    )


def test_list_shows_the_newest_sweep_first_with_its_state(objects: ObjectStore) -> None:
    everything = [INFEASIBLE, FEASIBLE, DIVERGED]
    store_sweep(objects, {FIRST: everything, SECOND: everything}, name="later")
    failing = SPACE.with_base({"steps": 41})
    came_to: list[Any] = ["failed"] * 3
    store_sweep(objects, {FIRST: came_to, SECOND: came_to}, name="latest", space=failing)
    entries = json.loads(sweep("list", "--json").stdout)
    assert [(e["name"], e["state"]) for e in entries] == [
        ("latest", "failed"), ("later", "finished"), ("tiny", "stopped"),
    ]  # fmt: skip
    assert {e["storage"] for e in entries} == {objects.root}
    assert {e["space"] for e in entries} == {"tiny"}
    assert "later" in sweep("list").stdout


def test_a_sweep_whose_driver_holds_the_lock_is_running(objects: ObjectStore) -> None:
    with driver_lock(objects, "tiny"):
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


def test_best_has_an_entry_per_setting_with_everything_that_was_promised(
    objects: ObjectStore,
) -> None:
    entries = json.loads(sweep("best", "tiny", "--json").stdout)
    assert [e["setting"] for e in entries] == [FIRST, SECOND]
    assert [e["winner"] for e in entries] == [True, False]
    assert "layer 2" in entries[1]["why"]
    arm = {
        "signature", "config", "objective", "feasible", "useful", "worst_missing_share",
        "missing_share", "scores", "layer_losses", "mlflow_run_id",
    }  # fmt: skip
    for entry in entries:
        assert set(entry["outcomes"]) == {
            "feasible", "infeasible", "diverged", "stopped", "failed",
        }  # fmt: skip
        assert arm <= entry["constrained"].keys()
        assert arm <= entry["unconstrained"].keys()
        assert entry["difference"]["selection_biased"] is True
        assert len(entry["constrained"]["missing_share"]) == 3
        assert len(entry["constrained"]["layer_losses"]) == 4


def test_best_for_people_fits_80_columns_and_names_what_matters(objects: ObjectStore) -> None:
    text = sweep("best", "tiny").stdout
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text
    for words in ("winner", "no winner", "alpha", "Identity", "Wiener", "selection-biased"):
        assert words in text


def test_status_names_failures_and_how_to_continue(root: Path) -> None:
    store_sweep(ObjectStore(root), {FIRST: [DIVERGED]}, name="broken")
    text = sweep("status", "broken").stdout
    assert "the loss is nan" in " ".join(text.split())
    assert "sweep resume broken" in text


# --- export, rm -----------------------------------------------------------------------------------


def test_export_prints_its_files_and_what_it_left_out(objects: ObjectStore, tmp_path: Path) -> None:
    result = sweep("export", "tiny", "--out", str(tmp_path / "out"))
    assert str(tmp_path / "out" / "manifest.json") in result.stdout.splitlines()
    assert SECOND in result.stderr
    assert "--all" in result.stderr


def test_rm_shows_what_it_would_delete_and_asks(objects: ObjectStore) -> None:
    before = contents(Path(objects.root))
    result = sweep("rm", "tiny", answer="n\n")
    assert "10 arms" in result.stdout
    assert contents(Path(objects.root)) == before
    sweep("rm", "tiny", "--yes")
    assert objects.names("arms") == []
    assert json.loads(sweep("list", "--json").stdout) == []


def test_rm_keeps_arms_that_another_sweep_uses(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]}, name="other")
    result = sweep("rm", "tiny", "--yes")
    assert "6 arms stay" in result.stdout
    view = load_sweep(objects, "other")
    assert all(arm.is_final for arm in view.settings[0].arms)


def test_a_damaged_sweep_is_listed_as_such_and_can_be_removed(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]}, name="broken")
    Path(objects.root, "sweeps", "broken", "definition.json").write_text("damaged")
    result = sweep("list", "--json")
    entries = {entry["name"]: entry["state"] for entry in json.loads(result.stdout)}
    assert entries == {"broken": "damaged", "tiny": "stopped"}
    assert "broken" in result.stderr
    assert "damaged" in sweep("list").stdout
    arms = objects.names("arms")
    assert "no arm goes" in sweep("rm", "tiny", answer="n\n").stdout  # broken may use them
    assert "no arm goes" in sweep("rm", "broken", "--yes").stdout
    assert objects.names("arms") == arms
    sweep("rm", "tiny", "--yes")
    assert objects.names("sweeps") == []


def test_arms_without_a_driver_are_interrupted_not_in_training(objects: ObjectStore) -> None:
    definition = load_definition(objects, "tiny")
    store = RunStore(objects)
    config = definition.space.run(definition.space.settings[0], {}, seed=0).unconstrained()
    record = store.record(config.signature())
    assert record is not None
    store.forget(record.signature)
    store.put_record(replace(record, status="running", evaluation=None))
    assert "1 interrupted" in sweep("status", "tiny").stdout
    with driver_lock(objects, "tiny"):
        assert "1 in training" in sweep("status", "tiny").stdout


def test_settings_whose_search_ended_early_are_shown(objects: ObjectStore) -> None:
    put_retired(objects, "tiny", {SECOND: "no such kernel"})
    status = json.loads(sweep("status", "tiny", "--json").stdout)
    assert status["retired"] == {SECOND: "no such kernel"}
    assert "no such kernel" in sweep("status", "tiny").stdout
    assert json.loads(sweep("list", "--json").stdout)[0]["retired"] == [SECOND]
    assert "1 retired" in sweep("list").stdout


def test_the_state_comes_from_the_records(objects: ObjectStore) -> None:
    everything = [INFEASIBLE, FEASIBLE, DIVERGED]
    store_sweep(objects, {FIRST: everything, SECOND: everything}, name="later")
    space = load_definition(objects, "later").space
    twin = space.run(space.settings[0], {}, seed=0).unconstrained().signature()
    RunStore(objects).forget(twin)  # every proposal has its outcome, one arm has no record
    states = {e["name"]: e["state"] for e in json.loads(sweep("list", "--json").stdout)}
    assert states["later"] == "stopped"
    assert json.loads(sweep("status", "later", "--json").stdout)["state"] == "stopped"


def test_rm_refuses_a_sweep_that_runs(objects: ObjectStore) -> None:
    with driver_lock(objects, "tiny"):
        assert "is running" in refused("rm", "tiny", "--yes")
    assert len(objects.names("arms")) == 10


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rnu", "quickstart"), "Did you mean 'run'"),
        (("run", "quickstart", "--proposal", "3"), "Did you mean '--proposals'"),
        (("run",), "Missing argument 'SPACE'"),
        (("run", "quickstrat"), "Did you mean 'quickstart'"),
        (("run", "gone.py"), "does not exist"),
        (("run", "quickstart", "--set", "stpes=3"), "Did you mean 'steps'"),
        (("run", "quickstart", "--set", "steps"), "--set must be name=value"),
        (("run", "quickstart", "--set", "steps=3", "--set", "steps=4"), "given twice"),
        (("run", "quickstart", "--set", "steps=-3"), "steps must be positive, got -3"),
        (("run", "quickstart", "--set", "constraint.scale=x"), "'schedule', 'none', got 'x'"),
        (("run", "quickstart", "--set", "data.name=avenue"), "is fixed by the settings"),
        (("run", "quickstart", "--seeds", "x"), "--seeds must be a count"),
        (("run", "quickstart", "--seeds", "1,1"), "must be different"),
        (("run", "quickstart", "--seeds", "0"), "1 to 1000 seeds"),
        (("run", "quickstart", "--seeds", "\u00b2"), "--seeds must be a count"),
        (("run", "quickstart", "--seeds", "\u0663"), "--seeds must be a count"),
        (("run", "quickstart", "--set", "sampler=3"), "unknown sampler '3'"),
        (("run", "quickstart", "--set", "sampler=null"), "unknown sampler 'None'"),
        (("run", "quickstart", "--set", "sampler_seed=x"), "sampler_seed must be a whole number"),
        (("run", "quickstart", "--set", "n_proposals=true"), "n_proposals must be a whole number"),
        (("run", "quickstart", "--set", "n_proposals=2.5"), "n_proposals must be a whole number"),
        (("run", "quickstart", "--set", "search_seeds=[true]"), "list of whole numbers"),
        (("run", "quickstart", "--storage", "foo://bar"), "'foo://bar' is no storage root"),
        (("run", "quickstart", "--storage", ""), "'' is no storage root"),
        (("list", "--storage", "foo://bar"), "'foo://bar' is no storage root"),
        (("doctor", "--storage", "foo://bar"), "'foo://bar' is no storage root"),
        (("run", "quickstart", "--name", ""), "a sweep's name must be"),
        (("run", "quickstart", "--data", "/nope"), "photographs is built in and reads no folder"),
        (("run", "quickstart", "--proposals", "0"), "n_proposals must be at least 1"),
        (("run", "quickstart", "--name", "../x"), "a sweep's name must be"),
        (("run", "quickstart", "--where", "moon"), "'moon' is not one of 'local', 'inline'"),
        (("run", "quickstart", "--workers", "0"), "0 is not in the range x>=1"),
        (("run", "quickstart", "--full"), "Run it without --full"),
        (("run", "quickstart", "--mlflow", "folder"), "an MLflow address must be like"),
        (("run", "quickstart", "--mlflow", ""), "an MLflow address must be like"),
        (("run", "quickstart", "--mlflow", "http://me:secret@host"), "must be without a password"),
        (("status", "gone"), "unknown sweep 'gone'"),
        (("best", "gone", "--json"), "unknown sweep 'gone'"),
        (("resume", "gone"), "unknown sweep 'gone'"),
        (("stop", "gone"), "unknown sweep 'gone'"),
        (("rm", "gone", "--yes"), "unknown sweep 'gone'"),
        (("sync", "gone"), "unknown sweep 'gone'"),
        (("export", "gone", "--out", "x"), "unknown sweep 'gone'"),
        (("export", "gone"), "Missing option '--out'"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    root: Path, words: tuple[str, ...], message: str
) -> None:
    assert message in refused(*words)
    assert not root.exists()


def test_a_password_in_an_address_is_never_repeated(root: Path) -> None:
    for address in (
        "http://me:secret@host:1",
        "me:secret@host",
        "postgresql://h/d?password=secret",
    ):
        for words in (("run", "quickstart"), ("doctor",)):
            result = CliRunner().invoke(main, [*words, "--mlflow", address])
            assert result.exit_code in (1, 2)
            assert "secret" not in result.output
    assert not root.exists()


def test_an_unknown_sweep_names_the_closest_one_and_the_place(objects: ObjectStore) -> None:
    text = refused("status", "tinny")
    assert "Did you mean 'tiny'" in text
    assert objects.root in text


@pytest.mark.parametrize("kind", ["missing", "file", "empty", "layout"])
def test_a_wrong_data_folder_is_refused_and_nothing_is_written(
    root: Path, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "data"
    if kind == "file":
        folder.write_text("")
    elif kind != "missing":
        folder.mkdir()
    if kind == "layout":
        (folder / "pictures").mkdir()
    text = refused("run", "ped2_ut", "--data", str(folder))
    assert str(folder) in text
    assert not root.exists()


def test_a_truncated_frame_is_named(root: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for split in ("Train", "Test"):
        for clip in (1, 2):
            place = tmp_path / "UCSDped2" / split / f"{split}00{clip}"
            place.mkdir(parents=True)
            for frame in range(1, 13):
                image.new("L", (24, 16), 10 * frame).save(place / f"{frame:03d}.tif")
    broken = tmp_path / "UCSDped2" / "Train" / "Train002" / "007.tif"
    broken.write_bytes(broken.read_bytes()[:40])
    text = refused("run", "ped2_ut", "--data", str(tmp_path))
    assert str(broken) in text
    assert not root.exists()


def test_a_data_set_without_a_folder_says_how_to_give_one(root: Path) -> None:
    assert "--data" in refused("run", "ped2_ut")
    assert not root.exists()


def test_a_storage_root_that_cannot_be_written_is_refused(space_file: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        text = refused("run", space_file, "--storage", str(place), "--where", "inline")
        assert "cannot be written" in text
        assert str(place) in text
    assert (tmp_path / "file").read_text() == "mine"


def test_a_name_with_another_definition_shows_the_difference(
    trained: Path, space_file: str
) -> None:
    before = contents(trained / "sweeps")
    text = refused("run", space_file, "--set", "steps=6", "--where", "inline")
    assert "base.steps: stored 4, given 6" in text
    assert "--name" in text
    assert contents(trained / "sweeps") == before


@pytest.mark.parametrize("verb", ["run", "resume"])
def test_a_second_driver_is_refused_and_asks_for_nothing(
    trained: Path, space_file: str, verb: str
) -> None:
    what = space_file if verb == "run" else "mine"
    objects = ObjectStore(trained)
    with driver_lock(objects, "mine"):
        text = refused(verb, what, "--proposals", "5", "--where", "inline")
    assert "is running already" in text
    assert load_definition(objects, "mine").space.n_proposals == 1


def test_what_a_sweep_asks_for_can_only_grow(objects: ObjectStore) -> None:
    assert "can only grow" in refused("resume", "tiny", "--proposals", "1")
    assert "seeds can only be added" in refused("resume", "tiny", "--seeds", "5,6")


def test_stop_refuses_a_sweep_that_does_not_run(objects: ObjectStore) -> None:
    assert "is not running" in refused("stop", "tiny")


def test_a_failure_of_the_world_exits_1_without_a_traceback(objects: ObjectStore) -> None:
    proposals = Path(objects.root, "sweeps", "tiny", "proposals", FIRST)
    (proposals / "000000.json").write_text("damaged")
    result = sweep("status", "tiny", exits=1)
    assert result.stderr.startswith("sweep: ")
    assert "is damaged" in result.stderr
    assert "Traceback" not in result.output


# --- running --------------------------------------------------------------------------------------


def test_resuming_trains_what_is_missing_and_nothing_else(trained: Path) -> None:
    before = contents(trained / "arms")
    sweep("resume", "mine", "--where", "inline")
    assert contents(trained / "arms") == before
    sweep("resume", "mine", "--proposals", "2", "--where", "inline")
    assert before.items() <= contents(trained / "arms").items()
    assert len(ObjectStore(trained).names("arms")) == 3


def test_an_exported_configuration_trains_again_to_the_same_bits(
    trained: Path, tmp_path: Path
) -> None:
    sweep("export", "mine", "--out", str(tmp_path / "out"), "--all")
    config = str(tmp_path / "out" / "configs" / "only.json")
    again = sweep("run", config, "--fresh", "--where", "inline")
    assert "2 arms trained again: identical, bit for bit" in again.stdout
    assert not (trained / "scratch").exists()

    plain = json.loads(Path(config).read_text())
    plain["runs"]["0"]["constrained"]["evaluation"]["ood_mean"] += 0.25
    Path(config).write_text(json.dumps(plain))
    differs = sweep("run", config, "--fresh", "--where", "inline", exits=1)
    assert "1 numbers differ" in differs.stdout
    assert "evaluation.ood_mean" in differs.stdout
    assert "same machine type and versions" in differs.stdout


@pytest.mark.parametrize("version", [None, 0])
def test_an_edited_configuration_is_not_trained_and_never_identical(
    trained: Path, tmp_path: Path, version: int | None
) -> None:
    sweep("export", "mine", "--out", str(tmp_path / "out"), "--all")
    path = tmp_path / "out" / "configs" / "only.json"
    plain = json.loads(path.read_text())
    expected = plain["runs"]["0"]["constrained"]["signature"]
    if version is None:
        plain["runs"]["0"]["config"]["steps"] = 6
    else:
        plain["training_version"] = version
    path.write_text(json.dumps(plain))
    result = sweep("run", str(path), "--fresh", "--where", "inline", exits=1)
    assert "identical" not in result.output
    said = (
        (expected, "instead") if version is None else ("version 0", f"version {TRAINING_VERSION}")
    )
    assert all(words in result.stderr for words in said)
    assert not (trained / "scratch").exists()
    sweep("run", str(path), "--name", "again", "--where", "inline")  # without --fresh it may


def test_arms_without_a_record_to_compare_with_are_no_success(
    trained: Path, space_file: str
) -> None:
    words = ("run", space_file, "--fresh", "--where", "inline", "--proposals", "2")
    result = sweep(*words, exits=1)
    assert "1 of 3 arms had nothing to be compared with" in result.stderr
    assert not (trained / "scratch").exists()


def test_a_space_run_fresh_is_compared_with_what_is_stored(
    trained: Path, space_file: str, tmp_path: Path
) -> None:
    ran = sweep("run", space_file, "--fresh", "--where", "inline")
    assert "2 arms trained again: identical, bit for bit" in ran.stdout
    elsewhere = str(tmp_path / "elsewhere")
    assert "nothing to compare with" in refused(
        "run", space_file, "--fresh", "--storage", elsewhere
    )
    assert not Path(elsewhere).exists()


def test_running_more_seeds_of_a_sweep_adds_them(trained: Path, space_file: str) -> None:
    sweep("run", space_file, "--where", "inline", "--seeds", "2")
    view = load_sweep(ObjectStore(trained), "mine")
    assert view.definition.space.search_seeds == (0, 1)
    assert view.is_finished


def test_a_sweep_is_never_asked_for_less_in_silence(trained: Path, space_file: str) -> None:
    run = ("run", space_file, "--where", "inline")
    grown = sweep(*run, "--proposals", "2", "--seeds", "0,4")
    assert "extends mine from 1 to 2 proposals" in grown.stderr
    assert "extends mine from search seeds [0] to [0, 4]" in grown.stderr
    before = contents(trained)
    assert "n_proposals: stored 2, given 1" in refused(*run, "--proposals", "1")
    assert "n_proposals: stored 2, given 1" in refused(*run, "--set", "n_proposals=1")
    assert "search_seeds: stored [0, 4], given [0]" in refused(*run, "--seeds", "1")
    assert contents(trained) == before
    plain = sweep(*run)  # the space itself: what was asked for since stays
    assert "extends" not in plain.stderr
    assert "6 of 6 arms are final" in plain.stdout


def test_results_are_printed_when_weights_cannot_be_deleted(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise StoreError("the disk is full")

    monkeypatch.setattr(cli_running, "keep_winners_weights", fails)
    result = sweep("resume", "mine", "--where", "inline", exits=1)
    assert "2 of 2 arms are final" in result.stdout
    assert "the disk is full" in result.stderr


def test_a_relative_data_folder_is_stored_as_it_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(video, "BUILT_IN", ())  # any data set: this one does not look at it
    setting = type(SPACE.settings[0])
    settings = (setting("base", {}), setting("own", {"data.folder": "own"}))
    base = TINY.with_fields({"data.folder": "data"})
    space = type(SPACE)(**{**vars(SPACE), "base": base, "settings": settings})
    resolved = requirements.resolve_data(space)
    folders = [resolved.run(s, {}, seed=0).data.folder for s in resolved.settings]
    assert folders == [str(tmp_path / "data"), str(tmp_path / "own")]


def test_data_in_another_place_is_the_same_sweep(objects: ObjectStore) -> None:
    definition = load_definition(objects, "tiny")
    moved = requirements.with_folder(definition, "/elsewhere")
    for seed in SPACE.search_seeds:
        there, here = (d.space.run(d.space.settings[0], {}, seed=seed) for d in (definition, moved))
        assert here.data.folder == "/elsewhere"
        assert here.signature() == there.signature()


def test_settings_on_different_data_carry_their_own_fingerprints() -> None:
    setting = type(SPACE.settings[0])
    settings = (setting("short", {}), setting("long", {"data.frames": 4, "data.frame_size": 36}))
    space = type(SPACE)(**{**vars(SPACE), "base": TINY, "settings": settings})
    resolved = requirements.resolve_data(space)
    prints = [resolved.run(s, {}, seed=0).data.fingerprint for s in resolved.settings]
    assert all(prints)
    assert prints[0] != prints[1]


# --- doctor ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_doctor_passes_here_and_fails_with_advice_where_it_must(root: Path, tmp_path: Path) -> None:
    found: list[dict[str, Any]] = json.loads(sweep("doctor", "--json").stdout)
    assert {"Python", "packages", "torch", "storage", "disk", "cache", "MLflow", "Ray"} <= {
        check["name"] for check in found
    }
    assert not root.exists()
    (tmp_path / "file").write_text("")
    text = sweep("doctor", "--storage", str(tmp_path / "file"), exits=1).stdout
    assert "FAIL  storage" in text
    assert "--storage" in text
    text = sweep("doctor", "--data", str(tmp_path), exits=1).stdout
    assert "FAIL  data" in text


def test_seeds_are_a_count_or_a_list() -> None:
    assert cli_options.parse_seeds("2") == (0, 1)
    assert cli_options.parse_seeds("2", present=(0, 1)) == (0, 1)
    assert cli_options.parse_seeds("3", present=(7,)) == (7, 0, 1)
