"""The command line as a whole: its verbs and options, and what it says to bad input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sweep.cli.main import VERBS, main
from tests.support.command_line import refused, sweep
from trainables.records.objects import ObjectStore

# --- the surface ----------------------------------------------------------------------------------


def helps(command: click.Command, words: list[str]) -> Iterator[str]:
    yield CliRunner().invoke(main, [*words, "--help"], prog_name="sweep", terminal_width=100).output
    if isinstance(command, click.Group):
        for name in VERBS:
            yield from helps(loaded(name), [*words, name])


def loaded(verb: str) -> click.Command:
    found = main.get_command(click.Context(main), verb)
    assert found is not None
    return found


def test_verbs_and_options_are_those_that_were_reviewed(
    golden: Callable[[str, str], None],
) -> None:
    golden("help.txt", "\n".join(helps(main, [])))


def test_the_verbs_are_those_of_the_design() -> None:
    replication = (
        "spaces init run submit status logs stop resume list best reproduce confirm export report"
    )
    around = "ui sync register answers rm doctor completion"
    assert set(VERBS) == {*replication.split(), *around.split()}


def test_a_mistyped_verb_is_refused_with_what_was_meant() -> None:
    assert "Did you mean 'best'?" in refused("bset", "quickstart")


def test_help_of_a_verb_is_asked_for_either_way() -> None:
    assert sweep("help", "best").stdout == sweep("best", "--help").stdout
    assert sweep("help").stdout == sweep("--help").stdout
    assert "No such command 'bset'" in refused("help", "bset")


def test_help_is_whole_sentences() -> None:
    """What `sweep --help` says of a verb is the first sentence of its own help; none is cut."""
    overview = sweep("--help").stdout
    for verb, (_, summary) in VERBS.items():
        help_text = loaded(verb).help or ""
        assert " ".join(help_text.partition("\n\n")[0].split()) == summary, verb
        assert summary in " ".join(overview.split())
        described = [getattr(option, "help", None) for option in loaded(verb).params]
        for text in (help_text, *filter(None, described)):
            assert text.strip().endswith((".", ")")), (verb, text)
    every = "\n".join(helps(main, []))
    assert [
        line for line in every.splitlines() if line.endswith("...") and "Usage" not in line
    ] == []


def test_the_overview_loads_no_verb_and_the_list_of_spaces_reads_no_store() -> None:
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from sweep.cli.main import main\n"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0\n"
        "loaded = {m for m in sys.modules if m.startswith('sweep.cli.')} - {'sweep.cli.main'}\n"
        "print(*loaded, *{'rich'} & set(sys.modules))\n"
        "assert CliRunner().invoke(main, ['spaces']).exit_code == 0\n"
        "print(*sorted({'numpy', 'pyarrow', 'sweep.results.sweep_view'} & set(sys.modules)))\n"
    )
    folder = Path(__file__).parents[3]
    ran = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout.split()) == (0, []), ran.stderr


def test_every_reading_verb_has_json() -> None:
    for verb in ("spaces", "list", "status", "best", "reproduce", "confirm", "doctor"):
        assert any("--json" in option.opts for option in loaded(verb).params), verb


def test_reading_verbs_load_no_heavy_library(stored: ObjectStore) -> None:
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from sweep.cli.main import main\n"
        "for words in (['spaces'], ['list'], ['status', 'tiny'], ['best', 'tiny']):\n"
        "    result = CliRunner().invoke(main, words)\n"
        "    assert result.exit_code == 0, result.output\n"
        "print(*sorted({'torch', 'ray', 'mlflow', 'optuna', 'pandas'} & set(sys.modules)))\n"
    )
    folder = Path(__file__).parents[3]
    ran = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == []


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rnu", "quickstart"), "Did you mean 'run'"),
        (("run", "quickstart", "--proposal", "3"), "Did you mean '--proposals'"),
        (("run",), "Missing argument 'SPACE'"),
        (("best", "a", "b"), "extra argument (b). Call `sweep best` once for each."),
        (("run", "quickstrat"), "Did you mean 'quickstart'"),
        (("run", "gone.py"), "does not exist"),
        (("run", "quickstart", "--set", "stpes=3"), "Did you mean 'steps'"),
        (("run", "quickstart", "--set", "alpha=0.2"), "Did you mean 'constraint.alpha'?"),
        (("run", "quickstart", "--set", "steps"), "--set must be FIELD=VALUE"),
        (("run", "quickstart", "--set", "steps=3", "--set", "steps=4"), "given twice"),
        (("run", "quickstart", "--set", "steps=-3"), "steps must be positive, got -3"),
        (("run", "quickstart", "--set", "constraint.scale=x"), "'schedule', 'none', got 'x'"),
        (("run", "quickstart", "--set", "data.name=avenue"), "is fixed by the settings"),
        (("run", "quickstart", "--seeds", "x"), "--seeds must be a count"),
        (("run", "quickstart", "--seeds", "1,1"), "must be different"),
        (("run", "quickstart", "--seeds", "0"), "1 to 1000 seeds"),
        (("run", "quickstart", "--seeds", "\u00b2"), "--seeds must be a count"),
        (("run", "quickstart", "--seeds", "\u0663"), "--seeds must be a count"),
        (("run", "quickstart", "--set", "sampler=3"), "unknown sampler '3'"),
        (("run", "quickstart", "--set", "sampler=null"), "unknown sampler 'None'"),
        (("run", "quickstart", "--set", "sampler_seed=x"), "sampler_seed must be a whole number"),
        (("run", "quickstart", "--set", "n_proposals=true"), "n_proposals must be a whole number"),
        (("run", "quickstart", "--set", "n_proposals=2.5"), "n_proposals must be a whole number"),
        (("run", "quickstart", "--set", "search_seeds=[true]"), "list of whole numbers"),
        (("run", "quickstart", "--storage", "foo://bar"), "'foo://bar' is no storage root"),
        (("run", "quickstart", "--storage", ""), "'' is no storage root"),
        (("list", "--storage", "foo://bar"), "'foo://bar' is no storage root"),
        (("doctor", "--storage", "foo://bar"), "'foo://bar' is no storage root"),
        (("list", "--storage", "~nobody.of.this.name/x"), "x' is no storage root"),
        (("list", "--storage", "x" * 300), "is no storage root"),
        (("run", "quickstart", "--name", ""), "a sweep's name must be"),
        (("run", "quickstart", "--data", "/nope"), "photographs is built in and reads no folder"),
        (("run", "quickstart", "--proposals", "0"), "n_proposals must be at least 1"),
        (("run", "quickstart", "--name", "../x"), "a sweep's name must be"),
        (("run", "quickstart", "--where", "moon"), "not one of 'local', 'cluster', 'inline'"),
        (("run", "quickstart", "--workers", "0"), "0 is not in the range x>=1"),
        (("run", "quickstart", "--full"), "Run it without --full"),
        (("run", "quickstart", "--mlflow", "folder"), "an MLflow address must be like"),
        (("run", "quickstart", "--mlflow", "foo://bar"), "must begin with one of http, https"),
        (("run", "quickstart", "--mlflow", ""), "an MLflow address must be like"),
        (("run", "quickstart", "--mlflow", "http://me:secret@host"), "must be without a password"),
        (("status", "gone"), "unknown sweep 'gone'"),
        (("best", "gone", "--json"), "unknown sweep 'gone'"),
        (("resume", "gone"), "unknown sweep 'gone'"),
        (("stop", "gone"), "unknown sweep 'gone'"),
        (("rm", "gone", "--yes"), "unknown sweep 'gone'"),
        (("sync", "gone"), "unknown sweep 'gone'"),
        (("export", "gone", "--out", "x"), "unknown sweep 'gone'"),
        (("answers", "gone", "--out", "x"), "unknown sweep 'gone'"),
        (("export", "gone"), "Missing option '--out'"),
        (("submit", "quickstart"), "no cluster is named"),
        (("logs", "gone"), "no cluster is named"),
        (("submit", "quickstart", "--address", "gone.yaml"), "must be the URL"),
        (("status", "gone", "--address", "head"), "must be the URL"),
        (
            ("resume", "gone", "--address", "http://h", "--where", "inline"),
            "--where must be cluster with --address, got inline",
        ),
        (
            ("resume", "gone", "--address", "http://h", "--data", "data"),
            "absolute path on its nodes, got 'data'",
        ),
        (
            ("resume", "gone", "--address", "http://h", "--data", "hf:imdb"),
            "--data must be a folder here, got hf:imdb",
        ),
        (
            ("submit", "ped2_ut", "--address", "http://h", "--data", "data"),
            "absolute path on its nodes, got 'data'",
        ),
        (
            ("submit", "quickstart", "--address", "http://h", "--mlflow", "http://me:secret@host"),
            "must be without a password",
        ),
        (
            ("submit", "quickstart", "--address", "http://h", "--mlflow", "sqlite:///mlflow.db"),
            "must be absolute",
        ),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    root: Path, words: tuple[str, ...], message: str
) -> None:
    assert message in refused(*words)
    assert not root.exists()


def test_a_storage_behind_a_link_to_nowhere_is_refused_and_not_made(tmp_path: Path) -> None:
    (tmp_path / "disk").symlink_to(tmp_path / "unmounted")
    for root in ("disk", "disk/sweeps"):
        for words in (("run", "quickstart"), ("list",)):
            said = refused(*words, "--storage", str(tmp_path / root))
            assert f"{tmp_path / 'disk'} is a link to {tmp_path / 'unmounted'}" in said
    assert not (tmp_path / "unmounted").exists()


@pytest.mark.parametrize("words", [("run", "quickstart"), ("resume", "tiny")])
def test_another_torch_trains_nothing(
    words: tuple[str, ...], stored: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would train to other numbers, beside those that are stored."""
    (tmp_path / "torch-2.0.1.dist-info").mkdir()
    (tmp_path / "torch-2.0.1.dist-info/METADATA").write_text("Name: torch\nVersion: 2.0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    said = sweep(*words, exits=1).stderr
    assert "torch must be ==" in said
    assert "got 2.0.1" in said
    assert "pip install 'torch==" in said


@pytest.mark.slow
def test_a_password_in_an_address_is_never_repeated(root: Path) -> None:
    for address in (
        "http://me:secret@host:1",
        "me:secret@host",
        "postgresql://h/d?password=secret",
    ):
        for words in (("run", "quickstart"), ("doctor",)):
            result = CliRunner().invoke(main, [*words, "--mlflow", address])
            assert result.exit_code in (1, 2)
            assert "secret" not in result.output
    assert not root.exists()


def test_a_failure_of_the_world_exits_1_without_a_traceback(stored: ObjectStore) -> None:
    Path(stored.root, "sweeps", "tiny", "definition.json").write_text("damaged")
    result = sweep("status", "tiny", exits=1)
    assert result.stderr.startswith("sweep: ")
    assert "is damaged" in result.stderr
    assert "Traceback" not in result.output


def test_a_process_of_its_own_collects_seldom_and_not_at_its_end() -> None:
    code = """
import atexit, gc, sys
atexit.register(lambda: print(gc.get_freeze_count() > 10_000, gc.get_threshold()[0]))
from sweep.cli.__main__ import program
sys.argv = ["sweep", "--version"]
program()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    version, end = ran.stdout.splitlines()
    assert version.startswith("sweep, version ")
    assert end == "True 50000"
    assert ran.returncode == 0
