"""Predictors from folders of their own against the networks they were written from."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from torch import Tensor, nn

from tests.support.data.checkpoints import tiny_vit
from tests.support.data.text_runs import text_task, tiny_text
from tests.support.oracles import TINY
from tests.support.records import finished
from trainables.build import build_model, build_task, parameter_dtype
from trainables.config.arm import ArmConfig, ModelConfig
from trainables.errors import BadData, InvalidValue, Misuse
from trainables.layer_losses import layer_predictions
from trainables.predictors.predictor import Predictor
from trainables.predictors.predictor_folder import write_predictor
from trainables.random_keys import keyed_generator
from trainables.tasks.base import Batch, Task
from trainables.tasks.denoising import Denoising
from trainables.tasks.text_classification import TextClassification
from trainables.training import to_bytes

CPU = torch.device("cpu")
DUST = TINY.with_fields({"model.name": "dust", "model.variant": "per_layer"})
GAMMA = 0.15


def moved(config: ArmConfig, task: object) -> nn.Module:
    """The run's network, its weights far from the start, where layers do little."""
    model = build_model(config, task).to(parameter_dtype(config)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=keyed_generator("cpu", name))
            parameter += 0.05 * drawn
    return model


def written(folder: Path, config: ArmConfig, model: nn.Module, task: Task) -> Path:
    """A predictor's folder of this network, as of a finished arm."""
    record = finished(config, [1.0] * (config.model.layers + 1))
    assert record.evaluation is not None
    record.evaluation = replace(record.evaluation, scales=task.scales)
    folder.mkdir()
    write_predictor(folder, record, to_bytes({"model": model.state_dict()}))
    return folder


def of_network(model: nn.Module, task: Task, batch: Batch) -> list[Tensor]:
    with torch.no_grad():
        return layer_predictions(model, task, batch)


def patches_by_hand(window: np.ndarray, patch: int) -> np.ndarray:
    """[positions, T, D] of a window [T, H, W], pixel by pixel."""
    frames, height, width = window.shape
    corners = [(y, x) for y in range(0, height, patch) for x in range(0, width, patch)]
    return np.array([
        [[window[t, y + k // patch, x + k % patch] for k in range(patch**2)] for t in range(frames)]
        for y, x in corners
    ])  # fmt: skip


@pytest.mark.parametrize(
    "config",
    [
        TINY,
        TINY.with_fields({"dtype": "float64"}),
        TINY.with_fields({"dtype": "bfloat16"}),
        DUST,
        DUST.unconstrained(),
    ],
    ids=["ut", "float64", "bfloat16", "dust", "plain dust"],
)
def test_windows_come_back_as_the_network_predicts_their_patches(
    tmp_path: Path, config: ArmConfig
) -> None:
    task = build_task(config, CPU, parameter_dtype(config))
    model = moved(config, task)
    predictor = Predictor.load(written(tmp_path / "arm", config, model, task))
    assert predictor.shape == (-1, 3, -1, -1)
    windows = np.random.default_rng(0).random((2, 3, 8, 12)).astype(predictor.dtype)
    for layer in range(config.model.layers + 1):
        found = predictor.predict(windows, {"layer": layer})
        assert (found.shape, found.dtype) == (windows.shape, predictor.dtype)
        for window, denoised in zip(windows, found, strict=True):
            given = torch.tensor(patches_by_hand(window, 4))
            expected = of_network(model, task, Batch(given, given))[layer]
            np.testing.assert_array_equal(patches_by_hand(denoised, 4), expected.numpy())
    np.testing.assert_array_equal(predictor.predict(windows), found)  # the last is the default


def test_a_held_out_window_is_denoised_as_in_the_evaluation(tmp_path: Path) -> None:
    task = build_task(TINY, CPU, torch.float32)
    assert isinstance(task, Denoising)
    model = moved(TINY, task)
    predictor = Predictor.load(written(tmp_path / "arm", TINY, model, task))
    batch = next(iter(task.held_out("dev", GAMMA, 0)))
    assert isinstance(batch.inputs, Tensor)
    side = task.video.frame_size
    noisy = batch.inputs.transpose(0, 1).reshape(3, side // 4, side // 4, 4, 4)
    window = noisy.transpose(2, 3).reshape(1, 3, side, side).numpy()
    expected = of_network(model, task, batch)[-1].numpy()
    np.testing.assert_array_equal(patches_by_hand(predictor.predict(window)[0], 4), expected)


def test_frames_of_a_vit_need_no_checkpoint_but_their_own_copy(tmp_path: Path) -> None:
    checkpoint = tiny_vit(tmp_path / "vit")
    model = ModelConfig(name="vit", variant="blocks", layers=2, checkpoint=str(checkpoint))
    data = replace(TINY.data, frame_size=16)
    config = replace(TINY, task="frame_denoising", model=model, data=data)
    task = build_task(config, CPU, torch.float32)
    network = moved(config, task)
    folder = written(tmp_path / "arm", config, network, task)
    shutil.rmtree(checkpoint)
    predictor = Predictor.load(folder)
    assert predictor.shape == (-1, 3, 16, 16)
    batch = next(iter(task.held_out("dev", GAMMA, 0)))
    assert isinstance(batch.inputs, Tensor)
    assert len(batch.inputs) == 3  # what is predicted at a time
    found = predictor.predict(batch.inputs.numpy(), {"layer": 1})
    np.testing.assert_array_equal(found, of_network(network, task, batch)[1].numpy())


def dev_texts(task: TextClassification) -> list[Any]:
    """The evaluated examples of dev, in the order of the numbers in ``Batch.samples``."""
    examples = task.texts.split("dev")
    return [examples[i] for i in np.concatenate(task._unit_samples("dev")).tolist()]


def table_of(examples: list[Any]) -> pandas.DataFrame:
    columns = {"text": [e.text for e in examples], "pair": [e.pair for e in examples]}
    return pandas.DataFrame(columns).dropna(axis=1)


@pytest.mark.parametrize("layout", ["imdb without films", "mnli"])
@pytest.mark.parametrize("name", ["encoder", "text_ut"])
def test_texts_are_scored_as_their_tokens_are(tmp_path: Path, name: str, layout: str) -> None:
    pooling = {"model.pooling": "mean"} if name == "text_ut" else {}
    variant = {"model.variant": "literal"} if name == "text_ut" else {}
    layouts = {"mnli": next(n for n in _layouts() if "mnli" in n)}
    config = tiny_text(tmp_path, layouts.get(layout, layout))
    config = config.with_fields({"model.name": name, **pooling, **variant})
    task = text_task(config)
    model = moved(config, task)
    folder = written(tmp_path / "arm", config, model, task)
    table = table_of(dev_texts(task))
    assert ("pair" in table) == (layout == "mnli")
    batches = list(task.held_out("dev", 0.0, 0))
    for place in (config.data.folder, config.model.checkpoint):
        shutil.rmtree(str(place))
    predictor = Predictor.load(folder)
    for layer in (1, 3):
        found = predictor.predict(table, {"layer": layer})
        names = [f"score_{label}" for label in task.texts.labels]
        assert list(found.columns) == ["label", *names]
        for batch in batches:
            logits = of_network(model, task, batch)[layer]
            expected = torch.softmax(logits.double(), dim=-1).numpy()
            rows = found.iloc[list(batch.samples)]
            # batches and their padding are others, and float32 sums in another order: 1e-6
            np.testing.assert_allclose(rows[names], expected, rtol=0, atol=1e-6)
            best = [task.texts.labels[i] for i in expected.argmax(axis=1)]
            assert list(rows["label"]) == best


def _layouts() -> list[str]:
    from tests.support.data.text_folders import TEXT_LAYOUTS

    return list(TEXT_LAYOUTS)


def test_classes_go_by_number_where_the_data_are_not_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tiny_text(tmp_path)
    task = text_task(config)
    model = moved(config, task)
    shutil.rmtree(str(config.data.folder))
    predictor = Predictor.load(written(tmp_path / "arm", config, model, task))
    assert list(predictor.predict(predictor.example())) == ["label", "score_0", "score_1"]
    assert "called by their numbers" in caplog.text


def test_the_folder_names_no_place_of_this_machine(tmp_path: Path) -> None:
    config = tiny_text(tmp_path)
    task = text_task(config)
    folder = written(tmp_path / "arm", config, moved(config, task), task)
    assert str(tmp_path) not in (folder / "arm.json").read_text()


def test_inputs_of_another_form_are_refused(tmp_path: Path) -> None:
    task = build_task(TINY, CPU, torch.float32)
    predictor = Predictor.load(written(tmp_path / "arm", TINY, moved(TINY, task), task))
    window = np.zeros((1, 3, 8, 8), dtype=np.float32)
    with pytest.raises(InvalidValue, match=r"layer must be from 0 to 3, got 4"):
        predictor.predict(window, {"layer": 4})
    with pytest.raises(InvalidValue, match=r"shape must be \(-1, 3, -1, -1\)"):
        predictor.predict(window[:, :2])
    with pytest.raises(InvalidValue, match=r"must be multiples of 4, got .*: pad or crop them"):
        predictor.predict(window[..., :7])
    assert predictor.predict(window[:0]).shape == (0, 3, 8, 8)


def test_texts_that_are_none_are_refused(tmp_path: Path) -> None:
    config = tiny_text(tmp_path)
    task = text_task(config)
    predictor = Predictor.load(written(tmp_path / "arm", config, moved(config, task), task))
    with pytest.raises(InvalidValue, match="every text must be a string"):
        predictor.predict(pandas.DataFrame({"text": ["fine", None]}))
    with pytest.raises(InvalidValue, match="every pair must be a string"):
        predictor.predict(pandas.DataFrame({"text": ["a", "b"], "pair": ["c", None]}))
    assert len(predictor.predict(pandas.DataFrame({"text": []}))) == 0


def test_other_versions_and_other_checkpoints_are_refused(tmp_path: Path) -> None:
    config = tiny_text(tmp_path)
    task = text_task(config)
    model = moved(config, task)
    known = config.with_fields({"model.checkpoint_fingerprint": "f" * 16})
    with pytest.raises(BadData, match="changed: expected fingerprint ffff"):
        written(tmp_path / "changed", known, model, task)
    folder = written(tmp_path / "arm", config, model, task)
    arm = json.loads((folder / "arm.json").read_text())
    (folder / "arm.json").write_text(json.dumps({**arm, "training_version": 1}))
    with pytest.raises(Misuse, match="is of training version 1 of descent-sweep"):
        Predictor.load(folder)
