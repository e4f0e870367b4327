"""Figures of training: multipliers and layer weights over its steps, and its cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sweep.report.measured import Measured
from sweep.report.panels import Panel, per_setting
from sweep.report.style import ARMS, grid, legend, shade

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def trajectories(data: Measured) -> Figure | None:
    """Multipliers and layer weights of the constrained network at its reports."""
    return per_setting(
        data, _series(data, "multipliers", "multiplier"), _series(data, "weights", "layer weight")
    )


def _series(data: Measured, series: str, y: str) -> Panel:
    of_series = data.steps.where(series=series, arm="constrained")

    def drawn(axis: Axes, setting: str) -> bool:
        rows = of_series.where(setting=setting)
        layers = rows.distinct("layer")
        ends = {layers[0]: "first layer", layers[-1]: "last layer"} if layers else {}
        for layer in layers:
            mean = rows.where(layer=layer).mean_by("step")
            colour = shade(0.9 * layer / layers[-1])
            drawn_as: dict[str, Any] = {"color": colour, "marker": ".", "linewidth": 0.9}
            axis.plot(mean.index, mean.to_numpy(), label=ends.get(layer), **drawn_as)
        return bool(layers)

    return drawn, "step", y


def cost(data: Measured) -> Figure | None:
    """Seconds of training of both arms, a row a setting."""
    rows = data.pairs.where(metric="train_seconds")
    names = [name for name in data.entries if name in rows.distinct("setting")]
    if not names:
        return None
    figure, (axis,) = grid(1, height=0.3 * len(names) + 0.6)
    for shift, (arm, (label, colour, _, _)) in zip((-0.2, 0.2), ARMS.items(), strict=True):
        mean = rows.where(arm=arm).mean_by("setting").reindex(names)
        axis.barh([i + shift for i in range(len(names))], mean, 0.36, color=colour, label=label)
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.invert_yaxis()
    axis.set_xlabel("training, seconds")
    legend(figure)
    return figure
