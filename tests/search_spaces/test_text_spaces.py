"""The 72 text comparisons: listed, marked where they ask too much, launched by name, both arms."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from search_spaces import catalog
from search_spaces.paper import text as published_text
from search_spaces.paper.comparison import Comparison
from search_spaces.paper.text import COMPARISONS, least_loss
from sweep.cli.main import main
from sweep.cost import estimate
from sweep.results.sweep_view import SweepView
from tests.support.data.text_folders import TEXT_LAYOUTS
from tests.support.data.text_runs import TINY, checkpoint_in
from tests.support.launched_spaces import launch, trained
from trainables.registry.task_facts import SAMPLES_PER_UNIT

MODELS = ("ut", "distilbert", "roberta")
FOLDERS = {"imdb": "imdb without films", "mnli": "mnli as published"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder that contains both data sets, each as it is published."""
    root = tmp_path_factory.mktemp("data")
    for name in FOLDERS.values():
        layout = TEXT_LAYOUTS[name]
        layout.write(root / layout.folder)
    return root


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return checkpoint_in(tmp_path_factory.mktemp("checkpoint") / "encoder")


def launched(
    model: str, data: Path, checkpoint: str, storage: Path, only: tuple[str, ...] = ()
) -> SweepView:
    """``sweep run text_classification_<model>`` at the size of TINY; what the store holds then."""
    values = TINY | {"model.checkpoint": checkpoint, "dtype": "float32"}
    if model == "roberta":
        values["accumulate"] = 2
    return launch(f"text_classification_{model}", values, data, storage, only)


def assert_trained(view: SweepView, wanted: list[Comparison]) -> None:
    """Every comparison has both arms, final, of two steps, with accuracies at every test gamma."""
    for row, _, arms in trained(view, wanted):
        for record in arms:
            (report,) = record.reports
            depth = row.layers if row.model == "ut" else 3  # as the checkpoint of this test has
            assert record.config.model.layers == depth
            assert len(report.layers["losses"]) == len(report.layers["accuracies"]) == depth + 1
            assert record.evaluation is not None
            assert set(record.evaluation.scores) == {"0.00", "0.40", "1.20", "2.00"}
            assert record.evaluation.shift_scores.keys() == {"token_drop", "token_swap", "typos"}


# --- all of them are there ------------------------------------------------------------------------


def test_all_72_comparisons_of_table_4_are_settings_that_can_be_launched_by_name() -> None:
    assert len(COMPARISONS) == len({c.setting for c in COMPARISONS}) == 72
    for model in MODELS:
        space = catalog.find(f"text_classification_{model}").space
        rows = [c for c in COMPARISONS if c.model == model]
        assert [s.name for s in space.settings] != []
        assert {s.name for s in space.settings} == {c.setting for c in rows}
        assert {c.space for c in rows} == {space.name}
        for row in rows:
            run = space.run(space.setting(row.setting), {}, seed=0)
            assert (run.data.name, run.train_gamma) == (row.data, row.train_gamma)
            assert run.model.layers == (row.layers if model == "ut" else 0)
            assert run.model.checkpoint == published_text.CHECKPOINTS[row.model]
            assert (run.test_gammas[0], run.test_gammas[-1]) == (0.0, published_text.LARGEST_GAMMA)
            assert space.proposals_of(space.setting(row.setting)) == space.n_proposals
        catalog.find(f"text_classification_{model}", full=True)


@pytest.mark.skipif("SWEEP_TEST_DATA" not in os.environ, reason="SWEEP_TEST_DATA is not set")
def test_the_numbers_are_those_of_the_table() -> None:
    path = Path(os.environ["SWEEP_TEST_DATA"]).parent / "published" / "table4_language_auc.csv"
    if not path.exists():
        pytest.skip(f"no {path.name} beside the test data")
    names = {"UT": "ut", "DistilBERT": "distilbert", "RoBERTa": "roberta"}
    with open(path, encoding="utf-8") as stream:
        expected = {
            (names[row["model"]], int(row["layers"]), float(row["gamma_train"]), data): (
                float(row[f"{data}_constrained"]),
                float(row[f"{data}_unconstrained"]),
            )
            for row in csv.DictReader(stream)
            for data in ("imdb", "mnli")
        }
    found = {
        (c.model, c.layers, c.train_gamma, c.data): (c.constrained, c.unconstrained)
        for c in COMPARISONS
    }
    assert found == expected


# --- what asks too much ---------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
def test_no_calibrated_forecast_has_less_than_the_least_loss(classes: int) -> None:
    """Against the entropy of any forecast, whose accuracy is its largest probability; a mean of
    forecasts obeys a bound that is linear in the accuracy."""
    grid = np.linspace(0, 1, 41)
    for parts in itertools.product(grid, repeat=classes - 1):
        if sum(parts) > 1 + 1e-9:
            continue
        p = np.clip(np.array([*parts, 1 - sum(parts)]), 0, 1)
        entropy = -sum(v * math.log(v) for v in p if v > 0)
        assert entropy >= least_loss(float(p.max())) - 1e-9
    # and it is reached: certain of some, of two minds about the others
    assert 0.3 * math.log(2) == pytest.approx(least_loss(0.7 * 1.0 + 0.3 * 0.5))


def test_what_asks_for_more_descent_than_can_exist_is_marked() -> None:
    by_kind = {(c.model, c.data, c.layers): c for c in COMPARISONS if c.train_gamma == 1.0}
    # protocol: UT on MNLI and DistilBERT on MNLI are out of reach, UT on IMDb is not
    marks = {kind: c.asks_too_much for kind, c in by_kind.items()}
    assert marks["distilbert", "mnli", 12] == "surely"
    assert marks["distilbert", "imdb", 12] == ""  # of six blocks; twelve would ask too much
    assert {marks["ut", "imdb", layers] for layers in (3, 5, 7, 9)} == {""}
    assert all(marks["ut", "mnli", layers] for layers in (3, 5, 7, 9))
    assert marks["roberta", "imdb", 24] == marks["roberta", "mnli", 24] == ""  # not reported
    for c in COMPARISONS:
        assert bool(c.asks_too_much) == any("infeasible by construction" in d for d in c.doubts)
    demanded = by_kind["distilbert", "imdb", 12].demanded_loss
    assert demanded == pytest.approx(0.774**6)
    assert by_kind["ut", "imdb", 3].demanded_loss == pytest.approx(0.9 * 0.9**3)
    assert least_loss(published_text.CLEAN_ACCURACY["distilbert", "imdb"]) > 0.774**12
    assert "printed with 12 layers" in by_kind["distilbert", "imdb", 12].doubts[0]


@pytest.mark.slow
def test_the_list_for_people_shows_the_marks() -> None:
    words = ["spaces", "text_classification_ut", "--gpu", "h100"]
    shown = CliRunner().invoke(main, words).stdout
    assert "0.892 0.887 !!" in shown
    assert "!! certainly or probably requires more descent than can exist" in " ".join(
        shown.split()
    )
    plain = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    assert len(plain["published"]) == 48
    row = plain["published"]["imdb-ut-L3-g0"]
    assert row["ood_auc"] == {"constrained": 1.719, "unconstrained": 1.707}
    assert row["doubts"] == []


@pytest.mark.parametrize("model", ["ut", "distilbert", "roberta"])
def test_the_full_spaces_score_what_table_4_needs(model: str) -> None:
    """All of IMDb's dev reviews; the standard errors are those of docs/text.md."""
    full = catalog.find(f"text_classification_{model}", full=True).space.base
    samples = full.eval_windows * SAMPLES_PER_UNIT
    assert samples >= full.data.dev_fraction * estimate.TEXTS["imdb"].examples
    for data, accuracy, error in (("imdb", 0.85, 0.0071), ("mnli", 0.80, 0.0052)):
        there = full.data.dev_fraction * estimate.TEXTS[data].examples
        scored = min(samples, there)
        assert math.sqrt(accuracy * (1 - accuracy) / scored) == pytest.approx(error, abs=5e-5)


# --- two steps of each ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_comparison_of_each_data_set_trains_by_name(
    model: str, data: Path, checkpoint: str, tmp_path: Path
) -> None:
    """One without noise, one with much; of UT, of another depth each."""
    rows = [c for c in COMPARISONS if c.model == model]
    chosen = [
        next(c for c in rows if (c.data, c.train_gamma) == ("imdb", 0.0)),
        next(c for c in reversed(rows) if (c.data, c.train_gamma) == ("mnli", 1.0)),
    ]
    only = tuple(sorted(c.setting for c in chosen))
    assert_trained(launched(model, data, checkpoint, tmp_path / "root", only), chosen)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_every_comparison_of_table_4_takes_its_first_two_steps(
    model: str, data: Path, checkpoint: str, tmp_path: Path
) -> None:
    rows = [c for c in COMPARISONS if c.model == model]
    view = launched(model, data, checkpoint, tmp_path / "root")
    assert_trained(view, rows)
    assert len(view.arms) == 2 * len(rows)


def test_the_command_line_reads_a_sweep_of_texts_in_its_own_words(
    data: Path, checkpoint: str, tmp_path: Path
) -> None:
    only = ("imdb-ut-L3-g0.2",)
    launched("ut", data, checkpoint, tmp_path / "root", only)
    where = ["--storage", str(tmp_path / "root")]
    best = CliRunner().invoke(main, ["best", "text_classification_ut", *where]).stdout
    told = " ".join(best.split())
    assert "mean accuracy: over all test gammas" in told
    assert "higher is better" in told
    assert "Constant" in told
    for word in ("RMSE", "Wiener", "Identity", "clips", "grey"):
        assert word not in told
    (entry,) = json.loads(
        CliRunner().invoke(main, ["best", "text_classification_ut", "--json", *where]).stdout
    )
    for arm in ("constrained", "unconstrained"):
        assert entry[arm]["ood_range"] == [0.0, 2.0]
        assert entry[arm]["ood_step"] is None  # of this test's grid
        assert len(entry[arm]["scores"]) == 4
    out = tmp_path / "out"
    words = ["export", "text_classification_ut", "--out", str(out), *where]
    exported = CliRunner().invoke(main, words)
    assert exported.exit_code == 0, exported.output
    (results,) = out.rglob("results.csv")
    with open(results, encoding="utf-8") as stream:
        (row,) = csv.DictReader(stream)
    assert 0 <= float(row["constrained_mean_accuracy"]) <= 1
    assert "constant_mean_accuracy" in row
    assert 0 <= float(row["constrained_ood_auc"]) <= 2
    assert (row["ood_auc_range"], row["ood_auc_step"]) == ("0.0 2.0", "")  # of this test's grid
    assert len(row["constrained_accuracy_by_layer"].split()) == 4
    assert not [name for name in row if "rmse" in name or "wiener" in name or "blur" in name]
