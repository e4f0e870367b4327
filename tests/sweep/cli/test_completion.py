"""Shell completion: verbs, sweeps, spaces, settings and cells; silent, and without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from search_spaces.catalog import find, space_names
from sweep.cli.main import main
from tests.support.command_line import refused, sweep
from tests.support.sweeps import FIRST, SECOND
from trainables.records.objects import ObjectStore

FOLDER = Path(__file__).parents[3]


def completed(*words: str, begun: str = "") -> list[str]:
    """Names that a shell is given after these words."""
    items = ShellComplete(main, {}, "sweep", "_SWEEP_COMPLETE").get_completions(list(words), begun)
    return [item.value for item in items if item.type == "plain"]


def test_verbs_and_options_are_completed() -> None:
    assert completed(begun="re") == ["resume", "reproduce", "report", "register"]
    assert completed("best", begun="--f") == ["--full"]


@pytest.mark.parametrize("verb", ["status", "stop", "resume", "best", "export", "ui", "sync", "rm"])
def test_names_of_sweeps_are_those_of_the_storage_root(stored: ObjectStore, verb: str) -> None:
    assert completed(verb) == ["tiny"]
    assert completed(verb, begun="x") == []


def test_the_storage_of_the_line_is_looked_at(stored: ObjectStore, tmp_path: Path) -> None:
    assert completed("best", "--storage", str(tmp_path / "other")) == []
    assert completed("best", "--storage", stored.root) == ["tiny"]


def test_settings_are_those_of_the_sweep_or_the_space(stored: ObjectStore) -> None:
    assert completed("best", "tiny", "--only") == [FIRST, SECOND]
    assert completed("best", "tiny", "--only", FIRST, "--only", begun=SECOND) == [SECOND]
    settings = [setting.name for setting in find("ped2_ut").space.settings]
    for verb in ("run", "spaces", "doctor"):
        assert completed(verb, "ped2_ut", "--only") == settings


def test_spaces_are_completed_and_files_where_none_begins_so() -> None:
    assert completed("run") == space_names()
    items = ShellComplete(main, {}, "sweep", "_X").get_completions(["run"], "my_sp")
    assert [(item.type, item.value) for item in items] == [("file", "my_sp")]


def test_cells_are_settings_and_their_arms(stored: ObjectStore) -> None:
    assert completed("reproduce", "tiny", begun=f"{SECOND}/") == [
        f"{SECOND}/constrained",
        f"{SECOND}/unconstrained",
    ]


@pytest.mark.parametrize("storage", ["foo://bar", "", "/proc/none"])
def test_it_is_silent_whatever_is_wrong(
    storage: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)  # where no sweeps of the user's own lie
    monkeypatch.setenv("SWEEP_STORAGE", storage)
    for words in (["best"], ["best", "gone", "--only"], ["run", "gone", "--only"], ["reproduce"]):
        assert not set(completed(*words)) - {"quickstart"}
    assert capfd.readouterr() == ("", "")


def test_a_cluster_is_not_asked(stored: ObjectStore) -> None:
    assert completed("best", "--address", "http://127.0.0.1:1") == []


def test_it_loads_no_heavy_library(stored: ObjectStore) -> None:
    code = (
        "import sys\n"
        "from click.shell_completion import ShellComplete\n"
        "from sweep.cli.main import main\n"
        "complete = ShellComplete(main, {}, 'sweep', '_X').get_completions\n"
        "for words in (['best'], ['best', 'tiny', '--only'], ['run'], ['reproduce', 'tiny']):\n"
        "    assert complete(words, ''), words\n"
        "print(*sorted({'torch', 'ray', 'mlflow', 'optuna', 'pandas'} & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout.split()) == (0, []), ran.stderr


def test_a_shell_without_completion_is_refused() -> None:
    assert "is not one of 'bash', 'zsh', 'fish'" in refused("completion", "tcsh")
    for shell, word in (("zsh", "#compdef sweep"), ("fish", "complete --no-files")):
        assert word in sweep("completion", shell).stdout


@pytest.mark.slow
def test_bash_completes_by_the_script(stored: ObjectStore, tmp_path: Path) -> None:
    verb = tmp_path / "sweep"
    verb.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from sweep.cli.main import main; '
                    'main(prog_name=\'sweep\')" "$@"\n')  # fmt: skip
    verb.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(sweep("completion", "bash").stdout)
    line = (
        f"source {script}; COMP_WORDS=(sweep best tiny --only {SECOND}); COMP_CWORD=4; "
        f'_sweep_completion {verb}; echo "${{COMPREPLY[@]}}"'
    )
    there = {**os.environ, "PYTHONPATH": str(FOLDER)}
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=there)
    assert (ran.stdout, ran.stderr) == (f"{SECOND}\n", "")
