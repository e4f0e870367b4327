"""Plug-ins: what other packages bring is found, keeps the contract, and is refused where it cannot.

The page's own example is what is installed here; no line of it is repeated.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from search_spaces.space import SearchSpace, Setting, Uniform
from sweep.cost.counted_work import NotCounted, counted_work
from sweep.cost.estimate import estimate
from sweep.results.sweep_view import load_sweep
from sweep.study.requirements import require_training, resolve_data
from tests.support.command_line import sweep
from tests.support.oracles import TINY
from tests.support.plugins.plugin_packages import (
    REPOSITORY,
    EntryPoints,
    files_of_the_page,
    package_of_the_page,
    write_package,
)
from tests.support.sweeps import SPACE
from trainables.arm_run import ArmRun
from trainables.build import build_model, build_task, fingerprinted_data
from trainables.config.arm import ArmConfig, DataConfig, ModelConfig
from trainables.datasets.places import folders_of
from trainables.datasets.text.load import load_text
from trainables.datasets.video.load import load_video
from trainables.environment import environment
from trainables.errors import BadData, InvalidValue, Misuse, UnknownName
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.registry import ModelSpec, TaskSpec, find_plugins
from trainables.registry.built_in import MODELS, TASKS, VIDEOS
from trainables.registry.find_plugins import facts_of
from trainables_testing.data_sets import check_texts, check_videos
from trainables_testing.models import check_model
from trainables_testing.tasks import check_task

Install = Callable[..., Path]


def forget() -> None:
    """What this process knows of installed packages is looked up anew."""
    find_plugins._entry_points.cache_clear()
    find_plugins._loaded.cache_clear()
    environment.cache_clear()


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Nothing is known before a test, and nothing of it afterwards."""
    forget()
    modules = set(sys.modules)
    yield
    forget()
    for name in set(sys.modules) - modules:
        if name.startswith("acme"):
            del sys.modules[name]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: None) -> Install:
    """``install(entry_points, code)``: a package of that one module, acme, is there from now on."""

    def installed(
        entry_points: EntryPoints, code: str = "", name: str = "acme-sweep", version: str = "1.0"
    ) -> Path:
        module = name.replace("-", "_") + ".py"
        folder = write_package(tmp_path / name, name, version, entry_points, {module: code})
        monkeypatch.syspath_prepend(folder)
        return folder

    return installed


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: None) -> Path:
    """The package of docs/plugins.md is installed."""
    folder = package_of_the_page(tmp_path / "site")
    monkeypatch.syspath_prepend(folder)
    return folder


def of_page() -> ArmConfig:
    from acme_space import SPACE as space  # noqa: N811

    return space.run(space.settings[0], {"constraint.alpha": 0.1}, seed=0)


# --- the page -------------------------------------------------------------------------------------


def test_the_first_example_is_a_whole_package_in_under_40_lines(install: Install) -> None:
    files = files_of_the_page()
    project, module = files["pyproject.toml"][0], files["acme_sweep.py"][0]
    assert len((project + module).splitlines()) < 40
    install({"models": {"mixer": "acme_sweep:MIXER"}}, module)
    config = TINY.with_fields({"model.name": "mixer"})
    assert config.model.variant == "linear"
    task = build_task(config, torch.device("cpu"), torch.float32)
    assert len(build_model(config, task)(task.train_batch(0).inputs)) == config.model.layers + 1


def test_its_cost_is_counted_on_its_own_network(page: Path) -> None:
    """Two maps of the 16 pixels of 4 frames, in the task of the page, without its clips."""
    work = counted_work(of_page())
    assert work.forward_flops == 2 * 4 * 2 * 16**2
    assert work.parameters == 2 * 16**2


def test_the_page_shows_no_other_files() -> None:
    expected = {"pyproject.toml", "acme_sweep.py", "acme_space.py", "test_acme.py"}
    assert set(files_of_the_page()) == expected


def test_what_the_page_brings_passes_the_contract_suite(page: Path) -> None:
    config = of_page()
    assert (config.task, config.model.name, config.data.name) == ("last_frame", "mixer", "waves")
    check_videos(config.data)
    check_task(config)
    for variant in ("linear", "affine"):
        check_model(config.with_fields({"model.variant": variant}))


def test_a_built_in_model_serves_a_plug_ins_task(page: Path) -> None:
    check_task(of_page().with_fields({"model.name": "ut"}))


def test_a_plug_ins_model_and_data_serve_a_built_in_task(page: Path) -> None:
    config = of_page().with_fields({"task": "video_denoising"})
    check_model(config)


@pytest.mark.slow
def test_a_sweep_of_it_runs_and_is_read(page: Path, root: Path) -> None:
    sweep("run", str(page / "acme_space.py"), "--name", "acme", "--where", "inline")
    view = load_sweep(ObjectStore(root), "acme")
    assert view.is_finished
    assert len(view.arms) == 2
    for place in view.arms.values():
        assert place.record is not None
        assert place.record.status == "finished", place.record.reason
        assert place.record.environment["plugins"] == {
            "models": {"mixer": "acme-sweep 1.0"},
            "tasks": {"last_frame": "acme-sweep 1.0"},
            "videos": {"waves": "acme-sweep 1.0"},
        }
    assert "waves" in sweep("best", "acme").output
    sweep("export", "acme", "--out", str(root / "exported"))
    assert "mixer" in (root / "exported" / "tables" / "results.csv").read_text()


@pytest.mark.slow
def test_installed_by_pip_it_is_found_by_the_workers_of_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_home: Path, forgotten: None
) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    files = {name: "".join(blocks) for name, blocks in files_of_the_page().items()}
    for name in ("pyproject.toml", "acme_sweep.py"):
        (source / name).write_text(files[name])
    flags = ("--no-index", "--no-build-isolation", "--no-deps", "--no-cache-dir")
    install = (sys.executable, "-m", "pip", "install", *flags, "--target", str(site), str(source))
    subprocess.run(install, check=True, capture_output=True)
    space = tmp_path / "acme_space.py"
    space.write_text(files["acme_space.py"])
    storage = tmp_path / "storage"
    where = ("--name", "acme", "--where", "local", "--storage", str(storage))
    ran = subprocess.run(
        (sys.executable, "-m", "sweep.cli", "run", str(space), *where),
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{REPOSITORY}"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    monkeypatch.syspath_prepend(site)
    records = [place.record for place in load_sweep(ObjectStore(storage), "acme").arms.values()]
    assert [record and record.status for record in records] == ["finished"] * 2


def test_a_row_and_a_file_are_all_that_a_built_in_one_is(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "acme_here.py").write_text((page / "acme_sweep.py").read_text())
    network = ModelSpec(task="theirs", build="acme_here:build", variants=("linear", "affine"))
    facts = replace(facts_of("video_denoising"), models=())
    task = TaskSpec(
        facts=facts, build="acme_here:LastFrame", resolve=TASKS["video_denoising"].resolve
    )
    monkeypatch.setitem(MODELS, "ours", network)
    monkeypatch.setitem(TASKS, "theirs", task)
    monkeypatch.setitem(VIDEOS, "yours", "acme_here:WAVES")
    names = {
        "task": "theirs",
        "data.name": "yours",
        "model.name": "ours",
        "model.variant": "affine",
    }
    config = of_page().with_fields(names)
    (tmp_path / "config.json").write_text(json.dumps(config.to_json()))
    # MLflow's process does not know what this one was told by hand: do not wait for it.
    monkeypatch.setattr("sweep.api.training.TRACKING_END_S", 0.5)
    sweep("run", str(tmp_path / "config.json"), "--name", "built_in", "--where", "inline")
    records = [place.record for place in load_sweep(ObjectStore(root), "built_in").arms.values()]
    assert [record and record.status for record in records] == ["finished"] * 2


# --- names, versions, and what is looked at -------------------------------------------------------

MODEL = """
from trainables.registry import ModelSpec

def build(config, task):
    from torch import nn
    return {returns}

MINE = ModelSpec(task="video_denoising", build=build{more})
"""
LINEAR = MODEL.format(returns="nn.Linear(3, 3)", more="")


def test_an_unknown_name_is_answered_with_those_of_plug_ins_too(page: Path) -> None:
    with pytest.raises(UnknownName, match=r"'mixr'.*dust, encoder, mixer.*mean 'mixer'.*installed"):
        ModelConfig(name="mixr")
    with pytest.raises(UnknownName, match=r"unknown task .*last_frame"):
        ArmConfig(task="first_frame")
    with pytest.raises(UnknownName, match=r"unknown data set 'wave'.*waves"):
        load_video(DataConfig(name="wave"))


def test_a_model_is_refused_in_a_task_that_it_is_not_for(page: Path) -> None:
    with pytest.raises(InvalidValue, match=r"task must be 'video_denoising' for model mixer"):
        TINY.with_fields({"model.name": "mixer", "task": "frame_denoising"})
    with pytest.raises(InvalidValue, match="variant must be one of 'linear', 'affine' for mixer"):
        ModelConfig(name="mixer", variant="sharp")


def test_names_that_files_cannot_have_are_not_found(install: Install) -> None:
    install({"models": {"a/b": "acme_sweep:MINE", "c d": "acme_sweep:MINE"}}, LINEAR)
    for name in ("a/b", "c d", ""):
        with pytest.raises(UnknownName, match=r"Known: decoder, dust, encoder, text_ut, ut, vit\."):
            ModelConfig(name=name)
    assert find_plugins.installed() == {}


def test_a_description_of_built_in_things_asks_for_no_plug_in() -> None:
    code = (
        "import sys; from search_spaces import catalog;"
        "from trainables.registry import find_plugins;"
        "catalog.find('quickstart'); catalog.find('video_denoising_ut');"
        "print(find_plugins._entry_points.cache_info().misses, 'torch' in sys.modules)"
    )
    ran = subprocess.run((sys.executable, "-c", code), cwd=REPOSITORY, capture_output=True)
    assert ran.stdout.split() == [b"0", b"False"], ran.stderr


def test_a_description_loads_no_more_than_the_plug_ins_own_module(install: Install) -> None:
    folder = install({"models": {"mine": "acme_sweep:MINE"}}, LINEAR)
    code = (
        "import sys; from trainables.config.arm import ModelConfig; ModelConfig(name='mine');"
        "print('acme_sweep' in sys.modules, 'torch' in sys.modules)"
    )
    ran = subprocess.run(
        (sys.executable, "-c", code),
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
    )
    assert ran.stdout.split() == [b"True", b"False"], ran.stderr


def test_the_version_is_in_the_environment_and_not_in_the_signature(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for version in ("1.0", "2.0"):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", list(sys.path))
            name = f"acme-{version[0]}"
            module = name.replace("-", "_")
            install({"models": {"mine": f"{module}:MINE"}}, LINEAR, name, version)
            forget()
            config = TINY.with_fields({"model.name": "mine"})
            found.append((config.signature(), environment("cpu")["plugins"]["models"]["mine"]))
    (before, old), (after, new) = found
    assert before == after
    assert (old, new) == ("acme-1 1.0", "acme-2 2.0")


def test_the_start_is_keyed_by_the_runs_seed_and_leaves_global_draws_alone(page: Path) -> None:
    config = of_page()
    task = build_task(config, torch.device("cpu"), torch.float32)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    seeds = (0, 0, 1)
    models = [build_model(config.with_fields({"seed": seed}), task) for seed in seeds]
    assert torch.equal(torch.rand(1), expected)
    first, again, other = (next(m.parameters()) for m in models)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# --- what is refused ------------------------------------------------------------------------------

DATA = ("videos", "texts", "instructions")
WRONG = {"models": "a ModelSpec", "tasks": "a TaskSpec"} | dict.fromkeys(DATA, "a DataSetSpec")


def asked_for(group: str, name: str) -> None:
    """Whatever first needs a plug-in of the group."""
    if group == "models":
        ModelConfig(name=name)
    elif group == "tasks":
        facts_of(name)
    elif group == "videos":
        load_video(DataConfig(name=name))
    else:
        load_text(DataConfig(name=name), group="texts" if group == "texts" else "instructions")


@pytest.mark.parametrize("group", WRONG)
def test_an_entry_point_that_cannot_be_loaded_is_told_with_its_package(
    install: Install, group: str
) -> None:
    install({group: {"mine": "acme_sweep:MINE", "gone": "acme_sweep:GONE"}}, "import nothing_here")
    with pytest.raises(Misuse) as caught:
        asked_for(group, "mine")
    text = str(caught.value)
    assert "'mine' of acme-sweep 1.0 (entry point mine = acme_sweep:MINE) cannot be loaded" in text
    assert "ModuleNotFoundError: No module named 'nothing_here'. Mend or uninstall" in text


@pytest.mark.parametrize("group", WRONG)
def test_an_entry_point_to_something_else_says_what_it_must_be(
    install: Install, group: str
) -> None:
    points = {"mine": "acme_sweep:MINE", "text": "acme_sweep:TEXT"}
    install({group: points}, "MINE, TEXT = [1], 'nothing:here'")
    for name, kind in (("mine", "list"), ("text", "str")):
        with pytest.raises(Misuse, match=rf"1\.0.* must be {WRONG[group]}.*, got a {kind}"):
            asked_for(group, name)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (", variants=()", "variants must be names, at least 1, got"),
        (", variants='abc'", "variants must be a tuple of names, got 'abc'"),
        (", options=('depth',)", "options must be some of checkpoint, pooling"),
        (", name=3", "TypeError"),
    ],
)
def test_a_wrong_field_of_a_plug_in_is_named(install: Install, more: str, message: str) -> None:
    code = MODEL.format(returns="None", more=more)
    install({"models": {"mine": "acme_sweep:MINE"}}, code)
    with pytest.raises(Misuse, match=rf"acme-sweep 1\.0.*cannot be loaded: .*{message}"):
        ModelConfig(name="mine")


LISTED = """
from trainables.registry import DataSetSpec

LISTED = DataSetSpec(list=lambda data: [data])
"""


def test_what_a_plug_in_returns_is_checked(install: Install) -> None:
    code = MODEL.format(returns="[1]", more="") + LISTED
    points = {"models": "MINE", "videos": "LISTED", "texts": "LISTED", "instructions": "LISTED"}
    install({group: {"mine": f"acme_sweep:{name}"} for group, name in points.items()}, code)
    config = TINY.with_fields({"model.name": "mine"})
    task = build_task(config, torch.device("cpu"), torch.float32)
    with pytest.raises(Misuse, match=r"model 'mine' of .* must return a Module, got a list"):
        build_model(config, task)
    with pytest.raises(Misuse, match=r"data set 'mine' of .* must return a RawVideo, got a list"):
        asked_for("videos", "mine")
    with pytest.raises(Misuse, match=r"text data set 'mine' .* must return a RawText, got a list"):
        asked_for("texts", "mine")
    with pytest.raises(Misuse, match=r"instructions 'mine' .* must return a RawText, got a list"):
        asked_for("instructions", "mine")


TOO_FEW = """
from torch import nn
from trainables.registry import ModelSpec

class Mine(nn.Module):
    def __init__(self, layers, pixels):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(pixels, pixels) for _ in range(layers))

    def forward(self, inputs):
        made = []
        for one in self.maps:
            inputs = inputs + one(inputs)
            made.append(inputs)
        return made

MINE = ModelSpec(
    task="video_denoising",
    build=lambda config, task: Mine(config.model.layers, config.data.patch_size**2),
    variants=("own",),
)
"""


def space_of(fields: dict[str, str]) -> SearchSpace:
    return SearchSpace(
        name="mine",
        summary="",
        base=TINY.with_fields(fields),
        settings=(Setting("only", {}),),
        ranges={"constraint.alpha": Uniform(0.1, 0.2)},
        n_proposals=1,
    )


@pytest.mark.parametrize("kind", ["constrained", "plain"])
def test_an_arm_says_how_many_predictions_its_network_must_make(
    install: Install, tmp_path: Path, kind: str
) -> None:
    install({"models": {"mine": "acme_sweep:MINE"}}, TOO_FEW)
    config = TINY.with_fields({"model.name": "mine", "steps": 2})
    config = config if kind == "constrained" else config.unconstrained()
    record = ArmRun(config, ArmStore(ObjectStore(tmp_path))).advance()
    layers = config.model.layers
    assert record.status == "failed"
    assert f"model 'mine' must return L + 1 = {layers + 1} predictions" in record.reason
    assert record.reason.endswith(f"got {layers}.")


def test_a_step_that_fails_is_told_where_its_cost_is_asked(install: Install) -> None:
    install({"models": {"mine": "acme_sweep:MINE"}}, TOO_FEW)
    space = space_of({"model.name": "mine"})
    with pytest.raises(NotCounted, match="model 'mine' must return L"):
        estimate(space)


@pytest.mark.parametrize("kind", ["constrained", "plain"])
def test_predictions_of_another_shape_are_told_with_the_plug_in_and_what_they_must_be(
    install: Install, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A last dimension of 1 would broadcast: it trained, to something else than was asked."""
    cut = TOO_FEW.replace("made = []", "made = [inputs[..., :1]]").replace(
        "append(inputs)", "append(inputs[..., :1])"
    )
    install({"models": {"mine": "acme_sweep:MINE"}}, cut)
    config = TINY.with_fields({"model.name": "mine", "steps": 2})
    config = config if kind == "constrained" else config.unconstrained()
    record = ArmRun(config, ArmStore(ObjectStore(tmp_path))).advance()
    said = "network acme_sweep.Mine must return predictions of shape [8, 3, 16] here, as their "
    assert record.reason == f"{said}targets are, got [8, 3, 1]."
    with pytest.raises(NotCounted, match=re.escape(said)):
        estimate(space_of({"model.name": "mine"}))
    assert caplog.records == []


def test_an_error_within_a_network_is_told_once_and_ends_in_a_full_stop(
    install: Install, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = TOO_FEW.replace("inputs + one(inputs)", "inputs + one(inputs)[..., :5]")
    install({"models": {"mine": "acme_sweep:MINE"}}, broken)
    config = TINY.with_fields({"model.name": "mine", "steps": 2})
    record = ArmRun(config, ArmStore(ObjectStore(tmp_path))).advance()
    assert re.search(r"must match the size .* \(in forward, line \d+\)\.$", record.reason)
    with pytest.raises(NotCounted, match=r"model 'mine' .*: RuntimeError"):
        estimate(space_of({"model.name": "mine"}))
    assert caplog.records == []


def test_an_error_of_a_data_set_is_told_with_its_place(install: Install) -> None:
    code = """
from trainables.datasets.video.clips import RawClip, RawVideo
from trainables.registry import DataSetSpec

def frames():
    yield 1 / 0

def listed(data):
    clips = tuple(RawClip(f"c{i}", frames) for i in range(4))
    return RawVideo(train=clips[:3], test=clips[3:], listing=(), root="mine")

LISTED = DataSetSpec(list=listed)
"""
    install({"videos": {"mine": "acme_sweep:LISTED"}}, code)
    space = space_of({"data.name": "mine"})
    said = r"data set 'mine' of only cannot be read: ZeroDivisionError: .*acme_sweep.py, line 6"
    with pytest.raises(BadData, match=said):
        resolve_data(space)


def test_a_name_of_two_packages_is_refused_and_the_others_are_not(install: Install) -> None:
    for name in ("acme-one", "acme-two"):
        module = name.replace("-", "_")
        points = {"mine": f"{module}:MINE", module: f"{module}:MINE"}
        install({"models": points}, LINEAR, name)
    with pytest.raises(Misuse, match=r"'mine' is brought by .*: acme-(one|two) 1\.0 and acme-"):
        ModelConfig(name="mine")
    assert ModelConfig(name="acme_one").variant == "default"


def test_a_built_in_name_stays_what_it_is_and_a_clash_is_refused_before_a_sweep(
    install: Install,
) -> None:
    names = {"models": "ut", "tasks": "video_denoising", "videos": "photographs", "texts": "imdb"}
    install({group: {name: "acme_sweep:MINE"} for group, name in names.items()}, LINEAR)
    assert ModelConfig(name="ut").variant == "distance"
    with pytest.raises(
        Misuse, match=r"model 'ut' of acme-sweep 1\.0 .* has the name of a built-in"
    ):
        require_training(replace(SPACE, base=TINY))
    with pytest.raises(
        Misuse, match=r"data set 'photographs' of acme-sweep 1\.0 .* a built-in one"
    ):
        fingerprinted_data(TINY)
    with pytest.raises(Misuse, match=r"text data set 'imdb' of acme-sweep 1\.0 .* a built-in one"):
        load_text(DataConfig(name="imdb"))


def test_a_plug_in_that_is_not_used_disturbs_nobody(install: Install) -> None:
    install({group: {"mine": "acme_sweep:MINE"} for group in WRONG}, "import nothing_here")
    fingerprinted_data(TINY)
    assert environment("cpu")["plugins"]["models"] == {"mine": "acme-sweep 1.0"}


def test_a_plug_in_says_which_options_it_reads(install: Install, tmp_path: Path) -> None:
    reads = MODEL.format(returns="nn.Linear(3, 3)", more=", options=('checkpoint', 'threshold')")
    install({"models": {"mine": "acme_sweep:MINE"}}, reads)
    model = ModelConfig(name="mine", checkpoint=str(tmp_path), threshold=0.5)
    assert replace(model, checkpoint_fingerprint="f00d").checkpoint_fingerprint == "f00d"
    with pytest.raises(InvalidValue, match=r"checkpoint must be the name or folder .* 'mine'"):
        ModelConfig(name="mine")
    with pytest.raises(InvalidValue, match="atoms_per_side must be left at 24 for mine"):
        replace(model, atoms_per_side=3)


OWN = """
from torch import nn
from trainables.registry import ModelSpec


class Mine(nn.Module):
    def __init__(self, layers, pixels, width):
        super().__init__()
        self.inner = nn.ModuleList(
            nn.Sequential(nn.Linear(pixels, width), nn.Linear(width, pixels)) for _ in range(layers)
        )

    def forward(self, inputs):
        predictions = [inputs]
        for layer in self.inner:
            predictions.append(predictions[-1] + layer(predictions[-1]))
        return predictions


def build(config, task):
    own = config.model.own
    return Mine(config.model.layers, config.data.patch_size**2, own["width"])


MINE = ModelSpec(
    task="video_denoising", build=build, own={"width": 4, "scale": 1.0, "norm": "none"}
)
"""


def test_options_of_its_own_are_set_checked_signed_and_shown(install: Install) -> None:
    install({"models": {"mine": "acme_sweep:MINE"}}, OWN)
    run = TINY.with_fields({"model.name": "mine"})
    wide = run.with_fields({"model.own.width": 6, "model.own.scale": 2})
    assert run.model.own == {"norm": "none", "scale": 1.0, "width": 4}
    assert (wide.value_of("model.own.width"), wide.value_of("model.own.scale")) == (6, 2.0)
    assert ArmConfig.from_json(wide.to_json()) == wide
    other = run.with_fields({"model.own.width": 5})
    assert len({one.signature() for one in (run, wide, other)}) == 3
    assert run.with_fields({"model.own.width": 4}).signature() == run.signature()
    build = functools.partial(build_model, task=build_task(run, torch.device("cpu"), torch.float32))
    assert build(wide).inner[0][0].out_features == 6
    another = wide.with_fields({"model.name": "ut"})  # which has none of them
    assert another.model.own == {}
    assert another.signature() == TINY.signature()
    for field, value, message in (
        ("model.own.widht", 3, "unknown own option of mine 'widht'.* Did you mean 'width'"),
        (
            "model.own.width",
            3.5,
            "model.own.width must be finite and of the type .* 4, got 3.5",
        ),
        ("model.own.width", True, "of the type of its default, 4, got True"),
        ("model.own.norm", 3, "of the type of its default, 'none', got 3"),
        ("model.own.scale", math.nan, "model.own.scale must be finite .*, got nan"),
        ("model.own.scale", 10**400, "model.own.scale must be finite .*, got 10000"),
    ):
        with pytest.raises((InvalidValue, UnknownName), match=message):
            run.with_fields({field: value})
    with pytest.raises(UnknownName, match="unknown own option of ut 'width'"):
        TINY.with_fields({"model.own.width": 3})


def test_a_new_option_of_its_own_leaves_stored_arms_as_they_are(install: Install) -> None:
    before = OWN.replace('"scale": 1.0, ', "")
    install({"models": {"mine": "acme_sweep:BEFORE"}}, before.replace("MINE =", "BEFORE ="))
    signed = TINY.with_fields({"model.name": "mine", "model.own.width": 6}).signature()
    spec = find_plugins.model_spec("mine")
    assert spec.own == {"width": 4, "norm": "none"}
    newer = replace(spec, own={**spec.own, "scale": 1.0})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainables.config.model.model_spec", lambda name: newer)
        run = TINY.with_fields({"model.name": "mine", "model.own.width": 6})
        assert run.model.own["scale"] == 1.0
        assert run.signature() == signed
        assert run.to_json()["model"]["own"] == {"width": 6}  # so do the digests of stored plans


@pytest.mark.parametrize(
    "own", [{"a": math.inf}, {"a": np.float64(1.0)}, {"a b": 1}, {3: 1}, {"a": (1,)}, [1]]
)
def test_defaults_that_json_does_not_give_back_are_refused(own: Any) -> None:
    with pytest.raises(InvalidValue, match="own must be names with a finite number"):
        ModelSpec(task="video_denoising", build="acme:build", own=own)


def test_an_own_option_that_a_signature_would_confuse_is_refused(install: Install) -> None:
    install({"models": {"mine": "acme_sweep:MINE"}}, OWN.replace('"width"', '"warmup_share"'))
    with pytest.raises(InvalidValue, match="own must be other names in the ModelSpec of mine"):
        TINY.with_fields({"model.name": "mine"})


def test_videos_and_texts_of_one_name_are_two_data_sets(install: Install) -> None:
    code = """
from trainables.registry import DataSetSpec

SEEN = DataSetSpec(list="acme_sweep:listed", folders=("frames",))
READ = DataSetSpec(list="acme_sweep:listed", folders=("reviews",))
"""
    install({"videos": {"mine": "acme_sweep:SEEN"}, "texts": {"mine": "acme_sweep:READ"}}, code)
    data = DataConfig(name="mine")
    assert (folders_of("videos", data), folders_of("texts", data)) == (("frames",), ("reviews",))
    assert facts_of("video_denoising").data_group == "videos"
    assert facts_of("text_classification").data_group == "texts"


def test_frames_of_another_size_are_refused_when_they_are_decoded(
    install: Install, own_cache: Path
) -> None:
    code = """
import numpy as np
from trainables.datasets.video.clips import RawClip, RawVideo
from trainables.registry import DataSetSpec

def listed(data):
    clips = [RawClip(f"c{i}", lambda: iter([np.zeros((8, 32), np.uint8)] * 20)) for i in range(4)]
    return RawVideo(train=tuple(clips[:3]), test=tuple(clips[3:]), listing=(), root="mine")

LISTED = DataSetSpec(list=listed)
"""
    install({"videos": {"mine": "acme_sweep:LISTED"}}, code)
    with pytest.raises(BadData, match=r"clip c0 \(train\) has the shape \(8, 32\), .* 16 x 16"):
        load_video(DataConfig(name="mine", frame_size=16))


def test_texts_of_a_plug_in_are_read_split_and_known(install: Install) -> None:
    code = """
from trainables.datasets.text.examples import RawExample, RawSplit, RawText
from trainables.registry import DataSetSpec

def listed(data):
    def read(split):
        return RawSplit([RawExample(f"{split} review {i}", None, i % 2) for i in range(12)])
    return RawText(labels=("bad", "good"), read=read, listing=(("mine", 0, 1),), root="mine")

LISTED = DataSetSpec(list=listed)
"""
    install({"texts": {"mine": "acme_sweep:LISTED"}}, code)
    data = DataConfig(name="mine", dev_fraction=0.4)
    check_texts(data)
    assert load_text(data).lengths == {"train": 6, "dev": 6, "test": 12}
