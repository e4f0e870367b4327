"""Pages that `sweep ui` opens, in Chromium: saved views, a comparison, an arm's page, its note."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from sweep.api.training import sweep_pages
from sweep.results.sweep_view import load_sweep
from sweep.tracking.address import sweep_id, tracking_uri
from sweep.tracking.client import make_client, search_runs
from sweep.tracking.sources import tracked_arms
from sweep.tracking.tracker import Tracker, sync_all
from sweep.tracking.views import views
from tests.support.browser import Page, browser
from tests.support.drivers import ROOT
from tests.support.servers.mlflow_servers import free_port
from tests.support.toy_sweeps import PLAIN, STEEP, trained_with_winners
from trainables.records.objects import ObjectStore

SIZE = (1600, 1400)
READY_S = 120.0  # on busy cores
# MLflow's own: it asks for a user that a server without accounts has not, and of a resized chart.
NOT_OURS = ("users/current", "ResizeObserver loop")
PLOTS = "[...document.querySelectorAll('.js-plotly-plot')]"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str], str]]:
    """What `sweep ui` prints of a finished sweep while it serves: page, other views; its MLflow."""
    root = tmp_path_factory.mktemp("pages") / "root"
    objects = ObjectStore(root)
    asked = trained_with_winners(objects)
    uri = tracking_uri(objects.root, None)
    tracker = Tracker(uri, sweep_id=sweep_id(objects, asked.name))
    sync_all(tracker, tracked_arms(objects, asked), say=lambda _: None)
    tracker.sync_sweep(sweep_pages(load_sweep(objects, asked.name), 0, objects.root))
    verb = ["ui", asked.name, "--storage", objects.root, "--port", str(free_port())]
    with subprocess.Popen(
        [sys.executable, "-m", "sweep.cli", *verb],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as ui:
        try:
            assert ui.stdout is not None
            assert ui.stderr is not None
            page = ui.stdout.readline().strip()
            others = list(iter(lambda: ui.stderr.readline().strip(), "Ctrl-C ends the server."))  # type: ignore[union-attr]
            yield page, others, uri
        finally:
            ui.terminate()


@pytest.fixture(scope="module")
def page(said: tuple[str, list[str], str]) -> Iterator[Page]:
    """A browser whose reader has closed MLflow's assistant, which opens by itself once."""
    base = said[0].partition("#")[0]
    with browser(SIZE) as page:
        page.open(base)
        page.wait_for("document.querySelector('button[aria-label=Close]')", READY_S)
        page.ask("document.querySelector('button[aria-label=Close]').click()")
        yield page
        assert [e for e in page.errors if not any(known in e for known in NOT_OURS)] == []
        assert page.outside(base) == []


def lines(metric: str) -> str:
    """The lines of the chart of a metric, as an expression in the page."""
    return f"{PLOTS}.flatMap(p => p.data || []).filter(d => d.metricKey === '{metric}' && d.x)"


def chart(page: Page, metric: str) -> dict[str, dict[float, float]]:
    """The chart of a metric: y by x of every run, or group of runs, by its name."""
    drawn = page.ask(f"{lines(metric)}.map(d => [d.name, [...d.x], [...d.y]])")
    return {name: dict(zip(x, y, strict=True)) for name, x, y in drawn if x}


def test_the_address_opens_both_arms_of_each_winner_overlaid(
    page: Page, said: tuple[str, list[str], str], tmp_path: Path
) -> None:
    url = said[0]
    assert "viewStateShareKey=winner-pairs" in url
    page.open(url)
    page.wait_for(f"{lines('train/multiplier_curve')}.length", READY_S)
    page.picture(tmp_path / "winner_pairs.png")
    text = page.text()
    assert "Model training" in text
    assert "Evaluation runs" not in text  # of the pages for GenAI
    assert text.index("Loss by layer; robustness") < text.index("Missing share, multiplier")
    axes = page.ask(f"{PLOTS}.slice(0, 6).map(p => p.layout.xaxis.title.text)")
    assert axes == ["layer", "gamma", "gamma", "layer", "layer", "layer"]
    for setting in ("g1", "g2"):
        for seed in (0, 1):
            assert f"WIN p2 s{seed} {setting}" in text
            assert f"plain s{seed} {setting}" in text
    assert "p1 s0" not in text  # no winner
    descent = chart(page, "descent/curve")
    assert len(descent) == 8
    assert descent["WIN p2 s0 g1"] == pytest.approx(dict(enumerate(STEEP)))
    assert descent["plain s1 g2"] == pytest.approx(dict(enumerate(PLAIN)))
    scores = chart(page, "ood/curve")
    assert scores["plain s0 g1"] == pytest.approx({0: 5, 0.15: 6.5, 0.2: 7, 0.25: 7.5, 0.5: 10})
    gains = chart(page, "ood/curve_gain")
    assert gains["WIN p2 s0 g1"] == pytest.approx({0: 1, 0.15: 1, 0.2: 1, 0.25: 1, 0.5: 1})
    assert set(chart(page, "feasibility/curve")["WIN p2 s0 g1"]) == {1, 2, 3}


def test_other_views_are_listed_and_open(
    page: Page, said: tuple[str, list[str], str], tmp_path: Path
) -> None:
    others = dict(line.split(": ", 1) for line in said[1])
    assert list(others) == [view.name for view in views([])[1:]]

    page.open(others["Winner pairs, mean and range over seeds"])
    page.wait_for("document.body.innerText.includes('Group:')")
    page.wait_for(f"{lines('descent/curve')}.some(d => d.name === '')")
    page.picture(tmp_path / "seeds.png")
    means = page.ask(f"{lines('descent/curve')}.map(d => [d.uuid, [...d.y]])")
    assert len({uuid for uuid, _ in means}) == 4  # an arm of a setting
    assert [losses for _, losses in means if losses not in (STEEP, PLAIN)] == []
    bands = page.ask(f"{PLOTS}[0].data.filter(d => !d.metricKey && d.x).length")
    assert bands == 4  # from the least to the most over the seeds

    page.open(others["All arms"])
    page.wait_for("document.body.innerText.includes('Parallel Coordinates')")
    page.wait_for(f"{PLOTS}.length > 0")
    page.picture(tmp_path / "all_arms.png")
    assert page.text().index("Searched values; objective") > 0

    page.open(others["Feasible proposals"])
    page.wait_for("document.querySelectorAll('.ag-center-cols-container .ag-row').length > 1")
    page.picture(tmp_path / "feasible.png")
    header = page.ask(
        "[...document.querySelectorAll('.ag-header-viewport .ag-header-row-column"
        " .ag-header-cell')].sort((a, b) => a.ariaColIndex - b.ariaColIndex)"
        ".map(cell => cell.innerText.trim())"
    )
    assert header[:6] == [
        "setting", "verdict", "ood/objective_gain", "feasibility/worst_missing_share",
        "ood/objective", "certificate",
    ]  # fmt: skip
    rows = page.ask("document.querySelector('.ag-center-cols-container').innerText")
    assert rows.count("undecided") >= 8  # two proposals, two settings, two seeds
    assert "infeasible" not in rows


def test_the_sweeps_note_is_shown_with_its_table_and_links(
    page: Page, said: tuple[str, list[str], str]
) -> None:
    page.open(said[0])
    page.wait_for("document.body.innerText.includes('pairs of a constrained')")
    links = page.ask("[...document.querySelectorAll('a')].map(a => a.href)")
    assert {said[0], *(line.split(": ", 1)[1] for line in said[1])} <= set(links)
    assert "2 of 2 settings have a winner" in page.text()
    cells = page.ask("[...document.querySelectorAll('td')].map(td => td.innerText)")
    assert "p2, winner" in cells


def test_an_arms_page_says_setting_arm_verdict_values_and_scores(
    page: Page, said: tuple[str, list[str], str], tmp_path: Path
) -> None:
    base, uri = said[0].partition("#")[0], said[2]
    runs = {run.info.run_name: run for run in search_runs(make_client(uri), "1", "")}
    arm, plain = runs["WIN p2 s0 g1"], runs["plain s0 g1"]
    page.open(f"{base}#/experiments/1/runs/{arm.info.run_id}")
    page.wait_for("document.body.innerText.includes('constrained, proposal 2, seed 0')")
    page.picture(tmp_path / "arm.png")
    text = page.text()
    alpha = float(arm.data.params["constraint.alpha"])
    for wanted in (
        "WIN p2 s0 g1", "feasible", f"alpha {alpha:.4g}", "0.15: 5.5 (+1)", "System metrics",
        "photographs", "winner",
    ):  # fmt: skip
        assert wanted in text, wanted
    both = quote(json.dumps([arm.info.run_id, plain.info.run_id]))
    page.open(f"{base}#/compare-runs?runs={both}&experiments={quote(json.dumps(['1']))}")
    page.wait_for("document.body.innerText.includes('Comparing 2 Runs')")
    page.wait_for("document.body.innerText.includes('constraint.alpha')")
    page.picture(tmp_path / "compare.png")
    assert "plain s0 g1" in page.text()
