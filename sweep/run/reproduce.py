"""Reproduction (``run --reproduce``): train again in scratch, compare bit for bit."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping, Sequence

import click

from search_spaces.catalog import Expected
from sweep.results.export import expected
from sweep.results.sweep_view import load_sweep
from sweep.run.run_sweep import Executor, run_sweep
from sweep.study.arms import arms_of_proposal, baselines
from sweep.study.definition import Definition, put_definition
from trainables.config.arm import TRAINING_VERSION
from trainables.errors import Failure, Misuse
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

SHOWN = 8  # differences printed per arm
_OURS = (
    "code",
    "commit",
    "dirty",
)  # where the code stood: said, but no reason for other numbers by itself


def reproduced(
    objects: ObjectStore,
    definition: Definition,
    exported: Expected | None,
    executor: Executor,
) -> bool:
    """Train every arm below ``scratch/``, compare, and say so; whether all numbers are identical.

    What was not compared is never identical: with an export every arm that it expects is compared,
    else every arm is compared with its stored record.

    Args:
        objects: the storage root; its records are what is compared with where nothing was exported.
        definition: what to train.
        exported: what an exported configuration expects, or None.
        executor: as for ``run_sweep``.
    """
    if exported is not None:
        _check_expected(definition, exported)
    first = definition.space.settings[0].name
    if exported is None and not any(
        _stored(objects, arm.signature) for arm in baselines(definition, first)
    ):
        raise Misuse(
            f"nothing that this would train is stored below {objects.root}, so there is nothing "
            "to compare with. Run it without --reproduce first, or give the --storage it was run "
            "in."
        )
    objects.check_writable()
    folder = f"scratch/{definition.name}-{uuid.uuid4().hex[:8]}"
    scratch = ObjectStore(f"{objects.root}/{folder}")
    differs = False
    try:
        records = _trained(scratch, definition, executor)
        differs = not _all_equal(objects, records, {} if exported is None else exported.arms)
    finally:
        if not differs:
            objects.delete_folder(folder)
            if not objects.names("scratch"):
                objects.delete_folder("scratch")
    if differs:
        click.echo(f"The new records stay below {scratch.root}.")
    return not differs


def _check_expected(definition: Definition, exported: Expected) -> None:
    """Before anything is trained: Failure unless this trains the very arms that were exported."""
    if exported.training_version != TRAINING_VERSION:
        raise Failure(
            f"the configuration was exported with training version {exported.training_version}, "
            f"and this is version {TRAINING_VERSION}, which trains to other numbers. Nothing was "
            "trained. Compare with the release that exported it, or run it without --reproduce."
        )
    setting = definition.space.settings[0]
    point = definition.space.listed(setting, 0) or {}
    here = [
        *arms_of_proposal(definition, setting.name, 0, point),
        *baselines(definition, setting.name),
    ]
    wanted = sorted(exported.arms.keys() - {arm.signature for arm in here})
    if wanted:
        others = sorted({arm.signature for arm in here} - exported.arms.keys())
        raise Failure(
            f"the configuration expects the arms {', '.join(wanted)}, and would train "
            f"{', '.join(others)} instead: its runs were edited, or --set changed them. Nothing "
            "was trained. Export it again, or run it without --reproduce."
        )


def _trained(
    scratch: ObjectStore,
    definition: Definition,
    executor: Executor,
) -> list[ArmRecord]:
    """The records of every arm of the definition, trained in a place of their own."""
    put_definition(scratch, definition)
    summary = run_sweep(scratch, definition, executor)
    if not summary.is_done:
        why = "; ".join((*summary.problems, *summary.retired.values(), summary.stopped))
        raise Failure(f"the arms were not trained to their end, so nothing is compared: {why}.")
    store = ArmStore(scratch)
    records = [store.record(name) for name in load_sweep(scratch, definition.name).arms]
    return [record for record in records if record is not None]


def _all_equal(
    objects: ObjectStore, records: Sequence[ArmRecord], known: Mapping[str, Json]
) -> bool:
    """Compare every record; Failure when one that is ``known``, or any at all, was not compared."""
    same, compared = True, set()
    for record in records:
        there = known.get(record.signature) or _stored(objects, record.signature)
        what = f"{record.signature} {record.config.arm} seed {record.config.seed}"
        if there is None:
            click.echo(f"{what}: nothing stored to compare with")
            continue
        compared.add(record.signature)
        same = _compare(what, there, record) and same
    wanted = set(known) or {record.signature for record in records}
    if same and not (compared and wanted <= compared):
        raise Failure(
            f"{len(wanted - compared)} of {len(wanted)} arms had nothing to be compared with; "
            f"the other {len(compared)} are identical, bit for bit."
        )
    if same:
        click.echo(f"{len(compared)} arms trained again: identical, bit for bit")
    return same


def differences(there: Json, here: Json, path: str = "") -> Iterator[tuple[str, Json, Json]]:
    """Where two plain values differ, and what each has; any difference in a number counts.

    >>> list(differences({"a": [1.0, 2.0]}, {"a": [1.0, 2.5]}))
    [('a.1', 2.0, 2.5)]
    """
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in sorted({*there, *here}):
            yield from differences(there.get(key), here.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for index, (one, other) in enumerate(zip(there, here, strict=True)):
            yield from differences(one, other, f"{path}.{index}".lstrip("."))
    elif there != here:
        yield path, there, here


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _stored(objects: ObjectStore, signature: str) -> Json | None:
    record = ArmStore(objects).record(signature)
    return expected(record) if record is not None and record.is_final else None


def _compare(what: str, there: Json, record: ArmRecord) -> bool:
    here = expected(record)
    compared = ("status", "evaluation")
    found = list(differences({n: there[n] for n in compared}, {n: here[n] for n in compared}))
    if not found:
        click.echo(f"{what}: identical, bit for bit")
        return True
    click.echo(f"{what}: {len(found)} numbers differ{_farthest(there, here)}")
    for path, before, now in found[:SHOWN]:
        click.echo(f"  {path}: {_short(before)} before, {_short(now)} now")
    environment = list(differences(there["environment"], here["environment"]))
    if not all(path.startswith(_OURS) for path, _, _ in environment):
        click.echo("  equal bits are promised on one machine type and one set of versions; here:")
    else:
        click.echo("  on the same machine type and versions, where equal bits are promised")
    for path, theirs, ours in environment:
        click.echo(f"    {path}: {theirs!r} there, {ours!r} here")
    return False


def _farthest(there: Json, here: Json) -> str:
    """How far the area under the metric moved, for scale."""
    if not there["evaluation"] or not here["evaluation"]:
        return ""
    before, now = there["evaluation"].get("ood_auc"), here["evaluation"]["ood_auc"]
    numbers = isinstance(before, float) and isinstance(now, float)
    return f"; ood_auc moved by {now - before:.3g}" if numbers and math.isfinite(now) else ""
