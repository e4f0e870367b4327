"""Client side of a laptop's verbs: the same verb, run on the cluster's head.

A reader runs it there, or a job where there is none. Results lie where the head sees them, and
often only there; one way serves folders and object stores alike. The laptop prints from JSON, as
the verb itself does.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from sweep.cluster import questions
from sweep.cluster.job_list import READER, ROOT, SWEEP, Job, listed
from sweep.cluster.submission import NOT_YET, Answer, Question, Submission
from sweep.study.advice import note, place
from trainables.code_version import code_version
from trainables.errors import Failure, SweepError
from trainables.plain import Json

if TYPE_CHECKING:
    from sweep.cluster.jobs import Jobs

PYTHON = "python -m"  # on the head's PATH, where `ray start` was found
AGAIN_S = 2.0  # before a sweep is compared again with one whose data the head still looks for
ANSWER_S = 120.0  # a verb that reads a large sweep from an object store


@contextmanager
def cluster(address: str) -> Iterator[Jobs]:
    """The job server at an address, through a tunnel where one is needed, with the token."""
    from sweep.cluster import jobs, tunnel  # Ray: a second that verbs which stay here do not pay

    secret = tunnel.token(address)
    with tunnel.reached(address) as url:
        if secret is not None and not jobs.is_private(url):
            note(f"the token travels unencrypted to {url}: better use a tunnel, or https.")
        yield jobs.Jobs(url, secret)


def ask(
    jobs: Jobs,
    words: Sequence[str],
    storage: str | None,
    wait_s: float = ANSWER_S,
    options: str = "",
) -> Answer:
    """Run ``sweep WORDS`` on the head; Failure where it cannot be run, not where the verb fails.

    ``words`` are without --storage; ``storage`` None is the cluster's own root. ``options`` name
    the cluster in commands that the head advises.
    """
    question = _question(words, storage, jobs.every(), options)
    job = f"ask-{uuid.uuid4().hex[:12]}"
    jobs.start(job, f"{PYTHON} sweep.cli.answer {question.to_word()}")
    jobs.clean()  # while it begins
    answer = jobs.answer(job, wait_s)
    if answer is None:
        raise _late(jobs.url, wait_s)
    return answer


def _question(
    words: Sequence[str], storage: str | None, every: Iterable[Job], options: str
) -> Question:
    driving = (job for job in every if job.sweep and not job.is_over)
    drivers = tuple((job.sweep, job.id, job.storage) for job in driving)
    return Question(tuple(words), storage, drivers, options)


def _late(where: str, wait_s: float) -> Failure:
    return Failure(
        f"the cluster at {where} has not answered within {wait_s:.0f} s. Its head may be "
        "overloaded, or its storage away: `sweep doctor` looks."
    )


def output_of(answer: Answer) -> str:
    """The standard output of an answer; prints its notes, and exits where the verb failed."""
    click.echo(answer.err, err=True, nl=False)
    if answer.code:
        raise SystemExit(answer.code)
    return answer.out


def request_answer(address: str, storage: str | None, *words: str) -> Answer:
    """The head's answer to a verb, at a root on the cluster; None: its own.

    Through a tunnel its reader is asked, at once; where there is none a job answers, and then one
    is started for the next verb.
    """
    from sweep.cluster import route, tunnel

    options = place(address, storage)
    if tunnel.is_url(address):
        with cluster(address) as jobs:
            return ask(jobs, words, storage, options=options)
    secret = tunnel.token(address)
    to = route.find_route(Path(address))
    with tunnel.tunnel(to, with_reader=True) as way:
        every = listed(way.port, secret)
        question = _question(words, storage, every, options)
        for job in every:
            if job.is_reader and job.state == "RUNNING":
                key = questions.key_of(secret, job.id)
                try:
                    reply = questions.ask(way.reader_port, key, question, ANSWER_S, to.reader_port)
                except TimeoutError as error:
                    raise _late(address, ANSWER_S) from error
                if reply is not None:
                    return reply
        from sweep.cluster.jobs import Jobs  # Ray: a second that the reader saves

        jobs = Jobs(f"http://127.0.0.1:{way.port}", secret)
        answer = ask(jobs, words, storage, options=options)
        if answer.version == code_version():
            _start_reader(jobs)
        return answer


def _start_reader(jobs: Jobs) -> None:
    """Start a reader for the next verb, unless one runs or has just failed."""
    job = f"{READER}{uuid.uuid4().hex[:12]}"
    with suppress(Failure):  # the answer counts
        readers = [one for one in jobs.every() if one.is_reader]
        if all(one.is_over and one.state != "FAILED" for one in readers):
            jobs.start(job, f"{PYTHON} sweep.cli.reader {job}")


def json_of(address: str, storage: str | None, *words: str) -> Json:
    """The JSON that a reading verb prints on the head."""
    return json.loads(output_of(request_answer(address, storage, *words, "--json")))


def stop(address: str, storage: str | None, name: str) -> str:
    """Run `sweep stop` on the head; a job that still prepares its sweep is ended instead."""
    answer = request_answer(address, storage, "stop", name)
    if answer.code != NOT_YET:
        return output_of(answer)
    job = answer.out.strip()
    with cluster(address) as jobs:
        jobs.stop(job)
    return (
        f"{name}: ended job {job}, which still prepared its data. Nothing of the sweep is stored: "
        "`sweep submit` begins it again.\n"
    )


def show_page(address: str, storage: str | None, words: Sequence[str], port: int) -> None:
    """Print the address of a page that a verb names on the head, as this machine reaches it.

    What the head serves on its loopback comes through a tunnel, until Ctrl-C.
    """
    from sweep.cluster import route, tunnel

    page = output_of(request_answer(address, storage, *words)).strip()
    parts = urlsplit(page)
    if tunnel.is_url(address) or parts.hostname not in tunnel.LOOPBACK:
        click.echo(page)
        return
    to = replace(route.find_route(Path(address)), port=parts.port or 80)
    with tunnel.tunnel(to, port) as way:
        click.echo(parts._replace(netloc=f"127.0.0.1:{way.port}").geturl())
        click.echo("Ctrl-C ends the tunnel.", err=True)
        with suppress(KeyboardInterrupt):
            way.ssh.wait()
            raise Failure("the tunnel broke: ssh has ended. Give the verb again.")


@contextmanager
def readable(answer_of: str, *, is_remote: bool = True) -> Iterator[None]:
    """Raise Failure where an answer lacks what this version prints: the cluster has another."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if not is_remote or isinstance(error, SweepError):
            raise
        raise Failure(
            f"what the cluster says of {answer_of} is not what this version ({code_version()}) "
            f"prints ({type(error).__name__}: {error}). Install the same version on both; --json "
            "shows it as it is."
        ) from error


def submit(jobs: Jobs, sent: Submission, wait_s: float) -> tuple[str, Answer | None]:
    """Send a submission to the head.

    Returns:
        The job that drives the sweep, which may be that of an earlier submission, and the head's
        answer; None where it is still busy, with the data say, after ``wait_s``.
    """
    give_up = time.monotonic() + wait_s
    number = 0
    while True:
        earlier = jobs.of_sweep(sent.name)
        running = {job.id: job.storage for job in earlier if not job.is_over}
        driving = [job for job, root in running.items() if root == (sent.storage or "")]
        if driving:
            job = driving[0]
            compare = f"compare-{uuid.uuid4().hex[:12]}"
            _started(jobs, compare, replace(sent, driven_by=job))
            answer = jobs.answer(compare, wait_s)
            if answer is None or answer.code != NOT_YET:
                return job, answer
            if time.monotonic() > give_up:
                return job, None
            time.sleep(AGAIN_S)  # its submission may yet be refused
            continue
        number = max(number + 1, _next_number(sent.name, earlier))
        job = f"{sent.name}-{number}"
        # Of roots that are spelled differently the head knows which are one.
        if _started(jobs, job, replace(sent, others=tuple(running.items()))):
            answer = jobs.answer(job, wait_s)
            if answer is not None and answer.code:
                jobs.ends(job)  # else the next verb finds a sweep that seems to begin
            return job, answer
        # Another laptop was faster: what does it drive?


def _started(jobs: Jobs, job: str, sent: Submission) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        sent.write(Path(folder))
        metadata = None if sent.driven_by else {SWEEP: sent.name, ROOT: sent.storage or ""}
        return jobs.start(
            job, f"{PYTHON} sweep.cluster.supervise", folder=Path(folder), metadata=metadata
        )


def _next_number(name: str, earlier: Sequence[Job]) -> int:
    numbers = [job.id.removeprefix(f"{name}-") for job in earlier]
    return 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)
