"""The command line as its users meet it: what a verb prints, what it refuses, what it leaves.

Whatever a verb prints with --json is held against its published schema, in every test.
"""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from sweep.cli.main import main
from tests.support.schemas import as_published

# Two arms in a second or two: what a run that trains is tried with.
SPACE_FILE = """
from dataclasses import replace
from search_spaces.space import SearchSpace, Setting, Uniform
from tests.support.oracles import TINY

SPACE = SearchSpace(
    name="mine",
    summary="my own",
    base=replace(TINY, steps=4, report_every=2),
    settings=(Setting("only", {}),),
    ranges={"constraint.alpha": Uniform(0.1, 0.3)},
    n_proposals=1,
    search_seeds=(0,),
    sampler="random",
)
"""


def sweep(*words: str, exits: int = 0, answer: str | None = None) -> Result:
    result = CliRunner().invoke(main, list(words), input=answer)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == exits, result.output
    if "--json" in words and result.stdout and "--address" not in words:
        as_published(words, json.loads(result.stdout))
    return result


def refused(*words: str) -> str:
    """The message of a verb that exits 2: on standard error, without a traceback."""
    result = sweep(*words, exits=2)
    assert "Traceback" not in result.output
    assert result.stdout == ""
    return result.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
