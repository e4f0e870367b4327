"""Markdown of a table, as GitHub and MLflow show it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sweep.render.table import Bold, Table, note_texts


def to_markdown(table: Table) -> str:
    r"""The short form with its notes.

    >>> print(to_markdown(Table("t", "Two", [], [("a|b", ["x*"]), ("n", ["1"])], ["a note."])))
    | a\|b | n |
    |---|---|
    | x\* | 1 |
    <BLANKLINE>
    * A note.
    <BLANKLINE>
    """
    headers = [header for header, _ in table.shown]
    rows = zip(*(cells for _, cells in table.shown), strict=True)
    notes = [f"* {_escape(note)}" for note in note_texts(table)]
    return "\n".join([to_grid(headers, rows), "", *notes, ""])


def to_grid(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Headers and rows alone."""
    return "\n".join([_line(headers), "|" + "---|" * len(headers), *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escape, cells))} |"


def _escape(text: str) -> str:
    plain = str(text).replace("\n", " ")
    for character in "\\|*<":
        plain = plain.replace(character, "\\" + character)
    return f"**{plain}**" if isinstance(text, Bold) else plain
