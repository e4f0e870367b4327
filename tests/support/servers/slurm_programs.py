"""Programs called sbatch, squeue, scancel and scontrol that say what a test has them say.

For what no real Slurm does on order; tests/end_to_end/test_slurm.py has a real one.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from sweep.slurm import queue

SBATCH = """
[[ "$*" == *--test-only* ]] && {{ echo "Job 9 to start at ..." >&2; exit 0; }}
[ -e {folder}/refuses ] && {{ cat {folder}/refuses >&2; exit 1; }}
id=$(($(cat {folder}/last) + 1)); echo $id >{folder}/last
for word in "$@"; do case $word in --job-name=*) name=${{word#*=}};; esac; done
echo "$@" >>{folder}/submitted
echo "$id|$name|PENDING|Resources" >>{folder}/queue
[ -e {folder}/loses ] && {{ rm {folder}/loses; echo "Socket timed out" >&2; exit 1; }}
echo $id
"""
SCONTROL = """
[ "$2" = config ] && {{ echo "ClusterName             = stub"; exit; }}
cat {folder}/job-$4 2>/dev/null
"""
SCANCEL = """
name=$2
shift 2; for id in "$@"; do sed -i "/^$id|/d" {folder}/queue; echo $id >>{folder}/cancelled; done
[ $# = 0 ] && echo "$name" >>{folder}/cancelled
"""


class SlurmPrograms:
    """The programs, first on the path of this process, and what they were asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "last").write_text("0")
        for name in ("queue", "submitted", "cancelled"):
            (folder / name).touch()
        self.write("sbatch", SBATCH)
        self.write("squeue", "cat {folder}/queue")
        self.write("scancel", SCANCEL)
        self.write("scontrol", SCONTROL)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setattr(queue, "_last_s", -math.inf)
        queue.cluster_name.cache_clear()

    def write(self, name: str, script: str) -> None:
        (self.folder / name).write_text("#!/bin/bash\n" + script.format(folder=self.folder))
        (self.folder / name).chmod(0o755)

    def refuse(self, words: str) -> None:
        """Have sbatch take no job; empty: again."""
        file = self.folder / "refuses"
        file.write_text(words) if words else file.unlink()

    def lose(self) -> None:
        """Have sbatch take the next job, and lose its answer."""
        (self.folder / "loses").touch()

    def queue(self) -> dict[str, str]:
        """Id -> name."""
        lines = (self.folder / "queue").read_text().splitlines()
        return {line.split("|")[0]: line.split("|")[1] for line in lines}

    def put_state(self, job: str, state: str) -> None:
        """Have a job running, pending, ..."""
        lines = (self.folder / "queue").read_text().splitlines()
        kept = [
            "|".join([*line.split("|")[:2], state, "None"]) if line.startswith(f"{job}|") else line
            for line in lines
        ]
        (self.folder / "queue").write_text("".join(f"{line}\n" for line in kept))

    def end(self, job: str, state: str) -> None:
        """Have a job leave the queue, and scontrol say how it ended."""
        lines = (self.folder / "queue").read_text().splitlines()
        kept = [line for line in lines if not line.startswith(f"{job}|")]
        (self.folder / "queue").write_text("".join(f"{line}\n" for line in kept))
        (self.folder / f"job-{job}").write_text(f"JobId={job} JobState={state} ExitCode=0:9\n")

    def submitted(self) -> list[str]:
        """The words of each submission."""
        return (self.folder / "submitted").read_text().splitlines()

    def cancelled(self) -> list[str]:
        return (self.folder / "cancelled").read_text().split()
