"""Panels: one a setting, lines of arms over their seeds, proposals as points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sweep.report.measured import Measured
from sweep.report.numbers import Column, Numbers
from sweep.report.style import ARMS, COLUMN_IN, GREY, LAYERED, OURS, arrange, grid, legend
from sweep.results.tables.columns import GAUSSIAN

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTCOMES = {"feasible": ("o", OURS), "infeasible": ("o", "none")}  # marker, face; the rest: x
# A panel: what it is drawn by, which says whether there was anything; labels of x and y.
Panel = tuple[Callable[["Axes", str], bool], str, str]


def per_setting(
    data: Measured, *panels: Panel, title: Callable[[str], str] | None = None
) -> Figure | None:
    """These panels for each setting that any of them finds something of."""
    figure, axes = grid(len(data.entries) * len(panels))
    left, kept = iter(axes), []
    for name in data.entries:
        row = [next(left) for _ in panels]
        drawn_any = [drawn(axis, name) for axis, (drawn, _, _) in zip(row, panels, strict=True)]
        if not any(drawn_any):
            for axis in row:
                axis.remove()
            continue
        kept += row
        for axis, (_, x, y) in zip(row, panels, strict=True):
            axis.set_title((title or data.title)(name))
            axis.set_xlabel(x)
            axis.set_ylabel(y)
    if not kept:
        return None
    columns = 2 if len(panels) % 2 == 0 or len(panels) == 1 else 3
    arrange(figure, kept, columns, width=2 * COLUMN_IN / max(columns, 2))
    legend(figure)
    return figure


def count_x(axis: Axes) -> None:
    """Whole numbers alone below x."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def scores(data: Measured, setting: str) -> Numbers:
    """The task's metric at every test gamma, of both arms and of the references."""
    return data.pairs.where(setting=setting, metric=data.metric.key, shift=GAUSSIAN)


def band(axis: Axes, rows: Numbers, x: Column, drawn_as: Sequence[str], **options: Any) -> bool:
    """The mean over an arm's seeds against ``x``, and their range; as one of ``ARMS`` is drawn."""
    if rows.is_empty:
        return False
    label, colour, line, marker = drawn_as
    by_x = rows.by(x)
    mean, low, high = by_x.mean(), by_x.min(), by_x.max()
    as_given = {"color": colour, "linestyle": line, "marker": marker, "label": label, **options}
    axis.plot(mean.index, mean.to_numpy(), **as_given)
    if len(rows.distinct("seed")) > 1:
        axis.fill_between(
            mean.index, low.to_numpy(), high.to_numpy(), color=as_given["color"], alpha=0.15
        )
    return True


def bands(axis: Axes, rows: Numbers, x: Column) -> bool:
    """That of both arms, the constrained one above the other."""
    drawn = [
        band(axis, rows.where(arm=arm), x, drawn_as, **LAYERED[arm])
        for arm, drawn_as in ARMS.items()
    ]
    return any(drawn)


def mark_training(axis: Axes, data: Measured, setting: str) -> None:
    """A line at the noise of training."""
    axis.axvline(data.runs[setting].train_gamma, color=GREY, linewidth=0.7, alpha=0.6)


def three_gammas(data: Measured, setting: str) -> list[float]:
    """Test gammas in distribution, in the middle and far: nearest to training, between, last."""
    gammas = scores(data, setting).distinct("severity")
    if not gammas:
        return []
    trained = data.runs[setting].train_gamma
    near, far = min(gammas, key=lambda g: abs(g - trained)), gammas[-1]
    middle = min(gammas, key=lambda g: abs(g - (near + far) / 2))
    return sorted({near, middle, far})


def points(axis: Axes, outcomes: pd.Series[str], x: pd.Series[float], y: pd.Series[float]) -> None:
    """Proposals, marked by their outcome."""
    for outcome, ids in outcomes.groupby(outcomes).groups.items():
        marker, face = OUTCOMES.get(str(outcome), ("x", OURS))
        drawn_as: dict[str, Any] = {"color": OURS, "markerfacecolor": face, "zorder": 3}
        axis.plot(x[ids], y[ids], marker, label=str(outcome), **drawn_as)
