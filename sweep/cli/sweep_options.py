"""Options by which a command line describes a sweep, each written once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import click

from search_spaces import catalog
from search_spaces.space import SearchSpace
from search_spaces.start_points import EVERY, Start, parse_point, with_start_points
from sweep.cli.options import (
    address_option,
    complete_spaces,
    given_storage,
    only_option,
    parse_values,
    storage_option,
)
from sweep.study.advice import note
from sweep.study.opening import parse_seeds
from trainables.plain import Json

if TYPE_CHECKING:  # numpy and pyarrow, which showing a space does not need
    from sweep.study.definition import Definition
    from trainables.records.objects import ObjectStore

Verb = Callable[..., None]

# By the field that takes it, in the order of `--help`.
OPTIONS: dict[str, Callable[[Verb], Verb]] = {
    "space": click.argument("space", metavar="SPACE", shell_complete=complete_spaces),
    "name": click.option(
        "--name",
        metavar="NAME",
        help="Name of the sweep. Default: the space's name, with -full appended by --full.",
    ),
    "proposals": click.option(
        "--proposals", type=int, metavar="N", help="Candidate configurations of each setting."
    ),
    "seeds": click.option(
        "--seeds",
        metavar="N|A,B",
        help="Seeds of every candidate: a number, or a list such as 0,1.",
    ),
    "values": click.option(
        "--set",
        "values",
        multiple=True,
        metavar="FIELD=VALUE",
        help="Set a field of the base run (steps=500) or of the space (sampler=random). "
        "Repeatable.",
    ),
    "points": click.option(
        "--point",
        "points",
        multiple=True,
        metavar="FIELD=VALUE,...",
        help="Candidate to try first in every setting, for example constraint.alpha=0.2. Separate "
        "several fields by commas. Fields left out keep the values of the space's first candidate. "
        "Repeatable.",
    ),
    "start_from": click.option(
        "--start-from",
        multiple=True,
        metavar="NAME[:SETTING]|FILE",
        help="NAME: start from that sweep's winners, setting by setting. NAME:SETTING, or an "
        "exported configuration FILE: from that one candidate, in every setting. Repeatable.",
    ),
    "patterns": only_option,
    "full": click.option("--full", is_flag=True, help="Use the space's full-size variant."),
    "data": click.option(
        "--data",
        metavar="DIR|ADDRESS|hf:NAME",
        help="Data set: a folder, an address (s3://bucket/path), or hf:NAME for texts from the "
        "library `datasets`. Default: $SWEEP_DATA.",
    ),
    "stall_after": click.option(
        "--stall-after",
        type=float,
        metavar="SECONDS",
        help="Restart an arm after SECONDS without a report (four times that before its worker's "
        "first). At the second stall it fails. Default: the space's stall_after_s.",
    ),
    "where": click.option(
        "--where",
        type=click.Choice(["local", "cluster", "inline"]),
        default="local",
        show_default=True,
        help="Where to train. local: a Ray cluster on this machine; cluster: the running Ray "
        "cluster whose head is this machine; inline: this process, one arm at a time.",
    ),
    "workers": click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Arms that train at the same time. Default: as many as the CPUs hold, or this sweep's "
        "share of a cluster.",
    ),
    "fuse": click.option(
        "--fuse",
        type=click.IntRange(min=1),
        metavar="N",
        help="Train up to N small arms of equal shape and seed together in one worker, with the "
        "same numbers (docs/fusion.md). Default: 1; on a GPU 8, of networks that are small.",
    ),
    "processes": click.option(
        "--processes",
        type=click.IntRange(min=1),
        metavar="N",
        help="Shard each arm's network over N processes, for large models (docs/sharding.md). "
        "Default: 1.",
    ),
    "max_arms": click.option(
        "--max-arms",
        type=click.IntRange(min=1),
        metavar="N",
        help="Start at most N arms in all, counting unconstrained arms and earlier calls. Running "
        "arms finish; `sweep resume` continues.",
    ),
    "max_hours": click.option(
        "--max-hours",
        type=click.FloatRange(min=0, min_open=True),
        metavar="H",
        help="Start no further arm after this call (on a cluster, its job) has run for H hours. "
        "Running arms finish.",
    ),
    "max_gpu_hours": click.option(
        "--max-gpu-hours",
        type=click.FloatRange(min=0, min_open=True),
        metavar="H",
        help="Start no further arm once the sweep has used H GPU-hours, earlier calls included. "
        "Running arms finish.",
    ),
    "show_all": click.option(
        "--full",
        "show_all",
        is_flag=True,
        help="Show every setting in full, however many there are.",
    ),
    "storage": storage_option,
    "address": address_option,
}


def collected(**kinds: type[Any]) -> Callable[[Verb], Verb]:
    """Give a verb the options that are fields of a dataclass, and hand it them as one argument.

    ``@collected(place=Place)`` adds an option for each field of Place, and calls the verb with
    ``place=Place(...)`` in their place.
    """
    names = {
        taker: [field.name for field in fields(kind) if field.init] for taker, kind in kinds.items()
    }

    def decorated(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def handed(**given: Any) -> None:
            sections = {
                taker: kind(**{name: given.pop(name) for name in names[taker]})
                for taker, kind in kinds.items()
            }
            verb(**sections, **given)

        taking: Verb = handed
        for name in reversed(OPTIONS):
            if any(name in own for own in names.values()):
                taking = OPTIONS[name](taking)
        return taking

    return decorated


@dataclass(frozen=True)
class Place:
    """Location of the sweep that a verb is about.

    The address of a slurm.yaml is the storage that it names, which this machine sees; Misuse where
    the file is wrong, or another storage is named beside it.
    """

    storage: str  # below this root
    address: str | None  # on this cluster, below a root there; None: here
    slurm: str | None = field(default=None, init=False)  # the slurm.yaml that was given

    def __post_init__(self) -> None:
        if self.address is None or not self.address.endswith((".yaml", ".yml")):
            return
        from sweep.slurm.slurm_yaml import is_slurm_yaml  # yaml, too

        if not is_slurm_yaml(self.address):
            return
        from sweep.cluster.slurm_submit import enter  # numpy and pyarrow

        object.__setattr__(self, "slurm", self.address)
        object.__setattr__(self, "storage", enter(self.address, given_storage()))
        object.__setattr__(self, "address", None)

    @property
    def cluster(self) -> str | None:
        """Where arms train, as it was given; None: here."""
        return self.address or self.slurm


@dataclass(frozen=True)
class ShownSettings(Place):
    """Settings of a sweep to show, and in which form."""

    patterns: Sequence[str]
    show_all: bool

    @property
    def is_short(self) -> bool:
        """True when many settings get a line each."""
        return not self.show_all and not self.patterns


@dataclass(frozen=True)
class SpaceOptions:
    """Choices within a search space."""

    values: Sequence[str]
    patterns: Sequence[str]
    full: bool

    def __bool__(self) -> bool:
        return bool(self.values or self.patterns or self.full)

    def space_of(self, name: str, more: Mapping[str, Json] | None = None) -> SearchSpace:
        """The space of this name or file, with ``more`` fields set."""
        space = catalog.only(catalog.find(name, full=self.full).space, self.patterns)
        return catalog.with_values(space, {**parse_values(self.values), **(more or {})})


@dataclass(frozen=True)
class SweepOptions:
    """Options that a stored sweep takes, too."""

    proposals: int | None
    seeds: str | None
    data: str | None
    stall_after: float | None


@dataclass(frozen=True)
class SweepRequest(SpaceOptions, SweepOptions):
    """A new sweep, as the options of `sweep run` and `sweep submit` describe it."""

    space: str
    name: str | None
    points: Sequence[str]
    start_from: Sequence[str]

    def definition(
        self, objects: ObjectStore | None
    ) -> tuple[catalog.NamedSpace, Definition, list[str]]:
        """The space as it is named, the sweep of it, and the fields that were named.

        Args:
            objects: the storage with the sweeps to start from; None: it is not on this machine.
        """
        from sweep.study.definition import Definition

        named_space = catalog.find(self.space, full=self.full)
        space, folder = named_space.space, self.data
        if self.data is not None and catalog.is_data_set(self.data):
            space, folder = catalog.with_data_set(space, self.data), None
        by_option = {
            "n_proposals": self.proposals,
            "search_seeds": None if self.seeds is None else parse_seeds(self.seeds),
            "data.folder": folder,
            "stall_after_s": self.stall_after,
        }
        named_fields = parse_values(self.values)
        named_fields |= {name: value for name, value in by_option.items() if value is not None}
        default = f"{named_space.name}-full" if self.full else named_space.name
        name = default if self.name is None else self.name
        chosen = catalog.with_values(catalog.only(space, self.patterns), named_fields)
        if self.points or self.start_from:
            from sweep.results.started_from import starts_from

            starts = [Start(text, {EVERY: parse_point(text)}) for text in self.points]
            starts += starts_from(self.start_from, objects, say=note)
            chosen = with_start_points(chosen, starts, say=note)
        return named_space, Definition(name, chosen), list(named_fields)
