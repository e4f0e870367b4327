"""Stored proposals: a point, put before its arms start, and what became of it.

Below the storage root:

    sweeps/NAME/proposals/<setting>/<k>.json       the point; the first one put is the proposal,
                                                   and is never put again
    sweeps/NAME/proposals/<setting>/judged.json    of every judged proposal the point, what it came
                                                   to, and how its arms ended: one read
    sweeps/NAME/retired.json                       settings whose search broke in the last run

judged.json is derived from records, and may lag behind them: what is damaged, missing, or judged by
other rules is judged again by whoever needs it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, fields

from sweep.study.definition import folder
from sweep.study.pairs import Hindrance, ProposalResult
from trainables.config.renamed import renamed
from trainables.plain import Json, StoredPlain, with_leaves
from trainables.records.arm_record import ArmRecord, Outcome, Status
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import at_once

Point = dict[str, Json]  # dotted field of ArmConfig -> value
# Raise it when the same records come to another outcome than before: stored ones are judged again.
JUDGING_VERSION = 4
_JUDGED = "judged"
_JUDGED_PACE = 20.0  # times as long as one took until the next one is put
_RENAMED = {  # fields by the names that earlier versions stored
    "useful": "beats_trivial",
    "told_objective": "observed_objective",
    "told_missing_share": "observed_missing_share",
}
_WORDS = {  # infinities, and hindrances by the words that earlier versions stored
    "inf": math.inf,
    "-inf": -math.inf,
    "vacuous": "not binding",
    "not useful": "beats no trivial predictor",
}


@dataclass(frozen=True)
class Observation:
    """The observation of one finished proposal that the search learns from."""

    number: int
    point: Point
    outcome: Outcome
    objective: float  # mean over the search seeds that finished, lower is better; NaN when none did
    # Worst layer, mean over the seeds; where one ended early the worst of the others, and of a
    # stopped one as last reported.
    worst_missing_share: float

    @property
    def is_usable(self) -> bool:
        """True when it says something of its point; a failure does not: absence is no success."""
        if self.outcome == "feasible":
            return math.isfinite(self.objective) and not math.isnan(self.worst_missing_share)
        return self.outcome != "failed"


@dataclass(frozen=True)
class ArmEnd(StoredPlain):
    """The end of one arm: the part of its record that listings need."""

    signature: str
    status: Status
    reason: str
    warnings: tuple[str, ...]
    code: str = ""  # that trained it; empty: it does not say
    trained_for: str = ""  # the sweep that trained it; empty: it does not say
    ended_ms: int = 0  # of failures alone

    @classmethod
    def from_record(cls, record: ArmRecord) -> ArmEnd:
        """The end of an arm that a final record holds."""
        return cls(
            record.signature,
            record.status,
            record.reason,
            tuple(record.warnings),
            record.code,
            record.trained_for,
            record.ended_ms if record.status == "failed" else 0,
        )


def record_key(record: ArmRecord | None) -> str:
    """A key that tells a final record from others of its arm; empty: there is no final record.

    A verdict holds beside the record that it was judged beside, and no other.
    """
    if record is None or not record.is_final:
        return ""
    return f"{record.signature} {record.started_ms} {record.code}"


@dataclass(frozen=True)
class ProposalOutcome(StoredPlain):
    """The outcome of one proposal over its search seeds. Small: all stay in memory."""

    number: int
    outcome: Outcome
    objective: float  # NaN unless every seed finished
    worst_missing_share: float  # NaN unless every seed finished
    beats_trivial: bool
    can_win: bool
    demanded_descent: float  # the fraction of f0 that all layers together are asked to remove
    hindrance: Hindrance  # what keeps it from winning
    certificate: str  # what the held-out units say of the verdict
    arms: tuple[ArmEnd, ...]  # how the constrained ones ended, in the order of the search seeds
    # The search's observation, from the seeds that measured something; NaN when none did.
    observed_objective: float
    observed_missing_share: float
    # In the metric's mean; NaN unless every seed has both to compare, and where an earlier version
    # judged.
    gain: float = math.nan
    # ``record_key`` of its unconstrained arms; empty where an earlier version judged.
    beside: tuple[str, ...] = ()

    @property
    def signatures(self) -> tuple[str, ...]:
        """Signatures of the constrained arms, in the order of the search seeds."""
        return tuple(arm.signature for arm in self.arms)

    @property
    def reason(self) -> str:
        """The first reason that an arm gives for its end; empty when they finished."""
        return next((arm.reason for arm in self.arms if arm.reason), "")

    def holds_beside(self, records: tuple[str, ...]) -> bool:
        """True when it was judged beside these, or by an earlier version, which does not say."""
        return self.beside in ((), records)

    def observation(self, point: Point) -> Observation:
        """The observation of its ``point`` that the search learns from."""
        return Observation(
            self.number, point, self.outcome, self.observed_objective, self.observed_missing_share
        )

    @classmethod
    def from_result(cls, result: ProposalResult) -> ProposalOutcome:
        """The summary of a joined proposal."""
        arms = tuple(ArmEnd.from_record(pair.constrained) for pair in result.pairs)
        beside = tuple(record_key(pair.unconstrained) for pair in result.pairs)
        own = ("arms", "beside")
        same = {f.name: getattr(result, f.name) for f in fields(cls) if f.name not in own}
        return cls(**same, arms=arms, beside=beside)

    def to_json(self) -> dict[str, Json]:
        """Plain values; NaN becomes null, an infinity a word: a layer may miss without bound."""
        values = {name: v for name, v in super().to_json().items() if name != "number"}
        plain = with_leaves(values, float, _number_or_word)
        return {**plain, "judging_version": JUDGING_VERSION}

    @classmethod
    def from_stored(cls, number: int, plain: Mapping[str, Json]) -> ProposalOutcome | None:
        """The outcome that ``to_json`` wrote; None where other rules judged."""
        if plain.get("judging_version") != JUDGING_VERSION:
            return None
        values = {_RENAMED.get(name, name): value for name, value in plain.items()}
        for name in ("judging_version", "difference"):  # an earlier gain, with the other sign
            values.pop(name, None)
        return cls.from_json({n: _restored(v) for n, v in values.items()} | {"number": number})


def _number_or_word(value: float) -> float | str | None:
    return value if math.isfinite(value) else None if math.isnan(value) else str(value)


def _restored(value: Json) -> Json:
    """The value of a field that was stored: NaN for null, a number or another word for a word."""
    if value is None:
        return math.nan
    return _WORDS.get(value, value) if isinstance(value, str) else value


@dataclass(frozen=True)
class StoredProposal:
    """A proposal as the store holds it."""

    number: int
    point: Point
    outcome: ProposalOutcome | None

    def verdict_on(self, signatures: Sequence[str]) -> ProposalOutcome | None:
        """The outcome, where it was judged from these constrained arms; else None."""
        is_same = self.outcome is not None and self.outcome.signatures == tuple(signatures)
        return self.outcome if is_same else None


def known_of(
    points: Mapping[int, Point], outcomes: Mapping[int, ProposalOutcome]
) -> tuple[list[Observation], list[Point]]:
    """The observations for the search of a setting, and the points that have no outcome yet."""
    observations = [outcome.observation(points[number]) for number, outcome in outcomes.items()]
    return observations, [point for number, point in points.items() if number not in outcomes]


def put_proposal(
    objects: ObjectStore, sweep: str, setting: str, number: int, point: Point
) -> Point:
    """Store the point and return the stored one: a point that is there already is the proposal."""
    content = json.dumps(point, sort_keys=True, allow_nan=False).encode()
    return renamed(json.loads(objects.put_once(_name(sweep, setting, number), content)))


def put_judged(
    objects: ObjectStore,
    sweep: str,
    setting: str,
    points: Mapping[int, Point],
    outcomes: Mapping[int, ProposalOutcome],
) -> None:
    """Store the outcomes of a setting's judged proposals, in the place of what is there."""
    plain = {str(n): {"point": points[n], "outcome": o.to_json()} for n, o in outcomes.items()}
    objects.put_json(_judged_name(sweep, setting), plain)


def drop_outcomes(objects: ObjectStore, sweep: str, setting: str, numbers: Container[int]) -> None:
    """Forget the outcomes of some proposals: arms of them are trained again."""
    name = _judged_name(sweep, setting)
    known = objects.get_derived(name, lambda plain: {int(n): one for n, one in plain.items()}) or {}
    kept = {str(n): one for n, one in known.items() if n not in numbers}
    if len(kept) < len(known):
        objects.put_json(name, kept)


class JudgedFiles:
    """judged.json of all settings, as the driver of a sweep writes them.

    While it runs a twentieth of its time at most goes into them, whatever one costs: a file grows
    with the proposals of its setting, and readers judge what is not there yet.
    """

    def __init__(
        self,
        objects: ObjectStore,
        sweep: str,
        points: Mapping[str, Mapping[int, Point]],
        outcomes: Mapping[str, Mapping[int, ProposalOutcome]],
    ) -> None:
        """Hold references to points and outcomes, which are looked at when files are put."""
        self._objects, self._sweep = objects, sweep
        self._points, self._outcomes = points, outcomes
        self._changed: dict[str, None] = {}  # settings, who waits longest first
        self._next_s = -math.inf  # monotonic clock
        self.is_ours = True  # False: another driver writes them now, and this one no more

    def changed(self, setting: str) -> None:
        """Mark a setting of which a proposal was judged, or a stored verdict no longer holds."""
        self._changed[setting] = None

    def put(self, *, every: bool = False) -> None:
        """Put the file that has waited longest, when it is time; or ``every`` one that changed."""
        while self.is_ours and self._changed and (every or time.monotonic() >= self._next_s):
            setting, began_s = next(iter(self._changed)), time.monotonic()
            points, outcomes = self._points[setting], self._outcomes[setting]
            put_judged(self._objects, self._sweep, setting, points, outcomes)
            # Taken off the list once it is stored: a storage that is away must not lose it.
            del self._changed[setting]
            now_s = time.monotonic()
            self._next_s = now_s + _JUDGED_PACE * (now_s - began_s)


def put_retired(objects: ObjectStore, sweep: str, retired: Mapping[str, str]) -> None:
    """Store the settings that get no more proposals in this run, and why; empty: none."""
    if retired:
        objects.put_json(_retired(sweep), dict(retired))
    else:
        objects.delete(_retired(sweep))


def retired_settings(objects: ObjectStore, sweep: str) -> dict[str, str]:
    """Settings whose search broke in the sweep's last run, or in the running one, and why."""
    return objects.get_derived(_retired(sweep), dict[str, str]) or {}


def all_proposals(
    objects: ObjectStore, sweep: str, settings: Sequence[str]
) -> dict[str, list[StoredProposal]]:
    """Every stored proposal of some settings, by number: one listing, and one read for a setting.

    A point is read by itself where judged.json does not have it yet.
    """
    proposals: dict[str, list[StoredProposal]] = {setting: [] for setting in settings}
    files = [path.removesuffix(".json").rpartition("/") for path in objects.tree(_proposals(sweep))]
    numbers = sorted((s, int(stem)) for s, _, stem in files if s in proposals and stem.isdigit())
    with_judged = [s for s, _, stem in files if s in proposals and stem == _JUDGED]
    outcomes = at_once(lambda setting: _judged(objects, sweep, setting), with_judged)
    judged = dict(zip(with_judged, outcomes, strict=True))
    open_ = [(s, number) for s, number in numbers if number not in judged.get(s, {})]
    points = at_once(lambda key: objects.get_value(_name(sweep, *key), renamed), open_)
    read = dict(zip(open_, points, strict=True))
    for setting, number in numbers:
        if (setting, number) not in read:
            proposals[setting].append(judged[setting][number])
        elif (point := read[setting, number]) is not None:  # else deleted since the listing
            proposals[setting].append(StoredProposal(number, point, None))
    return proposals


def _judged(objects: ObjectStore, sweep: str, setting: str) -> dict[int, StoredProposal]:
    def parse(plain: Mapping[str, Json]) -> dict[int, StoredProposal]:
        return {
            int(n): StoredProposal(
                int(n), renamed(one["point"]), ProposalOutcome.from_stored(int(n), one["outcome"])
            )
            for n, one in plain.items()
        }

    return objects.get_derived(_judged_name(sweep, setting), parse) or {}


def _retired(sweep: str) -> str:
    return f"{folder(sweep)}/retired.json"


def _judged_name(sweep: str, setting: str) -> str:
    return f"{_proposals(sweep)}/{setting}/{_JUDGED}.json"


def _name(sweep: str, setting: str, number: int) -> str:
    return f"{_proposals(sweep)}/{setting}/{number:06d}.json"


def _proposals(sweep: str) -> str:
    return f"{folder(sweep)}/proposals"
