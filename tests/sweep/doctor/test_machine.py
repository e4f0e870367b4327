"""The package's own folders: another package with folders of these names is noticed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from sweep.doctor.machine import check_own_files


def installed(site: Path, name: str, *files: str) -> None:
    """A distribution as pip leaves it."""
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(f"# {name}\n")
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where packages are installed; nothing else is."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    installed(tmp_path, "descent-sweep", "sweep/__init__.py", "trainables/training.py")
    importlib.invalidate_caches()
    return tmp_path


def test_this_package_alone_passes(site: Path) -> None:
    assert check_own_files().passed


def test_a_package_that_was_installed_over_ours_is_named(site: Path) -> None:
    installed(site, "sweep", "sweep/__init__.py", "sweep/parse.py")
    check = check_own_files()
    assert not check.passed
    assert check.finding == "sweep is installed too, with a folder sweep"
    assert check.advice.startswith("`pip uninstall sweep`")
    assert "Then: Install it again: `" in check.advice


def test_a_checkout_passes() -> None:
    assert check_own_files().passed
