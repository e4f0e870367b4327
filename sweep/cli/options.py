"""What the verbs of the command line share: options, where to read, how to print."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote_plus

import click
from click.core import ParameterSource
from rich.console import Console

from sweep.study import advice
from sweep.study.advice import ADDRESS, STORAGE
from trainables.errors import InvalidValue, Misuse, StoreError, UnknownName

if TYPE_CHECKING:  # numpy and pyarrow, which verbs that read no store do not need
    from sweep.results.views import Read, SweepView
    from trainables.object_store import ObjectStore

Json = Any
_SECRET_OPTION = re.compile(
    r"[?&;][^=&;]*(secret|key|token|pass|sas|signature|credential)[^=&;]*=", re.I
)
Verb = TypeVar("Verb", bound=Callable[..., Any])

storage_option: Callable[[Verb], Verb] = click.option(
    "--storage",
    metavar="DIR",
    envvar=STORAGE,
    default=advice.DEFAULT_STORAGE,
    show_default="$SWEEP_STORAGE, else ./sweeps",
    help="Storage root: everything a sweep writes lies below it.",
)
address_option: Callable[[Verb], Verb] = click.option(
    "--address",
    metavar="URL|YAML",
    envvar=ADDRESS,
    help="Ask a cluster: the URL of its dashboard, or its cluster.yaml; or set SWEEP_ADDRESS.",
)
json_option: Callable[[Verb], Verb] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs."
)
set_option: Callable[[Verb], Verb] = click.option(
    "--set",
    "values",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Set a field of the base run (steps=500) or of the space (sampler=random); repeatable.",
)
only_option: Callable[[Verb], Verb] = click.option(
    "--only",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Take only the settings of this name or pattern, like 'ucsd_ped2-*'; repeatable.",
)
name_argument: Callable[[Verb], Verb] = click.argument("name", metavar="NAME")


def given_storage() -> str | None:
    """The root that --storage names on this command line: on a cluster its own is the default."""
    if not named_here("storage"):
        return None
    storage = str(click.get_current_context().params["storage"])
    refuse_key(storage)
    return storage


def refuse_key(address: str, what: str = "a storage root") -> None:
    """Raise Misuse for an address that carries a secret key: addresses are stored and shown."""
    place, mark, rest = address.partition("://")
    if mark and (
        re.match(r"[^/@]*:.*@", rest)
        or (place == "s3" and ":" in rest.split("/")[0])
        or _SECRET_OPTION.search(unquote_plus(rest))
    ):
        raise Misuse(
            f"{what} must be without a key, got one of kind {place}://: it is stored and "
            "shown. Keys come from the environment (AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY), ~/.aws, or the role of the machine."
        )


def named_here(option: str) -> bool:
    """Whether an option was given on this command line, and is no default."""
    source = click.get_current_context().get_parameter_source(option)
    return source is ParameterSource.COMMANDLINE


def open_store(storage: str) -> ObjectStore:
    """The store below a root; Misuse when it is no folder and no address that can be one."""
    from trainables.object_store import ObjectStore

    refuse_key(storage)
    _refuse_dangling(storage)
    objects = ObjectStore(storage)
    try:
        if not objects.is_local:
            objects.names("sweeps")
    except OSError as error:
        raise StoreError(f"the storage root {storage} cannot be reached: {error}") from error
    except ValueError as error:  # what pyarrow raises for an address that it cannot read
        raise Misuse(_no_root(storage, str(error))) from error
    if not storage:
        raise Misuse(_no_root(storage, "it is empty"))
    return objects


def _refuse_dangling(storage: str) -> None:
    """Raise Misuse where the root lies beyond a link to nowhere: its disk is not mounted, say."""
    if "://" in storage or "\0" in storage:
        return
    path = Path(storage).expanduser().absolute()
    for place in (path, *path.parents):
        if place.is_symlink() and not place.exists():
            raise Misuse(
                f"the storage root {storage} leads nowhere: {place} is a link to "
                f"{os.readlink(place)}, which is not there. Is its disk mounted? Else make that "
                "folder, or give another --storage."
            )


def _no_root(storage: str, why: str) -> str:
    return (
        f"{storage!r} is no storage root: {why}. Give a folder, or an address like s3://bucket/path"
        f" or gs://bucket/path, with --storage or {STORAGE}."
    )


def open_sweep(storage: str, name: str, read: Read = "records") -> tuple[ObjectStore, SweepView]:
    """The store and one sweep in it, as far as ``read`` asks for."""
    from sweep.results.views import load_sweep

    objects = open_store(storage)
    with _named_place(objects):
        return objects, load_sweep(objects, name, read)


def check_name(objects: ObjectStore, name: str) -> None:
    """UnknownName, with the place that was looked at, unless ``name`` is a sweep there."""
    from sweep.study.definition import load_definition

    with _named_place(objects):
        load_definition(objects, name)


@contextmanager
def _named_place(objects: ObjectStore) -> Iterator[None]:
    try:
        yield
    except UnknownName as error:
        raise UnknownName(
            f"{error} Looked below {objects.root}; --storage or {STORAGE} names another place."
        ) from None


def parse_values(texts: Sequence[str]) -> dict[str, Json]:
    """``--set name=value``, repeated. Values are JSON, else plain text; no name is given twice.

    >>> parse_values(["steps=500", "sampler=random", "data.folder=null"])
    {'steps': 500, 'sampler': 'random', 'data.folder': None}
    """
    values: dict[str, Json] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidValue(f"--set must be name=value, got {text!r}.")
        if name in values:
            raise InvalidValue(f"--set {name} is given twice; give it once.")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values


def parse_seeds(text: str, present: Sequence[int] = ()) -> tuple[int, ...]:
    """``--seeds``: a list with commas, or a count, which adds the next free ones to ``present``.

    >>> parse_seeds("3"), parse_seeds("4,7"), parse_seeds("5,"), parse_seeds("3", present=(1, 4))
    ((0, 1, 2), (4, 7), (5,), (1, 4, 0))
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts if part) or not any(parts):
        raise InvalidValue(f"--seeds must be a count like 2 or a list like 0,1, got {text!r}.")
    numbers = [int(part) for part in parts if part]
    if "," in text:
        return tuple(numbers)
    if not 1 <= numbers[0] <= 1000:
        raise InvalidValue(f"--seeds must ask for 1 to 1000 seeds, got {numbers[0]}.")
    free = (seed for seed in range(numbers[0] + len(present)) if seed not in present)
    chosen = [*present]
    while len(chosen) < numbers[0]:
        chosen.append(next(free))
    return tuple(chosen)


def print_json(value: Json) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def tell_that_it_is_here(instead: str) -> None:
    """Where SWEEP_ADDRESS sends other verbs to a cluster, a note that this one stays here."""
    if os.environ.get(ADDRESS):
        verb = click.get_current_context().info_name
        note(f"{ADDRESS} is set, but `sweep {verb}` is about this machine; {instead}")


def note(text: str) -> None:
    """A line for people, on standard error: it never mixes with what a program reads."""
    click.echo(f"sweep: {text}", err=True)


def console() -> Console:
    """Standard output for people: as wide as the terminal; in a pipe 80 columns, no colour."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=False)
