"""Course on one GPU: parts and their limits, the packages that it needs, and all of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import course as courses

ROOT = Path(__file__).parents[2]
FAST = "import json; print(json.dumps({'lines': ['it is fast'], 'number': 1}))"
FAILS = "raise SystemExit('no such kernel')"
SLOW = """
import json, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
def told(*_):
    print(json.dumps({"lines": [f"child {child.pid}"]}))
    sys.exit(1)
signal.signal(signal.SIGTERM, told)
time.sleep(60)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
Course = Callable[[dict[str, str]], int]


def in_closed(code: str) -> subprocess.CompletedProcess[str]:
    """Run code where only what .ci/gpu needs can be imported."""
    packages = list(gpu.NEEDED.values())
    closed = f"from tests.support.closed_interpreter import close; close({packages!r})\n"
    command = [sys.executable, "-c", closed + code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_others_are_not_found_there() -> None:
    others = (
        "ray",
        "mlflow",
        "optuna",
        "hypothesis",
        "PIL",
        "av",
        "cooper",
        "statsmodels",
        "xdist",
    )
    look = f"from importlib.util import find_spec; print([n for n in {others!r} if find_spec(n)])"
    ran = in_closed(look)
    assert ran.stdout == "[]\n", ran.stderr


@pytest.mark.long("an interpreter of its own imports torch and transformers, and trains a pair")
def test_what_runs_on_a_gpu_needs_few_packages() -> None:
    modules = sorted({gpu.command_of(part, "cpu")[2] for part in gpu.LIMITS} - {"pytest"})
    given = [*gpu.PYTEST, "--collect-only", *gpu.GPU_TESTS]
    ran = in_closed(
        "import importlib, pytest\n"
        f"[importlib.import_module(name) for name in {modules!r}]\n"
        f"code = pytest.main({given!r})\n"
        "from benchmarks.gpu.pairs import main\n"  # what is imported where it is used
        "main(['ut', '--device', 'cpu', '--small'])\n"
        "import importlib.metadata as found\n"
        "raise SystemExit(code or 'pillow' in {d.name for d in found.distributions()})"
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_test_of_a_gpu_is_in_the_course() -> None:
    marked = re.compile(
        r"^from tests.support.gpu.devices import GPUS|^ *@?pytest\.mark\.gpu", re.MULTILINE
    )
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    found = [str(f.relative_to(ROOT)) for f in files if marked.search(f.read_text("utf-8"))]
    assert found == sorted(gpu.GPU_TESTS)


def test_the_course_tells_its_parts_and_packages_by_their_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu.main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(f"    {part}: " in told for part in gpu.LIMITS)
    monkeypatch.setattr(gpu, "find_spec", lambda module: None if module == "sklearn" else module)
    assert "lacks scikit-learn: set PYTHON" in gpu.refusal([], "cpu")


# --- parts and their limits -----------------------------------------------------------------------


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    """Runs programs in the places of parts; returns the exit code."""

    def run(programs: dict[str, str]) -> int:
        def command_of(part: str, device: str) -> list[str]:
            assert device == "cpu"
            return [sys.executable, "-c", programs[part]]

        monkeypatch.setattr(gpu, "command_of", command_of)
        monkeypatch.setenv("SWEEP_GPU_DEVICE", "cpu")
        monkeypatch.setenv("OUT", str(tmp_path))
        return gpu.main(list(programs))

    return run


def summary(folder: Path) -> dict[str, dict[str, object]]:
    parts = json.loads((folder / "summary.json").read_text())["parts"]
    return {part["part"]: part for part in parts}


def test_a_part_that_fails_stops_no_other(
    course: Course, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert course({"tests": FAILS, "ut": FAST}) == 1
    found = summary(tmp_path)
    assert (found["tests"]["outcome"], found["ut"]["outcome"]) == ("failed (exit 1)", "ok")
    assert json.loads((tmp_path / "ut.json").read_text())["number"] == 1
    assert not (tmp_path / "tests.json").exists()  # it printed none
    shown = capsys.readouterr().out
    assert "it is fast" in shown
    assert "no such kernel" in shown
    assert shown.endswith("failed: tests\n")


def test_a_part_ends_at_its_limit_with_what_it_has_and_all_that_it_started(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "LIMITS", {"ut": 1.5, "dust": 1, "tests": 20})
    monkeypatch.setattr(courses, "GRACE_S", 1)
    assert course({"ut": SLOW, "dust": DEAF, "tests": FAST}) == 1
    found = summary(tmp_path)
    assert [str(part["outcome"])[:18] for part in found.values()] == 2 * ["ended at its limit"] + [
        "ok"
    ]
    [line] = json.loads((tmp_path / "ut.json").read_text())["lines"]
    child = int(line.removeprefix("child "))
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_no_part_begins_when_the_time_is_over(
    course: Course,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(courses, "MOST_S", courses.LEAST_S + courses.GRACE_S + 0.05)
    assert course({"tests": "import time; time.sleep(0.1)", "ut": FAST}) == 1
    assert "left out, for want of time" in capsys.readouterr().out
    assert summary(tmp_path)["tests"]["outcome"] == "ok"


def test_a_course_that_is_ended_ends_its_part(tmp_path: Path) -> None:
    environment = {**os.environ, "SWEEP_GPU_DEVICE": "cpu", "OUT": str(tmp_path)}
    driver = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu", "decoder_8b"], cwd=ROOT, env=environment
    )
    until = time.monotonic() + 20
    while not (parts := psutil.Process(driver.pid).children()):
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.5)  # it has a group of its own by now
    driver.terminate()
    assert driver.wait(20) == 1
    # whoever adopts it may leave it as a zombie
    assert all(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in parts)


@pytest.mark.parametrize(
    ("device", "parts", "said"),
    [
        ("gpu", [], "SWEEP_GPU_DEVICE must be cuda or cpu, got 'gpu'"),
        ("cpu", ["speed"], "no part 'speed'; there are tests, ut, companies"),
    ],
)
def test_what_cannot_be_run_is_refused(device: str, parts: list[str], said: str) -> None:
    assert gpu.refusal(parts, device).startswith(said)


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "NEEDED", {"torch": "torch", "absent": "no_such_package"})
    assert f"{sys.executable} lacks no_such_package: set PYTHON" in gpu.refusal([], "cpu")


# --- the whole of it ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_the_whole_course_runs_with_those_packages_alone(tmp_path: Path) -> None:
    python = os.environ.get("SWEEP_BARE_PYTHON")
    if not python:
        pytest.skip("SWEEP_BARE_PYTHON is not set: a Python with what .ci/gpu needs and no more")
    own = {"PYTHON": python, "SWEEP_GPU_DEVICE": "cpu", "OUT": str(tmp_path)}
    ran = subprocess.run(
        [ROOT / ".ci/gpu"], env={**os.environ, **own}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == sorted(
        [f"{part}.json" for part in gpu.LIMITS if part != "tests"] + ["summary.json"]
    )
