"""Slurm's commands, as programs of these names answer; tests/end_to_end has the real ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.slurm import queue
from sweep.slurm.jobs import KnownJob, SubmittedJob
from sweep.slurm.queue import NoAnswer, QueuedJob, QueueFull, Refused
from trainables.errors import Misuse

Program = Callable[[str, str], None]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Put a program of this name, a shell script, before all others; HOME is its folder."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "lab")
    monkeypatch.setattr(queue, "_last_s", -math.inf)
    queue.cluster_name.cache_clear()

    def write(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/bash\n{script}\n")
        (folder / name).chmod(0o755)

    return write


def test_a_submission_returns_the_id(program: Program, tmp_path: Path) -> None:
    script = f'echo "$@" >{tmp_path}/words; echo "You have 5 units left."; echo "42;east"; echo bye'
    program("sbatch", script)
    assert queue.submit(["--mem=4G"], Path("/a/job.sh")) == "42"
    assert (tmp_path / "words").read_text() == "--parsable --mem=4G /a/job.sh\n"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("invalid partition specified: gpuu", Refused),
        ("Batch job submission failed: Requested node configuration is not available", Refused),
        ("Batch job submission failed: Socket timed out on send/recv operation", NoAnswer),
        ("Unable to contact slurm controller (connect failure)", NoAnswer),
        ("Batch job submission failed: Zero Bytes were transmitted or received", NoAnswer),
        ("Batch job submission failed: QOSMaxSubmitJobPerUserLimit", QueueFull),
        ("AssocMaxSubmitJobLimit", QueueFull),
        ("allocation failure: Resource temporarily unavailable", QueueFull),
        ("Slurm temporarily unable to accept job, sleeping and retrying", QueueFull),
        ("Unable to contact slurm controller: Resource temporarily unavailable", NoAnswer),
        ("QOSMaxGRESPerJob", Refused),
        ("Job violates accounting/QOS policy (job submit limit, user's size)", Refused),
        ("invalid --sockets-per-node", Refused),
    ],
)
def test_refusals_are_told_from_lost_answers(
    program: Program, words: str, kind: type[Exception]
) -> None:
    program("sbatch", f'echo "sbatch: error: {words}" >&2; exit 1')
    with pytest.raises(kind) as error:
        queue.submit([], Path("job.sh"))
    assert str(error.value).endswith(words)


def test_a_program_that_hangs_is_an_answer_that_is_lost(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "ANSWER_S", 0.2)
    program("sbatch", "exec sleep 60")
    with pytest.raises(NoAnswer, match="sbatch has not answered within"):
        queue.submit([], Path("job.sh"))


def test_a_controller_that_has_as_many_jobs_as_it_takes_is_full(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its MaxJobCount sbatch tries again and again, and says so."""
    monkeypatch.setattr(queue, "ANSWER_S", 0.5)
    words = "Slurm temporarily unable to accept job, sleeping and retrying."
    program("sbatch", f'echo "sbatch: error: {words}" >&2; exec sleep 60')
    with pytest.raises(QueueFull, match="takes no more jobs now: Slurm temporarily unable"):
        queue.submit([], Path("job.sh"))


def test_a_machine_without_slurm_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Misuse, match=r"sbatch is not installed here.*login node"):
        queue.submit([], Path("job.sh"))


def test_the_queue_is_asked_once_in_a_while_by_all(program: Program, tmp_path: Path) -> None:
    program("squeue", f"echo asked >>{tmp_path}/asked; echo '7|sweep-a|PENDING|Resources'")
    first = queue.listing(tmp_path, 60.0)
    assert first is not None
    assert first.jobs == (QueuedJob("7", "sweep-a", "PENDING", "Resources"),)
    assert queue.listing(tmp_path, 60.0) == first
    assert len((tmp_path / "asked").read_text().split()) == 1
    time.sleep(0.02)
    assert queue.listing(tmp_path, 0.01) != first
    assert len((tmp_path / "asked").read_text().split()) == 2


def test_a_controller_that_is_away_leaves_what_was_known(program: Program, tmp_path: Path) -> None:
    program("squeue", "echo '7|sweep-a|RUNNING|None'")
    first = queue.listing(tmp_path, 60.0)
    program("squeue", "echo 'slurm_load_jobs error: Unable to contact' >&2; exit 1")
    time.sleep(0.02)
    assert queue.listing(tmp_path, 0.01) == first


def test_a_storage_that_cannot_be_written_makes_no_loop_of_questions(
    program: Program, tmp_path: Path
) -> None:
    (tmp_path / ".slurm").write_text("")  # no folder can be made there
    program("squeue", f"echo asked >>{tmp_path}/asked")
    for _ in range(5):
        queue.listing(tmp_path, 60.0)
    assert len((tmp_path / "asked").read_text().split()) == 1


def test_names_with_bars_and_strange_lines_do_no_harm(program: Program, tmp_path: Path) -> None:
    program("squeue", "echo '7|sweep-a|PENDING|Nodes|and more'; echo; echo strange")
    listed = queue.listing(tmp_path, 60.0)
    assert listed is not None
    assert [job.reason for job in listed.jobs] == ["Nodes|and more"]


def test_jobs_get_nothing_of_this_job_or_another_cluster() -> None:
    here = {
        "SLURM_JOB_ID": "1", "SBATCH_PARTITION": "x", "RAY_ADDRESS": "a:1", "SWEEP_ADDRESS": "b",
        "SLURM_CONF": "/etc/slurm.conf", "HOME": "/h", "MLFLOW_TRACKING_URI": "http://m",
        "RAY_TMPDIR": "/t", "SWEEP_DATA": "/d", "SQUEUE_STATES": "PD", "SLURM_CLUSTERS": "b",
    }  # fmt: skip
    kept = {"SLURM_CONF", "HOME", "MLFLOW_TRACKING_URI", "RAY_TMPDIR", "SWEEP_DATA"}
    assert set(queue.job_environment(here)) == kept


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (QueuedJob("1", "a", "PENDING", "Resources"), "it waits for nodes to be free"),
        (QueuedJob("1", "a", "PENDING", "QOSMaxGRESPerUser"), "you hold as many GPUs"),
        (QueuedJob("1", "a", "PENDING", "Unheard"), "pending (Unheard)"),
        (QueuedJob("1", "a", "RUNNING", "None"), "running"),
    ],
)
def test_reasons_are_explained(job: QueuedJob, words: str) -> None:
    assert words in str(job)


def test_the_end_of_a_job_is_read(program: Program) -> None:
    program("scontrol", "echo 'JobId=7 JobName=a JobState=OUT_OF_MEMORY Reason=OutOfMemory'")
    assert queue.end_of("7") == "OUT_OF_MEMORY"
    program("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert queue.end_of("7") == ""


def test_nothing_is_cancelled_where_nothing_is_named(program: Program, tmp_path: Path) -> None:
    program("scancel", f'echo "$@" >>{tmp_path}/words')
    queue.cancel([])
    assert not (tmp_path / "words").exists()  # scancel without a job may end them all
    queue.cancel([known(name, id) for name, id in (("a", "7"), ("b", "8"), ("c", ""))])
    assert (tmp_path / "words").read_text().splitlines() == [
        "--quiet --name=a 7", "--quiet --name=b 8", "--quiet --name=c",
    ]  # fmt: skip


def known(name: str, id: str) -> KnownJob:
    job = SubmittedJob(name, "worker", 0.0, id)
    return KnownJob(job, None, False, False, None, False)
