"""A confirmation in the paper's arrangement: numbers, intervals, bold type."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from sweep.confirmation.arms import read_arms
from sweep.confirmation.comparisons import summarize_confirmation
from sweep.confirmation.paper_tables import paper_confirmed_table, trained_arms
from sweep.confirmation.tables import confirmed_table
from sweep.render.csv import to_csv
from sweep.render.latex import to_latex
from sweep.render.markdown import to_markdown
from sweep.render.table import Table
from sweep.results.tables.paper_hyperparameters import paper_hyperparameters_table
from sweep.study.definition import Definition
from tests.support import confirmations as hand
from tests.support.paper_sweeps import CONFIRMED, PED
from tests.support.records import finished
from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, PLAIN, SECOND, SPACE
from tests.support.training.text_records import TEXT
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def made(
    objects: ObjectStore, score_of: Any, **options: Any
) -> tuple[Definition, dict[str, Any], list[Table]]:
    hand.searched(objects, space=CONFIRMED)
    plan, definition = hand.stored(objects)
    hand.trained(objects, definition, score_of, **options)
    entry = summarize_confirmation(objects, definition, plan)
    trained = trained_arms(read_arms(ArmStore(objects).record, definition, plan), entry)
    space = definition.space
    return definition, entry, [
        paper_confirmed_table(space, entry, beside_paper=True),
        paper_hyperparameters_table(space, trained, beside_paper=True),
    ]  # fmt: skip


def of_any_plan(text: str) -> str:
    """Without the digest of the plan, which every version of the code changes."""
    return re.sub(r"Plan [0-9a-f]{12}", "Plan <digest>", text)


def of_any_machine(text: str) -> str:
    """Floats to 12 digits: the last ones depend on the processor."""
    return re.sub(r"-?\d+\.\d{9,}", lambda found: f"{float(found[0]):.12g}", text)


def rows(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(table))))


def first_better(setting: str, kind: str, seed: int) -> float:
    """RMSE: the constrained arm is about 1 better in the first setting, and alike in the second."""
    own = 0.01 * ((7 * seed + 3 * (setting == SECOND)) % 11 - 5)
    gain = 1.0 * (setting == FIRST) + own
    return 9.0 + 0.1 * (seed % 3) - (gain if kind == "constrained" else 0.0)


def test_the_tables_are_as_reviewed(
    objects: ObjectStore, golden: Callable[[str, str], None]
) -> None:
    _, entry, tables = made(objects, first_better)
    for table in (confirmed_table(entry), *tables):
        name = f"table_confirmed_{table.name}"
        golden(f"{name}.csv", of_any_machine(to_csv(table)))
        golden(f"{name}.md", of_any_plan(to_markdown(table)))
        golden(f"{name}.tex", of_any_plan(to_latex(table, "tiny.confirmation")))


def test_numbers_and_intervals_are_those_of_the_comparison(objects: ObjectStore) -> None:
    _, entry, (table, _) = made(objects, first_better)
    found = {(row["train_gamma"], row["numbers"]): row for row in rows(table)}
    assert entry.measure == "unseen_mean"
    for one, gamma in zip(entry.settings, ("0.15", "0.1"), strict=True):
        row, contrast = found[gamma, "unseen"], one.contrasts["unconstrained"]
        for kind in ("constrained", "unconstrained"):
            seeds = range(1000, 1010)
            mean = fmean(first_better(one.setting, kind, seed) for seed in seeds)
            assert float(row[f"{PED}_{kind}"]) == pytest.approx(mean)
        expected = [contrast.mean, contrast.low, contrast.high]
        assert [float(row[f"{PED}_{name}"]) for name in ("gain", "low", "high")] == expected
        assert row[f"{PED}_outcome"] == contrast.marked
        assert row[f"{PED}_seeds"] == "10"
        beside = found[gamma, "all"]  # not tested: a mean, and no interval
        assert float(beside[f"{PED}_gain"]) == pytest.approx(contrast.mean)  # alike by hand
        assert (beside[f"{PED}_low"], beside[f"{PED}_outcome"]) == ("", "not tested")


def test_bold_is_what_the_test_declared_and_nothing_else(objects: ObjectStore) -> None:
    _, entry, (table, hyperparameters) = made(objects, first_better)
    marked = [one.contrasts["unconstrained"].marked for one in entry.settings]
    assert marked == ["better", "undecided"]
    text = to_markdown(table)
    gain = entry.settings[0].contrasts["unconstrained"].mean
    assert [cell for cell in text.split(" | ") if cell.startswith("**")] == [f"**{gain:+.3f}**"]
    assert to_latex(table, "t").count(r"\mathbf") == 1
    assert "**" not in to_markdown(hyperparameters)


def test_texts_have_the_area_that_the_paper_has(objects: ObjectStore) -> None:
    """Accuracy falls with noise: the area is no multiple of the mean over the gammas."""
    fields = {"model.name": "text_ut", "model.checkpoint": "distilbert-base-uncased"}
    base = TEXT.with_fields({**fields, "data.fingerprint": "f00d"})
    hand.searched(objects, space=replace(SPACE, base=base))
    plan, definition = hand.stored(objects)
    gammas = TEXT.test_gammas

    def accuracies(kind: str, seed: int) -> dict[str, float]:
        more = 0.01 * (kind == "constrained") + 0.001 * (seed % 3)
        return {f"{g:.2f}": 0.9 - 0.3 * g**2 + more * g for g in gammas}

    own = {"split": "test", "references": {"constant": {f"{g:.2f}": 0.5 for g in gammas}}}
    for _, kind, config in hand.every_arm(definition):
        losses = list(PLAIN if kind == "unconstrained" else FEASIBLE)
        record = finished(config, losses, scores=accuracies(kind, config.seed), **own)
        ArmStore(objects).put_record(record)
    entry = summarize_confirmation(objects, definition, plan)
    table = paper_confirmed_table(definition.space, entry, beside_paper=True)
    lines = {row["numbers"]: row for row in table.rows if row["train_gamma"] == 0.15}
    assert {"unseen", "area"} <= lines.keys()
    assert "all" not in lines
    for kind in ("constrained", "unconstrained"):
        areas = [np.trapezoid(list(accuracies(kind, s).values()), gammas) for s in plan.seeds]
        assert lines["area"][f"imdb_{kind}"] == pytest.approx(fmean(areas))
    assert lines["area"]["measure"] == "ood_auc"
    assert lines["area"]["imdb_gain"] == pytest.approx(
        lines["area"]["imdb_constrained"] - lines["area"]["imdb_unconstrained"]
    )
    assert any("area: area over all test gammas, as the paper has it" in n for n in table.notes)
    (row,) = (r for r in confirmed_table(entry).rows if r["setting"] == FIRST)
    assert row["ood_auc_gain"] == pytest.approx(lines["area"]["imdb_gain"])


@pytest.mark.parametrize(
    ("went", "mark", "legend"),
    [
        ({"losses": FEASIBLE}, "", ""),
        ({"losses": INFEASIBLE}, "✗", "too few networks are certified feasible"),
        ({"plain": FEASIBLE}, "°", "not binding"),
    ],
)
def test_feasibility_is_marked_as_certified_on_the_test_split(
    objects: ObjectStore, went: dict[str, Any], mark: str, legend: str
) -> None:
    _, _, (table, _) = made(objects, first_better, **went)
    ours = [row for row in rows(table) if row["numbers"] != "paper"]
    assert {row[f"{PED}_marks"] for row in ours} == {mark}
    assert any(legend in note for note in table.notes)


def test_while_it_trains_what_is_missing_is_a_dash(objects: ObjectStore) -> None:
    _, _, (table, hyperparameters) = made(objects, lambda *of: None)
    text = to_markdown(table)
    assert "| ut (distance) | 3 | 0.15 | unseen | — | — |" in text
    assert "**" not in text
    assert "| 0.20 | — | 0.05 | 0 |" in to_markdown(hyperparameters)  # planned; f0 not measured yet
