"""A laptop and a cluster's head with a real job server: submit, ask, stop, resume, and survive."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sweep.cluster.job_list import Job, listed
from sweep.cluster.jobs import ANSWERS, Jobs
from sweep.results.status import state_of
from sweep.results.sweep_view import load_sweep
from sweep.study.lock import driver_of
from tests.support.command_line import contents, refused, sweep
from tests.support.drivers import wait_until
from tests.support.faults import Faults
from tests.support.servers.cluster_heads import ROOT, Head, head
from trainables.errors import Failure, Misuse
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2000)]
PATIENCE_S = 900.0
# Three arms, which rest after their reports until they have been stopped or killed on the way.
ARMS = ("--set", "steps=400", "--set", "report_every=20", "--proposals", "2")
REST_S = 2.0


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    folder = tmp_path_factory.mktemp("head")
    environment = Faults(folder / "faults").environment()
    own = {name: environment[name] for name in ("FAULTS", "PYTHONPATH")}
    own["PYTHONPATH"] += f"{os.pathsep}{ROOT}"
    with head(folder, environment=own) as started:
        yield started


@pytest.fixture
def faults(up: Head) -> Iterator[Faults]:
    """What happens to arms on the head."""
    there = Faults.of(up.storage.parent / "faults")
    yield there
    there.rest(0)


@pytest.fixture
def laptop(up: Head, monkeypatch: pytest.MonkeyPatch) -> Head:
    """The environment of a laptop that knows the cluster."""
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(up.token))
    monkeypatch.setenv("SWEEP_ADDRESS", up.url)
    return up


def asked(*words: str) -> Any:
    return json.loads(sweep(*words, "--json").stdout)


def submitted(*words: str) -> str:
    return sweep("submit", *words).stdout.strip()


def wait_for_storage(there: Head, name: str, state: str) -> None:
    objects = ObjectStore(there.storage)

    def is_there() -> bool:
        is_running = driver_of(objects, name) is not None
        return state_of(load_sweep(objects, name), is_running=is_running) == state

    wait_until(is_there, timeout_s=PATIENCE_S)


def wait_for_state(there: Head, name: str, state: str) -> Any:
    """What the laptop is told, once the head's storage says so: each question costs a job there."""
    wait_for_storage(there, name, state)
    give_up = time.monotonic() + PATIENCE_S
    while True:
        entry = asked("status", name)
        if entry["state"] == state and entry["driver"] is None:
            return entry
        assert time.monotonic() < give_up, entry


# --- submitting -----------------------------------------------------------------------------------


@pytest.mark.always
def test_a_submitted_sweep_is_read_from_the_laptop_as_on_the_head(
    laptop: Head, space_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert submitted(space_file) == "mine"
    follow = [sys.executable, "-m", "sweep.cli", "logs", "mine", "-f"]
    followed = subprocess.run(follow, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "2 of 2 arms are final" in followed.stdout
    assert followed.stderr == ""  # nothing of Ray's own
    assert "sweep-answer" not in followed.stdout
    entry = wait_for_state(laptop, "mine", "finished")
    assert entry["arms"]["final"] == 2
    assert "2 of 2 arms final" in sweep("status", "mine").stdout
    assert [sweep["name"] for sweep in asked("list")] == ["mine"]
    best = asked("best", "mine")
    sweep("export", "mine", "--out", str(tmp_path / "there"), "--all")
    monkeypatch.delenv("SWEEP_ADDRESS")  # the same, where the head stands
    monkeypatch.setenv("SWEEP_STORAGE", str(laptop.storage))
    assert asked("best", "mine") == best
    sweep("export", "mine", "--out", str(tmp_path / "here"), "--all")
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_the_same_definition_attaches_and_another_is_refused(laptop: Head, space_file: str) -> None:
    assert submitted(space_file, "--name", "twice") == "twice"
    again = sweep("submit", space_file, "--name", "twice")
    assert again.stdout == "twice\n"
    text = refused("submit", space_file, "--name", "twice", "--set", "steps=6")
    assert "base.steps: stored 4, given 6" in text
    wait_for_state(laptop, "twice", "finished")


def test_no_code_travels(laptop: Head, space_file: str) -> None:
    """The space imports a module of tests/, which is no part of the package."""
    submitted(space_file, "--name", "plain")
    packages = list(Path("/tmp").glob("dsw-*/session_*/runtime_resources/working_dir_files/*/*"))
    assert {package.name for package in packages} == {"submission.json"}
    wait_for_state(laptop, "plain", "finished")


def test_another_version_is_refused_or_wanted(
    laptop: Head, space_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.cli.cluster.code_version", lambda: "0.0+other")
    result = sweep("submit", space_file, "--name", "skewed", exits=1)
    assert "this laptop 0.0+other" in result.stderr
    assert "unknown sweep 'skewed'" in refused("status", "skewed")
    assert submitted(space_file, "--name", "skewed", "--any-version") == "skewed"
    wait_for_state(laptop, "skewed", "finished")


def test_what_the_head_refuses_is_refused_here(laptop: Head, space_file: str) -> None:
    assert "unknown sweep 'gone'" in refused("status", "gone")
    assert "unknown sweep 'gone'" in refused("resume", "gone")
    assert "unknown sweep 'gone'" in refused("stop", "gone")
    assert "unknown sweep 'gone'" in refused("export", "gone", "--out", "x")
    assert "unknown sweep among" in refused("logs", "never-submitted")
    assert "absolute folder" in refused("list", "--storage", "sweeps")


def test_a_sweep_is_confirmed_from_the_laptop(
    laptop: Head, space_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(space_file, "--name", "found")
    wait_for_storage(laptop, "found", "finished")
    words = ("confirm", "found", "--proposal", "only=0", "--seeds", "2", "--controls", "detached")
    assert "2 fresh seeds from 1000, 6 arms at most" in sweep(*words, "--dry-run").stdout
    assert "found.confirmation" not in ObjectStore(laptop.storage).names("sweeps")
    assert sweep(*words).stdout == "found.confirmation\n"
    wait_for_storage(laptop, "found.confirmation", "finished")
    table = asked("best", "found.confirmation")
    (setting,) = table["settings"]
    assert setting["contrasts"]["detached"]["per_seed"].keys() == {"1000", "1001"}
    monkeypatch.delenv("SWEEP_ADDRESS")  # the same, where the head stands
    monkeypatch.setenv("SWEEP_STORAGE", str(laptop.storage))
    assert asked("best", "found.confirmation") == table


# --- stopping, resuming, surviving ----------------------------------------------------------------


def test_a_sweep_is_stopped_and_resumed_from_the_laptop(
    laptop: Head, space_file: str, faults: Faults
) -> None:
    faults.rest(REST_S)
    submitted(space_file, "--name", "long", *ARMS)
    objects = ObjectStore(laptop.storage)
    wait_until(lambda: bool(objects.names("arms")) and driver_of(objects, "long") is not None)
    assert "is running already" in refused("resume", "long")
    assert "sent a stop request to" in sweep("stop", "long").stdout
    stopped = wait_for_state(laptop, "long", "stopped")
    assert stopped["arms"]["final"] < stopped["arms"]["wanted"]
    assert "got a stop request" in sweep("logs", "long").stdout
    faults.rest(0)
    assert sweep("resume", "long").stdout == "long\n"
    assert wait_for_state(laptop, "long", "finished")["arms"]["final"] == 3


def test_a_driver_that_is_killed_is_started_again(
    laptop: Head, space_file: str, faults: Faults
) -> None:
    faults.rest(REST_S)
    submitted(space_file, "--name", "killed", *ARMS, "--set", "sampler_seed=5")
    objects = ObjectStore(laptop.storage)
    runs = ArmStore(objects)

    def an_arm_has_reported() -> bool:
        arms = load_sweep(objects, "killed").arms.values()
        return any(arm.record is not None and arm.record.reports for arm in arms)

    wait_until(lambda: driver_of(objects, "killed") is not None and an_arm_has_reported())
    driver = driver_of(objects, "killed")
    assert driver is not None
    os.kill(driver.pid, signal.SIGKILL)
    faults.rest(0)
    entry = wait_for_state(laptop, "killed", "finished")
    assert entry["arms"]["final"] == entry["arms"]["wanted"] == 3
    log = sweep("logs", "killed").stdout
    assert f"ended with exit code {128 + signal.SIGKILL} and is started again" in log
    assert all(runs.record(signature) for signature in objects.names("arms"))


def test_questions_are_no_failures_and_leave_the_list(
    laptop: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's own server watches a job beyond its end."""
    monkeypatch.setattr("sweep.cluster.jobs.KEPT_S", 10.0)
    asked("list")
    server = Jobs(laptop.url, laptop.token.read_text())
    (newest, *_) = sorted(questions(server), key=lambda job: job.started_ms, reverse=True)
    wait_until(lambda: server.look(newest.id).is_over)
    ended = time.monotonic()
    wait_until(lambda: time.monotonic() > ended + 12)
    asked("list")
    there = {job.id: job for job in questions(server)}
    assert newest.id not in there
    assert {job.state for job in there.values()} <= {"PENDING", "RUNNING", "SUCCEEDED"}


def test_the_list_without_rays_client_is_the_same(laptop: Head, space_file: str) -> None:
    submitted(space_file, "--name", "listed")
    wait_for_state(laptop, "listed", "finished")
    port, token = int(laptop.url.rpartition(":")[2]), laptop.token.read_text()
    server = Jobs(laptop.url, token)
    wait_until(lambda: all(job.is_over for job in server.every()))
    here = {job.id: job for job in listed(port, token)}
    assert here == {job.id: job for job in server.every()}
    assert here["listed-1"].sweep == "listed"
    assert listed(port, "another") == []


def questions(server: Jobs) -> list[Job]:
    return [job for job in server.every() if job.id.startswith(ANSWERS)]


# --- who may ask ----------------------------------------------------------------------------------


def routes() -> set[tuple[str, str]]:
    """Every route of Ray's dashboard, with something in the place of each part that varies."""
    spec = find_spec("ray")
    assert spec is not None
    assert spec.origin is not None
    pattern = r"routes\.(get|post|put|delete)\(\s*[\"'](/[^\"']*)"
    found = set()
    for file in Path(spec.origin).parent.glob("dashboard/**/*.py"):
        for method, path in re.findall(pattern, file.read_text()):
            found.add((method.upper(), re.sub(r"\{[^}]*\}", "x", path)))
    return found


def status_of(method: str, url: str, token: str | None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


# Ray leaves these open: the page that asks for the token, and what it needs for that.
OPEN = {
    ("GET", "/"),
    ("GET", "/favicon.ico"),
    ("GET", "/-/healthz"),
    ("POST", "/api/authenticate"),
    ("GET", "/api/authentication_mode"),
    ("GET", "/api/healthz"),
    ("GET", "/api/gcs_healthz"),
    ("GET", "/api/local_raylet_healthz"),
}


@pytest.mark.parametrize(("token", "answer"), [(None, 401), ("0" * 64, 403)])
def test_every_endpoint_but_the_start_page_wants_the_token(
    up: Head, token: str | None, answer: int
) -> None:
    every = routes() - OPEN
    assert ("POST", "/api/jobs/") in every
    assert len(every) > 30
    answers = {route: status_of(route[0], up.url + route[1], token) for route in every}
    assert {route: code for route, code in answers.items() if code != answer} == {}


@pytest.mark.parametrize("token", [None, "0" * 64])
def test_a_wrong_token_is_misuse_and_is_not_repeated(up: Head, token: str | None) -> None:
    with pytest.raises(Misuse, match="did not accept the token") as refusal:
        Jobs(up.url, token)
    assert "0" * 64 not in str(refusal.value)


def test_a_cluster_that_is_down_is_told(up: Head) -> None:
    with pytest.raises(Failure, match="Is the cluster up"):
        Jobs("http://127.0.0.1:9", None)
