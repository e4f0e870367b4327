"""Stamps of stories: a file of slow tests that passed is skipped while nothing it covers changes.

A plug-in of pytest, which `make slow` and `make cluster` load with `-p tests.support.stamps --stage
NAME`; without it nothing is ever skipped. `.ci/stamps.json` has for each file of a stage the digest
of all that it covers, the commit at which it passed, how many tests, and how long they took. Where
that digest is today's, its tests are left out, and a line says since when nothing has changed.
Tests marked `always` run all the same. SWEEP_STAMPS says what to do:

    use      as above; the default
    ignore   run everything
    write    run everything; after a pass of the whole stage, on a clean tree that stayed as it was
             while it ran, write its stamps anew
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections import defaultdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

MODES = ("use", "ignore", "write")
STAMPS = Path(".ci/stamps.json")
# What no story covers: pages that none reads, what starts it, figures that benchmarks left, what a
# release has besides, and other tests (no test imports another). All else that git lists or would
# list is covered: product, support, data, pins.
NOT_COVERED = (
    "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "docs/conf.py", "docs/pictures/*", ".ci/*",
    ".gitignore", ".pre-commit-config.yaml", "benchmarks/results/*", "benchmarks/*.md",
    "tests/test_*.py", "tests/*/test_*.py", "CITATION.cff", "CODE_OF_CONDUCT.md", "SECURITY.md",
    ".github/*", ".devcontainer/*", "Dockerfile",
)  # fmt: skip
# Covered by the tests that have the word; of benchmarks the others cover what shared test code
# imports.
NAMED = {b"benchmarks": "benchmarks/*", b"README": "README.md"}
OF_ALL = ("benchmarks/imitated/*", "benchmarks/landscape/*", "benchmarks/trained.py")
# Its schemas are named; its package is installed and trained; its words stand on the report.
READ = ("docs/json.md", "docs/plugins.md", "docs/words.md")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stage", required=True, help="whose stamps are used and written")


def pytest_configure(config: pytest.Config) -> None:
    mode = os.environ.get("SWEEP_STAMPS", MODES[0])
    if mode not in MODES:
        raise pytest.UsageError(f"SWEEP_STAMPS must be one of {', '.join(MODES)}; got {mode!r}.")
    if mode == "write" and (changed := _changed(config.rootpath)):
        raise pytest.UsageError(f"stamps are of a commit; commit or remove first:\n{changed}")
    narrowed = config.args_source is pytest.Config.ArgsSource.ARGS or any(
        config.getoption(option, None) for option in ("keyword", "lf", "deselect", "ignore")
    )
    if mode == "write" and narrowed and not hasattr(config, "workerinput"):
        raise pytest.UsageError("stamps are of a whole stage: no paths, no -k, no --lf")
    config.pluginmanager.register(Stamps(config.rootpath, config.getoption("--stage"), mode))


class Stamps:
    """The stamps of one stage: those that hold today, and those that this pass earns.

    Attributes:
        holding: stamps that hold today, by file.
    """

    def __init__(self, root: Path, stage: str, mode: str) -> None:
        self._root, self._stage, self._mode = root, stage, mode
        self._shared = _digest_of(root, NOT_COVERED + tuple(NAMED.values()), READ + OF_ALL)
        self._named = {
            word: _digest_of(root, NOT_COVERED, READ, among=pattern)
            for word, pattern in NAMED.items()
        }
        self._commit = _git(root, "rev-parse", "HEAD") if mode == "write" else ""
        self.holding = {
            file: stamp
            for file, stamp in (_stored(root).get(stage, {}) if mode == "use" else {}).items()
            if stamp["digest"] == self._digest(file)
        }
        self._seconds: dict[str, float] = defaultdict(float)
        self._passed: dict[str, int] = defaultdict(int)
        self._incomplete: set[str] = set()

    def pytest_report_header(self) -> list[str]:
        return [
            f"unchanged since {stamp['commit'][:9]}, passed there ({stamp['tests']} tests, "
            f"{stamp['seconds']:.0f} s): {file}"
            for file, stamp in self.holding.items()
        ]

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        stamped = [
            item
            for item in items
            if _file(item.nodeid) in self.holding and item.get_closest_marker("always") is None
        ]
        if stamped:
            config.hook.pytest_deselected(items=stamped)
            items[:] = [item for item in items if item not in stamped]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = _file(report.nodeid)
        self._seconds[file] += report.duration
        if report.skipped:  # where its data or its programs are missing, it has not passed
            self._incomplete.add(file)
        elif report.when == "call":
            self._passed[file] += 1

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        is_worker = hasattr(session.config, "workerinput")  # of pytest-xdist; its controller writes
        if self._mode != "write" or exitstatus != pytest.ExitCode.OK or is_worker:
            return
        if _changed(self._root) or _git(self._root, "rev-parse", "HEAD") != self._commit:
            raise pytest.UsageError("no stamps: the tree changed while the stage ran")
        stage = {
            file: {
                "digest": self._digest(file),
                "commit": self._commit,
                "tests": tests,
                "seconds": round(self._seconds[file], 1),
            }
            for file, tests in sorted(self._passed.items())
            if file not in self._incomplete
        }
        text = json.dumps({**_stored(self._root), self._stage: stage}, indent=2, sort_keys=True)
        (self._root / STAMPS).write_text(text + "\n", encoding="utf-8")

    def _digest(self, file: str) -> str:
        """SHA-256 of what a story covers: what all cover, and its own file."""
        path = self._root / file
        own = path.read_bytes() if path.is_file() else b""
        named = b"".join(digest for word, digest in self._named.items() if word in own)
        return hashlib.sha256(self._shared + named + own).hexdigest()


def _changed(root: Path) -> str:
    """What git calls changed, but for the stamps themselves."""
    return _git(root, "status", "--porcelain", ".", f":!{STAMPS}")


def _stored(root: Path) -> dict[str, Any]:
    path = root / STAMPS
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _digest_of(
    root: Path, left_out: tuple[str, ...], kept: tuple[str, ...], *, among: str = "*"
) -> bytes:
    """SHA-256 of the Python version and of every covered file's name and content."""
    names = _git(root, "ls-files", "-co", "--exclude-standard", "-z").split("\0")
    digest = hashlib.sha256(platform.python_version().encode())
    for name in sorted(filter(None, set(names))):
        path = root / name
        is_covered = _is_one_of(name, kept) or not _is_one_of(name, left_out)
        if is_covered and fnmatch(name, among) and path.is_file():
            digest.update(f"\0{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def _is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _git(root: Path, *words: str) -> str:
    ran = subprocess.run(("git", *words), cwd=root, check=True, capture_output=True, text=True)
    return ran.stdout.strip()
