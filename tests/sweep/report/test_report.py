"""The report: what is drawn is what is stored, and the page stands alone."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search_spaces.space import Setting
from sweep.report.figures import FIGURES, draw, drawing_of
from sweep.report.measured import Measured, measured
from sweep.report.report import PAGE, report
from sweep.report.scores import MOST_LINES
from sweep.results.sweep_view import SweepView, load_sweep
from tests.support.command_line import refused, sweep
from tests.support.sweeps import (
    DIVERGED,
    FEASIBLE,
    FIRST,
    INFEASIBLE,
    PLAIN,
    SECOND,
    SPACE,
    store_sweep,
)
from trainables.errors import UnknownName
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
    found = figure.axes[panel].get_lines()
    return {
        str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata()))
        for line in found
        if not str(line.get_label()).startswith("_")
    }


def written(objects: ObjectStore, out: Path, name: str = "tiny", **options: Any) -> str:
    given = {"formats": (), **options}
    report(view_of(objects, name), {}, out, read=ArmStore(objects).record, **given)
    return (out / PAGE).read_text(encoding="utf-8")


class Parsed(HTMLParser):
    """Tags that were opened and not closed, addresses, pictures, cells."""

    ALONE = ("meta", "link", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.ids: set[str] = set()
        self.alts: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.ALONE:
            self.open.append(tag)
        given = dict(attrs)
        self.addresses += [given[key] or "" for key in ("src", "href") if key in given]
        self.ids |= {given["id"] or ""} if "id" in given else set()
        if tag == "img":
            self.alts.append(given.get("alt") or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.cells.append(data)


# --- figures --------------------------------------------------------------------------------------


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
    figure = draw(data_of(stored), ["differences"])["differences"]
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


CASES: dict[str, dict[str, Any]] = {
    "nothing feasible": {FIRST: [INFEASIBLE, INFEASIBLE]},
    "all diverged": {FIRST: [DIVERGED, DIVERGED]},
    "nothing tried yet": {FIRST: []},
    "not begun": {},
    "whole": {FIRST: [FEASIBLE, INFEASIBLE, DIVERGED], SECOND: [FEASIBLE]},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_every_sweep_has_a_page(tmp_path: Path, case: str, seeds: tuple[int, ...]) -> None:
    objects = ObjectStore(tmp_path / "store")
    store_sweep(objects, CASES[case], space=replace(SPACE, search_seeds=seeds))
    parsed = Parsed(text := written(objects, tmp_path / "out"))
    assert parsed.open == []
    assert ("Nothing is measured yet" in text) == (not parsed.alts)
    assert ("figure-scores" in parsed.ids) == (case != "not begun")


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


# --- page and files -------------------------------------------------------------------------------


def test_the_page_stands_alone_and_shows_every_setting_figure_and_number(
    stored: ObjectStore, tmp_path: Path
) -> None:
    parsed = Parsed(text := written(stored, tmp_path / "out", formats=("png",)))
    assert parsed.open == []
    outside = [a for a in parsed.addresses if not a.startswith(("#", "data:"))]
    assert outside == []
    links = {a[1:] for a in parsed.addresses if a.startswith("#")}
    assert links <= parsed.ids
    assert {FIRST, SECOND} <= parsed.ids
    drawn = {p.stem for p in (tmp_path / "out" / "figures").glob("*.png")}
    assert len(parsed.alts) == len(drawn)
    assert {alt.split(".")[0] for alt in parsed.alts} == {FIGURES[name].title for name in drawn}
    assert "not at its end" in text
    written(stored, tmp_path / "out")
    assert not list((tmp_path / "out" / "figures").iterdir())  # of the report before
    assert "no result before fresh seeds confirm them" in text


@pytest.mark.slow
def test_the_same_sweep_gives_the_same_bytes(stored: ObjectStore, tmp_path: Path) -> None:
    for out in ("a", "b"):
        written(stored, tmp_path / out, formats=("pdf",), patterns=[FIRST])
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*.*"))
    assert len(files) > 8
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_words_of_the_user_are_no_markup(stored: ObjectStore, tmp_path: Path) -> None:
    other = replace(SPACE, summary="<script>alert(1)</script> & more")
    store_sweep(stored, {FIRST: [FEASIBLE]}, name="other", space=other)
    text = written(stored, tmp_path / "out", "other")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text


def test_only_shows_the_settings_asked_for(stored: ObjectStore, tmp_path: Path) -> None:
    parsed = Parsed(written(stored, tmp_path / "out", patterns=["*g0.15"]))
    assert FIRST in parsed.ids
    assert SECOND not in parsed.ids
    assert "Shown are 1 of 2 settings (*g0.15)" in (tmp_path / "out" / PAGE).read_text()
    with pytest.raises(UnknownName, match=re.escape(SECOND)):
        written(stored, tmp_path / "out", patterns=["*g9"])


def test_the_verb_says_where_the_page_is_and_replaces_one_that_is_there(
    stored: ObjectStore, tmp_path: Path
) -> None:
    for _ in range(2):
        where = ("--storage", stored.root, "--out", str(tmp_path / "out"))
        said = sweep("report", "tiny", "--page", "--only", FIRST, *where)
        assert said.stdout.strip() == str(tmp_path / "out" / PAGE)
    assert not list((tmp_path / "out").rglob("*.part"))


def test_what_cannot_be_reported_is_told(stored: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    at = ("--storage", stored.root)
    assert "must be a folder" in refused("report", "tiny", *at, "--out", str(tmp_path / "file"))
    assert "tiny" in refused("report", "tini", *at)
