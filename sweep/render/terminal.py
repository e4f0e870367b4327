"""Text tables and paragraphs for terminals of any width; no word is broken.

A table first wraps its prose, and a column of sentences stands below its rows. Where that is not
enough, numbers stand in blocks of as many columns as fit, each beside the first column; anything
else stands one field a line below its row's name.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.text import Text

GAP = 2  # spaces between columns
PROSE = 14  # a column of words is not made narrower than this to keep a table whole
UNBROKEN = "\N{NO-BREAK SPACE}"  # in a cell: shown as a space, and no line ends there
Line = tuple[str, bool]  # its text, and whether it is a heading


def table(
    rows: Sequence[Mapping[str, str]],
    *,
    right: Collection[str] = (),
    unbroken: Collection[str] = (),
    below: str = "",
) -> TextTable:
    """A plain table with one column per key.

    Args:
        rows: the cells; there is one at least.
        right: columns of numbers, which are never broken.
        unbroken: other columns that are not broken over lines: what one would copy.
        below: the column of sentences, each below its row where the table is wider than a line.
    """
    return TextTable(
        tuple(
            _Column(name, tuple(row[name] for row in rows), name in right, name in unbroken)
            for name in rows[0]
        ),
        below,
    )


@dataclass(frozen=True)
class TextTable:
    """A table as ``table`` makes it; printed on a console it takes the console's width."""

    columns: tuple[_Column, ...]
    below: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Line by line, headings in bold; rich's own wrapping breaks words."""
        for text, is_heading in self.lines(options.max_width):
            style = Style(bold=is_heading)
            yield Text(text, style=style, no_wrap=True, overflow="fold")

    def fits(self, width: int) -> bool:
        """True if every row is one line."""
        return sum(c.width for c in self.columns) + GAP * (len(self.columns) - 1) <= width

    def lines(self, width: int) -> Iterator[Line]:
        """The whole table where it fits, else in blocks of columns, else a field a line."""
        if self.below and not self.fits(width):
            rest = TextTable(tuple(c for c in self.columns if c.header != self.below))
            if rest.fits(width):
                (sentences,) = (c.cells for c in self.columns if c.header == self.below)
                return _with_sentences(rest.lines(width), sentences, width)
        first, *others = self.columns
        if _least(self.columns) <= width:
            return _drawn(self.columns, width)
        blocks = _blocks(first, others, width)
        if blocks and all(column.is_right for column in others):
            return (line for block in map(_filled, blocks) for line in _drawn(block, width))
        return _fields(first, others, width)


@dataclass(frozen=True)
class _Column:
    header: str
    cells: tuple[str, ...]
    is_right: bool
    is_unbroken: bool

    @property
    def width(self) -> int:
        """Characters that the longest line takes."""
        return max(len(line) for text in (self.header, *self.cells) for line in text.split("\n"))

    @property
    def least(self) -> int:
        """Characters that a column takes at least: no word breaks."""
        kept = self.is_right or self.is_unbroken
        cells = [
            line for cell in self.cells for line in (cell.split("\n") if kept else _words(cell))
        ]
        longest = max(map(len, (*_words(self.header), *cells)), default=0)
        return longest if kept else min(self.width, max(longest, PROSE))


def _words(text: str) -> list[str]:
    return text.replace("\n", " ").split(" ")


def _least(columns: Sequence[_Column]) -> int:
    return sum(column.least for column in columns) + GAP * (len(columns) - 1)


def _blocks(first: _Column, others: Sequence[_Column], width: int) -> list[tuple[_Column, ...]]:
    """Columns in groups that fit beside the first one; none where one of them does not."""
    blocks: list[tuple[_Column, ...]] = []
    for column in others:
        if _least((first, column)) > width:
            return []
        if blocks and _least((*blocks[-1], column)) <= width:
            blocks[-1] = (*blocks[-1], column)
        else:
            blocks.append((first, column))
    return blocks


def _filled(block: tuple[_Column, ...]) -> tuple[_Column, ...]:
    """A block without the rows that say nothing in it, its first column as wide as before."""
    rows = zip(*(column.cells for column in block), strict=True)
    kept = [number for number, (_, *cells) in enumerate(rows) if any(cells)]
    first, *others = (replace(c, cells=tuple(c.cells[number] for number in kept)) for c in block)
    return (replace(first, header=first.header.ljust(block[0].width)), *others)


def _drawn(columns: Sequence[_Column], width: int) -> Iterator[Line]:
    """The columns side by side, the widest made narrower until all fit."""
    widths = [column.width for column in columns]
    while sum(widths) + GAP * (len(widths) - 1) > width:
        slack = [(w > c.least, w) for w, c in zip(widths, columns, strict=True)]
        widths[slack.index(max(slack))] -= 1
    for number, row in enumerate(zip(*((c.header, *c.cells) for c in columns), strict=True)):
        cells = [wrapped(text, w) for text, w in zip(row, widths, strict=True)]
        height = max(map(len, cells))
        padded = []
        for column, w, lines in zip(columns, widths, cells, strict=True):
            blank = [""] * (height - len(lines))
            aligned = str.rjust if column.is_right else str.ljust
            padded.append(
                [aligned(text, w) for text in (blank + lines if number == 0 else lines + blank)]
            )
        for parts in zip(*padded, strict=True):
            yield (" " * GAP).join(parts).rstrip(), number == 0


def _with_sentences(lines: Iterator[Line], sentences: Sequence[str], width: int) -> Iterator[Line]:
    """Each row, which is one line, and its sentence below it."""
    left = iter(sentences)
    for text, is_heading in lines:
        yield text, is_heading
        if not is_heading:
            for line in wrapped(next(left), width, first="  ", rest="  "):
                yield line, False


def _fields(first: _Column, others: Sequence[_Column], width: int) -> Iterator[Line]:
    """Rows as their names and, below each, a field a line."""
    names = [" ".join(_words(column.header)) for column in others]
    start = 2 + max(map(len, names), default=0) + GAP
    for number, title in enumerate(first.cells):
        for line in wrapped(title, width):
            yield line, True
        for name, column in zip(names, others, strict=True):
            cell = column.cells[number]
            if not cell:
                continue
            if max(map(len, _words(cell))) <= width - start:
                lines = wrapped(cell, width - start)
                yield f"  {name}".ljust(start) + lines[0], False
                rest, indent = lines[1:], start
            else:  # a long word gets a line of its own
                yield f"  {name}", False
                rest, indent = wrapped(cell, width - 4), 4
            for line in rest:
                yield " " * indent + line, False


def wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """Lines of at most ``width`` characters that end between words.

    A word that is longer than a line ends at a hyphen, and only without one within itself.

    Args:
        text: what to wrap; a line of it begins a new line.
        width: characters, those of the indent included.
        first: indent of the first line.
        rest: indent of the others.

    >>> wrapped("2 feasible, 1 infeasible", 12), wrapped("ped2-ut-L3-g0.15", 9)
    (['2 feasible,', '1 infeasible'], ['ped2-ut-', 'L3-g0.15'])
    """
    width = max(width, len(rest) + 1, len(first) + 1)
    split: Callable[..., list[str]] = partial(textwrap.wrap, width=width, subsequent_indent=rest)
    lines: list[str] = []
    for given in text.split("\n"):
        indent = rest if lines else first
        unbroken = {"break_long_words": False, "break_on_hyphens": False}
        for line in split(given, initial_indent=indent, **unbroken) or [""]:
            lines += [line] if len(line) <= width else split(line)
    return [line.replace(UNBROKEN, " ") for line in lines]


def phrases(text: str) -> str:
    """A cell of phrases between commas, none of which is broken over lines.

    >>> wrapped(phrases("2 feasible, 1 infeasible"), 13)
    ['2 feasible,', '1 infeasible']
    """
    return text.replace(" ", UNBROKEN).replace(f",{UNBROKEN}", ", ")


@dataclass(frozen=True)
class Paragraph:
    """Text that is wrapped at words; where it is indented, its other lines by two spaces more."""

    text: str
    indent: int = 0
    style: str = ""
    hanging: int = 0  # spaces before its other lines, where its first is not indented

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Line by line, as wide as the console."""
        first = " " * self.indent
        rest = first + " " * (2 if self.indent else self.hanging)
        for line in wrapped(self.text, options.max_width, first=first, rest=rest):
            yield Text(line, style=self.style, no_wrap=True, overflow="fold")
