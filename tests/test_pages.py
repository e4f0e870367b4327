"""Commands of README and docs: taken by the command line, or marked with why no test runs them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from search_spaces import catalog
from sweep.cli.main import main
from sweep.cli.sweep_options import SweepRequest
from tests.support.command_line import sweep
from tests.support.sweeps import FEASIBLE, FIRST, store_sweep
from trainables import retries
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.unit_scores import UnitScores, at_gamma

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```([^`\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(sweep [^`\n]+)`")
INDENTED = re.compile(r"^ {4}(sweep .+)$", re.MULTILINE)
# Why the commands of these programs run in no test of ours.
NOT_RUN = {
    ".": "sets up the shell",
    "export": "sets up the shell",
    "make": "the stages of .ci/run",
    "python3": "sets up the environment",
    "pip": "network",
    "python": "what pip fetched",
    "hf": "network",
    "aws": "network",
    "ray": "cluster",
    "kubectl": "cluster",
    "ssh-keygen": "cluster",
    "sudo": "cluster",
    "nano": "an editor",
    "(umask": "cluster",
}
# Verbs keep the help option that they are first asked for: it must be the program's.
ABOVE = click.Context(main, info_name="sweep", **main.context_settings)
SHOWS = ("best", "status", "export")  # run on a sweep of the name that the page gives
OF_INIT = ("my_clips.py", "my_texts.py", "my_net/my_net_space.py")  # spaces that it writes
# What pages call a space of the user's own: texts in docs/text.md, else video.
MY_SPACE = """
from dataclasses import replace
from search_spaces.{} import SPACE as OTHER
from search_spaces.space import Setting
SPACE = replace(OTHER, name="mine", settings=(Setting("only", {{}}),))
"""


def lines_of(page: Path) -> Iterator[str]:
    for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language:  # what is no command says what it is
            continue
        yield from filter(None, block.replace("\\\n", " ").splitlines())


def commands(program: str) -> list[tuple[str, str]]:
    """The pages' commands of ``sweep``, or with '' those of all other programs."""
    found = [(page.name, line) for page in PAGES for line in lines_of(page)]
    return [(page, line) for page, line in found if line.startswith("sweep ") == bool(program)]


def verb_of(name: str) -> click.Command:
    command = main.get_command(ABOVE, name)
    assert command is not None, name
    return command


@pytest.mark.parametrize(("page", "line"), commands("sweep"))
def test_a_command_of_a_page_is_one_that_the_command_line_takes(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SWEEP_STORAGE")
    kind = "minilm_imdb" if page == "text.md" else "quickstart"
    Path("my_net").mkdir()
    for own in ("my_space.py", *OF_INIT):
        Path(own).write_text(MY_SPACE.format(kind))
    _, verb, *words = shlex.split(line.partition(" > ")[0], comments=True)
    given = verb_of(verb).make_context(verb, list(words), parent=ABOVE).params
    space = given.get("space")
    if space is not None and not space.startswith("results/"):  # what the page exported before
        catalog.find(space)
        if verb in ("run", "submit"):
            given["start_from"] = ()  # sweeps and files of whoever reads the page
            SweepRequest(
                **{field.name: given[field.name] for field in fields(SweepRequest)}
            ).definition(None)
    elif verb in SHOWS and given["address"] is None:
        store_sweep(ObjectStore("sweeps"), {FIRST: [FEASIBLE]}, name=given["name"] or "newest")
        sweep(verb, *words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_command_outside_of_blocks_has_only_options_that_there_are(page: Path) -> None:
    written = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for text in INLINE.findall(written) + INDENTED.findall(BLOCK.sub("", written)):
        _, verb, *words = shlex.split(text, comments=True)
        if verb.isupper() or verb.startswith("-") or "..." in words:
            continue  # `sweep VERB`
        command = verb_of(verb)
        context = click.Context(command, parent=ABOVE, resilient_parsing=True)
        command.make_parser(context).parse_args(args=list(words))


def test_every_other_command_is_marked_with_why_it_is_not_run() -> None:
    for page, line in commands(""):
        program = re.sub(r"^\w+=\$\(", "", line).split()[0]
        program = program if program == "." else Path(program).name
        assert program in NOT_RUN, f"{page}: {line}"


def test_the_space_of_the_readme_is_a_space() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (lines,) = (block for language, block in BLOCK.findall(page) if language == "python")
    written: dict[str, Any] = {}
    exec(lines, written)
    space = written["SPACE"]
    assert (space.name, space.n_proposals, space.search_seeds) == ("mine", 8, (0, 1))
    assert [space.proposals_of(setting) for setting in space.settings] == [8, 8]


def test_the_lines_that_read_scores_by_unit_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    (lines,) = (block for _, block in BLOCK.findall(page) if "scores.npz" in block)
    monkeypatch.chdir(tmp_path)
    losses_UF = np.array([[0.5, 0.25], [0.75, 0.125]], dtype=np.float32)
    scores = UnitScores("dev", ["a:0", "b:8"], [1, 1], {at_gamma(0.15): losses_UF})
    ArmStore(ObjectStore("sweeps")).put_unit_scores("5f3a", scores)
    read: dict[str, Any] = {}
    exec(lines.replace("SIGNATURE", "5f3a"), read)
    assert read["by_unit"] == {"a:0": 0.25, "b:8": 0.125}


def test_the_page_says_the_limits_of_retries_as_they_are() -> None:
    text = " ".join((ROOT / "docs/running.md").read_text(encoding="utf-8").split())
    words = {1: "once", 2: "twice", 3: "three times", 5: "five times"}
    assert f"started {words[retries.ARM_STARTS]} without a newer checkpoint" in text
    assert f"seconds | {words[retries.ARM_STALLS - 1]} more" in text
    assert f"died {words[retries.DRIVER_DEATHS]} in a row" in text
