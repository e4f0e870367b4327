"""Registration of a sweep in the store: new, equal to the stored one, or grown.

The same steps precede training here (`sweep run`) and on a cluster (`sweep submit`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from search_spaces import catalog
from search_spaces.space import SearchSpace
from sweep.errors import NameTaken
from sweep.study.definition import Definition, put_definition, put_extension, run_as
from sweep.study.lock import already_running, driver_of
from sweep.study.requirements import (
    fetch,
    require_training,
    resolve_checkpoints,
    resolve_data,
    with_checkpoint_of,
    with_folders_of,
)
from trainables.errors import Misuse
from trainables.records.objects import ObjectStore

Say = Callable[[str], None]  # gets one line on what happened


def refuse_confirmation(given: catalog.NamedSpace) -> None:
    """Raise Misuse for a confirmation that has no plan yet and would read the test split.

    A run that was exported is trained again as it was.
    """
    again = given.expected is not None or given.space.name == "arm"
    if given.space.phase == "confirmation" and not again:
        raise Misuse(
            f"{given.space.name} has phase 'confirmation', which reads the test split: "
            "`sweep confirm NAME` makes one of a finished sweep, with a plan. Leave phase at "
            "'search'."
        )


def refuse_growing_plan(definition: Definition) -> None:
    """Raise Misuse where more seeds, proposals or second tries are asked of a confirmation."""
    if definition.space.phase == "confirmation":
        raise Misuse(
            f"{definition.name} is a confirmation: its seeds and arms are those of its plan, and "
            "an arm that failed counts as planned, so --seeds, --proposals and --retry-failed are "
            "not for it. Leave them out, or confirm again with `sweep confirm` under another "
            "--name."
        )


def resolved(definition: Definition, *, say: Say) -> Definition:
    """The definition with its checkpoints and data found on this machine, and known to train.

    Misuse where they are missing, damaged, or do not fit; nothing was written.
    """
    here = fetch(definition.space, say)
    space = resolve_checkpoints(here)  # named before data are decoded
    definition = replace(definition, space=resolve_data(space))
    require_training(definition.space)
    return definition


def registered(
    objects: ObjectStore, definition: Definition, *, named: Collection[str], say: Say
) -> Definition:
    """Store a resolved definition, or attach to the stored one; returns what is to be trained.

    Where the stored sweep has more than the fields that the user ``named``, they are refused.

    Raises:
        NameTaken: with the difference, when the name belongs to another definition.
        AlreadyRunning: the sweep is to grow, and a driver works on it.
    """
    objects.check_writable()
    sweep = put_definition(objects, definition)
    sweep = with_folders_of(sweep, definition.space)  # found here, and of the same content
    sweep = with_checkpoint_of(sweep, definition.space)
    sweep = run_as(sweep, definition.space, named=named)
    _refuse_less(sweep, definition.space, named)
    stored, given = sweep.space, definition.space
    return extended(
        objects,
        sweep,
        n_proposals=max(given.n_proposals, stored.n_proposals),
        search_seeds=tuple(dict.fromkeys((*stored.search_seeds, *given.search_seeds))),
        say=say,
    )


def _refuse_less(sweep: Definition, given: SearchSpace, named: Collection[str]) -> None:
    """Raise NameTaken where the stored sweep has more than the fields that the user ``named``.

    A space whose sweep was extended since is attached to.
    """
    stored = sweep.space
    fewer = []
    if "n_proposals" in named and given.n_proposals < stored.n_proposals:
        fewer.append(f"n_proposals: stored {stored.n_proposals}, given {given.n_proposals}")
    if "search_seeds" in named and not set(given.search_seeds) >= set(stored.search_seeds):
        seeds = f"stored {list(stored.search_seeds)}, given {list(given.search_seeds)}"
        fewer.append(f"search_seeds: {seeds}")
    if fewer:
        raise NameTaken(
            f"a sweep named {sweep.name!r} exists and asks for more:\n"
            + "\n".join(f"  {line}" for line in fewer)
            + "\nA sweep can only grow. Choose another --name, or leave these options out to "
            "continue the stored one."
        )


def extended(
    objects: ObjectStore,
    definition: Definition,
    *,
    n_proposals: int | None,
    search_seeds: tuple[int, ...] | None,
    say: Say,
) -> Definition:
    """Store that the sweep is to grow, where it does; refused while a driver works on it."""
    grown = definition.extended(n_proposals=n_proposals, search_seeds=search_seeds)
    before, after = definition.space, grown.space
    if after == before:
        return grown
    refuse_second_driver(objects, definition.name)
    put_extension(objects, grown)
    if after.n_proposals != before.n_proposals:
        counts = f"from {before.n_proposals} to {after.n_proposals} proposals"
        say(f"extends {definition.name} {counts}")
    if after.search_seeds != before.search_seeds:
        seeds = f"from search seeds {list(before.search_seeds)} to {list(after.search_seeds)}"
        say(f"extends {definition.name} {seeds}")
    return grown


def refuse_second_driver(objects: ObjectStore, name: str) -> None:
    """Raise AlreadyRunning early; the lock itself is taken when training starts."""
    driver = driver_of(objects, name)
    if driver is not None:
        raise already_running(name, driver, objects.root)
