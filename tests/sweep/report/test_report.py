"""Figures of the report: what is drawn is what is stored."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from search_spaces.space import Setting
from sweep.report.drawing import rendered
from sweep.report.figures import FIGURES, draw, drawing_of
from sweep.report.measured import Measured, measured
from sweep.report.report import write_files
from sweep.report.scores import MOST_LINES
from sweep.results.sweep_view import SweepView, load_sweep
from tests.support.sweeps import (
    FEASIBLE,
    FIRST,
    INFEASIBLE,
    PLAIN,
    SPACE,
    store_sweep,
)
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def view_of(objects: ObjectStore, name: str = "tiny") -> SweepView:
    return load_sweep(objects, name)


def data_of(objects: ObjectStore, name: str = "tiny") -> Measured:
    view = view_of(objects, name)
    names = [s.setting.name for s in view.settings]
    return measured(view, ArmStore(objects).record, {}, names)


def lines(figure: Any, panel: int) -> dict[str, tuple[list[float], list[float]]]:
    """The lines of a panel that have a name, as (x, y)."""
    return lines_of(figure.axes[panel])


def lines_of(axis: Any) -> dict[str, tuple[list[float], list[float]]]:
    return {
        str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata()))
        for line in axis.get_lines()
        if not str(line.get_label()).startswith("_")
    }


def test_scores_are_the_means_over_seeds_of_the_stored_records(stored: ObjectStore) -> None:
    view = view_of(stored)
    drawn = lines(draw(data_of(stored), ["scores"])["scores"], 0)
    shown = view.settings[0].chosen.shown
    assert shown is not None
    for label, arms in (
        ("constrained", [p.constrained for p in shown.pairs]),
        ("plain training", [p.unconstrained for p in shown.pairs]),
    ):
        scores = [arm.evaluation.scores for arm in arms if arm and arm.evaluation]
        x, y = drawn[label]
        assert x == sorted(map(float, scores[0]))
        expected = [statistics.fmean(s[g] for s in scores) for g in sorted(scores[0], key=float)]
        np.testing.assert_allclose(y, expected)
    assert drawn["Wiener"] == ([0.0, 0.2, 0.4], [0.0, 5.0, 8.0])


def test_losses_by_layer_are_the_held_out_ones(stored: ObjectStore) -> None:
    drawn = lines(draw(data_of(stored), ["layers"])["layers"], 0)
    assert drawn["constrained"] == ([0, 1, 2, 3], FEASIBLE)
    assert drawn["plain training"] == ([0, 1, 2, 3], PLAIN)


def test_gains_are_signed_so_that_above_zero_is_better(stored: ObjectStore) -> None:
    figure = draw(data_of(stored), ["gain-by-gamma"])["gain-by-gamma"]
    by_seed = [list(line.get_ydata()) for line in figure.axes[0].get_lines()[:3]]
    # stored: the constrained RMSE is lower by 0.5 on seed 0 and higher by 0.5 on seed 1
    np.testing.assert_allclose(by_seed, [[0.5] * 3, [-0.5] * 3, [0.0] * 3], atol=1e-12)


def test_the_best_so_far_is_of_feasible_proposals(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    of = {FIRST: [FEASIBLE, INFEASIBLE, FEASIBLE]}
    objectives = {(FIRST, 0): -0.1, (FIRST, 1): -0.9, (FIRST, 2): -0.3}
    store_sweep(objects, of, objectives=objectives)
    x, y = lines(draw(data_of(objects), ["progress"])["progress"], 0)["best feasible so far"]
    assert x == [0, 2]
    np.testing.assert_allclose(y, [-0.095, -0.295])  # means over two seeds, 0.01 apart


def test_a_figure_says_what_was_trained_on_which_data_and_is_drawn_once_a_file(
    stored: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_of(stored)
    figure = draw(data, ["scores"])["scores"]
    assert [one.get_title().get_text() for one in figure.legends] == [data.trained]
    assert data.trained.startswith("photographs: ")
    assert figure.get_label() == f"tiny: {FIGURES['scores'].title}; {data.trained}"
    count = []
    drawn = Figure.draw
    monkeypatch.setattr(Figure, "draw", lambda *given: count.append(1) or drawn(*given))
    for form in ("svg", "png", "pdf"):
        assert rendered(figure, form)
    assert len(count) == 3


def test_the_trade_off_rings_the_winner_and_draws_no_line_through_one_point(
    stored: ObjectStore,
) -> None:
    axis = draw(data_of(stored), ["trade-off"])["trade-off"].axes[0]
    assert "Pareto front" not in lines_of(axis)
    (x, y), (ringed_x, ringed_y) = (lines_of(axis)[name] for name in ("feasible", "winner"))
    assert (x, y) == (ringed_x, ringed_y)


@pytest.mark.parametrize("key", ["scores", "layers", "anytime"])
def test_the_constrained_line_lies_above_the_plain_one(stored: ObjectStore, key: str) -> None:
    axis = draw(data_of(stored), [key])[key].axes[0]
    above = {line.get_label(): line.get_zorder() for line in axis.get_lines()}
    assert above["constrained"] > above["plain training"]
    assert "the input" not in axis.get_xlabel()


@pytest.mark.slow
def test_forty_settings_have_a_panel_each(tmp_path: Path) -> None:
    settings = tuple(
        Setting(f"shallow_ut-L3-g{0.1 + 0.01 * i:.2f}", {"train_gamma": round(0.1 + 0.01 * i, 2)})
        for i in range(40)
    )
    objects = ObjectStore(tmp_path)
    space = replace(SPACE, settings=settings)
    store_sweep(objects, {s.name: [FEASIBLE] for s in settings}, space=space)
    figures = draw(data_of(objects), ["layers", "gains", "train-gamma"])
    shown = {name: [a.get_title().split("\n")[0] for a in f.axes] for name, f in figures.items()}
    pages = ["layers", "layers-2", "layers-3", "layers-4", "layers-5"]
    assert [title for page in pages for title in shown[page]] == [s.name for s in settings]
    assert [len(figures[page].axes[0].get_yticks()) for page in ("gains", "gains-2")] == [30, 10]
    assert list(figures) == [*pages, "gains", "gains-2", "train-gamma"]
    assert all(figure.get_size_inches()[1] < 9 for figure in figures.values())  # a page of print
    assert drawing_of("layers-5").title == f"{FIGURES['layers'].title}, page 5"
    assert len(figures["train-gamma"].axes[0].get_lines()) == MOST_LINES


def test_what_a_killed_report_left_goes_with_the_next(tmp_path: Path) -> None:
    left = tmp_path / f".report.html.{'0' * 32}.tmp"
    left.write_bytes(b"half a page")
    assert write_files(tmp_path, "tiny", {"report.html": b"a page"}) == ["report.html"]
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
