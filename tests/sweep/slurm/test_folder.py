"""A sweep's jobs as files: who begins, who is given up, and how jobs ended."""

from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep.slurm import queue
from sweep.slurm.folder import CLOCKS_S, LATE_S, SlurmFolder, failures_to_join, trouble
from sweep.slurm.jobs import Head, KnownJob, SubmittedJob
from tests.support.servers.slurm_programs import SlurmPrograms
from trainables.errors import StoreError

POLL_S = 0.01


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmPrograms:
    return SlurmPrograms(tmp_path / "programs", monkeypatch)


@pytest.fixture
def folder(tmp_path: Path, programs: SlurmPrograms) -> SlurmFolder:
    there = SlurmFolder(str(tmp_path), "tiny")
    there.begin({"slurm": {"storage": str(tmp_path)}, "submission": {"name": "tiny"}, "known": ""})
    return there


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let so much time pass."""
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + seconds)


def only(folder: SlurmFolder) -> KnownJob:
    (known,) = folder.jobs()
    return known


def test_a_job_begins_once_and_not_after_it_was_given_up(folder: SlurmFolder) -> None:
    one, two = folder.intend("worker"), folder.intend("worker")
    assert folder.claim(one.name, "7", "node1")
    assert not folder.claim(one.name, "7", "node1")  # its script, run a second time
    assert not folder.withdraw(one.name)
    assert folder.withdraw(two.name)
    assert not folder.claim(two.name, "8", "node1")
    assert [known.has_begun for known in folder.jobs()] == [True, False]
    assert [known.is_over for known in folder.jobs()] == [False, True]


def test_jobs_of_an_earlier_submission_begin_no_more(folder: SlurmFolder) -> None:
    job = folder.intend("worker")
    folder.begin(folder.about())
    assert not folder.claim(job.name, "7", "node1")
    assert not folder.knows(job.name)


def test_a_job_whose_answer_was_lost_is_known_by_its_name(
    folder: SlurmFolder, programs: SlurmPrograms
) -> None:
    job = folder.intend("head")
    (programs.folder / "queue").write_text(f"77|{job.name}|PENDING|Priority\n")
    folder.settle(POLL_S)
    assert only(folder).id == "77"


def test_a_submission_that_nobody_knows_of_is_given_up_after_a_while(
    folder: SlurmFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.intend("head")
    later(monkeypatch, LATE_S / 2)
    folder.settle(POLL_S)
    assert not only(folder).is_over
    later(monkeypatch, LATE_S)
    time.sleep(2 * POLL_S)
    folder.settle(POLL_S)
    assert only(folder).is_over


def test_a_list_from_just_after_a_submission_says_nothing_of_it(
    folder: SlurmFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.submitted(folder.intend("worker"), "7")
    later(monkeypatch, CLOCKS_S / 2)
    folder.settle(POLL_S)
    assert not only(folder).is_over


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "SUSPENDED"])
def test_a_job_that_a_list_lacks_is_not_over_where_slurm_says_it_is_there(
    folder: SlurmFolder, programs: SlurmPrograms, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    folder.submitted(folder.intend("worker"), "7")
    programs.end("7", state)
    later(monkeypatch, LATE_S)
    folder.settle(POLL_S)
    assert not only(folder).is_over


@pytest.mark.parametrize("whose", [{"uid": -1}, {"cluster": "other"}])
def test_jobs_of_another_user_or_cluster_are_not_judged_by_ones_own_list(
    folder: SlurmFolder, monkeypatch: pytest.MonkeyPatch, whose: dict[str, Any]
) -> None:
    folder.submitted(folder.intend("worker"), "7")
    file = folder.path / "sweep.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **whose}))
    later(monkeypatch, LATE_S)
    assert folder.settle(POLL_S) is None
    assert not only(folder).is_over


@pytest.mark.parametrize(
    ("state", "words", "is_good"),
    [
        ("OUT_OF_MEMORY", "job 7 was killed for memory on node1: raise worker.memory", False),
        ("NODE_FAIL", "job 7 lost its node on node1", True),
        ("PREEMPTED", "job 7 was preempted on node1", True),
        ("TIMEOUT", "job 7 reached its time limit on node1", True),
        ("CANCELLED", "job 7 was cancelled on node1", True),
        ("COMPLETED", "job 7 ended on node1 as COMPLETED", True),
        ("FAILED", "job 7 ended on node1 as FAILED", False),
    ],
)
def test_a_job_that_ended_without_a_word_has_slurms(
    folder: SlurmFolder,
    programs: SlurmPrograms,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    words: str,
    is_good: bool,
) -> None:
    job = folder.submitted(folder.intend("worker"), "7")
    folder.claim(job.name, "7", "node1")
    programs.end("7", state)
    later(monkeypatch, LATE_S)
    folder.settle(POLL_S)
    end = only(folder).end
    assert end is not None
    assert words in end.why
    assert end.is_good is is_good


def test_its_own_word_is_the_one_that_counts(folder: SlurmFolder) -> None:
    job = folder.submitted(folder.intend("worker"), "7")
    folder.claim(job.name, "7", "node1")
    folder.ended(job.name, "left", is_good=True)
    folder.ended(job.name, "was lost", is_good=False)
    end = only(folder).end
    assert end is not None
    assert end.why == "left"


def test_secrets_are_for_this_user_alone(folder: SlurmFolder) -> None:
    for file in (folder.token, folder.path / "sweep.json"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first = folder.token.read_text()
    folder.begin(folder.about())
    assert folder.token.read_text() != first
    assert len(first) == 64


def test_a_new_submission_forgets_how_the_last_one_ended(folder: SlurmFolder) -> None:
    folder.put_head(Head("a", "job", "7", "node1"))
    folder.end_all("it was stopped", is_good=True)
    assert folder.over() is not None
    folder.begin(folder.about())
    assert (folder.over(), folder.head(), folder.jobs()) == (None, None, [])


def test_three_jobs_that_never_joined_are_told_of_with_their_log(folder: SlurmFolder) -> None:
    for number in range(3):
        job = folder.submitted(folder.intend("worker"), str(number))
        assert trouble(folder, folder.jobs("worker"), 0.0) == ""
        (folder.logs / f"worker-{job.id}.log").write_text("one\nmodule: unknown module cuda/99\n")
        folder.ended(job.name, f"job {number} ended as FAILED", is_good=False)
    said = trouble(folder, folder.jobs("worker"), 0.0)
    assert "3 worker jobs in a row ended before they joined: job 2 ended as FAILED" in said
    assert said.endswith("one\nmodule: unknown module cuda/99")
    assert trouble(folder, folder.jobs("worker"), time.time() + 1) == ""  # since then none
    joined = folder.submitted(folder.intend("worker"), "8")
    folder.mark(joined.name, "joined")
    assert failures_to_join(folder.jobs("worker")) == []


def test_a_sweep_that_trains_is_in_no_trouble_whatever_other_jobs_do(folder: SlurmFolder) -> None:
    began_s = time.time()
    joined = folder.submitted(folder.intend("worker"), "8")
    folder.mark(joined.name, "joined")
    for number in range(3):
        job = folder.submitted(folder.intend("worker"), str(number))
        folder.ended(job.name, "a node without a disk", is_good=False)
    assert trouble(folder, folder.jobs("worker"), began_s) == ""
    folder.ended(joined.name, "left", is_good=True)  # at its limit; the next one is in the queue
    assert trouble(folder, folder.jobs("worker"), began_s) == ""
    coming = folder.submitted(folder.intend("worker"), "9")
    assert trouble(folder, folder.jobs("worker"), time.time() + 1) == ""
    folder.ended(coming.name, "a node without a disk", is_good=False)
    assert trouble(folder, folder.jobs("worker"), began_s) == ""


def test_a_mark_that_comes_after_the_end_is_seen(folder: SlurmFolder) -> None:
    job = folder.submitted(folder.intend("worker"), "8")
    folder.ended(job.name, "left", is_good=False)
    assert not only(folder).has_joined
    folder.mark(job.name, "joined")
    assert only(folder).has_joined


def test_a_slurm_that_names_no_cluster_leaves_what_there_was(
    folder: SlurmFolder, programs: SlurmPrograms
) -> None:
    job = folder.intend("worker")
    queue.cluster_name.cache_clear()
    programs.write("scontrol", "exit 1")
    with pytest.raises(queue.NoAnswer):
        folder.begin(folder.about())
    assert folder.knows(job.name)
    assert folder.settle(POLL_S) is None
    programs.write("scontrol", "echo ClusterName = stub")
    assert folder.settle(POLL_S) is not None  # a failure is not remembered


def test_a_claim_that_a_file_server_answered_twice_is_ones_own(
    folder: SlurmFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = folder.intend("worker")
    link = os.link

    def twice(source: Any, target: Any) -> None:
        link(source, target)
        raise FileExistsError(17, "File exists")

    monkeypatch.setattr(os, "link", twice)
    assert folder.claim(job.name, "7", "node1")
    assert not folder.withdraw(job.name)


def test_a_job_of_several_nodes_is_idle_when_all_are(folder: SlurmFolder) -> None:
    job = folder.intend("worker")
    assert not folder.is_idle(job.name, 0, 2, idle=True)
    assert folder.is_idle(job.name, 1, 2, idle=True)
    assert not folder.is_idle(job.name, 0, 2, idle=False)
    assert not folder.is_idle(job.name, 1, 2, idle=True)


def test_a_folder_that_cannot_be_read_is_no_empty_one(folder: SlurmFolder) -> None:
    jobs = folder.path / "jobs"
    jobs.rename(folder.path / "away")
    assert folder.jobs() == []
    jobs.write_text("")  # as a file server in trouble answers: not a folder
    with pytest.raises(StoreError, match="jobs cannot be read"):
        folder.jobs()


def test_cancelled_jobs_leave_the_queue_and_never_begin(
    folder: SlurmFolder, programs: SlurmPrograms
) -> None:
    job = folder.submitted(folder.intend("worker"), "7")
    lost = folder.intend("worker")
    begun = folder.submitted(folder.intend("worker"), "9")
    folder.claim(begun.name, "9", "node1")
    folder.cancel(folder.jobs())
    assert programs.cancelled() == ["7", f"--name={lost.name}"]
    folder.cancel(folder.jobs(), begun=True)
    assert "9" in programs.cancelled()
    assert not folder.claim(job.name, "7", "node1")
    assert not folder.claim(lost.name, "8", "node1")


def test_half_written_files_are_passed_over(folder: SlurmFolder) -> None:
    job = folder.intend("worker")
    (folder.path / "jobs" / f"{job.name}.claim.json").write_text('{"has_be')
    (folder.path / "head.json").write_text("")
    assert only(folder).claim is None
    assert folder.head() is None
    plain = json.loads((folder.path / "jobs" / f"{job.name}.job.json").read_text())
    assert SubmittedJob.from_json(plain) == replace(job)
