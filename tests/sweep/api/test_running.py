"""`sweep.run`: what it trains is what `sweep run` trains, and it stops and refuses as that does."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sweep
from search_spaces import catalog
from search_spaces.space import SearchSpace
from sweep.api import training
from sweep.executors.executor import Executor
from sweep.study.registration import refuse_second_driver
from tests.support import command_line
from tests.support.command_line import SPACE_FILE, contents
from trainables.errors import InvalidValue, Misuse, SweepError, UnknownName
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def space() -> SearchSpace:
    written: dict[str, Any] = {}
    exec(SPACE_FILE, written)
    found: SearchSpace = written["SPACE"]
    return found


def test_importing_sweep_loads_nothing_of_it() -> None:
    code = (
        "import sys, sweep\n"
        "import json\n"
        "print(json.dumps([sorted(m for m in sys.modules if m.startswith('sweep.')),"
        " 'typing' in sys.modules, callable(sweep.run), sweep.run.__doc__]))\n"
        "import sweep.run.summary\n"
        "assert callable(sweep.run) and sweep.run.summary.RunSummary\n"
    )
    said = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    loaded, has_typing, is_callable, _ = json.loads(said.stdout)
    assert (loaded, has_typing, is_callable) == (["sweep.run"], False, True)
    with pytest.raises(AttributeError, match="has no attribute 'laod'"):
        _ = sweep.laod


# --- what is trained ------------------------------------------------------------------------------


def test_what_is_run_is_what_the_command_line_runs(
    trained: Path, space_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = sweep.run(space(), storage=tmp_path / "own", where="inline")
    said = capsys.readouterr().out
    assert "mine: 2 of 2 arms are final" in said
    assert "[2/2] only proposal 0 seed 0: finished" in said
    theirs = sweep.load("mine", trained)
    assert list(of.arms["signature"]) == list(theirs.arms["signature"])
    read = ArmStore(ObjectStore(str(trained))).record
    for row in of.arms.itertuples():
        record = read(str(row.signature))
        assert record is not None
        assert record.evaluation is not None
        assert row.objective == record.evaluation.objective
    assert of.state == "finished"


def test_running_again_continues_and_trains_nothing_twice(trained: Path, space_file: str) -> None:
    before = contents(trained / "arms")
    same = sweep.run(space_file, storage=trained, where="inline")
    assert contents(trained / "arms") == before
    assert len(same.arms) == 2
    more = sweep.run(space(), storage=trained, fields={"n_proposals": 2}, where="inline")
    assert list(more.arms["status"]) == ["finished"] * 3
    assert {**contents(trained / "arms"), **before} == contents(trained / "arms")


def test_fields_and_patterns_are_those_of_the_command_line(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = replace(space(), settings=tuple(replace(space().settings[0], name=n) for n in "ab"))
    of = sweep.run(
        two, name="other", fields={"steps": 2, "search_seeds": [3]}, only=["b"], where="inline"
    )
    assert [one.name for one in of] == ["b"]
    assert set(of.arms["steps"]) == {2}
    assert set(of.arms["seed"]) == {3}
    assert (root / "sweeps" / "other").is_dir()


def test_a_running_event_loop_and_another_thread_do_not_matter(tmp_path: Path) -> None:
    async def within() -> str:
        return sweep.run(space(), storage=tmp_path / "a", where="inline").state

    states = [asyncio.run(within())]
    other = threading.Thread(
        target=lambda: states.append(
            sweep.run(space(), storage=tmp_path / "b", where="inline").state
        )
    )
    other.start()
    other.join()
    assert states == ["finished", "finished"]


def test_an_interrupt_stops_gently_and_what_is_finished_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = sweep.run(space(), storage=tmp_path, where="inline")
    before = signal.getsignal(signal.SIGINT)
    slow = replace(space(), base=replace(space().base, steps=1_000_000))

    def interrupt() -> None:
        while not list(tmp_path.glob("arms/*/progress*")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    of = sweep.run(slow, name="slow", storage=tmp_path, where="inline")
    watcher.join()
    assert of.state == "stopped"
    assert "running" in set(of.arms["status"].dropna())
    assert signal.getsignal(signal.SIGINT) is before
    said = capsys.readouterr().err
    assert "Stopping: running arms end at their next report" in said
    assert "slow is not done (Ctrl-C)" in said
    assert done.reload().state == "finished"
    refuse_second_driver(of.objects, "slow")  # its lock is gone


@pytest.mark.parametrize(
    ("fields", "executor", "why"),
    [
        ({"gpus_per_arm": 0.5}, Executor(), "0.5 does nothing here: all arms train on the CPU."),
        ({"gpus_per_arm": "measured"}, Executor("inline"), "all arms train on the CPU."),
        ({"gpus_per_arm": 0.5, "device": "cuda"}, Executor("inline"), "inline one arm trains at"),
        ({"gpus_per_arm": 0.5, "device": "cuda"}, Executor(processes=2), "has a GPU of its own."),
        ({"gpus_per_arm": 0.5, "device": "cuda"}, Executor(), ""),
        ({}, Executor("inline"), ""),
    ],
)
def test_a_share_of_a_gpu_that_nothing_can_take_is_told(
    fields: dict[str, Any], executor: Executor, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    training._tell_idle_share(catalog.with_values(space(), fields), executor)
    said = capsys.readouterr().err
    assert why in said
    assert bool(why) == bool(said)


# --- what is refused ------------------------------------------------------------------------------


def test_refusals_say_what_the_command_line_says(
    trained: Path, space_file: str, tmp_path: Path
) -> None:
    wrong: list[tuple[tuple[str, ...], Any]] = [
        ((space_file, "--set", "steps=6"), {"space": space(), "fields": {"steps": 6}}),
        (("quickstrat",), {"space": "quickstrat"}),
        ((space_file, "--set", "alhpa=1"), {"space": space(), "fields": {"alhpa": 1}}),
        ((space_file, "--only", "g9"), {"space": space(), "only": ["g9"]}),
        ((str(tmp_path / "no.py"),), {"space": tmp_path / "no.py"}),
    ]
    before = contents(trained)
    for words, options in wrong:
        said = command_line.refused("run", *words, "--where", "inline")
        with pytest.raises(Misuse, match=re.escape(said.strip().removeprefix("sweep: "))):
            sweep.run(**options, where="inline")
    assert contents(trained) == before


def test_a_wrong_place_to_train_is_refused(tmp_path: Path) -> None:
    wrong: Any = "inlnie"
    with pytest.raises(UnknownName, match=r"'inlnie'\. Known: cluster, inline, local\. Did you"):
        sweep.run(space(), storage=tmp_path / "new", where=wrong)
    with pytest.raises(InvalidValue, match="workers must be at least 1, got 0"):
        sweep.run(space(), storage=tmp_path / "new", workers=0)
    kinds: list[tuple[Any, str]] = [
        ({"only": "g*"}, "only must be a list, got 'g"),
        ({"points": {"constraint.alpha": 0.1}}, "points must be a list, got {"),
        ({"points": ["constraint.alpha=0.1"]}, "points must be a list of mappings"),
        ({"fields": ["steps=3"]}, "fields must be a mapping like"),
    ]
    for options, said in kinds:
        with pytest.raises(InvalidValue, match=said):
            sweep.run(space(), storage=tmp_path / "new", **options)
    options_: list[tuple[str, str]] = [
        ("steps", "has no option 'steps': .* Give it in fields, like fields={'steps': ...}"),
        ("n_proposals", "has no option 'n_proposals': .* Give it in fields"),
        ("proposals", "unknown option of sweep.run 'proposals'"),
        ("storge", "Did you mean 'storage'"),
    ]
    for option, said in options_:
        with pytest.raises(UnknownName, match=said):
            sweep.run(space(), **{option: 3})
    number: Any = 3
    for call in (sweep.run, sweep.load):
        with pytest.raises(InvalidValue, match="got 3"):
            call(number)
    base = replace(space().base, early_stop=False, measured_on="test")
    unplanned = replace(space(), base=base, phase="confirmation")
    with pytest.raises(SweepError, match="`sweep confirm NAME` makes one of a finished sweep"):
        sweep.run(unplanned, storage=tmp_path / "new")
    assert not (tmp_path / "new").exists()
