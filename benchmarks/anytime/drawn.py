"""Figure of a setting: methods' frontiers, what a layer is worth, and stopping by sample."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.anytime.judged import JOINT, LARGEST
from trainables.plain import Json

STYLES = {  # methods, in the order of the legend: colour and mark
    "plain": ("#000000", "*"),
    "detached": ("#D55E00", "o"),
    "Lagrangian": ("#E69F00", "s"),
    "deep supervision": ("#0072B2", "^"),
    "deep supervision, scheduled": ("#56B4E9", "v"),
    "learnt weights": ("#009E73", "D"),
    "replayed weights": ("#CC79A7", "P"),
    "mean of replayed weights": ("#CC79A7", "p"),
    "plain, longer": ("#444444", "+"),
    "exits on frozen plain": ("#999999", "X"),
    "exits on frozen detached": ("#8B4513", "x"),
    "a network for each depth": ("#666666", "h"),
}
STOPPING = {  # colours of methods whose samples stop by themselves
    "constrained": "#8B0000",
    "supervised": "#00008B",
    "exits on frozen plain": "#999999",
}
LEGEND: Mapping[str, Any] = {"fontsize": 7.5, "frameon": False}
MOST = 2 * LARGEST  # beyond it a network is left out: nobody would give up so much


def draw(setting: Json, path: Path) -> None:
    """Write the figure: means over the seeds, relative to plain training's on the same seed."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    networks = setting["networks"]
    plain = networks["plain"]
    figure = Figure(figsize=(13.2, 4.6), layout="constrained")
    left, right, stopping = figure.subplots(1, 3)
    for method, (colour, mark) in STYLES.items():
        points = [
            (
                _relative(n["test end"], plain["test end"]),
                _relative(n["test area"], plain["test area"]),
            )
            for n in networks.values()
            if n["method"] == method
        ]
        shown = [(100 * end, 100 * area) for end, area in points if end <= MOST]
        if not shown:
            continue
        size = 90 if method == "plain" else 28
        edge = 1 if mark in "x+" else 0  # a cross is all edge
        left.scatter(
            *zip(*shown, strict=True), s=size, c=colour, marker=mark, label=method, linewidths=edge
        )
        layers = setting["layers"][method][1:]
        right.plot(range(1, len(layers) + 1), layers, color=colour, marker=mark, ms=5, lw=1.4)
    left.axvline(0, color="#bbbbbb", lw=0.8, zorder=0)
    left.set_xlabel("change of the last layer's error, in %")
    left.set_ylabel("change of mean error over layers, in %")
    figure.legend(*left.get_legend_handles_labels(), **LEGEND, loc="outside lower center", ncols=6)
    right.set_xlabel("layer that is read")
    right.set_ylabel(f"RMSE in grey levels, at an allowance of {100 * setting['shown_at']:g} %")
    for method, colour in STOPPING.items():
        budgets = setting["adaptive"].get(method, [])
        points = [(fmean(of["depth"]), fmean(of["score"])) for of in budgets]
        if points:
            label = JOINT.get(method, method)
            stopping.plot(*zip(*points, strict=True), color=colour, marker=".", label=label, lw=1.4)
    cut = setting["layers"]["a network for each depth"][1:]
    stopping.plot(
        range(1, len(cut) + 1), cut, "h", color="#666666", label="a network for each depth"
    )
    stopping.set_xlabel("mean layers used")
    stopping.set_ylabel("RMSE in grey levels")
    stopping.legend(**LEGEND)
    for axes in (right, stopping):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(ScalarFormatter())
        axes.set_xticks(range(1, len(setting["layers"]["plain"])))
    for axes in (left, right, stopping):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#eeeeee", lw=0.6)
        axes.set_axisbelow(True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": path.stem}):  # else ids are drawn
        figure.savefig(path, metadata={"Date": None})


def _relative(values: list[float], plain: list[float]) -> float:
    """The mean over seeds of a value over plain training's, less 1."""
    return fmean(value / base for value, base in zip(values, plain, strict=True)) - 1.0
