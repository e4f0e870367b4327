"""Readings of a test split: confirmations in a storage, deleted ones too.

    confirmations/NAME-<ms>.json   what is left of one that was deleted after arms of it had ended

A test split tells of a network once. Whoever confirms again, under another name, after another
search of the same data, or after deleting what there was, has read it twice; every table says so.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sweep.confirmation.plan import Plan, family_of, load_plan, replications_of
from sweep.study.definition import Definition, definition_of_any_version, sweep_names
from trainables.errors import SweepError
from trainables.plain import StoredPlain
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

_FOLDER = "confirmations"


@dataclass(frozen=True)
class Reading(StoredPlain):
    """One confirmation, as far as others must know of it."""

    name: str
    search: str
    plan: str  # the digest
    tests: tuple[str, ...]  # what was read: data set, network, fingerprint of the data
    final_arms: int = 0  # when it was deleted
    deleted_ms: int | None = None  # None: it is there

    def __str__(self) -> str:
        if self.deleted_ms is None:
            return f"{self.name} (of {self.search})"
        day = datetime.fromtimestamp(self.deleted_ms / 1000, UTC).date()
        return (
            f"{self.name} (of {self.search}, plan {self.plan}, deleted on {day} after "
            f"{self.final_arms} of its arms had ended)"
        )


def other_readings(objects: ObjectStore, definition: Definition) -> list[Reading]:
    """Other readings of a test split of this confirmation, for the same network.

    All replications of one plan are one reading, which that plan says before the first.
    """
    ours, replications = set(_tests(definition)), replications_of(objects, definition.name)
    own = definition.name if replications is None else replications.name
    there: dict[str, Reading] = {}
    for name in sweep_names(objects):
        reading = _reading(objects, name)
        if reading is not None:
            before = there.get(reading.name, reading)
            tests = tuple(dict.fromkeys((*before.tests, *reading.tests)))
            there[reading.name] = replace(reading, tests=tests)
    others = [reading for reading in there.values() if reading.name != own]
    return [reading for reading in (*others, *_left(objects)) if ours & set(reading.tests)]


def left_by(objects: ObjectStore, name: str, signatures: Collection[str]) -> Reading | None:
    """The reading that stays of a confirmation deleted now; None: no arm of it has ended.

    ``signatures``: of its stored arms. None for any other sweep, too.
    """
    reading = _reading(objects, name, alone=True)
    final = len(ArmStore(objects).finals(signatures))
    if reading is None or not final:
        return None
    return replace(reading, final_arms=final, deleted_ms=round(time.time() * 1000))


def leave(objects: ObjectStore, reading: Reading) -> None:
    """Store the reading of a deleted confirmation."""
    objects.put_json(left_at(reading), reading.to_json())


def left_at(reading: Reading) -> str:
    """The path of that reading below the storage root."""
    return f"{_FOLDER}/{reading.name}-{reading.deleted_ms}.json"


def _left(objects: ObjectStore) -> Iterator[Reading]:
    for file in sorted(objects.names(_FOLDER)):
        reading = objects.get_value(f"{_FOLDER}/{file}", Reading.from_json)
        if reading is not None:
            yield reading


def _reading(objects: ObjectStore, name: str, *, alone: bool = False) -> Reading | None:
    """The reading of a stored confirmation; None for other sweeps, and for one that is unreadable.

    One of several replications has that of all, unless it is meant ``alone``.
    """
    try:
        plan = load_plan(objects, name)
        if plan is None:
            return None
        shared: Plan | None = None if alone else replications_of(objects, name)
        tests, plan = _tests(definition_of_any_version(objects, name)), shared or plan
        return Reading(plan.name, plan.search, plan.digest, tests)
    except SweepError:
        return None


def _tests(definition: Definition) -> tuple[str, ...]:
    """The test splits of a confirmation, each with the network that is tested on it."""
    space = definition.space
    runs = [space.run(setting, {}, seed=0) for setting in space.settings]
    return tuple(sorted({f"{family_of(run)}, {run.data.fingerprint}" for run in runs}))
