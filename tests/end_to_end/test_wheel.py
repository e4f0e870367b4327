"""The wheel: built without a network, installed outside the checkout, and used from there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("sweep", "search_spaces", "trainables", "trainables_testing")


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(tmp_path: Path) -> None:
    source = tmp_path / "source"  # a build leaves folders beside what it builds
    source.mkdir()
    for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index", "--quiet"]
    wheels, there = tmp_path / "wheels", tmp_path / "there"
    built = [*pip, "wheel", *offline, "--no-build-isolation", "-w", str(wheels), str(source)]
    subprocess.run(built, check=True)
    [wheel] = wheels.glob("descent_sweep-*.whl")
    subprocess.run([*pip, "install", *offline, "--target", str(there), str(wheel)], check=True)
    assert all((there / package / "py.typed").is_file() for package in PACKAGES)
    packed = [
        f for end in ("jinja", "css", "js", "template") for f in (ROOT / "sweep").rglob(f"*.{end}")
    ]
    assert packed
    assert all((there / file.relative_to(ROOT)).is_file() for file in packed)
    [metadata] = there.glob("descent_sweep-*.dist-info/METADATA")
    assert "Project-URL: Paper, https://arxiv.org/abs/2601.17257" in metadata.read_text()

    def says(*words: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "sweep.cli", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(there)},
            capture_output=True,
            text=True,
            check=True,
        )
        return ran.stdout

    assert "quickstart" in says("spaces")
    assert "mynet: a package" in says("init", "model", "mynet")
    code = "import sweep.doctor.machine as d; print(d.__file__); print(d._reinstall_advice())"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(there)},
        capture_output=True,
        text=True,
        check=True,
    )
    file, remedy = ran.stdout.splitlines()
    assert Path(file).is_relative_to(there)
    assert "make" not in remedy
