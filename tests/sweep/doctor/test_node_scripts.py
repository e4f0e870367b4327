"""The two scripts of cluster.yaml, run as Ray runs them; foreign programs only note their calls."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from sweep.doctor.node_scripts import CALLS, DIGESTS, exported_settings
from tests.support.drivers import wait_until

ROOT = Path(__file__).parents[3]
AWS, ON_PREMISES = "cluster.yaml", "docs/cluster/on-premises.yaml"
NOTICED_S = 12.0  # a vanished worker must be noticed within this
BASHRC = "alias ll='ls -l'\nexport OURS=old # descent-sweep\nexport MINE=kept\n"
# Each notes its call; python3 makes what `python3 -m venv` would, and lacks it until apt-get ran.
PROGRAMS = {
    "ray": 'echo "ray $*" >>$HOME/calls; [ "$1" = stop ] || { env; ulimit -n; } >$HOME/started',
    "mlflow": 'echo $$ >$HOME/server; echo "mlflow $*" >>$HOME/served; exec sleep 600',
    "sudo": 'echo "sudo $*" >>$HOME/calls; [[ $* != *python3-venv* ]] || touch $HOME/has-venv',
    "sleep": "case $1 in 600) exec /bin/sleep 600 ;; esac",
    "systemctl": "true",
    "python3": (
        '[ "$1" != -c ] || exec test -e $HOME/has-venv; mkdir -p $3/bin; '
        "cp $HOME/bin/pip $3/bin/pip; cp $HOME/bin/python3 $3/bin/python"
    ),
    "pip": (
        'echo "pip $*" >>$HOME/calls; cd $HOME/descent-sweep; '
        'find . -name "*.py" >$HOME/installed; '
        "mkdir -p build; touch build/left.py"  # as setuptools does
    ),
}


class Node:
    """A machine's home, with the scripts and the checkout where `ray up` copies them."""

    def __init__(self, home: Path, file: str = AWS) -> None:
        self.home = home
        self.plain = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
        for name, body in PROGRAMS.items():
            program = home / "bin" / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!/bin/bash\n{body}\n")
            program.chmod(0o755)
        shutil.copytree(ROOT / "cluster", home / "descent-sweep-cluster")
        (home / "descent-sweep").mkdir()
        (home / ".bashrc").write_text(BASHRC)
        kind = {"provider": {"type": self.plain["provider"]["type"]}}
        (home / "ray_bootstrap_config.yaml").write_text(json.dumps(kind))

    def run(self, *lists: str, more: str = "", check: bool = True) -> str:
        """What stderr gets of these lists of the file, with ``more`` after each command."""
        errors = ""
        for command in (command for name in lists for command in self.plain[name]):
            shell = f"source ~/.bashrc && export RAY_HEAD_IP=10.0.0.1; {command}{more}"
            if "FILL-IN" in shell:
                shell = shell.replace("/opt/dlami/nvme", str(self.home / "nvme"))
            ran = subprocess.run(
                ["bash", "-c", shell], env=self._environment(), capture_output=True, text=True
            )
            assert not check or ran.returncode == 0, ran.stderr
            errors += ran.stderr
        return errors

    def exported(self) -> dict[str, str]:
        """The environment of a new shell."""
        ran = subprocess.run(
            ["bash", "-c", "source ~/.bashrc; env -0"],
            env=self._environment(), capture_output=True, text=True, check=True,
        )  # fmt: skip
        return dict(entry.split("=", 1) for entry in ran.stdout.split("\0") if entry)

    def note(self, name: str) -> list[str]:
        file = self.home / name
        return file.read_text().splitlines() if file.exists() else []

    def has_noted(self, name: str) -> bool:
        return bool(self.note(name))

    def _environment(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": f"{self.home}/bin:{os.environ['PATH']}"}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Makes machines, whose servers end with the test."""
    made: list[Node] = []

    def make(name: str, file: str = AWS) -> Node:
        made.append(Node(tmp_path / name, file))
        return made[-1]

    yield make
    for node in made:
        if (node.home / "mlflow").exists():
            wait_until(partial(node.has_noted, "served"), 30)
            os.killpg(os.getpgid(int(node.note("server")[-1])), signal.SIGKILL)


@pytest.fixture
def node(nodes: Callable[..., Node]) -> Node:
    return nodes("home")


def test_doctor_knows_the_scripts_of_this_version() -> None:
    digests = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        for file in (ROOT / "cluster").iterdir()
    }
    assert digests == DIGESTS


@pytest.mark.parametrize("file", [AWS, ON_PREMISES])
def test_both_files_run_nothing_but_the_scripts(file: str) -> None:
    plain = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    assert all(len(plain[name]) == 1 for name in CALLS)
    assert {"SWEEP_STORAGE", "SWEEP_DATA"} <= set(exported_settings(plain))


# --- set-up ---------------------------------------------------------------------------------------


def test_settings_are_exported_once_and_the_users_own_lines_stay(node: Node) -> None:
    node.run("setup_commands", more=" A=1 'B=x  $y'")
    node.run("setup_commands", more=" A=2")
    exported = node.exported()
    assert exported["SWEEP_STORAGE"] == "s3://FILL-IN/sweeps"
    assert exported["A"] == "2"
    assert not {"OURS", "B"} & set(exported)
    assert exported["MINE"] == "kept"
    assert exported["PATH"].startswith(f"{node.home}/venv/bin:")
    node.run("setup_commands", more=" 'B=x  $y'")
    assert node.exported()["B"] == "x  $y"


@pytest.mark.parametrize("bad", ["bad", "'D;E=1'", "'D E=1'", "1D=2", "=x"])
def test_a_setting_that_is_none_leaves_all_as_it_was(node: Node, bad: str) -> None:
    node.run("setup_commands", more=" A=1")
    before = (node.home / ".bashrc").read_text()
    assert f"got '{bad.strip(chr(39))}'" in node.run(
        "setup_commands", more=f" A=2 {bad}", check=False
    )
    assert (node.home / ".bashrc").read_text() == before
    assert node.exported()["A"] == "1"


def test_settings_keep_the_mode_and_the_last_line_of_the_users_file(node: Node) -> None:
    bashrc = node.home / ".bashrc"
    bashrc.write_text("export MINE=kept")  # without an end of the line
    bashrc.chmod(0o640)
    node.run("setup_commands", more=" 'A=x;y #'")
    exported = node.exported()
    assert (exported["MINE"], exported["A"]) == ("kept", "x;y #")
    assert bashrc.stat().st_mode & 0o777 == 0o640
    assert sorted(node.home.glob(".bashrc*")) == [bashrc]


def test_no_setting_takes_back_the_token(node: Node) -> None:
    node.run("setup_commands", more=" RAY_AUTH_MODE=disabled RAY_USAGE_STATS_ENABLED=1")
    exported = node.exported()
    assert (exported["RAY_AUTH_MODE"], exported["RAY_USAGE_STATS_ENABLED"]) == ("token", "0")


def test_the_head_has_an_mlflow_of_its_own_unless_another_is_set(node: Node) -> None:
    node.run("setup_commands", "head_setup_commands")
    assert node.exported()["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:5000"
    node.run("setup_commands", more=" MLFLOW_TRACKING_URI=https://lab")
    node.run("head_setup_commands")
    assert node.exported()["MLFLOW_TRACKING_URI"] == "https://lab"
    node.run("setup_commands", "worker_setup_commands")
    assert "MLFLOW_TRACKING_URI" not in node.exported()


def test_a_new_machine_gets_a_folder_for_data_a_venv_and_the_checkout(node: Node) -> None:
    (node.home / "nvme").touch()  # so that the user may make no folder there
    node.run("setup_commands", more=" SWEEP_EXTRAS=lora")
    node.run("worker_setup_commands")
    calls = node.note("calls")
    package = f"{node.home}/descent-sweep"
    assert re.fullmatch(rf"sudo install -d -o \S+ {node.home}/nvme/cache", calls[0])
    assert "sudo DEBIAN_FRONTEND=noninteractive apt-get -qq install -y python3-venv" in calls
    assert calls[-1] == (
        f"pip install --quiet --retries 10 -c {package}/constraints.txt {package}[cluster,lora]"
    )
    (node.home / "calls").unlink()
    (node.home / "descent-sweep").mkdir()
    node.run("setup_commands", "worker_setup_commands")
    assert [call.split()[0] for call in node.note("calls")] == ["sudo", "pip"]


@pytest.mark.parametrize("name", ["head_setup_commands", "worker_setup_commands"])
def test_a_set_up_that_cannot_install_fails(node: Node, name: str) -> None:
    (node.home / "has-venv").touch()
    (node.home / "bin/pip").write_text("#!/bin/sh\necho no network >&2; exit 1\n")
    assert "no network" in node.run(name, check=False)
    assert (node.home / "descent-sweep").is_dir()  # not taken for installed


@pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")
def test_a_module_that_is_removed_here_goes_from_every_node(
    node: Node, nodes: Callable[..., Node], tmp_path: Path
) -> None:
    """With copies made as Ray makes them: from the laptop to the head, from there to a worker."""
    here, worker = tmp_path / "here", nodes("worker")
    here.mkdir()

    def copy(source: Path, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        command = ["rsync", "-avz", f"{source}/", f"{target}/"]
        subprocess.run(command, check=True, capture_output=True)

    for modules in ({"kept.py", "removed.py"}, {"kept.py", "new.py"}):
        for path in here.iterdir():
            path.unlink()
        for module in modules:
            (here / module).touch()
        copy(here, node.home / "descent-sweep/sweep")
        node.run("setup_commands", "head_setup_commands")
        copy(node.home / "descent-sweep/sweep", worker.home / "descent-sweep/sweep")
        worker.run("setup_commands", "worker_setup_commands")
        expected = sorted(f"./sweep/{module}" for module in modules)
        assert sorted(node.note("installed")) == sorted(worker.note("installed")) == expected


def test_other_words_are_refused(node: Node) -> None:
    assert "got 'A'" in node.run("setup_commands", more=" A", check=False)
    for script in DIGESTS:
        node.plain["setup_commands"] = [f"bash ~/descent-sweep-cluster/{script} haed"]
        assert "got 'haed'" in node.run("setup_commands", check=False)
    assert node.note("calls") == []


# --- start ----------------------------------------------------------------------------------------


def test_ray_starts_on_the_head_after_its_end_and_trains_nothing_there(node: Node) -> None:
    more = " --num-cpus=8 --num-gpus=1 --dashboard-host=0.0.0.0 --dashboard-port=8270"
    node.run("head_start_ray_commands", more=more)
    stop, start = node.note("calls")
    assert stop == "ray stop"
    assert start.startswith("ray start --head --port=6379 ")
    given = dict(word.partition("=")[::2] for word in start.split() if word.startswith("--"))
    assert (given["--num-cpus"], given["--num-gpus"]) == ("0", "0")  # the last one counts
    assert given["--dashboard-host"] == "127.0.0.1"
    assert given["--dashboard-port"] == "8270"
    assert given["--autoscaling-config"] == f"{node.home}/ray_bootstrap_config.yaml"


def test_a_vanished_worker_is_noticed_in_time(node: Node) -> None:
    """Dead after so many checks, each a period and a timeout apart (measured in the test lab)."""
    node.run("head_start_ray_commands")
    started = dict(line.partition("=")[::2] for line in node.note("started"))
    period, timeout, threshold = (
        int(started[f"RAY_health_check_{name}"])
        for name in ("period_ms", "timeout_ms", "failure_threshold")
    )
    assert threshold * (period + timeout) / 1000 <= NOTICED_S


@pytest.mark.parametrize("file", [AWS, ON_PREMISES])
def test_on_premises_alone_the_first_autoscaler_is_used(
    nodes: Callable[..., Node], file: str
) -> None:
    node = nodes("home", file)
    node.run("head_start_ray_commands")
    assert ("RAY_enable_autoscaler_v2=0" in node.note("started")) == (file == ON_PREMISES)


def test_a_worker_starts_at_its_head(node: Node) -> None:
    node.run("worker_start_ray_commands", more=" --num-cpus=4")
    assert node.note("calls") == ["ray stop", "ray start --address=10.0.0.1:6379 --num-cpus=4"]
    assert node.note("served") == []


def test_one_mlflow_server_listens_on_loopback(node: Node) -> None:
    node.run("head_start_ray_commands")
    wait_until(partial(node.has_noted, "served"), 30)
    node.run("head_start_ray_commands")
    (served,) = node.note("served")
    assert "--host 127.0.0.1 --port 5000 " in served
    assert f"--backend-store-uri sqlite:///{node.home}/mlflow/mlflow.db " in served
    first = int(node.note("server")[0])
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(node.note("served")) == 2, 30)


def test_mlflow_may_have_another_database_or_run_elsewhere(node: Node) -> None:
    node.run("setup_commands", more=" MLFLOW_TRACKING_URI=https://lab")
    node.run("head_start_ray_commands")
    assert not (node.home / "mlflow").exists()
    node.run(
        "setup_commands", more=" MLFLOW_BACKEND_STORE_URI=postgresql://mlflow@127.0.0.1/mlflow"
    )
    node.run("head_start_ray_commands")
    wait_until(partial(node.has_noted, "served"), 30)
    assert "--backend-store-uri postgresql://mlflow@127.0.0.1/mlflow " in node.note("served")[0]
