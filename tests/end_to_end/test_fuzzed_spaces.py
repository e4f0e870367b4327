"""A thousand wrong space definitions through the command line: a message, never a traceback.

Definitions are mutated from valid ones, by seed, so that a red case can be repeated: the failing
assertion shows its number. What is accepted must hold what it promises: every point that the search
can ask for is one that a run accepts. What is refused leaves nothing behind.
"""

from __future__ import annotations

import itertools
import json
import random
import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from search_spaces import catalog
from search_spaces.space import Choice, LogUniform, Range, SearchSpace, Setting, Uniform
from sweep.cli.main import main
from sweep.study.sampler import propose
from tests.support.oracles import TINY
from trainables.config.arm import field_names
from trainables.plain import Json

SPACE = SearchSpace(
    name="tiny",
    summary="two settings and a few ranges",
    base=replace(TINY, steps=4, report_every=2),
    settings=(
        Setting("shallow-L2", {"model.layers": 2, "constraint.alpha": 0.3}),
        Setting("deep-L3", {"model.layers": 3}, n_proposals=1),
    ),
    ranges={
        "constraint.alpha": Uniform(0.1, 0.3),
        "constraint.dual_lr": LogUniform(1e-3, 0.5),
        "constraint.resilience": LogUniform(1e-3, 1.0),
        "constraint.dual_optimizer": Choice(("sgd", "adam", "nupi")),
    },
    n_proposals=3,
    search_seeds=(0, 1),
    sampler="random",
)
ARM = {"signature": "a" * 16, "status": "finished", "evaluation": {}, "environment": {}}
CONFIGURATION = {
    "kind": catalog.CONFIGURATION, "sweep": "s", "space": "mine", "setting": "only", "proposal": 0,
    "training_version": 1,
    "runs": {"0": {"config": TINY.to_json(), "constrained": ARM, "unconstrained": None}},
}  # fmt: skip
VALID_JSON: list[Json] = [SPACE.to_json(), SPACE.to_json(), TINY.to_json(), CONFIGURATION]
VALID_PY = """
from dataclasses import replace
from search_spaces.catalog import setting
from search_spaces.space import Choice, LogUniform, SearchSpace, Setting, Uniform
from tests.support.oracles import TINY

SPACE = SearchSpace(
    name="mine",
    summary="my own",
    base=replace(TINY, steps=4, report_every=2),
    settings=(Setting("only", {"train_gamma": 0.2}), setting("photographs", "ut", 3, 0.1)),
    ranges={
        "constraint.alpha": Uniform(0.1, 0.3),
        "constraint.dual_lr": LogUniform(1e-3, 0.5),
        "constraint.warmup_steps": Choice((0, 2)),
    },
    n_proposals=2,
    search_seeds=(0, 1),
)
FULL = replace(SPACE, n_proposals=4)
"""
JUNK: list[Json] = [
    None, True, False, 0, 1, -1, 2, 3.5, 1e-300, 1e300, 1e308, 10**20, -(10**20), 10**400,
    float("nan"), float("inf"), "", "x", "0", "null", "\x00", "a\nb", "\ud800", "é" * 300,
    "[bold]", "../..", [], {}, [[]], [None], [1, 2], ["sgd", "sgd"], {"x": 1}, {"choice": [1]},
    {"uniform": [0.1, 0.2]}, {"uniform": [1, 0]}, {"uniform": ["a", 1]}, {"choice": [[], {}]},
    {"log_uniform": [1e-4, 1e4]}, {"log_uniform": [0, 1]}, {"name": "a", "fields": {}}, "gp", "tpe",
    "adam", "slack", "dust", "vit", "bfloat16", "cuda", "ratio", "bound_zero", "absolute", 64, 1000,
]  # fmt: skip
LINES = [
    "raise KeyError('k')", "raise SystemExit", "import nothing_at_all", "1 / 0", "SPACE = None",
    "SPACE = SPACE.to_json()", "SPACE = replace(SPACE, settings=[])", "del SPACE", "FULL = 3",
    "SPACE = replace(SPACE, n_proposals='2')", "raise BaseException('odd')", "def f(): f()",
    "(lambda f: f(f))(lambda f: f(f))", "SPACE = replace(SPACE, ranges={'constraint.alpha': 3})",
    "SPACE = replace(SPACE, base=SPACE.base.unconstrained())", "\x00", "  indented", "'''",
    "SPACE = replace(SPACE, ranges={1: Uniform(0.1, 0.2)})", "SPACE = replace(SPACE, sampler=[])",
    "SPACE = replace(SPACE, settings=(Setting('a', {'steps': {1, 2}}),))", "SPACE = SearchSpace",
    "SPACE = replace(SPACE, summary='\\ud800')", "SPACE = replace(SPACE, search_seeds=None)",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """What is given to the command line."""

    name: str  # of the file
    content: bytes
    options: tuple[str, ...]


# --- mutations ------------------------------------------------------------------------------------


def places(value: Json, path: tuple[Json, ...] = ()) -> list[tuple[Json, ...]]:
    """Every path into a JSON value, to containers and leaves alike."""
    if not isinstance(value, dict | list):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(found for k, inner in items for found in places(inner, (*path, k)))]


def mutated(plain: Json, rng: random.Random) -> Json:
    """One change somewhere: another value, one less, one more, or a key of another name."""
    root = json.loads(json.dumps(plain))
    inside = [p for p in places(root) if p]
    if not inside:
        return rng.choice(JUNK)
    path, holder = rng.choice(inside), root
    for key in path[:-1]:
        holder = holder[key]
    kind = rng.randrange(6)
    if kind == 0:
        del holder[path[-1]]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice([str(path[-1]) + "s", "typo", ""])] = holder.pop(path[-1])
    elif kind == 2 and isinstance(holder, list):
        holder.append(holder[path[-1]])
    elif kind == 3 and isinstance(holder[path[-1]], int | float):
        holder[path[-1]] *= rng.choice([-1, 0, 2, 10, 10**6])
    else:
        holder[path[-1]] = rng.choice(JUNK)
    return root


def json_case(rng: random.Random) -> Case:
    plain = rng.choice(VALID_JSON)
    for _ in range(rng.choice([1, 1, 2, 4])):
        plain = mutated(plain, rng)
    return Case("space.json", json.dumps(plain).encode(), ())


def text_case(rng: random.Random) -> Case:
    """Damage below the level of JSON and Python."""
    suffix, text = rng.choice(
        [("json", json.dumps(rng.choice(VALID_JSON))), ("py", VALID_PY)],
    )
    content = bytearray(text.encode())
    kind = rng.randrange(5)
    at = rng.randrange(len(content))
    if kind == 0:
        content = content[:at]
    elif kind == 1:
        content[at] = rng.randrange(256)
    elif kind == 2:
        content[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 6)))
    elif kind == 3:
        content = bytearray(rng.choice([b"[", b'{"a":', b"("]) * rng.choice([10, 5000]))
    else:
        content = bytearray(
            rng.choice([b"", b"\xff\xfe", b"null", b"3", b'"x"', b"\xef\xbb\xbf{}"])
        )
    return Case(f"space.{suffix}", bytes(content), ())


def python_case(rng: random.Random) -> Case:
    lines = VALID_PY.splitlines()
    for _ in range(rng.choice([1, 1, 2])):
        kind, at = rng.randrange(4), rng.randrange(len(lines))
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.append(rng.choice(LINES))
        elif kind == 2:
            numbers = [c for c in set(lines[at]) if c.isdigit()]
            if numbers:
                new = rng.choice(["-1", "1e400", "None", "'x'", "[]", "0", "10**30"])
                lines[at] = lines[at].replace(rng.choice(sorted(numbers)), new, 1)
        else:
            lines[at] = lines[at].replace(
                *rng.choice([("(", ""), ('"', ""), ("=", "=="), (",", "")])
            )
    return Case("space.py", "\n".join(lines).encode(), ())


def option_case(rng: random.Random) -> Case:
    """A valid file, and one to three options with wrong or odd values."""
    names = [*field_names(), *catalog.SPACE_FIELDS, "typo", "constraint", "model.", ".", "é"]
    options: list[str] = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        value = rng.choice(JUNK)
        text = value if isinstance(value, str) else json.dumps(value)
        if rng.random() < 0.2:
            text = "".join(rng.choices(string.printable, k=rng.randrange(8)))
        options += ["--set", f"{rng.choice(names)}={text}" if rng.random() < 0.95 else text]
    if rng.random() < 0.2:
        options += ["--only", rng.choice(["deep-*", "*", "[", "", "nope", "shallow-L2", "\udcff"])]
    if rng.random() < 0.1:
        options += ["--full"]
    return Case("space.json", json.dumps(SPACE.to_json()).encode(), tuple(options))


def range_case(rng: random.Random) -> Case:
    """Ranges that look sane one by one; together some reach what no run accepts."""
    plain = SPACE.to_json()
    plain["ranges"]["constraint.dual_lr"] = {"log_uniform": [1e-4, 10 ** rng.uniform(-3, 2)]}
    plain["ranges"]["constraint.resilience"] = {"log_uniform": [1e-5, 10 ** rng.uniform(-3, 2)]}
    plain["ranges"]["constraint.alpha"] = {"uniform": [0.05, rng.uniform(0.1, 1)]}
    if rng.random() < 0.7:
        del plain["ranges"]["constraint.dual_optimizer"]
    if rng.random() < 0.3:
        plain["ranges"]["constraint.warmup_steps"] = {"choice": [0, rng.randrange(1, 8)]}
    if rng.random() < 0.3:
        plain["base"]["model"]["layers"] = 2
        plain["settings"][1]["fields"]["model.layers"] = rng.randrange(2, 64)
    return Case("space.json", json.dumps(plain).encode(), ())


def case(number: int) -> Case:
    """The case of this number, always the same."""
    rng = random.Random(number)
    kinds: list[Callable[[random.Random], Case]]
    kinds = [json_case, json_case, option_case, python_case, text_case, range_case]
    made = rng.choice(kinds)(rng)
    if rng.random() < 0.1:
        return Case(made.name, made.content, made.options + option_case(rng).options)
    return made


# --- what must hold -------------------------------------------------------------------------------


def invoked(*words: str) -> Result:
    result = CliRunner().invoke(main, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception  # what a user would see as a traceback
    assert "Traceback" not in result.output
    return result


def assert_refused(result: Result, storage: Path) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert len(result.stderr.strip()) > len("sweep: ")
    assert not storage.exists()


def assert_kept_promise(space: SearchSpace) -> None:
    """Whatever the search proposes is a run: points drawn at random, and every corner."""
    drawn = replace(space, sampler="random")
    for setting in space.settings[:3]:
        for number in range(8):
            point = propose(drawn, setting.name, number, [])
            space.run(setting, point, seed=space.search_seeds[-1])
        for corner in itertools.product(*map(ends, space.ranges.values())):
            point = dict(zip(space.ranges, corner, strict=True))
            space.run(setting, point, seed=space.search_seeds[-1])


def ends(values: Range) -> tuple[Json, ...]:
    return values.values if isinstance(values, Choice) else (values.low, values.high)


def check(number: int, folder: Path) -> bool:
    """Give one case to ``sweep spaces`` and ``sweep run``; whether it was accepted."""
    given = case(number)
    path, storage = folder / given.name, folder / "root"
    path.write_bytes(given.content)
    shown = invoked("spaces", str(path), *given.options, "--json")
    run = ("run", str(path), *given.options, "--storage", str(storage), "--where", "inline")
    if shown.exit_code == 2:
        assert_refused(shown, storage)
        assert_refused(invoked(*run), storage)
        return False
    plain = json.loads(shown.stdout)
    assert shown.exit_code == 0
    fields = {name: plain[name] for name in SPACE.to_json()}
    assert_kept_promise(SearchSpace.from_json(fields))
    assert invoked("spaces", str(path), *given.options).exit_code == 0
    assert_refused(invoked(*run, "--only", "no-such-setting"), storage)
    return True


def check_all(numbers: range, folder: Path) -> None:
    accepted = 0
    for number in numbers:
        try:
            accepted += check(number, folder)
        except Exception as error:
            raise AssertionError(f"case {number}: {case(number)}") from error
    # Most are wrong, and enough are not: else nothing of what is accepted would be tried.
    assert 0.05 < accepted / len(numbers) < 0.5


def test_the_definitions_that_are_mutated_are_valid(tmp_path: Path) -> None:
    for number, plain in enumerate(VALID_JSON):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(plain))
        assert_kept_promise(catalog.find(str(path)).space)
    path = tmp_path / "space.py"
    path.write_text(VALID_PY)
    assert_kept_promise(catalog.find(str(path), full=True).space)


@pytest.mark.slow
def test_a_hundred_wrong_definitions_are_refused_without_a_traceback(tmp_path: Path) -> None:
    check_all(range(100), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(2))
def test_a_thousand_wrong_definitions_are_refused_without_a_traceback(
    shard: int, tmp_path: Path
) -> None:
    """In two parts."""
    check_all(range(1000 + 500 * shard, 1500 + 500 * shard), tmp_path)
