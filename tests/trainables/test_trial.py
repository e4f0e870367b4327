"""The Tune trainable, in this process: an arm at a time, told in results, no exceptions."""

from __future__ import annotations

import errno
import json
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ray._private.label_utils import validate_label_selector

from tests.support.drivers import ROOT, tiny
from tests.support.training.trials import told, trial_of
from trainables.code_version import code_version
from trainables.config.arm import ArmConfig
from trainables.config.trial import TrialOrder
from trainables.machine.leaving import LEAVES
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.retries import ARM_STARTS
from trainables.training import Training
from trainables.trial import (
    ARMS,
    GPU_LOST,
    NEEDS_WHOLE_GPU,
    PROBLEM,
    STORE_PROBLEM,
    ArmTrial,
    arms_of,
    resources_of,
)


def finished(result: dict[str, Any]) -> bool:
    arms = arms_of(result)
    return bool(arms) and all(one.finished for one in arms)


def arm(seed: int = 0) -> ArmConfig:
    space = tiny(steps=20, report_every=10).space
    return space.run(space.settings[0], {}, seed=seed)


def test_a_worker_counts_its_starts_for_the_driver_that_sent_it(objects: ObjectStore) -> None:
    for driver, starts in (("one", 1), ("one", 2), ("two", 1)):
        trial = ArmTrial(config=told(arm(), objects.root, driver=driver))
        trial.train()
        attempt = objects.get_json(f"arms/{arm().signature()}/attempts.json")
        assert (attempt["driver"], attempt["starts"]) == (driver, starts)
        objects.delete(f"arms/{arm().signature()}/checkpoint-00000010.pt")


def test_a_step_is_a_report_interval_and_the_last_one_says_finished(objects: ObjectStore) -> None:
    trial = trial_of(objects, arm())
    first, last = trial.train(), trial.train()
    assert [first["step"], last["step"]] == [10, 20]
    assert [finished(first), finished(last)] == [False, True]
    assert [first["done"], last["done"]] == [False, True]
    assert [one.signature for one in arms_of(last)] == [arm().signature()]
    record = ArmStore(objects).record(arm().signature())
    assert record is not None
    assert [one.report for one in arms_of(first) + arms_of(last)] == record.reports


OTHER_CODE = """
import json, sys
from trainables.trial import ArmTrial
trial = ArmTrial(config=json.loads(sys.argv[1]))
print(json.dumps(trial.step()))
"""


@pytest.mark.slow
def test_a_worker_with_other_code_of_the_same_version_trains_nothing(
    objects: ObjectStore, tmp_path: Path
) -> None:
    for package in ("trainables", "search_spaces", "sweep"):
        shutil.copytree(ROOT / package, tmp_path / "other" / package)
    build = tmp_path / "other" / "trainables" / "build.py"
    build.write_text(build.read_text() + "# a change that nobody told\n")
    worker = subprocess.run(
        [sys.executable, "-c", OTHER_CODE, json.dumps(told(arm(), objects.root))],
        cwd=tmp_path / "other", capture_output=True, text=True, check=True,
    )  # fmt: skip
    result = json.loads(worker.stdout.splitlines()[-1])
    assert result[STORE_PROBLEM]
    assert "has other code (descent-sweep" in result[PROBLEM]
    assert objects.names("arms") == []
    trial_of(objects, arm()).step()  # the driver's own
    record = ArmStore(objects).record(arm().signature())
    assert record is not None
    assert record.environment["code"] == code_version()


def test_at_most_eight_numbers_of_ours_go_to_tune(objects: ObjectStore) -> None:
    ours = trial_of(objects, arm()).step()
    numbers = [k for k, v in ours.items() if isinstance(v, int | float)]
    assert len(numbers) <= 8
    assert isinstance(ours[ARMS], str)


def test_a_reused_actor_trains_the_next_arm(objects: ObjectStore) -> None:
    trial = trial_of(objects, arm(seed=0))
    trial.train()
    assert trial.reset_config(told(arm(seed=1), objects.root)) is True
    assert [one.signature for one in arms_of(trial.train())] == [arm(seed=1).signature()]
    assert sorted(objects.names("arms")) == sorted(arm(seed=s).signature() for s in (0, 1))


def test_a_trial_that_starts_again_resumes_from_the_store(objects: ObjectStore) -> None:
    trial_of(objects, arm()).train()
    assert trial_of(objects, arm()).train()["step"] == 20
    assert finished(trial_of(objects, arm()).train()) is True  # and then there is nothing to do


def test_a_store_that_cannot_be_written_is_told_not_raised(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ObjectStore, "_put_local", staticmethod(full))
    result = trial_of(objects, arm()).train()
    assert (finished(result), result[STORE_PROBLEM], result["done"]) == (False, True, True)
    assert "No space left on device" in result[PROBLEM]


def test_an_arm_that_outgrows_its_share_of_a_gpu_is_told_not_failed(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(*_: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(Training, "run_to", too_large)
    shared = ArmTrial(config=told(arm(), objects.root, bundle={"CPU": 1.0, "GPU": 0.5})).train()
    assert (finished(shared), shared[NEEDS_WHOLE_GPU], shared["done"]) == (False, True, True)
    assert "0.5 of its GPU" in shared[PROBLEM]
    whole = ArmTrial(config=told(arm(), objects.root, bundle={"CPU": 1.0, "GPU": 1.0})).train()
    assert (finished(whole), whole.get(NEEDS_WHOLE_GPU)) == (True, None)
    record = ArmStore(objects).record(arm().signature())
    assert record is not None
    assert record.status == "failed"
    assert record.reason.startswith("out of GPU memory (CUDA out of memory.")
    assert "batch_size" in record.reason


def test_a_worker_that_does_not_see_the_drivers_storage_trains_nothing(
    objects: ObjectStore, tmp_path: Path
) -> None:
    objects.put_json("sweeps/tiny/definition.json", {})
    landmark = "sweeps/tiny/definition.json"
    here = told(arm(), objects.root, landmark=landmark)
    assert ArmTrial(config=here).train()["step"] == 10
    elsewhere = told(arm(), str(tmp_path / "not_mounted"), landmark=landmark)
    result = ArmTrial(config=elsewhere).train()
    assert (result[STORE_PROBLEM], result["done"]) == (True, True)
    assert "every machine of the cluster" in result[PROBLEM]
    assert not (tmp_path / "not_mounted").exists()


def test_a_worker_without_the_data_fails_no_arm(objects: ObjectStore) -> None:
    """It would fail every arm that comes to it, and sooner than others train one."""
    config = replace(arm(), data=replace(arm().data, name="ucsd_ped2", folder="/not/mounted/here"))
    result = trial_of(objects, config).train()
    assert (result[STORE_PROBLEM], result["done"]) == (True, True)
    assert "/not/mounted/here" in result[PROBLEM]
    assert socket.gethostname() in result[PROBLEM]
    assert ArmStore(objects).record(config.signature()) is None


def test_an_unexpected_error_is_told_not_raised(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a defect of ours")

    monkeypatch.setattr(ArmStore, "record", broken)
    result = trial_of(objects, arm()).train()
    assert (finished(result), result[STORE_PROBLEM], result["done"]) == (False, False, True)
    assert "ZeroDivisionError: a defect of ours" in result[PROBLEM]


def test_a_worker_that_an_arm_cost_its_gpu_trains_no_other(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA fails every later call of such a process: each arm that came to it would be failed."""

    class ProcessEnds(BaseException):
        pass

    def lost() -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    def ends(code: int) -> None:
        raise ProcessEnds

    monkeypatch.setattr("os._exit", ends)
    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    assert trial_of(objects, arm()).train()["step"] == 10  # a process that uses no GPU
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert trial_of(objects, arm(seed=2)).train()["step"] == 10  # it never worked here
    monkeypatch.setattr("trainables.memory._worked", True)
    with pytest.raises(ProcessEnds):
        trial_of(objects, arm(seed=1)).train()
    assert ArmStore(objects).record(arm(seed=1).signature()) is None
    assert not objects.exists(f"arms/{arm(seed=1).signature()}/attempts.json")


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA starts on this machine")
def test_a_machine_whose_gpu_is_lost_fails_no_arm_at_once(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would fail one after the other, and sooner than others train one."""
    monkeypatch.setattr("trainables.trial.GPU_LOST_PAUSE_S", 0.0)
    config = replace(arm(), device="cuda")
    for _ in range(ARM_STARTS - 1):
        trial = trial_of(objects, config)
        result = trial.train()
        assert (finished(result), result[GPU_LOST], result["done"]) == (False, True, False)
        assert trial.train()[GPU_LOST] is True  # it holds the GPU, and starts no arm on it again
        assert result[STORE_PROBLEM] is False
        assert f"CUDA does not start on {socket.gethostname()}" in result[PROBLEM]
        assert "nvidia-smi" in result[PROBLEM]
        assert ArmStore(objects).record(config.signature()) is None
    assert finished(trial_of(objects, config).train()) is True
    record = ArmStore(objects).record(config.signature())
    assert record is not None
    assert record.status == "failed"
    assert socket.gethostname() in record.reason
    assert "--retry-failed" in record.reason


def test_an_arm_can_be_kept_from_machines() -> None:
    nodes = ["0" * 56, "f" * 56]
    asked = resources_of(told(arm(), "", avoid=nodes))
    assert asked.bundles == [{"CPU": 1.0}]
    assert asked != resources_of(told(arm(), ""))  # no worker there is kept for it
    (selector,) = asked._bound.arguments["bundle_label_selector"]
    assert validate_label_selector(selector) is None
    assert selector == {"ray.io/node-id": f"!in({nodes[0]}, {nodes[1]})"}


def test_tune_carries_plain_strings_and_no_state(objects: ObjectStore, tmp_path: Path) -> None:
    config = told(arm(), objects.root, bundle={"CPU": 2.0, "GPU": 0.25})
    assert all(isinstance(value, str | int | float) for value in config.values())
    assert resources_of(config).bundles == [{"CPU": 2.0, "GPU": 0.25}]
    assert TrialOrder.from_tune(config).configs == [arm()]
    several = told(arm(), objects.root, processes=3, avoid=["0" * 56])
    assert resources_of(several).bundles == [{"CPU": 1.0}] * 3  # all at once, or none
    trial = trial_of(objects, arm())
    assert trial.save_checkpoint(str(tmp_path)) == {}
    trial.load_checkpoint({})
    trial.cleanup()


def test_a_machine_that_is_about_to_go_is_left_at_the_next_report(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign = tmp_path / "leaves"
    monkeypatch.setenv(LEAVES, str(sign))
    trial = trial_of(objects, arm())
    sign.touch()
    first = trial.train()
    assert first["done"]
    assert (finished(first), first.get(PROBLEM)) == (False, None)
    assert ArmStore(objects).record(arm().signature()) is None  # it was not even begun
    sign.unlink()
    longer = replace(arm(1), steps=30)
    there = trial_of(objects, longer)
    assert not there.train()["done"]
    sign.touch()
    second = there.train()
    assert (second["done"], second["step"], finished(second)) == (True, 20, False)
    sign.unlink()
    elsewhere = trial_of(objects, longer).train()
    assert (elsewhere["step"], finished(elsewhere)) == (30, True)
