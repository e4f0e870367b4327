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
    """What lies there in place of the content, and what to do; None where nothing says so."""
    try:
        with open(path, "rb") as file:
            start = file.read(_LOOKED_AT)
    except OSError:
        return None  # whoever reads it says why it cannot be
    if start and not start.strip(b"\0"):
        return "begins with zeros alone: its copy was never finished. Copy it again."
    said = pointer_or_page(start)
    return None if said is None else f"is {said}"


def pointer_or_page(start: bytes) -> str | None:
    """What content that starts so is in place of a file, and what to do; None where it may be it.

    >>> pointer_or_page(b"/annex/objects/MD5-s1--0.jpg")
    'a git-annex pointer, not the file itself. Run `git annex get .` in the clone.'
    """
    if start.startswith(b"version https://git-lfs.github.com/spec/"):
        return (
            "a Git LFS pointer, not the file itself. Run `git lfs pull` in the clone, or copy the "
            "files from where they are whole."
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
    """The first file, of these and their bytes, that is a stand-in, and what is to be said of it.

    Opened are the first one and those that are no longer than a pointer: where large files stand
    in a clone as pointers, all do, and to open every frame of a data set would take minutes.
    """
    for number, (path, size) in enumerate(files):
        if number == 0 or 0 < size <= LONGEST_POINTER:
            said = stand_in(path)
            if said is not None:
                return path, said
    return None
