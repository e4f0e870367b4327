"""Digest of the code that trains an arm: what changes it, and that it is of all that trains."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.oracles import TINY
from tests.support.plugins.plugin_packages import write_package
from tests.support.training.trials import told
from trainables.config.arm import ModelConfig
from trainables.environment import changed_since
from trainables.records.arm_record import UNKNOWN_CODE, ArmRecord, code_text
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.registry import find_plugins
from trainables.registry import training_code as digests
from trainables.registry.training_code import DECIDES_NOTHING, TRAINING, training_code
from trainables.trial import PROBLEM, STORE_PROBLEM, ArmTrial

LINEAR = """
from trainables.registry import ModelSpec

MINE = ModelSpec(task="video_denoising", build=lambda config, task: None)
"""
OF = ("video_denoising", "mine", "photographs")
Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """``install(code)``: the package acme-sweep of that one module brings the model mine."""

    def forget() -> None:
        find_plugins._entry_points.cache_clear()
        find_plugins._loaded.cache_clear()
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


def training_modules(task: str, model: str, data: str) -> set[str]:
    """Modules of this project that the digest of an arm of built-in parts covers."""
    group = find_plugins.task_spec(task).facts.data_group
    roots = set(TRAINING)
    roots |= digests._modules_of("tasks", task, find_plugins.task_spec(task))
    roots |= digests._modules_of("models", model, find_plugins.model_spec(model))
    roots |= digests._modules_of(group, data, find_plugins.data_set_spec(group, data))
    return {line.partition(" ")[0] for line in digests._of_ours(frozenset(roots))}


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
    before = training_code(*OF)
    assert set(before) == {"trainables", "model mine"}
    module = folder / "acme_sweep.py"
    module.write_text(LINEAR + "\n# a remark\n")
    assert training_code(*OF) == before
    module.write_text(LINEAR + "\nWIDTH = 64\n")
    assert training_code(*OF) != before


def test_modules_beside_a_plug_in_count_where_it_imports_them(
    tmp_path: Path, install: Install
) -> None:
    (tmp_path / "acme_layers.py").write_text("WIDTH = 32\n")
    folder = install("import acme_layers\n" + LINEAR)
    (folder / "acme_other.py").write_text("WIDTH = 32\n")
    before = training_code(*OF)
    (folder / "acme_other.py").write_text("WIDTH = 64\n")
    assert training_code(*OF) == before
    (folder / "acme_layers.py").write_text("WIDTH = 64\n")
    assert training_code(*OF) != before


def test_a_process_says_what_it_loaded_where_the_file_was_changed_since(
    install: Install,
) -> None:
    folder = install(LINEAR)
    loaded = training_code(*OF, as_loaded=True)
    (folder / "acme_sweep.py").write_text(LINEAR + "\nWIDTH = 64\n")
    assert training_code(*OF, as_loaded=True) == loaded
    assert training_code(*OF) != loaded


def trial(objects: ObjectStore, codes: list[str]) -> ArmTrial:
    """One of an arm of the model mine, for a driver with this code."""
    return ArmTrial(
        config=told(replace(TINY, model=ModelConfig(name="mine")), objects.root, codes=codes)
    )


def test_a_worker_that_loaded_the_drivers_plug_in_trains_with_it_after_an_edit(
    install: Install, objects: ObjectStore
) -> None:
    folder = install(LINEAR)
    driver = code_text(training_code(*OF))
    training_code(*OF, as_loaded=True)  # as its last arm did
    (folder / "acme_sweep.py").write_text(LINEAR + "\nWIDTH = 64\n")
    assert code_text(training_code(*OF)) != driver
    assert trial(objects, [driver]).step().get(PROBLEM) is None
    [signature] = objects.names("arms")
    record = ArmStore(objects).record(signature)
    assert record is not None
    assert record.code == driver


def test_a_worker_with_another_plug_in_trains_nothing_unless_any_is_accepted(
    install: Install, objects: ObjectStore
) -> None:
    install(LINEAR)
    driver = code_text({**training_code(*OF), "model mine": "0"})
    result = trial(objects, [driver]).step()
    assert result[STORE_PROBLEM]
    for part in ("has a plug-in's code", driver, "--accept-code", socket.gethostname()):
        assert part in result[PROBLEM]
    assert objects.names("arms") == []
    assert trial(objects, []).step().get(PROBLEM) is None


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
