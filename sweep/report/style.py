"""Style of all figures: colours, sizes, panels, legends.

Colours are those of Okabe and Ito, which tell apart without hue as well: constrained blue, plain
training vermilion.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from sweep.results.summary import ArmName

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What an arm is called, its colour, line and marker.
ARMS: dict[ArmName, tuple[str, str, str, str]] = {
    "constrained": ("constrained", "#0072B2", "-", "o"),
    "unconstrained": ("plain training", "#D55E00", "--", "s"),
}
LAYERED: dict[ArmName, dict[str, Any]] = {  # where lines of both coincide, both are seen
    "constrained": {"zorder": 2.2},
    "unconstrained": {"zorder": 2.1, "linewidth": 2.4, "markersize": 4.5},
}
OURS, PLAIN = (colour for _, colour, _, _ in ARMS.values())
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
HEAD = 70  # characters of SMALL in a column


def shade(fraction: float) -> Any:
    """The colour of a line among ordered ones: dark at 0, bright at 1."""
    import matplotlib as mpl

    return mpl.colormaps["viridis"](fraction)


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
    for number, panel in enumerate(panels):
        panel.set_subplotspec(cells[number // columns, number % columns])


def legend(figure: Figure) -> None:
    """One legend above all panels, so that it covers no data.

    No wider than a panel, below which it may stand on a narrow page.
    """
    named: dict[str, Any] = {}
    for panel in figure.axes:
        handles, labels = panel.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    if not named:
        return
    width, height = figure.get_size_inches()
    columns = max(1, int(COLUMN_IN / (0.4 + 0.055 * max(map(len, named)))))
    figure.set_size_inches(width, height + 0.14 * math.ceil(len(named) / columns))
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=columns)


def head(figure: Figure, text: str) -> None:
    """A line above all panels, that of the legend where there is one."""
    width, height = figure.get_size_inches()
    lines = textwrap.wrap(text, HEAD)
    figure.set_size_inches(width, height + 0.14 * len(lines))
    (above, *_) = figure.legends or [figure.legend([], [], loc="outside upper center")]
    above.set_title("\n".join(lines))
    above.get_title().set_fontsize(SMALL)


Box = tuple[float, float, float, float]  # left, top, width, height; points from the upper left


def cells(figure: Figure) -> list[Box]:
    """Where the legend is, and the place of each panel as they are drawn, which tile what is below.

    Of a figure without a legend the first is empty.
    """
    width, height = (72 * inches for inches in figure.get_size_inches())
    scale = 72 / figure.dpi
    columns: list[int] = []
    rows: list[int] = []
    across: list[tuple[float, float]] = []
    down: list[tuple[float, float]] = []
    for panel in figure.axes:
        spec, box = panel.get_subplotspec(), panel.get_tightbbox()
        assert spec is not None, "a panel is of ``arrange``"
        assert box is not None, "a panel is visible"
        columns.append(spec.colspan.start)
        rows.append(spec.rowspan.start)
        across.append((scale * box.x0, scale * box.x1))
        down.append((height - scale * box.y1, height - scale * box.y0))
    legend: Box = (0.0, 0.0, 0.0, 0.0)
    for one in figure.legends:
        box = one.get_window_extent()
        legend = (scale * box.x0, height - scale * box.y1, scale * box.width, scale * box.height)
    x = _ends(columns, across, 0.0, width)
    y = _ends(rows, down, legend[1] + legend[3], height)
    panels = [
        (x[column], y[row], x[column + 1] - x[column], y[row + 1] - y[row])
        for column, row in zip(columns, rows, strict=True)
    ]
    return [legend, *panels]


def _ends(
    places: Sequence[int], spans: Sequence[tuple[float, float]], first: float, last: float
) -> list[float]:
    """Where rows or columns end, from the first: in the middle between their contents.

    >>> _ends([0, 1, 0], [(1, 4), (6, 9), (2, 5)], 0.0, 10.0)
    [0.0, 5.5, 10.0]
    """
    edges = [first]
    for place in range(max(places)):
        here = max(end for p, (_, end) in zip(places, spans, strict=True) if p == place)
        there = min(start for p, (start, _) in zip(places, spans, strict=True) if p == place + 1)
        edges.append((here + there) / 2)
    return [*edges, last]


def log_if_wide(
    axis: Axes, values: pd.Series[float], which: Literal["x", "y"] = "y", *, over: float = 20
) -> None:
    """Positive values that span orders of magnitude need a logarithmic axis."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if values.empty or values.min() <= 0 or values.max() <= over * values.min():
        return
    axis.set(**{f"{which}scale": "log"})
    axis_of_values = axis.xaxis if which == "x" else axis.yaxis
    few = (1.0, 3.0) if which == "x" else (1.0, 2.0, 5.0)
    steps = few if values.max() < 300 * values.min() else (1.0,)
    axis_of_values.set_major_locator(LogLocator(subs=steps, numticks=7))
    axis_of_values.set_major_formatter(
        lambda value, _: f"{value:g}" if value >= 1e-3 else f"{value:.0e}".replace("e-0", "e-")
    )
    axis_of_values.set_minor_formatter(NullFormatter())
