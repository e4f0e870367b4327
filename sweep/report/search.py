"""Figures of the search: proposals by searched values, by scores, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sweep.report.layers import LAYER
from sweep.report.measured import Measured
from sweep.report.numbers import Column, Numbers
from sweep.report.panels import (
    Panel,
    band,
    count_x,
    mark_training,
    per_setting,
    points,
    scores,
    three_gammas,
)  # fmt: skip
from sweep.report.style import ARMS, FAILED, LAYERED, OURS, PLAIN, log_if_wide
from sweep.results.importance import FEWEST, rank_correlation
from sweep.results.tables.columns import GAUSSIAN

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ABLATED = ("alpha", "dual_lr")
# Columns of ``Measured.proposals`` beside the searched values.
SETTING: Final = "setting"
PROPOSAL: Final = "proposal"
OUTCOME: Final = "outcome"
OBJECTIVE: Final = "constrained_objective"
SEEN: Final = "constrained_seen_mean"
UNSEEN: Final = "constrained_unseen_mean"
PLAIN_SEEN: Final = "unconstrained_seen_mean"
PLAIN_UNSEEN: Final = "unconstrained_unseen_mean"
MISSED: Final = "worst_missing_share"
_MEANS = (OBJECTIVE, SEEN, UNSEEN, PLAIN_SEEN, PLAIN_UNSEEN, MISSED)
COLUMNS = (SETTING, PROPOSAL, OUTCOME, *_MEANS)


def _rows(data: Measured, setting: str, columns: Sequence[str]) -> pd.DataFrame:
    """Columns of a setting's proposals, a row a seed."""
    rows = data.proposals.reindex(columns=[SETTING, PROPOSAL, *columns])
    return rows[rows[SETTING] == setting]


def proposals(data: Measured, setting: str) -> pd.DataFrame:
    """A row a proposal: means over its seeds, of what was measured."""
    numbers = (*data.searched, *_MEANS)
    rows = _rows(data, setting, [OUTCOME, *numbers]).astype(dict.fromkeys(numbers, float))
    how: dict[str, Any] = {OUTCOME: "first"} | dict.fromkeys(numbers, "mean")
    return rows.groupby(PROPOSAL).agg(how).dropna(subset=OBJECTIVE)


def searched_values(data: Measured) -> Figure | None:
    """Objective of every proposal by each searched value."""

    def panel(field: str) -> Panel:
        def drawn(axis: Axes, setting: str) -> bool:
            rows = proposals(data, setting)
            points(axis, rows[OUTCOME], rows[field], rows[OBJECTIVE])
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
            values = _rows(data, setting, data.searched).drop_duplicates(PROPOSAL)
            points = values.set_index(PROPOSAL)[[*data.searched]].dropna(subset=field)
            rows = _constrained(data, setting, data.metric.key).among("proposal", points.index)
            if rows.is_empty:
                return False
            gammas = three_gammas(data, setting)
            places = (0, 1, 2) if len(gammas) == 3 else (0, 2)
            for number, gamma in zip(places, gammas, strict=False):
                _ablated(axis, rows.where(severity=gamma), points, field, number, gamma)
                plain = scores(data, setting).where(arm="unconstrained", severity=gamma)
                if not plain.is_empty:
                    colour, mean = GAMMAS[number][0], plain.values.mean()
                    axis.axhline(mean, color=colour, linestyle="--", linewidth=0.7)
            axis.locator_params("x", nbins=4)
            drawn = points.loc[rows.distinct("proposal"), field]
            log_if_wide(axis, drawn.astype(float), "x", over=5)
            return True

        return drawn, field, data.score_label

    return per_setting(data, *map(panel, fields)) if fields else None


GAMMAS = (("#0072B2", "o"), ("#E69F00", "s"), ("#009E73", "^"))  # near, middle, far
_PLACES = ("in distribution", "middle", "far")


def _ablated(
    axis: Axes, rows: Numbers, points: pd.DataFrame, field: str, number: int, gamma: float
) -> None:
    """Means with their seeds' range; joined where nothing else that was searched differs."""
    if rows.is_empty:
        return
    colour, marker = GAMMAS[number]
    by_proposal = rows.by("proposal")
    mean, low, high = by_proposal.mean(), by_proposal.min(), by_proposal.max()
    points = points.reindex(mean.index)
    x, others = points[field].astype(float), points.drop(columns=field)
    drawn_as: dict[str, Any] = {"color": colour, "elinewidth": 0.8, "capsize": 1.5}
    label = f"{_PLACES[number]}: {gamma:g}"
    axis.errorbar(x, mean, [mean - low, high - mean], fmt=marker, label=label, **drawn_as)
    alike = others.apply(tuple, axis=1) if len(others.columns) else np.zeros(len(others))
    for _, same in x.groupby(alike, dropna=False):
        line = same.sort_values()
        if len(line) > 1:
            axis.plot(line, mean[line.index], color=colour, linewidth=0.8)


def importance(data: Measured) -> Figure | None:
    """Rank correlation of each searched value with objective and worst missing share."""

    def among(setting: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        finished = proposals(data, setting).dropna(subset=MISSED)
        return finished[finished[OUTCOME] == "feasible"], finished

    def drawn(axis: Axes, setting: str) -> bool:
        feasible, finished = among(setting)
        bars = (
            ("objective", feasible, OBJECTIVE, OURS, -0.2),
            ("worst missing share", finished, MISSED, PLAIN, 0.2),
        )
        for label, rows, of_what, colour, shift in bars:
            if len(rows) >= FEWEST:
                rhos = [rank_correlation(rows[field], rows[of_what]) for field in data.searched]
                axis.barh(np.arange(len(rhos)) + shift, rhos, 0.36, color=colour, label=label)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_xlim(-1, 1)
        axis.set_yticks(range(len(data.searched)), data.searched)
        axis.set_ylim(len(data.searched) - 0.5, -0.5)
        return len(finished) >= FEWEST

    def title(setting: str) -> str:
        feasible, finished = among(setting)
        return f"{setting}\nproposals: {len(feasible)} feasible, {len(finished)} finished"

    panel = (drawn, "rank correlation", "")
    return per_setting(data, panel, title=title) if data.searched else None


def trade_off(data: Measured) -> Figure | None:
    """Score on seen against unseen gammas: proposals, their Pareto front, plain training."""

    def drawn(axis: Axes, setting: str) -> bool:
        rows = proposals(data, setting).dropna(subset=UNSEEN)
        if rows.empty:
            return False
        points(axis, rows[OUTCOME], rows[SEEN], rows[UNSEEN])
        front = pareto_front(rows, data.metric.higher_is_better)
        if len(front) > 1:
            drawn_as: dict[str, Any] = {"color": "black", "linewidth": 0.8}
            axis.plot(front[SEEN], front[UNSEEN], label="Pareto front", **drawn_as)
        plain = rows[[PLAIN_SEEN, PLAIN_UNSEEN]].dropna()
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
    feasible = rows[rows[OUTCOME] == "feasible"]
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
        points(axis, rows[OUTCOME], rows.index.to_series(), rows[OBJECTIVE])
        best = rows[OBJECTIVE].where(rows[OUTCOME] == "feasible").cummin().dropna()
        if len(best):
            axis.step(best.index, best, where="post", color="black", label="best feasible so far")
        _ring_winner(axis, data, setting, rows.index.to_series(), rows[OBJECTIVE])
        count_x(axis)
        return True

    return per_setting(data, (drawn, "proposal", "objective"))


def _ring_winner(
    axis: Axes, data: Measured, setting: str, x: pd.Series[float], y: pd.Series[float]
) -> None:
    shown = data.entries[setting].proposal
    if data.entries[setting].winner and shown is not None and shown in x.index:
        ring: dict[str, Any] = {"color": "black", "markerfacecolor": "none", "markersize": 8}
        axis.plot(x[shown], y[shown], "o", label="winner", zorder=5, **ring)


def _constrained(data: Measured, setting: str, metric: str) -> Numbers:
    """Numbers of every constrained arm of a setting under noise alone."""
    return data.facts.where(setting=setting, metric=metric, arm="constrained", shift=GAUSSIAN)


def _failed(data: Measured, setting: str) -> int | None:
    """The infeasible proposal, beside the pair shown, that misses most; None: there is none."""
    rows = _rows(data, setting, [OUTCOME, MISSED])
    rows = rows[
        (rows[OUTCOME] == "infeasible") & (rows[PROPOSAL] != data.entries[setting].proposal)
    ]
    shares = rows[MISSED].astype(float).fillna(np.inf)  # none where it is infinite
    means = shares.groupby(rows[PROPOSAL]).mean()
    return None if means.empty else int(means.index[int(means.argmax())])


def failure(data: Measured) -> Figure | None:
    """Loss by layer and score by gamma of an infeasible proposal beside the pair shown."""
    import pandas as pd

    def failed(setting: str, metric: str) -> Numbers:
        return _constrained(data, setting, metric).where(proposal=_failed(data, setting))

    def drawn(axis: Axes, setting: str, metric: str, x: Column) -> bool:
        for arm, (label, *drawn_as) in ARMS.items():
            name = "winner, or closest" if arm == "constrained" else label
            pair = data.pairs.where(setting=setting, metric=metric, arm=arm, shift=GAUSSIAN)
            band(axis, pair, x, (name, *drawn_as), **LAYERED[arm])
        return band(axis, failed(setting, metric), x, FAILED)

    def loss(axis: Axes, setting: str) -> bool:
        has_data = drawn(axis, setting, "held_out_loss", "layer")
        parts = (
            data.pairs.where(setting=setting, metric="held_out_loss"),
            failed(setting, "held_out_loss"),
        )
        log_if_wide(axis, pd.concat([part.having("layer").values for part in parts]))
        count_x(axis)
        return has_data

    def score(axis: Axes, setting: str) -> bool:
        mark_training(axis, data, setting)
        return drawn(axis, setting, data.metric.key, "severity")

    def title(setting: str) -> str:
        return f"{data.title(setting)}; infeasible: proposal {_failed(data, setting)}"

    panels = (loss, LAYER, "held-out loss"), (score, "test gamma", data.score_label)
    return per_setting(data, *panels, title=title)
