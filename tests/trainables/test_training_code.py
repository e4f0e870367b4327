"""Digest of the code that trains an arm: what changes it, and that it is of all that trains."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.oracles import TINY
from tests.support.plugins.plugin_packages import write_package
from trainables.environment import changed_since
from trainables.records.arm_record import UNKNOWN_CODE, ArmRecord, code_text
from trainables.registry import lookup
from trainables.registry import training_code as code_module
from trainables.registry.training_code import DECIDES_NOTHING, training_code, training_modules

LINEAR = """
from trainables.registry import ModelSpec

MINE = ModelSpec(task="video_denoising", build=lambda config, task: None)
"""
Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """``install(code)``: the package acme-sweep of that one module brings the model mine."""

    def forget() -> None:
        lookup._entry_points.cache_clear()
        lookup._loaded.cache_clear()
        for name in [name for name in sys.modules if name.startswith("acme")]:
            del sys.modules[name]

    def installed(code: str) -> Path:
        points = {"models": {"mine": "acme_sweep:MINE"}}
        folder = write_package(tmp_path, "acme-sweep", "1.0", points, {"acme_sweep.py": code})
        monkeypatch.syspath_prepend(folder)
        forget()
        return folder

    yield installed
    forget()


def digest(tmp_path: Path, text: str) -> str:
    file = tmp_path / "module.py"
    file.write_text(text)
    return code_module._read(file).digest


FILE = '"""What it is."""\n\ndef half(x):\n    """Half of it."""\n    return x / 2  # why\n'


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        (FILE.replace("# why", "# because"), True),
        (FILE.replace("What it is", "Another line"), True),
        (FILE.replace("Half of it", "A half"), True),
        (FILE.replace("x / 2", "(x /\n            2)"), True),
        (FILE.replace("/ 2", "/ 3"), False),
        (FILE.replace("/ 2", "/ 2.0"), False),
        (FILE + "\nWIDTH = 64\n", False),
        ("def half(x) return", False),  # none of Python's: its bytes count
    ],
)
def test_what_moves_no_number_changes_no_digest(tmp_path: Path, text: str, is_same: bool) -> None:
    assert (digest(tmp_path, text) == digest(tmp_path, FILE)) == is_same


def test_the_words_of_an_error_count_for_nothing(tmp_path: Path) -> None:
    text = 'def f(x):\n    require(x > 0, "x", x, "above 0")\n    raise ValueError(f"got {x}")\n'
    same = text.replace("above 0", "more than 0").replace("got", "was")
    assert digest(tmp_path, same) == digest(tmp_path, text)
    assert digest(tmp_path, text.replace("x > 0", "x > 1")) != digest(tmp_path, text)


@pytest.mark.long("it trains an arm in a process of its own")
def test_the_digest_is_of_every_module_that_training_loads(tmp_path: Path) -> None:
    program = (
        "import json, sys\n"
        "from tests.support.oracles import TINY\n"
        "from trainables.arm_run import ArmRun\n"
        "from trainables.records.arms import ArmStore\n"
        "from trainables.records.objects import ObjectStore\n"
        f"run = ArmRun(TINY, ArmStore(ObjectStore({str(tmp_path)!r})))\n"
        "while not run.advance().is_final:\n    pass\n"
        "assert run.record.status == 'finished', run.record.reason\n"
        "print(json.dumps([m for m in sys.modules if m.split('.')[0] == 'trainables']))\n"
    )
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    covered = training_modules(TINY.task, TINY.model.name, TINY.data.name)
    left = {m for m in loaded - covered if not m.startswith(DECIDES_NOTHING)}
    packages = {m for m in left if (Path(*m.split(".")) / "__init__.py").is_file()}
    assert not {m for m in packages if Path(*m.split("."), "__init__.py").stat().st_size > 1000}
    assert left == packages


def test_other_kinds_of_arms_are_of_other_files() -> None:
    video = training_modules("video_denoising", "ut", "photographs")
    assert not {m for m in video if "imdb" in m or "decoder" in m or "text_classification" in m}
    assert "trainables.models.ut" in video
    assert not {m for m in video if m.startswith("sweep")}


def test_a_plug_ins_digest_follows_its_code_and_not_its_version(install: Install) -> None:
    folder = install(LINEAR)
    of = ("video_denoising", "mine", "photographs")
    before = training_code(*of)
    assert set(before) == {"trainables", "model mine"}
    module = folder / "acme_sweep.py"
    module.write_text(LINEAR + "\n# a remark\n")
    assert training_code(*of) == before
    module.write_text(LINEAR + "\nWIDTH = 64\n")
    assert training_code(*of) != before


def test_modules_beside_a_plug_in_count_where_it_imports_them(
    tmp_path: Path, install: Install
) -> None:
    (tmp_path / "acme_layers.py").write_text("WIDTH = 32\n")
    folder = install("import acme_layers\n" + LINEAR)
    (folder / "acme_other.py").write_text("WIDTH = 32\n")
    of = ("video_denoising", "mine", "photographs")
    before = training_code(*of)
    (folder / "acme_other.py").write_text("WIDTH = 64\n")
    assert training_code(*of) == before
    (folder / "acme_layers.py").write_text("WIDTH = 64\n")
    assert training_code(*of) != before


def test_a_process_says_what_it_loaded_where_the_file_was_changed_since(
    install: Install,
) -> None:
    folder = install(LINEAR)
    of = ("video_denoising", "mine", "photographs")
    loaded = training_code(*of, as_loaded=True)
    (folder / "acme_sweep.py").write_text(LINEAR + "\nWIDTH = 64\n")
    assert training_code(*of, as_loaded=True) == loaded
    assert training_code(*of) != loaded


def test_a_record_says_its_code_and_that_it_was_resumed_by_another() -> None:
    record = ArmRecord(signature="a", config=TINY)
    assert record.code == ""
    record.environment = {"code": "0.1.0+aa"}
    assert record.code == UNKNOWN_CODE
    record.environment = {"training_code": {"trainables": "1a"}}
    assert record.code == "trainables 1a"
    record.environment = {"training_code": {"trainables": "2b"}, "before": record.environment}
    assert record.code == "trainables 1a, then trainables 2b"
    assert code_text({"trainables": "1a", "model m": "2b"}) == "model m 2b, trainables 1a"


def test_the_files_that_changed_since_a_commit_are_named(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=b", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    inside = tmp_path / "package"
    inside.mkdir()
    for place in (inside / "a.py", inside / "b.py", tmp_path / "c.py", inside / "d.md"):
        place.write_text("1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    first = git("rev-parse", "HEAD")
    assert changed_since(first, inside) == []
    (inside / "a.py").write_text("2\n")
    git("commit", "-am", "two")
    for place in (inside / "b.py", tmp_path / "c.py", inside / "d.md"):
        place.write_text("2\n")
    assert changed_since(first, inside) == ["a.py", "b.py"]
    assert changed_since("0" * 40, inside) == []
    assert changed_since(first, tmp_path / "none") == []
