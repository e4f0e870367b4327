"""Train again in a scratch area, whatever is stored, and compare bit for bit (``run --fresh``)."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import click

from sweep.definition import Definition, put_definition
from sweep.export import expected
from sweep.plan import baselines
from sweep.provenance import environment_differences
from sweep.views import load_sweep
from trainables.errors import Failure, Misuse
from trainables.object_store import ObjectStore
from trainables.results import ArmRecord
from trainables.run_store import RunStore

Json = Any
SHOWN = 8  # differences printed per arm
_OURS = ("commit", "dirty")  # where the code stood: said, but no reason for other numbers by itself


def run_fresh(
    objects: ObjectStore,
    definition: Definition,
    exported: Mapping[str, Json],
    *,
    where: Literal["local", "inline"],
    workers: int | None,
) -> bool:
    """Train every arm below ``scratch/``, compare, and say so; whether all numbers are identical.

    Args:
        objects: the storage root; its records are what is compared with where nothing was exported.
        definition: what to train.
        exported: ``runs`` of an exported configuration, or nothing.
        where: as for ``run_sweep``.
        workers: as for ``run_sweep``.
    """
    from sweep.execution import run_sweep

    known = by_signature(exported)
    first = definition.space.settings[0].name
    if not known and not any(_stored(objects, a.signature) for a in baselines(definition, first)):
        raise Misuse(
            f"nothing that this would train is stored below {objects.root}, so there is nothing "
            "to compare with. Run it without --fresh first, or give the --storage it was run in."
        )
    objects.check_writable()
    folder = f"scratch/{definition.name}-{uuid.uuid4().hex[:8]}"
    scratch = ObjectStore(f"{objects.root}/{folder}")
    put_definition(scratch, definition)
    summary = run_sweep(scratch, definition, where=where, workers=workers)
    if not summary.is_done:
        _drop(objects, folder)
        why = "; ".join((*summary.problems, *summary.retired.values(), summary.stopped))
        raise Failure(f"the arms were not trained to their end, so nothing is compared: {why}.")
    same, compared = True, 0
    for place in load_sweep(scratch, definition.name).arms.values():
        assert place.record is not None  # the sweep is done
        there = known.get(place.signature) or _stored(objects, place.signature)
        what = f"{place.signature} {place.record.config.arm} seed {place.record.config.seed}"
        if there is None:
            click.echo(f"{what}: nothing stored to compare with")
            continue
        compared += 1
        same = _compare(what, there, place.record) and same
    if same:
        _drop(objects, folder)
        click.echo(f"{compared} arms trained again: identical, bit for bit")
    else:
        click.echo(f"The new records stay below {scratch.root}.")
    return same


def _drop(objects: ObjectStore, folder: str) -> None:
    objects.delete_folder(folder)
    if not objects.names("scratch"):
        objects.delete_folder("scratch")


def by_signature(exported: Mapping[str, Json]) -> dict[str, Json]:
    """What an exported configuration expects of each arm."""
    arms = [run.get(arm) for run in exported.values() for arm in ("constrained", "unconstrained")]
    return {arm["signature"]: arm for arm in arms if arm is not None}


def differences(there: Json, here: Json, path: str = "") -> Iterator[str]:
    """Where two plain values differ, one line each; any difference in a number counts.

    >>> list(differences({"a": [1.0, 2.0]}, {"a": [1.0, 2.5]}))
    ['a.1: 2.0 before, 2.5 now']
    """
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in sorted({*there, *here}):
            yield from differences(there.get(key), here.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for index, (one, other) in enumerate(zip(there, here, strict=True)):
            yield from differences(one, other, f"{path}.{index}".lstrip("."))
    elif there != here:
        yield f"{path}: {_short(there)} before, {_short(here)} now"


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _stored(objects: ObjectStore, signature: str) -> Json | None:
    record = RunStore(objects).record(signature)
    return expected(record) if record is not None and record.is_final else None


def _compare(what: str, there: Json, record: ArmRecord) -> bool:
    here = expected(record)
    compared = ("status", "evaluation")
    found = list(differences({n: there[n] for n in compared}, {n: here[n] for n in compared}))
    if not found:
        click.echo(f"{what}: identical, bit for bit")
        return True
    click.echo(f"{what}: {len(found)} numbers differ{_farthest(there, here)}")
    for line in found[:SHOWN]:
        click.echo(f"  {line}")
    environment = environment_differences(there["environment"], here["environment"])
    moved = [line for line in environment if not line.startswith(_OURS)]
    if moved:
        click.echo("  equal bits are promised on one machine type and one set of versions; here:")
    else:
        click.echo("  on the same machine type and versions, where equal bits are promised")
    for line in environment:
        click.echo(f"    {line}")
    return False


def _farthest(there: Json, here: Json) -> str:
    """How far the mean metric moved, for scale."""
    if not there["evaluation"] or not here["evaluation"]:
        return ""
    before, now = there["evaluation"]["ood_mean"], here["evaluation"]["ood_mean"]
    numbers = isinstance(before, float) and isinstance(now, float)
    return f"; ood_mean moved by {now - before:.3g}" if numbers and math.isfinite(now) else ""
