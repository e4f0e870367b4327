"""Strict reading of text files: all damage in one message, by file and line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainables.errors import BadData
from trainables.fetching.stand_ins import pointer_or_page

_SHOWN = 5  # places that one message names


class Damaged(Exception):
    """One text or line is not what it must be; the message says why, not where."""


@dataclass
class Damage:
    """Problems in the files of one split, collected so that one message names all of it."""

    count: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, place: object, reason: object) -> None:
        """Note that ``place`` is damaged."""
        self.count += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(f"{place}: {reason}")

    def refuse(self, what: str, advice: str) -> None:
        """Raise BadData when anything was noted."""
        if self.count:
            more = f"; and {self.count - len(self.shown)} more" * (self.count > len(self.shown))
            raise BadData(f"{what} cannot be read: {'; '.join(self.shown)}{more}. {advice}")


def whole_text(path: Path) -> str:
    """All text of a file, UTF-8.

    Raises Damaged where it cannot be read, is blank, or holds other bytes.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Damaged(error.strerror or str(error)) from error
    if (stand_in := pointer_or_page(content)) is not None:
        raise Damaged(f"it is {stand_in}")
    text = decoded(content)
    if not text.strip():
        raise Damaged("it is empty")
    return text


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    r"""The lines of a file with their numbers from 1, without line ends; only "\n" ends one.

    Texts hold other characters that some libraries take for line ends (U+0085, U+2028).

    Raises Damaged where the file cannot be read, or is a pointer to one.
    """
    try:
        with open(path, "rb") as stream:
            for number, line in enumerate(stream, 1):
                if number == 1 and (stand_in := pointer_or_page(line)) is not None:
                    raise Damaged(f"it is {stand_in}")
                yield number, line.rstrip(b"\r\n")
    except OSError as error:
        raise Damaged(error.strerror or str(error)) from error


def decoded(content: bytes) -> str:
    """UTF-8 text, a byte order mark left out. Damaged for other bytes and for null characters."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Damaged(f"byte {error.start} is not UTF-8") from error
    return require_whole(text)


def require_whole(text: str) -> str:
    """The text; Damaged when it holds a null character or half of a surrogate pair."""
    if "\0" in text:
        raise Damaged("it holds null characters, as an interrupted copy does")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Damaged(f"character {error.start} is half of a surrogate pair") from error
    return text
