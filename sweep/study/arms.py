"""Arms of a sweep: which ones its definition and its stored proposals ask for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from sweep.study.definition import Definition
from sweep.study.proposals import StoredProposal, all_proposals
from trainables.config.arm import ArmConfig
from trainables.plain import Json
from trainables.records.arm_record import EVAL_SECONDS, TRAIN_SECONDS, ArmRecord, Report
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

KEPT_BASELINES = 64  # records of unconstrained arms that are kept in memory


@dataclass(frozen=True)
class Arm:
    """One training run to hand out."""

    config: ArmConfig
    signature: str
    setting: str
    proposal: int | None  # None: the unconstrained arm of a search seed, shared by proposals

    @cached_property
    def unconstrained_signature(self) -> str:
        """The signature without the constraint: alike in arms that may share batches."""
        return self.config.unconstrained().signature()


@dataclass
class LiveArm:
    """The progress of an arm that was handed out."""

    arm: Arm
    since: float  # monotonic clock
    gpus: float = 0.0  # the share of a GPU that each of its processes holds
    processes: int = 1  # that train it
    together: int = 1  # arms that these processes train with it, itself included
    report: Report | None = None
    reported: float = 0.0  # when; monotonic clock
    fetching: str = ""  # how far its machine is with its data, until it reports

    @property
    def held_s(self) -> float:
        """Seconds that it has held places, as its record counts them; 0 until it reports."""
        if self.report is None:
            return 0.0
        before = (self.report.scalars.get(name, 0.0) for name in (TRAIN_SECONDS, EVAL_SECONDS))
        since = (time.monotonic() - self.reported) / self.together
        return self.processes * (sum(before) + since)  # a group's seconds are each arm's share


OnRecord = Callable[[Arm, bool], None]  # the arm, and whether its record is final


def arms_of_proposal(
    definition: Definition, setting: str, number: int, point: Mapping[str, Json]
) -> list[Arm]:
    """The constrained arms of one proposal, in the order of the search seeds."""
    configs = [
        definition.space.run(definition.space.setting(setting), point, seed=s)
        for s in definition.space.search_seeds
    ]
    return [Arm(config, definition.name_of(config), setting, number) for config in configs]


def baselines(definition: Definition, setting: str) -> list[Arm]:
    """The unconstrained arms of one setting, in the order of the search seeds."""
    configs = [
        definition.space.run(definition.space.setting(setting), {}, seed=seed).unconstrained()
        for seed in definition.space.search_seeds
    ]
    return [Arm(config, definition.name_of(config), setting, None) for config in configs]


def arms_by_proposal(
    objects: ObjectStore, definition: Definition
) -> Iterator[tuple[str, StoredProposal, list[Arm]]]:
    """Setting, proposal and its constrained arms of everything stored, in the sweep's order."""
    settings = [setting.name for setting in definition.space.settings]
    for setting, proposals in all_proposals(objects, definition.name, settings).items():
        for stored in proposals:
            arms = arms_of_proposal(definition, setting, stored.number, stored.point)
            yield setting, stored, arms


def stored_arms(objects: ObjectStore, definition: Definition) -> Iterator[Arm]:
    """Every arm asked for so far, each signature once.

    Unconstrained arms come first, so that the others can name their baseline's run.
    """
    seen: set[str] = set()

    def every() -> Iterator[Arm]:
        for setting in definition.space.settings:
            yield from baselines(definition, setting.name)
        for _, _, arms in arms_by_proposal(objects, definition):
            yield from arms

    for arm in every():
        if arm.signature not in seen:
            seen.add(arm.signature)
            yield arm


def all_judged(objects: ObjectStore, definition: Definition, *, but: Container[str] = ()) -> bool:
    """True when every proposal asked for is stored, and judged on every search seed.

    ``but`` are settings that are passed over.
    """
    return is_judged(definition, arms_by_proposal(objects, definition), but=but)


def is_judged(
    definition: Definition,
    proposals: Iterable[tuple[str, StoredProposal, list[Arm]]],
    *,
    but: Container[str] = (),
) -> bool:
    """True when every proposal asked for is judged among ``proposals``, which were read before."""
    judged: Counter[str] = Counter()
    for setting, stored, arms in proposals:
        judged[setting] += stored.verdict_on([arm.signature for arm in arms]) is not None
    space = definition.space
    numbers = {s.name: space.proposals_of(s) for s in space.settings if s.name not in but}
    return all(judged[setting] >= wanted for setting, wanted in numbers.items())


class RecordReader:
    """Records by signature; final ones of baselines are kept: all pairs of a setting share them."""

    def __init__(self, runs: ArmStore) -> None:
        self._runs = runs
        self._kept: dict[str, ArmRecord] = {}

    def __call__(self, signature: str) -> ArmRecord | None:
        """The record of an arm; None where it never reported."""
        record = self._kept.get(signature) or self._runs.record(signature)
        if record is not None:
            self.keep(record)
        return record

    def keep(self, record: ArmRecord) -> None:
        """Keep a record that was read, if it is a final one of a baseline."""
        if record.is_final and record.config.constraint is None:
            if len(self._kept) >= KEPT_BASELINES:
                self._kept.clear()
            self._kept[record.signature] = record
