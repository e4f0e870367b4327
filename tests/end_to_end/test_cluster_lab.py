"""A whole cluster in the lab: `ray up`, submit, losses of every kind, the same table, `ray down`.

Writes what it measured to build/cluster_lab.json. Takes some ten minutes on two cores.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sweep.cluster.job_list import READER
from sweep.study.definition import load_definition
from tests.lab.cluster import YAML, LabCluster
from tests.lab.hosts import HOME, Host, lab, why_not
from tests.lab.ports import called, listening, open_ports, shown
from tests.support.drivers import (
    ROOT,
    kept_seconds,
    records,
    steps,
    table,
    tiny,
    undisturbed,
    wait_until,
)
from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, SECOND, Losses, store_sweep
from trainables.records.arm_record import REPORTED_LOSS, ArmRecord
from trainables.records.objects import ObjectStore

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

ARM = {"steps": 400, "report_every": 20}
PROPOSALS = 12  # of each of two settings
WORKERS = 2  # of four: where one dies, there is room for its arm elsewhere
REST_S = 1.5  # after each report: some arms are left after all that is done to them
LONG_S = 300.0  # on two cores that everything shares
LONG_REST_S = 10.0  # while a machine is lost: a cut one trains on, and must not end its arm
STILL_S = 5.0  # without a report, with workers training: the disk is full
TRAINING = ".train"  # in the title of a process that trains an arm
JOB = "tiny-1"
FIGURES = ROOT / "build" / "cluster_lab.json"
NOTIFY = "http://127.0.0.1:9/hook-5ecre7"  # nobody hears it; its path is a secret


@pytest.fixture(scope="module")
def timings() -> Iterator[dict[str, float]]:
    """Seconds, by what was waited for; kept at the end."""
    yield from kept_seconds(FIGURES)


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, timings: dict[str, float]
) -> Iterator[LabCluster]:
    """A cluster that `ray up` has just made, with both workers in it."""
    folder = tmp_path_factory.mktemp("lab")
    with lab(folder) as made:
        since = time.monotonic()
        there = LabCluster(made, folder)
        timings["boot"] = time.monotonic() - since
        since = time.monotonic()
        there.ray("up --no-config-cache")
        timings["ray up"] = time.monotonic() - since
        there.wait_for_workers(LONG_S)
        timings["ray up, both workers in"] = time.monotonic() - since
        yield there


# --- who gets in ----------------------------------------------------------------------------------

# Programs that listen beyond loopback, all of them told of in docs/cluster.md, and whether one of
# their ports shows metrics to everybody. A worker's own processes are "ray::" and what they train.
RAY = {"raylet": False, "ray::DashboardAgent": True, "ray::RuntimeEnvAgent": False}
HEAD = {
    "sshd": False, "gcs_server": False, "ray.util.client.server": False,
    "monitor.py": True, "dashboard.py": True, **RAY,
}  # fmt: skip
WORKER = {"sshd": False, **RAY}
LOOPBACK = {8265, 8266, 5000}  # on the head


@pytest.mark.parametrize("seen_from", ["one", "stranger"])
def test_what_is_open_is_what_the_docs_say(cluster: LabCluster, seen_from: str) -> None:
    eyes = cluster.lab.hosts[seen_from]
    for node, told in ((cluster.head, HEAD), (cluster.two, WORKER)):
        ports = open_ports(node, eyes)
        programs = {port: program for port, (_, program) in listening(node).items()}
        seen = shown(node, ports, eyes)
        print(json.dumps({f"open on {node.name}, from {seen_from}": _table(programs, seen)}))
        assert {programs[port] for port in ports} == set(told)
        assert LOOPBACK.isdisjoint(ports)
        assert {programs[port] for port, (_, metrics) in seen.items() if metrics} == {
            program for program, has_metrics in told.items() if has_metrics
        }
        for port, (status, metrics) in seen.items():
            assert metrics or status in (0, 401, 403), (port, programs[port], status)


def _table(programs: dict[int, str], seen: dict[int, tuple[int, bool]]) -> dict[str, str]:
    kinds = {port: "metrics" if shows else f"HTTP {code}" for port, (code, shows) in seen.items()}
    return {f"{port} {programs[port]}": kinds[port].replace("HTTP 0", "-") for port in seen}


@pytest.mark.parametrize("token", ["-", "x" * 64], ids=["none", "wrong"])
def test_ray_refuses_who_has_no_token_or_another_one(cluster: LabCluster, token: str) -> None:
    for node in (cluster.head, cluster.two):
        programs = {port: program for port, (_, program) in listening(node).items()}
        ports = open_ports(node, cluster.stranger)
        seen = shown(node, ports, cluster.stranger)
        grpc = [port for port in ports if not seen[port][0] and programs[port] != "sshd"]
        assert len(grpc) >= 3
        for port, codes in called(node, grpc, cluster.stranger, token).items():
            assert "UNAUTHENTICATED" in codes, (port, programs[port], codes)
            assert codes <= {"UNAUTHENTICATED", "UNIMPLEMENTED"}, (port, programs[port], codes)
    right = cluster.laptop.run("cat ~/.ray/auth_token").stdout.strip()
    assert "OK" in called(cluster.head, [6379], cluster.one, right)[6379]


ROUTE = re.compile(r'outes?\.(get|post|put|delete)\(\s*f?"(/[^"]*)"')
# Shown to everybody, by Ray's own list: the start page, how to log in, whether it is well.
PUBLIC = {
    "/", "/favicon.ico", "/api/authentication_mode", "/api/authenticate",
    "/api/healthz", "/api/gcs_healthz", "/api/local_raylet_healthz",
}  # fmt: skip
LET_IN = {"/api/jobs/", "/api/version", "/api/cluster_status"}  # asked with the token, too
ASK = """
import json, sys, urllib.error, urllib.request
from sweep.cluster.tunnel import reached, token
routes, answers = json.load(sys.stdin), []
secret = token(sys.argv[1])
with reached(sys.argv[1]) as url:
    for method, path in routes:
        for who, sent in (("none", None), ("wrong", "x" * 64), ("token", secret)):
            if who == "token" and f"{method} {path}" not in sys.argv[2:]:
                continue
            headers = {} if sent is None else {"Authorization": f"Bearer {sent}"}
            asked = urllib.request.Request(url + path, method=method, headers=headers)
            try:
                code = urllib.request.urlopen(asked, timeout=60).status
            except urllib.error.HTTPError as error:
                code = error.code
            except OSError:
                code = 0
            answers.append((method, path, who, code))
print(json.dumps(answers))
"""


def test_every_endpoint_of_the_job_server_wants_the_token(cluster: LabCluster) -> None:
    import ray.dashboard

    sources = Path(ray.dashboard.__file__).parent.rglob("*.py")
    text = "\n".join(file.read_text() for file in sources)
    routes = sorted({(m.upper(), re.sub(r"{\w+}", "x", p)) for m, p in ROUTE.findall(text)})
    assert len(routes) > 40
    cluster.laptop.path(f"{HOME}/ask.py").write_text(ASK)
    cluster.laptop.path(f"{HOME}/routes.json").write_text(json.dumps(routes))
    words = " ".join(f"'GET {path}'" for path in sorted(LET_IN))
    asked = f"cd checkout && python ~/ask.py {YAML} {words} < ~/routes.json"
    answers = json.loads(cluster.laptop.run(asked, timeout_s=LONG_S).stdout)
    assert {path for _, path, who, code in answers if who == "token" and code == 200} == LET_IN
    open_to_all = {p for _, p, who, code in answers if who != "token" and code not in (401, 403)}
    assert open_to_all <= PUBLIC


# --- the whole story ------------------------------------------------------------------------------


class Sweep:
    """A submitted sweep, watched where it is stored; what must never happen is looked for."""

    def __init__(self, cluster: LabCluster, timings: dict[str, float]) -> None:
        self.cluster, self.timings = cluster, timings
        self.objects = cluster.objects()
        self._final: dict[str, ArmRecord] = {}

    def look(self) -> None:
        """Final records stay what they were when they were first seen."""
        for name, record in records(self.objects).items():
            if name in self._final:
                assert record == self._final[name]
            elif record.is_final:
                self._final[name] = record

    def started_ns(self) -> int:
        """When a worker last took up an arm."""
        return max((since for _, since in self.cluster.places().values()), default=0)

    def submit(self, *words: str) -> None:
        since = time.monotonic()
        assert self.cluster.sweep("submit", *words) == "tiny\n"
        self.timings["sweep submit"] = time.monotonic() - since
        wait_until(lambda: self.last_report_ns() > 0, timeout_s=LONG_S)
        self.timings["sweep submit to the first report"] = time.monotonic() - since

    def lose_a_worker(self, happen: Callable[[Host], None], name: str) -> Host:
        """Take away one that trains; until an arm of it runs elsewhere."""
        seen: list[tuple[Host, set[str]]] = []  # asked once: a moment later they may be beyond it

        def is_seen() -> bool:
            seen[:] = self.in_their_first_half()
            return bool(seen)

        wait_until(is_seen, timeout_s=LONG_S)
        host, lost = seen[0]
        self.cluster.rest_after_reports(LONG_REST_S)
        self.look()
        deaths, since = self.deaths(), time.time_ns()
        happen(host)
        wait_until(lambda: self.deaths() > deaths, timeout_s=LONG_S)
        self.timings[f"{name}, noticed"] = (time.time_ns() - since) / 1e9

        def again() -> list[int]:
            places = self.cluster.places()
            return [places[arm][1] for arm in lost if places[arm][0] != host.name]

        wait_until(lambda: bool(again()), timeout_s=LONG_S)
        self.timings[f"{name}, arm elsewhere"] = (min(again()) - since) / 1e9
        self.cluster.rest_after_reports(REST_S)
        self.look()
        return host

    def in_their_first_half(self) -> list[tuple[Host, set[str]]]:
        """Machines that train now, with their arms that have reported and half their steps left."""
        done, places = steps(self.objects), self.cluster.places()
        young = {arm for arm, step in done.items() if step <= ARM["steps"] // 2}
        found = []
        for host in (self.cluster.one, self.cluster.two):
            arms = {arm for arm in young if places.get(arm, ("", 0))[0] == host.name}
            if arms and host.processes(TRAINING):
                found.append((host, arms))
        return found

    def lose_the_head(self) -> None:
        """Power off and on, its disk kept: `ray up`, `sweep resume`, until arms train again."""
        self.cluster.head.power_off()
        self.cluster.head.power_on()
        since = time.monotonic()
        self.cluster.ray("up --no-config-cache")
        before = time.time_ns()
        assert self.cluster.sweep("resume", "tiny", "--workers", str(WORKERS)) == "tiny\n"
        wait_until(lambda: self.started_ns() > before, timeout_s=LONG_S)
        self.timings["head restarted, ray up and sweep resume, arm trains"] = (
            time.monotonic() - since
        )
        self.look()

    def deaths(self) -> int:
        return self.cluster.driver_log(JOB).count("a worker died")

    def joins_again(self, name: str) -> None:
        """Until every machine is in the cluster."""
        since = time.monotonic()
        self.cluster.wait_for_workers(LONG_S)
        self.timings[f"{name}, in the cluster again"] = time.monotonic() - since

    def kill_driver(self) -> None:
        (driver,) = self.cluster.drivers()
        since = time.monotonic()
        os.kill(driver, signal.SIGKILL)
        wait_until(lambda: "is started again" in self.cluster.driver_log(JOB), timeout_s=LONG_S)
        before = time.time_ns()  # what the old driver's workers had begun is over
        wait_until(lambda: self.started_ns() > before, timeout_s=LONG_S)
        self.timings["driver killed, arm trains"] = time.monotonic() - since
        self.look()

    def kill_mlflow(self) -> None:
        servers = self.cluster.head.processes("mlflow")
        assert servers
        since = time.monotonic()
        for pid in self.cluster.head.processes("mlflow", "python"):
            os.kill(pid, signal.SIGKILL)
        health = "curl -sf http://127.0.0.1:5000/health"
        wait_until(lambda: self.cluster.on_head(health, check=False) == "OK", timeout_s=LONG_S)
        self.timings["MLflow killed, answers"] = time.monotonic() - since

    def fill_the_disk(self) -> None:
        """Until training stands still; then free it, until it goes on."""
        filler = self.cluster.lab.storage / "filler"
        with open(filler, "wb", buffering=0) as file, suppress(OSError):  # ends when it is full
            while file.write(b"0" * 2**20):
                pass
        while time.time_ns() < self.last_report_ns() + STILL_S * 1e9:
            time.sleep(0.1)
        full = os.statvfs(filler)
        assert full.f_bavail * full.f_frsize < 2**16
        since, last = time.monotonic(), self.last_report_ns()
        filler.unlink()
        wait_until(lambda: self.last_report_ns() > last, timeout_s=LONG_S)
        self.timings["disk freed, arms report"] = time.monotonic() - since
        self.look()

    def last_report_ns(self) -> int:
        """When an arm last reported; 0: none did. Cheap enough to be asked all the time."""
        files = Path(self.objects.root, "arms").glob("*/record.json")
        return max((file.stat().st_mtime_ns for file in files), default=0)


def test_a_sweep_outlives_all_losses_and_equals_an_undisturbed_one(
    cluster: LabCluster,
    timings: dict[str, float],
    tmp_path: Path,
    trained_inline: ObjectStore,
) -> None:
    space = tiny("random", n_proposals=PROPOSALS, **ARM).space
    cluster.laptop.path(f"{HOME}/tiny.json").write_text(json.dumps(space.to_json()))
    cluster.rest_after_reports(REST_S)
    sweep = Sweep(cluster, timings)
    submitted = ("~/tiny.json", "--workers", str(WORKERS), "--notify", NOTIFY)
    sweep.submit(*submitted)
    assert cluster.sweep("submit", *submitted) == "tiny\n"  # attaches
    assert "n_proposals" in cluster.refused("submit", *submitted, "--proposals", "2")
    sweep.lose_a_worker(Host.power_off, "power off").power_on()
    sweep.kill_mlflow()
    sweep.kill_driver()
    sweep.fill_the_disk()
    sweep.joins_again("power on")
    sweep.lose_a_worker(Host.cut, "cable cut").mend()
    sweep.joins_again("cable mended")
    sweep.lose_the_head()
    assert json.loads(cluster.sweep("status", "tiny", "--json"))["state"] == "running"
    cluster.rest_after_reports(0)
    since = time.monotonic()
    log = cluster.sweep("logs", "tiny", "--follow", timeout_s=1200)
    timings["the rest of the sweep"] = time.monotonic() - since
    sweep.look()

    arms = 2 * (1 + PROPOSALS)
    assert f"{arms} of {arms} arms are final" in log
    state = json.loads(cluster.sweep("status", "tiny", "--json"))
    assert (state["state"], state["arms"]["final"], state["driver"]) == ("finished", arms, None)
    cluster.sweep("export", "tiny", "--out", "~/results")
    print(
        cluster.sweep("list"),
        cluster.sweep("best", "tiny"),
        cluster.laptop.run("find ~/results").stdout,
    )
    assert_every_arm_was_trained_once(sweep.objects, arms)
    assert_tracked_once(cluster, sweep.objects, tmp_path)
    assert_no_secret_was_written(cluster)
    asked = load_definition(sweep.objects, "tiny")
    assert table(sweep.objects, asked) == undisturbed(trained_inline, asked)


def assert_every_arm_was_trained_once(objects: ObjectStore, arms: int) -> None:
    """Each report of each arm once and in order; no worker took up an arm after its end."""
    expected = list(range(ARM["report_every"], ARM["steps"] + 1, ARM["report_every"]))
    found = records(objects)
    assert len(found) == arms
    for name, record in found.items():
        assert record.status == "finished", record.reason
        assert [report.step for report in record.reports] == expected
        started = Path(objects.root, "arms", name, "attempts.json").stat().st_mtime
        assert started <= record.ended_ms / 1e3
        left = set(os.listdir(Path(objects.root, "arms", name)))
        assert left <= {"attempts.json", "record.json", "scores.npz", "weights.pt"}


def assert_tracked_once(cluster: LabCluster, objects: ObjectStore, folder: Path) -> None:
    """The head's MLflow has one run per arm, and each of its reports once."""
    for file in cluster.head.path(f"{HOME}/mlflow").glob("mlflow.db*"):
        shutil.copy(file, folder)  # with what SQLite has not merged yet
    database = sqlite3.connect(folder / "mlflow.db")
    rows = database.execute(
        "select t.value, m.step, m.value from metrics m join tags t using (run_uuid)"
        " join runs using (run_uuid) where t.key = 'signature' and m.key = ?"
        " and lifecycle_stage = 'active' order by m.step",
        (REPORTED_LOSS,),
    )
    tracked: dict[str, list[tuple[int, float]]] = {}
    for signature, step, value in rows:
        tracked.setdefault(signature, []).append((step, value))
    database.close()
    assert tracked == {
        signature: [(report.step, report.scalars[REPORTED_LOSS]) for report in record.reports]
        for signature, record in records(objects).items()
    }


def assert_no_secret_was_written(cluster: LabCluster) -> None:
    """Neither the token nor the webhook is in a log, in the storage or in MLflow."""
    token = cluster.laptop.path(f"{HOME}/.ray/auth_token").read_text().strip()
    places = f"/tmp/ray/session_2*/logs /srv/storage/sweeps {HOME}/mlflow"
    for node in cluster.nodes:
        for secret in (token, NOTIFY.rpartition("/")[2]):
            found = node.run(f"grep -rlF {secret} {places} || true").stdout
            assert found == "", (node.name, found)
    assert token in cluster.head.run("grep -rF '' ~/.ray").stdout  # grep does find it


POST = """
import http.client
asked = http.client.HTTPConnection("127.0.0.1", 8266)
asked.request("POST", "/", "{}")
print(asked.getresponse().status)
"""


def test_a_laptops_second_verb_is_answered_by_the_heads_reader(
    cluster: LabCluster, timings: dict[str, float]
) -> None:
    proposals: dict[str, list[Losses]] = {FIRST: [INFEASIBLE, FEASIBLE], SECOND: []}
    store_sweep(cluster.objects(), proposals, name="stored")

    def answered_by_jobs() -> int:
        logs = cluster.head.path("/tmp/ray").glob("session_2*/logs/job-driver-ask-*.log")
        return len(list(logs))

    def status(name: str) -> str:
        since = time.monotonic()
        said = cluster.sweep("status", "stored")
        timings[f"sweep status, {name}"] = time.monotonic() - since
        return said

    lines = [Path(f"/proc/{p}/cmdline").read_text() for p in cluster.head.processes(READER)]
    for job in set(re.findall(rf"{READER}\w+", " ".join(lines))):  # of the tests before
        cluster.on_head(f"ray job stop --address http://127.0.0.1:8265 {job}")
    by_jobs = answered_by_jobs()
    first = status("by a job")
    assert answered_by_jobs() == by_jobs + 1
    wait_until(lambda: 8266 in listening(cluster.head), timeout_s=LONG_S)
    assert status("by the reader") == first
    assert "winner" in cluster.sweep("best", "stored")
    assert "unknown sweep 'gone'" in cluster.refused("status", "gone")
    assert answered_by_jobs() == by_jobs + 1

    assert listening(cluster.head)[8266][0] == "127.0.0.1"
    by_another_user = f"setpriv --reuid=65534 --clear-groups python3 -c '{POST}'"
    assert cluster.head.run(by_another_user).stdout == "403\n"
    token = cluster.laptop.path(f"{HOME}/.ray/auth_token").read_text().strip()
    assert token not in cluster.head.run("ps -eo args").stdout
    assert_no_secret_was_written(cluster)


def test_ray_down_ends_the_cluster(cluster: LabCluster, timings: dict[str, float]) -> None:
    since = time.monotonic()
    cluster.ray("down")
    timings["ray down"] = time.monotonic() - since
    assert not cluster.head.processes("raylet")
    wait_until(lambda: not cluster.head.processes("sweep.cli.reader"), timeout_s=LONG_S)
    wait_until(
        lambda: not any(node.processes("raylet") for node in cluster.nodes), timeout_s=LONG_S
    )
    timings["ray down, workers' Ray ended"] = time.monotonic() - since
    assert cluster.lab.storage.joinpath("sweeps", "sweeps", "tiny").is_dir()
