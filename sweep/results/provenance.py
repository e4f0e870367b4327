"""Provenance of a result: machine, code, data, and cost of its training.

Everything is read from the stored records, so that the same store exports the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sweep.results.sweep_view import SettingView, SweepView
from trainables.config.arm import TRAINING_VERSION
from trainables.plain import Json, Plain, finite
from trainables.records.arm_record import (
    EVAL_SECONDS,
    TRAIN_PEAK_MEMORY_MB,
    TRAIN_SECONDS,
    UNKNOWN_CODE,
    ArmRecord,
)


@dataclass(frozen=True, kw_only=True)
class DataSet(Plain):
    """A data set that was trained on."""

    name: str
    fingerprint: str  # of its pixels; empty: unknown


@dataclass(frozen=True, kw_only=True)
class Totals(Plain):
    """How many arms are final, and what they cost."""

    final: int = 0
    wall_s: float = 0.0
    device_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ShownPair(Plain):
    """The pair that a setting shows, with the provenance of its arms by seed and kind."""

    proposal: int | None = None
    winner: bool = False
    codes: Sequence[str] = ()
    matched_capacity: bool = True
    seeds: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Subject(Plain):
    """The sweep that an export or a report is of, and its arms."""

    sweep: str
    arms: Totals = field(default_factory=Totals)


@dataclass(frozen=True, kw_only=True)
class Manifest(Subject):
    """Provenance of a sweep and of the pairs that it shows.

    Fields with a default are those that one of an earlier version may lack.
    """

    space: str = ""
    definition: Mapping[str, Json] = field(default_factory=dict)
    is_finished: bool = False
    training_version: int = 0
    tolerance: float = 0.0
    sampler: Mapping[str, Json] = field(default_factory=dict)
    search_seeds: Sequence[int] = ()
    data: Sequence[DataSet] = ()
    environments: Sequence[Mapping[str, Json]] = ()
    pairs: Mapping[str, ShownPair | None] = field(default_factory=dict)  # None: none is finished


def manifest(view: SweepView, run_ids: Mapping[str, str]) -> Manifest:
    """Provenance of a whole sweep and of the pairs that its tables show."""
    space = view.definition.space
    records = [arm.record for arm in view.arms.values() if arm.record is not None]
    final = [record for record in records if record.is_final]
    environments = distinct_environments(final)
    return Manifest(
        sweep=view.definition.name,
        space=space.name,
        definition=space.to_json(),
        is_finished=view.is_finished,
        training_version=TRAINING_VERSION,
        tolerance=space.tolerance,
        sampler={"name": space.sampler, "seed": space.sampler_seed},
        search_seeds=space.search_seeds,
        data=data_sets(final),
        environments=environments,
        arms=Totals(
            final=len(final),
            wall_s=sum(wall_s(r) for r in final),
            device_s=sum(device_s(r) for r in final),
        ),
        pairs={one.setting.name: _shown(one, environments, run_ids) for one in view.settings},
    )


def _shown(
    setting: SettingView, environments: Sequence[Json], run_ids: Mapping[str, str]
) -> ShownPair | None:
    shown = setting.chosen.shown
    if shown is None:
        return None
    return ShownPair(
        proposal=shown.number,
        winner=setting.chosen.winner is not None,
        codes=codes_of(record for pair in shown.pairs for record in pair.arms),
        matched_capacity=shown.pairs[0].constrained.config.matched_capacity,
        seeds={
            str(pair.constrained.config.seed): {
                "constrained": arm_provenance(pair.constrained, environments, run_ids),
                "unconstrained": None
                if pair.unconstrained is None
                else arm_provenance(pair.unconstrained, environments, run_ids),
            }
            for pair in shown.pairs
        },
    )


def arm_provenance(
    record: ArmRecord, environments: Sequence[Json], run_ids: Mapping[str, str]
) -> dict[str, Json]:
    """One arm: what names it, what it cost, and which of ``environments`` it was trained in."""
    values: dict[str, Json] = finite(
        {
            "signature": record.signature,
            "mlflow_run_id": run_ids.get(record.signature),
            "status": record.status,
            "wall_s": wall_s(record),
            "device_s": device_s(record),
            "device": record.config.device,
            "peak_memory_mb": _last(record, TRAIN_PEAK_MEMORY_MB),
            "started_ms": record.started_ms,
            "ended_ms": record.ended_ms,
            "environment": environments.index(place(record)),
            "warnings": record.warnings,
        }
    )
    return values


def wall_s(record: ArmRecord) -> float:
    """From the arm's first start to its end, interruptions included."""
    return max(record.ended_ms - record.started_ms, 0) / 1000


def device_s(record: ArmRecord) -> float:
    """Time the device spent on the arm: training steps and evaluation."""
    return (_last(record, TRAIN_SECONDS) or 0.0) + (_last(record, EVAL_SECONDS) or 0.0)


def _last(record: ArmRecord, metric: str) -> float | None:
    return record.reports[-1].scalars.get(metric) if record.reports else None


def codes_of(records: Iterable[ArmRecord]) -> list[str]:
    """The code that trained some arms, each once; UNKNOWN_CODE where a record does not say.

    With how many parameters, where arms of one network had different numbers of them.
    """
    arms = list(records)
    sizes = {(arm.config.model, arm.parameters) for arm in arms if arm.parameters}
    differ = len(sizes) > len({model for model, _ in sizes}) and arms[0].config.matched_capacity
    with_size = ((arm, f" with {arm.parameters:,} parameters" * differ) for arm in arms)
    return sorted({(arm.code or UNKNOWN_CODE) + size for arm, size in with_size})


def data_sets(records: Iterable[ArmRecord]) -> list[DataSet]:
    """Every data set that was trained on, each once."""
    named = {(r.config.data.name, r.config.data.fingerprint) for r in records}
    return [DataSet(name=name, fingerprint=fingerprint) for name, fingerprint in sorted(named)]


def distinct_environments(records: Iterable[ArmRecord]) -> list[dict[str, Json]]:
    """The environments that arms were trained in, each once, in an order of their own."""
    texts = sorted({json.dumps(place(record), sort_keys=True) for record in records})
    return [json.loads(text) for text in texts]


def place(record: ArmRecord) -> dict[str, Json]:
    """The environment of an arm, whichever sweep it was trained for."""
    return {name: value for name, value in record.environment.items() if name != "sweep"}
