"""Figures of confirmations: gains with intervals, and in the search."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from search_spaces.settings import short_names
from sweep.confirmation.plan import UNCONSTRAINED
from sweep.confirmation.words import is_early
from sweep.report.measured import Measured
from sweep.report.style import GREY, OURS, SMALL, THEIRS, arrange, grid, legend
from trainables.plain import Json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE_IN = 4.3  # of a panel with names at its side: 8 points are 9 pixels on a phone
NEAR = 0.04  # of the axis: labels of points that lie so near would cover each other
VERDICTS = {  # marker, colour, face
    "better": (">", OURS, OURS),
    "worse": ("<", THEIRS, THEIRS),
    "equivalent": ("s", "black", "black"),
    "undecided": ("o", GREY, "white"),
    "vacuous": ("x", GREY, GREY),
}


def forest(data: Measured) -> Figure | None:
    """Gain over plain training and over each control with its interval, a row a contrast."""
    found = [(entry, list(_rows(entry, data))) for entry in data.confirmed]
    drawn = [(entry, rows) for entry, rows in found if rows]
    if not drawn:
        return None
    figure, panels = grid(len(drawn), 1)
    count = sum(len(rows) for _, rows in drawn)
    arrange(figure, panels, 1, width=WIDE_IN, height=0.3 * count / len(drawn) + 0.8)
    for axis, (entry, rows) in zip(panels, drawn, strict=True):
        axis.axvline(0, color="black", linewidth=0.8)
        least = entry["design"]["smallest_effect"]
        if least is not None:
            axis.axvspan(-least, least, color=GREY, alpha=0.12, label="too small to matter")
        for y, (_, contrast) in enumerate(rows):
            marker, colour, face = VERDICTS[contrast["marked"]]
            if contrast["low"] is not None and contrast["high"] is not None:
                axis.plot([contrast["low"], contrast["high"]], [y, y], color=colour, linewidth=1)
            if is_early(contrast):
                ended = contrast["ended"]["mean"]
                axis.plot(ended, y, "|", color="black", markersize=8, label="all ended seeds")
            axis.plot(
                contrast["mean"],
                y,
                marker,
                color=colour,
                markerfacecolor=face,
                markersize=4.5,
                label=contrast["marked"],
            )
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.set_yticks(range(len(rows)), [name for name, _ in rows])
        axis.set_title(f"{entry['name']}, test split", fontsize=8)
        axis.set_xlabel(f"gain, {entry['metric']}, {entry['unit']}")
    legend(figure)
    return figure


def _rows(entry: Mapping[str, Json], data: Measured) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """What a row is called, and its contrast."""
    for one in entry["settings"]:
        for other, contrast in one["contrasts"].items():
            if one["setting"] in data.entries and contrast["mean"] is not None:
                plain = other == UNCONSTRAINED
                name = f"{one['setting']},\nagainst plain" if plain else other.replace("_", " ")
                yield name, contrast


def search_gain(data: Measured) -> Figure | None:
    """Gain on fresh seeds against the gain that the search saw, a point a setting."""
    drawn = [
        (entry, [one for one in entry["settings"] if _is_both(one, data)])
        for entry in data.confirmed
    ]
    drawn = [(entry, settings) for entry, settings in drawn if settings]
    if not drawn:
        return None
    figure, panels = grid(len(drawn), height=2.8)
    for axis, (entry, settings) in zip(panels, drawn, strict=True):
        for one in settings:
            _point(axis, one)
        low, high = _ends(settings)
        for (x, y), names in _labels(settings, NEAR * (high - low)).items():
            axis.annotate(names, (x, y), (4, 2), textcoords="offset points", fontsize=SMALL)
        axis.plot([low, high], [low, high], "--", color=GREY, linewidth=0.8, label="as searched")
        axis.axhline(0, color="black", linewidth=0.8)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_title(f"{entry['name']}, against plain training")
        axis.set_xlabel(f"gain in the search (dev), {entry['unit']}")
        axis.set_ylabel(f"gain on fresh seeds (test), {entry['unit']}")
    legend(figure)
    return figure


def _is_both(one: Mapping[str, Json], data: Measured) -> bool:
    both = one["search_gain"] is not None and one["confirmed_gain"] is not None
    return both and one["setting"] in data.entries


def _point(axis: Axes, one: Mapping[str, Json]) -> None:
    contrast = one["contrasts"][UNCONSTRAINED]
    marker, colour, face = VERDICTS[contrast["marked"]]
    x, y = one["search_gain"], one["confirmed_gain"]
    if contrast["low"] is not None and contrast["high"] is not None:
        axis.plot([x, x], [contrast["low"], contrast["high"]], color=colour, linewidth=1)
    axis.plot(
        x, y, marker, color=colour, markerfacecolor=face, markersize=5, label=contrast["marked"]
    )


def _labels(settings: list[Mapping[str, Json]], near: float) -> dict[tuple[float, float], str]:
    """Names by place; those of points that lie this near to another share a label."""
    short = short_names([one["setting"] for one in settings])
    labels: dict[tuple[float, float], str] = {}
    for one in settings:
        x, y = one["search_gain"], one["confirmed_gain"]
        at = next((p for p in labels if math.dist(p, (x, y)) <= near), (x, y))
        labels[at] = ", ".join(filter(None, (labels.get(at), short[one["setting"]])))
    return labels


def _ends(settings: list[Mapping[str, Json]]) -> tuple[float, float]:
    every = [one[name] for one in settings for name in ("search_gain", "confirmed_gain")]
    return min(0, *every), max(0, *every)
