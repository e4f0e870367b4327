"""A job server as Ray's client sees it, without Ray: an HTTP server on loopback that runs the jobs.

It stands in for the other side of the wire in fast tests; tests/sweep/cluster/test_jobs.py uses
Ray's own. A job that drives a sweep ends its process once it has answered, and counts as running
until it is told.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import ray

from sweep.cluster.submission import Answer

ROOT = Path(__file__).parents[3]


@dataclass
class JobServer:
    """What the server holds; tests may look and change."""

    folder: Path
    token: str
    url: str = ""
    packages: dict[str, bytes] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)  # ids are never given out twice
    environment: dict[str, str] = field(default_factory=dict)
    has_agent: bool = True  # else no job is taken
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    threads: list[Thread] = field(default_factory=list)  # one a job

    def end(self, job: str) -> None:
        """A job that drives a sweep ends."""
        self.jobs[job]["status"] = "SUCCEEDED"

    def stop(self, job: str) -> None:
        """End a job's processes."""
        self.jobs[job]["status"] = "STOPPED"
        with suppress(KeyError, ProcessLookupError):
            os.killpg(self.processes[job].pid, signal.SIGKILL)

    def submit(self, wanted: dict[str, Any]) -> str | None:
        """Start a job and return its id; None when that was used before."""
        job = wanted["submission_id"]
        if job in self.seen:
            return None
        self.seen.add(job)
        self.jobs[job] = {
            "type": "SUBMISSION",
            "submission_id": job,
            "status": "RUNNING",
            "entrypoint": wanted["entrypoint"],
            "metadata": wanted["metadata"],
            "start_time": time.time_ns() // 1_000_000,
            "message": "",
        }
        thread = Thread(target=self._run, args=(job, wanted), daemon=True)
        self.threads.append(thread)
        thread.start()
        return job

    def close(self) -> None:
        """End all processes, and wait for the threads that wait for them."""
        while any(thread.is_alive() for thread in self.threads):
            for process in list(self.processes.values()):
                if process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.01)  # a process may have been on its way

    def log(self, job: str) -> str:
        path = self.folder / f"{job}.log"
        return path.read_text() if path.exists() else ""

    def _run(self, job: str, wanted: dict[str, Any]) -> None:
        place = self.folder / job
        place.mkdir()
        uri = (wanted.get("runtime_env") or {}).get("working_dir")
        if uri:
            zipfile.ZipFile(io.BytesIO(self.packages[uri.removeprefix("gcs://")])).extractall(place)
        with open(self.folder / f"{job}.log", "w") as log:
            process = subprocess.Popen(
                wanted["entrypoint"], shell=True, cwd=place, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True, env=self._environment(),
            )  # fmt: skip
            self.processes[job] = process
            if wanted["metadata"]:
                while process.poll() is None and Answer.from_log(self.log(job)) is None:
                    time.sleep(0.02)
                answer = Answer.from_log(self.log(job))
                if answer is not None and answer.code == 0:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    return
            code = process.wait()
        held = self.jobs.get(job)  # None: deleted meanwhile, by whoever read its answer
        if held is not None and held["status"] == "RUNNING":
            ended = {"status": "FAILED" if code else "SUCCEEDED"}
            held |= ended | {"end_time": time.time_ns() // 1_000_000}

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        here = {name: value for name, value in os.environ.items() if name != "SWEEP_STORAGE"}
        return {**here, "PATH": path, "PYTHONPATH": str(ROOT), **self.environment}


@contextmanager
def job_server(folder: Path, token: str) -> Iterator[JobServer]:
    """Serve while the block runs.

    Args:
        folder: for logs and the jobs' folders.
        token: without it every request is refused, as Ray does.
    """
    state = JobServer(folder, token)

    class Handler(BaseHTTPRequestHandler):
        def reply(self, code: int, plain: Any) -> None:
            content = json.dumps(plain).encode() if not isinstance(plain, str) else plain.encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def is_refused(self) -> bool:
            given = self.headers.get("Authorization")
            if given == f"Bearer {state.token}":
                return False
            self.reply(403 if given else 401, "Invalid token" if given else "Missing token")
            return True

        def do_GET(self) -> None:
            if self.is_refused():
                return
            words = self.path.strip("/").split("/")
            if words == ["api", "version"]:
                self.reply(200, {"version": "4", "ray_version": ray.__version__})
            elif words == ["api", "jobs"]:
                self.reply(200, list(state.jobs.values()))
            elif words[:2] == ["api", "packages"]:
                self.reply(200 if words[-1] in state.packages else 404, "")
            elif words[2] not in state.jobs:
                self.reply(404, f"Job {words[2]} does not exist")
            elif words[-1] == "logs":
                self.reply(200, {"logs": state.log(words[2])})
            else:
                self.reply(200, state.jobs[words[2]])

        def do_PUT(self) -> None:
            if not self.is_refused():
                content = self.rfile.read(int(self.headers["Content-Length"]))
                state.packages[self.path.rpartition("/")[2]] = content
                self.reply(200, "")

        def do_POST(self) -> None:
            if self.is_refused():
                return
            words = self.path.strip("/").split("/")
            if words[-1] == "stop":
                state.stop(words[2])
                self.reply(200, {"stopped": True})
                return
            wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not state.has_agent:
                self.reply(500, "No available agent to submit job, please try again later.")
                return
            job = state.submit(wanted)
            if job is None:
                self.reply(400, f"ValueError: Job {wanted['submission_id']} already exists.")
            else:
                self.reply(200, {"job_id": job, "submission_id": job})

        def do_DELETE(self) -> None:
            if not self.is_refused():
                del state.jobs[self.path.rpartition("/")[2]]
                self.reply(200, {"deleted": True})

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        state.close()
