"""Style of all figures: colours, sizes, panels, legends.

Colours are those of Okabe and Ito, which tell apart without hue as well: constrained blue, plain
training vermilion.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ARMS = {  # what an arm is called, its colour, line and marker
    "constrained": ("constrained", "#0072B2", "-", "o"),
    "unconstrained": ("plain training", "#D55E00", "--", "s"),
}
OURS, THEIRS = (colour for _, colour, _, _ in ARMS.values())
FAILED = ("infeasible", "#CC79A7", "-.", "^")  # the same of a proposal that failed
GREY = "#777777"
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "font.family": "sans-serif",
    "axes.titlesize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.formatter.useoffset": False,
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
SMALL = 6.5  # points: the least that is read in print
COLUMN_IN = 3.35  # width of a column of two
PANEL_IN = 1.9  # height of a panel


@contextmanager
def style() -> Iterator[None]:
    """The one style of all figures, and a canvas that needs no screen."""
    import matplotlib as mpl

    with mpl.rc_context({**STYLE, "backend": "agg"}):
        yield


def grid(
    count: int, columns: int = 2, *, height: float = PANEL_IN, width: float = COLUMN_IN
) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels; one panel has the width of a column."""
    from matplotlib.figure import Figure

    figure = Figure()
    panels = [figure.add_subplot() for _ in range(count)]
    arrange(figure, panels, columns, height=height, width=width)
    return figure, panels


def arrange(
    figure: Figure,
    panels: Sequence[Axes],
    columns: int = 2,
    *,
    height: float = PANEL_IN,
    width: float = COLUMN_IN,
) -> None:
    """Put these panels into rows, and give the figure their size."""
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure.set_size_inches(width * columns, height * rows + 0.3)
    cells = figure.add_gridspec(rows, columns)
    for at, panel in enumerate(panels):
        panel.set_subplotspec(cells[at // columns, at % columns])


def legend(figure: Figure) -> None:
    """What is named in any panel, above all of them, so that it covers no data."""
    named: dict[str, Any] = {}
    for panel in figure.axes:
        handles, labels = panel.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    if not named:
        return
    width, height = figure.get_size_inches()
    columns = max(1, int(width / (0.4 + 0.055 * max(map(len, named)))))
    figure.set_size_inches(width, height + 0.14 * math.ceil(len(named) / columns))
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=columns)


def log_if_wide(
    axis: Axes, values: pd.Series[float], which: Literal["x", "y"] = "y", *, over: float = 20
) -> None:
    """Positive values that span orders of magnitude need a logarithmic axis."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if values.empty or values.min() <= 0 or values.max() <= over * values.min():
        return
    axis.set(**{f"{which}scale": "log"})
    of = axis.xaxis if which == "x" else axis.yaxis
    few = (1.0, 3.0) if which == "x" else (1.0, 2.0, 5.0)
    steps = few if values.max() < 300 * values.min() else (1.0,)
    of.set_major_locator(LogLocator(subs=steps, numticks=7))
    of.set_major_formatter(
        lambda value, _: f"{value:g}" if value >= 1e-3 else f"{value:.0e}".replace("e-0", "e-")
    )
    of.set_minor_formatter(NullFormatter())
