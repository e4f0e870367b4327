"""A slurm.yaml: the site's partitions, the shapes of jobs, and places that all nodes see.

Options are those of sbatch (https://slurm.schedmd.com/sbatch.html); docs/slurm.md explains them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import yaml

from sweep.strict_yaml import OnceEach, parsed, text_of
from trainables.config.fields import Rule, Section, Untyped, at_least
from trainables.errors import Misuse, UnknownName
from trainables.fetching.remote_folders import is_address

FILL_IN = "FILL-IN"  # what the file that comes along has in the place of names of a site
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
    "open-mode": "", "wait": "", "W": "",
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
    return not isinstance(value, bool) and (seconds is None or seconds >= 60)


def _words_are(value: object) -> bool:
    return isinstance(value, str) and bool(_WORD.fullmatch(value)) and FILL_IN not in value


Word = Annotated[str | None, Rule(_words_are, "one word, and filled in")]
Time = Annotated[
    str | int | None,
    Untyped(
        lambda value: value is None or _is_time(value),
        "a time limit of at least a minute as sbatch reads it, like 150 (minutes), 2:30:00 or "
        "1-00:00:00, or null",
    ),
]
Memory = Annotated[
    str | int | None,
    Untyped(
        lambda value: value is None or bool(_MEMORY.fullmatch(str(value))),
        "a number of MB, or one with K, M, G or T, like 224G, or null",
    ),
]


@dataclass(frozen=True)
class Job(Section):
    """Shape of a kind of job, in the words of sbatch; null: the site's default."""

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
class Worker(Job):
    """Shape of a job that trains: so many nodes of one shape at once."""

    gpus: Annotated[int, at_least(0)] = 0  # of each node
    gpu_type: Word = None  # as the site's gres names it; null: any
    nodes: Annotated[int, at_least(1)] = 1
    most: Annotated[int, at_least(1)] = 4  # jobs at a time

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
    container: tuple[str, ...] = ()  # words before Python: how it is run in a container
    head: Job = Job()  # the job that drives a sweep; it trains nothing
    worker: Worker = Worker()
    poll_s: Annotated[float, at_least(1.0)] = 60.0  # between two looks at Slurm's queue, of all

    def _check(self) -> None:
        for name in ("storage", "data", "cache", "python"):
            value = getattr(self, name)
            filled_in = value is None or FILL_IN not in value
            self.require(filled_in, name, "filled in", "name your own place, or leave the key out")
        if self.data is not None:
            is_place = os.path.isabs(self.data) or is_address(self.data)
            self.require(is_place, "data", "an absolute folder, or an address")
        for name in ("cache", "python"):
            value = getattr(self, name)
            self.require(value is None or os.path.isabs(value), name, "an absolute path")
        for name in ("setup", "container"):
            lines = getattr(self, name)
            self.require(not any(FILL_IN in line for line in lines), name, "filled in")


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
        plain = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except (OSError, ValueError, yaml.YAMLError):
        plain = None
    if not isinstance(plain, dict):
        return "slurm" in file.name
    if {"provider", "cluster_name", "available_node_types", "apiVersion"} & set(plain):
        return False
    return "slurm" in file.name or bool({f.name for f in fields(SlurmYaml)} & set(plain))


def read(path: str | os.PathLike[str]) -> SlurmYaml:
    """The file, checked. Raises Misuse, which names it, the key, and what is allowed."""
    plain = parsed(path, text_of(path, "slurm.yaml"), _Loader)
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
    given = {
        name: {} if plain[name] is None and name in _SECTIONS else plain[name] for name in plain
    }
    try:
        return SlurmYaml.from_json(given)
    except Misuse as error:
        raise Misuse(f"{path}: {error}") from error


_SECTIONS = ("head", "worker")
