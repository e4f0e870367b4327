"""Reproduction of arms: what each came to before and now, number by number. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from sweep.results.provenance import device_s, place
from sweep.study.arms import Arm
from sweep.study.feasibility import judge
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.plain import Json, Plain, finite
from trainables.records.arm_record import ArmRecord, Status

# How far two equal values may be apart, as a fraction of the larger one.
TOLERANCE = 1e-6
_NOTHING = 1e-9  # a difference that is none where the numbers are about 0
Verdict = Literal["identical", "close", "differs"]
VERDICTS: Mapping[Verdict, str] = {
    "identical": "the same to the last digit",
    "close": f"the same to {TOLERANCE:.0e}",
    "differs": "differs",
}
SHOWN = 8  # differences of an arm that are listed
# said, but by themselves no reason for other numbers
_OURS = ("code", "commit", "dirty", "training_code")


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


def relative(one: Json, other: Json) -> float:
    """How far two values are apart, as a fraction of the larger; infinite unless both are numbers.

    >>> relative(4.0, 5.0), relative("finished", "failed")
    (0.2, inf)
    """
    if not all(isinstance(value, int | float) for value in (one, other)):
        return math.inf
    if abs(one - other) <= _NOTHING:
        return 0.0
    return float(abs(one - other) / max(abs(one), abs(other)))


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on several arms: that of the one farthest from the same."""
    return max(verdicts, key=list(VERDICTS).index)


# Of an evaluation: what records of before do not hold, so that it cannot be compared.
LATER = ("descent_ratio_counts", "descent_ratio_mean", "hidden_norms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Plain):
    """A value that differs, before and now."""

    what: str
    old: Json
    new: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberChange(Plain):
    """A number of a table's cell, before and now."""

    number: str
    old: float | None
    new: float | None
    change: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproducedArm(Plain):
    """An arm that was trained again."""

    signature: str
    arm: str
    setting: str
    proposal: int | None
    seed: int
    verdict: Verdict
    old_status: Status
    new_status: Status
    different: int
    largest_relative: float | None  # None: not a number, before or now
    differences: Sequence[Difference]
    environment: Sequence[Difference]
    old_seconds: float | None
    new_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproducedCell(Plain):
    """One arm of a table over its seeds."""

    setting: str
    arm: str
    proposal: int | None
    seeds: Sequence[int]
    verdict: Verdict
    numbers: Sequence[NumberChange]
    arms: Sequence[ReproducedArm]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction(Plain):
    """Results of arms that were trained again, beside the stored ones."""

    sweep: str
    verdict: Verdict
    tolerance: float
    not_compared: int
    cells: Sequence[ReproducedCell]
    records: str | None = None  # where the new ones stay


def reproduced_arm(arm: Arm, before: ArmRecord, now: ArmRecord) -> ReproducedArm:
    """One arm, in how it ended and in every number of its evaluation."""
    plain = [record.to_json() for record in (before, now)]
    there, here = ({name: one[name] for name in ("status", "evaluation")} for one in plain)
    if there["evaluation"] and here["evaluation"]:
        for name in LATER:
            if not there["evaluation"][name]:
                del there["evaluation"][name], here["evaluation"][name]
    changed = list(differences(there, here))
    farthest = max((relative(old, new) for _, old, new in changed), default=0.0)
    verdict: Verdict = "differs" if farthest > TOLERANCE else "close" if changed else "identical"
    return finite(
        ReproducedArm(
            signature=arm.signature,
            arm=arm.config.arm,
            setting=arm.setting,
            proposal=arm.proposal,
            seed=arm.config.seed,
            verdict=verdict,
            old_status=before.status,
            new_status=now.status,
            different=len(changed),
            largest_relative=farthest,
            differences=_listed(changed[:SHOWN]),
            environment=_listed(differences(place(before), place(now))),
            old_seconds=device_s(before) or None,
            new_seconds=device_s(now) or None,
        )
    )


def _listed(values: Iterable[tuple[str, Json, Json]]) -> list[Difference]:
    return [Difference(what=what, old=old, new=new) for what, old, new in values]


def is_same_place(environment: Sequence[Difference]) -> bool:
    """True if two environments agree in all that equal bits depend on."""
    return all(one.what.startswith(_OURS) for one in environment)


def number_changes(
    before: Sequence[ArmRecord],
    now: Sequence[ArmRecord],
    constraint: ConstraintConfig | None,
    tolerance: float,
) -> list[NumberChange]:
    """The numbers of a table's cell, before and now: of several seeds their means.

    Args:
        before: an arm on its seeds.
        now: the same, trained again.
        constraint: that of the pair, by which missing shares are measured; None: there is none.
        tolerance: the missing share that is still feasible.
    """
    old, new = (_numbers(records, constraint, tolerance) for records in (before, now))
    return [
        finite(
            NumberChange(
                number=name,
                old=old.get(name),
                new=new.get(name),
                change=new[name] - old[name] if name in old and name in new else None,
            )
        )
        for name in dict.fromkeys((*old, *new))
    ]


def _numbers(
    records: Sequence[ArmRecord], constraint: ConstraintConfig | None, tolerance: float
) -> dict[str, float]:
    """By the words that a person reads; empty where an arm measured nothing."""
    done = [record.evaluation for record in records if record.evaluation is not None]
    seconds = [device_s(record) for record in records]
    numbers: dict[str, float] = {}
    if done and len(done) == len(records):
        label = _label(records[0].config)
        numbers = {
            f"{label} at gamma {gamma}": fmean([m.scores[gamma] for m in done])
            for gamma in done[0].scores
        }
        for shift, by_severity in done[0].shift_scores.items():
            for severity in by_severity:
                scores = [m.shift_scores[shift][severity] for m in done]
                numbers[f"{label} under {shift} {severity}"] = fmean(scores)
        numbers[f"mean {label}"] = fmean([m.mean_over_gammas for m in done])
        numbers["ood_auc"] = fmean([m.ood_auc for m in done])
        numbers["objective"] = fmean([m.objective for m in done])
        losses = zip(*(m.held_out_losses() for m in done), strict=True)
        numbers |= {f"held-out loss, layer {n}": fmean(by_seed) for n, by_seed in enumerate(losses)}
        judged = None if constraint is None else judge(records, constraint, tolerance)
        if judged is not None:
            shares = enumerate(judged.held_out, start=judged.first_layer)
            numbers |= {f"missing share, layer {n}": share for n, share in shares}
    if all(seconds):
        numbers["seconds"] = fmean(seconds)
    return numbers


def _label(config: ArmConfig) -> str:
    return config.facts.metric.label
