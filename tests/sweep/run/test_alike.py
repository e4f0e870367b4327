"""First failures that are alike: when they end a sweep, how soon, and what comes after."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.run.alike import failed_alike, failure_kind
from sweep.run.signals import stop_on_signals
from sweep.study.arms import Arm
from tests.support.command_line import SPACE_FILE, sweep
from tests.support.records import ended, finished
from tests.support.toy_sweeps import LOSSES, definition, ends_where, outcomes, started, train
from trainables.records.arm_record import ArmRecord, Report
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.retries import ALIKE_ENDS_S, ARMS_ALIKE

ROOT = Path(__file__).parents[3]


def everywhere(arm: Arm) -> bool:
    return True


def numbered(arm: Arm) -> ArmRecord:
    """One failure, told with other numbers, paths and hashes by each arm."""
    seed = arm.config.seed
    reason = (
        f"RuntimeError: shape [{seed}, {10 + seed}] of /data/{arm.setting}/clip_{seed}.avi "
        f"(arm {arm.signature}) at 0x7f{seed}a0"
    )
    return ended(arm.config, "failed", reason)


@pytest.mark.parametrize("fails", [ends_where(everywhere, "failed", "no kernel."), numbered])
def test_the_first_arms_that_fail_alike_end_the_sweep_and_a_resume_trains_them_again(
    tmp_path: Path, fails: Callable[[Arm], ArmRecord]
) -> None:
    asked, objects, whole = definition(), ObjectStore(tmp_path / "a"), ObjectStore(tmp_path / "b")
    coordinator = started(objects, asked)
    assert len(train(coordinator, fails)) == ARMS_ALIKE == 3
    summary = coordinator.summary()
    (problem,) = summary.problems  # once
    assert problem.startswith("the first 3 arms failed alike, and none has finished: ")
    assert fails(coordinator.plan.baselines["g2"][0]).reason in problem  # of the last one
    assert (summary.exit_code, summary.is_done, summary.was_asked_to_stop) == (1, False, False)
    assert coordinator.ends_by == pytest.approx(time.monotonic() + ALIKE_ENDS_S, abs=5)
    assert problem.startswith(failed_alike(objects, "toy")) != ""
    again = started(objects, asked)
    assert failed_alike(objects, "toy") == ""
    assert len(train(again)) == 16
    assert again.summary().exit_code == 0
    train(started(whole, asked))
    assert outcomes(objects, asked) == outcomes(whole, asked)


def test_other_failures_end_nothing(objects: ObjectStore) -> None:
    reasons = iter(["out of memory", "no kernel", "no disk"] * 2)

    def fails(arm: Arm) -> ArmRecord:
        return ended(arm.config, "failed", next(reasons))

    coordinator = started(objects, definition())
    assert len(train(coordinator, fails, limit=6)) == 6  # two of each kind


@pytest.mark.parametrize("status", ["diverged", "stopped"])
def test_outcomes_are_no_failures(objects: ObjectStore, status: str) -> None:
    coordinator = started(objects, definition())
    assert len(train(coordinator, ends_where(everywhere, status, "the loss is nan."))) == 16


@pytest.mark.parametrize("status", ["finished", "diverged", "stopped"])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_one_result_shows_that_arms_can_be_trained(
    objects: ObjectStore, status: str, is_resumed: bool
) -> None:
    asked = definition()

    def record_of(arm: Arm) -> ArmRecord:
        if arm.setting == "g1" and arm.proposal is None and arm.config.seed == 0:
            is_finished = status == "finished"
            return finished(arm.config, LOSSES) if is_finished else ended(arm.config, status, "")
        return ended(arm.config, "failed", "no kernel.")

    first = started(objects, asked)
    trained = len(train(first, record_of, limit=1 if is_resumed else 1000))
    rest = train(started(objects, asked), record_of) if is_resumed else []
    assert trained + len(rest) == 16
    assert failed_alike(objects, "toy") == ""


def test_of_one_setting_the_message_says_so_and_workers_that_cannot_count_as_well(
    objects: ObjectStore,
) -> None:
    coordinator = started(objects, definition(seeds=(0, 1, 2, 3)))
    for seed in range(3):
        arm = coordinator.next_arm()
        assert arm is not None
        coordinator.give_up_arm(arm.signature, f"ImportError in worker {seed}")
    (problem,) = coordinator.summary().problems
    assert "failed alike (all of them of g1)" in problem
    assert coordinator.next_arm() is None


def test_a_sweep_whose_every_arm_has_failed_is_done(objects: ObjectStore) -> None:
    coordinator = started(objects, definition(n_settings=1, n_proposals=2, seeds=(0,)))
    assert len(train(coordinator, numbered)) == 3
    summary = coordinator.summary()
    assert (summary.is_done, summary.exit_code) == (True, 1)
    of_baselines, of_proposals = summary.problems
    assert "1 unconstrained arm failed; the first: RuntimeError" in of_baselines
    assert "g1: all 2 proposals failed; the first: RuntimeError" in of_proposals
    assert failed_alike(objects, "toy") == ""


def test_failures_of_one_machine_end_nothing_while_another_arm_has_reported(
    objects: ObjectStore,
) -> None:
    coordinator = started(objects, definition(seeds=(0, 1, 2, 3)))
    trains, *broken = [arm for _ in range(6) if (arm := coordinator.next_arm()) is not None]
    coordinator.record_report(trains.signature, Report(step=20, timestamp_ms=20))
    for arm in broken[:4]:
        coordinator.give_up_arm(arm.signature, "CUDA error")
    assert coordinator.stopping == ""
    coordinator.give_up_arm(trains.signature, "no disk")  # nor does that one train, after all
    coordinator.give_up_arm(broken[4].signature, "CUDA error")
    assert coordinator.stopping == "its first arms failed alike"
    problem, other = coordinator.summary().problems  # of another kind: it is not overwritten
    assert problem.startswith("the first 5 arms failed alike, and none has finished: CUDA error.")
    assert other == f"arm {trains.signature} is not finished: no disk"


def test_arms_that_report_before_they_fail_end_the_sweep_as_well(objects: ObjectStore) -> None:
    coordinator = started(objects, definition())
    for _ in range(ARMS_ALIKE):
        arm = coordinator.next_arm()
        assert arm is not None
        coordinator.record_report(arm.signature, Report(step=20, timestamp_ms=20))
        coordinator.runs.put_record(ended(arm.config, "failed", "cannot be evaluated."))
        coordinator.finish_arm(arm.signature)
    assert coordinator.stopping == "its first arms failed alike"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CUDA error 719 (in step, line 13)", "CUDA error 4 (in step, line 13)"),
        ("no file /a/b.avi", "no file s3://bucket/c.avi"),
        ("no file '~/a'", "no file './b/c'"),
        ("arm 0a1b2c3d4e5f6071 died", "arm 1234567890abcdef died"),
        ("lr 1e-3 at 0x7fff", "lr 2.5e+10 at 0x1"),
    ],
)
def test_numbers_paths_and_hashes_make_no_other_kind(one: str, other: str) -> None:
    assert failure_kind(one) == failure_kind(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("RuntimeError: no kernel", "ValueError: no kernel"),
        ("out of GPU memory", "out of CPU memory"),
        ("no clip in /a", "no text in /a"),
    ],
)
def test_other_words_make_another_kind(one: str, other: str) -> None:
    assert failure_kind(one) != failure_kind(other)


def test_arms_that_do_not_report_end_when_the_sweep_is_to_end(objects: ObjectStore) -> None:
    coordinator = started(objects, definition())
    coordinator.stop("its first arms failed alike")
    coordinator.ends_by = time.monotonic() + 0.2
    with pytest.raises(KeyboardInterrupt), stop_on_signals(coordinator):
        time.sleep(30)


# --- as a user ------------------------------------------------------------------------------------

# Adam fails in every process; the first of Ray's workers to come to it does not fail but hangs.
FAULT = """
import importlib.abc, importlib.util, os, sys, time

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch.optim.adam":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            def step(self, *args, **kwargs):
                if "default_worker" not in sys.argv[0]:
                    raise RuntimeError("the driver trains no arm")
                try:
                    os.close(os.open(os.environ["FAULT"], os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    raise RuntimeError(f"no kernel at {id(self):#x}") from None
                time.sleep(600)
            module.Adam.step = step
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.slow
def test_a_sweep_whose_first_arms_fail_alike_ends_within_a_minute_although_one_hangs(
    tmp_path: Path, ray_home: Path
) -> None:
    space, root = tmp_path / "mine.py", str(tmp_path / "root")
    space.write_text(SPACE_FILE.replace("n_proposals=1", "n_proposals=8"), encoding="utf-8")
    (tmp_path / "fault").mkdir()
    (tmp_path / "fault" / "sitecustomize.py").write_text(FAULT, encoding="utf-8")
    path = f"{tmp_path / 'fault'}:{ROOT}"
    driver = subprocess.run(
        [sys.executable, "-m", "sweep.cli", "run", str(space), "--storage", root, "--workers", "2"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "FAULT": str(tmp_path / "hangs")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    ended_s = time.time()
    assert driver.returncode == 1, driver.stderr
    told = [line for line in driver.stderr.splitlines() if "failed alike" in line]
    assert "the first 3 arms failed alike (all of them of only), and none has finished" in told[0]
    assert "RuntimeError: no kernel at 0x" in told[0]
    assert "its first arms failed alike" in told[1]  # and how to go on
    assert len(told) == 2
    runs = ArmStore(ObjectStore(root))
    failed = [record for record in map(runs.record, runs.objects.names("arms")) if record]
    assert [record.status for record in failed] == ["failed"] * 3
    assert ended_s - max(record.ended_ms for record in failed) / 1000 < 60
    assert "its last run ended: the first 3" in sweep("status", "mine", "--storage", root).stdout
    sweep("resume", "mine", "--storage", root, "--where", "inline", "--max-arms", "4")
    assert {record.status for s in runs.objects.names("arms") if (record := runs.record(s))} == {
        "finished"
    }
