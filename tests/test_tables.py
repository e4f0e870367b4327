"""The exported tables: what they mark, how they are escaped, and that they are well formed."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep import tables, views
from sweep.tables import Table
from tests.sweeps import DIVERGED, FEASIBLE, INFEASIBLE, SPACE, USELESS, store_sweep
from trainables.object_store import ObjectStore

FIRST, SECOND = (s.name for s in SPACE.settings)


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path)


def results(objects: ObjectStore) -> Table:
    return tables.results_table(SPACE, views.best(views.load_sweep(objects, "tiny"), {}))


def masked(text: str) -> str:
    """Without signatures, which every new field of RunConfig changes."""
    return re.sub(r"\b[0-9a-f]{16}\b", "<signature>", text)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_results_table_of_a_mixed_sweep_is_as_reviewed(
    objects: ObjectStore, golden: Callable[[str, str], None]
) -> None:
    store_sweep(objects, {FIRST: [INFEASIBLE, FEASIBLE, USELESS], SECOND: [INFEASIBLE, DIVERGED]})
    table = results(objects)
    golden("table_results.csv", masked(tables.to_csv(table)))
    golden("table_results.md", tables.to_markdown(table))
    golden("table_results.tex", tables.to_latex(table))


def test_the_hyperparameters_table_is_as_reviewed(
    objects: ObjectStore, golden: Callable[[str, str], None]
) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [INFEASIBLE]})
    entries = views.best(views.load_sweep(objects, "tiny"), {})
    table = tables.hyperparameters_table(SPACE, entries)
    golden("table_hyperparameters.csv", tables.to_csv(table))
    golden("table_hyperparameters.md", tables.to_markdown(table))
    golden("table_hyperparameters.tex", tables.to_latex(table))


def test_there_is_a_row_per_setting_whatever_became_of_it(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [DIVERGED]})
    first, second = rows(tables.to_csv(results(objects)))
    assert (first["setting"], second["setting"]) == (FIRST, SECOND)
    assert first["winner"] == "False"
    assert "diverged" in first["why"]
    assert first["constrained_mean_rmse"] == ""
    assert second["why"] == "no proposal has finished"


def test_what_is_infeasible_is_marked_in_every_format(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [INFEASIBLE]})
    table = results(objects)
    assert rows(tables.to_csv(table))[0]["constrained_feasible"] == "False"
    for text in (tables.to_markdown(table), tables.to_latex(table)):
        assert "1.00 infeasible (layer 2)" in text
        assert "closest, no winner" in text


def test_differences_are_labelled_and_nothing_is_bold_or_starred(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    table = results(objects)
    assert "difference_mean_rmse_selection_biased" in rows(tables.to_csv(table))[0]
    assert "difference (selection-biased)" in tables.to_markdown(table)
    assert "**" not in tables.to_markdown(table)
    assert r"\textbf" not in tables.to_latex(table)
    assert "*" not in tables.to_latex(table)


def test_csv_keeps_full_precision(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]}, objectives={(FIRST, 0): 0.1 + 0.2})
    entry = views.best(views.load_sweep(objects, "tiny"), {})[0]
    row = rows(tables.to_csv(results(objects)))[0]
    assert float(row["constrained_objective"]) == entry["constrained"]["objective"]


def test_hyperparameters_are_plain_values(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    entries = views.best(views.load_sweep(objects, "tiny"), {})
    row = rows(tables.to_csv(tables.hyperparameters_table(SPACE, entries)))[0]
    assert float(row["alpha"]) == 0.2
    assert float(row["dual_lr"]) == 0.05
    assert float(row["resilience"]) == 0.0
    assert (row["reference"], row["reference_unit"]) == ("bound_first", "constant")
    assert float(row["reference_loss_absolute"]) == 1.0
    assert row["form"] == "Lagrangian"
    assert row["search_seeds"] == "0 1"


def test_detached_settings_are_named_as_that(objects: ObjectStore) -> None:
    space = SPACE.with_base({"constraint.grad_through_previous": False})
    store_sweep(objects, {FIRST: [FEASIBLE]}, space=space)
    entries = views.best(views.load_sweep(objects, "tiny"), {})
    assert rows(tables.to_csv(tables.results_table(space, entries)))[0]["form"] == "detached"


def test_latex_is_balanced_and_escaped() -> None:
    nasty = r"50% & $x_1 #2 {a} ~ ^ \ <b> | " + '"'
    text = tables.to_latex(Table("t", nasty, [], [("a_b", [nasty]), ("n", ["-1.5"])], [nasty]))
    body = re.sub(r"\\[\\&%$#_{}]|\\text\w+\{\}", "", text)  # what escaping wrote
    assert body.count("{") == body.count("}")
    assert not set('~^|#_"<>') & set(body.replace("$-1.5$", ""))
    assert "$-1.5$" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    for line in text.splitlines():
        if line.endswith(r"\\"):
            assert len(re.findall(r"(?<!\\)&", line)) == 1  # as many cells as columns


def test_markdown_rows_have_as_many_cells_as_the_header(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [INFEASIBLE]})
    lines = tables.to_markdown(results(objects)).split("\n\n")[0].splitlines()
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
