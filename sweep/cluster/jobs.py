"""Client of a cluster's job server (Ray Jobs API): start, look up, read the log.

A sweep's jobs are numbered NAME-1, NAME-2, ...: Ray refuses an id that was ever used, so that of
two laptops that submit one sweep in the same instant exactly one starts a driver.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobSubmissionClient, JobType

from sweep.cluster.job_list import READER, TIMEOUT_S, Job
from sweep.cluster.submission import Answer
from sweep.cluster.tunnel import LOOPBACK
from trainables.errors import Failure, Misuse
from trainables.plain import Json

POLL_S = (0.1, 1.0)  # between two looks at a job: at first, and at most
OVERRIDES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")  # Ray prefers them to any address it is given
TALKATIVE = (  # loggers that tell of every upload, and of a log's end
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
END_S = 5.0  # that a job which has answered is waited for
ANSWERS = ("ask-", "compare-")  # what jobs are called that only answer
KEPT_S, MOST_CLEANED = 60.0, 20  # such jobs on the cluster's list: for how long, and gone at a time
READER_KEPT_S = 900.0  # readers on that list: where one failed, no other is tried meanwhile
NO_AGENT = "No available agent"  # in Ray's words
LAST_LINES = 8  # of a log, shown when a job ends without an answer


class Jobs:
    """The job server at one address."""

    def __init__(self, url: str, token: str | None) -> None:
        """Connect to a job server, http://host:port; Misuse where another token is wanted."""
        for name in TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
        self.url = url
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        with self._errors(), _own_address():
            try:
                self._client = _Client(url, headers=headers)
            except (LookupError, ValueError) as error:  # of a reply that is not Ray's
                raise RuntimeError(f"something else than Ray answers there ({error})") from error

    def start(
        self,
        job: str,
        entrypoint: str,
        *,
        folder: Path | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> bool:
        """Start a job on the head without taking a CPU from the arms; False: the id is taken.

        The command runs in a copy of ``folder``.
        """
        runtime = None if folder is None else {"working_dir": str(folder)}
        with self._errors():
            try:
                self._client.submit_job(
                    entrypoint=entrypoint,
                    submission_id=job,
                    runtime_env=runtime,
                    metadata=dict(metadata or {}),
                    entrypoint_num_cpus=0,
                )
            except RuntimeError as error:
                if "already exists" in str(error):
                    return False
                raise
        return True

    def of_sweep(self, name: str) -> list[Job]:
        """The jobs that drive, or drove, sweeps of this name; the newest first."""
        jobs = [job for job in self.drivers() if job.sweep == name]
        return sorted(jobs, key=lambda job: job.started_ms, reverse=True)

    def drivers(self) -> list[Job]:
        """The jobs that drive, or drove, a sweep."""
        return [job for job in self.every() if job.sweep]

    def every(self) -> list[Job]:
        """The jobs that clients submitted."""
        with self._errors():
            every = self._client.list_jobs()
        return [Job.from_details(vars(d)) for d in every if d.type == JobType.SUBMISSION]

    def answer(self, job: str, wait_s: float) -> Answer | None:
        """The answer that a job prints; None while there is none after ``wait_s``.

        Raises Failure, with the end of its log, when the job ends without one.
        """
        give_up = time.monotonic() + wait_s
        pause_s, longest_s = POLL_S
        while True:
            seen = self.look(job)  # before the log: what ends now has written all of it
            log = self.log(job)
            answer = Answer.from_log(log)
            if answer is not None:
                return answer
            if seen.is_over:
                last = "\n".join(log.splitlines()[-LAST_LINES:])
                raise Failure(
                    f"the head could not run it: its job {job} ended as {seen.state}: "
                    f"{seen.message}\n{last}"
                )
            if time.monotonic() > give_up:
                return None
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, longest_s)

    def look(self, job: str) -> Job:
        """A job as it is now."""
        with self._errors():
            return Job.from_details(vars(self._client.get_job_info(job)))

    def log(self, job: str) -> str:
        """Everything that a job printed so far."""
        with self._errors():
            return str(self._client.get_job_logs(job))

    def follow(self, job: str, write: Callable[[str], None]) -> None:
        """Pass on what a job printed and prints, from its beginning, until it ends.

        Raises Failure when the connection breaks before that.
        """

        async def tail() -> None:
            async for text in self._client.tail_job_logs(job):
                write(text)

        with self._errors():
            asyncio.run(tail())

    def stop(self, job: str) -> None:
        """End a job: SIGTERM, and SIGKILL where it goes on; nothing happens when it has ended."""
        with self._errors():
            self._client.stop_job(job)

    def clean(self) -> None:
        """Take jobs that answered a while ago off the cluster's list; the newest ones stay.

        Not at once: Ray watches a job beyond its end, and lists one that is gone by then as failed.
        Where that fails they stay there, which harms nobody.
        """
        with suppress(Failure):
            every = self.every()
            now_ms = max((max(job.started_ms, job.ended_ms) for job in every), default=0)  # there
            done = [job for job in every if job.is_over and not job.sweep]
            over = [job for job in done if job.id.startswith((*ANSWERS, READER))]
            kept_s = {True: READER_KEPT_S, False: KEPT_S}
            old = [job for job in over if job.ended_ms < now_ms - 1000 * kept_s[job.is_reader]]
            for job in old[:MOST_CLEANED]:
                with self._errors():
                    self._client.delete_job(job.id)

    def ends(self, job: str) -> None:
        """Wait a moment for a job that has answered to end."""
        give_up = time.monotonic() + END_S
        with suppress(Failure):  # the answer counts
            while not self.look(job).is_over and time.monotonic() <= give_up:
                time.sleep(POLL_S[0])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of Ray, and of the libraries below it, into ours."""
        try:
            yield
        except AuthenticationError as error:
            raise Misuse(
                f"the cluster at {self.url} did not accept the token ({_one_line(error)}). "
                "It is looked for in RAY_AUTH_TOKEN, in the file that RAY_AUTH_TOKEN_PATH names, "
                "in the file that cluster.yaml mounts as ~/.ray/auth_token, and there."
            ) from error
        except BrokenPipeError:  # of whoever reads what this process prints
            raise
        except (
            requests.RequestException,
            aiohttp.ClientError,
            OSError,  # a connection that is refused or times out, too
            RuntimeError,  # what Ray makes of every other reply
        ) as error:
            if NO_AGENT in str(error):
                raise Failure(
                    f"the cluster at {self.url} is up and takes no jobs: the agent of its head is "
                    "missing. It needs port 52365 there, which another Ray on that machine may "
                    "have taken first (`ss -ltnp | grep 52365` shows whose it is). End that one, "
                    "then start the cluster's Ray again: `ray up cluster.yaml`, or `ray stop` and "
                    "`ray start` on the head. Just after a start, wait a minute instead."
                ) from error
            raise Failure(
                f"the job server at {self.url} did not answer: {_one_line(error)}. Is the "
                "cluster up, and is this the address of its dashboard?"
            ) from error


class _Client(JobSubmissionClient):
    """Ray's client, which would wait for ever where a tunnel leads nowhere.

    It would also send what is for this machine, the end of a tunnel, and the token with it, to the
    proxy of HTTP_PROXY, and a password of ~/.netrc in place of the token.
    """

    def __init__(self, url: str, headers: dict[str, Json]) -> None:
        super().__init__(url, headers=headers)
        # Private names of Ray's client, here and below: look at them when Ray's version changes.
        if self._ssl_context is None:  # the default, in a word that aiohttp no longer wants
            self._ssl_context = True

    def _do_request(
        self, method: str, endpoint: str, *, data: Json = None, json_data: Json = None, **more: Json
    ) -> requests.Response:
        more.setdefault("timeout", TIMEOUT_S)
        more.setdefault("auth", lambda request: request)  # as it is
        if is_here(self._address):
            more.setdefault("proxies", dict.fromkeys(("http", "https", "all")))
        return super()._do_request(method, endpoint, data=data, json_data=json_data, **more)


def _one_line(error: Exception) -> str:
    """An error in one line: its first, but of a traceback from the head what it ends with."""
    lines = [line for line in str(error).splitlines() if line.strip(". ")]
    first = lines[0] if lines else type(error).__name__
    before, mark, _ = first.partition("Traceback (")
    return (before + lines[-1] if mark else first).strip(".: ")


@contextmanager
def _own_address() -> Iterator[None]:
    hidden = {name: os.environ.pop(name) for name in OVERRIDES if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def is_private(url: str) -> bool:
    """True when nothing sent there can be read on the way: TLS, or this machine.

    >>> is_private("http://127.0.0.1:8265"), is_private("http://head:8265")
    (True, False)
    """
    return urlsplit(url).scheme == "https" or is_here(url)


def is_here(url: str) -> bool:
    """True when this machine serves it, to itself."""
    return urlsplit(url).hostname in LOOPBACK
