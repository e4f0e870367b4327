"""A laptop's verbs against a job server: what is sent, what is shown, and who drives a sweep."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.cluster.jobs import ANSWERS, KEPT_S, Jobs, _one_line
from sweep.cluster.submission import Answer
from sweep.study.definition import load_definition
from tests.support.command_line import contents, refused, sweep
from tests.support.drivers import wait_until
from tests.support.servers.job_servers import JobServer, job_server
from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, SECOND, store_sweep
from trainables.errors import Failure, Misuse
from trainables.records.objects import ObjectStore

pytestmark = pytest.mark.long("each question starts a Python on the stand-in, as on a head")

TOKEN = "of-the-cluster"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobServer]:
    """A cluster, and this process as a laptop that knows it."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with job_server(folder, TOKEN) as server:
        server.environment["SWEEP_STORAGE"] = str(folder / "storage")
        monkeypatch.setenv("SWEEP_ADDRESS", server.url)
        monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
        yield server


@pytest.fixture
def results(cluster: JobServer) -> Path:
    """The cluster's storage, with a sweep called tiny in it."""
    root = cluster.folder / "storage"
    store_sweep(ObjectStore(root), {FIRST: [INFEASIBLE, FEASIBLE], SECOND: [INFEASIBLE]})
    return root


# --- asking ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_laptop_shows_what_the_head_would(
    cluster: JobServer, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = (("status", "tiny"), ("best", "tiny"), ("list",))
    there = [sweep(*words, *more).stdout for words in verbs for more in ((), ("--json",))]
    sweep("export", "tiny", "--out", str(tmp_path / "there"), "--all")
    figure = ("report", "tiny", "--figure", "scores", "--out")
    told = sweep(*figure, str(tmp_path / "there" / "report")).stdout
    monkeypatch.delenv("SWEEP_ADDRESS")
    monkeypatch.setenv("SWEEP_STORAGE", str(results))
    here = [sweep(*words, *more).stdout for words in verbs for more in ((), ("--json",))]
    for place in (f"--address {cluster.url}", f"--storage {results}"):
        there = [text.replace(f" {place}`", "`") for text in there]
        here = [text.replace(f" {place}`", "`") for text in here]
    assert there == here
    sweep("export", "tiny", "--out", str(tmp_path / "here"), "--all")
    own = sweep(*figure, str(tmp_path / "here" / "report")).stdout
    assert told.replace("/there/", "/here/") == own
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


@pytest.mark.slow
def test_what_the_head_refuses_is_refused_with_its_words(cluster: JobServer, results: Path) -> None:
    assert "unknown sweep 'gone'. Known: tiny" in refused("status", "gone")
    assert "is not running" in refused("stop", "tiny")
    del cluster.environment["SWEEP_STORAGE"]
    assert "the cluster has no storage root" in refused("list")
    assert "tiny" in sweep("list", "--storage", str(results)).stdout


@pytest.mark.slow
def test_a_job_says_that_a_sweep_is_driven_also_without_a_lock(
    cluster: JobServer, results: Path
) -> None:
    assert json.loads(sweep("status", "tiny", "--json").stdout)["state"] == "stopped"
    cluster.jobs["tiny-1"] = {
        "type": "SUBMISSION",
        "submission_id": "tiny-1",
        "status": "RUNNING",
        "entrypoint": "python -m sweep.cluster.supervise",
        "metadata": {"sweep": "tiny", "storage": ""},
    }
    entry = json.loads(sweep("status", "tiny", "--json").stdout)
    assert entry["state"] == "running"
    assert entry["driver"]["job"] == "tiny-1"
    assert "by job tiny-1" in sweep("status", "tiny").stdout
    assert "sent a stop request to job tiny-1" in sweep("stop", "tiny").stdout
    assert (results / "sweeps" / "tiny" / "stop").exists()


def test_a_head_without_this_package_is_told_with_its_own_words(
    cluster: JobServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.cluster.ask.PYTHON", "no-python -m")
    result = sweep("list", exits=1)
    assert "the head could not run it" in result.stderr
    assert "no-python" in result.stderr


# --- submitting -----------------------------------------------------------------------------------


def test_a_submitted_sweep_is_stored_and_nothing_but_json_travels(
    cluster: JobServer, space_file: str
) -> None:
    assert sweep("submit", space_file).stdout == "mine\n"
    objects = ObjectStore(cluster.folder / "storage")
    assert load_definition(objects, "mine").space.base.steps == 4
    (package,) = cluster.packages.values()
    assert zipfile.ZipFile(io.BytesIO(package)).namelist() == ["submission.json"]
    (job,) = cluster.jobs.values()
    assert job["submission_id"] == "mine-1"
    assert TOKEN not in json.dumps(job)


@pytest.mark.slow
def test_one_job_drives_a_sweep_at_a_time(cluster: JobServer, space_file: str) -> None:
    sweep("submit", space_file)
    again = sweep("submit", space_file)
    assert again.stdout == "mine\n"
    assert "driven by job mine-1" in again.stderr
    text = refused("submit", space_file, "--set", "steps=6")
    assert "base.steps: stored 4, given 6" in text
    assert "mine is running already: job mine-1" in refused("submit", space_file, "--seeds", "2")
    assert "mine is running already: job mine-1" in refused("resume", "mine")
    assert [job for job in cluster.jobs if not job.startswith(ANSWERS)] == ["mine-1"]
    cluster.end("mine-1")
    assert "driven by job mine-2" in sweep("resume", "mine").stderr


def test_two_laptops_start_one_driver(
    cluster: JobServer, space_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one submits after this one has looked and before it has begun."""
    looked = []
    of_sweep = Jobs.of_sweep

    def look_and_be_overtaken(self: Jobs, name: str) -> object:
        found = of_sweep(self, name)
        if not looked:
            looked.append(name)
            sweep("submit", space_file)
        return found

    monkeypatch.setattr(Jobs, "of_sweep", look_and_be_overtaken)
    result = sweep("submit", space_file)
    assert "driven by job mine-1" in result.stderr
    assert [job for job in cluster.jobs if not job.startswith(ANSWERS)] == ["mine-1"]


def test_the_log_is_found_by_a_root_that_is_spelled_differently(
    cluster: JobServer, space_file: str
) -> None:
    root = cluster.environment["SWEEP_STORAGE"]
    sweep("submit", space_file, "--storage", root)
    assert sweep("logs", "mine", "--storage", f"{root}/").stdout == (
        sweep("logs", "mine", "--storage", root).stdout
    )
    assert "unknown sweep among" in refused("logs", "mine", "--storage", f"{root}s")


@pytest.mark.slow
def test_a_root_that_is_spelled_differently_is_the_same(
    cluster: JobServer, space_file: str
) -> None:
    """Also on object storage, where no lock would keep a second driver away."""
    root = cluster.environment["SWEEP_STORAGE"]
    sweep("submit", space_file)
    assert json.loads(sweep("status", "mine", "--storage", root, "--json").stdout)["driver"]
    assert "driven by job mine-1" in sweep("submit", space_file, "--storage", f"{root}/").stderr
    cluster.end("mine-2")  # which drives nothing
    assert "running already: job mine-1" in refused("resume", "mine", "--storage", root)
    other = f"{root}-of-another"
    assert "driven by job mine-4" in sweep("submit", space_file, "--storage", other).stderr


def test_of_two_laptops_the_first_may_be_refused_while_it_prepares(
    cluster: JobServer, space_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job has stored nothing: what the other one wants is neither stored nor lost."""
    monkeypatch.setattr("sweep.cluster.ask.AGAIN_S", 0.0)
    cluster.submit(
        {
            "submission_id": "mine-1",
            "entrypoint": "sleep 600",
            "metadata": {"sweep": "mine", "storage": ""},
        }
    )
    answer = Jobs.answer

    def compared(self: Jobs, job: str, wait_s: float) -> Answer | None:
        found = answer(self, job, wait_s)
        if job.startswith("compare-"):
            assert not (cluster.folder / "storage").exists()
            cluster.end("mine-1")
        return found

    monkeypatch.setattr(Jobs, "answer", compared)
    assert "driven by job mine-2" in sweep("submit", space_file).stderr
    assert load_definition(ObjectStore(cluster.folder / "storage"), "mine").name == "mine"


def test_a_number_that_another_job_has_is_passed_over(cluster: JobServer, space_file: str) -> None:
    cluster.seen.add("mine-1")  # of a job that somebody gave this id by hand, and deleted
    assert "driven by job mine-2" in sweep("submit", space_file).stderr


def test_another_version_writes_nothing(
    cluster: JobServer, space_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.cli.cluster.code_version", lambda: "0.0+other")
    result = sweep("submit", space_file, exits=1)
    assert "this laptop 0.0+other" in result.stderr
    assert not (cluster.folder / "storage").exists()
    assert sweep("submit", space_file, "--any-version").stdout == "mine\n"


def test_a_webhook_is_part_of_no_command_line(cluster: JobServer, space_file: str) -> None:
    sweep("submit", space_file, "--notify", "https://hooks.example.org/T0/secret")
    assert "secret" not in json.dumps(cluster.jobs)
    assert "secret" not in cluster.log("mine-1")


@pytest.mark.slow
def test_a_command_of_the_laptop_is_not_sent_unless_it_is_given(
    cluster: JobServer, space_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> object:
        *_, package = cluster.packages.values()
        return json.loads(zipfile.ZipFile(io.BytesIO(package)).read("submission.json"))["notify"]

    monkeypatch.setenv("SWEEP_NOTIFY", "~/bin/blink")
    result = sweep("submit", space_file)
    assert "SWEEP_NOTIFY is a command of this machine and is not sent" in result.stderr
    assert told() is None
    sweep("submit", space_file, "--notify", "~/bin/mail-me")
    assert told() == "~/bin/mail-me"
    monkeypatch.setenv("SWEEP_NOTIFY", "https://hooks.example.org/T0")
    sweep("submit", space_file)
    assert told() == "https://hooks.example.org/T0"


# --- stopping -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_job_that_still_prepares_its_sweep_can_be_stopped(cluster: JobServer) -> None:
    """Its data may take hours to decode, and nothing is stored meanwhile."""
    cluster.submit(
        {
            "submission_id": "mine-1",
            "entrypoint": "exec sleep 600",
            "metadata": {"sweep": "mine", "storage": ""},
        }
    )
    assert "ended job mine-1, which still prepared its data" in sweep("stop", "mine").stdout
    assert cluster.jobs["mine-1"]["status"] == "STOPPED"
    assert "unknown sweep 'mine'" in refused("stop", "mine")


def test_on_object_storage_the_head_knows_whether_a_job_drives_a_sweep(
    cluster: JobServer, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = f"file://{results}"
    assert "tiny is not running" in refused("stop", "tiny", "--storage", bucket)
    assert not (results / "sweeps" / "tiny" / "stop").exists()
    monkeypatch.delenv("SWEEP_ADDRESS")
    asked = sweep("stop", "tiny", "--storage", bucket).stdout
    assert "no running driver was found; a stop request was stored" in asked
    assert (results / "sweeps" / "tiny" / "stop").exists()


# --- who may ask ----------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "another"])
def test_a_wrong_token_is_misuse_and_is_not_repeated(cluster: JobServer, token: str | None) -> None:
    with pytest.raises(Misuse, match="did not accept the token") as refusal:
        Jobs(cluster.url, token)
    assert "another" not in str(refusal.value)


def test_a_token_goes_to_no_proxy_and_no_other_password_in_its_place(
    cluster: JobServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on this machine is the end of a tunnel; laptops of labs have proxies."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    netrc = tmp_path / "netrc"
    netrc.write_text("default login anonymous password guest\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert Jobs(cluster.url, TOKEN).drivers() == []


def test_an_answer_counts_also_where_its_job_cannot_be_deleted(
    cluster: JobServer, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise RuntimeError("the head is busy")

    monkeypatch.setattr("sweep.cluster.jobs._Client.delete_job", away)
    monkeypatch.setattr("sweep.cluster.jobs.KEPT_S", 0.0)
    for _ in range(2):
        assert "tiny" in sweep("list").stdout


@pytest.mark.slow
def test_questions_leave_the_list_a_while_after_they_were_answered(
    cluster: JobServer, results: Path
) -> None:
    """Ray takes one that is gone while it still watches it for failed, and lists it for ever."""
    sweep("list")
    sweep("status", "tiny")
    first, second = cluster.jobs
    wait_until(lambda: all("end_time" in job for job in cluster.jobs.values()))
    sweep("list")
    assert {first, second} <= set(cluster.jobs)
    kept_ms = 1000 * KEPT_S
    cluster.jobs[first]["end_time"] -= 2 * kept_ms
    cluster.jobs["tiny-1"] = {**cluster.jobs[first], "submission_id": "tiny-1"}
    sweep("list")
    assert first not in cluster.jobs
    assert {second, "tiny-1"} <= set(cluster.jobs)  # jobs that drove a sweep have its log


def test_a_head_whose_agent_is_missing_is_told_with_what_to_do(
    cluster: JobServer, results: Path
) -> None:
    cluster.has_agent = False
    told = sweep("list", exits=1).stderr
    assert "is up and takes no jobs" in told
    assert "port 52365" in told
    assert "Is the cluster up" not in told


def test_a_key_in_a_storage_root_goes_nowhere(cluster: JobServer, space_file: str) -> None:
    for root in ("s3://AKIA:secret@bucket/path", "s3://AKIA:sec/ret@bucket"):
        for words in (("submit", space_file), ("status", "tiny"), ("run", space_file)):
            text = refused(*words, "--storage", root)
            assert "must be without a key" in text
            assert "sec" not in text.replace("SECRET", "").replace("secret key", "")
    assert cluster.seen == set()


def test_the_error_of_a_head_is_told_by_its_last_line() -> None:
    trace = "Request failed with status code 500: Traceback (most recent call last):\n  File x\n"
    told = _one_line(RuntimeError(f"{trace}ValueError: no such package\n."))
    assert told == "Request failed with status code 500: ValueError: no such package"
    assert _one_line(RuntimeError("one\ntwo")) == "one"
    assert _one_line(TimeoutError()) == "TimeoutError"


def test_a_cluster_that_is_down_is_told() -> None:
    with pytest.raises(Failure, match="Is the cluster up"):
        Jobs("http://127.0.0.1:9", None)
