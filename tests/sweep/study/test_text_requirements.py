"""Texts before a sweep: depth, tokenizer and data are known or refused before an arm starts."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from search_spaces import catalog
from search_spaces.space import SearchSpace, Setting
from sweep.cli.main import main
from sweep.study.requirements import resolve_checkpoints, resolve_data
from tests.support.data.text_checkpoints import tiny_encoder
from tests.support.data.text_runs import text_task, tiny_text
from trainables.build import build_model
from trainables.config.arm import ArmConfig
from trainables.config.constraint import default_constraint
from trainables.errors import BadData, InvalidValue, UnknownName


@pytest.fixture
def config(tmp_path: Path) -> ArmConfig:
    return tiny_text(tmp_path)


def space_of(config: ArmConfig, *settings: Setting) -> SearchSpace:
    return SearchSpace(
        name="texts", summary="", base=config, settings=settings or (Setting("one", {}),)
    )


def test_depth_is_read_from_the_checkpoint(config: ArmConfig, tmp_path: Path) -> None:
    deeper = tmp_path / "deeper"
    shutil.copytree(str(config.model.checkpoint), deeper)
    tiny_encoder(deeper, "bert", vocab_size=200, num_hidden_layers=5, max_position_embeddings=32)
    space = space_of(
        config.with_fields({"model.layers": 0}),
        Setting("three", {}),
        Setting("five", {"model.checkpoint": str(deeper)}),
        Setting("ut", {"model.name": "text_ut", "model.layers": 2}),
    )
    resolved = resolve_checkpoints(space)
    runs = [resolved.run(s, {}, seed=0) for s in resolved.settings]
    assert [run.model.layers for run in runs] == [3, 5, 2]
    assert len({run.model.checkpoint_fingerprint for run in runs}) == 2
    assert resolve_checkpoints(resolved) == resolved
    alone = resolve_checkpoints(space_of(config.with_fields({"model.layers": 0})))
    assert alone.base.model.layers == 3  # one value for all settings lies in the base


def test_what_no_network_of_that_depth_could_do_is_refused_with_the_depth(
    config: ArmConfig,
) -> None:
    open_depth = config.with_fields({"model.layers": 0, "constraint.alpha": 0.9999})
    with pytest.raises(InvalidValue, match=r"\(1 - alpha\)\^3"):
        resolve_checkpoints(space_of(open_depth))
    with pytest.raises(InvalidValue, match="must be 3, the depth of"):
        resolve_checkpoints(space_of(config.with_fields({"model.layers": 4})))


def test_another_tokenizer_is_another_run(config: ArmConfig, tmp_path: Path) -> None:
    known = resolve_checkpoints(space_of(config)).base
    copy = Path(shutil.copytree(str(config.model.checkpoint), tmp_path / "copy"))
    (copy / "README.md").write_text("not read")
    same = resolve_checkpoints(space_of(config.with_fields({"model.checkpoint": str(copy)}))).base
    assert same.signature() == known.signature()
    words = (copy / "vocab.txt").read_text().splitlines()
    (copy / "vocab.txt").write_text("\n".join([*words[:-1], "another"]) + "\n")
    other = resolve_checkpoints(space_of(config.with_fields({"model.checkpoint": str(copy)}))).base
    assert other.signature() != known.signature()
    task, run = text_task(config), replace(known, model=replace(known.model, checkpoint=str(copy)))
    with pytest.raises(BadData, match="changed: expected fingerprint"):
        build_model(run, task)


def test_a_tokenizer_of_another_model_is_refused(config: ArmConfig, tmp_path: Path) -> None:
    folder = Path(str(config.model.checkpoint))
    tiny_encoder(folder, "bert", vocab_size=20, max_position_embeddings=32)
    with pytest.raises(
        InvalidValue,
        match=r"has (\d+) tokens, but its network has words for 20: .*\[PAD\].*"
        r"resize_token_embeddings\(\1\), then save_pretrained",
    ):
        resolve_checkpoints(space_of(config))


def test_what_is_missing_is_named_before_anything_is_written(
    config: ArmConfig, tmp_path: Path
) -> None:
    storage = tmp_path / "sweeps"
    plain = tmp_path / "config.json"
    without = Path(shutil.copytree(str(config.model.checkpoint), tmp_path / "without"))
    for file in ("vocab.txt", "tokenizer_config.json"):
        (without / file).unlink()
    for fields, message in (
        ({"model.checkpoint": "nobody/nothing"}, "no checkpoint 'nobody/nothing'"),
        ({"model.checkpoint": str(without)}, "has no complete tokenizer"),
        ({"data.folder": str(tmp_path / "none")}, str(tmp_path / "none")),
        ({"data.name": "imbd"}, "unknown text data set 'imbd'"),
    ):
        plain.write_text(json.dumps(config.with_fields(fields).to_json()))
        words = ["run", str(plain), "--where", "inline", "--storage", str(storage)]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 2, done.output
        assert message in " ".join(done.stderr.split())
        assert not storage.exists()


def test_data_are_resolved_by_their_task(config: ArmConfig) -> None:
    resolved = resolve_data(space_of(config)).base
    assert len(resolved.data.fingerprint) == 16
    assert resolve_data(space_of(resolved)).base == resolved
    with pytest.raises(BadData, match="expected fingerprint f00d"):
        resolve_data(space_of(config.with_fields({"data.fingerprint": "f00d"})))
    with pytest.raises(UnknownName, match="text data set"):
        resolve_data(space_of(config.with_fields({"data.name": "photographs"})))


def test_an_unconstrained_run_of_texts_is_found_with_its_tasks_constraint(
    config: ArmConfig, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config.unconstrained().to_json()))
    space = catalog.find(str(path)).space
    assert space.base.constraint == default_constraint("text_classification")
    assert space.settings[0].name == "imdb-encoder-L3-g0.4"


def test_a_data_set_of_the_hub_has_a_name_that_a_setting_can_have() -> None:
    assert (
        catalog.setting("hf:owner/data", "encoder", 6, 0.2).name == "hf-owner-data-encoder-L6-g0.2"
    )


def test_what_of_the_texts_is_not_read_is_told_once_before_they_train(
    config: ArmConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(str(config.data.folder), "val").mkdir()
    space = space_of(config, Setting("one", {}), Setting("two", {"train_gamma": 0.3}))
    resolve_data(space)
    said = capsys.readouterr().err
    assert said == "sweep: imdb: val: not read; dev is a fraction of train, data.dev_fraction\n"
