r"""LaTeX of one table: floats of the width of a column. Pure.

Columns that do not fit beside each other stand below each other, as panels with the same labels,
and rows that do not fit in a column of text go into further floats.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweep.render.latex_text import (
    COLUMN_PT,
    LABEL_PT,
    cell_text,
    escaped,
    header_text,
    shortened,
    title_text,
    width_pt,
    with_symbols,
)
from sweep.render.table import Table, note_texts

PACKAGES = "booktabs"
LINES = 44  # of a column of text, for the rows and notes of one float
FLOATS = 18  # that wait for a page before LaTeX is told to place them: old versions hold no more
_GAP_PT = 4.0  # between columns


@dataclass(frozen=True)
class _Column:
    """A column: what stands above it, with its neighbours' and alone, and its cells."""

    group: str
    header: str
    cells: Sequence[str]
    is_label: bool

    @property
    def width(self) -> float:
        width = max(map(width_pt, (*shortened(self.header).split(), *self.cells)), default=0.0)
        return min(width, LABEL_PT) if self.is_label else width


Panel = Sequence[_Column]


def to_latex(table: Table, sweep: str) -> str:
    r"""The short form as LaTeX floats; its first line says what it needs.

    >>> table = Table("t", "T", [], [("s", ["a_b"]), ("d", ["-0.5"])], [], texts=1)
    >>> print("\n".join(to_latex(table, "mine").splitlines()[10:12]))
    \multicolumn{1}{@{}l}{\rlap{a\_b}} \\
    $-0.5$ \\
    """
    heads = list(zip(*(cells for _, cells in table.shown[: table.headed]), strict=True))
    titles = [", ".join(head) for head in heads]
    panels = _panels(_columns(table))
    parts = _parts(titles, len(panels))
    notes = [rf"{with_symbols(escaped(note))}\par" for note in note_texts(table)]
    lines = [rf"% In the preamble: \usepackage{{{PACKAGES}}}"]
    for number, part in enumerate(parts, start=1):
        which = f", part {number} of {len(parts)}" if len(parts) > 1 else ""
        label = f"tab:{sweep}-{table.name}" + f"-{number}" * (number > 1)
        title = escaped(f"{table.caption} (sweep {sweep}{which})")
        lines += [r"\begin{table}", r"\centering", rf"\caption{{{title}}}\label{{{label}}}"]
        lines += [r"\footnotesize", r"\setlength{\tabcolsep}{2pt}"]
        for place, panel in enumerate(panels):
            lines += [r"\par\medskip"] * (place > 0)
            lines += _tabular(panel, [titles[row] for row in part], part)
        if number == len(parts):
            used = _height([titles[row] for row in part], len(panels))
            fits = used + sum(_lines(note) for note in table.notes) <= LINES
            below = [r"\par\medskip\raggedright", *notes]
            outside = [r"\begingroup\footnotesize\raggedright", *notes, r"\endgroup"]
            lines += [*below, r"\end{table}"] if fits else [r"\end{table}", *outside]
        else:
            lines += [r"\end{table}"] + [r"\clearpage"] * (number % FLOATS == 0)
    return "\n".join([*lines, ""])


# --- what goes where ------------------------------------------------------------------------------


def _columns(table: Table) -> list[_Column]:
    """The columns below the titles. ``group: header`` is a header below that of its group."""
    columns = []
    for place, (text, cells) in enumerate(table.shown[table.headed :], start=table.headed):
        group, _, header = text.rpartition(": ")
        columns.append(_Column(group, header, [*map(shortened, cells)], place < table.texts))
    return columns


def _panels(columns: Panel) -> list[Panel]:
    """As few panels as fit, of about the same width; each begins with the labels."""
    labels = [column for column in columns if column.is_label]
    rest = [(place, column) for place, column in enumerate(columns) if not column.is_label]
    room = COLUMN_PT - sum(column.width + _GAP_PT for column in labels)
    groups: list[Panel] = []
    for _, members in itertools.groupby(rest, key=lambda one: one[1].group or one[0]):
        group = [column for _, column in members]
        fits = _group_width(group) <= room
        groups += [group] if fits else _balanced([[column] for column in group], room)
    return [[*labels, *panel] for panel in _balanced(groups, room)]


def _balanced(groups: Sequence[Panel], room: float) -> list[Panel]:
    """Groups in as few panels as fit, which are as narrow as that allows."""
    widths = [_group_width(group) for group in groups]
    fewest = len(_packed(widths, room))
    limits = itertools.count(math.ceil(max(widths, default=0.0)))
    least = next(limit for limit in limits if len(_packed(widths, limit)) <= fewest)
    return [[c for place in places for c in groups[place]] for places in _packed(widths, least)]


def _packed(widths: Sequence[float], room: float) -> list[list[int]]:
    """Places of groups, panel by panel, in their order."""
    panels: list[list[int]] = [[]]
    used = 0.0
    for place, width in enumerate(widths):
        if panels[-1] and used + width > room:
            panels.append([])
            used = 0.0
        panels[-1].append(place)
        used += width + _GAP_PT
    return panels


def _group_width(group: Panel) -> float:
    beside = sum(column.width for column in group) + _GAP_PT * (len(group) - 1)
    return max(beside, width_pt(shortened(group[0].group)))


def _parts(titles: Sequence[str], panels: int) -> list[list[int]]:
    """Rows of each float: blocks of one title together, where a float is long enough."""

    def is_too_high(rows: Sequence[int]) -> bool:
        return _height([titles[row] for row in rows], panels) > LINES

    parts: list[list[int]] = [[]]
    for _, block in itertools.groupby(range(len(titles)), key=titles.__getitem__):
        rows = list(block)
        if parts[-1] and is_too_high(parts[-1] + rows):
            parts.append([])
        for row in rows:
            if parts[-1] and is_too_high([*parts[-1], row]):
                parts.append([])
            parts[-1].append(row)
    return parts


def _height(titles: Sequence[str], panels: int) -> float:
    """Lines of text that rows with these titles take, with headers and space between blocks."""
    blocks = [title for title, _ in itertools.groupby(titles)]
    return panels * (4 + len(titles) + sum(_lines(title) + 0.5 for title in blocks if title))


def _lines(text: str) -> int:
    return 1 + int(1.1 * width_pt(text) // COLUMN_PT)


# --- what is written ------------------------------------------------------------------------------


def _tabular(panel: Panel, titles: Sequence[str], rows: Sequence[int]) -> list[str]:
    sides = "".join("l" if column.is_label else "r" for column in panel)
    lines = [rf"\begin{{tabular*}}{{\columnwidth}}{{@{{\extracolsep{{\fill}}}}{sides}@{{}}}}"]
    lines += [r"\toprule", *_headers(panel), r"\midrule"]
    above = ""
    for title, row in zip(titles, rows, strict=True):
        texts = [column.cells[row] for column in panel if not column.is_label]
        if not any(texts):
            continue
        if title != above:
            lines += [r"\addlinespace"] * bool(above)
            lines.append(rf"\multicolumn{{1}}{{@{{}}l}}{{\rlap{{{title_text(title)}}}}} \\")
            above = title
        cells = [cell_text(column.cells[row], is_label=column.is_label) for column in panel]
        lines.append(" & ".join(cells) + r" \\")
    return [*lines, r"\bottomrule", r"\end{tabular*}"]


def _headers(panel: Panel) -> Iterator[str]:
    """The line of headers; above it one of groups, with a rule over the columns of each."""
    spans = [(name, len(list(cs))) for name, cs in itertools.groupby(panel, lambda c: c.group)]
    if any(name for name, _ in spans):
        cells, rules, first = [], "", 1
        for name, count in spans:
            text = escaped(shortened(name))
            cells.append(rf"\multicolumn{{{count}}}{{c}}{{{text}}}" if name else "&" * (count - 1))
            rules += rf"\cmidrule(l){{{first}-{first + count - 1}}}" if name else ""
            first += count
        yield " & ".join(cells) + r" \\"
        yield rules
    yield " & ".join(header_text(c.header, "l" if c.is_label else "r") for c in panel) + r" \\"
