"""Seconds that a sweep's arms held machines and GPUs, counted from their records.

sweeps/NAME/spent.json        by signature, of final arms; follows from records, so it may be gone
sweeps/NAME/estimate.json     what it was thought to cost when it started, as `sweep spaces` says
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from search_spaces.space import SearchSpace
from sweep.study.definition import folder
from trainables.config.arm import ArmConfig
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import at_once

HOUR_S = 3600.0
PUT_EVERY_S = 30.0  # while a sweep runs: all of them are one object


@dataclass(frozen=True)
class Held:
    """Time that one or several arms held: seconds of places, and of GPUs in them."""

    arms: int = 0
    seconds: float = 0.0  # of a place: an idle arm, between two drivers, holds nothing
    gpu_seconds: float = 0.0

    def __sub__(self, other: Held) -> Held:
        return self + Held(-other.arms, -other.seconds, -other.gpu_seconds)

    def __add__(self, other: Held) -> Held:
        return Held(
            self.arms + other.arms,
            self.seconds + other.seconds,
            self.gpu_seconds + other.gpu_seconds,
        )


class Spent:
    """Time that the final arms of one sweep held, whoever trained them."""

    def __init__(self, held: Mapping[str, Held] = MappingProxyType({})) -> None:
        self.held = dict(held)  # by signature
        self.all = sum(held.values(), Held())
        self._put_s = time.monotonic()
        self._is_stored = True

    @classmethod
    def stored(cls, objects: ObjectStore, sweep: str) -> Spent:
        """Times as stored. Raises StoreError when they cannot be read."""
        return cls(objects.get_derived(_name(sweep), _from_json) or {})

    def add(self, record: ArmRecord, gpus: float) -> None:
        """A final arm, and the GPUs of each of its places; of one that is known nothing changes.

        An arm that was forgotten and trained again is known by its new record alone.
        """
        seconds = record.held_s
        known = self.held.get(record.signature)
        if known is None or known.seconds != seconds:
            self.held[record.signature] = now = Held(1, seconds, gpus * seconds)
            self.all = self.all + now - (known or Held())
            self._is_stored = False

    def complete(self, runs: ArmStore, space: SearchSpace, final: Iterable[str]) -> None:
        """Read the records of those of the ``final`` arms that are not known."""
        missing = [signature for signature in final if signature not in self.held]
        for record in at_once(runs.record, missing):
            if record is not None and record.is_final:
                self.add(record, gpus_held(record, space))

    def total(self, signatures: Iterable[str]) -> Held:
        """Time that these arms held; arms that are not known count nothing."""
        known = (self.held[s] for s in dict.fromkeys(signatures) if s in self.held)
        return sum(known, Held())

    def put(self, objects: ObjectStore, sweep: str, *, now: bool = False) -> None:
        """Store it, where it has changed and was not stored just before."""
        if not self._is_stored and (now or time.monotonic() > self._put_s + PUT_EVERY_S):
            plain = {s: [one.seconds, one.gpu_seconds] for s, one in self.held.items()}
            objects.put_json(_name(sweep), plain)
            self._is_stored, self._put_s = True, time.monotonic()


def held_text(held: Held) -> str:
    """Time that arms held, in words.

    >>> held_text(Held(3, 119.7)), held_text(Held(3, 900.0)), held_text(Held(8, 36e3, 9e3))
    ('2 min 0 s', '15 min', '10.0 h (2.5 GPU-hours)')
    """
    gpu = f" ({held.gpu_seconds / HOUR_S:,.2g} GPU-hours)" if held.gpu_seconds else ""
    return f"{_time_text(held.seconds)}{gpu}"


def _time_text(seconds: float) -> str:
    rounded = round(seconds)
    if rounded < 600:
        return f"{rounded // 60} min {rounded % 60} s" if rounded >= 60 else f"{rounded} s"
    return f"{rounded / 60:.0f} min" if rounded < 5400 else f"{rounded / HOUR_S:,.1f} h"


def gpus_of(config: ArmConfig, space: SearchSpace, processes: int = 1) -> float:
    """Default GPUs of each of an arm's places; 1 where ``gpus_per_arm`` is "measured"."""
    if config.device != "cuda":
        return 0.0
    is_one_gpu = processes > 1 or space.gpus_per_arm == "measured"
    return 1.0 if is_one_gpu else float(space.gpus_per_arm)


def gpus_held(record: ArmRecord, space: SearchSpace) -> float:
    """GPUs of each place of a trained arm, by as many processes as trained it last."""
    return gpus_of(record.config, space, int(record.environment.get("processes", 1)))


def put_estimate(objects: ObjectStore, sweep: str, estimate: Mapping[str, Json]) -> None:
    """Store what ``estimate_entry`` said before anything was trained."""
    objects.put_json(_estimate(sweep), dict(estimate))


def stored_estimate(objects: ObjectStore, sweep: str) -> dict[str, Json] | None:
    """Stored estimate of a sweep; None: there is none."""
    return objects.get_derived(_estimate(sweep), dict[str, Json])


def estimated_seconds(
    estimate: Mapping[str, Json] | None, arms: Iterable[tuple[str, bool]]
) -> float | None:
    """Estimated seconds of arms, by setting and whether constrained; None where one has none."""
    seconds = (estimate or {}).get("seconds_per_arm", {})
    kinds = ("unconstrained", "constrained")
    try:
        return sum(float(seconds[setting][kinds[constrained]]) for setting, constrained in arms)
    except KeyError:
        return None


def _from_json(plain: Mapping[str, Json]) -> dict[str, Held]:
    return {s: Held(1, float(seconds), float(gpu)) for s, (seconds, gpu) in plain.items()}


def _estimate(sweep: str) -> str:
    return f"{folder(sweep)}/estimate.json"


def _name(sweep: str) -> str:
    return f"{folder(sweep)}/spent.json"
