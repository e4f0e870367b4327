"""Presentation of a sweep in MLflow: marks of runs, saved views, notes; sent once, and anew."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from sweep.api.training import sweep_pages
from sweep.results.sweep_view import SweepView, load_sweep
from sweep.study.arms import Arm
from sweep.study.definition import Definition, put_definition
from sweep.tracking import marks, views
from sweep.tracking.client import make_client, search_runs
from sweep.tracking.marks import Verdicts
from sweep.tracking.sources import tracked_arms
from sweep.tracking.tags_and_notes import LONGEST_TAG, run_note
from sweep.tracking.tracker import LONGEST_NOTE, Tracker, sync_all
from sweep.tracking.views import searched_fields
from tests.support.records import finished
from tests.support.toy_sweeps import PLAIN, definition, started, train, trained_with_winners
from trainables.records.arm_record import (
    DESCENT_CURVE,
    MISSING_SHARE_CURVE,
    MULTIPLIER_CURVE,
    OOD_CURVE,
    OOD_CURVE_GAIN,
    ArmRecord,
)
from trainables.records.objects import ObjectStore


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "root")


def trained(objects: ObjectStore, n_proposals: int = 3) -> tuple[Definition, SweepView]:
    asked = trained_with_winners(objects, n_proposals)
    return asked, load_sweep(objects, asked.name)


def sent(objects: ObjectStore, uri: str, view: SweepView) -> Tracker:
    tracker = Tracker(uri)
    sync_all(tracker, tracked_arms(objects, view.definition), say=lambda _: None)
    tracker.sync_sweep(sweep_pages(view, 0, objects.root))
    return tracker


def shown(uri: str) -> dict[str, tuple[str, str, str]]:
    """Of every run by name: its colour, verdict, and whether it is of the pair shown."""
    client = make_client(uri)
    tags = (marks.COLOUR, marks.VERDICT, marks.IN_PAIR)
    return {
        str(run.info.run_name): tuple(run.data.tags[t] for t in tags)  # type: ignore[misc]
        for run in search_runs(client, "1", "tags.kind = 'arm'")
    }


# --- marks ----------------------------------------------------------------------------------------


def test_a_sweep_names_its_winners_and_colours_settings(objects: ObjectStore, uri: str) -> None:
    _, view = trained(objects)
    winners = {s.setting.name: s.chosen.winner for s in view.settings}
    assert {name: w.number for name, w in winners.items() if w} == {"g1": 2, "g2": 2}
    sent(objects, uri, view)
    runs = shown(uri)
    assert runs["WIN p2 s0 g1"] == (marks.HUES[0], "winner", "yes")
    assert runs["WIN p2 s1 g2"] == (marks.HUES[1], "winner", "yes")
    assert runs["p1 s0 g1"][1:] == ("worse objective", "no")
    assert runs["p0 s0 g1"][1:] == ("diverged", "no")
    assert runs["plain s0 g1"] == (marks.GREYS[0], "plain training", "yes")
    assert runs["p1 s1 g2"][0] == marks.colour(1, 1) != marks.HUES[1]
    assert len(runs) == 2 * 2 * (3 + 1)


def test_a_winner_that_loses_its_place_is_named_and_coloured_anew(
    objects: ObjectStore, uri: str, other_uri: str
) -> None:
    _, before = trained(objects)
    tracker = sent(objects, uri, before)
    assert shown(uri)["WIN p2 s0 g1"][1] == "winner"
    _, after = trained(objects, n_proposals=4)
    sync_all(tracker, tracked_arms(objects, after.definition), say=lambda _: None)
    tracker.sync_sweep(sweep_pages(after, 0, objects.root))
    assert shown(uri)["p2 s0 g1"] == (marks.colour(0, 2), "worse objective", "no")
    assert shown(uri)["WIN p3 s0 g1"][1] == "winner"
    sent(objects, other_uri, after)  # a new, empty server
    assert shown(other_uri) == shown(uri)


def test_what_pages_say_already_is_not_sent_again(
    objects: ObjectStore, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, view = trained(objects)
    sent(objects, uri, view)
    tracker = Tracker(uri)
    client = tracker._client()
    for name in ("update_run", "log_batch", "set_experiment_tag", "set_tag", "log_inputs"):
        monkeypatch.setattr(client, name, None)  # a call raises
    sync_all(tracker, tracked_arms(objects, view.definition), say=lambda _: None)
    tracker.sync_sweep(sweep_pages(view, 0, objects.root))


def test_without_a_winner_the_closest_pair_is_shown_and_says_so() -> None:
    tags = marks.ArmTags("a", "s1", seed="0", outcome="x", proposal="4")
    verdicts = Verdicts(("a", "b"), {"s1": marks.CLOSEST}, {"s1": "infeasible"}, {"s1"})
    assert verdicts.marks(tags) == (
        "CLOSEST p4 s0 a",
        {
            "mlflow.runColor": marks.HUES[0],
            "verdict": "closest, no winner",
            "in_shown_pair": "yes",
            "proposal_outcome": "infeasible",
        },
    )


def test_an_arm_tells_its_own_outcome_and_that_of_its_proposal(tmp_path: Path, uri: str) -> None:
    """A proposal is judged by its mean over the seeds, which one of them may miss."""
    objects = ObjectStore(tmp_path / "root")
    asked = definition(n_proposals=1, n_settings=1)
    put_definition(objects, asked)
    layers = {0: [1.0, 0.35, 0.12, 0.04], 1: [1.0, 0.35, 0.12, 0.12]}  # seed 1: no last descent

    def record_of(arm: Arm) -> ArmRecord:
        losses = PLAIN if arm.proposal is None else layers[arm.config.seed]
        return finished(arm.config, losses)

    train(started(objects, asked), record_of)
    view = load_sweep(objects, asked.name)
    (proposal,) = view.settings[0].results
    sent(objects, uri, view)
    runs = search_runs(make_client(uri), "1", "tags.arm = 'constrained'")
    told = {r.data.tags["outcome"]: r.data.tags[marks.OF_PROPOSAL] for r in runs}
    assert set(told) == {"feasible", "infeasible"}
    assert set(told.values()) == {proposal.outcome}


def _luminance(colour: str) -> float:
    """Relative luminance, by WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_differs_and_a_winner_is_darker_than_the_others_of_its_setting() -> None:
    places = range(len(marks.HUES))
    strong = [marks.colour(p, 0, marks.WINNER) for p in places]
    pale = [marks.colour(p, 0) for p in places]
    grey = [marks.colour(p, None) for p in range(len(marks.GREYS))]
    assert len({*strong, *pale, *grey}) == 2 * len(places) + len(grey)
    for winner, other in zip(strong, pale, strict=True):
        assert _luminance(other) > 1.2 * _luminance(winner)
    for one, two in itertools.combinations(marks.GREYS, 2):
        assert abs(_luminance(one) - _luminance(two)) > 0.1


# --- views and notes ------------------------------------------------------------------------------


def state_of(view: views.View) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.loads(view.text(7))["state"])
    return plain


def test_views_fit_and_show_what_matters_first() -> None:
    many = [f"constraint.some_long_field_{k}" for k in range(12)]
    saved = {view.name: view for view in views.views(many)}
    assert [view.mode for view in saved.values()] == ["CHART", "CHART", "CHART", "TABLE"]
    for view in saved.values():
        assert len(view.text(1_700_000_000_000)) < 20_000  # what a tag may have
        state = state_of(view)
        sections = [section["uuid"] for section in state["compareRunSections"]]
        assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} == set(sections)
        assert len({chart["uuid"] for chart in state["compareRunCharts"]}) == len(
            state["compareRunCharts"]
        )
    charts = [c["metricKey"] for c in state_of(saved["Winner pairs"])["compareRunCharts"]]
    first = {DESCENT_CURVE, OOD_CURVE, OOD_CURVE_GAIN, MISSING_SHARE_CURVE, MULTIPLIER_CURVE}
    assert first <= set(charts[:6])
    parallel = state_of(saved["All arms"])["compareRunCharts"][0]
    assert parallel["selectedParams"] == many
    table = state_of(saved["Feasible proposals"])
    assert "feasible" in table["searchFilter"]
    assert table["selectedColumns"][:6] == [
        "tags.`setting`", "tags.`verdict`", "metrics.`ood/objective_gain`",
        "metrics.`feasibility/worst_missing_share`", "metrics.`ood/objective`",
        "tags.`certificate`",
    ]  # fmt: skip
    assert table["selectedColumns"][-1] == "tags.`arm`"
    sections = [s["name"] for view in saved.values() for s in state_of(view)["compareRunSections"]]
    assert all(len(name) <= 26 for name in sections)  # beside the assistant longer ones are cut
    assert {f"params.`{name}`" for name in many} <= set(table["selectedColumns"])


def test_the_sweeps_note_says_what_it_is_came_to_and_where_more_is(
    objects: ObjectStore, uri: str
) -> None:
    asked, view = trained(objects)
    sent(objects, uri, view)
    tags = make_client(uri).get_experiment("1").tags
    note = tags["mlflow.note.content"]
    assert len(note) <= LONGEST_NOTE
    for setting in ("g1", "g2"):
        assert f"| {setting} | p2, winner | +1 |" in note  # 2 x 0.5 better at every gamma
    assert "| yes | undecided | -1 |" in note  # the objective
    first, second, *_ = note.split("\n\n")
    assert first.startswith("**2 of 2 settings have a winner: ")
    assert "unseen" in first
    assert second.startswith("| setting | shown |")
    for verb in ("best", "report", "export"):
        assert f"sweep {verb} toy" in note
    assert f"--storage {objects.root}" in note
    for saved in views.views(searched_fields(asked.space)):
        assert f"[{saved.name}]({saved.address('1')})" in note
        assert saved.tag in tags


def test_an_arms_note_has_its_searched_values_and_scores(objects: ObjectStore) -> None:
    asked, _ = trained(objects)
    arm = next(a for a in tracked_arms(objects, asked) if (a.setting, a.proposal) == ("g1", 2))
    note = run_note(arm)
    first, scores, *_ = note.split("\n\n")
    alpha = arm.record.config.value_of("constraint.alpha")
    assert first.startswith("**g1**, constrained, proposal 2, seed 0: **feasible** (worst missing")
    assert f"alpha {alpha:.4g}" in first
    assert "0.15: 5.5 (+1), 0.20: 6 (+1)" in scores
    assert "sweep run config.json --reproduce" in note
    assert len(note) < LONGEST_TAG
