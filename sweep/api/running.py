"""``sweep.run``: a sweep of a search space, trained here as `sweep run` does."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from types import MappingProxyType
from typing import get_args

from search_spaces import catalog
from search_spaces.space import SearchSpace
from search_spaces.start_points import EVERY, Start, with_start_points
from sweep.api.loaded import Sweep, load
from sweep.api.training import ready, train
from sweep.executors.executor import Executor, Where
from sweep.results.started_from import starts_from
from sweep.run.budget import Budget
from sweep.run.forget_failed import refuse_other_code
from sweep.study.advice import note
from sweep.study.definition import Definition
from sweep.study.opening import open_store, root_named
from sweep.study.registration import refuse_confirmation, refuse_second_driver, registered
from sweep.study.requirements import require_torch
from trainables.config.arm import field_names
from trainables.errors import UnknownName, require
from trainables.plain import Json

NONE: Mapping[str, Json] = MappingProxyType({})


def refuse_unknown(options: Iterable[str]) -> None:
    """Raise UnknownName for what is no option of ``run``; a field's name is told where it goes."""
    known = signature(run).parameters
    for name in options:
        if name in (*catalog.SPACE_FIELDS, *field_names()):
            raise UnknownName(
                f"sweep.run has no option {name!r}: it is a field of the space or of its base run. "
                f"Give it in fields, like fields={{{name!r}: ...}}."
            )
        if name not in known:
            raise UnknownName.among("option of sweep.run", name, known)


def run(
    space: SearchSpace | str | os.PathLike[str],
    *,
    name: str | None = None,
    storage: str | os.PathLike[str] | None = None,
    fields: Mapping[str, Json] = NONE,
    only: Sequence[str] = (),
    points: Sequence[Mapping[str, Json]] = (),
    start_from: Sequence[str] = (),
    where: Where = "local",
    workers: int | None = None,
    fuse: int | None = None,
    processes: int | None = None,
    max_arms: int | None = None,
    max_hours: float | None = None,
    max_gpu_hours: float | None = None,
    mlflow: str | None = None,
    accept_code: bool = False,
) -> Sweep:
    """Train what is missing of a sweep, with a line an arm, and return it loaded.

    The same definition under the same name continues it. Ctrl-C, or a notebook's stop button, lets
    running arms go on to their next report and returns what there is; a second one ends them there.

    Args:
        space: a space, the name of a built-in one, or a file, as for `sweep run`.
        name: of the sweep; default: the space's.
        storage: the storage root; default: $SWEEP_STORAGE, else ./sweeps.
        fields: of the base run and of the space, in the place of the space's own, as with --set:
            ``{"steps": 500, "n_proposals": 2, "data.folder": "/data"}``.
        only: patterns; of the settings those that match any.
        points: tried first in every setting, as with --point: ``[{"constraint.alpha": 0.2}]``.
        start_from: sweeps or exported configurations whose winners are tried first, as with
            --start-from.
        where: local (a Ray cluster of this machine), cluster, or inline (this process).
        workers: arms at a time; default: as many as there is room for.
        fuse: so many arms that a worker may train together; default: each alone, on a GPU eight
            of networks that are small.
        processes: so many that train an arm together; default: one.
        max_arms: begin no more arms once so many of the sweep are begun, unconstrained ones
            included.
        max_hours: the same after so many hours of this call.
        max_gpu_hours: the same once the sweep's arms have held GPUs for so many hours in all.
        mlflow: a server; default: SQLite below the storage.
        accept_code: take arms that other code trained as they are; else they are refused.

    Raises:
        SweepError: with the message of `sweep run`.
    """
    if where not in get_args(Where):
        raise UnknownName.among("value of where", where, get_args(Where))
    a_list = (list, tuple)
    require(isinstance(fields, Mapping), "fields", fields, 'a mapping like {"steps": 500}')
    for wanted_as, given in (("only", only), ("start_from", start_from), ("points", points)):
        require(isinstance(given, a_list), wanted_as, given, "a list")
    are_points = all(isinstance(point, Mapping) for point in points)
    require(are_points, "points", points, 'a list of mappings like {"constraint.alpha": 0.2}')
    is_space = isinstance(space, (SearchSpace, str, os.PathLike))
    require(is_space, "space", space, "a SearchSpace, a name or a file")
    executor = Executor(where, workers, fuse, processes)
    budget = Budget(max_arms, max_hours, max_gpu_hours)
    require_torch()
    named_space = (
        catalog.NamedSpace(space, space.name)
        if isinstance(space, SearchSpace)
        else catalog.find(os.fspath(space))
    )
    refuse_confirmation(named_space)
    wanted = catalog.with_values(catalog.only(named_space.space, only), fields)
    budget.refuse_without_gpu(wanted)
    objects = open_store(root_named(storage))
    starts = [Start(str(point), {EVERY: point}) for point in points]
    starts += starts_from(start_from, objects, say=note)
    wanted = with_start_points(wanted, starts, say=note)
    definition = ready(objects, Definition(name or named_space.name, wanted), executor, mlflow)
    refuse_other_code(objects, definition, accept_code=accept_code)
    there = registered(objects, definition, named=fields, say=note)
    refuse_second_driver(objects, definition.name)
    with warnings.catch_warnings():
        # tqdm, which optuna imports, asks a notebook for widgets; nothing here has any.
        warnings.filterwarnings("ignore", "IProgress not found")
        train(
            objects,
            there,
            executor,
            on_done=lambda _, line: print(line),
            accept_code=accept_code,
            budget=budget,
            mlflow=mlflow,
        )
    return load(definition.name, objects.root)
