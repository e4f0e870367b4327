"""The 105 video comparisons: each is launched by name, on data as they are published, both arms."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from search_spaces import catalog
from search_spaces.paper import video as published
from search_spaces.paper.comparison import Comparison
from sweep.cli.main import main
from sweep.results.sweep_view import SweepView
from tests.support.data.checkpoints import tiny_vit
from tests.support.data.data_folders import LAYOUTS
from tests.support.launched_spaces import launch, trained

# Two steps of what the spaces train, on frames of 16 pixels, measured on one window.
TINY = {
    "data.frame_size": 16, "data.patch_size": 4, "data.frames": 3, "data.stride": 2,
    "data.dev_fraction": 0.25, "batch_size": 4, "steps": 2, "report_every": 2, "eval_windows": 1,
    "eval_draws": 1, "test_gammas": "[0.0,0.1,0.2]", "n_proposals": 1, "search_seeds": "[0]",
    "sampler": "random", "device": "cpu",
}  # fmt: skip
OF_MODEL: dict[str, dict[str, object]] = {"ut": {}, "dust": {"model.atoms_per_side": 6}, "vit": {}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder that contains all three data sets, each as it is published."""
    root = tmp_path_factory.mktemp("data")
    for name in published.DATA_SETS:
        layout = LAYOUTS[f"{name} as published"]
        layout.write(root / layout.folder)
    return root


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ViT as deep as the paper's: 12 blocks of width 48 = 4 x 4 x 3."""
    return tiny_vit(tmp_path_factory.mktemp("checkpoint"), num_hidden_layers=12)


def launched(
    model: str,
    data: Path,
    checkpoint: Path,
    storage: Path,
    only: tuple[str, ...] = (),
    **changes: object,
) -> SweepView:
    """``sweep run video_denoising_<model>`` at the size of TINY; what the store holds then."""
    values = TINY | OF_MODEL[model] | changes
    if model == "vit":
        values["model.checkpoint"] = str(checkpoint)
    return launch(f"video_denoising_{model}", values, data, storage, only)


def assert_trained(view: SweepView, rows: Iterator[Comparison]) -> None:
    """Every comparison has both arms, final, of two steps, with finite losses in every layer."""
    for row, pair, arms in trained(view, rows):
        for record in arms:
            (losses,) = (report.layers["losses"] for report in record.reports)
            assert len(losses) == row.layers + 1
            assert all(map(math.isfinite, losses))
        assert (pair.judgement is not None and pair.judgement.beats_trivial) <= (
            row.train_gamma > 0
        )


@pytest.mark.slow
@pytest.mark.parametrize("model", list(OF_MODEL))
def test_a_comparison_of_each_data_set_trains_by_name(
    model: str, data: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """One of each data set, of another depth and noise each: none, little, much."""
    depths = published.LAYERS[model]  # type: ignore[index]
    gammas = (0.0, 0.09, 0.15)
    chosen = {
        f"{name}-{model}-L{depths[i % len(depths)]}-g{gammas[i]:g}"
        for i, name in enumerate(published.DATA_SETS)
    }
    view = launched(model, data, checkpoint, tmp_path / "root", only=tuple(sorted(chosen)))
    assert_trained(view, (row for row in published.COMPARISONS if row.setting in chosen))


@pytest.mark.slow
@pytest.mark.parametrize("model", list(OF_MODEL))
def test_every_comparison_of_the_paper_takes_its_first_two_steps(
    model: str, data: Path, checkpoint: Path, tmp_path: Path
) -> None:
    view = launched(model, data, checkpoint, tmp_path / "root")
    rows = [row for row in published.COMPARISONS if row.model == model]
    assert len(rows) == (15 if model == "vit" else 45)
    assert_trained(view, iter(rows))
    assert len(view.arms) == 2 * len(rows)


def test_a_sweep_is_finished_when_a_setting_without_noise_has_its_one_proposal(
    data: Path, checkpoint: Path, tmp_path: Path
) -> None:
    chosen = ("ucsd_ped2-ut-L3-g0", "ucsd_ped2-ut-L3-g0.09")
    view = launched("ut", data, checkpoint, tmp_path / "root", only=chosen, n_proposals=3)
    assert [len(s.results) for s in view.settings] == [1, 3]
    assert view.is_finished
    words = ["status", "video_denoising_ut", "--json", "--storage", str(tmp_path / "root")]
    status = json.loads(CliRunner().invoke(main, words).stdout)
    assert status["state"] == "finished"
    assert [s["proposals"]["wanted"] for s in status["settings"]] == [1, 3]
    assert status["arms"]["wanted"] == status["arms"]["final"] == 2 + 4
    listed = json.loads(CliRunner().invoke(main, ["list", *words[2:]]).stdout)
    assert listed[0]["proposals"] == "4 of 4"


def test_a_restricted_sweep_is_another_definition(
    data: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """Under the same name, other settings are refused with what differs; the same continue."""
    one, other = "ucsd_ped2-ut-L3-g0.09", "ucsd_ped2-ut-L3-g0.11"
    storage = tmp_path / "root"
    launched("ut", data, checkpoint, storage, only=(one,))
    launched("ut", data, checkpoint, storage, only=("*2-ut-L3-g0.09",))
    values = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    words = ["run", "video_denoising_ut", "--where", "inline", "--data", str(data)]
    words += ["--storage", str(storage), *values]
    refused = CliRunner().invoke(main, [*words, "--only", other])
    assert refused.exit_code == 2
    assert one in refused.stderr
    assert other in refused.stderr
    assert "Choose another --name" in refused.stderr


def test_a_data_set_that_is_not_there_can_be_left_out(
    data: Path, checkpoint: Path, tmp_path: Path
) -> None:
    layout = LAYOUTS["ucsd_ped2 as published"]
    layout.write(tmp_path / "data" / layout.folder)
    words = ["run", "video_denoising_dust", "--where", "inline", "--data", str(tmp_path / "data")]
    storage = tmp_path / "root"
    refused = CliRunner().invoke(main, [*words, "--storage", str(storage)])
    assert refused.exit_code == 2
    assert "leave settings like cuhk_avenue-dust-L3-g0 out with --only" in refused.stderr
    assert not storage.exists()
    view = launched("dust", tmp_path / "data", checkpoint, storage, only=("ucsd_ped2-*-L3-g0.15",))
    assert [s.setting.name for s in view.settings] == ["ucsd_ped2-dust-L3-g0.15"]


def test_the_paper_variant_of_dust_is_a_setting_of_its_own_in_the_long_ped2_runs() -> None:
    space = catalog.find("ped2_dust").space
    configs = [space.run(s, {}, seed=0) for s in space.settings]
    assert [c.matched_capacity for c in configs].count(False) == 1
    assert len({c.unconstrained().signature() for c in configs}) == 3
    assert {c.model.layers for c in configs} == {5}
    full = catalog.find("ped2_dust", full=True).space
    assert [full.proposals_of(s) for s in full.settings] == [12, 12, 12, 12, 1]
