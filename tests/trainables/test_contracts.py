"""The contract suite notices what breaks it: one broken model, task or data set per promise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.data.text_runs import tiny_text
from tests.support.oracles import TINY
from tests.support.plugins import broken_plugins
from tests.support.plugins.broken_plugins import MODELS
from tests.support.plugins.plugin_packages import write_package
from trainables.config.arm import ArmConfig, DataConfig
from trainables.environment import environment
from trainables.errors import Misuse
from trainables.registry import TaskSpec, find_plugins
from trainables_testing.data_sets import check_texts, check_videos
from trainables_testing.models import check_model
from trainables_testing.promises import BrokenContract
from trainables_testing.tasks import check_task

SMALL = TINY.with_fields(
    {"steps": 2, "report_every": 1, "eval_windows": 2, "constraint.alpha": 0.1}
)
VIDEOS = {
    "shared_frames": r"frame 0 of clip c \(test\) must not be in train, too",
    "float_frames": r"frames of clip b \(train\) must be uint8 8\^2, got \('float64', \(8, 8\)\)",
    "random_frames": r"frames of clip c \(test\) must be the same when they are decoded again",
    "one_name": r"names of train clips must differ, got \['a', 'a'\]",
    "no_test": "test must have clips",
}
TEXTS = {
    "labels_of_one_name": "there must be labels, at least 2, each under its own name",
    "an_empty_text": "an example must have a text",
    "texts_by_chance": "read anew, the data must have the fingerprint",
}
TASKS = [name for name, plugin in vars(broken_plugins).items() if isinstance(plugin, TaskSpec)]


@pytest.fixture(autouse=True)
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything of broken_plugins.py is installed, under its own name in small letters."""
    names = {
        "models": ["MODEL", "TEXT_MODEL"],
        "tasks": TASKS,
        "videos": ["whole_videos", *VIDEOS],
        "texts": ["whole_texts", *TEXTS],
    }
    points = {
        group: {name.lower(): f"tests.support.plugins.broken_plugins:{name}" for name in of_group}
        for group, of_group in names.items()
    }
    find_plugins._entry_points.cache_clear()
    monkeypatch.syspath_prepend(write_package(tmp_path / "site", "broken", "1.0", points, {}))
    yield
    find_plugins._entry_points.cache_clear()
    environment.cache_clear()


# --- models ---------------------------------------------------------------------------------------


def of_model(variant: str) -> ArmConfig:
    return SMALL.with_fields({"model.name": "model", "model.variant": variant})


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("WithoutLayer0", "there must be L [+] 1 = 4 predictions, got 3"),
        ("Overflowing", "prediction of layer 0 must be finite"),
        ("InDouble", "all that is trained must be in torch.float32"),
        ("CoarseUnderAutocast", "under bfloat16 autocast losses must be near those in float32"),
        ("WithDropout", "start and the forward pass must depend on the configuration alone"),
        ("DrawnByNumPy", "start and the forward pass must depend on the configuration alone"),
        ("WithIdleParameter", "must reach every parameter, but not idle"),
        ("Backwards", "must depend on its own parameters and on those of layers before it"),
        ("DeeperInOneArm", "both arms must start with one network"),
        ("Forgetful", r"what state_dict\(\) keeps must give the same predictions"),
    ],
)
def test_a_model_that_breaks_a_promise_is_told(variant: str, message: str) -> None:
    with pytest.raises(BrokenContract, match=rf"model model \({variant}, float32\): .*{message}"):
        check_model(of_model(variant))


def test_predictions_of_another_shape_are_told_before_a_loss_is_taken_of_them() -> None:
    with pytest.raises(Misuse, match=r"OfAnotherShape must .* \[8, 3, 16\] .* got \[8, 3, 1\]"):
        check_model(of_model("OfAnotherShape"))


def test_the_model_that_they_are_made_of_is_whole() -> None:
    check_model(of_model("Whole"))
    assert set(MODELS) < set(of_model("Whole").model.spec.variants)


def test_a_model_that_reads_padding_is_told(tmp_path: Path) -> None:
    config = tiny_text(tmp_path, steps=2, report_every=1).with_fields({"model.layers": 2})
    with pytest.raises(BrokenContract, match="depend on what stands in padding"):
        check_model(config.with_fields({"model.name": "text_model", "model.pooling": None}))


def test_contracts_are_of_constrained_runs() -> None:
    with pytest.raises(BrokenContract, match="checked on a constrained run"):
        check_model(of_model("Whole").unconstrained())


# --- tasks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unknown_data", "resolved data must carry a fingerprint"),
        ("any_data", "data under another fingerprint must be refused with BadData"),
        ("of_another_type", "dtype must be the run's, got torch.float64"),
        ("drawn_globally", "must be a function of the seed and the step alone"),
        ("of_one_seed", "another seed and another step must have another training batch"),
        ("by_arm", "both arms of a pair must be given the same training batches"),
        ("judged_by_seed", "must be judged on the same draws of train"),
        ("without_a_unit", "batches of train must show every unit"),
        ("undisturbed", "gamma and draw must disturb what a model is given"),
        ("of_negative_loss", "losses must be at least 0"),
        ("without_identity", "unchanged_losses must be there exactly where"),
        ("unnamed_reference", r"references must be among \('constant',\)"),
        ("with_shifted_targets", "blur must leave units and targets as they are"),
    ],
)
def test_a_task_that_breaks_a_promise_is_told(name: str, message: str) -> None:
    config = SMALL.with_fields({"task": name, "constraint.reference_unit": "constant"})
    with pytest.raises(BrokenContract, match=rf"task {name} \(float32\): .*{message}"):
        check_task(config)


def test_the_task_that_they_are_made_of_is_whole() -> None:
    check_task(SMALL.with_fields({"task": "whole"}))


def test_a_task_that_disturbs_padding_is_told(tmp_path: Path) -> None:
    config = tiny_text(tmp_path, steps=2, report_every=1, task="with_noisy_padding")
    with pytest.raises(BrokenContract, match="the noise must be 0 at padding"):
        check_task(config)


# --- data sets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VIDEOS)
def test_videos_that_break_a_promise_are_told(name: str) -> None:
    data = DataConfig(name=name, frame_size=8, patch_size=8, frames=2, dev_fraction=0.5)
    with pytest.raises(BrokenContract, match=rf"data set {name}: {VIDEOS[name]}"):
        check_videos(data)


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_break_a_promise_are_told(name: str) -> None:
    with pytest.raises(BrokenContract, match=rf"text data set {name}: {TEXTS[name]}"):
        check_texts(DataConfig(name=name, dev_fraction=0.4))


def test_the_data_sets_that_they_are_made_of_are_whole() -> None:
    check_videos(DataConfig(name="whole_videos", frame_size=8, patch_size=8, frames=2))
    check_texts(DataConfig(name="whole_texts", dev_fraction=0.4))
