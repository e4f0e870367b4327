"""Before a sweep: data and checkpoints are found from anywhere and known by what they hold."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from search_spaces.space import SearchSpace, Setting
from sweep.cli.main import main
from sweep.errors import NameTaken
from sweep.study.definition import Definition, load_definition, put_definition
from sweep.study.requirements import (
    require_training,
    resolve_checkpoints,
    resolve_data,
    with_checkpoint_of,
    with_folder,
)
from tests.support.data.checkpoints import tiny_vit
from tests.support.oracles import TINY
from tests.support.sweeps import SPACE
from trainables.build import build_model, build_task
from trainables.datasets.video import photographs
from trainables.errors import BadData, InvalidValue, UnknownName
from trainables.fetching.checkpoint_files import checkpoint_fingerprint
from trainables.records.objects import ObjectStore

# --- data -----------------------------------------------------------------------------------------


def test_a_relative_data_folder_is_stored_as_it_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reads_one = replace(photographs.DATA_SET, reads_folder=True)  # it does not look at it
    monkeypatch.setattr(photographs, "DATA_SET", reads_one)
    setting = type(SPACE.settings[0])
    settings = (setting("base", {}), setting("own", {"data.folder": "own"}))
    base = TINY.with_fields({"data.folder": "data"})
    space = type(SPACE)(**{**vars(SPACE), "base": base, "settings": settings})
    resolved = resolve_data(space)
    folders = [resolved.run(s, {}, seed=0).data.folder for s in resolved.settings]
    assert folders == [str(tmp_path / "data"), str(tmp_path / "own")]


def test_data_in_another_place_is_the_same_sweep(stored: ObjectStore) -> None:
    definition = load_definition(stored, "tiny")
    moved = with_folder(definition, "/elsewhere")
    for seed in SPACE.search_seeds:
        there, here = (d.space.run(d.space.settings[0], {}, seed=seed) for d in (definition, moved))
        assert here.data.folder == "/elsewhere"
        assert here.signature() == there.signature()


def test_settings_on_different_data_carry_their_own_fingerprints() -> None:
    setting = type(SPACE.settings[0])
    settings = (setting("short", {}), setting("long", {"data.frames": 4, "data.frame_size": 36}))
    space = type(SPACE)(**{**vars(SPACE), "base": TINY, "settings": settings})
    resolved = resolve_data(space)
    prints = [resolved.run(s, {}, seed=0).data.fingerprint for s in resolved.settings]
    assert all(prints)
    assert prints[0] != prints[1]


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tiny_vit(tmp_path / "vit")


def space_of(checkpoint: str, **fields: object) -> SearchSpace:
    base = TINY.with_fields(
        {
            "task": "frame_denoising",
            "model.name": "vit",
            "model.checkpoint": checkpoint,
            "model.layers": 2,
            "data.frame_size": 16,
            **fields,
        }
    )
    return replace(SPACE, base=base, settings=(Setting("one", {}), Setting("two", {"steps": 3})))


def test_a_checkpoint_is_stored_as_it_is_found_from_anywhere(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint.parent)
    space = resolve_checkpoints(space_of("./vit"))
    runs = [space.run(s, {}, seed=0) for s in space.settings]
    assert {run.model.checkpoint for run in runs} == {str(checkpoint)}
    assert {run.model.checkpoint_fingerprint for run in runs} == {
        checkpoint_fingerprint(str(checkpoint))
    }


def test_a_setting_may_have_a_checkpoint_of_its_own(checkpoint: Path, tmp_path: Path) -> None:
    other = tiny_vit(tmp_path / "other", "deit")
    space = space_of(str(checkpoint))
    own = Setting("own", {"model.checkpoint": str(other)})
    resolved = resolve_checkpoints(replace(space, settings=(*space.settings, own)))
    prints = [resolved.run(s, {}, seed=0).model.checkpoint_fingerprint for s in resolved.settings]
    assert prints[0] == prints[1] == checkpoint_fingerprint(str(checkpoint))
    assert prints[2] == checkpoint_fingerprint(str(other)) != prints[0]


def test_a_copy_is_the_same_run_and_other_weights_are_not(checkpoint: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    (copy / "README.md").write_text("not loaded")
    runs = [
        space.run(space.settings[0], {}, seed=0)
        for space in map(resolve_checkpoints, (space_of(str(checkpoint)), space_of(str(copy))))
    ]
    assert runs[0].signature() == runs[1].signature()

    weights = load_file(copy / "model.safetensors")
    name = next(iter(weights))
    save_file(weights | {name: weights[name] + 1}, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadData, match="changed: expected fingerprint"):
        resolve_checkpoints(space_of(str(copy), **{
            "model.checkpoint_fingerprint": runs[1].model.checkpoint_fingerprint
        }))  # fmt: skip
    task = build_task(runs[1], torch.device("cpu"), torch.float32)
    with pytest.raises(BadData, match="changed: expected fingerprint"):
        build_model(runs[1], task)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"model.layers": 3}, InvalidValue, "model.layers must be 2"),
        ({"data.frame_size": 32}, InvalidValue, "data.frame_size must be"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_before_an_arm_starts(
    checkpoint: Path, fields: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        resolve_checkpoints(space_of(str(checkpoint), **fields))


def test_a_missing_checkpoint_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"no checkpoint .\./none."):
        resolve_checkpoints(space_of("./none"))
    storage = tmp_path / "sweeps"
    done = CliRunner().invoke(
        main,
        ["run", "video_denoising_vit", "--storage", str(storage), "--data", str(tmp_path),
         "--set", "model.checkpoint=./none", "--set", "device=cpu"],
    )  # fmt: skip
    assert done.exit_code == 2
    assert "no checkpoint './none'" in done.output
    assert not storage.exists()


def test_spaces_without_a_checkpoint_are_left_as_they_are() -> None:
    assert resolve_checkpoints(SPACE) is SPACE


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": 100_000}, "setting one cannot be trained: batch_size must be at most"),
        (
            {"constraint.dual_every_unit": "epoch", "constraint.dual_every": 30},
            "setting one cannot be trained: dual_every must bring a dual step",
        ),
    ],
)
def test_what_data_and_constraint_do_not_allow_is_refused_before_an_arm_starts(
    fields: dict[str, object], message: str
) -> None:
    space = replace(SPACE, base=TINY.with_fields(fields), settings=(Setting("one", {}),))
    with pytest.raises(InvalidValue, match=message):
        require_training(resolve_data(space))


def test_what_can_be_trained_passes() -> None:
    require_training(resolve_data(replace(SPACE, base=TINY)))


def test_a_checkpoint_in_another_place_is_the_same_sweep(checkpoint: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    objects = ObjectStore(tmp_path / "store")
    here, there = (
        Definition("vit", resolve_checkpoints(space_of(str(place)))) for place in (checkpoint, copy)
    )
    put_definition(objects, here)
    stored = put_definition(objects, there)
    assert stored.space.base.model.checkpoint == str(checkpoint)
    moved = with_checkpoint_of(stored, there.space)
    assert moved.space == there.space

    other = tiny_vit(tmp_path / "other", "deit")
    with pytest.raises(NameTaken, match="checkpoint_fingerprint: stored"):
        put_definition(objects, Definition("vit", resolve_checkpoints(space_of(str(other)))))
