"""Table of plain values that any renderer takes, with a short form for readers.

CSV has every column in full precision; all other formats have the short form and the notes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from trainables.plain import Json

Row = dict[str, Json]  # a plain value by column, None where there is none
ShortForm = list[tuple[str, list[str]]]  # header, one text per line
Line = TypeVar("Line", contravariant=True)  # columns of a base class are those of each that derives
NOTHING = "—"
YES_NO: dict[bool | None, str] = {None: NOTHING, True: "yes", False: "no"}


def number(value: float | None, form: str) -> str:
    """A cell of the short form; what is rounded to zero has no sign.

    >>> number(-0.0004, "+.3f"), number(0.0004, "+.3f"), number(0.0005, "+.4f")
    ('0.000', '0.000', '+0.0005')
    """
    if value is None:
        return NOTHING
    text = format(value, form)
    return text if re.search("[1-9a-z]", text) else text.lstrip("+-")


class Bold(str):
    """A cell in bold type: a gain that a confirmation found better or worse."""


@dataclass(frozen=True)
class Column(Generic[Line]):
    """A column of a table whose lines are of one type; all that is known of it stands here."""

    header: str  # of the short form; '' in CSV alone
    value: Callable[[Line], Json]
    form: str | Callable[[Json], str] = str  # of a cell of the short form; a string is of numbers
    name: str | None = None  # in CSV, else the header; '' in the short form alone

    def cell(self, line: Line) -> str:
        """The text of a line in the short form."""
        value = self.value(line)
        if isinstance(value, str):
            return value  # which may be bold
        return number(value, self.form) if isinstance(self.form, str) else self.form(value)


@dataclass(frozen=True)
class Table:
    """A table; ``shown`` is its short form, (header, one text per line), with ``notes`` below."""

    name: str
    caption: str
    rows: list[Row]
    shown: ShortForm
    notes: list[str]
    texts: int = 2  # so many columns of the short form hold words, the others numbers
    headed: int = 1  # so many of them are a line of their own above their rows in LaTeX


def rows_of(columns: Sequence[Column[Line]], lines: Iterable[Line]) -> list[Row]:
    """The lines as CSV has them."""
    names = [(c.header if c.name is None else c.name, c.value) for c in columns]
    return [{name: value(line) for name, value in names if name} for line in lines]


def shown_of(columns: Iterable[Column[Line]], lines: Sequence[Line]) -> ShortForm:
    """The lines in the short form."""
    return [(c.header, [c.cell(line) for line in lines]) for c in columns if c.header]


def table_of(
    name: str,
    caption: str,
    columns: Sequence[Column[Line]],
    lines: Sequence[Line],
    notes: list[str],
    *,
    headed: int = 1,
) -> Table:
    """A table whose CSV and short form have the same lines; its first columns are words."""
    forms = [column.form for column in columns if column.header]
    texts = next((n for n, form in enumerate(forms) if isinstance(form, str)), len(forms))
    rows, shown = rows_of(columns, lines), shown_of(columns, lines)
    return Table(name, caption, rows, shown, notes, texts, headed)


def note_texts(table: Table) -> list[str]:
    """The notes as sentences: a first word begins with a capital, unless it is a setting's name.

    >>> note_texts(Table("t", "T", [], [("setting", ["anna"])], ["searched: alpha.", "anna: no."]))
    ['Searched: alpha.', 'anna: no.']
    """
    named = set(table.shown[0][1]) if table.shown else set()
    return [_as_sentence(note, named) for note in table.notes]


def _as_sentence(note: str, named: Collection[str]) -> str:
    first = re.match(r"[a-z]+(?=[ :;,])", note)
    if first is None or first[0] in named:
        return note
    return note[0].upper() + note[1:]
