"""The job of a sweep: what it refuses, when it starts the driver again, and when it gives up."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep.cluster.submission import ANSWER, Answer, Submission
from sweep.cluster.supervise import NotYet, Progress, accept, drive, supervise
from sweep.errors import AlreadyRunning, NameTaken
from sweep.executors import autoscaling
from sweep.run.alike import put_failed_alike
from sweep.run.budget import BEGUN, Budget, put_budget
from sweep.run.coordinator import Coordinator
from sweep.run.events import Event
from sweep.run.run_sweep import run_sweep
from sweep.run.signals import KNOWN, request_stop, stop_on_request, stop_request
from sweep.study.arms import Arm
from sweep.study.definition import Definition, load_definition, put_definition
from sweep.study.lock import Driver, already_running, driver_of, driving_jobs
from sweep.tracking.address import place_of
from tests.support.drivers import tiny, wait_until
from tests.support.records import finished
from tests.support.toy_sweeps import LOSSES, definition, ends_where, started, train
from trainables.code_version import code_version
from trainables.errors import Failure, Misuse, UnknownName
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.retries import DRIVER_DEATHS

ROOT = Path(__file__).parents[3]
SMALL = definition(n_proposals=1, n_settings=1, seeds=(0,))  # two arms


@pytest.fixture
def toy(objects: ObjectStore) -> ObjectStore:
    put_definition(objects, SMALL)
    return objects


class Drivers:
    """Stand in for driver processes: each trains an arm or not, by hand, and ends as it is told."""

    def __init__(self, objects: ObjectStore, *lives: tuple[int, int]) -> None:
        self.objects, self.lives, self.starts = objects, lives, 0

    def __call__(self, known: str) -> int:
        """The next life: how many arms it trains, and its exit code; the last one repeats."""
        arms, code = self.lives[min(self.starts, len(self.lives) - 1)]
        self.starts += 1
        train(started(self.objects, SMALL), limit=arms)
        return code


def see_through(drivers: Drivers) -> int:
    return supervise(drivers.objects, "toy", drivers, waits_s=(0.0,))


# --- starting again -------------------------------------------------------------------------------


def test_a_driver_that_dies_is_started_until_the_sweep_ends(toy: ObjectStore) -> None:
    drivers = Drivers(toy, (1, 137), (1, 137), (0, 0))
    assert see_through(drivers) == 0
    assert drivers.starts == 3
    assert len(toy.names("arms")) == 2


def test_a_driver_that_dies_without_progress_is_left_to_a_person(
    toy: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    drivers = Drivers(toy, (0, 1))
    assert see_through(drivers) == 1
    assert drivers.starts == DRIVER_DEATHS
    assert f"died {DRIVER_DEATHS} times without progress" in capsys.readouterr().out


def test_a_driver_whose_first_arms_fail_alike_is_left_to_a_person(objects: ObjectStore) -> None:
    asked = put_definition(objects, definition())
    starts = []

    def whose_arms_fail(known: str) -> int:
        starts.append(known)
        coordinator = started(objects, asked)
        train(coordinator, ends_where(lambda arm: True, "failed", "no kernel."))
        return coordinator.summary().exit_code

    assert supervise(objects, "toy", whose_arms_fail, waits_s=(0.0,)) == 1
    assert len(starts) == 1


@pytest.mark.parametrize("ended", ["at its budget", "alike"])
def test_how_the_run_before_ended_keeps_no_job_from_starting_its_driver_again(
    toy: ObjectStore, ended: str
) -> None:
    if ended == "alike":
        put_failed_alike(toy, "toy", "the first 3 arms failed alike")
    else:
        put_budget(toy, "toy", Budget(max_arms=1), reached="--max-arms 1")
    starts = []

    def dies_before_it_starts(known: str) -> int:
        starts.append(known)
        return 1

    assert supervise(toy, "toy", dies_before_it_starts, waits_s=(0.0,)) == 1
    assert len(starts) == DRIVER_DEATHS


def test_a_budget_is_reached_once_although_an_arm_has_failed(objects: ObjectStore) -> None:
    asked = put_definition(objects, definition())
    starts = []

    class Fails:
        where, options = "inline", ()

        def train(self, coordinator: Coordinator) -> None:
            train(coordinator, ends_where(lambda arm: arm.config.seed == 1, "failed", "no kernel."))

    def drives(known: str) -> int:
        starts.append(known)
        budget = Budget(max_arms=8)
        return run_sweep(objects, asked, Fails(), display=False, budget=budget).exit_code

    assert supervise(objects, "toy", drives, waits_s=(0.0,)) == 1
    assert len(starts) == 1


def test_every_driver_of_a_job_has_its_budget_and_counts_hours_from_the_jobs_beginning(
    toy: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        calls.append((command, options["env"]))
        return popen(["true"])

    monkeypatch.setattr(subprocess, "Popen", start)
    budget = Budget(max_arms=7, max_hours=2.0)
    sent = Submission("toy", options=budget.options)
    given: list[subprocess.Popen[bytes]] = []
    assert drive(toy, sent, "", begun_s=1234.5, on_start=given.append) == 0
    assert given[0].returncode == 0
    ((command, environment),) = calls
    assert command[-4:] == ["--max-arms", "7", "--max-hours", "2"]
    monkeypatch.setenv(BEGUN, environment[BEGUN])
    assert Budget(max_hours=2.0).begun_s == 1234.5


def test_a_driver_that_refuses_ends_a_sweep_only_where_it_is_the_first(toy: ObjectStore) -> None:
    """Of a head that follows another, data may be away for the moment."""
    codes = iter([2, 2, 0])
    assert supervise(toy, "toy", lambda known: next(codes), waits_s=(0.0,), is_first=False) == 0
    assert supervise(toy, "toy", lambda known: 2, waits_s=(0.0,)) == 2


def test_a_caller_may_handle_sigterm_itself(toy: ObjectStore) -> None:
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    try:

        def run(known: str) -> int:
            os.kill(os.getpid(), signal.SIGTERM)
            return 0

        assert supervise(toy, "toy", run, sigterm_stops=False) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signals == [signal.SIGTERM]
    assert stop_request(toy, "toy") == ""


def test_progress_starts_the_count_anew(toy: ObjectStore) -> None:
    drivers = Drivers(toy, (0, 1), (0, 1), (1, 1), (0, 1), (1, 137), (0, 1), (0, 0))
    assert see_through(drivers) == 1  # the sixth: nothing is left, and not all went well
    assert drivers.starts == 6


def test_an_arm_that_comes_to_the_same_step_again_is_no_progress(toy: ObjectStore) -> None:
    """Its record goes back to the last checkpoint, and on to where it was."""
    starts = []

    def to_the_same_step(known: str) -> int:
        starts.append(known)

        def record_of(arm: Arm) -> ArmRecord:
            whole = finished(arm.config, LOSSES)
            reports = whole.reports[: 1 + len(starts) % 2]
            return replace(whole, status="running", evaluation=None, reports=reports)

        train(started(toy, SMALL), record_of, limit=1)
        return 1

    assert supervise(toy, "toy", to_the_same_step, waits_s=(0.0,)) == 1
    assert len(starts) == DRIVER_DEATHS


def test_judged_proposals_are_not_read_one_by_one(toy: ObjectStore) -> None:
    """Ten thousand of them are as many requests, before the first driver starts."""
    progress = Progress(toy, "toy")
    train(started(toy, SMALL))
    for stored in Path(toy.root, "sweeps", "toy", "proposals", "g1").glob("0*.json"):
        stored.write_text("whoever reads this fails")
    assert progress.is_new()
    assert not progress.is_new()


@pytest.mark.parametrize(("arms", "code"), [(2, 0), (0, 2), (2, 1)])
def test_a_driver_that_said_its_last_word_is_not_started_again(
    toy: ObjectStore, arms: int, code: int
) -> None:
    """Done; refused as it was asked; or done, and something went wrong that it told."""
    drivers = Drivers(toy, (arms, code))
    assert see_through(drivers) == code
    assert drivers.starts == 1


def test_a_store_that_is_away_is_no_progress(toy: ObjectStore) -> None:
    drivers = Drivers(toy, (0, 1))

    def loses_its_disk(known: str) -> int:
        drivers.starts += 1
        Path(toy.root, "sweeps", "toy", "definition.json").write_text("damaged")
        return 1

    assert supervise(toy, "toy", loses_its_disk, waits_s=(0.0,)) == 1
    assert drivers.starts == DRIVER_DEATHS


def test_a_driver_is_not_started_while_the_store_cannot_be_written(
    toy: ObjectStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would only die of it, and be left to a person long before a disk is freed."""
    full = iter([True] * (2 * DRIVER_DEATHS))
    put_local = ObjectStore._put_local

    def put(path: Path, content: bytes, **more: bool) -> None:
        if path.name.startswith(".probe") and next(full, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        put_local(path, content, **more)

    monkeypatch.setattr(ObjectStore, "_put_local", staticmethod(put))
    drivers = Drivers(toy, (0, 1), (2, 0))
    told: list[Event] = []
    code = supervise(toy, "toy", drivers, waits_s=(0.0,), look_s=0.0, on_event=told.append)
    assert code == 0
    assert drivers.starts == 2
    assert [event.kind for event in told] == ["stalled"]
    assert "No space left on device" in told[0].text
    assert "continues once" in told[0].text
    assert next(full, False) is False
    assert capsys.readouterr().out.count("No space left on device") == 1


# --- stopping -------------------------------------------------------------------------------------


def test_a_sweep_that_was_stopped_is_not_started_again(toy: ObjectStore) -> None:
    drivers = Drivers(toy, (0, 1))

    def is_stopped(known: str) -> int:
        request_stop(toy, "toy")
        return drivers(known)

    assert supervise(toy, "toy", is_stopped) == 1
    assert drivers.starts == 1
    assert see_through(Drivers(toy, (0, 1), (2, 0))) == 0  # an old request stops nothing


def test_a_stop_between_two_drivers_reaches_the_next(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.run.signals.POLL_S", 0.01)
    put_definition(objects, SMALL)
    request_stop(objects, "toy")
    monkeypatch.setenv(KNOWN, "")
    coordinator = Coordinator(objects, SMALL)
    with stop_on_request(coordinator, known=stop_request(objects, "toy")):
        wait_until(lambda: bool(coordinator.stopping))
    assert stop_request(objects, "toy")  # its supervisor sees why it ended


def test_sigterm_is_a_stop(toy: ObjectStore) -> None:
    starts = []

    def is_terminated(known: str) -> int:
        starts.append(known)
        signal.raise_signal(signal.SIGTERM)
        return 128 + signal.SIGTERM

    assert supervise(toy, "toy", is_terminated) == 128 + signal.SIGTERM
    assert len(starts) == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_sigterm_is_a_stop_also_while_the_store_is_away(
    toy: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = []

    def away(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def is_terminated(known: str) -> int:
        starts.append(known)
        monkeypatch.setattr(ObjectStore, "_put_local", staticmethod(away))
        signal.raise_signal(signal.SIGTERM)
        return 128 + signal.SIGTERM

    assert supervise(toy, "toy", is_terminated, waits_s=(0.0,)) == 128 + signal.SIGTERM
    assert len(starts) == 1


def test_a_stop_while_data_were_prepared_counts(toy: ObjectStore) -> None:
    """Requests count from when the job began, and not from when the first driver starts."""
    request_stop(toy, "toy")
    before = stop_request(toy, "toy")
    request_stop(toy, "toy")
    drivers = Drivers(toy, (0, 1))
    assert supervise(toy, "toy", drivers, known=before, waits_s=(0.0,)) == 1
    assert drivers.starts == 1


# --- what is accepted -----------------------------------------------------------------------------


@pytest.fixture
def accepted(objects: ObjectStore) -> Callable[..., list[str]]:
    """Accept a submission of the tiny sweep; returns the notes."""

    def accept_it(**fields: object) -> list[str]:
        notes: list[str] = []
        given: dict[str, object] = {"definition": tiny().to_json(), **fields}
        sent = Submission(name="tiny", version=code_version())
        accept(objects, replace(sent, **given), notes.append)  # type: ignore[arg-type]
        return notes

    return accept_it


def test_the_same_definition_attaches_and_another_is_refused(
    objects: ObjectStore, accepted: Callable[..., list[str]]
) -> None:
    assert accepted() == []
    assert accepted() == []
    with pytest.raises(NameTaken, match=r"base\.steps: stored 40, given 8"):
        accepted(definition=tiny(steps=8).to_json())
    grown = tiny(n_proposals=3).to_json()
    assert accepted(definition=grown) == ["extends tiny from 2 to 3 proposals"]
    assert load_definition(objects, "tiny").space.n_proposals == 3


def test_a_sweep_on_cpus_is_told_of_the_gpus_that_it_leaves_idle(
    accepted: Callable[..., list[str]],
) -> None:
    kinds = {"l4": {"resources": {"CPU": 8, "GPU": 1}, "max_workers": 12}}
    grows = {"max_workers": 12, "available_node_types": kinds}
    Path(autoscaling.CONFIG).expanduser().write_text(json.dumps(grows))
    (note,) = accepted()
    assert "no setting of tiny uses a GPU" in note
    assert "(12 in all): up to 96 arms will train on CPUs" in note
    assert "--set device=cuda" in note
    kinds["cpus"] = {"resources": {"CPU": 64}, "max_workers": 1}
    Path(autoscaling.CONFIG).expanduser().write_text(json.dumps(grows))
    assert accepted() == []


@pytest.mark.parametrize("asked", [{"seeds": "4"}, {"n_proposals": 9}, {"retry_failed": True}])
def test_a_confirmation_does_not_grow(objects: ObjectStore, asked: dict[str, object]) -> None:
    space = tiny().space
    base = replace(space.base, early_stop=False, measured_on="test")
    confirmation = replace(space, base=base, phase="confirmation")
    stored = put_definition(objects, Definition("tiny.confirmation", confirmation))
    sent = Submission(name="tiny.confirmation", any_version=True)
    with pytest.raises(Misuse, match="its seeds and arms are those of its plan"):
        accept(objects, replace(sent, **asked), print)  # type: ignore[arg-type]
    assert load_definition(objects, "tiny.confirmation") == stored


def test_a_sweep_that_is_driven_is_compared_and_does_not_grow(
    objects: ObjectStore, accepted: Callable[..., list[str]]
) -> None:
    accepted()
    token = driving_jobs.set({})
    try:
        assert accepted(driven_by="tiny-1") == []
        with pytest.raises(NameTaken):
            accepted(driven_by="tiny-1", definition=tiny(steps=8).to_json())
        with pytest.raises(AlreadyRunning, match="job tiny-1"):
            accepted(driven_by="tiny-1", definition=tiny(n_proposals=3).to_json())
        assert str(driver_of(objects, "tiny")) == "job tiny-1"
        driving_jobs.set({})
        others = (("tiny-1", f"{objects.root}/"),)
        assert accepted(others=others, mlflow="http://elsewhere:5000") == []
        assert str(driver_of(objects, "tiny")) == "job tiny-1"
        assert "elsewhere" not in place_of(objects, load_definition(objects, "tiny"))
    finally:
        driving_jobs.reset(token)
    assert load_definition(objects, "tiny").space.n_proposals == 2


def test_a_sweep_that_is_driven_and_not_stored_yet_is_left_to_its_driver(
    objects: ObjectStore, accepted: Callable[..., list[str]]
) -> None:
    """The driving job looks for its data; another definition under the name would refuse it."""
    token = driving_jobs.set({})
    try:
        with pytest.raises(NotYet):
            accepted(driven_by="tiny-1")
    finally:
        driving_jobs.reset(token)
    assert objects.names("sweeps") == []


def test_a_lock_of_another_machine_may_outlive_it() -> None:
    gone = Driver(12, "a-head-of-before")
    assert "If a-head-of-before is gone" in str(already_running("tiny", gone, "/root"))
    here = Driver(12, socket.gethostname())
    for driver in (here, replace(gone, job="tiny-1"), None):
        assert "gone" not in str(already_running("tiny", driver, "/root"))


def test_another_version_of_the_code_writes_nothing(
    objects: ObjectStore, accepted: Callable[..., list[str]]
) -> None:
    with pytest.raises(Failure, match="--any-version"):
        accepted(version="0.0+other")
    assert objects.names("sweeps") == []
    accepted(version="0.0+other", any_version=True)
    assert objects.names("sweeps") == ["tiny"]


def test_the_place_of_tracking_is_remembered_for_the_driver(
    objects: ObjectStore, accepted: Callable[..., list[str]]
) -> None:
    accepted(mlflow="http://head:5000")
    assert place_of(objects, load_definition(objects, "tiny")) == "http://head:5000"


def test_resuming_needs_a_stored_sweep_and_can_ask_for_more(
    objects: ObjectStore, accepted: Callable[..., list[str]]
) -> None:
    with pytest.raises(UnknownName, match="unknown sweep 'tiny'"):
        accepted(definition=None)
    put_definition(objects, tiny())
    notes = accepted(definition=None, n_proposals=3, seeds="2")
    assert notes == [
        "extends tiny from 2 to 3 proposals",
        "extends tiny from search seeds [0] to [0, 1]",
    ]


def test_failed_arms_are_forgotten_once_and_not_at_every_start(toy: ObjectStore) -> None:
    train(started(toy, SMALL), ends_where(lambda arm: arm.proposal == 0, "failed", "broken"))
    assert len(toy.names("arms")) == 2
    sent = Submission(name="toy", version=code_version(), retry_failed=True)
    accept(toy, sent, lambda _: None)
    assert len(toy.names("arms")) == 1
    assert all(ArmStore(toy).record(name) for name in toy.names("arms"))


def test_a_refusal_is_an_answer_and_an_exit_code(tmp_path: Path) -> None:
    Submission(name="gone", version=code_version(), storage=str(tmp_path / "root")).write(tmp_path)
    job = subprocess.run(
        [sys.executable, "-m", "sweep.cluster.supervise"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert job.returncode == 2, job.stderr
    answer = Answer.from_log(job.stdout)
    assert answer is not None
    assert answer.code == 2
    assert "unknown sweep 'gone'" in answer.err
    assert json.loads(job.stdout.removeprefix(ANSWER))["version"] == code_version()
