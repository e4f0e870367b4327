"""Check of this package's own files: complete, and claimed by no other package.

Another package on PyPI is called sweep and has a folder ``sweep``, too: of two that are installed,
the later one silently replaces files of the other, and removing either removes both.
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

OWN_FOLDERS = ("sweep", "search_spaces", "trainables", "trainables_testing")
NAMED = 3  # files; more are counted


def check_own_files(reinstall_advice: str) -> Check:
    """Check that the imported files are those that were installed with this package."""
    claims = list(_other_claims())
    others = sorted({name for name, _ in claims})
    try:
        changed = list(_changed_files(importlib.metadata.distribution(DISTRIBUTION)))
    except importlib.metadata.PackageNotFoundError:  # the check of packages fails
        changed = []
    findings = []
    advice = reinstall_advice
    if others:
        folders = ", ".join(sorted({folder for _, folder in claims}))
        findings.append(f"{', '.join(others)} is installed too, with a folder {folders}")
        uninstall = f"`pip uninstall {' '.join(others)}`"
        advice = f"{uninstall}, or use an environment for each. Then: {advice}"
    if changed:
        more = f" and {len(changed) - NAMED} more" if len(changed) > NAMED else ""
        findings.append(f"not as installed: {', '.join(changed[:NAMED])}{more}")
    return Check("own files", not findings, "; ".join(findings) or "as installed", advice)


def _other_claims() -> Iterator[tuple[str, str]]:
    """Other distributions that bring a folder of this package's, and that folder."""
    distributions = importlib.metadata.packages_distributions()
    for folder in OWN_FOLDERS:
        for name in distributions.get(folder, ()):
            if name.lower().replace("_", "-") != DISTRIBUTION:
                yield name, folder


def _changed_files(installed: Distribution) -> Iterator[str]:
    """This package's files that are missing or differ from those that were installed.

    Empty where it is used from a checkout: its files are not listed then.
    """
    # Not `installed.files`: once the package importlib_metadata is imported, its finder answers,
    # and leaves out files that are missing.
    for file, recorded, _ in csv.reader((installed.read_text("RECORD") or "").splitlines()):
        method, _, expected = recorded.partition("=")
        is_own = PurePosixPath(file).parts[0] in OWN_FOLDERS
        if not recorded or not is_own or not file.endswith(".py"):
            continue
        try:
            content = Path(str(installed.locate_file(file))).read_bytes()
        except OSError:
            yield f"{file} (missing)"
            continue
        digest = hashlib.new(method, content).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != expected:
            yield file
