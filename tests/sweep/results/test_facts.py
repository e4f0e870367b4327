"""The long exports: each seed's numbers as its record has them, and every proposal."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest

from sweep.results.best import best_entries
from sweep.results.export import export
from sweep.results.facts import Fact, read_facts, shown_facts
from sweep.results.sweep_view import load_sweep
from tests.support.sweeps import (
    DIVERGED,
    FEASIBLE,
    FIRST,
    INFEASIBLE,
    SECOND,
    SPACE,
    point,
    store_sweep,
)
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

SHIFTED = SPACE.with_base({"shifts": ["blur"]})
KEY = [column for column in Fact._fields if column != "value"]


def tidy(objects: ObjectStore) -> pandas.DataFrame:
    view = load_sweep(objects, "tiny")
    facts = [fact for one in view.settings for fact in shown_facts(one)]
    return pandas.DataFrame(facts, columns=Fact._fields)


def proposals(objects: ObjectStore) -> pandas.DataFrame:
    view = load_sweep(objects, "tiny")
    return pandas.DataFrame(read_facts(view, ArmStore(objects).record).proposals)


def test_every_seed_has_its_own_numbers_and_each_is_there_once(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [INFEASIBLE]}, space=SHIFTED)
    table = tidy(objects)
    assert not table.duplicated(KEY).any()
    assert table["value"].notna().all()
    arms = table[(table.setting == FIRST) & table.seed.notna()]
    score = arms[(arms.metric == "rmse") & (arms["shift"] == "gaussian") & (arms.severity == 0.2)]
    assert score.set_index(["arm", "seed"]).value.to_dict() == {
        ("constrained", 0): 3.5,
        ("constrained", 1): 4.5,
        ("unconstrained", 0): 4.0,
        ("unconstrained", 1): 4.0,
    }
    # the tables' numbers are the means of these
    entry = best_entries(load_sweep(objects, "tiny"), {})[0]
    means = arms[arms.metric == "mean_over_gammas"].groupby("arm").value.mean()
    assert means["constrained"] == pytest.approx(entry["constrained"]["mean_over_gammas"])
    blur = arms[(arms["shift"] == "blur") & (arms.metric == "rmse")].groupby("arm").value.mean()
    assert blur["constrained"] == pytest.approx(4.0)


def test_layers_are_numbered_as_everywhere(objects: ObjectStore) -> None:
    space = SPACE.with_base({"constraint.reference": "bound_zero"})
    store_sweep(objects, {FIRST: [FEASIBLE]}, space=space)
    ours = tidy(objects).query("arm == 'constrained' and seed == 0")
    layers = ours[ours.severity.isin([0.15])].groupby("metric").layer.agg(list)
    assert layers["held_out_loss"] == [0, 1, 2, 3]
    assert layers["missing_share"] == layers["multiplier"] == [0, 1, 2, 3]
    assert layers["descent_fraction"] == layers["descent_ratio_q50"] == [1, 2, 3]
    assert sum(layers.index.str.startswith("descent_ratio_q")) == 21
    losses = ours[ours.metric == "held_out_loss"]
    assert losses.value.tolist() == FEASIBLE


def test_references_stand_beside_the_arms_without_a_seed(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    table = tidy(objects)
    wiener = table[(table.arm == "wiener_train") & (table.metric == "rmse")]
    assert wiener.seed.isna().all()
    assert wiener.set_index("severity").value.to_dict() == {0.0: 3.0, 0.2: 5.0, 0.4: 13.0}


def test_a_setting_without_a_pair_shows_its_unconstrained_arms(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [DIVERGED]})
    table = tidy(objects)
    assert set(table.arm[table.seed.notna()]) == {"unconstrained"}
    assert set(table.setting) == {FIRST}


def test_facts_are_of_all_pairs_and_each_pair_has_what_tidy_has_of_the_one_shown(
    objects: ObjectStore,
) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE, INFEASIBLE, DIVERGED], SECOND: [INFEASIBLE]})
    view = load_sweep(objects, "tiny")
    every = set(tidy(objects).metric)
    facts = read_facts(view, ArmStore(objects).record, every).numbers
    assert {fact[:2] for fact in facts} == {(FIRST, 0), (FIRST, 1), (FIRST, 2), (SECOND, 0)}
    shown = {
        (one.setting.name, one.chosen.shown.number) for one in view.settings if one.chosen.shown
    }
    assert shown == {(FIRST, 0), (SECOND, 0)}
    of_shown = [fact for fact in facts if fact[:2] in shown]
    assert of_shown == [fact for one in view.settings for fact in shown_facts(one)]
    other = [fact for fact in facts if fact[:2] == (FIRST, 1) and fact.arm == "constrained"]
    losses = [f.value for f in other if f.metric == "held_out_loss" and f.seed == 1]
    assert losses == INFEASIBLE
    second = replace(view, settings=view.settings[1:])
    few = read_facts(second, ArmStore(objects).record, ["multiplier"])
    assert {(fact.setting, fact.metric) for fact in few.numbers} == {(SECOND, "multiplier")}
    assert [row["seed"] for row in few.proposals] == [0, 1]


def test_every_proposal_is_there_on_every_seed_whatever_became_of_it(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [INFEASIBLE, FEASIBLE, DIVERGED], SECOND: [FEASIBLE]})
    table = proposals(objects)
    assert table.groupby("setting").size().to_dict() == {FIRST: 6, SECOND: 2}
    first = table[(table.setting == FIRST) & (table.seed == 1)].set_index("proposal")
    assert first.alpha.to_dict() == {k: point(k)["constraint.alpha"] for k in range(3)}
    assert first.outcome.to_dict() == {0: "infeasible", 1: "feasible", 2: "diverged"}
    assert first.winner.to_dict() == {0: False, 1: True, 2: False}
    assert first.constrained_mean_rmse[:2].tolist() == pytest.approx([31 / 6, 31 / 6])
    assert first.gain_mean_rmse[1] == pytest.approx(-0.5)
    assert pandas.isna(first.constrained_mean_rmse[2])
    assert "the loss is nan" in first.reason[2]
    assert first.worst_missing_share[0] == pytest.approx(1.0)
    assert first.unconstrained_mean_rmse[2] == pytest.approx(14 / 3)


def test_the_export_holds_both_and_score_against_alpha_is_one_line(
    objects: ObjectStore, tmp_path: Path
) -> None:
    store_sweep(objects, {FIRST: [INFEASIBLE, FEASIBLE], SECOND: [FEASIBLE]})
    view = load_sweep(objects, "tiny")
    export(view, {}, tmp_path / "out", read=ArmStore(objects).record)
    table = pandas.read_csv(tmp_path / "out/tables/proposals.csv")
    curve = table.groupby(["setting", "alpha"]).constrained_mean_rmse.mean()
    assert curve[FIRST].index.tolist() == pytest.approx([0.2, 0.2001])
    text = (tmp_path / "out/tables/tidy.csv").read_text()
    assert pandas.read_csv(io.StringIO(text)).columns.tolist() == list(Fact._fields)
    for name in ("proposals", "tidy"):
        found = pandas.read_csv(tmp_path / f"out/tables/{name}.csv")
        empty = set(found.columns[found.isna().all()])
        assert empty <= {"reason"}, f"{name}.csv"


def test_the_lines_of_the_page_plot_the_means_over_seeds(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [INFEASIBLE]})
    view = load_sweep(objects, "tiny")
    export(view, {}, tmp_path / "results", read=ArmStore(objects).record)
    page = (Path(__file__).parents[3] / "docs/results.md").read_text(encoding="utf-8")
    (lines,) = (block for block in page.split("```") if "read_csv" in block)
    monkeypatch.chdir(tmp_path)
    exec(lines.removeprefix("python"), {})
    curves = [{line.get_label(): line for line in p.gca().lines} for p in drawn()]
    ours = f"({FIRST}, constrained)"
    gammas, scores = curves[0][ours].get_data()
    assert (list(gammas), list(scores)) == ([0.0, 0.2, 0.4], [1.0, 4.0, 9.0])
    layers, losses = curves[1][ours].get_data()
    assert (list(layers), list(losses)) == ([0, 1, 2, 3], pytest.approx(FEASIBLE))
    assert [len(found) for found in curves] == [4, 4]  # both arms of both settings


def drawn() -> list[Any]:
    """Every figure that is open; closed afterwards."""
    from matplotlib import pyplot

    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    pyplot.close("all")
    return figures
