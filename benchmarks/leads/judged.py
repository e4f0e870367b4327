"""Verdicts of a lead: paired differences to the plain frontier and to each arm.

Declared before the fresh seeds: the unit is the seed; what decides is the difference, per seed, of
a judged arm's unseen score and that of the seed's own plain frontier at the judged arm's seen
score, with the two-sided 95 % paired t interval. A lead is above the frontier where that interval
lies above 0, and ruled out where it lies below ``smallest``, the smallest effect of interest; a
judged arm whose seen score lies beyond every plain point of a seed has no match there, and the
seeds of which that holds are counted beside. Differences to single arms are of scores that do not
match: they are shown with the seen difference, and judge nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from benchmarks.leads.frontier import OnFrontier, Point, at_seen
from sweep.statistics.paired import sign_flip, t_interval
from trainables.plain import Json

Scored = Mapping[str, Point | None]  # the arms of one seed by name; None: ended without a score


def above_frontier(arms: Scored, judged: str, plain: Iterable[str]) -> tuple[float, OnFrontier]:
    """The judged arm's unseen score less the frontier's, and what it was compared with.

    Plain arms that ended without a score are no points. The judged arm must have one.
    """
    point = arms[judged]
    assert point is not None
    points = [found for name in plain if (found := arms[name]) is not None]
    frontier = at_seen(points, point.seen)
    return point.unseen - frontier.unseen, frontier


def interval(differences_K: Sequence[float]) -> Json:
    """Mean, sd, 95 % paired t interval and sign-flip p of one difference per seed."""
    values = np.asarray(differences_K, dtype=np.float64)
    if len(values) < 2:
        return {"seeds": len(values), "by_seed": values.tolist()}
    low, high = t_interval(values)
    return {
        "seeds": len(values),
        "mean": float(values.mean()),
        "sd": float(values.std(ddof=1)),
        "interval": [float(low), float(high)],
        "better_in": int((values > 0).sum()),
        "sign_flip_p": sign_flip(values).p,
        "by_seed": values.tolist(),
    }


def verdict(
    by_seed: Mapping[str, Scored], judged: str, plain: Sequence[str], smallest: float
) -> Json:
    """What one judged arm came to over the seeds on which it has a score."""
    have = {seed: arms for seed, arms in by_seed.items() if arms[judged] is not None}
    compared = [above_frontier(arms, judged, plain) for arms in have.values()]
    against = interval([difference for difference, _ in compared])
    found: dict[str, Json] = {
        "above_frontier": against,
        "outcome": _outcome(against, smallest),
        "where": [frontier.where for _, frontier in compared],
        "ended_without_score": len(by_seed) - len(have),
    }
    others = [name for name in next(iter(by_seed.values()), {}) if name != judged]
    found["differences"] = {name: _beside(have.values(), judged, name) for name in others}
    return found


def _outcome(against: Json, smallest: float) -> str:
    if "interval" not in against:
        return "too few seeds"
    low, high = against["interval"]
    if low > 0:
        return "above the frontier"
    if high < 0:
        return "below the frontier"
    return "ruled out" if high < smallest else "undecided"


def _beside(seeds: Iterable[Scored], judged: str, other: str) -> Json:
    """Plain differences, judged minus other, of the seeds that have both."""
    pairs = [(a, b) for arms in seeds if (a := arms[judged]) and (b := arms[other])]
    return {
        "unseen": interval([a.unseen - b.unseen for a, b in pairs]),
        "seen": interval([a.seen - b.seen for a, b in pairs]),
    }
