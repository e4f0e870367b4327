"""Style of all figures: colours, sizes, panels, legends.

Colours are those of Okabe and Ito, which tell apart without hue as well: constrained blue, plain
training vermilion.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ARMS = {  # what an arm is called, its colour, line and marker
    "constrained": ("constrained", "#0072B2", "-", "o"),
    "unconstrained": ("plain training", "#D55E00", "--", "s"),
}
GREY = "#777777"
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "font.family": "sans-serif",
    "axes.titlesize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "sweep",  # the same figure, the same bytes
}
COLUMN_IN = 3.35  # width of a column of two
PANEL_IN = 1.9  # height of a panel


@contextmanager
def style() -> Iterator[None]:
    """The one style of all figures, and a canvas that needs no screen."""
    import matplotlib as mpl

    with mpl.rc_context({**STYLE, "backend": "agg"}):
        yield


def grid(count: int, columns: int = 2, *, height: float = PANEL_IN) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels; one panel has the width of a column."""
    from matplotlib.figure import Figure

    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(COLUMN_IN * columns, height * rows + 0.3))
    axes = figure.subplots(rows, columns, squeeze=False)
    panels = [axis for row in axes for axis in row]
    for empty in panels[count:]:
        empty.remove()
    return figure, panels[:count]


def scratch() -> Axes:
    """A panel that nobody sees: whether there is anything to draw."""
    from matplotlib.figure import Figure

    return Figure().subplots()


def legend(axis: Axes, panels: Sequence[Axes] = ()) -> None:
    """What is named in any of these panels, or in this one alone."""
    named: dict[str, Any] = {}
    for panel in panels or (axis,):
        handles, labels = panel.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    if named:
        axis.legend(named.values(), named.keys())


def log_if_wide(axis: Axes, values: pd.Series[float]) -> None:
    """Losses that span orders of magnitude need a logarithmic axis."""
    positive = values[values > 0]
    if len(positive) == len(values) and len(values) and positive.max() > 20 * positive.min():
        axis.set_yscale("log")
