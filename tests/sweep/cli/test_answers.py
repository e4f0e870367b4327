"""`sweep answers`: both arms of the winners asked, and compared by a judge on loopback."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from search_spaces.space import SearchSpace, Setting, Uniform
from sweep.report.answers import sole_writer
from sweep.study.arms import stored_arms
from sweep.study.definition import load_definition
from tests.support.command_line import refused, sweep
from tests.support.data.instruction_runs import instruction_task, tiny_instructions
from tests.support.servers.judges import LoopbackJudge, judge_server
from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, store_sweep
from trainables.build import build_model
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.training import to_bytes

SMALL, OTHER = "small", "other"


@pytest.fixture(name="asked")
def _asked(root: Path, tmp_path: Path) -> ObjectStore:
    """A sweep of a tiny decoder: one setting won, and every arm's network is another."""
    base = tiny_instructions(tmp_path)
    space = SearchSpace(
        name="wrote",
        summary="a decoder by hand",
        base=base,
        settings=(Setting(SMALL, {}), Setting(OTHER, {"train_gamma": 0.5})),
        ranges={"constraint.alpha": Uniform(0.2, 0.3)},
        n_proposals=3,
        search_seeds=(0, 1),
        sampler="random",
    )
    objects = ObjectStore(root)
    store_sweep(objects, {SMALL: [FEASIBLE], OTHER: [INFEASIBLE]}, name="wrote", space=space)
    model = build_model(base, instruction_task(base))
    for place, record in enumerate(stored_arms(objects, load_definition(objects, "wrote"))):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        generator = torch.Generator().manual_seed(place)
        for name in state:
            if name.endswith("lm_head.weight"):
                state[name] += torch.randn(state[name].shape, generator=generator)
        ArmStore(objects).put_weights(record.signature, to_bytes({"model": state}))
    return objects


@pytest.fixture(name="judge")
def _judge(tmp_path: Path) -> Iterator[LoopbackJudge]:
    with judge_server(tmp_path, lambda first, second: first > second) as judge:
        yield judge


def test_both_arms_of_the_winner_answer_and_are_judged(
    asked: ObjectStore, judge: LoopbackJudge, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ["answers", "wrote", "--out", str(out), "--count", "5", "--longest", "6"]
    result = sweep(*words, "--judge", judge.config)
    lists = {path.relative_to(out).as_posix(): path for path in out.rglob("*-g*.json")}
    assert set(lists) == {
        f"held-out/{SMALL}/seed{seed}/{arm}-g{gamma}.json"
        for seed in (0, 1)
        for arm in ("constrained", "unconstrained")
        for gamma in ("0", "0.25")
    }
    assert f"{OTHER}: left out, since they have no winner" in result.stderr
    assert (
        str(lists[f"held-out/{SMALL}/seed1/constrained-g0.25.json"]) in result.stdout.splitlines()
    )

    with (out / "win_rates.csv").open(newline="") as stream:
        rates = list(csv.DictReader(stream))
    assert [(r["setting"], r["seed"], r["gamma"]) for r in rates] == [
        (SMALL, seed, gamma) for seed in ("0", "1") for gamma in ("0.0", "0.25")
    ]
    for rate in rates:
        place = out / "held-out" / SMALL / f"seed{rate['seed']}"
        ours, theirs = (
            [row["output"] for row in json.loads((place / f"{arm}-g{level}.json").read_text())]
            for level in (f"{float(rate['gamma']):g}",)
            for arm in ("constrained", "unconstrained")
        )
        assert len(ours) == 5
        assert ours != theirs
        scores = [0.5 if a == b else float(a > b) for a, b in zip(ours, theirs, strict=True)]
        assert float(rate["win_rate"]) == pytest.approx(100 * sum(scores) / 5)
        assert float(rate["constrained_characters"]) == sum(map(len, ours)) / 5
        assert f"{float(rate['win_rate']):.1f} ±" in result.stdout

    asked_before, before = len(judge.asked), {p: p.stat().st_mtime_ns for p in lists.values()}
    again = sweep(*words, "--judge", judge.config)
    assert again.stdout == result.stdout
    assert len(judge.asked) == asked_before
    assert {p: p.stat().st_mtime_ns for p in lists.values()} == before
    fewer = sweep(*words, "--count", "2", "--gamma", "0", "--judge", judge.config)
    assert fewer.stdout.count("±") == 2
    assert all(len(json.loads(path.read_text())) >= 5 for path in lists.values())
    with (out / "win_rates.csv").open(newline="") as stream:  # of both calls
        every = list(csv.DictReader(stream))
    assert every[:4] == rates
    for row, seed in zip(every[4:], ("0", "1"), strict=True):
        assert (row["asked"], row["prompts"], row["seed"]) == ("2", "held-out", seed)
    others = sweep(*words, "--longest", "7", exits=2)
    assert "Give another --out" in others.stderr


def test_instructions_of_a_file_are_answered_where_they_leave_room(
    asked: ObjectStore, tmp_path: Path
) -> None:
    file = tmp_path / "alpaca_eval.json"
    given = ["Name the river.", "word " * 60, "Draw the poem."]
    file.write_text(json.dumps([{"instruction": text, "dataset": "ours"} for text in given]))
    out = tmp_path / "out"
    result = sweep(
        "answers", "wrote", "--out", str(out), "--prompts", str(file), "--gamma", "1",
        "--longest", "3",
    )  # fmt: skip
    assert result.stderr.count("1 of 3 prompts fill data.max_length: they are left out") == 1
    (folder,) = out.glob("alpaca_eval-*")
    assert [p.name for p in sorted((folder / SMALL / "seed0").iterdir())] == [
        "constrained-g1.json", "unconstrained-g1.json"
    ]  # fmt: skip
    rows = json.loads((folder / SMALL / "seed0" / "constrained-g1.json").read_text())
    assert [row["instruction"] for row in rows] == [given[0], given[2]]
    assert {row["dataset"] for row in rows} == {"ours"}
    assert not (out / "win_rates.csv").exists()


def test_a_folder_that_another_process_writes_to_is_left_to_it(
    asked: ObjectStore, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    words = ["answers", "wrote", "--out", str(out), "--count", "1", "--longest", "2"]
    with sole_writer(out):
        assert f"another `sweep answers` writes to {out} now" in refused(*words)
        assert [p.name for p in out.iterdir()] == [".answers.lock"]
    assert list(out.iterdir()) == []
    sweep(*words)
    assert list(out.iterdir())


def test_what_cannot_be_asked_is_refused(
    asked: ObjectStore, stored: ObjectStore, tmp_path: Path
) -> None:
    out = ("--out", str(tmp_path / "out"))
    assert "networks of tiny write no answers" in refused("answers", "tiny", *out)
    assert "wrote has no winner to ask" in refused("answers", "wrote", *out, "--only", OTHER)
    alone = refused("answers", "wrote", *out, "--length-controlled")
    assert "--length-controlled needs --judge" in alone
    few = tmp_path / "few.json"
    few.write_text(json.dumps([{"instruction": "Name the river."}]))
    assert "AlpacaEval's 805 instructions" in refused(
        "answers", "wrote", *out, "--length-controlled", "--judge", "x", "--prompts", str(few)
    )
    assert "--judge nobody is no annotator" in refused(
        "answers", "wrote", *out, "--judge", "nobody"
    )
    assert "--gamma must be finite, got nan" in refused("answers", "wrote", *out, "--gamma", "nan")
    (tmp_path / "file").touch()
    no_folder = refused("answers", "wrote", "--out", str(tmp_path / "file" / "out"))
    assert "cannot be made" in no_folder
    long = tmp_path / "long.json"
    long.write_text(json.dumps([{"instruction": "word " * 60}]))
    none_fits = refused("answers", "wrote", *out, "--prompts", str(long))
    assert "1 of 1 prompts fill data.max_length, which leaves no room" in none_fits
    for record in stored_arms(asked, load_definition(asked, "wrote")):
        ArmStore(asked).drop_weights(record.signature)
    assert "the weights of " in sweep("answers", "wrote", *out, exits=1).stderr
    assert FIRST in sweep("best", "tiny").stdout
