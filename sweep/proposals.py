"""Stored proposals: the point is put before its arms start, the outcome when they are final.

Below the storage root:

    sweeps/NAME/proposals/<setting>/<k>.json          the point; the first one put is the proposal
    sweeps/NAME/proposals/<setting>/<k>.outcome.json  what it came to, and the signatures judged
    sweeps/NAME/retired.json                          settings whose search broke in the last run
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sweep.definition import folder
from sweep.selection import ProposalResult
from trainables.object_store import ObjectStore
from trainables.results import Outcome

Json = Any
Point = dict[str, Json]  # dotted field of RunConfig -> value


@dataclass(frozen=True)
class Told:
    """What one finished proposal tells the search."""

    number: int
    point: Point
    outcome: Outcome
    objective: float  # mean over the search seeds, lower is better; NaN unless every seed finished
    worst_missing_share: float  # worst over seeds and layers; NaN unless every seed finished

    @property
    def is_measured(self) -> bool:
        """Whether both numbers are there: absence is never success."""
        return (
            self.outcome in ("feasible", "infeasible")
            and math.isfinite(self.objective)
            and not math.isnan(self.worst_missing_share)
        )


@dataclass(frozen=True)
class ProposalOutcome:
    """What one proposal came to over its search seeds. Small: one a proposal is in memory."""

    number: int
    outcome: Outcome
    objective: float  # NaN unless every seed finished
    worst_missing_share: float  # NaN unless every seed finished
    useful: bool
    can_win: bool
    signatures: tuple[str, ...]  # the constrained arms, in the order of the search seeds

    def told(self, point: Point) -> Told:
        """What the search learns from it."""
        return Told(self.number, point, self.outcome, self.objective, self.worst_missing_share)

    @classmethod
    def of(cls, result: ProposalResult) -> ProposalOutcome:
        """The summary of a joined proposal."""
        return cls(
            number=result.number,
            outcome=result.outcome,
            objective=result.objective,
            worst_missing_share=result.worst_missing_share,
            useful=result.useful,
            can_win=result.can_win,
            signatures=tuple(pair.constrained.signature for pair in result.pairs),
        )


@dataclass(frozen=True)
class StoredProposal:
    """A proposal as the store holds it."""

    number: int
    point: Point
    outcome: ProposalOutcome | None


def put_proposal(
    objects: ObjectStore, sweep: str, setting: str, number: int, point: Point
) -> Point:
    """Store the point and return the stored one: a point that is there already is the proposal."""
    content = json.dumps(point, sort_keys=True, allow_nan=False).encode()
    stored: Point = json.loads(objects.put_once(_name(sweep, setting, number), content))
    return stored


def put_outcome(objects: ObjectStore, sweep: str, setting: str, outcome: ProposalOutcome) -> None:
    """Store what a proposal came to; with more search seeds it replaces the earlier one."""
    plain = {
        "outcome": outcome.outcome,
        "objective": _or_none(outcome.objective),
        "worst_missing_share": _or_none(outcome.worst_missing_share),
        "useful": outcome.useful,
        "can_win": outcome.can_win,
        "signatures": list(outcome.signatures),
    }
    objects.put_json(_name(sweep, setting, outcome.number, ".outcome"), plain)


def drop_outcome(objects: ObjectStore, sweep: str, setting: str, number: int) -> None:
    """Forget what a proposal came to: an arm of it is trained again."""
    objects.delete(_name(sweep, setting, number, ".outcome"))


def put_retired(objects: ObjectStore, sweep: str, retired: Mapping[str, str]) -> None:
    """Store which settings get no more proposals in this run, and why; empty: none."""
    if retired:
        objects.put_json(_retired(sweep), dict(retired))
    else:
        objects.delete(_retired(sweep))


def retired_settings(objects: ObjectStore, sweep: str) -> dict[str, str]:
    """Settings whose search broke in the sweep's last run, or in the running one, and why."""

    def parse(plain: Mapping[str, Json]) -> dict[str, str]:
        return {setting: str(why) for setting, why in plain.items()}

    return objects.get_value(_retired(sweep), parse) or {}


def listed_proposals(objects: ObjectStore, sweep: str, setting: str) -> dict[int, bool]:
    """Whether each stored proposal of one setting has an outcome: one listing, nothing is read."""
    names = objects.names(f"{folder(sweep)}/proposals/{setting}")
    outcomes = {n.removesuffix(".outcome.json") for n in names if n.endswith(".outcome.json")}
    numbers = [n for n in (name.removesuffix(".json") for name in names) if n.isdigit()]
    return {int(n): n in outcomes for n in sorted(numbers, key=int)}


def stored_point(objects: ObjectStore, sweep: str, setting: str, number: int) -> Point | None:
    """The point of one stored proposal, or None."""
    return objects.get_value(_name(sweep, setting, number), _point)


def stored_proposals(objects: ObjectStore, sweep: str, setting: str) -> list[StoredProposal]:
    """Every stored proposal of one setting, by number: one listing, one read per object."""
    found = []
    for number, has_outcome in listed_proposals(objects, sweep, setting).items():
        point = stored_point(objects, sweep, setting, number)
        outcome = None
        if has_outcome:
            name = _name(sweep, setting, number, ".outcome")
            outcome = objects.get_value(name, partial(_outcome, number))
        if point is not None:  # else deleted since the listing
            found.append(StoredProposal(number, point, outcome))
    return found


def _point(plain: Json) -> Point:
    return {str(name): value for name, value in plain.items()}


def _outcome(number: int, plain: Mapping[str, Json]) -> ProposalOutcome:
    return ProposalOutcome(
        number=number,
        outcome=plain["outcome"],
        objective=_or_nan(plain["objective"]),
        worst_missing_share=_or_nan(plain["worst_missing_share"]),
        useful=plain["useful"],
        can_win=plain["can_win"],
        signatures=tuple(plain["signatures"]),
    )


def _retired(sweep: str) -> str:
    return f"{folder(sweep)}/retired.json"


def _name(sweep: str, setting: str, number: int, kind: str = "") -> str:
    return f"{folder(sweep)}/proposals/{setting}/{number:06d}{kind}.json"


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
