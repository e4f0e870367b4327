"""Figures of confirmations: gains with intervals, and in the search."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from search_spaces.settings import short_names
from sweep.confirmation.plan import UNCONSTRAINED
from sweep.confirmation.summary import ConfirmationSummary, Contrast
from sweep.confirmation.words import is_early
from sweep.report.measured import Measured
from sweep.report.style import GREY, OURS, PLAIN, SMALL, arrange, grid, legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE_IN = 4.3  # of a panel with names at its side: 8 points are 9 pixels on a phone
Place = tuple[float, float]
NEAR = 0.04  # of the axis: labels of points that lie so near would cover each other
VERDICTS = {  # marker, colour, face
    "better": (">", OURS, OURS),
    "worse": ("<", PLAIN, PLAIN),
    "equivalent": ("s", "black", "black"),
    "undecided": ("o", GREY, "white"),
    "not binding": ("x", GREY, GREY),
}


def forest(data: Measured) -> Figure | None:
    """Gain over plain training and over each control with its interval, a row a contrast."""
    every = [(entry, list(_rows(entry, data))) for entry in data.confirmed]
    drawn = [(entry, rows) for entry, rows in every if rows]
    if not drawn:
        return None
    figure, panels = grid(len(drawn), 1)
    count = sum(len(rows) for _, rows in drawn)
    arrange(figure, panels, 1, width=WIDE_IN, height=0.3 * count / len(drawn) + 0.8)
    for axis, (entry, rows) in zip(panels, drawn, strict=True):
        axis.axvline(0, color="black", linewidth=0.8)
        least = entry.design.smallest_effect
        if least is not None:
            axis.axvspan(-least, least, color=GREY, alpha=0.12, label="too small to matter")
        for y, (_, mean, contrast) in enumerate(rows):
            marker, colour, face = VERDICTS[contrast.marked]
            if contrast.low is not None and contrast.high is not None:
                axis.plot([contrast.low, contrast.high], [y, y], color=colour, linewidth=1)
            ended = contrast.ended.mean
            if is_early(contrast) and ended is not None:
                axis.plot(ended, y, "|", color="black", markersize=8, label="all ended seeds")
            style: dict[str, Any] = {"color": colour, "markerfacecolor": face, "markersize": 4.5}
            axis.plot(mean, y, marker, label=contrast.marked, **style)
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.set_yticks(range(len(rows)), [name for name, _, _ in rows])
        axis.set_title(f"{entry.name}, test split", fontsize=8)
        axis.set_xlabel(f"gain, {entry.metric}, {entry.unit}")
    legend(figure)
    return figure


def _rows(entry: ConfirmationSummary, data: Measured) -> Iterator[tuple[str, float, Contrast]]:
    """Name, mean gain and contrast of each row."""
    for one in entry.settings:
        for other, contrast in one.contrasts.items():
            if one.setting in data.entries and contrast.mean is not None:
                plain = other == UNCONSTRAINED
                name = f"{one.setting},\nagainst plain" if plain else other.replace("_", " ")
                yield name, contrast.mean, contrast


def search_gain(data: Measured) -> Figure | None:
    """Gain on fresh seeds against the gain that the search saw, a point a setting."""
    every = [(entry, _points(entry, data)) for entry in data.confirmed]
    drawn = [(entry, points) for entry, points in every if points]
    if not drawn:
        return None
    figure, panels = grid(len(drawn), height=2.8)
    for axis, (entry, points) in zip(panels, drawn, strict=True):
        for (x, y), contrast in points.values():
            marker, colour, face = VERDICTS[contrast.marked]
            if contrast.low is not None and contrast.high is not None:
                axis.plot([x, x], [contrast.low, contrast.high], color=colour, linewidth=1)
            style: dict[str, Any] = {"color": colour, "markerfacecolor": face, "markersize": 5}
            axis.plot(x, y, marker, label=contrast.marked, **style)
        places = {setting: place for setting, (place, _) in points.items()}
        ends = [gain for place in places.values() for gain in place]
        low, high = min(0, *ends), max(0, *ends)
        for (x, y), names in _labels(places, NEAR * (high - low)).items():
            axis.annotate(names, (x, y), (4, 2), textcoords="offset points", fontsize=SMALL)
        axis.plot([low, high], [low, high], "--", color=GREY, linewidth=0.8, label="as searched")
        axis.axhline(0, color="black", linewidth=0.8)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_title(f"{entry.name}, against plain training")
        axis.set_xlabel(f"gain in the search (dev), {entry.unit}")
        axis.set_ylabel(f"gain on fresh seeds (test), {entry.unit}")
    legend(figure)
    return figure


def _points(entry: ConfirmationSummary, data: Measured) -> dict[str, tuple[Place, Contrast]]:
    """Gains in the search and on fresh seeds, by setting that has both."""
    return {
        one.setting: ((one.search_gain, one.confirmed_gain), one.against_plain)
        for one in entry.settings
        if one.search_gain is not None and one.confirmed_gain is not None
        if one.setting in data.entries
    }


def _labels(places: Mapping[str, Place], near: float) -> dict[Place, str]:
    """Names by place; those of points that lie this near to another share a label."""
    short = short_names(list(places))
    labels: dict[Place, str] = {}
    for setting, place in places.items():
        neighbour = next((p for p in labels if math.dist(p, place) <= near), place)
        labels[neighbour] = ", ".join(filter(None, (labels.get(neighbour), short[setting])))
    return labels
