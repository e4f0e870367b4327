"""Sweeps below a storage root: what `sweep list` says of each."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.errors import OtherVersion
from sweep.results.status import state_of
from sweep.results.sweep_view import load_sweep
from sweep.study.advice import note
from sweep.study.definition import (
    definition_name,
    definition_of_any_version,
    state_without_reading,
    sweep_names,
)
from sweep.study.lock import driver_of
from sweep.study.opening import open_store, root_named
from trainables.errors import SweepError, missing_plugin
from trainables.plain import Plain
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import at_once

if TYPE_CHECKING:
    import pandas as pd


@dataclass(kw_only=True)
class ListedSweep(Plain):
    """A line of `sweep list`, and of the frame that ``sweep.sweeps`` returns."""

    name: str
    space: str | None = None
    state: str = "damaged"
    proposals: str | None = None  # how many are finished
    retired: Sequence[str] = ()  # settings whose search ended early
    plug_in: str | None = None  # that is missing
    storage: str


def listed_sweeps(objects: ObjectStore, *, say: Callable[[str], None]) -> list[ListedSweep]:
    """Every sweep below the root, the one defined last first; ``say`` hears why one is unread."""
    return [_listed(objects, name, say) for name in newest_first(objects)]


def sweeps(storage: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Sweeps and confirmations below a storage root, a row each, the one defined last first.

    Columns are those of `sweep list --json`: name, space, state, proposals (how many are finished,
    as text), retired (settings whose search ended early), plug_in (one that is missing), storage.

    Args:
        storage: its storage root; default: $SWEEP_STORAGE, else ./sweeps.
    """
    import pandas as pd

    listed = listed_sweeps(open_store(root_named(storage)), say=note)
    columns = [field.name for field in dataclasses.fields(ListedSweep)]
    return pd.DataFrame([one.to_json() for one in listed], columns=columns)


def newest_first(objects: ObjectStore) -> list[str]:
    """Every sweep below the root, the one defined last first."""
    names = sweep_names(objects)
    put_at = at_once(lambda name: objects.put_at_ns(definition_name(name)) or 0, names)
    return [name for _, name in sorted(zip(put_at, names, strict=True), reverse=True)]


def _listed(objects: ObjectStore, name: str, say: Callable[[str], None]) -> ListedSweep:
    one = ListedSweep(name=name, storage=objects.root)
    try:
        view = load_sweep(objects, name, "outcomes")
    except OtherVersion as error:
        say(str(error))
        one.space = definition_of_any_version(objects, name).space.name
        one.state = "other version"
    except SweepError as error:  # the other sweeps can still be listed
        say(str(error))
        one.plug_in = missing_plugin(error)
        one.state = state_without_reading(error)
    else:
        space = view.definition.space
        wanted = sum(map(space.proposals_of, space.settings))
        is_running = driver_of(objects, name) is not None
        one.space = space.name
        one.state = state_of(view, is_running=is_running)
        one.proposals = f"{sum(len(s.results) for s in view.settings)} of {wanted}"
        one.retired = sorted(view.retired)
    return one
