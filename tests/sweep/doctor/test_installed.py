"""The package's own files: another package's in their place are noticed."""

from __future__ import annotations

import base64
import hashlib
import importlib
import sys
from pathlib import Path

import importlib_metadata
import pytest

from sweep.doctor.installed import check_own_files

REINSTALL = "Install it again."


def installed(site: Path, name: str, *files: str) -> None:
    """A distribution as pip leaves it."""
    rows = []
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(f"# {name}\n")
        digest = hashlib.sha256((site / file).read_bytes()).digest()
        rows.append(f"{file},sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()},9\n")
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(rows))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where packages are installed; nothing else is."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    installed(tmp_path, "descent-sweep", "sweep/__init__.py", "trainables/training.py")
    importlib.invalidate_caches()
    return tmp_path


def test_whole_files_pass(site: Path) -> None:
    check = check_own_files(REINSTALL)
    assert (check.passed, check.finding) == (True, "as installed")


def test_a_package_that_was_installed_over_ours_is_named(site: Path) -> None:
    installed(site, "sweep", "sweep/__init__.py", "sweep/parse.py")
    check = check_own_files(REINSTALL)
    assert not check.passed
    assert check.finding == (
        "sweep is installed too, with a folder sweep; not as installed: sweep/__init__.py"
    )
    assert check.advice.startswith("`pip uninstall sweep`")
    assert check.advice.endswith(REINSTALL)


def test_files_that_went_with_another_package_are_named(site: Path) -> None:
    (site / "sweep/__init__.py").unlink()
    check = check_own_files(REINSTALL)
    assert check.finding == "not as installed: sweep/__init__.py (missing)"
    assert check.advice == REINSTALL


def test_missing_files_are_named_whichever_finder_answers(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mlflow brings importlib_metadata, whose finder takes the place of Python's own."""
    (site / "sweep/__init__.py").unlink()
    monkeypatch.setattr(sys, "meta_path", [importlib_metadata.MetadataPathFinder()])
    assert check_own_files(REINSTALL).finding == "not as installed: sweep/__init__.py (missing)"


def test_a_checkout_passes() -> None:
    assert check_own_files(REINSTALL).passed
