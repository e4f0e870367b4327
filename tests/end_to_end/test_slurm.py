"""Sweeps on a real Slurm of two nodes: submit to table, with every loss that a site has in store.

Writes what it measured to build/slurm.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from search_spaces.space import SearchSpace
from sweep.slurm.folder import SlurmFolder
from sweep.slurm.jobs import Head
from sweep.study.definition import load_definition
from tests.lab.slurm import SlurmLab, slurm_lab, why_not
from tests.support.drivers import ROOT, kept_seconds, records, table, tiny, undisturbed, wait_until
from tests.support.faults import Faults
from trainables.records.objects import ObjectStore

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

ARM: dict[str, Any] = {"steps": 400, "report_every": 20}
LONG_S = 300.0
GONE_S = 60.0  # for the last jobs and processes of a sweep
FIGURES = ROOT / "build" / "slurm.json"
WORKER = "{cpus: 1, most: 2, time: 30}"
RAY = ("raylet", "gcs_server", "ray::", "ray.scripts", "sweep.")


@pytest.fixture(scope="module")
def timings() -> Iterator[dict[str, float]]:
    """Seconds, by what was waited for; kept at the end."""
    yield from kept_seconds(FIGURES)


class Site:
    """A Slurm cluster, and what its user does."""

    def __init__(self, lab: SlurmLab, faults: Faults) -> None:
        self.lab, self.faults = lab, faults
        self.variables = {
            "FAULTS": str(faults.folder), "PYTHONPATH": f"{faults.folder}:{ROOT}",
        }  # fmt: skip

    def write_space(self, name: str = "tiny", **fields: Any) -> SearchSpace:
        space = tiny(name=name, **{**ARM, **fields}).space
        (self.lab.home / f"{name}.json").write_text(json.dumps(space.to_json()))
        return space

    def submit(self, name: str = "tiny", *words: str, **variables: str) -> None:
        given = ("submit", f"{name}.json", "--name", name, *words)
        said = self.lab.sweep(*given, **self.variables, **variables)
        assert said == f"{name}\n"

    def folder(self, name: str = "tiny") -> SlurmFolder:
        return SlurmFolder(str(self.lab.storage), name)

    def head(self, name: str = "tiny") -> Head:
        head = self.folder(name).head()
        assert head is not None
        return head

    def reported(self, arms: int = 1) -> None:
        """Wait until so many arms have reported and go on."""
        wait_until(lambda: len(self.running()) >= arms, LONG_S)

    def running(self) -> list[str]:
        if not (self.lab.storage / "arms").exists():
            return []
        return [n for n, r in records(self.lab.objects).items() if r.reports and not r.is_final]

    def ends(self, *names: str) -> None:
        """Wait until these sweeps are finished; nothing is left, nothing was trained twice."""
        for name in names or ("tiny",):
            folder = self.folder(name)
            wait_until(lambda folder=folder: folder.over() is not None, LONG_S)  # type: ignore[misc]
            over = folder.over()
            assert over is not None
            assert over.is_good, (over, folder.head_log.read_text())
        wait_until(lambda: not self.left(), GONE_S)
        again = {arm: n for arm, n in Counter(self.faults.finals()).items() if n > 1}
        assert not again, f"trained twice to their ends: {again}"

    def left(self) -> list[str]:
        """Jobs in the queue, processes and folders that are ours."""
        jobs = [name for name in self.lab.queue() if name.startswith("sweep-")]
        lines = [line for word in RAY for line in self.lab.processes(word).values()]
        return [*jobs, *lines]

    def log(self, name: str = "tiny") -> str:
        return self.folder(name).head_log.read_text()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with slurm_lab() as lab:
        faults = Faults(lab.folder / "faults")
        yield Site(lab, faults)


def table_of(objects: ObjectStore, name: str) -> Any:
    """What a sweep came to in a store that may hold others, as ``undisturbed`` says it."""
    proposals, evaluations = table(objects, load_definition(objects, name))
    return proposals, evaluations


def test_two_sweeps_come_to_the_tables_of_local_runs(
    site: Site, trained_inline: ObjectStore, timings: dict[str, float]
) -> None:
    lab, before = site.lab, set(Path("/tmp").glob("sweep-slurm-*"))
    lab.write_yaml(f"worker: {WORKER}\n")
    site.write_space()
    site.write_space("other", train_gamma=0.2)
    site.faults.rest(1.5)
    since_s = time.monotonic()
    site.submit()
    timings["sweep submit"] = time.monotonic() - since_s
    site.reported()
    timings["submit to the first report"] = time.monotonic() - since_s
    site.submit()  # attaches
    assert len(site.folder().jobs("head")) == 2  # the one that drives, and its successor
    assert "is running already" in lab.refused("submit", "tiny.json", "--proposals", "3")
    site.submit("other")
    text = lab.sweep("status", "tiny")
    assert "tiny is running, by" in text
    assert {row["name"] for row in json.loads(lab.sweep("list", "--json"))} == {"tiny", "other"}
    site.faults.rest(0)
    site.ends("tiny", "other")
    timings["submit to the end of two sweeps"] = time.monotonic() - since_s
    objects = lab.objects
    ones, twos = (
        undisturbed(trained_inline, load_definition(objects, name)) for name in ("tiny", "other")
    )
    assert (table_of(objects, "tiny")[0], table_of(objects, "other")[0]) == (ones[0], twos[0])
    assert table_of(objects, "tiny")[1] == ones[1] | twos[1]  # both are in one store
    assert "feasible" in lab.sweep("best", "tiny")
    assert "final" in lab.sweep("logs", "tiny")
    assert set(Path("/tmp").glob("sweep-slurm-*")) <= before


def test_heads_at_their_limits_a_preempted_worker_and_a_controller_that_restarts(
    site: Site, trained_inline: ObjectStore, timings: dict[str, float]
) -> None:
    lab = site.lab
    lab.write_yaml("head: {time: 2}\nworker: {partition: low, cpus: 1, most: 2, time: 30}\n")
    site.write_space(n_proposals=3)
    site.faults.rest(4.0)  # there is work left after two heads, however fast the machine
    site.submit()
    site.reported(2)
    first = site.head()
    # Workers leave the node for a job of a higher priority, of somebody else.
    node = "node2" if first.host == "node1" else "node1"
    lab.run(f"sbatch -p high -w {node} -c 2 -o /dev/null --job-name=urgent --wrap 'sleep 15'")
    wait_until(lambda: lab.queue().get("urgent") == "RUNNING", LONG_S)
    lab.restart_controller(away_s=5.0)
    wait_until(lambda: site.head().owner != first.owner, LONG_S)
    second = site.head()
    site.reported()
    wait_until(lambda: site.head().owner != second.owner, LONG_S)
    site.faults.rest(0.2)
    site.ends()
    ends = [job.end.why for job in site.folder().jobs("head") if job.end]
    assert sum("came (time limit" in why for why in ends) >= 2, ends
    left = [job.end.why for job in site.folder().jobs("worker") if job.end]
    assert any("SIGTERM" in why or "preempted" in why for why in left), left
    objects = lab.objects
    asked = load_definition(objects, "tiny")
    assert table(objects, asked) == undisturbed(trained_inline, asked)


def test_nodes_that_are_lost_while_their_scripts_run_on(
    site: Site, trained_inline: ObjectStore
) -> None:
    lab = site.lab
    lab.write_yaml(f"worker: {WORKER}\n")
    site.write_space(n_proposals=3)
    site.faults.rest(1.0)
    site.submit()
    site.reported(2)
    first = site.head()
    zombie = lab.processes("sweep.cluster.slurm_head")
    assert len(zombie) == 1
    lab.lose_node(first.host)  # with the head, and a worker
    wait_until(lambda: site.head().owner != first.owner, LONG_S)
    wait_until(lambda: not set(zombie) & set(lab.processes("sweep.cluster.slurm_head")), GONE_S)
    lab.find_node(first.host)
    site.reported(1)
    second = site.head()
    other = "node2" if second.host == "node1" else "node1"
    lab.lose_node(other)  # a worker's, if there is one
    time.sleep(5.0)
    lab.find_node(other)
    site.faults.rest(0.2)
    site.ends()
    objects = lab.objects
    asked = load_definition(objects, "tiny")
    assert table(objects, asked) == undisturbed(trained_inline, asked)


LOSING = """\
#!/bin/bash
# The controller takes the job, and its answer is lost: each kind of job once
if [[ "$*" != *--test-only* ]]; then
  for kind in head worker; do
    if [[ "$*" == *-$kind-* ]] && mkdir {folder}/lost-$kind 2>/dev/null; then
      /usr/bin/sbatch "$@" >/dev/null
      echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
      exit 1
    fi
  done
fi
exec /usr/bin/sbatch "$@"
"""


def test_answers_that_are_lost_a_queue_that_is_full_and_one_allocation_of_two_nodes(
    site: Site, trained_inline: ObjectStore
) -> None:
    lab = site.lab
    programs = lab.folder / "programs"
    programs.mkdir()
    (programs / "sbatch").write_text(LOSING.format(folder=programs))
    (programs / "sbatch").chmod(0o755)
    shape = "{cpus: 1, nodes: 2, most: 1, time: 30}"  # one allocation
    lab.write_yaml(f"worker: {shape}\nsetup: ['export PATH={programs}:$PATH']\n")
    site.write_space()
    path = f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin"
    lab.run("sbatch -N2 --exclusive -o /dev/null --job-name=others --wrap 'sleep 600'")
    wait_until(lambda: lab.queue().get("others") == "RUNNING", LONG_S)
    site.submit(PATH=path)
    heads = [name for name in lab.queue() if "-head-" in name]
    assert len(heads) == 1, heads
    wait_until(lambda: site.folder().jobs("head")[0].id != "" or not lab.sweep("list"), LONG_S)
    site.submit(PATH=path)  # attaches to the job whose answer was lost
    assert [name for name in lab.queue() if "-head-" in name] == heads
    wait_until(lambda: "it waits for nodes to be free" in lab.sweep("status", "tiny"), GONE_S)
    assert "took job" in lab.sweep("stop", "tiny")
    wait_until(lambda: list(lab.queue()) == ["others"], GONE_S)
    assert "stopped" in lab.sweep("status", "tiny")
    lab.sweep("resume", "tiny", **site.variables)
    lab.run("scancel --name=others")
    site.faults.rest(1.0)
    site.reported(2)
    nodes = {lab.node_of(pid) for pid in lab.processes("ray::", ".train")}
    assert nodes == {"node1", "node2"}
    lab.sweep("stop", "tiny")  # while it trains
    wait_until(lambda: site.folder().over() is not None, GONE_S)
    lab.sweep("resume", "tiny", **site.variables)  # while its jobs are still ending
    site.faults.rest(0)
    site.ends()
    assert (programs / "lost-worker").exists()
    objects = lab.objects
    asked = load_definition(objects, "tiny")
    assert table(objects, asked) == undisturbed(trained_inline, asked)


def test_a_controller_that_takes_no_more_jobs(trained_inline: ObjectStore) -> None:
    """sbatch tries again and again: the verb says so, and nothing has begun."""
    with slurm_lab(most_jobs=3) as lab:
        site = Site(lab, Faults(lab.folder / "faults"))
        lab.write_yaml(f"worker: {WORKER}\n")
        site.write_space()
        lab.run(
            "while timeout 5 sbatch --hold -o /dev/null --job-name=others --wrap true; do :; done"
        )
        said = lab.refused("submit", "tiny.json", "--name", "tiny", **site.variables)
        assert "takes no more of your jobs now" in said
        assert set(lab.queue()) == {"others"}
        assert "tiny" not in lab.sweep("list")
        conf = lab.folder / "slurm.conf"
        conf.write_text(conf.read_text().replace("MaxJobCount=3", "MaxJobCount=100"))
        lab.restart_controller(0.0)
        wait_until(lambda: lab.run("sinfo --noheader --format=%T").stdout.strip() == "idle", LONG_S)
        site.submit()
        site.ends()
        asked = load_definition(lab.objects, "tiny")
        assert table(lab.objects, asked) == undisturbed(trained_inline, asked)


STRANGER = 65534  # nobody, who has an account here like everybody
TALK = """
import os, sys
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64)
import ray
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
print("talked", len(ray.nodes()))
"""


def test_two_users_side_by_side_cannot_reach_each_others_ray(site: Site) -> None:
    lab = site.lab
    lab.write_yaml(f"worker: {WORKER}\n")
    site.write_space()
    site.faults.rest(1.5)
    home = lab.folder / "home-of-nobody"
    theirs = {"HOME": str(home), "USER": "nobody", "SWEEP_ADDRESS": "slurm.yaml"}
    for folder in (home, lab.folder / "theirs"):
        folder.mkdir()
        os.chown(folder, STRANGER, STRANGER)
    text = (lab.home / "slurm.yaml").read_text()
    (home / "slurm.yaml").write_text(text.replace(str(lab.storage), str(lab.folder / "theirs")))
    (home / "tiny.json").write_text((lab.home / "tiny.json").read_text())
    (home / "talk.py").write_text(TALK)
    site.submit()
    site.reported()
    mine = site.head()

    def as_stranger(command: str) -> Any:
        return lab.run(command, check=False, user=STRANGER, variables=theirs, timeout_s=180)

    refused = as_stranger(f"python talk.py {mine.address}")
    assert refused.returncode != 0
    assert "talked" not in refused.stdout
    assert "token" in refused.stderr.lower()
    assert as_stranger(f"cat {site.folder().token}").returncode != 0
    stopped = as_stranger(f"SWEEP_ADDRESS= sweep stop tiny --storage {lab.storage}")
    assert "Permission denied" in stopped.stderr
    for pid in site.lab.run("pgrep -f gcs_server").stdout.split():
        assert as_stranger(f"kill {pid}").returncode != 0
    assert as_stranger(f"scancel {mine.id}").stderr  # Slurm's own: access denied
    # Now one of theirs beside it, on the same nodes.
    assert as_stranger("sweep submit tiny.json --name tiny").stdout == "tiny\n"
    there = SlurmFolder(str(lab.folder / "theirs"), "tiny")
    wait_until(lambda: (head := there.head()) is not None and head.address != "", LONG_S)
    other = there.head()
    assert other is not None
    (lab.home / "talk.py").write_text(TALK)
    back = lab.run(f"python talk.py {other.address}", check=False, timeout_s=180)
    assert (back.returncode != 0, "talked" in back.stdout) == (True, False)
    site.faults.rest(0)
    wait_until(lambda: there.over() is not None, LONG_S)
    over = there.over()
    assert over is not None
    assert over.is_good, there.head_log.read_text()
    site.ends()
