"""Hosts on one machine: namespaces with a root, a network address and an sshd of their own.

A host is booted, powered off with its disk kept, its cable is cut and mended. Everything lives in
namespaces whose processes die with the lab, and the lab dies with this process: nothing is left on
the machine, not even names of network namespaces. Nothing leaves the lab's network either.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.drivers import wait_until

BOOT = Path(__file__).with_name("boot.sh")
HOME = "/home/user"  # of the only user, root: the interpreter may lie below /root
STORAGE = "/srv/storage"  # on hosts that have it
GROUND = Path("/mnt")  # hidden by the lab's own file system, in its mount namespace alone
STORAGE_MB = 128
NETWORK = "10.77.0"
PROGRAMS = (
    "ip",
    "nsenter",
    "pivot_root",
    "rsync",
    "setpriv",
    "ssh",
    "ssh-keygen",
    "sshd",
    "unshare",
)
BOOT_S = 20.0
# What dies with whoever started it: a lab whose test is killed takes its hosts along.
MORTAL = ("setpriv", "--pdeathsig", "KILL")
IN_GROUND = ("--mount", "--net")


def why_not() -> str:
    """Why there can be no lab here; '' when there can."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: openssh-server rsync iproute2)"
    if os.geteuid() != 0:
        return "namespaces with an overlay of / need root"
    tried = (
        "mount -t tmpfs tmpfs /mnt && mkdir /mnt/a /mnt/b /mnt/c && ip link add type bridge && "
        "mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/a,workdir=/mnt/b /mnt/c"
    )
    new = ("unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork")
    ran = subprocess.run((*new, "sh", "-c", tried), capture_output=True, text=True)
    if ran.returncode:
        return f"namespaces are not permitted here: {ran.stderr.strip().splitlines()[-1:]}"
    return ""


@dataclass
class Host:
    """One machine of the lab."""

    lab: Lab
    name: str
    address: str
    keys: str  # public ones that its sshd lets in
    has_storage: bool
    pid: int = 0  # of its PID 1, as this machine counts; 0 while it is off
    _boot: subprocess.Popen[str] | None = field(default=None, repr=False)

    def power_on(self) -> None:
        """Boot with the disk as it was left; returns once its sshd answers."""
        assert self.pid == 0, f"{self.name} is on"
        storage = str(self.lab.storage_there) if self.has_storage else ""
        disk = str(self.lab.ground / self.name)
        needed = sorted({sys.prefix, sys.base_prefix})
        command = (
            *MORTAL, *self.lab.in_ground(),
            *("unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork"),
            *("--kill-child=KILL", "--propagation=private"),
            *("bash", str(BOOT), self.name, self.address, HOME, disk, storage, self.keys, *needed),
        )  # fmt: skip
        with self.lab.log(self.name).open("a") as log:
            self._boot = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(),
                start_new_session=True,
            )
        self.pid = int(self._says())
        self._plug_in()
        said = self._says()
        assert said == "up", said

    def _says(self) -> str:
        """The next line of its boot."""
        assert self._boot is not None
        assert self._boot.stdout is not None
        ready, _, _ = select.select([self._boot.stdout], [], [], BOOT_S)
        line = self._boot.stdout.readline().strip() if ready else ""
        assert line, f"{self.name} does not boot: {self.lab.log(self.name).read_text()}"
        return line

    def _plug_in(self) -> None:
        number = int(self.address.rpartition(".")[2])
        mac = f"02:00:00:00:00:{number:02x}"  # the same after each boot, as its neighbours know it
        self.lab.ip(
            f"link add {self.name} type veth peer name eth0 address {mac} netns {self.pid}",
            f"link set {self.name} master switch up",
        )
        inside = ("nsenter", "-t", str(self.pid), "--net")
        # Ray finds its own address by asking for the way to another network.
        lines = (
            f"addr add {self.address}/24 dev eth0",
            "link set eth0 up",
            "route add default dev eth0",
        )
        _batch(inside, lines)

    def power_off(self) -> None:
        """All its processes die at once, and what it had not written is lost; its disk stays.

        Its kernel closes its connections, as when a cloud ends a machine.
        """
        assert self._boot is not None
        boot, pid = self._boot, self.pid
        self._boot, self.pid = None, 0
        os.kill(pid, signal.SIGKILL)  # ends after all others of its namespace have
        boot.communicate()
        self.lab.ip(f"link del {self.name}", check=False)  # it goes with the host, a little later

    def cut(self) -> None:
        """Pull its cable: silence, while it goes on working."""
        self.lab.ip(f"link set {self.name} down")

    def mend(self) -> None:
        """Put its cable back."""
        self.lab.ip(f"link set {self.name} up")

    def run(
        self,
        command: str,
        *,
        timeout_s: float = 120.0,
        check: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command on its console, in the user's home."""
        ran = subprocess.run(
            self._console(command, timeout_s, environment or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if check:
            told = f"{self.name}: {command}\nexit {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
            assert ran.returncode == 0, told
        return ran

    def start(
        self,
        command: str,
        *,
        timeout_s: float = 600.0,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """The same, without waiting for its end; standard error goes with standard output."""
        return subprocess.Popen(
            (*MORTAL, *self._console(command, timeout_s, environment or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _console(
        self, command: str, timeout_s: float, environment: Mapping[str, str]
    ) -> tuple[str, ...]:
        assert self.pid, f"{self.name} is off"
        spaces = ("--mount", "--uts", "--ipc", "--net", "--pid")
        words = {
            "HOME": HOME, "USER": "root", "LANG": "C.UTF-8", "TERM": "dumb",
            "PATH": f"{HOME}/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            **environment,
        }  # fmt: skip
        return (
            *("nsenter", "-t", str(self.pid), *spaces, "env", "-i"),
            *(f"{name}={value}" for name, value in words.items()),
            *("timeout", "-k", "2", f"{timeout_s:.0f}", "bash", "-c", f"cd; {command}"),
        )

    def path(self, name: str) -> Path:
        """A file of the host, as this process reaches it."""
        assert self.pid, f"{self.name} is off"
        return Path(f"/proc/{self.pid}/root", name.lstrip("/"))

    def processes(self, *words: str) -> list[int]:
        """Its processes whose command line has all ``words``, as this machine counts them."""
        mine = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(folder / "ns/pid") != mine:
                    continue
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # it ended
                continue
            if all(word in line for word in words):
                found.append(int(folder.name))
        return sorted(found)


class Lab:
    """A switch, a shared disk, and the hosts."""

    def __init__(self, folder: Path) -> None:
        """An empty lab; ``folder`` keeps the logs of its hosts' sshd."""
        self._folder = folder
        self.hosts: dict[str, Host] = {}
        self._process = subprocess.Popen(
            (*MORTAL, "unshare", *IN_GROUND, "--propagation=private", "sleep", "infinity"),
            env=environment(),
        )
        line = Path(f"/proc/{self._process.pid}/cmdline")
        wait_until(lambda: line.read_bytes().startswith(b"sleep"), timeout_s=BOOT_S)
        self.ground = GROUND / "lab"
        self.storage_there = GROUND / "storage"
        self._run(
            f"mount -t tmpfs tmpfs {GROUND} && mkdir {self.ground} {self.storage_there} && "
            f"mount -t tmpfs -o size={STORAGE_MB}m tmpfs {self.storage_there}"
        )
        self.ip("link add switch type bridge", "link set switch up", "link set lo up")

    @property
    def storage(self) -> Path:
        """What the hosts see as STORAGE, as this process reaches it."""
        return Path(f"/proc/{self._process.pid}/root{self.storage_there}")

    def boot(self, name: str, *, keys: str = "", has_storage: bool = False) -> Host:
        """A new host."""
        address = f"{NETWORK}.{len(self.hosts) + 1}"
        host = Host(self, name, address, keys, has_storage)
        self.hosts[name] = host
        host.power_on()
        return host

    def close(self) -> None:
        """End every host, and the lab."""
        for host in self.hosts.values():
            if host.pid:
                host.power_off()
        self._process.kill()
        self._process.wait()

    def in_ground(self) -> tuple[str, ...]:
        """What a command begins with to run where the disks and the switch are."""
        return ("nsenter", "-t", str(self._process.pid), *IN_GROUND)

    def ip(self, *lines: str, check: bool = True) -> None:
        """Run commands of `ip` at the switch."""
        _batch(self.in_ground(), lines, check=check)

    def _run(self, command: str) -> None:
        subprocess.run((*self.in_ground(), "sh", "-c", command), check=True, env=environment())

    def log(self, name: str) -> Path:
        """What a host's boot and its sshd say."""
        return self._folder / f"{name}.log"


@contextmanager
def lab(folder: Path) -> Iterator[Lab]:
    """A lab that is gone after the block."""
    made = Lab(folder)
    try:
        yield made
    finally:
        made.close()


def environment() -> dict[str, str]:
    """For programs that Debian keeps from the path of its users."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    return {"PATH": path, "LANG": "C.UTF-8"}


def _batch(where: Sequence[str], lines: Sequence[str], *, check: bool = True) -> None:
    ran = subprocess.run(
        (*where, "ip", "-batch", "-"),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert not check or ran.returncode == 0, f"{lines}: {ran.stderr}"
