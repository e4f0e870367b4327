"""Reproduction: arms trained again in a scratch store, compared with the old."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from search_spaces.catalog import Expected
from sweep.results.cells import FoundCell
from sweep.results.reproduction import (
    TOLERANCE,
    ReproducedCell,
    Reproduction,
    number_changes,
    reproduced_arm,
    worst,
)
from sweep.run.run_sweep import Executor, run_sweep
from sweep.study.arms import Arm, arms_of_proposal, baselines, stored_arms
from sweep.study.definition import Definition, put_definition
from trainables.config.arm import TRAINING_VERSION, ConstraintConfig
from trainables.errors import Failure, InvalidValue, Misuse
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

Records = Mapping[str, ArmRecord]  # by signature


def records_of_cell(objects: ObjectStore, cell: FoundCell) -> Records:
    """The stored records of a cell's arms; Misuse where one has not ended."""
    store = ArmStore(objects)
    records: dict[str, ArmRecord] = {}
    for arm in cell.named:
        record = store.record(arm.signature)
        if record is None or not record.is_final:
            raise Misuse(
                f"the {arm.config.arm} arm of {arm.setting} with seed {arm.config.seed} "
                f"({arm.signature}) has not ended, so there is nothing to compare with. "
                "`sweep status` shows how far the sweep is."
            )
        records[arm.signature] = record
    return records


def reproduce_cell(
    objects: ObjectStore, cell: FoundCell, before: Records, executor: Executor
) -> Reproduction:
    """Train a cell's arms again and compare; only a scratch store below the root is written."""
    beside = _stored_finals(objects, cell.beside).values()
    return _reproduce(objects, cell.definition, cell.named, before, beside, executor)


def reproduce_definition(
    objects: ObjectStore, definition: Definition, exported: Expected | None, executor: Executor
) -> Reproduction:
    """Train every arm of a definition again and compare.

    An arm that cannot be compared never counts as the same: with an export every arm that it
    expects is compared, else every arm with its stored record.
    """
    first = definition.space.settings[0].name
    if exported is not None:
        here = _check_expected(definition, exported)
        before = {s: _exported_record(here[s], plain) for s, plain in exported.arms.items()}
    elif any(_stored_finals(objects, baselines(definition, first))):
        before = None
    else:
        raise Misuse(
            f"nothing that this would train is stored below {objects.root}, so there is nothing "
            "to compare with. Run it without --reproduce first, or give the --storage it was run "
            "in."
        )
    return _reproduce(objects, definition, None, before, (), executor)


def _exported_record(arm: Arm, plain: Mapping[str, Json]) -> ArmRecord:
    values = {name: plain[name] for name in ("signature", "status", "evaluation", "environment")}
    try:
        return ArmRecord.from_json(
            {**values, "config": arm.config.to_json(), "reports": [{"step": 0, "timestamp_ms": 0}]}
        )
    except (TypeError, LookupError, AttributeError) as error:
        raise InvalidValue(
            f"what the configuration expects of arm {arm.signature} is not what an export writes: "
            f"{error}. Export it again."
        ) from error


def _check_expected(definition: Definition, exported: Expected) -> dict[str, Arm]:
    """Arms of the definition, by signature; Failure unless those are the exported ones."""
    if exported.training_version != TRAINING_VERSION:
        raise Failure(
            f"the configuration was exported with training version {exported.training_version}, "
            f"and this is version {TRAINING_VERSION}, which trains to other numbers. Nothing was "
            "trained. Compare with the release that exported it, or run it without --reproduce."
        )
    setting = definition.space.settings[0]
    point = definition.space.listed(setting, 0) or {}
    arms = [
        *arms_of_proposal(definition, setting.name, 0, point),
        *baselines(definition, setting.name),
    ]
    here = {arm.signature: arm for arm in arms}
    wanted = sorted(exported.arms.keys() - here.keys())
    if wanted:
        others = sorted(here.keys() - exported.arms.keys())
        raise Failure(
            f"the configuration expects the arms {', '.join(wanted)}, and would train "
            f"{', '.join(others)} instead: its runs were edited, --set changed them, or they train "
            "to other numbers since a fault was mended. Nothing was trained. Export it again, or "
            "run it without --reproduce."
        )
    return here


def _stored_finals(objects: ObjectStore, arms: Iterable[Arm]) -> dict[str, ArmRecord]:
    records = map(ArmStore(objects).record, (arm.signature for arm in arms))
    return {r.signature: r for r in records if r is not None and r.is_final}


def _reproduce(
    objects: ObjectStore,
    definition: Definition,
    arms: Sequence[Arm] | None,
    before: Records | None,
    beside: Iterable[ArmRecord],
    executor: Executor,
) -> Reproduction:
    """Train in a scratch store, which is deleted again where the numbers are the same.

    ``arms`` None: all; ``before`` None: the stored records. Arms of the final records ``beside``
    are not trained again.
    """
    objects.check_writable()
    folder = f"scratch/{definition.name}-{uuid.uuid4().hex[:8]}"
    scratch = objects.below(folder)
    compared: Reproduction | None = None
    try:
        for record in beside:
            ArmStore(scratch).put_record(record)
        trained, now = _train_all(scratch, definition, executor)
        arms = trained if arms is None else arms
        before = _stored_finals(objects, arms) if before is None else before
        compared = _compare(definition, arms, before, now)
    finally:
        if compared is None or compared.verdict != "differs":
            objects.delete_folder(folder)
            if not objects.names("scratch"):
                objects.delete_folder("scratch")
    return replace(compared, records=scratch.root if compared.verdict == "differs" else None)


def _train_all(
    scratch: ObjectStore, definition: Definition, executor: Executor
) -> tuple[list[Arm], Records]:
    """Train all arms of the definition in a place of their own; the arms and their records."""
    put_definition(scratch, definition)
    # Records that were taken over may be of other code: it is what is compared with.
    summary = run_sweep(scratch, definition, executor, accept_code=True)
    if not summary.is_done:
        why = "; ".join((*summary.problems, *summary.retired.values(), summary.stopped))
        raise Failure(f"the arms were not trained to their end, so nothing is compared: {why}.")
    arms = list(stored_arms(scratch, definition))
    return arms, _stored_finals(scratch, arms)


def _compare(
    definition: Definition, arms: Sequence[Arm], before: Records, now: Records
) -> Reproduction:
    """Compare every arm, and every cell's numbers; Failure where an arm has no record to match."""
    compared = [arm for arm in arms if arm.signature in before and arm.signature in now]
    cells: dict[tuple[str, int | None], list[Arm]] = {}
    for arm in compared:
        cells.setdefault((arm.setting, arm.proposal), []).append(arm)
    reproduced = [_compare_cell(definition, some, before, now) for some in cells.values()]
    verdict = worst([cell.verdict for cell in reproduced]) if reproduced else "identical"
    wanted = before.keys() | {arm.signature for arm in arms}
    if verdict != "differs" and len(compared) < len(wanted):
        raise Failure(
            f"{len(wanted) - len(compared)} of {len(wanted)} arms had nothing to be compared with; "
            f"the other {len(compared)} are the same."
        )
    return Reproduction(
        sweep=definition.name,
        verdict=verdict,
        tolerance=TOLERANCE,
        not_compared=len(wanted) - len(compared),
        cells=reproduced,
    )


def _compare_cell(
    definition: Definition, arms: Sequence[Arm], before: Records, now: Records
) -> ReproducedCell:
    reproduced = [reproduced_arm(arm, before[arm.signature], now[arm.signature]) for arm in arms]
    old, new = ([records[arm.signature] for arm in arms] for records in (before, now))
    constraint = arms[0].config.constraint or _only_constraint(definition, arms[0].setting)
    return ReproducedCell(
        setting=arms[0].setting,
        arm=arms[0].config.arm,
        proposal=arms[0].proposal,
        seeds=[arm.config.seed for arm in arms],
        verdict=worst([arm.verdict for arm in reproduced]),
        numbers=number_changes(old, new, constraint, definition.space.tolerance),
        arms=reproduced,
    )


def _only_constraint(definition: Definition, name: str) -> ConstraintConfig | None:
    """The constraint that judges a setting's unconstrained arm; None where it tries many points."""
    space, setting = definition.space, definition.space.setting(name)
    if space.points_tried(setting) > 1:
        return None
    point = space.listed(setting, 0) or {}
    return space.run(setting, point, seed=space.search_seeds[0]).constraint
