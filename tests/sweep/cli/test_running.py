"""`sweep run`, `resume` and `stop`: what they refuse, what they train and what they leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sweep.api import training
from sweep.results.sweep_view import load_sweep
from sweep.run.budget import summarize_spending
from sweep.run.signals import KNOWN
from sweep.study.definition import load_definition, put_definition
from sweep.study.lock import driver_lock
from tests.support.command_line import contents, refused, sweep
from tests.support.gpu.devices import imitated_gpu
from tests.support.servers.ray_nodes import NO_CLUSTER
from tests.support.toy_sweeps import definition, started
from trainables.errors import StoreError
from trainables.records.objects import ObjectStore

# --- what is refused ------------------------------------------------------------------------------


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


def test_a_dry_run_shows_plan_and_cost_and_leaves_nothing(root: Path, space_file: str) -> None:
    shown = sweep(
        "run", space_file, "--dry-run", "--name", "later", "--point", "constraint.alpha=0.25"
    )
    words = " ".join(shown.stdout.split())
    assert "1 setting x 1 proposal" in words
    assert "alpha=0.25" in words
    assert "Estimate, within a factor of 2" in words
    assert "nothing is trained or stored" in shown.stderr
    assert f"It would be later in {root}" in shown.stderr
    assert "give one of them" in refused("run", space_file, "--dry-run", "--reproduce")
    assert not root.exists()


def test_a_data_set_without_a_folder_says_how_to_give_one(root: Path) -> None:
    assert "--data" in refused("run", "ped2_ut")
    assert not root.exists()


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch has CUDA of its own")
def test_a_gpu_is_required_of_the_machine_that_trains(
    root: Path, space_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("run", space_file, "--set", "device=cuda")
    for where in ("local", "inline"):
        text = refused(*asked, "--where", where)
        assert "device must be 'cpu' on this machine, got 'cuda': torch " in text
    with imitated_gpu():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert "torch " in refused(*asked)
    assert not root.exists()
    for name, value in NO_CLUSTER.items():
        monkeypatch.setenv(name, value)
    head = sweep(*asked, "--where", "cluster", exits=1)  # which trains nothing
    assert "no Ray cluster answers here" in head.stderr


def test_a_storage_root_that_cannot_be_written_is_refused(space_file: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        text = refused("run", space_file, "--storage", str(place), "--where", "inline")
        assert "cannot be written" in text or "it is a file" in text
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


def test_what_a_sweep_asks_for_can_only_grow(stored: ObjectStore) -> None:
    assert "can only grow" in refused("resume", "tiny", "--proposals", "1")
    assert "seeds can only be added" in refused("resume", "tiny", "--seeds", "5,6")


def test_stop_refuses_a_sweep_that_does_not_run(stored: ObjectStore) -> None:
    assert "is not running" in refused("stop", "tiny")


# --- what is trained ------------------------------------------------------------------------------


def test_resuming_trains_what_is_missing_and_nothing_else(trained: Path) -> None:
    before = contents(trained / "arms")
    sweep("resume", "mine", "--where", "inline")
    assert contents(trained / "arms") == before
    sweep("resume", "mine", "--proposals", "2", "--where", "inline")
    assert before.items() <= contents(trained / "arms").items()
    assert len(ObjectStore(trained).names("arms")) == 3


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

    monkeypatch.setattr(training, "keep_winners_weights", fails)
    result = sweep("resume", "mine", "--where", "inline", exits=1)
    assert "2 of 2 arms are final" in result.stdout
    assert "the disk is full" in result.stderr


@pytest.mark.parametrize("is_supervised", [True, False])
def test_a_driver_that_is_started_again_asks_nobody_to_resume(
    objects: ObjectStore,
    is_supervised: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = put_definition(objects, definition())
    coordinator = started(objects, asked)
    coordinator.stop_on_trouble("the disk is full")
    if is_supervised:
        monkeypatch.setenv(KNOWN, "0")
    view = load_sweep(objects, "toy")
    training.tell_end(
        view,
        coordinator.summary(),
        lambda *_: pytest.fail("it is not done"),
        summarize_spending(objects, view).spent,
    )
    said = capsys.readouterr().err
    assert ("Continue with `sweep resume toy --storage" in said) is not is_supervised
    assert ("Its job sees whether it goes on" in said) is is_supervised
