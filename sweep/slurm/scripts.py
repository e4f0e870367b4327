"""Batch scripts of a sweep's jobs, and their submission: stored before sbatch is asked."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from sweep.slurm import queue
from sweep.slurm.folder import Kind, SlurmFolder, SubmittedJob
from sweep.slurm.slurm_yaml import SlurmYaml, Worker
from sweep.study.advice import STORAGE
from trainables.errors import Failure, Misuse, SweepError
from trainables.machine.atomic_files import write_atomically

MODULES = {"head": "sweep.cluster.slurm_head", "worker": "sweep.slurm.worker"}


def submit(
    folder: SlurmFolder, given: SlurmYaml, kind: Kind, *, after: str = ""
) -> tuple[SubmittedJob, SweepError | None]:
    """Submit a job of this kind, to begin when job ``after`` has ended.

    Returns:
        The job, whose id is empty where Slurm's answer is lost, and then why.

    Raises:
        Refused, QueueFull: Slurm does not take it; nothing was submitted.
    """
    job = folder.intend(kind)
    script = folder.path / "jobs" / f"{job.name}.sh"
    write_atomically(script, _script(folder, given, job).encode())
    log = folder.head_log if kind == "head" else folder.logs / f"{job.name}.log"
    options = [f"--job-name={job.name}", f"--output={log}", "--open-mode=append"]
    if after:
        options.append(f"--dependency=afterany:{after}")
    try:
        return folder.submitted(job, queue.submit([*options, *_options(given, kind)], script)), None
    except queue.NoAnswer as error:
        return job, error
    except (Misuse, Failure):
        folder.withdraw(job.name)
        raise


def try_out(folder: Path, given: SlurmYaml, kind: Kind) -> str:
    """What Slurm says of a job of this kind, which is not submitted. Raises as ``submit``."""
    script = folder / f"{kind}.sh"
    script.write_text("#!/bin/bash\nexit\n")
    return queue.try_out(_options(given, kind), script)


def _options(given: SlurmYaml, kind: Kind) -> list[str]:
    shape = given.worker if kind == "worker" else given.head
    return [
        *shape.options(),
        "--ntasks-per-node=1",
        # Not left to the site: a job that Slurm runs a second time would be one too many, since
        # the head's successor is queued already, and the driver asks for workers itself.
        "--no-requeue",
        f"--signal=B:USR1@{shape.lead_s:.0f}",
    ]


def _script(folder: SlurmFolder, given: SlurmYaml, job: SubmittedJob) -> str:
    places = {STORAGE: given.storage, "SWEEP_DATA": given.data, "SWEEP_CACHE": given.cache}
    exports = [f"export {n}={shlex.quote(v)}" for n, v in places.items() if v is not None]
    python = given.python or sys.executable
    words = [
        *given.container,
        python,
        "-m",
        MODULES[job.kind],
        folder.storage,
        folder.sweep,
        job.name,
    ]
    shape = given.worker if job.kind == "worker" else given.head
    if isinstance(shape, Worker) and shape.nodes > 1:
        words = ["srun", "--kill-on-bad-exit=0", "--wait=0", "--export=ALL", *words]
    return "\n".join(
        [
            "#!/bin/bash -l",  # modules are functions of a login shell
            f"# {job.kind} of the sweep {folder.sweep}; written by `sweep submit`",
            *(f"cd -- {shlex.quote(str(Path.home()))}" for _ in range(Path.home().is_dir())),
            *exports,
            "set -e",
            *given.setup,
            # Python itself gets the signals of the batch script.
            f"exec {shlex.join(words)}",
            "",
        ]
    )
