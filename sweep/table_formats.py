"""PURE: one table as CSV, Markdown and LaTeX.

CSV has every column in full precision; Markdown and LaTeX have the short form and the notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

Json = Any
Row = dict[str, Json]  # a plain value by column, None where there is none
NOTHING = "—"


def number(value: float | None, form: str) -> str:
    """A cell of the short form."""
    return NOTHING if value is None else format(value, form)


@dataclass(frozen=True)
class Table:
    """A table; ``shown`` is its short form, (header, one text per line), with ``notes`` below."""

    name: str
    caption: str
    rows: list[Row]
    shown: list[tuple[str, list[str]]]
    notes: list[str]
    texts: int = 2  # so many columns of the short form hold words, the others numbers


def frame(table: Table) -> pandas.DataFrame:
    """All columns, as a data frame of plain objects."""
    import pandas

    return pandas.DataFrame(table.rows, dtype=object)


def to_csv(table: Table) -> str:
    """Every column in full precision; an empty cell is a value that is not there."""
    return frame(table).to_csv(index=False, lineterminator="\n")


def to_markdown(table: Table) -> str:
    r"""The short form as a GitHub table, with its notes.

    >>> print(to_markdown(Table("t", "Two", [], [("a|b", ["x*"]), ("n", ["1"])], ["a note."])))
    | a\|b | n |
    |---|---|
    | x\* | 1 |
    <BLANKLINE>
    * a note.
    <BLANKLINE>
    """
    lines = [
        _markdown_line([header for header, _ in table.shown]),
        "|" + "---|" * len(table.shown),
        *(_markdown_line(cells) for cells in _cells(table)),
    ]
    notes = [f"* {_markdown(note)}" for note in table.notes]
    return "\n".join([*lines, "", *notes, ""])


def to_latex(table: Table) -> str:
    r"""The short form as a LaTeX table; needs the packages booktabs and graphicx.

    >>> table = Table("t", "T", [], [("s", ["a_b"]), ("d", ["-0.5"])], [])
    >>> print(to_latex(table).splitlines()[9])
    a\_b & $-0.5$ \\
    """
    texts = min(table.texts, len(table.shown))
    header = " & ".join(_latex(header) for header, _ in table.shown)
    body = [" & ".join(_latex_cell(cell) for cell in cells) + r" \\" for cells in _cells(table)]
    notes = [rf"\par\footnotesize {_latex(note)}" for note in table.notes]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(table.caption)}}}",
            rf"\label{{tab:{table.name}}}",
            r"\resizebox{\linewidth}{!}{%",
            rf"\begin{{tabular}}{{{'l' * texts}{'r' * (len(table.shown) - texts)}}}",
            r"\toprule",
            rf"{header} \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            *notes,
            r"\end{table}",
            "",
        ]
    )


def _cells(table: Table) -> list[tuple[str, ...]]:
    return list(zip(*(cells for _, cells in table.shown), strict=True))


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_markdown, cells)) + " |"


def _markdown(text: str) -> str:
    for character in "\\|*<":
        text = text.replace(character, "\\" + character)
    return text.replace("\n", " ")


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "—": "---",
    "†": r"\textsuperscript{\textdagger}",
    "\n": " ",
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_cell(text: str) -> str:
    """A number in math mode, so that its minus is one."""
    try:
        float(text)
    except ValueError:
        return _latex(text)
    return f"${text}$"
