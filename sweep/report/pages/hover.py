"""Points of a figure for a reader's pointer: values, and places in the picture.

Read off the matplotlib figure itself, so that any figure has them: lines, scattered points, error
bars, bars and steps that are plotted against the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from trainables.plain import Json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

MOST_POINTS = 20_000  # of a figure; of longer lines every so-manieth
DIGITS = 6  # of a value
POINTS = 72  # of SVG, in an inch

Series = tuple[str, Sequence[Any], Sequence[Any]]  # label, x, y


def panels(figure: Figure) -> list[dict[str, Json]]:
    """Texts for the pointer, one object for each panel that has points.

    ``title``, ``x`` and ``y`` are the panel's words; ``place`` is its own among all panels;
    ``series`` its lines, each with a ``name`` (empty: it has none), values ``x`` and ``y`` (a word
    where the axis has words), and their places ``at`` in the SVG: x, y, x, y, ...
    """
    series = [(axes, list(_series(axes))) for axes in figure.axes]
    count = sum(len(x) for _, every in series for _, x, _ in every)
    step = math.ceil(count / MOST_POINTS) or 1
    panels = []
    for place, (axes, every) in enumerate(series):
        if shown := _shown(figure, axes, every, step):
            title = " ".join(axes.get_title().split())
            x, y = _label(figure, axes, "x"), _label(figure, axes, "y")
            panels.append({"title": title, "x": x, "y": y, "series": shown, "place": place})
    return panels


def _shown(figure: Figure, axes: Axes, every: Iterable[Series], step: int) -> list[dict[str, Json]]:
    """Series that have points in the picture."""
    x_words, y_words = (_words(figure, axes, which) for which in ("xaxis", "yaxis"))
    height = figure.get_figheight() * POINTS
    scale = POINTS / figure.dpi
    series = []
    for name, x, y in every:
        shown = [
            (a, b, px * scale, height - py * scale)
            for a, b in list(zip(x, y, strict=True))[::step]
            for px, py in [axes.transData.transform((a, b))]
            if math.isfinite(px) and math.isfinite(py)
        ]
        if shown:
            series.append(
                {
                    "name": name,
                    "x": [_value(a, x_words) for a, *_ in shown],
                    "y": [_value(b, y_words) for _, b, *_ in shown],
                    "at": [round(place, 1) for *_, px, py in shown for place in (px, py)],
                }
            )
    return series


def _series(axes: Axes) -> Iterator[Series]:
    """Everything plotted against the data of a panel."""
    from matplotlib.container import BarContainer, ErrorbarContainer
    from matplotlib.patches import StepPatch

    errors = [c for c in axes.containers if isinstance(c, ErrorbarContainer)]
    named = {id(c[0]): str(c.get_label()) for c in errors if c[0] is not None}
    caps = {id(line) for c in errors for line in c[1]}
    for line in axes.lines:
        if line.get_transform() == axes.transData and id(line) not in caps and line.get_visible():
            x, y = (_floats(values) for values in line.get_data())
            yield _name(named.get(id(line), str(line.get_label()))), x, y
    for points in axes.collections:
        if points.get_offset_transform() == axes.transData and points.get_paths():
            offsets: Any = points.get_offsets()
            if len(offsets):
                x, y = (_floats(offsets[:, i]) for i in (0, 1))
                yield _name(str(points.get_label())), x, y
    for bars in axes.containers:
        if isinstance(bars, BarContainer):
            tops = [(b.get_x() + b.get_width() / 2, b.get_y() + b.get_height()) for b in bars]
            if bars.orientation == "horizontal":
                tops = [(b.get_x() + b.get_width(), b.get_y() + b.get_height() / 2) for b in bars]
            yield _name(str(bars.get_label())), [x for x, _ in tops], [y for _, y in tops]
    for patch in axes.patches:
        if isinstance(patch, StepPatch):
            values, edges, _ = patch.get_data()
            middles = [(a + b) / 2 for a, b in pairwise(edges)]
            yield _name(str(patch.get_label())), middles, _floats(values)


def _name(label: str) -> str:
    return "" if label.startswith("_") else " ".join(label.split())


def _floats(values: Any) -> list[float]:
    return [float(value) for value in values]


def _label(figure: Figure, axes: Axes, which: str) -> str:
    """Label of an axis: its own, that over all panels, or that of another panel."""
    own = str(getattr(axes, f"get_{which}label")())
    label = getattr(figure, f"_sup{which}label", None)
    others = (str(getattr(other, f"get_{which}label")()) for other in figure.axes)
    return own or (label.get_text() if label is not None else "") or next(filter(None, others), "")


def _words(figure: Figure, axes: Axes, which: str) -> dict[float, str]:
    """The words at the ticks of an axis; of a panel without any those of one with as many ticks."""
    own = _ticks(getattr(axes, which))
    if own and not any(own.values()):
        others = (_ticks(getattr(other, which)) for other in figure.axes)
        return next((o for o in others if o.keys() == own.keys() and any(o.values())), {})
    return own


def _ticks(axis: Axis) -> dict[float, str]:
    from matplotlib.ticker import FixedLocator, FuncFormatter

    place, text = axis.get_major_locator(), axis.get_major_formatter()
    if not (isinstance(place, FixedLocator) and isinstance(text, FuncFormatter)):
        return {}
    labels = {float(tick): str(text(tick)) for tick in place()}
    return {} if any(map(_is_number, labels.values())) else labels


def _is_number(text: str) -> bool:
    return text.replace("\N{MINUS SIGN}", "-").lstrip("+-").replace(".", "", 1).isdecimal()


def _value(value: float, words: dict[float, str]) -> Json:
    """A number of DIGITS digits; a word where the axis has words, that of the nearest tick."""
    if words:
        return " ".join(words[min(words, key=lambda tick: abs(tick - value))].split())
    return float(f"{value:.{DIGITS}g}")
