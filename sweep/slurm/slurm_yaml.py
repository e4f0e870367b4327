"""A slurm.yaml: partitions, shapes of jobs, and places that all nodes see.

Options are those of sbatch (https://slurm.schedmd.com/sbatch.html); docs/slurm.md explains them.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from sweep.slurm.jobs import Kind
from sweep.strict_yaml import OnceEach, parsed, text_of
from trainables.config.fields import Rule, Section, Untyped, at_least
from trainables.errors import Misuse, UnknownName
from trainables.fetching.remote_folders import is_address

FILL_IN = "FILL-IN"  # what the file that comes along has in the place of names of a site
LEAST_S, LEAST_MB = 120.0, 1000
LEAD_S, LEAST_LEAD_S = 120.0, 20.0  # before a job's time limit, in which its arms leave it
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_MEMORY = re.compile(r"\d+[KMGT]?", re.IGNORECASE)
_WORD = re.compile(r"[\w.,:@%+&|*()\[\]-]+")
# Options that a key stands for, or that this program gives itself.
_OWN_OPTIONS = {
    "partition": "partition", "p": "partition", "account": "account", "A": "account", "qos": "qos",
    "q": "qos", "constraint": "constraint", "C": "constraint", "time": "time", "t": "time",
    "cpus-per-task": "cpus", "c": "cpus", "mem": "memory", "gpus": "gpus", "gres": "gpus",
    "gpus-per-node": "gpus", "G": "gpus", "nodes": "nodes", "N": "nodes",
    "job-name": "", "J": "", "output": "", "o": "", "error": "", "e": "", "signal": "",
    "array": "", "a": "", "dependency": "", "d": "", "requeue": "", "no-requeue": "",
    "parsable": "", "wrap": "", "export": "", "ntasks": "", "n": "", "ntasks-per-node": "",
    "open-mode": "", "wait": "", "W": "", "clusters": "", "M": "",
}  # fmt: skip


def limit_s(time: str) -> float | None:
    """Seconds of a time limit as sbatch reads it; None: it has no end.

    Raises ValueError for what sbatch does not take.

    >>> [limit_s(text) for text in ("150", "2:30", "2:30:00", "1-12", "1-12:30:00")]
    [9000.0, 150.0, 9000.0, 129600.0, 131400.0]
    """
    if time.upper() in ("UNLIMITED", "INFINITE"):
        return None
    matched = _TIME.fullmatch(time)
    if matched is None:
        raise ValueError(time)
    days, *parts = matched.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:  # D-HH[:MM[:SS]]
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:  # MM[:SS]
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)


def _is_time(value: object) -> bool:
    try:
        seconds = limit_s(str(value))
    except ValueError:
        return False
    return not isinstance(value, bool) and (seconds is None or seconds >= LEAST_S)


def _is_memory(value: object) -> bool:
    is_number = bool(_MEMORY.fullmatch(str(value)))
    return is_number and (not str(value).isdecimal() or int(str(value)) >= LEAST_MB)


def _words_are(value: object) -> bool:
    return isinstance(value, str) and bool(_WORD.fullmatch(value))


Word = Annotated[str | None, Rule(_words_are, "one word")]
Time = Annotated[
    str | int | None,
    Untyped(
        lambda value: value is None or _is_time(value),
        "a time limit of at least two minutes as sbatch reads it, like 150 (minutes), 2:30:00 or "
        "1-00:00:00, or null",
    ),
]
Memory = Annotated[
    str | int | None,
    Untyped(
        lambda value: value is None or _is_memory(value),
        "a number with K, M, G or T, like 224G, or one of MB from 1000 up, or null",
    ),
]


@dataclass(frozen=True)
class Head(Section):
    """Shape of a job, in the words of sbatch; null: the site's default."""

    partition: Word = None
    account: Word = None
    qos: Word = None
    constraint: Word = None
    time: Time = None
    cpus: Annotated[int, at_least(1)] = 1  # of each node
    memory: Memory = None  # of each node
    sbatch: tuple[str, ...] = ()  # more options, as they are

    def _check(self) -> None:
        for option in self.sbatch:
            name = option.lstrip("-").partition("=")[0]
            self.require(
                option.startswith("-"), "sbatch", 'options like "--mail-type=END"', "each one word"
            )
            if name in _OWN_OPTIONS:
                key = _OWN_OPTIONS[name]
                instead = f"use the key {key}" if key else "this program gives it itself"
                self.require(False, "sbatch", "options that are not given otherwise", instead)

    @property
    def lead_s(self) -> float:
        """Seconds before the time limit at which a job is told to leave."""
        whole_s = None if self.time is None else limit_s(str(self.time))
        return LEAD_S if whole_s is None else min(LEAD_S, max(LEAST_LEAD_S, whole_s / 4))

    def options(self) -> list[str]:
        """Options of sbatch for the shape."""
        given = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            "time": self.time,
            "cpus-per-task": self.cpus,
            "mem": self.memory,
        }
        named = [f"--{name}={value}" for name, value in given.items() if value is not None]
        return [*named, *self.sbatch]


@dataclass(frozen=True)
class Worker(Head):
    """Shape of a job that trains: so many nodes of one shape at once."""

    gpus: Annotated[int, at_least(0)] = 0  # of each node
    gpu_type: Word = None  # as the site's gres names it; null: any
    nodes: Annotated[int, at_least(1)] = 1
    most: Annotated[int, at_least(1)] = 4  # jobs at a time

    def _check(self) -> None:
        super()._check()
        self.require(self.gpu_type is None or self.gpus > 0, "gpu_type", "null without gpus")

    def options(self) -> list[str]:
        """Options of sbatch for the shape."""
        kind = "" if self.gpu_type is None else f"{self.gpu_type}:"
        gres = [f"--gres=gpu:{kind}{self.gpus}"] if self.gpus else []
        return [*super().options(), *gres, f"--nodes={self.nodes}"]

    @property
    def machine(self) -> dict[str, float]:
        """Resources of one node, as Ray counts them."""
        gpus = {"GPU": float(self.gpus)} if self.gpus else {}
        return {"CPU": float(self.cpus), **gpus}


@dataclass(frozen=True)
class SlurmYaml(Section):
    """A slurm.yaml."""

    storage: Annotated[
        str, Rule(os.path.isabs, "an absolute folder of the shared file system")
    ]  # SWEEP_STORAGE of every job
    data: str | None = None  # SWEEP_DATA of every job; null: as where `sweep submit` is given
    cache: str | None = None  # SWEEP_CACHE, likewise
    python: str | None = None  # of every job; null: that which runs `sweep submit`
    setup: tuple[str, ...] = ()  # lines of shell with which every job begins
    container: str | None = None  # a command that runs the one after it in a container
    head: Head = Head()  # the job that drives a sweep; it trains nothing
    worker: Worker = Worker()
    poll_s: Annotated[float, at_least(1.0)] = 60.0  # between two looks at Slurm's queue, of all

    def shape(self, kind: Kind) -> Head:
        """The shape of a kind of job."""
        return self.worker if kind == "worker" else self.head

    def python_words(self, *words: str) -> list[str]:
        """The command by which jobs run Python with these words."""
        return [*shlex.split(self.container or ""), self.python or sys.executable, *words]

    def _check(self) -> None:
        if self.data is not None:
            is_place = os.path.isabs(self.data) or is_address(self.data)
            self.require(is_place, "data", "an absolute folder, or an address")
        for name in ("cache", "python"):
            value = getattr(self, name)
            self.require(value is None or os.path.isabs(value), name, "an absolute path")


class _Loader(OnceEach):
    """Loader that takes 2:30:00 for text: YAML 1.1 has numbers to the base 60."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, known) for tag, known in pairs if tag.rpartition(":")[2] not in ("int", "float")]
    for first, pairs in OnceEach.yaml_implicit_resolvers.items()
}
for _tag, _number in (
    ("int", r"[-+]?[0-9]+"),
    ("float", r"[-+]?[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_number})$"), list("-+.0123456789")
    )


def is_slurm_yaml(path: str | os.PathLike[str]) -> bool:
    """True for a file that has keys of a slurm.yaml, or is called so, and none of `ray up`."""
    file = Path(path)
    if file.suffix not in (".yaml", ".yml") or not file.is_file():
        return False
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return "slurm" in file.name
    keys = set(
        re.findall(r"^([A-Za-z_]+)[ ]*:", text, re.MULTILINE)
    )  # of a file with a mistake, too
    if keys & {"provider", "cluster_name", "available_node_types", "apiVersion"}:
        return False
    return "slurm" in file.name or bool(keys & {f.name for f in fields(SlurmYaml)})


def read(path: str | os.PathLike[str]) -> SlurmYaml:
    """The file, checked. Raises Misuse, which names it, the key, and what is allowed."""
    text = text_of(path, "slurm.yaml")
    plain = parsed(path, text, _Loader)
    if not isinstance(plain, dict):
        raise Misuse(f"{path} must be a mapping of keys like storage, head and worker.")
    wrong = [key for key in plain if not isinstance(key, str)]
    if wrong:
        raise Misuse(f"{path}: keys must be words, got {wrong[0]!r}.")
    known = [f.name for f in fields(SlurmYaml)]
    if unknown := [key for key in plain if key not in known]:
        raise Misuse(f"{path}: {UnknownName.among('key', unknown[0], known)}")
    if "storage" not in plain:
        raise Misuse(
            f"{path} lacks the key storage: an absolute folder that the login node and every "
            "compute node see."
        )
    lines = [line.partition("#")[0] for line in text.splitlines()]
    if left := [number for number, line in enumerate(lines, 1) if FILL_IN in line]:
        raise Misuse(
            f"{path} has {FILL_IN} in line {', '.join(map(str, left))}: write what your site has, "
            "or delete the line (storage must stay)."
        )
    sections = {name: plain.get(name) or {} for name in _SECTIONS}  # an empty one is null
    try:
        return SlurmYaml.from_json({**plain, **sections})
    except Misuse as error:
        raise Misuse(f"{path}: {error}") from error


_SECTIONS = ("head", "worker")
