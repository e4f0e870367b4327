"""The reader on a cluster's head: a real process asked over real HTTP on loopback, without Ray."""

from __future__ import annotations

import contextvars
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from sweep.cli import reader
from sweep.cli.answer import answer
from sweep.cluster import questions, route
from sweep.cluster.job_list import READER, Job
from sweep.cluster.jobs import ANSWERS
from sweep.cluster.submission import Answer, Question
from sweep.doctor import ports
from tests.support.command_line import contents, refused, sweep
from tests.support.drivers import wait_until
from tests.support.servers.clouds import BUCKET, Cloud
from tests.support.servers.job_servers import JobServer, job_server
from tests.support.servers.mlflow_servers import free_port
from tests.support.servers.ssh_stand_in import stand_in
from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, SECOND, store_sweep
from trainables.code_version import RUNS_THERE
from trainables.records.objects import ObjectStore

ROOT = Path(__file__).parents[3]
TOKEN = "of-the-cluster"
JOB = f"{READER}1"
KEY = questions.key_of(TOKEN, JOB)
WAIT_S = 60.0


@dataclass(frozen=True)
class Up:
    """A reader that listens."""

    port: int
    process: subprocess.Popen[str]
    storage: Path

    def ask(self, *words: str, **more: object) -> Answer | None:
        return questions.ask(self.port, KEY, replace(Question(words), **more), WAIT_S)  # type: ignore[arg-type]

    def children(self) -> list[int]:
        """The processes that answer now."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for task in tasks for pid in task.read_text().split()]


@contextmanager
def reading(
    folder: Path,
    *,
    program: tuple[str, ...] = ("-m", "sweep.cli.reader"),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Up]:
    """A reader in a home of its own, with a port of its own."""
    (folder / "token").write_text(TOKEN)
    port = free_port()
    own = {
        "HOME": str(folder),
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "SWEEP_READER_PORT": str(port),
        "SWEEP_STORAGE": str(folder / "storage"),
        "PYTHONPATH": str(ROOT),
        **(environment or {}),
    }
    command = (sys.executable, *program, JOB)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=folder, env={**os.environ, **own}, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"answers on 127.0.0.1:{port}\n"
            yield Up(port, process, folder / "storage")
        finally:
            process.kill()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("reader")
    objects = ObjectStore(folder / "storage")
    store_sweep(objects, {FIRST: [INFEASIBLE, FEASIBLE], SECOND: [INFEASIBLE]})
    with reading(folder) as started:
        yield started


# --- what it says ---------------------------------------------------------------------------------

DRIVEN = (("tiny", "tiny-1", ""),)


@pytest.mark.parametrize(
    "question",
    [
        Question(("status", "tiny", "--json"), client_options="--address c.yaml"),
        Question(("status", "tiny", "--json"), drivers=DRIVEN),
        Question(("best", "tiny")),
        Question(("list", "--json")),
        Question(("list",), storage="not/absolute"),
        Question(("export", "tiny", "--all")),
        Question(("status", "gone")),
        Question(("status", "--no-such-option")),
        Question(("stop", "tiny")),
        Question(("stop", "begins"), drivers=(("begins", "begins-1", ""),)),
    ],
    ids=lambda question: " ".join(question.words),
)
def test_it_answers_as_a_process_of_its_own_would(
    up: Up, question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = questions.ask(up.port, KEY, question, WAIT_S)
    for name, value in (("SWEEP_STORAGE", str(up.storage)), ("SWEEP_ASKED_FROM", "")):
        monkeypatch.setenv(name, value)
    expected = contextvars.copy_context().run(answer, question)
    assert found == expected
    assert found.out or found.err or found.files


def test_nothing_of_one_question_is_left_for_the_next(up: Up) -> None:
    before = up.ask("status", "tiny")
    driven = up.ask("status", "tiny", drivers=DRIVEN, client_options="--address c.yaml")
    assert before is not None
    assert driven is not None
    assert "by job tiny-1" in driven.out
    assert up.ask("status", "tiny") == before


@pytest.mark.slow
def test_it_reads_object_storage(cloud: Cloud, tmp_path: Path) -> None:
    """Whose client has threads, which no process that is forked would have."""
    root = f"s3://{BUCKET}/root"
    store_sweep(ObjectStore(root), {FIRST: [INFEASIBLE, FEASIBLE], SECOND: []})
    own = {**cloud.environment(), "SWEEP_STORAGE": root}
    with reading(tmp_path, environment=own) as up:
        for _ in range(2):
            found = up.ask("status", "tiny", "--json")
            assert found is not None
            assert json.loads(found.out)["state"] == "stopped"
        exported = up.ask("export", "tiny", "--all")
        assert exported is not None
        assert "manifest.json" in exported.files


@pytest.mark.slow
def test_a_report_comes_back_whole(up: Up, tmp_path: Path) -> None:
    found = up.ask("report", "tiny", "--figure", "scores", "--only", FIRST)
    assert found is not None
    where = ("--storage", str(up.storage), "--out", str(tmp_path / "here"))
    sweep("report", "tiny", "--figure", "scores", "--only", FIRST, *where)
    assert found.contents() == contents(tmp_path / "here")
    page = up.ask("report", "tiny", "--page", "--only", FIRST)
    assert page is not None
    assert list(page.contents()) == ["report.html"]
    assert page.contents()["report.html"].startswith(b"<!doctype html>")


# --- who may ask, and who answers -----------------------------------------------------------------


def posted(port: int, body: bytes, **headers: str) -> int:
    """The status of a reply."""
    client = HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    client.request("POST", "/", body, headers)
    return client.getresponse().status


def test_who_has_not_the_clusters_token_is_refused(up: Up) -> None:
    question = Question(("list",))
    for key in (questions.key_of("another", JOB), questions.key_of(None, JOB)):
        assert questions.ask(up.port, key, question, WAIT_S) is None
    assert questions.ask(up.port, questions.key_of(TOKEN, f"{READER}2"), question, WAIT_S) is None
    assert posted(up.port, b"{}") == 403
    assert posted(up.port, b"{}", **{questions.SIGNATURE: TOKEN}) == 403
    assert posted(up.port, b"{}", **{questions.SIGNATURE: "\xe4"}) == 403
    assert posted(up.port, b"", **{"Content-Length": str(2 * reader.LONGEST)}) == 413
    told = Path(f"/proc/{up.process.pid}/cmdline").read_text()
    assert TOKEN not in told
    assert KEY.hex() not in told


def test_only_the_heads_own_processes_reach_it(up: Up) -> None:
    assert ports.find_open_ports("127.0.0.1", [up.port]) == [up.port]
    assert ports.find_open_ports("127.0.0.2", [up.port]) == []  # another address of this machine


def test_a_laptop_of_another_version_is_not_answered(
    up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "code_version", lambda: "0.0+other")
    assert up.ask("list") is None


@contextmanager
def other_program(reply: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[int]:
    """What answers at a port instead of the reader."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            reply(self)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_what_another_program_says_on_its_port_is_no_answer(up: Up) -> None:
    """Not even what the reader itself has said to another question."""
    heard: list[tuple[bytes, str]] = []

    def relay(handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        if not heard:
            client = HTTPConnection("127.0.0.1", up.port, timeout=WAIT_S)
            signed = {questions.SIGNATURE: handler.headers[questions.SIGNATURE]}
            client.request("POST", "/", body, signed)
            answered = client.getresponse()
            heard.append((answered.read(), answered.headers[questions.SIGNATURE]))
        content, signed_by = heard[0]
        handler.send_response(200)
        handler.send_header(questions.SIGNATURE, signed_by)
        handler.end_headers()
        handler.wfile.write(content)

    with other_program(relay) as port:
        question = Question(("list",))
        assert questions.ask(port, KEY, question, WAIT_S, up.port) == up.ask("list")
        assert questions.ask(port, KEY, question, WAIT_S, up.port) is None
        heard[0] = (json.dumps({"code": 0, "out": "all is well"}).encode(), "")
        assert questions.ask(port, KEY, question, WAIT_S, up.port) is None


def test_a_program_that_never_ends_its_reply_is_not_waited_for() -> None:
    def babble(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"and ")
        except OSError:
            pass

    with other_program(babble) as port, pytest.raises(TimeoutError):
        questions.ask(port, KEY, Question(("list",)), 0.3)


def test_where_nobody_listens_there_is_no_answer() -> None:
    assert questions.ask(free_port(), KEY, Question(("list",)), WAIT_S) is None


# --- its life -------------------------------------------------------------------------------------


def test_a_verb_that_hangs_is_ended_and_keeps_no_other_waiting(up: Up) -> None:
    definition = up.storage / "sweeps" / "hangs" / "definition.json"
    definition.parent.mkdir()
    os.mkfifo(definition)  # nobody writes
    with pytest.raises(TimeoutError):
        questions.ask(up.port, KEY, Question(("status", "hangs")), 0.2)
    (hanging,) = up.children()
    shutil.rmtree(definition.parent)
    found = up.ask("status", "tiny")
    assert found is not None
    assert hanging in up.children()

    def is_over() -> bool:
        state = Path(f"/proc/{hanging}/stat")
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"

    wait_until(is_over)
    assert up.ask("status", "tiny") == found


@pytest.mark.slow
def test_it_ends_when_other_code_is_installed(tmp_path: Path) -> None:
    for pattern in RUNS_THERE:
        for file in ROOT.glob(pattern):
            copy = tmp_path / "code" / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    store_sweep(ObjectStore(tmp_path / "storage"), {FIRST: [FEASIBLE]})
    with reading(tmp_path, environment={"PYTHONPATH": str(tmp_path / "code")}) as up:
        assert up.ask("list") is not None
        with open(tmp_path / "code" / "sweep" / "study" / "names.py", "a") as file:
            file.write("# other\n")
        assert up.ask("list") is None
        assert up.process.wait(timeout=WAIT_S) == 0


def test_it_ends_when_nobody_has_asked_for_a_while(tmp_path: Path) -> None:
    code = (
        "from sweep.cli import reader\n"
        "reader.IDLE_S, reader._Server.timeout, reader._prepare = 0.0, 0.1, lambda: None\n"
        "reader.main()\n"
    )
    with reading(tmp_path, program=("-c", code)) as up:
        assert up.process.wait(timeout=WAIT_S) == 0


def test_who_asks_nothing_stops_nobody_and_does_not_stay(tmp_path: Path) -> None:
    """More connections than the reader has processes for, none of them a question."""
    few = 4
    code = (
        "from sweep.cli import reader\n"
        f"reader.READ_S, reader._Server.timeout = 1.0, 1.0; reader._Server.max_children = {few}\n"
        "reader._prepare = lambda: None\n"
        "reader.main()\n"
    )
    with reading(tmp_path, program=("-c", code)) as up, ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", up.port)))
            for _ in range(few + 1)
        ]
        for one in slow:
            one.sendall(b"POST / HTTP/1.1\r\n")
        assert up.ask("list") is not None
        wait_until(lambda: not up.children())


def test_a_sweep_may_be_called_as_readers_are() -> None:
    fields = {"submission_id": f"{READER}replication-1", "status": "RUNNING"}
    assert Job.from_details(fields).is_reader
    assert not Job.from_details(fields | {"metadata": {"sweep": f"{READER}replication"}}).is_reader


@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_the_port_that_a_cluster_yaml_names_is_asked(quote: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    set_up = f"export SWEEP_READER_PORT={quote}8277{quote}"
    plain = {
        "provider": {"type": "local", "head_ip": "10.0.0.1"},
        "auth": {"ssh_user": "me"},
        "setup_commands": [set_up],
    }
    file.write_text(json.dumps(plain))
    assert route.find_route(file).reader_port == 8277


def test_a_question_to_another_port_is_not_answered(up: Up) -> None:
    """Else a program that collects questions there could hand them on."""
    question = Question(("list",))
    assert questions.ask(up.port, KEY, question, WAIT_S, heads_port=up.port) is not None
    assert questions.ask(up.port, KEY, question, WAIT_S, heads_port=up.port + 1) is None


def test_a_port_that_is_taken_is_told_with_what_to_do(up: Up, tmp_path: Path) -> None:
    second = subprocess.run(
        (sys.executable, "-m", "sweep.cli.reader", f"{READER}2"),
        cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "SWEEP_READER_PORT": str(up.port)},
    )  # fmt: skip
    assert second.returncode == 1
    assert f"port {up.port} of this machine's loopback is not available" in second.stderr
    assert "SWEEP_READER_PORT" in second.stderr


# --- a laptop's verbs -----------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobServer]:
    """A cluster with a sweep called tiny, and this process as a laptop with its cluster.yaml."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    store_sweep(ObjectStore(folder / "storage"), {FIRST: [INFEASIBLE, FEASIBLE], SECOND: []})
    port = free_port()
    with job_server(folder, TOKEN) as server:
        server.environment |= {
            "RAY_AUTH_TOKEN": TOKEN,
            "SWEEP_READER_PORT": str(port),
            "SWEEP_STORAGE": str(folder / "storage"),
        }
        (tmp_path / "cluster.yaml").write_text(
            "cluster_name: lab\nprovider: {type: local, head_ip: 10.0.0.7}\n"
            "auth: {ssh_user: me}\n"
            f"setup_commands: ['echo export SWEEP_READER_PORT={port} >> ~/.bashrc']\n"
            f"head_start_ray_commands: ['ray start --dashboard-port={server.url.split(':')[-1]}']\n"
        )
        stand_in(tmp_path)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("SWEEP_ADDRESS", str(tmp_path / "cluster.yaml"))
        monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
        yield server


def asked(server: JobServer) -> list[str]:
    """The jobs that have answered."""
    return [job for job in server.jobs if job.startswith(ANSWERS)]


def readers(server: JobServer) -> list[str]:
    return [job for job in server.jobs if job.startswith(READER)]


def listens(server: JobServer) -> bool:
    return any("answers on" in server.log(job) for job in readers(server))


@pytest.mark.slow
def test_the_second_verb_is_answered_by_the_reader_without_ray(
    cluster: JobServer, tmp_path: Path
) -> None:
    first = sweep("status", "tiny").stdout
    (job,) = readers(cluster)
    assert TOKEN not in json.dumps(cluster.jobs[job])
    wait_until(lambda: listens(cluster))
    laptop = (
        "import sys\nfrom sweep.cli.main import main\n"
        "main(['status', 'tiny'], standalone_mode=False)\n"
        "assert 'ray' not in sys.modules\n"
    )
    ran = subprocess.run((sys.executable, "-c", laptop), cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, first), ran.stderr
    sweep("export", "tiny", "--out", str(tmp_path / "there"), "--all")
    assert "manifest.json" in contents(tmp_path / "there")
    assert "unknown sweep 'gone'. Known: tiny" in refused("status", "gone")
    assert len(asked(cluster)) == 1
    assert readers(cluster) == [job]
    assert (tmp_path / "said").read_text().count("me@10.0.0.7") == 4  # one connection a verb


@pytest.mark.slow
def test_the_reader_knows_which_jobs_drive(
    cluster: JobServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep("list")
    wait_until(lambda: listens(cluster))
    assert json.loads(sweep("status", "tiny", "--json").stdout)["state"] == "stopped"
    driver = {
        "type": "SUBMISSION",
        "status": "RUNNING",
        "entrypoint": "sleep 600",
    }
    for name in ("tiny", "begins"):
        own = {"submission_id": f"{name}-1", "metadata": {"sweep": name, "storage": ""}}
        cluster.jobs[f"{name}-1"] = driver | own
    entry = json.loads(sweep("status", "tiny", "--json").stdout)
    assert (entry["state"], entry["driver"]["job"]) == ("running", "tiny-1")
    assert "sent a stop request to job tiny-1" in sweep("stop", "tiny").stdout
    assert "ended job begins-1, which still prepared" in sweep("stop", "begins").stdout
    assert cluster.jobs["begins-1"]["status"] == "STOPPED"
    assert len(asked(cluster)) == 1
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another")
    assert "did not accept the token" in refused("list")


@pytest.mark.slow
def test_a_reader_that_does_not_answer_costs_no_answer(cluster: JobServer) -> None:
    """It hears another port, or is of another version: a job answers, and no second one starts."""
    cluster.environment["SWEEP_READER_PORT"] = str(free_port())
    first = sweep("list").stdout
    wait_until(lambda: listens(cluster))
    assert sweep("list").stdout == first
    assert len(asked(cluster)) == 2
    (job,) = readers(cluster)
    os.killpg(cluster.processes[job].pid, signal.SIGKILL)
    wait_until(lambda: cluster.jobs[job]["status"] == "FAILED")
    assert sweep("list").stdout == first
    assert readers(cluster) == [job]
    cluster.jobs[job]["end_time"] -= 1000 * 2000
    sweep("list")  # takes it off the list
    assert job not in cluster.jobs
    assert len(readers(cluster)) == 1


@pytest.mark.slow
def test_a_laptop_of_another_version_starts_no_reader(
    cluster: JobServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.cluster.ask.code_version", lambda: "0.0+other")
    assert "tiny" in sweep("list").stdout
    assert readers(cluster) == []
