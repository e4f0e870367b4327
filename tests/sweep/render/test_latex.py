"""LaTeX of every table: compiled in two columns without an overfull box."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search_spaces.space import Setting
from sweep.confirmation.stages import files_of
from sweep.render.latex import FLOATS, LINES, to_latex
from sweep.render.table import Bold, Table
from sweep.results.best import best_summaries
from sweep.results.export import sweep_tables
from sweep.results.sweep_view import load_sweep
from tests.support import confirmations
from tests.support.paper_sweeps import CONFIRMED, PAPERS, WENT
from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, SECOND, SPACE, store_sweep
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

ARTICLE = r"\documentclass[10pt,twocolumn,letterpaper]{article}"
TEMPLATES = {
    "article": ARTICLE,  # columns of 3.18 in
    "conference": ARTICLE  # of 3.35 in
    + r"\setlength{\textwidth}{7in}\setlength{\columnsep}{0.3in}\setlength{\oddsidemargin}{-.25in}"
    + r"\setlength{\topmargin}{-0.5in}\setlength{\textheight}{9.2in}",
}
needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs LaTeX (pdflatex)")


def compiled(folder: Path, texts: Iterable[str], template: str) -> str:
    """The log of a document with these tables and some words around each."""
    texts = list(texts)
    (needs,) = {text.partition("\n")[0] for text in texts}
    body = "\n\nSome words.\n\n".join(texts)
    preamble = TEMPLATES[template] + needs.partition(": ")[2] + r"\setcounter{totalnumber}{50}"
    document = rf"{preamble}\begin{{document}}{body}\clearpage\end{{document}}"
    (folder / "t.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    return (folder / "t.log").read_text(encoding="latin-1")


def too_wide(log: str) -> list[str]:
    return re.findall(r"Overfull \\hbox.*", log)


LONG = "a_data_set_with_a_name_that_nobody_would_choose-and-a-model-of-that-kind-L3-g0.15-detached"
SHIFTED = SPACE.with_base({"shifts": list(SPACE.base.facts.shifts)})


def made_up(objects: ObjectStore, kind: str) -> list[str]:
    """Every table of a sweep, as an export has it."""
    if kind == "confirmation":
        confirmations.searched(objects, space=CONFIRMED)
        wanted = confirmations.wanted(controls=("penalty",))
        _, definition = confirmations.stored(objects, wanted)
        confirmations.trained(
            objects,
            definition,
            lambda s, k, seed: 9.0 - (k == "constrained") * (1 + 0.01 * (7 * seed % 11)),
        )
        read = ArmStore(objects).record
        files = files_of(objects, definition, read, beside_paper=True)
        return [text for name, text in files.items() if name.endswith(".tex")]
    if kind == "the paper's data":
        store_sweep(objects, WENT, space=PAPERS)
        entries = best_summaries(load_sweep(objects, "tiny"), {})
        return [to_latex(t, "tiny") for t in sweep_tables(PAPERS, entries, beside_paper=True)]
    space, went = SHIFTED, {FIRST: [FEASIBLE], SECOND: [INFEASIBLE]}
    if kind == "a long name":
        space = replace(SHIFTED, settings=(Setting(LONG, {"train_gamma": 0.15}),))
        went = {LONG: [INFEASIBLE]}
    store_sweep(objects, went, space=space)
    entries = best_summaries(load_sweep(objects, "tiny"), {})
    if kind == "40 settings":
        entries = [replace(e, setting=f"{e.setting}-{k}") for k in range(20) for e in entries]
        settings = [
            replace(space.settings[k % 2], name=entry.setting) for k, entry in enumerate(entries)
        ]
        space = replace(space, settings=tuple(settings))
    if kind == "one setting":
        entries = entries[:1]
    name = "a-sweep-whose-name-is-as-long-as-names-of-sweeps-may-be" if "long" in kind else "tiny"
    return [to_latex(table, name) for table in sweep_tables(space, entries, beside_paper=True)]


@pytest.mark.slow
@needs_latex
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize(
    "kind", ["one setting", "40 settings", "a long name", "the paper's data", "confirmation"]
)
def test_every_table_compiles_in_a_column_without_a_line_that_is_too_wide(
    objects: ObjectStore, tmp_path: Path, kind: str, template: str
) -> None:
    texts = made_up(objects, kind)
    assert len(texts) == (3 if kind == "confirmation" else 7)
    log = compiled(tmp_path, texts, template)
    assert too_wide(log) == []
    assert "Float too large" not in log
    assert "resizebox" not in "".join(texts)


def wide(columns: int, lines: int = 3, label: str = "a label", **fields: Any) -> Table:
    shown = [
        ("setting", ["one"] * lines),
        ("arm", [label] * lines),
        *((f"g{k // 2}: column {k}", [f"{k}.125"] * lines) for k in range(columns)),
    ]
    return Table("t", "T", [], shown, ["a note."], **fields)


def tabulars(text: str) -> list[str]:
    return re.findall(r"\\begin\{tabular\*\}.*?\\end\{tabular\*\}", text, flags=re.DOTALL)


@pytest.mark.parametrize("columns", [1, 4, 14])
def test_every_column_stands_in_one_panel_and_groups_are_not_split(columns: int) -> None:
    panels = tabulars(to_latex(wide(columns), "mine"))
    assert (len(panels) > 1) == (columns == 14)
    found = [re.findall(r"\$(\d+)\.125\$", panel) for panel in panels]
    firsts = [list(dict.fromkeys(of)) for of in found]
    assert [n for of in firsts for n in of] == [str(k) for k in range(columns)]
    assert all(int(of[0]) % 2 == 0 for of in firsts)  # a pair begins each panel
    for panel in panels:
        assert panel.count("a label") == 3
        assert panel.count(r"\rlap{one}") == 1


def test_a_group_that_no_panel_holds_is_split_and_keeps_its_header() -> None:
    cells = ["+0.123 to +0.456"]
    shown = [("s", ["one"]), ("arm", ["a label"])]
    shown += [(f"data: interval {k}", cells) for k in range(5)]
    panels = tabulars(to_latex(Table("t", "T", [], shown, []), "mine"))
    assert [panel.count("to $+0.456$") for panel in panels] == [2, 2, 1]
    assert all(panel.count("{data}") == 1 for panel in panels)


@pytest.mark.parametrize("lines", [1, LINES, 300])
def test_every_row_stands_in_one_float_of_a_columns_height(lines: int) -> None:
    table = replace(wide(2, lines=lines), shown=[
        ("setting", [f"s{k // 3}" for k in range(lines)]),
        ("n", [f"{k}.5" for k in range(lines)]),
    ], texts=1)  # fmt: skip
    text = to_latex(table, "mine")
    parts = tabulars(text)
    assert len(parts) == text.count(r"\begin{table}") == text.count(r"\caption")
    assert [n for part in parts for n in re.findall(r"\$(\d+)\.5\$", part)] == [
        str(k) for k in range(lines)
    ]
    assert all(part.count("\n") <= 2 * LINES for part in parts)
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert len(set(labels)) == len(labels)
    assert text.count("A note.") == 1


@needs_latex
@pytest.mark.parametrize("rows", [100, 3000])
def test_floats_are_placed_before_more_wait_than_latex_holds(tmp_path: Path, rows: int) -> None:
    text = to_latex(wide(2, lines=rows), "mine")
    waiting = [part.count(r"\begin{table}") for part in text.split(r"\clearpage")]
    assert (len(waiting) > 1) == (rows == 3000)
    assert all(count == FLOATS for count in waiting[:-1])
    assert 1 <= waiting[-1] <= FLOATS
    if rows == 3000:
        compiled(tmp_path, [text], "article")


@needs_latex
def test_no_float_is_empty_where_one_row_is_taller_than_a_float() -> None:
    text = to_latex(wide(150, lines=2), "mine")
    assert text.count(r"\begin{table}") == 2  # a float a row
    assert all(part.count("a label") > 0 for part in text.split(r"\end{table}")[:-1])


@needs_latex
def test_a_table_that_is_too_wide_is_noticed(tmp_path: Path) -> None:
    """The check itself: a line of fourteen columns beside each other, squeezed by nothing."""
    cells = " & ".join(["12.125"] * 14)
    bad = (
        r"% In the preamble: \usepackage{booktabs}"
        + "\n"
        + (rf"\begin{{table}}\begin{{tabular}}{{{'r' * 14}}}{cells}\end{{tabular}}\end{{table}}")
    )
    assert too_wide(compiled(tmp_path, [bad], "article"))


def test_bold_numbers_and_marks_are_kept_apart() -> None:
    shown = [("s", ["one"] * 3), ("gain", [Bold("-0.25"), "1.5✗", Bold("better")])]
    text = to_latex(Table("t", "T", [], shown, [], texts=1), "mine")
    assert r"$\mathbf{-0.25}$ \\" in text
    assert r"$1.5$\textsuperscript{$\times$} \\" in text
    assert r"\textbf{better} \\" in text
