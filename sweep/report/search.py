"""Figures of the search: proposals by searched values, by scores, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sweep.report.layers import LAYER
from sweep.report.measured import Measured
from sweep.report.panels import (
    Panel,
    band,
    count_x,
    mark_training,
    metric_rows,
    per_setting,
    points,
    scores,
    three_gammas,
)
from sweep.report.style import ARMS, FAILED, LAYERED, OURS, PLAIN, log_if_wide
from sweep.results.importance import FEWEST, rank_correlation

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ABLATED = ("alpha", "dual_lr")
SEEN, UNSEEN = "constrained_seen_mean", "constrained_unseen_mean"
_MEANS = (
    "constrained_objective", SEEN, UNSEEN,
    "unconstrained_seen_mean", "unconstrained_unseen_mean", "worst_missing_share",
)  # fmt: skip


def proposals(data: Measured, setting: str) -> pd.DataFrame:
    """A row a proposal: means over its seeds, of what was measured."""
    how: dict[str, Any] = {"outcome": "first"} | dict.fromkeys((*data.searched, *_MEANS), "mean")
    rows = data.proposals.reindex(columns=["setting", "proposal", *how])
    mine = rows[rows["setting"] == setting]
    numbers = mine.assign(**{n: mine[n].astype(float) for n in how if n != "outcome"})
    return numbers.groupby("proposal").agg(how).dropna(subset="constrained_objective")


def searched_values(data: Measured) -> Figure | None:
    """Objective of every proposal by each searched value."""

    def panel(field: str) -> Panel:
        def drawn(axis: Axes, setting: str) -> bool:
            rows = proposals(data, setting)
            points(axis, rows, rows[field], rows["constrained_objective"])
            axis.locator_params("x", nbins=3)
            log_if_wide(axis, rows[field].dropna(), "x", over=5)
            return not rows[field].dropna().empty

        return drawn, field, "objective"

    return per_setting(data, *map(panel, data.searched)) if data.searched else None


def ablation(data: Measured) -> Figure | None:
    """Score at three test gammas of every proposal by alpha, and by dual_lr."""
    fields = [field for field in ABLATED if field in data.searched]

    def panel(field: str) -> Panel:
        def drawn(axis: Axes, setting: str) -> bool:
            values = data.proposals[data.proposals["setting"] == setting]
            points = values.drop_duplicates("proposal").set_index("proposal")[[*data.searched]]
            rows = _constrained(data, setting, data.metric.key).join(points, on="proposal")
            rows = rows.dropna(subset=field)
            if rows.empty:
                return False
            gammas = three_gammas(data, setting)
            places = (0, 1, 2) if len(gammas) == 3 else (0, 2)
            for number, gamma in zip(places, gammas, strict=False):
                _ablated(axis, rows[rows["severity"] == gamma], field, data, number, gamma)
                plain = scores(data, setting)
                same = (plain["arm"] == "unconstrained") & (plain["severity"] == gamma)
                if same.any():
                    axis.axhline(
                        plain[same]["value"].mean(),
                        color=GAMMAS[number][0],
                        linestyle="--",
                        linewidth=0.7,
                    )
            axis.locator_params("x", nbins=4)
            log_if_wide(axis, rows[field].astype(float), "x", over=5)
            return True

        return drawn, field, data.score_label

    return per_setting(data, *map(panel, fields)) if fields else None


GAMMAS = (("#0072B2", "o"), ("#E69F00", "s"), ("#009E73", "^"))  # near, middle, far
_PLACES = ("in distribution", "middle", "far")


def _ablated(
    axis: Axes, rows: pd.DataFrame, field: str, data: Measured, number: int, gamma: float
) -> None:
    """Means with their seeds' range; joined where nothing else that was searched differs."""
    if rows.empty:
        return
    colour, marker = GAMMAS[number]
    by = rows.groupby("proposal").agg(
        x=(field, "first"), mean=("value", "mean"), low=("value", "min"), high=("value", "max")
    )
    error = [by["mean"] - by["low"], by["high"] - by["mean"]]
    axis.errorbar(
        by["x"].astype(float),
        by["mean"],
        error,
        fmt=marker,
        color=colour,
        elinewidth=0.8,
        capsize=1.5,
        label=f"{_PLACES[number]}: {gamma:g}",
    )
    others = rows.groupby("proposal")[[n for n in data.searched if n != field]].first()
    alike = others.apply(tuple, axis=1) if len(others.columns) else others.assign(one=0)["one"]
    for _, same in by.groupby(alike, dropna=False):
        line = same.sort_values("x")
        if len(line) > 1:
            axis.plot(line["x"].astype(float), line["mean"], color=colour, linewidth=0.8)


def importance(data: Measured) -> Figure | None:
    """Rank correlation of each searched value with objective and worst missing share."""

    def among(setting: str) -> dict[str, pd.DataFrame]:
        finished = proposals(data, setting).dropna(subset="worst_missing_share")
        return {"feasible": finished[finished["outcome"] == "feasible"], "finished": finished}

    def drawn(axis: Axes, setting: str) -> bool:
        rows_of = among(setting)
        bars = (
            ("objective", rows_of["feasible"], "constrained_objective", OURS, -0.2),
            ("worst missing share", rows_of["finished"], "worst_missing_share", PLAIN, 0.2),
        )
        for label, rows, of_what, colour, shift in bars:
            if len(rows) >= FEWEST:
                rhos = [rank_correlation(rows[field], rows[of_what]) for field in data.searched]
                axis.barh(np.arange(len(rhos)) + shift, rhos, 0.36, color=colour, label=label)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_xlim(-1, 1)
        axis.set_yticks(range(len(data.searched)), data.searched)
        axis.set_ylim(len(data.searched) - 0.5, -0.5)
        return len(rows_of["finished"]) >= FEWEST

    def title(setting: str) -> str:
        counts = ", ".join(f"{len(rows)} {name}" for name, rows in among(setting).items())
        return f"{setting}\nproposals: {counts}"

    panel = (drawn, "rank correlation", "")
    return per_setting(data, panel, title=title) if data.searched else None


def trade_off(data: Measured) -> Figure | None:
    """Score on seen against unseen gammas: proposals, their Pareto front, plain training."""

    def drawn(axis: Axes, setting: str) -> bool:
        rows = proposals(data, setting).dropna(subset=UNSEEN)
        if rows.empty:
            return False
        points(axis, rows, rows[SEEN], rows[UNSEEN])
        front = pareto_front(rows, data.metric.higher_is_better)
        if len(front) > 1:
            axis.plot(
                front[SEEN], front[UNSEEN], color="black", linewidth=0.8, label="Pareto front"
            )
        plain = rows[["unconstrained_seen_mean", "unconstrained_unseen_mean"]].dropna()
        if len(plain):
            label, colour, _, marker = ARMS["unconstrained"]
            axis.plot(*plain.iloc[0], marker, color=colour, markersize=5, label=label, zorder=4)
        _ring_winner(axis, data, setting, rows[SEEN], rows[UNSEEN])
        return True

    unit, label = data.metric.unit, data.metric.label
    return per_setting(
        data, (drawn, f"{label} on seen gammas, {unit}", f"{label} on unseen, {unit}")
    )


def pareto_front(rows: pd.DataFrame, higher_is_better: bool) -> pd.DataFrame:
    """Feasible proposals than which none is better in one score and no worse in the other.

    In order of the seen score, the best first; of proposals with the same two scores one is there.
    """
    feasible = rows[rows["outcome"] == "feasible"]
    sign = -1 if higher_is_better else 1
    losses = (sign * feasible[[SEEN, UNSEEN]]).sort_values([SEEN, UNSEEN])
    least_before = losses[UNSEEN].cummin().shift(fill_value=np.inf)
    return feasible.loc[losses.index[losses[UNSEEN] < least_before]]


def progress(data: Measured) -> Figure | None:
    """Objective by proposal, in the order of the search, and the best so far."""

    def drawn(axis: Axes, setting: str) -> bool:
        rows = proposals(data, setting)
        if rows.empty:
            return False
        points(axis, rows, rows.index.to_series(), rows["constrained_objective"])
        best = rows["constrained_objective"].where(rows["outcome"] == "feasible").cummin().dropna()
        if len(best):
            axis.step(best.index, best, where="post", color="black", label="best feasible so far")
        _ring_winner(axis, data, setting, rows.index.to_series(), rows["constrained_objective"])
        count_x(axis)
        return True

    return per_setting(data, (drawn, "proposal", "objective"))


def _ring_winner(
    axis: Axes, data: Measured, setting: str, x: pd.Series[float], y: pd.Series[float]
) -> None:
    shown = data.entries[setting].proposal
    if data.entries[setting].winner and shown is not None and shown in x.index:
        ring: dict[str, Any] = {
            "color": "black",
            "markerfacecolor": "none",
            "markersize": 8,
            "zorder": 5,
        }
        axis.plot(x[shown], y[shown], "o", label="winner", **ring)


def _constrained(data: Measured, setting: str, metric: str) -> pd.DataFrame:
    """Numbers of every constrained arm of a setting under noise alone."""
    facts = data.facts[(data.facts["setting"] == setting) & (data.facts["metric"] == metric)]
    return facts[(facts["arm"] == "constrained") & (facts["shift"] == "gaussian")]


def _failed(data: Measured, setting: str, metric: str) -> pd.DataFrame:
    """The same of the infeasible proposal that misses most; empty where there is none."""
    facts = _constrained(data, setting, metric)
    return facts[facts["proposal"] == data.failed.get(setting)]


def failure(data: Measured) -> Figure | None:
    """Loss by layer and score by gamma of an infeasible proposal beside the pair shown."""
    import pandas as pd

    def drawn(axis: Axes, setting: str, metric: str, x: str) -> bool:
        for arm, (label, *drawn_as) in ARMS.items():
            name = "winner, or closest" if arm == "constrained" else label
            pair = metric_rows(data, setting, metric, arm)
            band(axis, pair[pair["shift"] == "gaussian"], x, (name, *drawn_as), **LAYERED[arm])
        return band(axis, _failed(data, setting, metric), x, FAILED)

    def loss(axis: Axes, setting: str) -> bool:
        has_data = drawn(axis, setting, "held_out_loss", "layer")
        parts = metric_rows(data, setting, "held_out_loss"), _failed(data, setting, "held_out_loss")
        log_if_wide(axis, pd.concat(parts).dropna(subset="layer")["value"])
        count_x(axis)
        return has_data

    def score(axis: Axes, setting: str) -> bool:
        mark_training(axis, data, setting)
        return drawn(axis, setting, data.metric.key, "severity")

    def title(setting: str) -> str:
        return f"{data.title(setting)}; infeasible: proposal {data.failed[setting]}"

    panels = (
        (loss, LAYER, "held-out loss"),
        (score, "test gamma", data.score_label),
    )
    return per_setting(data, *panels, title=title)
