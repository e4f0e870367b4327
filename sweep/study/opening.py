"""Opening of a stored sweep: the storage root that is given, and a name in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

from sweep.study.advice import DEFAULT_STORAGE, STORAGE
from trainables.errors import InvalidValue, Misuse, StoreError, UnknownName

if TYPE_CHECKING:  # numpy and pyarrow, which verbs that read no store do not need
    from sweep.study.definition import Definition
    from trainables.records.objects import ObjectStore

_SECRET_OPTION = re.compile(
    r"[?&;][^=&;]*(secret|key|token|pass|sas|signature|credential)[^=&;]*=", re.I
)


def root_named(storage: str | os.PathLike[str] | None) -> str:
    """The storage root that is meant: the one given, else $SWEEP_STORAGE, else ./sweeps."""
    given = os.environ.get(STORAGE) or DEFAULT_STORAGE if storage is None else storage
    return os.fspath(given)


def open_store(storage: str) -> ObjectStore:
    """The store below a root; Misuse when it is no folder and no address that can be one."""
    from trainables.records.objects import ObjectStore

    refuse_key(storage)
    try:
        _refuse_dangling(storage)
        objects = ObjectStore(storage)
    except (OSError, RuntimeError) as error:  # no right to enter, too long, no home of that user
        raise Misuse(_no_root(storage, str(error))) from error
    try:
        if not objects.is_local:
            objects.names("sweeps")
    except OSError as error:
        raise StoreError(f"the storage root {storage} cannot be reached: {error}") from error
    except ValueError as error:  # what pyarrow raises for an address that it cannot read
        raise Misuse(_no_root(storage, str(error))) from error
    if not storage:
        raise Misuse(_no_root(storage, "it is empty"))
    if objects.is_local and Path(objects.root).is_file():
        raise Misuse(_no_root(storage, "it is a file"))
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


def find_sweep(objects: ObjectStore, name: str) -> Definition:
    """The stored definition of ``name``; UnknownName, with the place that was looked at."""
    from sweep.study.definition import load_definition

    with named_place(objects):
        return load_definition(objects, name)


@contextmanager
def named_place(objects: ObjectStore) -> Iterator[None]:
    """Add the place that was searched to the error for an unknown sweep."""
    try:
        yield
    except UnknownName as error:
        raise UnknownName(
            f"{error} Looked below {objects.root}; --storage or {STORAGE} names another place."
        ) from None


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
    free = [seed for seed in range(numbers[0] + len(present)) if seed not in present]
    return (*present, *free[: max(numbers[0] - len(present), 0)])
