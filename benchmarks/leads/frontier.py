"""Frontier of plain training on one seed, and what a network is above it. Pure.

A network has two scores, higher is better: *seen*, the mean over the gammas that training used or
selection looked at, and *unseen*, the mean over the others. Plain training reaches many points of
that plane by the length of training and the noise that it is shown. A lead is judged by its unseen
score less that of this frontier at the same seen score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Where = Literal["between", "seen beyond every point", "seen below the best unseen"]


class Point(NamedTuple):
    """Two scores of one network; higher is better."""

    seen: float
    unseen: float


class OnFrontier(NamedTuple):
    """The frontier's unseen score at a seen score, and where that lies."""

    unseen: float
    where: Where


def upper_hull(points: Sequence[Point]) -> list[Point]:
    """Corners of the upper convex hull, by rising seen score; of equal ones the best unseen.

    >>> upper_hull([Point(0, 0), Point(1, 0.2), Point(2, 1), Point(2, 0)])
    [Point(seen=0, unseen=0), Point(seen=2, unseen=1)]
    """
    corners: list[Point] = []
    for point in sorted(points):
        if corners and corners[-1].seen == point.seen:
            corners.pop()  # sorted: this one is at least as good unseen
        while len(corners) > 1 and _lies_below(corners[-1], corners[-2], point):
            corners.pop()
        corners.append(point)
    return corners


def _lies_below(middle: Point, left: Point, right: Point) -> bool:
    """Whether ``middle`` is not above the line from ``left`` to ``right``."""
    rise = (right.unseen - left.unseen) * (middle.seen - left.seen)
    return (middle.unseen - left.unseen) * (right.seen - left.seen) <= rise


def at_seen(points: Sequence[Point], seen: float) -> OnFrontier:
    """The best unseen score that plain training reaches without losing seen score.

    Along the hull between the point of the best unseen score and that of the best seen one, by
    linear interpolation. A network that is worse on seen gammas than the point of the best unseen
    score is compared with that point, which is better on both. One that is better on seen gammas
    than every point is compared with the best of them there: its own difference is then of two
    networks that do not match, and ``where`` says so.

    >>> plain = [Point(0, 4), Point(2, 3), Point(3, 0)]
    >>> [at_seen(plain, seen).unseen for seen in (-1, 0, 1, 2.5, 9)]
    [4, 4, 3.5, 1.5, 0]
    """
    corners = upper_hull(points)
    best = max(range(len(corners)), key=lambda i: (corners[i].unseen, corners[i].seen))
    if seen < corners[best].seen:
        return OnFrontier(corners[best].unseen, "seen below the best unseen")
    if seen > corners[-1].seen:
        return OnFrontier(corners[-1].unseen, "seen beyond every point")
    for left, right in zip(corners[best:], corners[best + 1 :], strict=False):
        if seen <= right.seen:
            share = (seen - left.seen) / (right.seen - left.seen)
            return OnFrontier(left.unseen + share * (right.unseen - left.unseen), "between")
    return OnFrontier(corners[best].unseen, "between")  # at the best point itself
