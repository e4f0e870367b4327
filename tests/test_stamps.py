"""Stamps of stories: what they skip, what makes them void, and that they hide no failure."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.support.code_figures import ROOT, listed_files
from tests.support.stamps import OF_ALL, READ, Stamps

STORY = """
import pathlib, pytest
ROOT = pathlib.Path(__file__).parents[1]

@pytest.mark.slow
def test_product():
    assert "wrong" not in (ROOT / "sweep/product.py").read_text()

@pytest.mark.slow
@pytest.mark.always
def test_always():
    pass

def test_fast():
    pass
"""
OTHER = "import benchmarks\nimport pytest\n@pytest.mark.slow\ndef test_other(): {}\n"
BOTH = {"tests/test_story.py", "tests/test_other.py"}


def write_repository(folder: Path) -> None:
    """One file of product, two stories, a page; everything committed."""
    files = {
        "sweep/product.py": "X = 1\n",
        "tests/test_story.py": STORY,
        "tests/test_other.py": OTHER.format("pass"),
        "docs/page.md": "# A page\n",
        "benchmarks/__init__.py": "",
        ".gitignore": "__pycache__\n.pytest_cache\n",
        "pytest.ini": "[pytest]\nmarkers =\n    slow\n    always\n",
        ".ci/run": "",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    commit(folder)


def git(folder: Path, *words: str) -> str:
    named = ("-c", "user.name=x", "-c", "user.email=x@x")
    ran = subprocess.run(
        ("git", *named, *words), cwd=folder, check=True, capture_output=True, text=True
    )
    return ran.stdout


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "all")


def stage(folder: Path, mode: str = "use", exits: int = 0, *more: str) -> str:
    """What the stage called slow prints."""
    plug_in = ("-p", "tests.support.stamps", "--stage", "slow", "-m", "slow", "-v", *more)
    ran = subprocess.run(
        (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plug_in),
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SWEEP_STAMPS": mode,
            "PYTEST_ADDOPTS": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
    )
    assert ran.returncode == exits, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def stamps(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / ".ci/stamps.json").read_text()).get("slow", {}))


@pytest.fixture(scope="module")
def stamped_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stamped")
    write_repository(folder)
    stage(folder, "write")
    commit(folder)
    return folder


@pytest.fixture
def stamped(stamped_once: Path, tmp_path: Path) -> Path:
    """The repository after a pass that wrote stamps, which are committed."""
    shutil.copytree(stamped_once, tmp_path, dirs_exist_ok=True)
    return tmp_path


def holding(folder: Path) -> set[str]:
    return set(Stamps(folder, "slow", "use").holding)


def test_a_stamp_says_what_passed_where_and_no_path_of_the_machine(stamped: Path) -> None:
    assert str(stamped) not in (stamped / ".ci/stamps.json").read_text()
    stamp = stamps(stamped)["tests/test_story.py"]
    assert stamp["commit"] == git(stamped, "rev-parse", "HEAD~1").strip()
    assert stamp["tests"] == 2
    assert set(stamp) == {"digest", "commit", "tests", "seconds"}


def test_what_is_unchanged_is_left_out_and_said_but_for_what_always_runs(stamped: Path) -> None:
    said = stage(stamped)
    commit_name = stamps(stamped)["tests/test_story.py"]["commit"][:9]
    assert (
        f"unchanged since {commit_name}, passed there (2 tests, 0 s): tests/test_story.py" in said
    )
    assert "test_always PASSED" in said
    assert "test_product" not in said
    assert "test_other PASSED" not in said
    assert "1 passed, 3 deselected" in said


@pytest.mark.slow
def test_two_processes_write_and_use_the_same(stamped: Path) -> None:
    two = ("-p", "xdist.plugin", "-n", "2", "--dist", "loadfile")
    (stamped / ".ci/stamps.json").unlink()
    assert "3 passed" in stage(stamped, "write", 0, *two)
    assert holding(stamped) == BOTH
    assert stamps(stamped)["tests/test_story.py"]["tests"] == 2
    said = stage(stamped, "use", 0, *two)
    assert "passed there (2 tests, 0 s): tests/test_story.py" in said
    assert "1 passed" in said


@pytest.mark.parametrize(
    ("changed", "still"),
    [
        ("sweep/product.py", set()),
        ("sweep/new.py", set()),
        ("constraints.txt", set()),
        ("tests/conftest.py", set()),
        ("docs/plugins.md", set()),
        ("tests/test_story.py", {"tests/test_other.py"}),
        ("tests/deeper/test_new.py", BOTH),
        ("benchmarks/speed.py", {"tests/test_story.py"}),
        ("README.md", BOTH),
        ("benchmarks/imitated/arms.py", set()),
        ("docs/page.md", BOTH),
        ("sweep/__pycache__/product.pyc", BOTH),  # git ignores it
    ],
)
def test_a_change_voids_the_stamps_of_what_covers_it_alone(
    stamped: Path, changed: str, still: set[str]
) -> None:
    assert holding(stamped) == BOTH
    path = stamped / changed
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + "\n")
    assert holding(stamped) == still


def test_a_file_that_is_gone_or_another_python_voids_them(
    stamped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    assert holding(stamped) == set()
    monkeypatch.undo()
    assert holding(stamped) == BOTH
    (stamped / "sweep/product.py").unlink()
    assert holding(stamped) == set()


def test_a_stamp_hides_no_failure_and_a_failing_stage_earns_none(stamped: Path) -> None:
    before = stamps(stamped)
    (stamped / "sweep/product.py").write_text("wrong\n")
    assert "test_product FAILED" in stage(stamped, exits=1)
    commit(stamped)
    assert "test_product FAILED" in stage(stamped, "write", exits=1)
    assert stamps(stamped) == before
    assert "test_product FAILED" in stage(stamped, exits=1)


def test_ignored_stamps_run_everything(stamped: Path) -> None:
    assert "3 passed, 1 deselected" in stage(stamped, "ignore")
    assert "must be one of use, ignore, write; got 'yes'" in stage(stamped, "yes", exits=4)


def test_stamps_are_written_on_a_clean_tree_alone(stamped: Path) -> None:
    stamped.joinpath("docs/page.md").write_text("# Changed\n")
    said = stage(stamped, "write", exits=4)
    assert "commit or remove first" in said
    assert "docs/page.md" in said


@pytest.mark.parametrize("part", [("-k", "always"), ("tests/test_other.py",)])
def test_stamps_are_of_a_whole_stage(stamped: Path, part: tuple[str, ...]) -> None:
    before = (stamped / ".ci/stamps.json").read_text()
    assert "stamps are of a whole stage" in stage(stamped, "write", 4, *part)
    assert (stamped / ".ci/stamps.json").read_text() == before


def test_a_tree_that_changes_while_the_stage_runs_earns_none(stamped: Path) -> None:
    story = stamped / "tests/test_story.py"
    itself = "pathlib.Path(__file__).write_text('def test_product(): assert False')"
    story.write_text(STORY + f"\n@pytest.mark.slow\ndef test_self():\n    {itself}\n")
    commit(stamped)
    before = (stamped / ".ci/stamps.json").read_text()
    assert "the tree changed while the stage ran" in stage(stamped, "write", 4)
    assert (stamped / ".ci/stamps.json").read_text() == before


def test_a_story_that_was_skipped_in_part_has_not_passed(stamped: Path) -> None:
    (stamped / "tests/test_other.py").write_text(OTHER.format("pytest.skip('no data')"))
    commit(stamped)
    stage(stamped, "write")
    assert set(stamps(stamped)) == {"tests/test_story.py"}


def test_pages_that_stories_or_their_support_read_are_covered() -> None:
    files = [ROOT / f for f in listed_files() if f.parts[0] == "tests" and f.suffix == ".py"]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    read = {
        f"docs/{page}"
        for file, text in texts.items()
        if not file.name.startswith("test_") or re.search(r"mark\.(slow|cluster)\b", text)
        for page in re.findall(r'/ "docs(?:/|" / ")([\w-]+\.md)"', text)
    }
    assert read == set(READ)


def test_benchmarks_that_shared_test_code_imports_are_covered_by_all() -> None:
    modules = {str(f): (ROOT / f).read_text() for f in listed_files() if f.suffix == ".py"}
    shared = [f for f in modules if f.startswith("tests/") and "/test_" not in f]
    reached: set[str] = set()
    ahead = {f for f in shared if "benchmarks" in modules[f]}
    while ahead:
        imported = {
            f"{name.replace('.', '/')}.py"
            for f in ahead
            for name in re.findall(r"^\s*(?:from|import) (benchmarks[\w.]*)", modules[f], re.M)
        }
        ahead = (imported & set(modules)) - reached
        reached |= ahead
    assert "benchmarks/landscape/landscape.py" in reached
    assert {f for f in reached if not any(fnmatch(f, of) for of in OF_ALL)} == set()


def test_the_stages_of_this_project_use_them() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "-p tests.support.stamps --stage slow" in makefile
    assert "-p tests.support.stamps --stage cluster" in makefile
