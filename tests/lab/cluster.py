"""A cluster in the lab: a laptop with the checkout, machines as docs/cluster.md asks for, `ray up`.

The machines have no network, so that what pip would fetch is there already: their venv sees the
packages of the Python that runs the tests, but for this project's own, which `ray up` installs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.lab.hosts import HOME, STORAGE, Host, Lab
from tests.support.drivers import ROOT, wait_until
from trainables.records.objects import ObjectStore

YAML = "docs/cluster/on-premises.yaml"
PACE = Path(__file__).with_name("pace.py")
CHECKOUT = ("cluster", "docs", "search_spaces", "sweep", "trainables",
            "LICENSE", "README.md", "constraints.txt", "pyproject.toml")  # fmt: skip
# Of the laptop, as docs/cluster.md says.
PREPARED = (
    "ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/descent-sweep",
    "ray get-auth-token --generate && chmod 600 ~/.ray/auth_token",
)
# Nothing is fetched: not from an index, and not into a build environment.
# (pip takes "no-build-isolation = false" for what the option without a value means.)
PIP = "[global]\nno-index = true\n[install]\nno-build-isolation = false\n"


class LabCluster:
    """A laptop, a head, two workers, and a stranger in the same network."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        """Boot the machines; Ray is not up yet.

        Args:
            lab: an empty one.
            folder: for what is copied onto the machines.
        """
        self.lab = lab
        venv = _venv(folder / "venv")
        self.laptop = lab.boot("laptop")
        self._install(self.laptop, venv)
        self._check_out()
        for command in PREPARED:
            self.laptop.run(command)
        key = self.laptop.run("cat ~/.ssh/descent-sweep.pub").stdout
        self.head, self.one, self.two = (
            lab.boot(name, keys=key, has_storage=True) for name in ("head", "one", "two")
        )
        self.nodes = (self.head, self.one, self.two)
        (lab.storage / "places").mkdir()
        for node in self.nodes:
            self._install(node, venv)
        for node in (self.one, self.two):
            packages = next(node.path(f"{HOME}/venv/lib").glob("*/site-packages"))
            shutil.copy(PACE, packages / "lab_pace.py")
            (packages / "lab_pace.pth").write_text("import lab_pace\n")
        self.stranger = lab.boot("stranger")
        self._install(self.stranger, venv)
        self._fill_in()

    def _install(self, host: Host, venv: Path) -> None:
        shutil.copytree(venv, host.path(f"{HOME}/venv"), symlinks=True)
        host.path("/etc/pip.conf").write_text(PIP)

    def _check_out(self) -> None:
        """The laptop's own copy, which nobody edits while the cluster runs."""
        here = self.laptop.path(f"{HOME}/checkout")
        here.mkdir()
        for name in CHECKOUT:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, here / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, here)
        packages = next(self.laptop.path(f"{HOME}/venv/lib").glob("*/site-packages"))
        (packages / "checkout.pth").write_text(f"{HOME}/checkout\n")
        script = self.laptop.path(f"{HOME}/venv/bin/sweep")
        script.write_text(
            f"#!{HOME}/venv/bin/python\nfrom sweep.cli.main import main\nmain(prog_name='sweep')\n"
        )
        script.chmod(0o755)

    def _fill_in(self) -> None:
        """Write what the yaml says FILL-IN for, and nothing else."""
        file = self.laptop.path(f"{HOME}/checkout/{YAML}")
        text = file.read_text()
        for name, value in (
            ("FILL-IN-head", self.head.address),
            ("FILL-IN-worker-1", self.one.address),
            ("FILL-IN-worker-2", self.two.address),
            ("FILL-IN-user", "root"),
            ("/FILL-IN-shared", STORAGE),
        ):
            assert name in text, f"{YAML} has no {name}"
            text = text.replace(name, value)
        assert not [line for line in text.splitlines() if "FILL-IN" in line and line[:1] != "#"]
        file.write_text(text)

    def ray(self, verb: str, timeout_s: float = 400) -> str:
        """`ray up` or another verb of the laptop on the cluster; what it says."""
        ran = self.laptop.run(f"cd checkout && ray {verb} -y {YAML}", timeout_s=timeout_s)
        return ran.stdout + ran.stderr

    def on_head(self, command: str, *, check: bool = True, timeout_s: float = 120) -> str:
        """What a command says on the head, in the environment that `ray up` made there."""
        return self.head.run(f". ~/.bashrc; {command}", check=check, timeout_s=timeout_s).stdout

    def sweep(self, *words: str, timeout_s: float = 120) -> str:
        """What a verb prints on the laptop."""
        return self._sweep(*words, timeout_s=timeout_s).stdout

    def refused(self, *words: str) -> str:
        """What a verb says on the laptop that ends with an error."""
        ran = self._sweep(*words, check=False)
        assert ran.returncode in (1, 2), ran
        return ran.stderr

    def _sweep(
        self, *words: str, check: bool = True, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        where = {"SWEEP_ADDRESS": YAML}
        command = f"cd checkout && sweep {' '.join(words)}"
        return self.laptop.run(command, check=check, timeout_s=timeout_s, environment=where)

    def wait_for_workers(self, timeout_s: float) -> None:
        """Until both workers have joined; asking Ray takes seconds, so it is asked at the end."""
        wait_until(lambda: all(n.processes("raylet/raylet") for n in self.nodes), timeout_s)
        wait_until(lambda: self.alive() == {node.name for node in self.nodes}, timeout_s)

    def rest_after_reports(self, seconds: float) -> None:
        """Let every arm stand still for so long after each of its reports."""
        (self.lab.storage / "rest").write_text(str(seconds))

    def places(self) -> dict[str, tuple[str, int]]:
        """Signature -> the host that took the arm up last, and when, in ns."""
        files = (self.lab.storage / "places").iterdir()
        return {file.name: (file.read_text(), file.stat().st_mtime_ns) for file in files}

    def alive(self) -> set[str]:
        """Names of the machines that Ray counts as alive."""
        code = (
            "import ray; ray.init(address='auto', log_to_driver=False, logging_level='ERROR'); "
            "print(*(n['NodeManagerHostname'] for n in ray.nodes() if n['Alive']))"
        )
        return set(self.on_head(f'python -c "{code}"', check=False).split())

    def driver_log(self, job: str) -> str:
        """What a job has printed so far."""
        logs = self.head.path("/tmp/ray").glob(f"session_2*/logs/job-driver-{job}.log")
        return "".join(log.read_text() for log in logs)

    def objects(self) -> ObjectStore:
        """The sweeps' storage, as this process reaches it."""
        store = ObjectStore("/")
        store.root = str(self.lab.storage / "sweeps")  # not resolved: links in /proc are magic
        return store

    def drivers(self) -> list[int]:
        """The processes that drive sweeps."""
        return self.head.processes("sweep.cli resume", "--where cluster")


def _venv(folder: Path) -> Path:
    """An environment to be copied to HOME: it sees our packages, and has their programs."""
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", folder), check=True)
    packages = next((folder / "lib").glob("*/site-packages"))
    # Hosts start with no variable of ours, but the same BLAS kernels must sum on all of them, as in
    # the undisturbed run here: linear filters' scores differ in float32 between kernels.
    blas = {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")}
    (packages / "lab.pth").write_text(
        f"{sysconfig.get_path('purelib')}\nimport os; os.environ.update({blas!r})\n"
    )
    for program in Path(sysconfig.get_path("scripts")).iterdir():
        first, _, rest = _content(program).partition(b"\n")
        if first.startswith(b"#!") and b"python" in first and program.name != "sweep":
            copy = folder / "bin" / program.name
            copy.write_bytes(f"#!{HOME}/venv/bin/python\n".encode() + rest)
            copy.chmod(0o755)
    return folder


def _content(program: Path) -> bytes:
    is_script = program.is_file() and program.stat().st_size < 2**16 and os.access(program, os.X_OK)
    return program.read_bytes() if is_script else b""
