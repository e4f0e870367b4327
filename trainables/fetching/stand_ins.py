"""Stand-ins: files that are whole, but not the content that their name promises.

A clone without its large files holds pointers to them, a download may have saved the page that asks
to confirm it, and an interrupted copy may have reserved space that was never written.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LONGEST_POINTER = 512  # bytes
_LOOKED_AT = 4096  # bytes of a file
_PAGES = (b"<!doctype html", b"<html", b"<?xml")


def stand_in(path: Path) -> str | None:
    """Text on what a file holds in place of its content, with advice; None if it seems whole."""
    try:
        with open(path, "rb") as file:
            start = file.read(_LOOKED_AT)
    except OSError:
        return None  # whoever reads it says why it cannot be
    if start and not start.strip(b"\0"):
        return "begins with zeros alone: its copy was never finished. Copy it again."
    text = pointer_or_page(start)
    return None if text is None else f"is {text}"


def pointer_or_page(start: bytes) -> str | None:
    """Text on the pointer or page that a file starts like, with advice; None if it is neither.

    >>> pointer_or_page(b"/annex/objects/MD5-s1--0.jpg")
    'a git-annex pointer, not the file itself. Run `git annex get .` in the clone.'
    """
    if start.startswith(b"version https://git-lfs.github.com/spec/"):
        return (
            "a Git LFS pointer, not the file itself. Run `git lfs pull` in the clone, or copy the "
            "files from where they are complete."
        )
    if start.startswith((b"/annex/objects/", b"../.git/annex/", b".git/annex/")):
        return "a git-annex pointer, not the file itself. Run `git annex get .` in the clone."
    if start[:_LOOKED_AT].lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_PAGES):
        return (
            "a web page, not the file itself: perhaps one that asks to confirm the download. Open "
            "it in a browser to see what it says, and download the file again."
        )
    return None


def first_stand_in(files: Iterable[tuple[Path, int]]) -> tuple[Path, str] | None:
    """The first stand-in among files given with their sizes in bytes, and the text on it.

    Only the first one and those no longer than a pointer are opened: where large files stand in a
    clone as pointers, all do, and to open every frame of a data set would take minutes.
    """
    for number, (path, size) in enumerate(files):
        if number == 0 or 0 < size <= LONGEST_POINTER:
            text = stand_in(path)
            if text is not None:
                return path, text
    return None
