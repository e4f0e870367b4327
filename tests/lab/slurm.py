"""A real Slurm in the lab: a login node and nodes of one machine, with Debian's packages.

Everything runs in namespaces that die with the lab; nothing is left on the machine but the folder.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.lab.hosts import environment
from tests.support.drivers import ROOT
from trainables.records.objects import ObjectStore

BOOT = Path(__file__).with_name("slurm.sh")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "munged", "unshare", "nsenter", "ip")
BOOT_S = 60.0
SPACES = ("--mount", "--net", "--pid", "--uts", "--ipc")
NODES = ("node1", "node2")
CONF = """\
ClusterName=lab
SlurmctldHost=login(10.78.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
MpiDefault=none
SlurmdParameters=config_overrides
KillWait=10
MinJobAge=300
MaxJobCount={most_jobs}
JobRequeue=1
SlurmdTimeout=15
SwitchType=switch/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
"""
# Starts the daemon of each node that is named, in the node's network and by the node's name.
START_NODE = """\
#!/usr/bin/env bash
for node in "$@"; do
  nsenter --net=/proc/$(cat {folder}/nodes/$node)/ns/net unshare --uts \\
    bash -c "hostname $node; exec slurmd -f {folder}/slurm.conf -N $node"
done
"""


def why_not() -> str:
    """Why there can be no Slurm here; '' when there can."""
    path = environment()["PATH"]
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        packages = "slurmctld slurmd slurm-client munge iproute2"
        return f"not installed: {', '.join(missing)} (Debian: {packages})"
    if os.geteuid() != 0:
        return "namespaces with networks of their own need root"
    tried = ("unshare", *SPACES, "--fork", "--mount-proc", "ip", "link", "add", "type", "bridge")
    ran = subprocess.run(tried, capture_output=True, text=True, env=environment())
    if ran.returncode:
        return f"namespaces are not permitted here: {ran.stderr.strip().splitlines()[-1:]}"
    return ""


class SlurmLab:
    """A cluster of a login node and two nodes, with a folder that all see."""

    def __init__(self, folder: Path, *, cpus: int = 2, most_jobs: int = 100) -> None:
        """Boot it.

        Args:
            folder: whose path every user may enter.
            cpus: of each node, as Slurm counts them.
            most_jobs: that the controller takes.
        """
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        (folder / "slurm.conf").write_text(CONF.format(folder=folder, most_jobs=most_jobs))
        start = folder / "start-node"
        start.write_text(START_NODE.format(folder=folder))
        start.chmod(0o755)
        inner = ("bash", str(BOOT), str(folder), str(cpus), sys.base_prefix, *NODES)
        self._log = (folder / "boot.log").open("w")
        self._boot = subprocess.Popen(
            ("unshare", *SPACES, "--fork", "--mount-proc", "--kill-child=KILL", *inner),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment(),
            start_new_session=True,
        )
        assert self._boot.stdout is not None
        ready, _, _ = select.select([self._boot.stdout], [], [], BOOT_S)
        said = self._boot.stdout.readline().strip() if ready else ""
        if said != "up":
            self._boot.kill()
            self._boot.communicate()
            raise AssertionError((folder / "boot.log").read_text())
        children = Path(f"/proc/{self._boot.pid}/task/{self._boot.pid}/children")
        self.pid = int(children.read_text().split()[0])

    def end(self) -> None:
        """Kill all its processes."""
        os.kill(self.pid, signal.SIGKILL)
        self._boot.communicate()
        self._log.close()

    def write_yaml(self, text: str = "", **keys: str) -> Path:
        """A slurm.yaml in the login node's home; ``text`` follows storage and poll_s."""
        file = self.home / "slurm.yaml"
        first = "".join(f"{name}: {value}\n" for name, value in keys.items())
        file.write_text(f"storage: {self.storage}\npoll_s: 2\n{first}{text}")
        return file

    @property
    def storage(self) -> Path:
        """The storage root of its sweeps."""
        return self.folder / "sweeps"

    @property
    def objects(self) -> ObjectStore:
        """The store below it."""
        return ObjectStore(str(self.storage))

    def command(
        self,
        command: str,
        *,
        user: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The words of a shell command on the login node, in a home."""
        words = {
            "HOME": str(self.home), "LANG": "C.UTF-8", "TERM": "dumb", "USER": "root",
            "SLURM_CONF": str(self.folder / "slurm.conf"), "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            **{n: v for n, v in os.environ.items() if n.startswith("OPENBLAS_")},
            **(variables or {}),
        }  # fmt: skip
        who = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
        as_user = () if user is None else who
        return [
            *("nsenter", "-t", str(self.pid), *SPACES, *as_user, "env", "-i"),
            *(f"{name}={value}" for name, value in words.items()),
            *("bash", "-c", f"cd {words['HOME']}; {command}"),
        ]

    def run(
        self,
        command: str,
        *,
        check: bool = True,
        timeout_s: float = 120.0,
        user: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command on the login node."""
        words = self.command(command, user=user, variables=variables)
        ran = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s
        )
        if check:
            assert ran.returncode == 0, f"{command}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return ran

    def sweep(self, *words: str, timeout_s: float = 120.0, **variables: str) -> str:
        """What a verb prints on the login node."""
        return self.run(
            f"sweep {' '.join(words)}", timeout_s=timeout_s, variables=self._where(variables)
        ).stdout

    def refused(self, *words: str, **variables: str) -> str:
        """What a verb says there that ends with an error."""
        ran = self.run(f"sweep {' '.join(words)}", check=False, variables=self._where(variables))
        assert ran.returncode in (1, 2), ran
        return ran.stderr

    def _where(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {"SWEEP_ADDRESS": "slurm.yaml", **variables}

    def queue(self) -> dict[str, str]:
        """Job name -> state, of jobs that have not ended."""
        lines = self.run("squeue --noheader --format='%j %T'").stdout.splitlines()
        return dict(line.split() for line in lines)

    def processes(self, *words: str) -> dict[int, str]:
        """Its processes whose command line has all words, as this machine counts them."""
        mine = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(folder / "ns/pid") != mine:
                    continue
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if all(word in line for word in words):
                found[int(folder.name)] = line
        return found

    def node_of(self, pid: int) -> str:
        """The node that a process is on."""
        net = os.readlink(f"/proc/{pid}/ns/net")
        for node in NODES:
            holder = (self.folder / "nodes" / node).read_text().strip()
            inside = Path(f"/proc/{self.pid}/root/proc/{holder}/ns/net")
            if os.readlink(inside) == net:
                return node
        return "login"

    def lose_node(self, node: str) -> None:
        """Kill the node's daemons and tell the controller; the scripts of its jobs run on."""
        for pid, line in self.processes("slurm").items():
            if ("slurmd" in line or "slurmstepd" in line) and self.node_of(pid) == node:
                os.kill(pid, signal.SIGKILL)
        self.run(f"scontrol update nodename={node} state=down reason=lost")

    def find_node(self, node: str) -> None:
        """Start the node's daemon again."""
        self.run(f"{self.folder}/start-node {node}")
        self.run(f"scontrol update nodename={node} state=resume", check=False)

    def restart_controller(self, away_s: float) -> None:
        """Kill the controller, and start it again after a while."""
        for pid in self.processes("slurmctld -f"):
            os.kill(pid, signal.SIGKILL)
        time.sleep(away_s)
        self.run(f"slurmctld -f {self.folder}/slurm.conf")


@contextmanager
def slurm_lab(*, cpus: int = 2, most_jobs: int = 100) -> Iterator[SlurmLab]:
    """A cluster that is gone after the block."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    made: SlurmLab | None = None
    try:
        made = SlurmLab(folder, cpus=cpus, most_jobs=most_jobs)
        yield made
    finally:
        if made is not None:
            made.end()
        shutil.rmtree(folder, ignore_errors=True)
