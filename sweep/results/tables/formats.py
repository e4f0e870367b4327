"""Output formats of one table: CSV, Markdown and LaTeX. Pure.

CSV has every column in full precision; Markdown and LaTeX have the short form and the notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainables.plain import Json

Row = dict[str, Json]  # a plain value by column, None where there is none
NOTHING = "—"
YES_NO: dict[bool | None, str] = {None: NOTHING, True: "yes", False: "no"}


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
    headed: int = 1  # so many of them are a line of their own above their rows in LaTeX


def to_csv(table: Table) -> str:
    """Every column in full precision; an empty cell is a value that is not there."""
    import pandas

    frame = pandas.DataFrame(table.rows, dtype=object)  # of plain objects
    return frame.to_csv(index=False, lineterminator="\n")


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


PACKAGES = "booktabs,longtable"
LINE = 80  # characters of this size in a column of the article class
LONGEST_FLOAT = 40  # lines; a longer table breaks over pages


def to_latex(table: Table, sweep: str) -> str:
    r"""The short form as a LaTeX table of the width of a column; its first line says what it needs.

    >>> table = Table("t", "T", [], [("s", ["a_b"]), ("d", ["-0.5"])], [], texts=1)
    >>> print("\n".join(to_latex(table, "mine").splitlines()[10:12]))
    \multicolumn{1}{@{}l@{}}{a\_b} \\
    $-0.5$ \\
    """
    headers = [header for header, _ in table.shown[table.headed :]]
    texts = max(min(table.texts, len(table.shown)) - table.headed, 0)
    sides = "l" * texts + "r" * (len(headers) - texts)
    header = [" & ".join(map(_latex_header, headers, sides)) + r" \\"]
    columns = f"{{@{{}}{sides}@{{}}}}"
    title = _latex(f"{table.caption} (sweep {sweep})")
    caption = rf"\caption{{{title}}}\label{{tab:{sweep}-{table.name}}}"
    header = [r"\toprule", *header, r"\midrule"]
    is_float = len(_cells(table)) <= LONGEST_FLOAT
    body = _latex_body(table, len(headers), r"\\" if is_float else r"\\*")
    notes = [rf"{_latex(note)}\par" for note in table.notes]
    if is_float:
        lines = [r"\begin{table}", r"\centering", caption, *_SMALL]
        lines += [rf"\begin{{tabular}}{columns}", *header, *body]
        lines += [r"\bottomrule", r"\end{tabular}", r"\par\medskip\raggedright", *notes]
        lines += [r"\end{table}"]
    else:
        lines = [r"\begingroup", *_SMALL, rf"\begin{{longtable}}{columns}", rf"{caption} \\"]
        lines += [*header, r"\endfirsthead", *header, r"\endhead", r"\bottomrule", r"\endfoot"]
        lines += [*body, r"\end{longtable}", r"\par\raggedright", *notes, r"\endgroup"]
    needs = rf"% In the preamble: \usepackage{{{PACKAGES}}}"
    return "\n".join([needs, *lines, ""])


_SMALL = (r"\footnotesize", r"\setlength{\tabcolsep}{2pt}")


def _latex_body(table: Table, width: int, end: str) -> list[str]:
    lines: list[str] = []
    above: tuple[str, ...] = ()
    for cells in _cells(table):
        head, rest = cells[: table.headed], cells[table.headed :]
        if head != above:
            lines += [r"\addlinespace"] * bool(above)
            title = ", ".join(head)
            side = "l" if len(title) <= LINE else r"p{\linewidth}"  # else it would be cut
            lines.append(rf"\multicolumn{{{width}}}{{@{{}}{side}@{{}}}}{{{_latex(title)}}} {end}")
            above = head
        lines.append(" & ".join(_latex_cell(cell) for cell in rest) + r" \\")
    return lines


_SHORT = {  # in LaTeX, where a column is narrow
    "(selection-biased)": "(biased)",
    "unconstrained": "unconstr.",
    "constrained": "constr.",
}


def _latex_header(text: str, side: str) -> str:
    r"""A header, a word a line.

    >>> _latex_header("loss: unconstrained", "r")
    '\\shortstack[r]{loss:\\\\unconstr.}'
    """
    for long, short in _SHORT.items():
        text = text.replace(long, short)
    words = [_latex(word) for word in text.split()]
    stacked = r"\\".join(words)
    return stacked if len(words) == 1 else rf"\shortstack[{side}]{{{stacked}}}"


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
    r"""A number in math mode, so that its minus is one and its exponent is raised.

    >>> _latex_cell("-0.5"), _latex_cell("5.17e-05")
    ('$-0.5$', '$5.17\\times10^{-5}$')
    """
    try:
        float(text)
    except ValueError:
        return _latex(text.replace("(selection-biased)", "(biased)"))
    mantissa, _, exponent = text.partition("e")
    return f"${mantissa}" + (rf"\times10^{{{int(exponent)}}}" if exponent else "") + "$"
