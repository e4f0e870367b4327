"""Figures of a sweep, for a paper's column and for the report.

Each is a function of ``Measured``. Lines are means over seeds, bands go from the lowest to the
highest seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweep.report.measured import Measured
from sweep.report.style import ARMS, GREY, grid, legend, log_if_wide, scratch, style
from trainables.registry.task_facts import reference_label

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """One figure: what it is called, what it shows in words, how it is drawn."""

    title: str
    caption: str
    draw: Callable[[Measured], Figure | None]  # None: this sweep has nothing to draw there


def _per_setting(
    data: Measured, drawn: Callable[[Axes, str], bool], x: str, y: str, *, integers: bool = False
) -> Figure | None:
    """A panel for each setting of which ``drawn`` finds something to draw."""
    from matplotlib.ticker import MaxNLocator

    names = [name for name in data.entries if drawn(scratch(), name)]
    if not names:
        return None
    figure, panels = grid(len(names))
    for axis, name in zip(panels, names, strict=True):
        drawn(axis, name)
        axis.set_title(data.title(name))
        axis.set_xlabel(x)
        axis.set_ylabel(y)
        if integers:
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(panels[0], panels)
    return figure


def _band(axis: Axes, rows: pd.DataFrame, x: str, arm: str, **options: Any) -> bool:
    """An arm's mean over seeds against ``x``, and the range of its seeds."""
    if rows.empty:
        return False
    label, colour, line, marker = ARMS[arm]
    by_x = rows.groupby(x)["value"]
    mean, low, high = by_x.mean(), by_x.min(), by_x.max()
    style_of = {"color": colour, "linestyle": line, "marker": marker, "label": label, **options}
    axis.plot(mean.index, mean.to_numpy(), **style_of)
    if rows["seed"].nunique() > 1:
        axis.fill_between(mean.index, low.to_numpy(), high.to_numpy(), color=colour, alpha=0.15)
    return True


def _of(data: Measured, setting: str, metric: str, arm: str | None = None) -> pd.DataFrame:
    rows = data.pairs[(data.pairs["setting"] == setting) & (data.pairs["metric"] == metric)]
    return rows if arm is None else rows[rows["arm"] == arm]


# --- score and loss -------------------------------------------------------------------------------


def _losses_by_layer(data: Measured) -> Figure | None:
    def drawn(axis: Axes, setting: str) -> bool:
        losses = _of(data, setting, "held_out_loss").dropna(subset="layer")
        found = [_band(axis, losses[losses["arm"] == arm], "layer", arm) for arm in ARMS]
        for arm in ARMS:
            probe = _of(data, setting, "probe_loss", arm)
            label = f"{ARMS[arm][0]}, probe"
            _band(axis, probe, "layer", arm, linestyle=":", marker="", label=label)
        log_if_wide(axis, losses["value"])
        return any(found)

    return _per_setting(data, drawn, "layer (0: the input)", "held-out loss", integers=True)


def _scores(data: Measured, setting: str) -> pd.DataFrame:
    rows = _of(data, setting, data.metric.key)
    return rows[rows["shift"] == "gaussian"]


def _scores_by_gamma(data: Measured) -> Figure | None:
    def drawn(axis: Axes, setting: str) -> bool:
        rows = _scores(data, setting)
        found = [_band(axis, rows[rows["arm"] == arm], "severity", arm) for arm in ARMS]
        for name, line in zip(data.metric.shown, (":", "-."), strict=False):
            reference = rows[rows["arm"] == name].sort_values("severity")
            label = reference_label(name)
            axis.plot(reference["severity"], reference["value"], line, color=GREY, label=label)
        _mark_training(axis, data, setting)
        return any(found)

    return _per_setting(data, drawn, "test gamma", f"{data.metric.label}, {data.metric.unit}")


def _mark_training(axis: Axes, data: Measured, setting: str) -> None:
    at = _of(data, setting, "held_out_loss")["severity"].dropna()
    if len(at):
        axis.axvline(at.iloc[0], color=GREY, linewidth=0.7, alpha=0.6)


def _differences_by_gamma(data: Measured) -> Figure | None:
    sign = 1 if data.metric.higher_is_better else -1

    def drawn(axis: Axes, setting: str) -> bool:
        rows = _scores(data, setting)
        wide = rows[rows["arm"].isin(ARMS)].pivot_table(
            index=["seed", "severity"], columns="arm", values="value"
        )
        if not set(ARMS) <= set(wide.columns):
            return False
        gains = (sign * (wide["constrained"] - wide["unconstrained"])).dropna().unstack("seed")
        axis.plot(gains.index, gains.to_numpy(), color=GREY, linewidth=0.6, alpha=0.7)
        axis.plot(gains.index, gains.mean(axis=1), color=ARMS["constrained"][1], marker="o")
        axis.axhline(0, color="black", linewidth=0.8)
        _mark_training(axis, data, setting)
        return bool(len(gains))

    return _per_setting(data, drawn, "test gamma", f"gain, {data.metric.unit}")


def _losses_by_depth(data: Measured) -> Figure | None:
    def drawn(axis: Axes, setting: str) -> bool:
        rows = _of(data, setting, "loss")
        rows = rows[rows["shift"] == "gaussian"]
        gammas = sorted(rows["severity"].unique())
        few = gammas if len(gammas) <= 4 else [gammas[i * (len(gammas) - 1) // 3] for i in range(4)]
        for gamma, (at, arm) in ((g, each) for g in few for each in enumerate(ARMS)):
            line = rows[(rows["arm"] == arm) & (rows["severity"] == gamma)]
            mean = line.groupby("layer")["value"].mean()
            label, colour, dash, _ = ARMS[arm]
            named = label if gamma == few[0] else None
            axis.plot(mean.index, mean.to_numpy(), dash, color=colour, label=named, linewidth=0.9)
            if len(mean) and not at:
                axis.annotate(f"{gamma:g}", (mean.index[-1], mean.iloc[-1]), fontsize=6)
        log_if_wide(axis, rows["value"])
        return not rows.empty

    x = "layers that are run"
    return _per_setting(data, drawn, x, "loss at test gamma", integers=True)


def _ratios_by_layer(data: Measured) -> Figure | None:
    def drawn(axis: Axes, setting: str) -> bool:
        found = False
        for shift, arm in zip((-0.15, 0.15), ARMS, strict=True):
            levels = {
                q: _of(data, setting, f"descent_ratio_q{q:02d}", arm)
                .groupby("layer")["value"]
                .mean()
                for q in (5, 25, 50, 75, 95)
            }
            if any(level.empty for level in levels.values()):
                continue
            label, colour, _, marker = ARMS[arm]
            x = levels[50].index + shift
            axis.vlines(x, levels[5], levels[95], color=colour, linewidth=0.8)
            axis.vlines(x, levels[25], levels[75], color=colour, linewidth=3, alpha=0.6)
            axis.plot(x, levels[50].to_numpy(), marker, color=colour, label=label)
            found = True
        axis.axhline(1, color="black", linewidth=0.8)
        return found

    y = "loss / loss before"
    return _per_setting(data, drawn, "layer", y, integers=True)


# --- over training --------------------------------------------------------------------------------


def _trajectories(data: Measured) -> Figure | None:
    import matplotlib as mpl

    kinds = {"multipliers": "multiplier", "weights": "layer weight"}
    rows = data.steps[data.steps["series"].isin(kinds) & (data.steps["arm"] == "constrained")]
    names = [name for name in data.entries if (rows["setting"] == name).any()]
    if not names:
        return None
    figure, panels = grid(2 * len(names))
    for at, name in enumerate(names):
        for axis, (series, y) in zip(panels[2 * at : 2 * at + 2], kinds.items(), strict=True):
            mine = rows[(rows["setting"] == name) & (rows["series"] == series)]
            layers = sorted(mine["layer"].unique())
            for layer in layers:
                mean = mine[mine["layer"] == layer].groupby("step")["value"].mean()
                label = f"layer {layer:.0f}" if layer in (layers[0], layers[-1]) else None
                colour = mpl.colormaps["viridis"](layer / layers[-1])
                axis.plot(mean.index, mean.to_numpy(), color=colour, marker=".", label=label)
            axis.set_title(data.title(name))
            axis.set_xlabel("step")
            axis.set_ylabel(y)
            legend(axis)
    return figure


# --- the search -----------------------------------------------------------------------------------

_OURS = ARMS["constrained"][1]
OUTCOMES = {"feasible": ("o", _OURS), "infeasible": ("o", "none")}  # marker, face; the rest: x


def _proposals(data: Measured, setting: str) -> pd.DataFrame:
    """A row a proposal: means over its seeds, of what was measured."""
    how: dict[str, Any] = {"outcome": "first"} | dict.fromkeys((*data.searched, *_MEANS), "mean")
    rows = data.proposals.reindex(columns=["setting", "proposal", *how])
    mine = rows[rows["setting"] == setting]
    numbers = mine.assign(**{n: mine[n].astype(float) for n in how if n != "outcome"})
    return numbers.groupby("proposal").agg(how).dropna(subset="constrained_objective")


_MEANS = (
    "constrained_objective", "constrained_seen_mean", "constrained_unseen_mean",
    "unconstrained_seen_mean", "unconstrained_unseen_mean",
)  # fmt: skip


def _points(axis: Axes, rows: pd.DataFrame, x: pd.Series[float], y: pd.Series[float]) -> None:
    for outcome, at in rows.groupby("outcome").groups.items():
        marker, face = OUTCOMES.get(str(outcome), ("x", _OURS))
        axis.plot(
            x[at], y[at], marker, color=_OURS, markerfacecolor=face, label=str(outcome), zorder=3
        )


def _searched_values(data: Measured) -> Figure | None:
    names = [name for name in data.entries if not _proposals(data, name).empty]
    if not names or not data.searched:
        return None
    figure, panels = grid(len(names) * len(data.searched), len(data.searched))
    left = iter(panels)
    for name in names:
        rows = _proposals(data, name)
        for field in data.searched:
            axis = next(left)
            _points(axis, rows, rows[field], rows["constrained_objective"])
            values = rows[field].dropna()
            if len(values) and (values > 0).all() and values.max() > 20 * values.min():
                axis.set_xscale("log")
            axis.set_title(name)
            axis.set_xlabel(field)
            axis.set_ylabel("objective")
    legend(panels[0], panels)
    return figure


def _trade_off(data: Measured) -> Figure | None:
    def drawn(axis: Axes, setting: str) -> bool:
        rows = _proposals(data, setting).dropna(subset="constrained_unseen_mean")
        if rows.empty:
            return False
        _points(axis, rows, rows["constrained_seen_mean"], rows["constrained_unseen_mean"])
        plain = rows[["unconstrained_seen_mean", "unconstrained_unseen_mean"]].dropna()
        if len(plain):
            label, colour, _, marker = ARMS["unconstrained"]
            axis.plot(*plain.iloc[0], marker, color=colour, markersize=5, label=label, zorder=4)
        return True

    unit = f"{data.metric.label}, {data.metric.unit}"
    return _per_setting(data, drawn, f"seen gammas: {unit}", f"unseen: {unit}")


def _progress(data: Measured) -> Figure | None:
    def drawn(axis: Axes, setting: str) -> bool:
        rows = _proposals(data, setting)
        if rows.empty:
            return False
        _points(axis, rows, rows.index.to_series(), rows["constrained_objective"])
        best = rows["constrained_objective"].where(rows["outcome"] == "feasible").cummin().dropna()
        if len(best):
            axis.step(best.index, best, where="post", color="black", label="best feasible so far")
        if data.entries[setting]["winner"]:
            at = data.entries[setting]["proposal"]
            ring: dict[str, Any] = {
                "markersize": 8,
                "markerfacecolor": "none",
                "color": "black",
                "label": "winner",
            }
            axis.plot(at, rows["constrained_objective"][at], "o", **ring)
        return True

    return _per_setting(data, drawn, "proposal", "objective", integers=True)


# --- over settings --------------------------------------------------------------------------------


def _gains(data: Measured) -> Figure | None:
    """Paired differences of the pairs shown, a row a setting: each seed, and their mean."""
    blocks = {"seen": "seen_mean", "unseen": "unseen_mean"}
    sign = 1 if data.metric.higher_is_better else -1
    found = {
        name: {
            block: [
                sign * pair["difference"][key]
                for pair in entry["seeds"].values()
                if pair["difference"].get(key) is not None
            ]
            for block, key in blocks.items()
        }
        for name, entry in data.entries.items()
    }
    names = [name for name, of in found.items() if any(of.values())]
    if not names:
        return None
    figure, panels = grid(2, height=0.28 * len(names) + 0.9)
    for axis, block in zip(panels, blocks, strict=True):
        for row, name in enumerate(names):
            values = found[name][block]
            if not values:
                continue
            filled = _OURS if data.entries[name]["winner"] else "white"
            axis.plot(values, [row] * len(values), "|", color=GREY)
            mean = sum(values) / len(values)
            axis.plot(mean, row, "o", color=_OURS, markerfacecolor=filled, markersize=4)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_yticks(range(len(names)), names if axis is panels[0] else [""] * len(names))
        axis.set_xlabel(f"gain on {block} gammas, {data.metric.unit}")
    return figure


def _cost(data: Measured) -> Figure | None:
    rows = data.pairs[data.pairs["metric"] == "train_seconds"]
    if rows.empty:
        return None
    names = [name for name in data.entries if (rows["setting"] == name).any()]
    figure, (axis,) = grid(1, height=0.35 * len(names) + 1.1)
    for shift, (arm, (label, colour, _, _)) in zip((-0.2, 0.2), ARMS.items(), strict=True):
        mean = rows[rows["arm"] == arm].groupby("setting")["value"].mean().reindex(names)
        axis.barh([i + shift for i in range(len(names))], mean, 0.36, color=colour, label=label)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlabel("training, seconds")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


_SEEDS = "Lines are means over seeds, bands go from the lowest to the highest seed."
_MARKS = (
    "Filled: feasible; hollow: infeasible; a cross: it ended early on some seed. Means are over "
    "the seeds that finished; a proposal without any is not drawn."
)
FIGURES: Mapping[str, Drawing] = {
    "gains": Drawing(
        "Constrained against plain training",
        "Gain of the constrained network of each setting's winner (filled; hollow: the closest "
        "pair, where there is no winner) over plain training on the same seeds; above 0 it is "
        "better. A tick is a seed. Pairs that a search selected by their score look better than "
        "they are: `sweep confirm` tests them on fresh seeds.",
        _gains,
    ),
    "scores": Drawing(
        "Score by test gamma",
        f"Each setting's pair, beside predictors that need no training. {_SEEDS} The grey line is "
        "the noise of training.",
        _scores_by_gamma,
    ),
    "differences": Drawing(
        "Gain by test gamma",
        "Constrained less plain training, so signed that above 0 the constrained network is "
        "better. Grey: seeds; blue: their mean. The grey line is the noise of training.",
        _differences_by_gamma,
    ),
    "layers": Drawing(
        "Loss by layer",
        f"Held-out loss of the readout after every layer, at the noise of training. {_SEEDS} "
        "Dotted, for texts: a probe of each layer's own.",
        _losses_by_layer,
    ),
    "depth": Drawing(
        "Loss by depth and test gamma",
        "What the network loses when it stops after so many layers, means over seeds; the number "
        "at a line's end is its test gamma.",
        _losses_by_depth,
    ),
    "ratios": Drawing(
        "Descent, sample by sample",
        "Loss after a layer over the loss before it, of held-out samples: median, middle half and "
        "5 to 95 %, quantiles averaged over seeds. Below 1 the layer improves the sample.",
        _ratios_by_layer,
    ),
    "trajectories": Drawing(
        "Multipliers and layer weights over training",
        "Of the constrained network, at its reports, means over seeds; from the first layer, dark, "
        "to the last, bright. Weights are means over the steps between reports.",
        _trajectories,
    ),
    "searched": Drawing(
        "What was searched",
        f"Objective of every proposal, mean over seeds, by each searched value; lower is better. "
        f"{_MARKS}",
        _searched_values,
    ),
    "trade-off": Drawing(
        "In distribution against out of distribution",
        f"Every proposal's score on seen and unseen gammas, mean over seeds. {_MARKS} Square: "
        "plain training.",
        _trade_off,
    ),
    "progress": Drawing(
        "Progress of the search",
        "Objective by proposal, in the order of the search; lower is better. A feasible proposal "
        f"that is vacuous, useless or asks for too little cannot win. {_MARKS}",
        _progress,
    ),
    "cost": Drawing(
        "Cost of both arms",
        "Seconds in training steps, mean over seeds, evaluation left out; arms that shared a "
        "machine slow each other down.",
        _cost,
    ),
}


def draw(data: Measured, names: Sequence[str] = tuple(FIGURES)) -> dict[str, Figure]:
    """The figures of these names that the sweep has anything for."""
    with style():
        drawn = {name: FIGURES[name].draw(data) for name in names}
        for figure in drawn.values():
            if figure is not None:
                figure.draw_without_rendering()
                figure.set_layout_engine("none")  # it stays as it was laid out, once
    return {name: figure for name, figure in drawn.items() if figure is not None}
