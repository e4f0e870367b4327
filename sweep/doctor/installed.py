"""Check of this package's own files: whole, and claimed by no other package.

A package on PyPI that is called sweep brings a folder ``sweep``, too: of two that are installed the
later one replaces files of the other without a word, and whichever is removed takes both with it.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath

from sweep.doctor.check import Check
from trainables.code_version import DISTRIBUTION

OURS = ("sweep", "search_spaces", "trainables", "trainables_testing")
NAMED = 3  # files; more are counted


def own_files(reinstall: str) -> Check:
    """Whether what is imported is this package's.

    Args:
        reinstall: what installs it again.
    """
    others = sorted({other for other, _ in _claims()})
    try:
        wrong = list(_wrong(importlib.metadata.distribution(DISTRIBUTION)))
    except importlib.metadata.PackageNotFoundError:  # said by the check of packages
        wrong = []
    found = []
    if others:
        folders = sorted({folder for _, folder in _claims()})
        found.append(f"{', '.join(others)} is installed too, with a folder {', '.join(folders)}")
    if wrong:
        more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        found.append(f"not as installed: {', '.join(wrong[:NAMED])}{more}")
    advice = reinstall
    if others:
        advice = (
            f"`pip uninstall {' '.join(others)}`, or use an environment for each. Then: {advice}"
        )
    return Check("own files", not found, "; ".join(found) or "as installed", advice)


def _claims() -> Iterator[tuple[str, str]]:
    """Other distributions that bring a folder of ours, and which."""
    there = importlib.metadata.packages_distributions()
    for folder in OURS:
        for name in there.get(folder, ()):
            if name.lower().replace("_", "-") != DISTRIBUTION:
                yield name, folder


def _wrong(installed: Distribution) -> Iterator[str]:
    """Installed files of ours that are missing or are not what was installed.

    None where it is used from a checkout: its files are not listed then.
    """
    # Not `installed.files`: once the package importlib_metadata is imported, its finder answers,
    # and leaves out files that are missing.
    for file, recorded, _ in csv.reader((installed.read_text("RECORD") or "").splitlines()):
        method, _, expected = recorded.partition("=")
        if not recorded or PurePosixPath(file).parts[0] not in OURS or not file.endswith(".py"):
            continue
        try:
            content = Path(str(installed.locate_file(file))).read_bytes()
        except OSError:
            yield f"{file} (missing)"
            continue
        digest = hashlib.new(method, content).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != expected:
            yield file
