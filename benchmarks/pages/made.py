"""Pages whose numbers are made from files of results, in tables and in prose.

A table stands between ``<!-- NAME -->`` and ``<!-- end -->``, and is what a function makes of the
results. Everywhere else a digit must belong to a *fact*: a few words with numbers, formatted from
the results, which the page repeats as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainables.plain import Json

RESULTS = Path(__file__).parents[1] / "results"
_TABLE = re.compile(r"<!-- ([\w ]+) -->\n[^<]*<!-- end -->")
_NUMBER = re.compile(r"(?<![\w.])[+-]?\.?\d[\w.]*")
_NO_PROSE = re.compile(r"\]\([^)]*\)|[Aa]bove 0(?!\.?\d)")  # where links lead, and a sign


@dataclass(frozen=True)
class Made:
    """What a page has from its files of results."""

    tables: Mapping[str, str]
    facts: Sequence[str]
    start: str = ""  # from where on every number is accounted for
    stop: str = ""  # to there; "": to the end

    def part(self, page: str) -> str:
        """The part of the page whose every number is accounted for."""
        before = page.index(self.start)
        return page[before : page.index(self.stop, before) if self.stop else None]


def results(name: str) -> Json:
    """What a file of results holds."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def rewritten(page: str, tables: Mapping[str, str]) -> str:
    """The page with every table as it is made. KeyError: the page has one that nothing makes."""
    return _TABLE.sub(lambda at: f"<!-- {at[1]} -->\n{tables[at[1]]}\n<!-- end -->", page)


def shown(page: str) -> set[str]:
    """The names of the tables that a page has."""
    return set(_TABLE.findall(page))


def unaccounted(page: str, facts: Iterable[str]) -> list[str]:
    """Facts that the page does not repeat, and numbers of its prose that are in none.

    Args:
        page: its text, or the part of it that is about results.
        facts: in their own words; where lines end does not matter.

    >>> unaccounted("It gains 0.2, of 9.", ["gains 0.2", "of 8"])
    ['of 8', '9.']
    """
    prose = _NO_PROSE.sub(" ", " ".join(_TABLE.sub("", page).split()))
    wrong = []
    for fact in sorted(set(facts), key=len, reverse=True):
        if fact not in prose:
            wrong.append(fact)
        prose = prose.replace(fact, " ")
    return [*wrong, *_NUMBER.findall(prose)]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return re.sub(r"\|  (?=\|)", "| ", text)


def number(value: float, digits: int, *, signed: bool = False, short: bool = False) -> str:
    """A number as pages write it; ``short``: without the 0 before the point.

    >>> number(0.0346, 3, signed=True), number(-0.5, 1, short=True), number(-0.001, 2)
    ('+0.035', '-.5', '-0.001')
    """
    digits += not round(value, digits) and bool(round(value, digits + 1))  # a small one has a sign
    rounded = round(value, digits) + 0.0
    text = f"{rounded:+.{digits}f}" if signed and rounded else f"{rounded:.{digits}f}"
    return re.sub(r"^([+-]?)0\.", r"\1.", text) if short else text


def span(value: Mapping[str, Json], digits: int, *, short: bool = False) -> str:
    """A signed mean with its interval, from ``mean``, ``low`` and ``high``."""
    low, high = (number(value[end], digits, short=short) for end in ("low", "high"))
    return f"{number(value['mean'], digits, signed=True, short=short)} ({low} to {high})"
