"""The exported tables: what they mark, how they are escaped, and that they are well formed."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from search_spaces.space import SearchSpace, Setting
from sweep.render.csv import to_csv
from sweep.render.latex import to_latex
from sweep.render.markdown import to_markdown
from sweep.render.table import Table
from sweep.results.best import best_entries, best_summaries
from sweep.results.export import export
from sweep.results.summary import SettingSummary
from sweep.results.sweep_view import load_sweep
from sweep.results.tables import hyperparameters as module
from sweep.results.tables.anytime import anytime_table, scores_by_layer
from sweep.results.tables.frontier import frontier_table
from sweep.results.tables.hyperparameters import hyperparameters_table
from sweep.results.tables.layers import layers_table
from sweep.results.tables.results import results_table
from sweep.results.tables.shifts import shifts_table
from tests.support.records import evaluation
from tests.support.sweeps import (
    DIVERGED,
    FEASIBLE,
    FIRST,
    INFEASIBLE,
    SECOND,
    SPACE,
    USELESS,
    store_sweep,
)
from trainables.config.arm import ConstraintConfig
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def results(objects: ObjectStore, space: SearchSpace = SPACE) -> Table:
    return results_table(space, best_summaries(load_sweep(objects, "tiny"), {}))


def shifts(objects: ObjectStore, space: SearchSpace = SPACE) -> Table:
    return shifts_table(space, best_summaries(load_sweep(objects, "tiny"), {}))


SHIFTED = SPACE.with_base({"shifts": ["blur", "frame_drop"]})
# the unconstrained arms share one dictionary
PAPER = SPACE.with_base({"model.name": "dust", "model.variant": "paper"})


def masked(text: str) -> str:
    """Without signatures, which every new field of ArmConfig changes; floats to 12 digits.

    The last digits of a product of matrices depend on the processor.
    """
    text = re.sub(r"(?<![\w.])[0-9a-f]{16}\b", "<signature>", text)
    return re.sub(r"-?\d+\.\d{9,}", lambda found: f"{float(found[0]):.12g}", text)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_results_table_of_a_mixed_sweep_is_as_reviewed(
    objects: ObjectStore, golden: Callable[[str, str], None]
) -> None:
    store_sweep(objects, {FIRST: [INFEASIBLE, FEASIBLE, USELESS], SECOND: [INFEASIBLE, DIVERGED]})
    table = results(objects)
    golden("table_results.csv", masked(to_csv(table)))
    golden("table_results.md", to_markdown(table))
    golden("table_results.tex", to_latex(table, "tiny"))


def test_the_hyperparameters_table_is_as_reviewed(
    objects: ObjectStore, golden: Callable[[str, str], None]
) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [INFEASIBLE]})
    entries = best_summaries(load_sweep(objects, "tiny"), {})
    table = hyperparameters_table(SPACE, entries)
    golden("table_hyperparameters.csv", to_csv(table))
    golden("table_hyperparameters.md", to_markdown(table))
    golden("table_hyperparameters.tex", to_latex(table, "tiny"))


def test_the_layers_and_the_frontier_table_are_as_reviewed(
    objects: ObjectStore, golden: Callable[[str, str], None]
) -> None:
    store_sweep(objects, {FIRST: [INFEASIBLE, FEASIBLE, USELESS], SECOND: [INFEASIBLE, DIVERGED]})
    entries = best_summaries(load_sweep(objects, "tiny"), {})
    for table in (layers_table(SPACE, entries), frontier_table(entries)):
        golden(f"table_{table.name}.csv", masked(to_csv(table)))
        golden(f"table_{table.name}.md", to_markdown(table))
        golden(f"table_{table.name}.tex", to_latex(table, "tiny"))


def test_the_anytime_table_is_as_reviewed(
    objects: ObjectStore, golden: Callable[[str, str], None]
) -> None:
    store_sweep(objects, {FIRST: [INFEASIBLE, FEASIBLE], SECOND: [INFEASIBLE, DIVERGED]})
    table = anytime_table(load_sweep(objects, "tiny"))
    golden("table_anytime.csv", to_csv(table))
    golden("table_anytime.md", to_markdown(table))
    golden("table_anytime.tex", to_latex(table, "tiny"))


def test_scores_by_layer_follow_from_losses_as_their_root() -> None:
    """The naive sum: at each gamma RMSE_L sqrt(f_l / f_L); accuracies are as recorded."""
    found = evaluation(
        [0.8, 0.4, 0.2],
        scores={"0.00": 4.0, "0.40": 8.0},
        layer_losses_by_gamma={"0.00": [1.6, 0.4, 0.1], "0.40": [1.6, 1.6, 0.4]},
    )
    assert scores_by_layer(found) == pytest.approx([(16 + 16) / 2, (8 + 16) / 2, 6.0])
    uneven = replace(found, scores={"0.00": 0.9, "0.40": 0.8})  # no root of these losses
    assert scores_by_layer(uneven) == []
    recorded = replace(found, layer_scores_by_gamma={"0.00": [0.2, 0.4], "0.40": [0.4, 0.8]})
    assert scores_by_layer(recorded) == pytest.approx([0.3, 0.6])
    assert scores_by_layer(replace(found, layer_losses_by_gamma={"0.00": [1.0, 0.0]})) == []


def test_what_was_not_measured_leaves_a_gap_and_not_an_error(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [FEASIBLE]}, space=SHIFTED)
    entries = [
        replace(one, references={n: r for n, r in one.references.items() if n != "wiener_train"})
        for one in best_summaries(load_sweep(objects, "tiny"), {})
    ]  # as records of before it was measured
    table = shifts_table(SHIFTED, entries)
    assert {tuple(texts) for name, texts in table.shown if name == "Wiener (train)"} == {
        tuple("—" for _ in table.shown[0][1])
    }


def test_the_shifts_table_is_as_reviewed(
    objects: ObjectStore, golden: Callable[[str, str], None]
) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [DIVERGED]}, space=SHIFTED)
    table = shifts(objects, SHIFTED)
    golden("table_shifts.csv", to_csv(table))
    golden("table_shifts.md", to_markdown(table))
    golden("table_shifts.tex", to_latex(table, "tiny"))


def test_seen_and_unseen_are_means_over_gammas_of_their_own(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]}, space=SHIFTED)
    row = rows(to_csv(results(objects, SHIFTED)))[0]
    # train_gamma 0.15; scores 1, 4, 9 at gamma 0, 0.2, 0.4, and the identity's 0, 8, 16
    assert (row["seen_gammas"], row["unseen_gammas"]) == ("0.0 0.2", "0.4")
    for arm in ("constrained", "unconstrained"):
        assert float(row[f"{arm}_seen_mean_rmse"]) == (1 + 4) / 2
        assert float(row[f"{arm}_unseen_mean_rmse"]) == 9
    assert float(row["identity_seen_mean_rmse"]) == (0 + 8) / 2
    assert float(row["identity_unseen_mean_rmse"]) == 16
    # 10, 20 and 30 times the last layer's loss: 0.2, 0.25, and the references' 0.5 and 1
    for column, expected in {
        "constrained_unseen_blur_mean_rmse": 4.0,
        "unconstrained_unseen_blur_mean_rmse": 5.0,
        "gain_unseen_blur_mean_rmse": 1.0,
        "identity_unseen_frame_drop_mean_rmse": 10.0,
        "constant_unseen_frame_drop_mean_rmse": 20.0,
    }.items():
        assert float(row[column]) == pytest.approx(expected)
    assert not [column for column in row if "brightness" in column]  # not asked for


def test_nothing_seen_is_in_an_unseen_block_nor_the_other_way_round(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [FEASIBLE]}, space=SHIFTED)
    for row in rows(to_csv(shifts(objects, SHIFTED))):
        gaussian, severity = row["shift"] == "gaussian", float(row["severity"])
        # the second setting trains at 0.2 and has no gamma near: selection looks at 0.4
        last = 0.25 if row["setting"] == FIRST else 0.4
        assert row["block"] == ("seen" if gaussian and severity <= last else "unseen")
    # nothing unseen is left of the gammas: no number, and no block
    second = rows(to_csv(results(objects, SHIFTED)))[1]
    assert (second["unseen_gammas"], second["constrained_unseen_mean_rmse"]) == ("", "")


def test_every_condition_has_a_row_whatever_became_of_its_setting(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [DIVERGED]}, space=SHIFTED)
    found = rows(to_csv(shifts(objects, SHIFTED)))
    assert [r["setting"] for r in found] == [FIRST] * 9 + [SECOND] * 9
    assert {r["constrained_rmse"] for r in found} == {""}


def test_a_score_that_is_missing_leaves_its_mean_out(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]}, space=SHIFTED)
    plain = best_entries(load_sweep(objects, "tiny"), {})[0]
    plain["constrained"]["shifts"]["blur"]["2.0"] = None
    entry = SettingSummary.from_json(plain)
    block = next(
        line
        for line in to_markdown(shifts_table(SHIFTED, [entry])).splitlines()
        if "| blur |" in line
    )
    assert block.split(" | ")[5:8] == ["—", "5.000", "—"]  # constrained, unconstrained, gain
    row = results_table(SHIFTED, [entry]).rows[0]
    assert row["constrained_unseen_blur_mean_rmse"] is None


def test_unmatched_capacity_is_marked_in_every_table_and_format(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [INFEASIBLE]}, space=PAPER)
    entries = best_summaries(load_sweep(objects, "tiny"), {})
    for make in (results_table, shifts_table, hyperparameters_table):
        table = make(PAPER, entries)
        assert {row["matched_capacity"] for row in rows(to_csv(table))} == {"False"}
        lines = to_markdown(table).splitlines()
        marked = [line for line in lines if line.startswith("| shallow")]
        assert marked
        assert all("† | " in line for line in marked)
        assert any(line.startswith("* † unmatched capacity") for line in lines)
        # once a setting in each panel, and in the note
        text = to_latex(table, "tiny")
        panels = text.count(r"\begin{tabular*}")
        assert text.count(r"\textsuperscript{\textdagger}") == 2 * panels + 1


def test_matched_capacity_carries_no_mark(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    for table in (results(objects), shifts(objects)):
        assert {row["matched_capacity"] for row in rows(to_csv(table))} == {"True"}
        assert "†" not in to_markdown(table)
        assert "textdagger" not in to_latex(table, "tiny")


def test_there_is_a_row_per_setting_whatever_became_of_it(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [DIVERGED]})
    first, second = rows(to_csv(results(objects)))
    assert (first["setting"], second["setting"]) == (FIRST, SECOND)
    assert first["winner"] == "False"
    assert "diverged" in first["why"]
    assert first["constrained_mean_rmse"] == ""
    assert second["why"] == "no proposal has finished"
    entries = best_summaries(load_sweep(objects, "tiny"), {})
    notes = hyperparameters_table(SPACE, entries).notes
    assert {row["winner"] for row in rows(to_csv(results(objects)))} == {"False"}
    assert not [note for note in (*notes, *results(objects).notes) if note.endswith("..")]


def test_the_filter_that_knows_the_noise_stands_beside_the_one_that_does_not(
    objects: ObjectStore,
) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    table = results(objects)
    row = rows(to_csv(table))[0]
    assert float(row["wiener_mean_rmse"]) == pytest.approx((0 + 5 + 8) / 3)
    assert float(row["wiener_train_mean_rmse"]) == pytest.approx((3 + 5 + 13) / 3)
    text = to_markdown(table)
    assert "| Wiener (train) | 7.000 | 2.600 | 4.000 | 13.000 |" in text
    assert "fitted anew at every test gamma, so it knows the noise" in text


def test_what_is_infeasible_is_marked_in_every_format(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [INFEASIBLE]})
    table = results(objects)
    assert rows(to_csv(table))[0]["constrained_feasible"] == "False"
    for text in (to_markdown(table), to_latex(table, "tiny")):
        assert "no, yes" in text
        assert "of layer 2" in text
        assert "closest, no winner" in text


def test_gains_are_labelled_and_nothing_is_bold_or_starred(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    table = results(objects)
    assert "gain_mean_rmse" in rows(to_csv(table))[0]
    assert "gain (selection-biased)" in to_markdown(table)
    assert "**" not in to_markdown(table)
    assert r"\textbf" not in to_latex(table, "tiny")
    assert "*" not in to_latex(table, "tiny").replace("tabular*", "")


def test_csv_keeps_full_precision(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]}, objectives={(FIRST, 0): 0.1 + 0.2})
    entry = best_summaries(load_sweep(objects, "tiny"), {})[0]
    row = rows(to_csv(results(objects)))[0]
    assert float(row["constrained_objective"]) == entry.arm("constrained").objective


def test_hyperparameters_are_plain_values(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    entries = best_summaries(load_sweep(objects, "tiny"), {})
    row = rows(to_csv(hyperparameters_table(SPACE, entries)))[0]
    assert float(row["alpha"]) == 0.2
    assert float(row["dual_lr"]) == 0.05
    assert float(row["resilience"]) == 0.0
    assert (row["reference"], row["reference_unit"]) == ("bound_first", "constant")
    assert float(row["reference_loss_absolute"]) == 1.0
    assert row["form"] == "Lagrangian"
    assert row["search_seeds"] == "0 1"


def test_what_has_no_column_and_is_not_at_its_default_is_a_note(objects: ObjectStore) -> None:
    """A dual_lr says nothing beside another signal; every field is a column or a note."""
    values = {"dual_signal": "violation", "signal_clip": None, "dual_every": 2}
    space = SPACE.with_base(
        {f"constraint.{name}": value for name, value in values.items()} | {"weight_ema": 0.9}
    )
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [FEASIBLE]}, space=space)
    entries = best_summaries(load_sweep(objects, "tiny"), {})
    table = hyperparameters_table(space, entries)
    also = "also dual_signal violation, signal_clip none, dual_every 2, weight_ema 0.9."
    assert f"{FIRST}, {SECOND}: {also}" in table.notes
    shown = {*module._TRAINED, *(module.column_of(n).replace("_", " ") for n in module._ALSO)}
    other_words = {
        "grad_through_previous": "form", "dual_optimizer": "dual optimiser",
        "reference_unit": "unit", "warmup_steps": "warm-up", "reference_loss": "reference_loss",
    }  # fmt: skip
    for field in vars(ConstraintConfig()):
        assert other_words.get(field, field.replace("_", " ")) in shown


def test_a_setting_of_fewer_proposals_says_how_many(objects: ObjectStore) -> None:
    first, second = SPACE.settings
    space = replace(SPACE, settings=(first, replace(second, n_proposals=1)))
    store_sweep(objects, {FIRST: [FEASIBLE]}, space=space)
    entries = best_summaries(load_sweep(objects, "tiny"), {})
    table = hyperparameters_table(space, entries)
    assert [row["n_proposals"] for row in table.rows] == [3, 1]
    assert table.notes[0].startswith("searched: alpha; up to 3 proposals a setting by random")


def test_detached_settings_are_named_as_that(objects: ObjectStore) -> None:
    space = SPACE.with_base({"constraint.grad_through_previous": False})
    store_sweep(objects, {FIRST: [FEASIBLE]}, space=space)
    entries = best_summaries(load_sweep(objects, "tiny"), {})
    assert rows(to_csv(results_table(space, entries)))[0]["form"] == "detached"


@pytest.mark.parametrize("detached", [False, True])
def test_the_ratio_form_is_never_called_a_lagrangian(objects: ObjectStore, detached: bool) -> None:
    space = SPACE.with_base(
        {"constraint.form": "ratio", "constraint.grad_through_previous": not detached}
    )
    store_sweep(objects, {FIRST: [FEASIBLE]}, space=space)
    entries = best_summaries(load_sweep(objects, "tiny"), {})
    hyperparameters = rows(to_csv(hyperparameters_table(space, entries)))[0]
    assert hyperparameters["form"] == ("ratio, detached" if detached else "ratio")
    assert hyperparameters["constraint_form"] == "ratio"
    assert rows(to_csv(results_table(space, entries)))[0]["form"] == hyperparameters["form"]


def test_latex_is_balanced_and_escaped() -> None:
    nasty = r"50% & $x_1 #2 {a} ~ ^ \ <b> | " + '"'
    shown = [("setting", [nasty]), ("a_b", [nasty]), ("n", ["-1.5"])]
    text = to_latex(Table("t", nasty, [], shown, [nasty]), "mine")
    needs, _, text = text.partition("\n")
    assert needs == r"% In the preamble: \usepackage{booktabs}"
    body = re.sub(r"\\[\\&%$#_{}]|\\text\w+\{\}", "", text)  # what escaping wrote
    assert body.count("{") == body.count("}")
    assert not set('~^|#_"<>') & set(body.replace("$-1.5$", ""))
    assert "$-1.5$" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    for line in text.splitlines():
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert len(re.findall(r"(?<!\\)&", line)) == 1  # as many cells as columns


def empty_columns(text: str) -> set[str]:
    """Columns of CSV without a value in any row; arms written by hand have no times."""
    found = rows(text)
    empty = {column for column in found[0] if not any(row[column] for row in found)}
    return {c for c in empty if not c.endswith(("_seconds", "_memory_mb"))}


ALL_SEEN = replace(SPACE, settings=(Setting(FIRST, {"train_gamma": 0.4}),))


@pytest.mark.parametrize(
    "space",
    [SHIFTED, replace(SHIFTED, search_seeds=(0,)), ALL_SEEN],
    ids=["two seeds", "one seed", "nothing unseen"],
)
def test_no_column_is_empty_for_its_task(objects: ObjectStore, space: SearchSpace) -> None:
    """What says how a sweep went stays, also where no setting lost: scripts look for its name."""
    store_sweep(objects, {s.name: [FEASIBLE, FEASIBLE] for s in space.settings}, space=space)
    view = load_sweep(objects, "tiny")
    entries = best_summaries(view, {})
    for make in (
        results_table, shifts_table, layers_table, hyperparameters_table,
    ):  # fmt: skip
        assert empty_columns(to_csv(make(space, entries))) <= {"why"}, make.__name__
    assert empty_columns(to_csv(frontier_table(entries))) == set()
    assert "why" in rows(to_csv(results_table(space, entries)))[0]
    export(view, {}, Path(objects.root, "out"), read=ArmStore(objects).record)
    for name, went in (("proposals", {"reason"}), ("tidy", set())):
        text = Path(objects.root, "out", "tables", f"{name}.csv").read_text()
        assert empty_columns(text) == went, name


def test_columns_stay_while_nothing_has_finished(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    entries = best_summaries(load_sweep(objects, "tiny"), {})
    nothing = [replace(one, constrained=None, unconstrained=None) for one in entries]
    for make in (results_table, hyperparameters_table):
        kept = rows(to_csv(make(SPACE, nothing)))[0].keys()
        assert kept == rows(to_csv(make(SPACE, entries)))[0].keys()


def test_exponents_are_raised_and_labels_name_the_sweep() -> None:
    shown = [("setting", ["one"]), ("dual lr", ["5.17e-05"])]
    text = to_latex(Table("results", "Arms", [], shown, [], texts=1), "mine")
    assert r"$5.17\times10^{-5}$ \\" in text
    assert r"\caption{Arms (sweep mine)}\label{tab:mine-results}" in text
    assert "resizebox" not in text


def test_markdown_rows_have_as_many_cells_as_the_header(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [INFEASIBLE]})
    lines = to_markdown(results(objects)).split("\n\n")[0].splitlines()
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
