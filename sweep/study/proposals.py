"""Stored proposals: a point, put before its arms start, and later its outcome.

Below the storage root:

    sweeps/NAME/proposals/<setting>/<k>.json          the point; the first one put is the proposal
    sweeps/NAME/proposals/<setting>/<k>.outcome.json  what it came to, and the signatures judged
    sweeps/NAME/proposals/<setting>/judged.json       both, of every judged proposal: one read
    sweeps/NAME/retired.json                          settings whose search broke in the last run

Outcomes and judged.json are derived from records: what is damaged, missing, or judged by other
rules is passed over, and made again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial

from sweep.study.definition import folder
from sweep.study.pairs import Hindrance, ProposalResult
from trainables.plain import Json, finite
from trainables.records.arm_record import ArmRecord, Outcome, Status
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import at_once

Point = dict[str, Json]  # dotted field of ArmConfig -> value
# Raise it when the same records come to another outcome than before: stored ones are judged again.
JUDGING_VERSION = 4
_JUDGED = "judged.json"


@dataclass(frozen=True)
class Observation:
    """What one finished proposal tells the search."""

    number: int
    point: Point
    outcome: Outcome
    objective: float  # mean over the search seeds that finished, lower is better; NaN when none did
    # Worst layer, mean over the seeds; where one ended early the worst of the others, and of a
    # stopped one as last reported.
    worst_missing_share: float

    @property
    def can_be_told(self) -> bool:
        """Whether it says something of its point: a failure does not, absence is never success."""
        if self.outcome == "feasible":
            return math.isfinite(self.objective) and not math.isnan(self.worst_missing_share)
        return self.outcome != "failed"


@dataclass(frozen=True)
class ArmEnd:
    """How one arm ended: what a listing of many needs of its record, and nothing of when."""

    signature: str
    status: Status
    reason: str
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, record: ArmRecord) -> ArmEnd:
        """The end that a final record tells of."""
        return cls(record.signature, record.status, record.reason, tuple(record.warnings))

    @classmethod
    def from_json(cls, plain: Mapping[str, Json]) -> ArmEnd:
        """The end that ``asdict`` wrote."""
        return cls(**{**plain, "warnings": tuple(plain["warnings"])})


@dataclass(frozen=True)
class ProposalOutcome:
    """What one proposal came to over its search seeds. Small: one a proposal is in memory."""

    number: int
    outcome: Outcome
    objective: float  # NaN unless every seed finished
    worst_missing_share: float  # NaN unless every seed finished
    useful: bool
    can_win: bool
    demanded_descent: float  # the share of f0 that all layers together are asked to remove
    hindrance: Hindrance  # what keeps it from winning
    certificate: str  # what the held-out units say of the verdict
    arms: tuple[ArmEnd, ...]  # how the constrained ones ended, in the order of the search seeds
    # What the search is told, from the seeds that measured something; NaN when none did.
    told_objective: float
    told_missing_share: float
    # Constrained minus unconstrained mean of the metric; NaN unless every seed has both to compare,
    # and where an earlier version judged.
    difference: float = math.nan

    @property
    def signatures(self) -> tuple[str, ...]:
        """Of the constrained arms, in the order of the search seeds."""
        return tuple(arm.signature for arm in self.arms)

    @property
    def reason(self) -> str:
        """Why the first of its arms that says so ended as it did; empty when they finished."""
        return next((arm.reason for arm in self.arms if arm.reason), "")

    def told(self, point: Point) -> Observation:
        """What the search learns from it."""
        return Observation(
            self.number, point, self.outcome, self.told_objective, self.told_missing_share
        )

    @classmethod
    def of(cls, result: ProposalResult) -> ProposalOutcome:
        """The summary of a joined proposal."""
        arms = tuple(ArmEnd.of(pair.constrained) for pair in result.pairs)
        same = {f.name: getattr(result, f.name) for f in fields(cls) if f.name != "arms"}
        return cls(**same, arms=arms)

    def to_json(self) -> dict[str, Json]:
        """Plain values; NaN becomes null."""
        plain = {name: finite(value) for name, value in vars(self).items() if name != "number"}
        arms = [asdict(arm) for arm in self.arms]
        return plain | {"judging_version": JUDGING_VERSION, "arms": arms}

    @classmethod
    def from_json(cls, number: int, plain: Mapping[str, Json]) -> ProposalOutcome | None:
        """What ``to_json`` wrote; None where other rules judged."""
        values: dict[str, Json] = {n: math.nan if v is None else v for n, v in plain.items()}
        if values.pop("judging_version", None) != JUDGING_VERSION:
            return None
        values["arms"] = tuple(map(ArmEnd.from_json, plain["arms"]))
        return cls(number=number, **values)


@dataclass(frozen=True)
class StoredProposal:
    """A proposal as the store holds it."""

    number: int
    point: Point
    outcome: ProposalOutcome | None

    def verdict_on(self, signatures: Sequence[str]) -> ProposalOutcome | None:
        """Its outcome, where it was judged from these constrained arms."""
        is_theirs = self.outcome is not None and self.outcome.signatures == tuple(signatures)
        return self.outcome if is_theirs else None


def put_proposal(
    objects: ObjectStore, sweep: str, setting: str, number: int, point: Point
) -> Point:
    """Store the point and return the stored one: a point that is there already is the proposal."""
    content = json.dumps(point, sort_keys=True, allow_nan=False).encode()
    stored: Point = json.loads(objects.put_once(_name(sweep, setting, number), content))
    return stored


def put_outcome(objects: ObjectStore, sweep: str, setting: str, outcome: ProposalOutcome) -> None:
    """Store what a proposal came to; with more search seeds it replaces the earlier one."""
    objects.put_json(_name(sweep, setting, outcome.number, ".outcome"), outcome.to_json())


def put_judged(
    objects: ObjectStore,
    sweep: str,
    setting: str,
    points: Mapping[int, Point],
    outcomes: Mapping[int, ProposalOutcome],
) -> None:
    """Store every judged proposal of a setting as one object, after the outcomes themselves."""
    objects.put_json(f"{_proposals(sweep)}/{setting}/{_JUDGED}", _judged_plain(points, outcomes))


def complete_judged(
    objects: ObjectStore,
    sweep: str,
    points: Mapping[str, Mapping[int, Point]],
    outcomes: Mapping[str, Mapping[int, ProposalOutcome]],
) -> None:
    """``put_judged`` of every setting, of those alone whose stored object says something else."""

    def complete(setting: str) -> None:
        wanted = json.loads(json.dumps(_judged_plain(points[setting], outcomes[setting])))
        there = objects.get_derived(f"{_proposals(sweep)}/{setting}/{_JUDGED}", lambda plain: plain)
        if there != wanted:
            put_judged(objects, sweep, setting, points[setting], outcomes[setting])

    at_once(complete, [setting for setting, judged in outcomes.items() if judged])


def _judged_plain(
    points: Mapping[int, Point], outcomes: Mapping[int, ProposalOutcome]
) -> dict[str, Json]:
    return {
        str(number): {"point": points[number], "outcome": outcome.to_json()}
        for number, outcome in outcomes.items()
    }


def drop_outcome(objects: ObjectStore, sweep: str, setting: str, number: int) -> None:
    """Forget what a proposal came to: an arm of it is trained again."""
    objects.delete(f"{_proposals(sweep)}/{setting}/{_JUDGED}")  # first: nobody believes it then
    objects.delete(_name(sweep, setting, number, ".outcome"))


def put_retired(objects: ObjectStore, sweep: str, retired: Mapping[str, str]) -> None:
    """Store which settings get no more proposals in this run, and why; empty: none."""
    if retired:
        objects.put_json(_retired(sweep), dict(retired))
    else:
        objects.delete(_retired(sweep))


def retired_settings(objects: ObjectStore, sweep: str) -> dict[str, str]:
    """Settings whose search broke in the sweep's last run, or in the running one, and why."""
    return objects.get_derived(_retired(sweep), dict[str, str]) or {}


def listed_proposals(objects: ObjectStore, sweep: str, setting: str) -> dict[int, bool]:
    """Whether each stored proposal of one setting has an outcome: one listing, nothing is read."""
    return _listed(objects.names(f"{_proposals(sweep)}/{setting}"))


def stored_point(objects: ObjectStore, sweep: str, setting: str, number: int) -> Point | None:
    """The point of one stored proposal, or None."""
    return objects.get_value(_name(sweep, setting, number), dict[str, Json])


def stored_proposals(objects: ObjectStore, sweep: str, setting: str) -> list[StoredProposal]:
    """Every stored proposal of one setting, by number: one listing, one read per object."""
    listed = listed_proposals(objects, sweep, setting).items()
    found = at_once(lambda item: _stored(objects, sweep, setting, *item), listed)
    return [proposal for proposal in found if proposal is not None]


def all_proposals(
    objects: ObjectStore, sweep: str, settings: Sequence[str]
) -> dict[str, list[StoredProposal]]:
    """``stored_proposals`` of all settings at once: one listing, and one read for a setting.

    An object is read by itself where judged.json does not have it yet.
    """
    names: dict[str, list[str]] = {setting: [] for setting in settings}
    for path in objects.tree(_proposals(sweep)):
        setting, _, name = path.rpartition("/")
        if setting in names:
            names[setting].append(name)
    with_judged = [setting for setting in settings if _JUDGED in names[setting]]
    judged = dict(
        zip(with_judged, at_once(lambda s: _judged(objects, sweep, s), with_judged), strict=True)
    )
    listed = [
        (setting, number, has_outcome)
        for setting in settings
        for number, has_outcome in _listed(names[setting]).items()
    ]

    def read(item: tuple[str, int, bool]) -> StoredProposal | None:
        setting, number, has_outcome = item
        known = judged.get(setting, {}).get(number) if has_outcome else None
        return known if known and known.outcome else _stored(objects, sweep, *item)

    found: dict[str, list[StoredProposal]] = {setting: [] for setting in settings}
    for (setting, _, _), proposal in zip(listed, at_once(read, listed), strict=True):
        if proposal is not None:
            found[setting].append(proposal)
    return found


def _listed(names: Sequence[str]) -> dict[int, bool]:
    outcomes = {n.removesuffix(".outcome.json") for n in names if n.endswith(".outcome.json")}
    numbers = [n for n in (name.removesuffix(".json") for name in names) if n.isdigit()]
    return {int(n): n in outcomes for n in sorted(numbers, key=int)}


def _stored(
    objects: ObjectStore, sweep: str, setting: str, number: int, has_outcome: bool
) -> StoredProposal | None:
    """One proposal; None where it was deleted since the listing."""
    point = stored_point(objects, sweep, setting, number)
    if point is None:
        return None
    outcome = None
    if has_outcome:
        name = _name(sweep, setting, number, ".outcome")
        outcome = objects.get_derived(name, partial(ProposalOutcome.from_json, number))
    return StoredProposal(number, point, outcome)


def _judged(objects: ObjectStore, sweep: str, setting: str) -> dict[int, StoredProposal]:
    def parse(plain: Mapping[str, Json]) -> dict[int, StoredProposal]:
        return {
            int(n): StoredProposal(
                int(n), one["point"], ProposalOutcome.from_json(int(n), one["outcome"])
            )
            for n, one in plain.items()
        }

    return objects.get_derived(f"{_proposals(sweep)}/{setting}/{_JUDGED}", parse) or {}


def _retired(sweep: str) -> str:
    return f"{folder(sweep)}/retired.json"


def _name(sweep: str, setting: str, number: int, kind: str = "") -> str:
    return f"{_proposals(sweep)}/{setting}/{number:06d}{kind}.json"


def _proposals(sweep: str) -> str:
    return f"{folder(sweep)}/proposals"
