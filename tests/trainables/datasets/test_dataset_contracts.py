"""One contract for every data set, on files that the tests write in the published layouts."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sweep.doctor.data import check_folder
from tests.support.data.data_folders import LAYOUTS, Films, Layout
from tests.support.data.text_folders import TEXT_LAYOUTS
from tests.support.oracles import TINY
from trainables.arm_run import ArmRun
from trainables.build import build_model, build_task, parameter_dtype
from trainables.config.arm import ArmConfig, DataConfig
from trainables.datasets.video.clips import Clip, Pixels
from trainables.datasets.video.load import load_video, resolve
from trainables.errors import BadData
from trainables.evaluation.measuring import measure
from trainables.layer_losses import layer_losses
from trainables.records.arms import ArmStore
from trainables.records.evaluation import Evaluation
from trainables.records.objects import ObjectStore
from trainables.registry import built_in
from trainables.registry.find_plugins import data_set_spec
from trainables.tasks.denoising import Denoising
from trainables.training import from_bytes
from trainables_testing.data_sets import TEXTS, VIDEOS, check_videos

SIZE = 32

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> Layout:
    return LAYOUTS[request.param]


def config(layout: Layout, folder: Path, **changes: object) -> DataConfig:
    values = {"frame_size": SIZE, "frames": 4, "patch_size": 8, "dev_fraction": 0.5} | changes
    return DataConfig(name=layout.data_set, folder=str(folder), **values)


def as_stored(pixels: Pixels) -> Pixels:
    """The oracle: Pillow's own scaling of the frame that was written."""
    return np.asarray(Image.fromarray(pixels).resize((SIZE, SIZE), Image.Resampling.BILINEAR))


def assert_shows(clips: tuple[Clip, ...], films: Films) -> None:
    assert [clip.name for clip in clips] == list(films)
    for clip in clips:
        np.testing.assert_array_equal(clip.frames, [as_stored(p) for p in films[clip.name]])


def test_clips_are_the_written_frames_in_order_and_dev_is_the_last_half(
    layout: Layout, tmp_path: Path
) -> None:
    clips = load_video(config(layout, layout.write(tmp_path / "data")))
    names = list(layout.train)
    assert_shows(clips.train, {name: layout.train[name] for name in names[:2]})
    assert_shows(clips.dev, {name: layout.train[name] for name in names[2:]})
    assert_shows(clips.test, layout.test)


@pytest.mark.parametrize("promise", VIDEOS, ids=lambda promise: promise.__name__)
def test_a_data_set_of_videos_keeps_its_promises(
    layout: Layout, tmp_path: Path, promise: Callable[[DataConfig], None]
) -> None:
    promise(config(layout, layout.write(tmp_path / "data")))


@pytest.mark.parametrize("promise", TEXTS, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("name", TEXT_LAYOUTS)
def test_a_data_set_of_texts_keeps_its_promises(
    name: str, tmp_path: Path, promise: Callable[[DataConfig], None]
) -> None:
    layout = TEXT_LAYOUTS[name]
    root = layout.write(tmp_path / "data")
    promise(DataConfig(name=layout.data_set, folder=str(root), dev_fraction=0.4))


@pytest.mark.slow
def test_the_built_in_photographs_keep_the_promises() -> None:
    check_videos(DataConfig(name="photographs", frame_size=32, patch_size=8))


# --- what is trained on it ------------------------------------------------------------------------

CPU = torch.device("cpu")


@pytest.fixture(params=["float32", "bfloat16"])
def run(request: pytest.FixtureRequest, layout: Layout, tmp_path: Path) -> ArmConfig:
    """Two steps of a constrained DUST, whose every parameter moves from the start."""
    data = config(layout, layout.write(tmp_path / "data"))
    fields = {"model.name": "dust", "model.atoms_per_side": 10, "steps": 2, "report_every": 1}
    fields |= {"eval_windows": 2, "eval_draws": 1, "test_gammas": [0.0, 0.2]}
    return dataclasses.replace(TINY.with_fields(fields), data=data, dtype=request.param)


def task_of(run: ArmConfig) -> Denoising:
    return build_task(run, CPU, parameter_dtype(run))


def test_both_arms_are_given_the_same_batches_of_its_frames(run: ArmConfig, layout: Layout) -> None:
    ours, theirs = task_of(run), task_of(run.unconstrained())
    for split, films in (("train", layout.train), ("dev", layout.train), ("test", layout.test)):
        patches = {
            square.tobytes()
            for frames in films.values()
            for frame in map(as_stored, frames)
            for rows in np.split(frame, SIZE // 8)
            for square in np.split(rows, SIZE // 8, axis=1)
        }
        batches = [list(t.held_out(split, 0.2, 1)) for t in (ours, theirs)]
        if split == "train":
            for found, task in zip(batches, (ours, theirs), strict=True):
                found.extend(task.train_batch(s) for s in range(task.steps_per_epoch + 1))
        assert batches[0]
        for a, b in zip(*batches, strict=True):
            assert torch.equal(a.inputs, b.inputs)
            assert torch.equal(a.targets, b.targets)
            assert torch.isfinite(a.inputs).all()
            assert not torch.equal(a.inputs, a.targets)
            shown = (a.targets * 255).round().to(torch.uint8).reshape(-1, 64).numpy()
            assert {patch.tobytes() for patch in shown} <= patches


def test_its_losses_are_finite_and_reach_every_layer(run: ArmConfig) -> None:
    task = task_of(run)
    model = build_model(run, task).to(parameter_dtype(run))
    losses_FB = layer_losses(model, task, task.train_batch(0))
    assert losses_FB.shape == (run.model.layers + 1, run.batch_size)
    assert torch.isfinite(losses_FB).all()
    losses_FB[-1].mean().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.abs().sum() > 0


def test_an_arm_on_it_gives_its_numbers_again_and_its_weights_come_back(
    run: ArmConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Evaluation] = []
    for place in ("once", "again"):
        monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / place / "cache"))  # decoded anew
        arm = ArmRun(run, ArmStore(ObjectStore(tmp_path / place)))
        while not arm.advance().is_final:
            pass
        assert arm.record.evaluation is not None, arm.record.reason
        measured.append(arm.record.evaluation)
    assert measured[0] == measured[1]
    content = arm.store.weights(arm.signature)
    assert content is not None
    task = task_of(run)
    model = build_model(run, task).to(parameter_dtype(run))
    model.load_state_dict(from_bytes(content, CPU)["model"])
    found = measure(model, task, "dev", run.train_gamma, run.eval_draws).units
    np.testing.assert_array_equal(found, measured[0].dev_losses)


# --- where it lies, and what is kept of it --------------------------------------------------------


def test_mean_and_std_are_those_of_the_training_clips(layout: Layout, tmp_path: Path) -> None:
    clips = load_video(config(layout, layout.write(tmp_path / "data")))
    written = [as_stored(p) for name in list(layout.train)[:2] for p in layout.train[name]]
    pixels = np.stack(written) / 255.0
    assert clips.std == pytest.approx(pixels.std(), rel=1e-12)
    assert clips.mean == pytest.approx(pixels.mean(), rel=1e-12)


def test_it_is_found_in_its_own_folder_and_in_one_that_contains_it(
    layout: Layout, tmp_path: Path
) -> None:
    root = layout.write(tmp_path / "data" / layout.folder)
    inside = resolve(config(layout, root))
    outside = resolve(config(layout, root.parent))
    assert inside.fingerprint == outside.fingerprint
    assert Path(load_video(outside).folder) == load_video(inside).folder  # one cache entry


def test_the_fingerprint_does_not_know_the_place(layout: Layout, tmp_path: Path) -> None:
    root = layout.write(tmp_path / "here")
    here = resolve(config(layout, root))
    shutil.copytree(root, tmp_path / "else" / "where")
    there = resolve(config(layout, tmp_path / "else" / "where"))
    assert here.fingerprint == there.fingerprint
    assert resolve(here) == here


def test_the_layouts_of_one_data_set_have_one_fingerprint(tmp_path: Path) -> None:
    prints: dict[str, set[str]] = {}
    for name, layout in LAYOUTS.items():
        resolved = resolve(config(layout, layout.write(tmp_path / name)))
        prints.setdefault(layout.data_set, set()).add(resolved.fingerprint)
    assert {name: len(found) for name, found in prints.items()} == dict.fromkeys(prints, 1)


def test_it_is_decoded_once_per_machine(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = config(layout, layout.write(tmp_path / "data"))
    first = load_video(data)
    # Damage that keeps every name, size and time: whoever decodes again sees it.
    for path in filter(Path.is_file, (tmp_path / "data").rglob("*")):
        seen = path.stat()
        path.write_bytes(bytes(seen.st_size))
        os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    second = load_video(data)
    assert second == first
    np.testing.assert_array_equal(second.stacked("train"), first.stacked("train"))


def test_the_decoder_is_in_the_key_of_those_that_use_it_alone(
    layout: Layout, tmp_path: Path
) -> None:
    folder = load_video(config(layout, layout.write(tmp_path / "data"))).folder
    key = json.loads((folder / "manifest.json").read_text())["key"]
    assert ("decoder" in key) == layout.decodes_video
    if layout.decodes_video:
        assert key["decoder"].startswith("av ")
    assert set(key) - {"decoder"} == {
        *("format", "pillow", "name", "root", "frame_size", "max_clips", "listing", "clips")
    }


def test_max_clips_takes_the_first_clips_of_both_lists(layout: Layout, tmp_path: Path) -> None:
    clips = load_video(config(layout, layout.write(tmp_path / "data"), max_clips=2))
    first, second, *_ = layout.train
    assert [c.name for c in clips.train + clips.dev] == [first, second]
    assert [c.name for c in clips.test] == list(layout.test)[:2]


def test_a_clip_shorter_than_a_sequence_is_named(layout: Layout, tmp_path: Path) -> None:
    short = list(layout.train)[1]
    with pytest.raises(BadData, match=rf"clip {short} \(train\).* has 5 frames, .* takes 6"):
        load_video(config(layout, layout.write(tmp_path / "data"), frames=6))


def test_a_changed_frame_changes_the_fingerprint(layout: Layout, tmp_path: Path) -> None:
    before = resolve(config(layout, layout.write(tmp_path / "before")))
    name = list(layout.test)[-1]
    changed = [*layout.test[name][:-1], 255 - layout.test[name][-1]]
    other = dataclasses.replace(layout, test=layout.test | {name: changed})
    root = other.write(tmp_path / "after")
    assert resolve(config(layout, root)).fingerprint != before.fingerprint
    with pytest.raises(BadData, match="changed: expected fingerprint"):
        load_video(dataclasses.replace(before, folder=str(root)))


def test_a_data_set_without_a_folder_says_what_to_give(layout: Layout) -> None:
    with pytest.raises(BadData, match=r"needs data\.folder.* Give a folder"):
        load_video(DataConfig(name=layout.data_set))


def test_an_empty_folder_and_another_layout_are_told(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadData, match=r"/empty is empty\. Give a folder"):
        load_video(config(layout, tmp_path / "empty"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("")
    with pytest.raises(BadData, match=r"\(it holds: notes\.txt\).* Give a folder"):
        load_video(config(layout, tmp_path / "other"))


def test_every_data_set_in_a_folder_is_under_this_contract() -> None:
    specs = {name: data_set_spec("videos", name) for name in built_in.VIDEOS}
    in_folders = {name for name, spec in specs.items() if spec.reads_folder}
    assert {layout.data_set for layout in LAYOUTS.values()} == in_folders
    assert {name for name, spec in specs.items() if spec.folders} == in_folders - {"clips"}


def test_data_sets_without_video_files_do_not_load_the_decoder() -> None:
    code = (
        "import sys; from trainables.config.arm import DataConfig;"
        "from trainables.datasets.video.load import load_video;"
        "load_video(DataConfig(frame_size=16, max_clips=2));"
        "print('av' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_doctor_says_what_a_folder_could_be(tmp_path: Path, name: str) -> None:
    check = check_folder(str(LAYOUTS[name].write(tmp_path / "data")))
    assert check.passed
    assert LAYOUTS[name].data_set in check.finding
    assert ": 4 training and 2 test clips in" in check.finding


def test_doctor_names_what_is_wrong_in_a_folder_that_it_knows(tmp_path: Path) -> None:
    root = LAYOUTS["shanghaitech as published"].write(tmp_path / "data")
    (root / "testing" / "frames" / "03_0031" / "002.png").unlink()
    check = check_folder(str(root))
    assert not check.passed
    assert "03_0031 are not numbered in one row" in check.finding
    assert "docs/data.md" in check.advice
    assert not check_folder(str(tmp_path / "nowhere")).passed


def test_doctor_counts_every_data_set_of_a_folder_that_holds_several(tmp_path: Path) -> None:
    roots = [
        LAYOUTS[name].write(tmp_path / LAYOUTS[name].folder)
        for name in ("cuhk_avenue as published", "shanghaitech as published")
    ]
    check = check_folder(str(tmp_path))
    assert check.passed
    assert check.finding == "; ".join(
        f"{name}: 4 training and 2 test clips in {root}"
        for name, root in zip(("cuhk_avenue", "shanghaitech"), roots, strict=True)
    )
    (roots[1] / "testing" / "frames" / "03_0031" / "002.png").unlink()
    check = check_folder(str(tmp_path))
    assert not check.passed
    assert check.finding.startswith("cuhk_avenue: 4 training and 2 test clips in")
    assert "03_0031 are not numbered in one row" in check.finding
