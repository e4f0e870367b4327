"""Table of plain values that any renderer takes, with a short form for readers. Pure.

CSV has every column in full precision; all other formats have the short form and the notes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from trainables.plain import Json

Row = dict[str, Json]  # a plain value by column, None where there is none
Columns = list[tuple[str, list[str]]]  # header, one text per line
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
class Table:
    """A table; ``shown`` is its short form, (header, one text per line), with ``notes`` below."""

    name: str
    caption: str
    rows: list[Row]
    shown: Columns
    notes: list[str]
    texts: int = 2  # so many columns of the short form hold words, the others numbers
    headed: int = 1  # so many of them are a line of their own above their rows in LaTeX


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
