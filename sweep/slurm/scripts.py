"""Batch scripts of jobs, and their submission: stored before sbatch runs."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from sweep.slurm import queue
from sweep.slurm.folder import SlurmFolder
from sweep.slurm.jobs import Kind, SubmittedJob
from sweep.slurm.slurm_yaml import Head, SlurmYaml, Worker, limit_s
from sweep.study.advice import STORAGE
from trainables.code_version import code_version
from trainables.errors import Failure, Misuse, StoreError, SweepError
from trainables.machine.atomic_files import write_atomically

SETUP_S = 120.0  # for setup's lines and the start of Python
_VERSION = "from trainables.code_version import code_version; print(code_version())"
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
    try:
        job = folder.intend(kind)
        script = folder.path / "jobs" / f"{job.name}.sh"
        write_atomically(script, _script(folder, given, job).encode())
    except OSError as error:
        raise StoreError(f"no job can be submitted: {folder.path}: {error}") from error
    log = folder.head_log if kind == "head" else folder.logs / "worker-%j.log"
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
    """The answer of Slurm to a job of this kind, which is not submitted. Raises as ``submit``."""
    shape = given.shape(kind)
    every = queue.partitions()
    wanted = [
        one for one in every
        if (one.is_default if shape.partition is None else one.name in shape.partition.split(","))
    ]  # fmt: skip
    script = folder / f"{kind}.sh"
    script.write_text("#!/bin/bash\nexit\n")
    names = ", ".join(dict.fromkeys(one.name for one in every))
    there = "; ".join(map(str, wanted)) or f"there are the partitions {names}" * bool(names)
    try:
        answer = queue.try_out(_options(given, kind), script)
    except queue.Refused as error:
        asks = " ".join(shape.options())
        raise queue.Refused(
            f"{error} (it asks for {asks}; {there or 'sinfo is silent'})"
        ) from error
    # Many sites let a job that asks for more time wait for ever; a qos may allow it.
    if wanted and shape.qos is None and not any(_has_time(one.time, shape) for one in wanted):
        most = ", ".join(f"{one.name} allows {one.time}" for one in wanted)
        raise queue.Refused(f"its time is {shape.time}, and partition {most} at most: lower time")
    return answer


def try_python(given: SlurmYaml) -> str:
    """The version of this program that jobs have, after the lines of setup.

    Raises Refused, in the words of what failed.
    """
    python = given.python or sys.executable
    words = given.python_words("-c", _VERSION)
    script = "\n".join(["set -e", "cd /", *given.setup, shlex.join(words)])
    try:
        ran = subprocess.run(
            ["bash", "-lc", script],
            stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=SETUP_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise queue.Refused(f"setup and Python take more than {SETUP_S:.0f} s") from None
    lines = (ran.stderr if ran.returncode else ran.stdout).strip().splitlines()
    if ran.returncode or not lines:
        end = lines[-1] if lines else f"exit code {ran.returncode} without a word"
        raise queue.Refused(f"the lines of setup, or {python} after them, end with: {end}")
    if lines[-1] != code_version():
        raise queue.Refused(
            f"{python} has version {lines[-1]} of this program, and this one is {code_version()}"
        )
    return f"{python} has {lines[-1]}"


def _has_time(most: str, shape: Head) -> bool:
    try:
        limit, wanted = limit_s(most), None if shape.time is None else limit_s(str(shape.time))
    except ValueError:  # n/a
        return True
    return limit is None or shape.time is None or (wanted is not None and wanted <= limit)


def _options(given: SlurmYaml, kind: Kind) -> list[str]:
    shape = given.shape(kind)
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
    words = given.python_words("-m", MODULES[job.kind], folder.storage, folder.sweep, job.name)
    shape = given.shape(job.kind)
    if isinstance(shape, Worker) and shape.nodes > 1:
        # Tasks do not inherit --cpus-per-task since Slurm 22.05.
        cpus = f"--cpus-per-task={shape.cpus}"
        words = ["srun", cpus, "--kill-on-bad-exit=1", "--wait=0", "--export=ALL", *words]
    return "\n".join(
        [
            "#!/bin/bash -l",  # modules are functions of a login shell
            f"# {job.kind} of the sweep {folder.sweep}; written by `sweep submit`",
            f"cd -- {shlex.quote(str(Path.home()))} || cd /",  # not every node has the home
            *exports,
            "set -e",
            *given.setup,
            # Python itself gets the signals of the batch script.
            f"exec {shlex.join(words)}",
            "",
        ]
    )
