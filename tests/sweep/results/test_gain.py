"""Gain has one sign and one name, above 0 better, in every output of searches and confirmations."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import sweep as api
from sweep.render.table import NOTHING
from sweep.report.pages import search as search_page
from sweep.report.pages.markup import Commands
from sweep.results.best import best_summaries
from sweep.results.provenance import manifest
from sweep.results.status import status_of
from sweep.results.sweep_view import load_sweep
from sweep.study.definition import load_definition
from sweep.tracking.rows import TrackedArm, final_rows
from sweep.tracking.sources import tracked_arms
from sweep.tracking.tags_and_notes import run_note
from tests.support import confirmations
from tests.support.code_figures import ROOT
from tests.support.command_line import contents, sweep
from tests.support.sweeps import FEASIBLE, FIRST, SECOND, SPACE, store_sweep
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

GAIN = 0.3  # of every constrained network at every gamma and severity; lower is better
OTHER_WORDS = re.compile(r"difference|\bminus\b|less plain|\bdiff\b|_diff", re.IGNORECASE)
SHIFTED = SPACE.with_base({"shifts": ["blur"]})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search and its confirmation; constrained networks are better by ``GAIN`` everywhere."""
    objects = ObjectStore(tmp_path_factory.mktemp("gain"))
    best = {(setting, 1): -0.9 for setting in (FIRST, SECOND)}
    came_to = {FIRST: [FEASIBLE] * 2, SECOND: [FEASIBLE] * 2}
    definition = store_sweep(objects, came_to, objectives=best, space=SHIFTED)
    _, confirmation = confirmations.stored(objects, confirmations.wanted(5))
    store = ArmStore(objects)

    def score(setting: str, kind: str, seed: int) -> float:
        return 4.0 + 0.01 * seed - GAIN * (kind == "constrained")

    confirmations.trained(objects, confirmation, score)
    for arm in list(tracked_arms(objects, definition)):
        measured, off = arm.record.evaluation, GAIN * (arm.record.config.constraint is not None)
        assert measured is not None
        planted = replace(
            measured,
            scores={"0.00": 1.0 - off, "0.20": 4.0 - off, "0.40": 9.0 - off},
            shift_scores={"blur": {at: 9.0 - off for at in measured.shift_scores["blur"]}},
            objective=-0.1 - off,
        )
        store.forget(arm.signature)
        store.put_record(replace(arm.record, evaluation=planted))
    return Path(objects.root)


def exported(root: Path, name: str, table: str) -> list[dict[str, str]]:
    out = root / "out" / name
    if not out.exists():
        sweep("export", name, "--storage", str(root), "--out", str(out))
    text = (out / "tables" / f"{table}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def of_column(table: str, column: str, name: str = "tiny") -> Callable[[Path], list[float]]:
    def found(root: Path) -> list[float]:
        return [float(row[column]) for row in exported(root, name, table) if row[column]]

    return found


def json_of_a_search(root: Path) -> list[float]:
    entries = json.loads(sweep("best", "tiny", "--json", "--storage", str(root)).stdout)
    keys = ("mean_over_gammas", "seen_mean", "unseen_mean", "objective")
    every = [of for entry in entries for of in (entry, *entry["seeds"].values())]
    gains = [of["gain"][key] for of in every for key in keys]
    gains += [value for of in every for value in of["gain"]["shifts"]["blur"].values()]
    return [gain for gain in gains if gain is not None]  # one setting has no unseen gamma


def json_of_a_confirmation(root: Path) -> list[float]:
    words = ("best", confirmations.NAME, "--json", "--storage", str(root))
    entry = json.loads(sweep(*words).stdout)
    contrasts = [one["contrasts"]["unconstrained"] for one in entry["settings"]]
    gains = [one["confirmed_gain"] for one in entry["settings"]]
    gains += [family["mean"] for family in entry["families"]]
    gains += [value for contrast in contrasts for value in contrast["per_seed"].values()]
    return gains + [contrast["mean"] for contrast in contrasts]


def lines_of_a_search(root: Path) -> list[float]:
    text = sweep("best", "tiny", "--storage", str(root)).stdout
    rows = [row.split() for row in re.findall(r"^  gain\*? +(.*)$", text, re.MULTILINE)]
    cells = [row[at] for row in rows[::2] for at in (0, 2, 3)]  # between them the area
    return [float(cell) for cell in (*cells, *(row[0] for row in rows[1::2])) if cell != NOTHING]


def lines_of_a_confirmation(root: Path) -> list[float]:
    text = sweep("best", confirmations.NAME, "--storage", str(root)).stdout
    assert re.search(r"against +seeds +gain +from", text)
    return [float(found) for found in re.findall(r"^ +plain training +5 +(\S+)", text, re.M)]


def page(root: Path) -> list[float]:
    view = load_sweep(ObjectStore(root), "tiny")
    entries = best_summaries(view, {})
    text = search_page.page(
        status_of(view),
        view.definition.space,
        [],
        entries,
        [],
        {},
        manifest(view, {}),
        Commands(following={}, again={}),
        [],
    )
    row = r"<th scope=row class=w>gain[^<]*</th><td>([^<]*)</td><td>([^<]*)</td>"
    overview = re.findall(r"<td[^>]*>([-+]\d\.300)</td>", text)
    assert "gain, unseen" in text
    cells = [*chain(*re.findall(row, text)), *overview]
    return [float(cell) for cell in cells if cell != NOTHING]


def figures(root: Path) -> list[float]:
    loaded = api.load("tiny", storage=str(root))
    by_gamma = loaded.figure("gain-by-gamma").axes[0].lines
    gains = loaded.figure("gains").axes[0].lines
    return [y for line in by_gamma[:2] for y in line.get_ydata()] + [*gains[0].get_xdata()]


def tracked(root: Path) -> Iterator[TrackedArm]:
    objects = ObjectStore(root)
    return tracked_arms(objects, load_definition(objects, "tiny"))


def mlflow_metrics(root: Path) -> list[float]:
    named = (
        "ood/objective_gain",
        "test/mean_over_gammas_gain",
        "ood/unseen_mean_gain",
        "ood/curve_gain",
    )
    rows = [row for arm in tracked(root) for row in final_rows(arm)]
    assert set(named) <= {row.key for row in rows}
    return [row.value for row in rows if row.key in named]


def mlflow_notes(root: Path) -> list[float]:
    notes = [run_note(arm) for arm in tracked(root)]
    assert any("by gamma (gain over plain training):" in note for note in notes)
    return [float(of) for note in notes for of in re.findall(r" \(([-+][\d.]+)\)[,.]", note)]


def frames(root: Path) -> list[float]:
    search, confirmation = (
        api.load(name, storage=str(root)) for name in ("tiny", confirmations.NAME)
    )
    means = ["gain_mean_rmse", "gain_seen_mean", "gain_unseen_mean", "gain_objective"]
    return [
        *search.settings[means].stack().dropna(),
        *search.proposals["gain_mean_rmse"],
        *confirmation.settings["gain"],
    ]


def notebook_html(root: Path) -> list[float]:
    html = api.load("tiny", storage=str(root))._repr_html_()
    assert "unseen: gain" in html
    return [float(found) for found in re.findall(r">([-+]0\.300)<", html)]


OUTPUTS: dict[str, Callable[[Path], list[float]]] = {
    "best": lines_of_a_search,
    "best --json": json_of_a_search,
    "confirm": lines_of_a_confirmation,
    "confirm --json": json_of_a_confirmation,
    "results.csv": of_column("results", "gain_mean_rmse"),
    "results.csv, unseen": of_column("results", "gain_unseen_mean_rmse"),
    "results.csv, blur": of_column("results", "gain_unseen_blur_mean_rmse"),
    "shifts.csv": of_column("shifts", "gain_rmse"),
    "proposals.csv": of_column("proposals", "gain_mean_rmse"),
    "confirmed.csv": of_column("confirmed", "gain", confirmations.NAME),
    "confirmed.csv, beside": of_column("confirmed", "seen_mean_gain", confirmations.NAME),
    "paper_results.csv": of_column("paper_results", "photographs_gain", confirmations.NAME),
    "report": page,
    "figures": figures,
    "MLflow": mlflow_metrics,
    "MLflow's notes": mlflow_notes,
    "frames": frames,
    "notebook": notebook_html,
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_network_that_is_better_by_three_tenths_has_a_gain_of_three_tenths(
    root: Path, output: str
) -> None:
    found = OUTPUTS[output](root)
    assert found
    assert found == pytest.approx([GAIN] * len(found), abs=5e-4)


def test_nothing_that_a_program_reads_has_another_word_for_a_gain(root: Path) -> None:
    for name in ("tiny", confirmations.NAME):
        exported(root, name, "paper_results")
        for path, content in contents(root / "out" / name / "tables").items():
            text = content.decode()
            head = text.splitlines()[0] if path.endswith(".csv") else text
            assert not OTHER_WORDS.search(head), path
    for arm in tracked(root):
        assert not [row.key for row in final_rows(arm) if OTHER_WORDS.search(row.key)]
    for loaded in (api.load("tiny", storage=str(root)),):
        for frame in ("settings", "proposals", "arms", "pairs", "layers", "curves", "steps"):
            assert not [c for c in getattr(loaded, frame) if OTHER_WORDS.search(c)]
    for schema in sorted((ROOT / "docs/schemas").glob("*.json")):
        named = set(properties(json.loads(schema.read_text(encoding="utf-8"))))
        assert not {name for name in named if OTHER_WORDS.search(name)} - {"differences"}, schema


def properties(schema: Any) -> Iterator[str]:
    """Names of fields; ``differences`` of `reproduce` are fields that differ, not numbers."""
    parts = schema.values() if isinstance(schema, dict) else schema
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
    for part in parts if isinstance(schema, dict | list) else ():
        yield from properties(part)
