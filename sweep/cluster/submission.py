"""Messages between laptop and head: submissions and answers, as JSON, never code.

A submission lies as ``submission.json`` in the working folder of its job. An answer is one line of
the job's log, behind a mark, so that nothing else that a job prints can be taken for it.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from sweep.study.advice import STORAGE
from trainables.code_version import DISTRIBUTION, code_version
from trainables.config.fields import Section, Untyped
from trainables.errors import Failure, Misuse
from trainables.plain import Json

FILE = "submission.json"
ANSWER = "sweep-answer: "  # beginning of an answer's line
NOT_YET = 75  # an answer's code: the sweep to compare with, or to stop, is not stored yet

DefinitionJson = Annotated[
    Json, Untyped(lambda value: value is None or isinstance(value, dict), "a definition or null")
]


@dataclass(frozen=True)
class Submission(Section):
    """One sweep that a cluster is to train, or to continue."""

    name: str
    version: str = ""  # the laptop's ``code_version``
    any_version: bool = False  # train although the cluster's differs
    definition: DefinitionJson = None  # ``Definition.to_json``; None: continue the stored one
    named_fields: tuple[str, ...] = ()  # fields of the definition that the user named
    storage: str | None = None  # root on the cluster; None: its SWEEP_STORAGE
    mlflow: str | None = None  # as seen from the cluster
    n_proposals: int | None = None  # of a stored sweep: train more
    seeds: str | None = None  # of a stored sweep, as ``parse_seeds`` reads them
    retry_failed: bool = False
    accept_code: bool = False
    driven_by: str = ""  # the job that drives this sweep already: only compare; empty: none does
    notify: str | None = None  # receives events; part of no command line: it may be secret
    options: tuple[str, ...] = ()  # more of `sweep resume`, for every start of the driver
    others: tuple[tuple[str, str], ...] = ()  # running jobs of this name, each with its root
    client_options: str = ""  # as in sweep/study/advice.py

    def write(self, folder: Path) -> None:
        """Put it where ``read`` looks; for nobody else to read, since a webhook is a secret."""
        path = folder / FILE
        path.touch(mode=0o600)  # before the secret is in it
        path.write_text(json.dumps(self.to_json(), allow_nan=False), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Submission:
        """The submission that ``write`` wrote. Misuse when it is another version's."""
        with suppress(OSError):  # of another user
            (folder / FILE).chmod(0o600)  # Ray unpacks it for everybody to read
        plain: dict[str, Json] = json.loads((folder / FILE).read_text(encoding="utf-8"))
        try:
            return cls.from_json(plain)
        except (Misuse, TypeError) as error:
            raise Misuse(
                f"the submission is of another version of {DISTRIBUTION} than the cluster's "
                f"{code_version()} ({error}). Install the same version on both."
            ) from error


@dataclass(frozen=True)
class Question(Section):
    """One verb that the head is to run."""

    words: tuple[str, ...]  # of the command line, but for --storage
    storage: str | None = None  # root on the cluster; None: its SWEEP_STORAGE
    drivers: tuple[tuple[str, str, str], ...] = ()  # that run now: sweep, job, root
    client_options: str = ""  # as in sweep/study/advice.py

    def to_word(self) -> str:
        """The question as one word of a shell command, which ``parse`` turns back."""
        return shlex.quote(json.dumps(self.to_json()))

    @classmethod
    def parse(cls, word: str) -> Question:
        """The question of a ``to_word`` that the shell has read."""
        return cls.from_json(json.loads(word))


@dataclass(frozen=True)
class Answer:
    """The head's answer: standard output, standard error and exit code of a verb."""

    code: int
    out: str = ""
    err: str = ""
    version: str = ""  # the cluster's ``code_version``
    files: dict[str, str] = field(default_factory=dict)  # that the verb wrote, packed, by name

    def to_line(self) -> str:
        """The line of the log that carries it."""
        return ANSWER + json.dumps(asdict(self))

    def contents(self) -> dict[str, bytes]:
        """Every file that the verb wrote."""
        return {n: zlib.decompress(base64.b64decode(text)) for n, text in self.files.items()}

    @classmethod
    def from_log(cls, log: str) -> Answer | None:
        """The first complete answer in a job's log, or None."""
        for line in log.splitlines(keepends=True):
            if line.startswith(ANSWER) and line.endswith("\n"):
                return cls(**json.loads(line.removeprefix(ANSWER)))
        return None


def pack_file(content: bytes) -> str:
    """The text by which an answer carries a file; ``Answer.contents`` unpacks it."""
    return base64.b64encode(zlib.compress(content)).decode()


def refuse_other_version(laptop: str, *, any_version: bool) -> None:
    """Raise Failure unless this code is the laptop's: other code may train to other numbers."""
    if laptop != code_version() and not any_version:
        raise Failure(
            f"the cluster has {DISTRIBUTION} {code_version()}, and this laptop {laptop}. Install "
            "the same version on both (`ray up cluster.yaml` installs the laptop's checkout), or "
            "give --any-version."
        )


def find_root(given: str | None) -> str:
    """The storage root, as the head sees it. Misuse when there is none that every node shares."""
    root = given or os.environ.get(STORAGE)
    if not root:
        raise Misuse(
            f"the cluster has no storage root: {STORAGE} is not set on its head. Set it in "
            "cluster.yaml to a folder that every node sees, or to s3://bucket/path, or give "
            "--storage."
        )
    if "://" not in root and not Path(root).expanduser().is_absolute():
        raise Misuse(
            "a storage root on a cluster must be an absolute folder or an address like "
            f"s3://bucket/path, got {root!r}: correct --storage or {STORAGE}."
        )
    return root


def is_same_root(one: str | None, other: str | None) -> bool:
    """True when two roots are one place, as the head sees them; None or empty: its own."""
    try:
        return len({find_root(root).rstrip("/") for root in (one, other)}) == 1
    except Misuse:
        return False
