"""Errors a user can cause or must act on, as one tree.

SweepError                   every error of this project; the command line prints no traceback
├── Misuse                   the request is wrong: exit 2
│   ├── InvalidValue         a value out of range or of the wrong type (also a ValueError)
│   │   └── RemovedOption    a field that only earlier versions have
│   ├── UnknownName          a field, search space, model, data set or sweep that does not exist
│   │   └── UnknownPlugin    what a package may bring that is not installed here
│   └── BadData              a data folder that is missing, empty, of the wrong layout, or damaged
└── Failure                  the request was right, the world was not: exit 1
    └── StoreError           the store cannot be read or written
        └── UnreadableObject     an object in it is not what this version writes
            └── DamagedObject    it is not even what was put

Every message says what was wrong, what was got, what is allowed and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class SweepError(Exception):
    """Base of every error this project raises on purpose."""

    exit_code = 1  # of the command that ends on it


class Misuse(SweepError):
    """The request cannot be met as it was made."""

    exit_code = 2


class InvalidValue(Misuse, ValueError):
    """A value is out of range or of the wrong type."""


class RemovedOption(InvalidValue):
    """A field that this version has no more: another one reads what names it."""


def require(ok: bool, name: str, got: object, allowed: str, advice: str = "") -> None:
    """Raise InvalidValue, in the words that every field is refused with, unless ``ok``."""
    if not ok:
        raise InvalidValue(
            f"{name} must be {allowed}, got {got!r}" + (f": {advice}" if advice else ".")
        )


_MOST_NAMES = 40  # more fill the screen
_CLOSEST = 12


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """A hint at the closest known name, or nothing; of a mapping at what the name stands for."""
    shown = known if isinstance(known, Mapping) else {}
    meant = " or ".join(repr(shown.get(name, name)) for name in _meant(got, sorted(known)))
    return f" Did you mean {meant}?" if meant else ""


def list_first(names: Iterable[str], most: int = 3) -> str:
    """The first few names, and how many follow.

    >>> list_first(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    every = list(names)
    return ", ".join(every[:most]) + f" and {len(every) - most} more" * (len(every) > most)


def _meant(got: str, names: Sequence[str]) -> list[str]:
    leaves = [] if "." in got else [name.rpartition(".")[2] for name in names]
    leaf = difflib.get_close_matches(got, leaves, n=1)  # alpah: of constraint.alpha
    inside = [name for name in names if leaf and name.endswith(f".{leaf[0]}")]
    return inside or difflib.get_close_matches(got, names, n=1)


class UnknownName(Misuse, LookupError):
    """A name that nothing here answers to."""

    @classmethod
    def among(cls, kind: str, got: str, known: Iterable[str]) -> UnknownName:
        """Build the message: what was got, what is known, and the closest known name.

        >>> print(UnknownName.among("field", "alhpa", ["alpha", "dual_lr"]))
        unknown field 'alhpa'. Known: alpha, dual_lr. Did you mean 'alpha'?
        >>> print(UnknownName.among("field", "alpah", ["constraint.alpha", "steps"]))
        unknown field 'alpah'. Known: constraint.alpha, steps. Did you mean 'constraint.alpha'?
        """
        names = sorted(known)
        if len(names) > _MOST_NAMES:
            closest = difflib.get_close_matches(got, names, n=_CLOSEST, cutoff=0.0)
            meant = _meant(got, names)
            closest = [*meant, *(name for name in closest if name not in meant)][:_CLOSEST]
            shown = f"Known, the closest of {len(names)}: {', '.join(sorted(closest))}"
        else:
            shown = f"Known: {', '.join(names) or 'none'}"
        return cls(f"unknown {kind} {got!r}. {shown}.{did_you_mean(got, names)}")


class UnknownPlugin(UnknownName):
    """A model, task or data set that is not built in, and of no package that is installed here."""

    name = ""  # what was asked for


def missing_plugin(error: BaseException | None) -> str | None:
    """The plug-in that an error came from the lack of; None of any other error."""
    plugin = cause_of(error, UnknownPlugin)
    return None if plugin is None else plugin.name


def cause_of(error: BaseException | None, kind: type[E]) -> E | None:
    """The error itself or the nearest of its causes that is of this kind; None: there is none."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__
    return error


class BadData(Misuse):
    """A data folder is missing, empty, laid out differently, or holds a damaged file."""


class Failure(SweepError):
    """The request was right, but something outside it stood in the way."""


class GpuShareTooSmall(Failure):
    """An arm needs more memory than its share of a GPU: to be tried on a whole one."""


class Crowded(Failure):
    """An arm found no memory beside the other arms of its group: to be tried alone."""


class GpuLost(Failure):
    """CUDA does not start, or stopped: the fault of no arm, to be tried on another machine."""


class RankLost(Failure):
    """A process of those that train an arm together died: all of them begin again."""


class OtherCode(Failure):
    """A worker has other code than its driver: what it trains would be other numbers."""


class StoreError(Failure):
    """The store cannot be read or written, or holds what this version cannot read."""


class UnreadableObject(StoreError):
    """An object is not what this version writes. Reading again changes nothing."""


class DamagedObject(UnreadableObject):
    """An object is not what was put: its checksum does not match."""
