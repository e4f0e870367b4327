"""Batch scripts: what jobs run, and what is refused before they queue."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from sweep.slurm import scripts
from sweep.slurm.folder import SlurmFolder
from sweep.slurm.queue import Refused
from sweep.slurm.slurm_yaml import SlurmYaml
from tests.support.servers.slurm_programs import SlurmPrograms

SINFO = "echo 'cpu*|1:00:00|8|32000'; echo 'gpu|infinite|28+|224000'"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmPrograms:
    return SlurmPrograms(tmp_path / "programs", monkeypatch)


def given(tmp_path: Path, **keys: Any) -> SlurmYaml:
    return SlurmYaml.from_json({"storage": str(tmp_path), **keys})


def script(tmp_path: Path, kind: Any, **keys: Any) -> tuple[list[str], str]:
    """The words of sbatch, and the script's text."""
    folder, asked = SlurmFolder(str(tmp_path), "tiny"), given(tmp_path, **keys)
    folder.begin({"slurm": asked.to_json(), "submission": {"name": "tiny"}, "known": ""})
    scripts.submit(folder, asked, kind)
    words = shlex.split((tmp_path / "programs" / "submitted").read_text())
    return words, Path(words[-1]).read_text()


def test_python_takes_the_place_of_the_batch_script(
    tmp_path: Path, programs: SlurmPrograms
) -> None:
    """The signal before the time limit goes to the script's process."""
    words, text = script(
        tmp_path, "worker",
        setup=["module load cuda/12"], data="/d/a b", container="env FOO='1 2'",
        worker={"cpus": 4, "gpus": 2, "gpu_type": "a100", "sbatch": ["--exclude=node17"]},
    )  # fmt: skip
    lines = text.splitlines()
    assert lines[0] == "#!/bin/bash -l"
    assert "export SWEEP_DATA='/d/a b'" in lines
    assert lines.index("set -e") < lines.index("module load cuda/12") < len(lines) - 1
    assert lines[-1].startswith(
        f"exec env 'FOO=1 2' {sys.executable} -m sweep.slurm.worker {tmp_path} tiny sweep-tiny-"
    )
    for option in ("--gres=gpu:a100:2", "--exclude=node17", "--cpus-per-task=4", "--no-requeue"):
        assert option in words


def test_a_job_of_several_nodes_starts_one_task_on_each_with_all_its_cores(
    tmp_path: Path, programs: SlurmPrograms
) -> None:
    words, text = script(tmp_path, "worker", worker={"cpus": 4, "nodes": 2})
    assert {"--nodes=2", "--ntasks-per-node=1"} <= set(words)
    assert "\nexec srun --cpus-per-task=4 " in text


def test_a_head_begins_after_another_job_and_appends_to_one_log(
    tmp_path: Path, programs: SlurmPrograms
) -> None:
    folder, asked = SlurmFolder(str(tmp_path), "tiny"), given(tmp_path)
    folder.begin({"slurm": asked.to_json(), "submission": {"name": "tiny"}, "known": ""})
    job, lost = scripts.submit(folder, asked, "head", after="7")
    words = programs.submitted()[0].split()
    assert (job.id, lost) == ("1", None)
    assert {"--dependency=afterany:7", "--open-mode=append", f"--output={folder.head_log}"} <= set(
        words
    )


@pytest.mark.parametrize(
    ("worker", "message"),
    [
        (
            {"time": "2:00:00"},
            "its time is 2:00:00, and partition cpu allows 1:00:00 at most",
        ),
        ({"time": "UNLIMITED"}, "its time is UNLIMITED, and partition cpu allows"),
        ({"time": "1:00:00"}, ""),
        ({"time": 60}, ""),
        ({}, ""),
        ({"partition": "gpu", "time": "9-00:00:00"}, ""),
        ({"partition": "cpu,gpu", "time": "2:00:00"}, ""),
    ],
)
def test_a_time_that_no_partition_allows_is_refused_before_the_job_waits_for_ever(
    tmp_path: Path, programs: SlurmPrograms, worker: dict[str, Any], message: str
) -> None:
    programs.write("sinfo", SINFO)
    asked = given(tmp_path, worker=worker)
    if not message:
        assert "Job 9 to start" in scripts.try_out(tmp_path, asked, "worker")
        return
    with pytest.raises(Refused, match=message):
        scripts.try_out(tmp_path, asked, "worker")


def test_a_shape_that_no_node_has_is_refused_with_what_nodes_have(
    tmp_path: Path, programs: SlurmPrograms
) -> None:
    programs.write("sinfo", SINFO)
    words = "sbatch: error: Requested node configuration is not available"
    programs.write("sbatch", f"echo '{words}' >&2; exit 1")
    with pytest.raises(Refused) as error:
        scripts.try_out(tmp_path, given(tmp_path, worker={"cpus": 99}), "worker")
    assert "it asks for --cpus-per-task=99 " in str(error.value)
    assert "partition cpu has nodes of 8 cores and 32000 MB" in str(error.value)
    with pytest.raises(Refused, match=r"; there are the partitions cpu, gpu\)"):
        scripts.try_out(tmp_path, given(tmp_path, worker={"partition": "gpus"}), "worker")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"setup": ["echo 'no module cuda/99' >&2", "false"]}, "end with: no module cuda/99"),
        ({"setup": ["false"]}, "end with: exit code 1 without a word"),
        ({"python": "/nowhere/python"}, r"/nowhere/python: No such file"),
        ({"python": "/bin/echo"}, r"/bin/echo has version -c .* of this program"),
    ],
)
def test_what_jobs_would_fail_with_is_refused_before_they_queue(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        scripts.try_python(given(tmp_path, **keys))
