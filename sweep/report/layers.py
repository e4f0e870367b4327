"""Figures of layers: losses, score where the network stops, descent of samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from sweep.report.measured import Measured
from sweep.report.numbers import VALUE, Column, Numbers
from sweep.report.panels import band, bands, count_x, per_setting, scores, three_gammas
from sweep.report.style import ARMS, GREY, LAYERED, SMALL, log_if_wide
from sweep.results.tables.columns import GAUSSIAN
from trainables.records.evaluation import RATIO_BINS, RATIO_BINS_TO_1
from trainables.registry.task_facts import RMSE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYER = "layer (0: before the first)"


def losses(data: Measured) -> Figure | None:
    """Held-out loss by layer, and of texts that of a probe of each layer's own."""

    def drawn(axis: Axes, setting: str) -> bool:
        rows = data.pairs.where(setting=setting, metric="held_out_loss").having("layer")
        has_data = bands(axis, rows, "layer")
        for arm, (label, *_) in ARMS.items():
            probe = data.pairs.where(setting=setting, metric="probe_loss", arm=arm)
            own = (f"{label}, probe", *ARMS[arm][1:])
            band(axis, probe, "layer", own, linestyle=":", marker="")
        log_if_wide(axis, rows.values)
        count_x(axis)
        return has_data

    return per_setting(data, (drawn, LAYER, "held-out loss"))


# --- where the network stops ----------------------------------------------------------------------


def anytime(data: Measured) -> Figure | None:
    """Score of the network when it stops after so many layers, at three test gammas."""

    def drawn(axis: Axes, setting: str) -> bool:
        rows = _scores_by_layer(data, setting)
        ends: dict[str, float] = {}
        for gamma in three_gammas(data, setting):
            for arm, (label, colour, line, marker) in ARMS.items():
                mean = rows.where(arm=arm, severity=gamma).mean_by("layer")
                drawn_as: dict[str, Any] = {"linestyle": line, "marker": marker, "color": colour}
                axis.plot(mean.index, mean.to_numpy(), label=label, **drawn_as, **LAYERED[arm])
                if len(mean):
                    ends.setdefault(f"{gamma:g}", mean.iloc[-1])
        if data.metric == RMSE:
            log_if_wide(axis, rows.values)
        _name_ends(axis, ends)
        count_x(axis)
        return not rows.is_empty

    return per_setting(data, (drawn, "layers that are run", data.score_label))


def _name_ends(axis: Axes, ends: Mapping[str, float]) -> None:
    """Names of lines beside their last values, one above the other where these are close."""
    axis.get_ylim()  # limits are set when they are asked for
    to_axes = axis.transData + axis.transAxes.inverted()
    lowest = -math.inf
    for name, value in sorted(ends.items(), key=lambda item: item[1]):
        lowest = max(float(to_axes.transform((1, value))[1]), lowest + 0.1)
        beside: dict[str, Any] = {"transform": axis.transAxes, "va": "center", "clip_on": False}
        axis.text(1.01, lowest, name, fontsize=SMALL, **beside)


def _scores_by_layer(data: Measured, setting: str) -> Numbers:
    """The metric of every layer's prediction; of RMSE, which is as the root of a loss, from that.

    Empty where it neither was recorded nor follows.
    """
    if data.metric != RMSE:
        return data.pairs.where(setting=setting, metric=f"layer_{data.metric.key}")
    rows = data.pairs.where(setting=setting, metric="loss", shift=GAUSSIAN)
    keys: tuple[Column, ...] = ("arm", "seed", "severity")
    last = rows.where(layer=max(rows.distinct("layer"), default=0)).indexed(*keys)
    per_root = scores(data, setting).indexed(*keys) / last**0.5
    scored = per_root.reindex(rows.indexed(*keys).index).to_numpy() * rows.values**0.5
    return Numbers(rows.frame.assign(**{VALUE: scored})).having(VALUE)


# --- sample by sample -----------------------------------------------------------------------------


def ratios(data: Measured) -> Figure | None:
    """Quantiles of the loss after a layer over the loss before it, layer by layer."""

    def drawn(axis: Axes, setting: str) -> bool:
        rows, has_data = data.pairs.where(setting=setting), False
        for shift, arm in zip((-0.15, 0.15), ARMS, strict=True):
            levels = {
                q: rows.where(arm=arm, metric=f"descent_ratio_q{q:02d}").mean_by("layer")
                for q in (5, 25, 50, 75, 95)
            }
            if any(level.empty for level in levels.values()):
                continue
            label, colour, _, marker = ARMS[arm]
            x = levels[50].index + shift
            axis.vlines(x, levels[5], levels[95], color=colour, linewidth=0.8)
            axis.vlines(x, levels[25], levels[75], color=colour, linewidth=3, alpha=0.6)
            axis.plot(x, levels[50].to_numpy(), marker, color=colour, label=label)
            has_data = True
        axis.axhline(1, color="black", linewidth=0.8)
        ends = rows.among("metric", ["descent_ratio_q05", "descent_ratio_q95"])
        log_if_wide(axis, ends.values, over=50)
        count_x(axis)
        return has_data

    return per_setting(data, (drawn, "layer", "loss / loss before"))


def histogram(data: Measured) -> Figure | None:
    """Counts of the same ratios over all layers, with mean, median and share below 1."""

    def drawn(axis: Axes, setting: str) -> bool:
        rows = [one for one in data.ratios if one.setting == setting]
        for arm, (label, colour, line, _) in ARMS.items():
            mine = [one for one in rows if one.arm == arm]
            if not mine:
                continue
            counts = np.sum([one.counts for one in mine], axis=0)
            shares = 100 * counts / counts.sum()
            numbers = (
                f"mean {fmean(one.mean for one in mine):.3g}, median {median_of(counts):.2f}, "
                f"{100 * fmean(one.share_below_1 for one in mine):.1f} % below 1"
            )
            above = LAYERED[arm]["zorder"]
            drawn_as: dict[str, Any] = {"color": colour, "linestyle": line}
            axis.stairs(shares, RATIO_EDGES, label=label, zorder=above, **drawn_as)
            axis.plot([], [], label=f"_{numbers}", **drawn_as)
        axis.axvline(1, color=GREY, linewidth=0.8)
        lines = [line for line in axis.get_lines() if str(line.get_label()).startswith("_mean")]
        names = [str(line.get_label())[1:] for line in lines]
        on_white: dict[str, Any] = {"frameon": True, "edgecolor": "none", "framealpha": 1}
        axis.legend(lines, names, fontsize=SMALL, loc="upper right", **on_white)
        bottom, top = axis.get_ylim()
        axis.set_ylim(bottom, 1.4 * top)  # room for the numbers
        axis.set_xticks([0, 0.5, 1, 1.5, 2], ["0", "0.5", "1", "1.5", "2+"])
        return bool(rows)

    return per_setting(data, (drawn, "loss / loss before", "% of samples, layers"))


# The last bin, from 2 up, is drawn as wide as the others.
RATIO_EDGES = np.arange(RATIO_BINS + 1) / RATIO_BINS_TO_1


def median_of(counts: Sequence[int]) -> float:
    """The middle of the bin that the median lies in.

    >>> median_of([0, 3, 1])
    0.03
    """
    below = np.cumsum(counts)
    median_bin = int(np.searchsorted(below, below[-1] / 2))
    return (median_bin + 0.5) / RATIO_BINS_TO_1
