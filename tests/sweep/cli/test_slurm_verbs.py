"""Verbs with a slurm.yaml for an address: what is submitted, said and refused on a login node."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.slurm.folder import SlurmFolder
from sweep.study import advice
from sweep.study.definition import put_definition
from sweep.study.lock import driver_lock, driving_jobs
from tests.support.command_line import SPACE_FILE, refused, sweep
from tests.support.servers.slurm_programs import SlurmPrograms
from tests.support.toy_sweeps import definition, started, train
from trainables.records.objects import ObjectStore

HERE = ("--address", "slurm.yaml")
YAML = "storage: {storage}\npoll_s: 1\nhead: {{time: 10}}\nworker: {{cpus: 2, most: 2}}\n"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmPrograms]:
    """The login node: a slurm.yaml and a space in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in (advice.ASKED_FROM, advice.SEES_STORAGE, "SWEEP_DATA", "SWEEP_CACHE"):
        monkeypatch.setenv(name, "")  # which verbs set, each in a process of its own
        del os.environ[name]
    (tmp_path / "slurm.yaml").write_text(YAML.format(storage=tmp_path / "sweeps"))
    (tmp_path / "mine.py").write_text(SPACE_FILE)
    before = driving_jobs.set({})
    yield SlurmPrograms(tmp_path / "programs", monkeypatch)
    driving_jobs.reset(before)


def folder(tmp_path: Path) -> SlurmFolder:
    return SlurmFolder(str(tmp_path / "sweeps"), "mine")


@pytest.mark.long("the jobs' Python is started as they start it, and photographs are decoded")
def test_a_submission_is_stored_and_queued_once(programs: SlurmPrograms, tmp_path: Path) -> None:
    first = sweep("submit", "mine.py", *HERE)
    assert first.stdout == "mine\n"
    assert "mine is driven by job 1. Watch it with `sweep status mine --address slurm.yaml`" in (
        first.stderr
    )
    again = sweep("submit", "mine.py", *HERE)
    assert "is driven by job 1" in again.stderr
    (words,) = programs.submitted()
    (job,) = folder(tmp_path).jobs()
    assert f"--job-name={job.name} " in words
    for option in ("--no-requeue", "--signal=B:USR1@120", "--time=10", "--cpus-per-task=1"):
        assert option in words
    script = Path(words.split()[-1]).read_text()
    assert script.startswith("#!/bin/bash -l\n")
    assert f"-m sweep.cluster.slurm_head {tmp_path}/sweeps mine {job.name}\n" in script


def test_a_sweep_with_nothing_left_to_train_queues_no_job(
    programs: SlurmPrograms, tmp_path: Path
) -> None:
    objects = ObjectStore(str(tmp_path / "sweeps"))
    train(started(objects, put_definition(objects, definition())))
    assert "toy has nothing left to train: no job was added" in sweep("resume", "toy", *HERE).stderr
    assert programs.submitted() == []


def test_an_answer_that_is_lost_queues_no_second_job(
    programs: SlurmPrograms, tmp_path: Path
) -> None:
    programs.lose()
    said = sweep("submit", "mine.py", *HERE).stderr
    assert "Slurm's controller does not answer: Socket timed out" in said
    assert "is driven by job 1" in sweep("submit", "mine.py", *HERE).stderr
    assert len(programs.submitted()) == 1


def test_a_queued_sweep_is_shown_stopped_and_resumed(
    programs: SlurmPrograms, tmp_path: Path
) -> None:
    sweep("submit", "mine.py", *HERE)
    shown = sweep("status", "mine", *HERE).stdout
    assert "mine is running, by job 1, pending (Resources: it waits for nodes to be free)" in shown
    (listed,) = json.loads(sweep("list", "--json", *HERE).stdout)
    assert listed["state"] == "running"
    assert (
        "no head job of mine has written to its log yet: job 1"
        in sweep("logs", "mine", *HERE).stderr
    )
    driving_jobs.set({})  # as in another process
    said = refused("rm", "mine", "--yes", "--storage", "sweeps")
    assert "mine has job 1 on Slurm: stop it with `sweep stop mine --address slurm.yaml`" in said
    stopped = sweep("stop", "mine", *HERE).stdout
    assert stopped == (
        "mine: took job 1 out of the queue. `sweep resume mine --address slurm.yaml` continues.\n"
    )
    assert programs.queue() == {}
    shown = sweep("status", "mine", *HERE).stdout
    assert "mine is stopped" in shown
    assert "Continue with `sweep resume mine --address slurm.yaml`" in shown
    assert "mine is not running" in refused("stop", "mine", *HERE)
    sweep("resume", "mine", *HERE)
    assert list(programs.queue()) == ["2"]
    assert "mine is running (job 2" in refused("rm", "mine", "--yes", *HERE)
    sweep("stop", "mine", *HERE)
    assert "Deleted mine." in sweep("rm", "mine", "--yes", *HERE).stdout
    assert not folder(tmp_path).path.exists()


def test_why_the_jobs_ended_is_told(programs: SlurmPrograms, tmp_path: Path) -> None:
    sweep("submit", "mine.py", *HERE)
    folder(tmp_path).end_all("3 head jobs in a row failed: no module", is_good=False)
    programs.end("1", "FAILED")
    said = sweep("status", "mine", *HERE).stderr
    assert "its jobs on Slurm ended: 3 head jobs in a row failed: no module" in said


def test_what_slurm_will_not_take_is_refused_before_anything_is_stored(
    programs: SlurmPrograms, tmp_path: Path
) -> None:
    programs.write("sbatch", "echo 'sbatch: error: invalid partition specified: gpuu' >&2; exit 1")
    said = refused("submit", "mine.py", *HERE)
    assert "head in slurm.yaml: Slurm refuses such a job: invalid partition specified: gpuu" in said
    assert not (tmp_path / "sweeps" / "sweeps" / "mine").exists()


def test_a_queue_that_takes_no_more_is_told(programs: SlurmPrograms, tmp_path: Path) -> None:
    programs.refuse("sbatch: error: QOSMaxSubmitJobPerUserLimit\n")
    said = sweep("submit", "mine.py", *HERE, exits=1).stderr
    assert "Slurm takes no more of your jobs now: QOSMaxSubmitJobPerUserLimit" in said
    programs.refuse("")
    assert "is driven by job 1" in sweep("submit", "mine.py", *HERE).stderr


def test_worker_jobs_that_hold_no_arm_are_refused(programs: SlurmPrograms, tmp_path: Path) -> None:
    said = refused("submit", "mine.py", *HERE, "--set", "threads=4")
    assert "no worker job holds an arm of mine, which needs {'CPU': 4.0}" in said
    assert "Raise its cpus, gpus or most" in said
    assert programs.submitted() == []


def test_gpus_that_no_arm_uses_are_told_of(programs: SlurmPrograms, tmp_path: Path) -> None:
    file = tmp_path / "slurm.yaml"
    file.write_text(file.read_text().replace("cpus: 2", "cpus: 2, gpus: 1"))
    assert "no setting of mine uses a GPU" in sweep("submit", "mine.py", *HERE).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("status", "mine", "--address", "slurm.yml"), "an existing cluster.yaml or slurm.yaml"),
        (("status", "mine", *HERE), "unknown sweep 'mine'. Known: none"),
        (
            ("status", "mine", *HERE, "--storage", "/b"),
            "--storage must be left out with slurm.yaml",
        ),
        (("submit", "mine.py", *HERE, "--data", "data"), "absolute path on its nodes, got 'data'"),
        (("submit", "nine.py", *HERE), "nine.py"),
        (("submit", "mine.py", *HERE, "--mlflow", "mlruns"), "an MLflow address must be like"),
        (("resume", "mine", *HERE), "unknown sweep 'mine'"),
        (("resume", "mine", *HERE, "--where", "local"), "--where must be cluster with --address"),
        (("logs", "mine", *HERE), "unknown sweep 'mine'"),
        (("stop", "mine", *HERE), "unknown sweep 'mine'"),
        (("confirm", "mine", *HERE, "--replications", "10"), "Give it within a job of your own"),
    ],
)
def test_mistakes_on_the_command_line(
    programs: SlurmPrograms, words: tuple[str, ...], message: str
) -> None:
    assert message in refused(*words)
    assert programs.submitted() == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("worker: {cpu: 2}", "slurm.yaml: unknown field of Worker 'cpu'"),
        (
            "worker: {partition: FILL-IN}",
            "slurm.yaml has FILL-IN in line 2: write what your site has",
        ),
        ("partition: gpu", "slurm.yaml: unknown key 'partition'"),
        ("head: {time: soon}", "slurm.yaml: head.time must be a time limit"),
        ("worker: [1", "slurm.yaml is no YAML: line"),
    ],
)
@pytest.mark.parametrize("verb", [("submit", "mine.py"), ("status",), ("doctor",)])
def test_mistakes_in_the_file(
    programs: SlurmPrograms, tmp_path: Path, wrong: str, message: str, verb: tuple[str, ...]
) -> None:
    (tmp_path / "slurm.yaml").write_text(f"storage: {tmp_path}/sweeps\n{wrong}\n")
    said = refused(*verb, *HERE)
    assert message in said
    assert programs.submitted() == []


def test_a_sweep_that_was_not_submitted_has_no_log(programs: SlurmPrograms, tmp_path: Path) -> None:
    put_definition(ObjectStore(str(tmp_path / "sweeps")), definition())
    assert "toy was not submitted to Slurm" in refused("logs", "toy", *HERE)
    assert "toy is stopped" in sweep("status", "toy", *HERE).stdout


def test_a_sweep_that_runs_here_is_left_to_its_driver(
    programs: SlurmPrograms, tmp_path: Path
) -> None:
    sweep("submit", "mine.py", *HERE)
    sweep("stop", "mine", *HERE)
    with driver_lock(ObjectStore(str(tmp_path / "sweeps")), "mine"):
        assert "is driven by process" in sweep("submit", "mine.py", *HERE).stderr
    assert len(programs.submitted()) == 1


def test_doctor_looks_before_anything_queues(programs: SlurmPrograms, tmp_path: Path) -> None:
    said = sweep("doctor", *HERE).stdout
    for line in ("pass  slurm.yaml", "pass  head job", "pass  worker job", "pass  Python of jobs"):
        assert line in said
    programs.write("sbatch", "echo 'sbatch: error: invalid partition specified: x' >&2; exit 1")
    file = tmp_path / "slurm.yaml"
    file.write_text(file.read_text() + "setup: ['echo no such module >&2; false']\n")
    said = sweep("doctor", *HERE, exits=1).stdout
    assert "FAIL  head job: Slurm refuses such a job: invalid partition specified: x" in said
    assert "shows what there is" in said
    assert "end with: no such module" in said
    (programs.folder / "squeue").unlink()
    entries = json.loads(sweep("doctor", "--json", *HERE, exits=1).stdout)
    assert entries[1]["passed"] is (os.path.exists("/usr/bin/squeue"))
