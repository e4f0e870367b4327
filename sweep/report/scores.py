"""Figures of scores: gains, by test gamma, by network depth and training noise."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from sweep.report.measured import Measured
from sweep.report.panels import bands, mark_training, per_setting, scores
from sweep.report.style import ARMS, GREY, OURS, grid, legend, shade
from sweep.results.summary import Gain
from trainables.registry.task_facts import reference_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def gains(data: Measured) -> Figure | None:
    """Gains of the pairs shown, a row a setting: each seed, and their mean."""
    blocks: dict[str, Callable[[Gain], float | None]] = {  # the question first
        "unseen": lambda gain: gain.unseen_mean,
        "seen": lambda gain: gain.seen_mean,
    }
    gains_by_setting = {
        name: {
            block: [gain for one in entry.seeds.values() if (gain := mean(one.gain)) is not None]
            for block, mean in blocks.items()
        }
        for name, entry in data.entries.items()
    }
    names = [name for name, by_block in gains_by_setting.items() if any(by_block.values())]
    if not names:
        return None
    seeds = {name: max(map(len, gains_by_setting[name].values())) for name in names}
    wanted = {name: len(data.entries[name].search_seeds) for name in names}
    few = {n: f" ({seeds[n]} of {wanted[n]} seeds)" * (seeds[n] < wanted[n]) for n in names}
    labels = [name + few[name] for name in names]
    figure, panels = grid(2, height=0.22 * len(names) + 0.6)
    for axis, block in zip(panels, blocks, strict=True):
        for row, name in enumerate(names):
            values = gains_by_setting[name][block]
            if not values:
                continue
            filled = OURS if data.entries[name].winner else "white"
            axis.plot(values, [row] * len(values), "|", color=GREY, markersize=6)
            mean = sum(values) / len(values)
            axis.plot(mean, row, "o", color=OURS, markerfacecolor=filled, markersize=4)
        least = data.metric.smallest_effect
        axis.axvspan(-least, least, color=GREY, alpha=0.15, linewidth=0)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_yticks(range(len(names)), labels, fontsize=7)
        axis.set_xlabel(f"gain on {block} gammas,\n{data.metric.unit}")  # narrow beside names
        axis.locator_params(axis="x", nbins=4)  # longer ones run into each other
    return figure


def by_gamma(data: Measured) -> Figure | None:
    """Score by test gamma of both arms, beside predictors that need no training."""

    def drawn(axis: Axes, setting: str) -> bool:
        rows = scores(data, setting)
        has_data = bands(axis, rows, "severity")
        for name, line in zip(data.metric.shown, (":", "-.", (0, (1, 3))), strict=False):
            reference = rows.where(arm=name).mean_by("severity")
            label = reference_label(name)
            x, y = reference.index, reference.to_numpy()
            axis.plot(x, y, linestyle=line, color=GREY, label=label, zorder=1.5)
        _hold_to_arms(axis, data, setting)
        mark_training(axis, data, setting)
        return has_data

    return per_setting(data, (drawn, "test gamma", data.score_label))


def _hold_to_arms(axis: Axes, data: Measured, setting: str) -> None:
    """A reference that is far off does not press the arms together: it leaves the panel."""
    values = scores(data, setting).among("arm", ARMS).values
    if values.empty:
        return
    low, high = values.min(), values.max()
    bottom, top = axis.get_ylim()
    room = max(high - low, 1e-12)
    axis.set_ylim(max(bottom, low - room), min(top, high + room))


def gain_by_gamma(data: Measured) -> Figure | None:
    """Gain by test gamma: every seed, and their mean."""

    def drawn(axis: Axes, setting: str) -> bool:
        rows = scores(data, setting)
        ours, plain = (rows.where(arm=arm).indexed("seed", "severity") for arm in ARMS)
        if ours.empty or plain.empty:
            return False
        gains = ours.combine(plain, data.metric.gain).dropna().unstack("seed")
        axis.plot(gains.index, gains.to_numpy(), color=GREY, linewidth=0.6, alpha=0.7)
        axis.plot(gains.index, gains.mean(axis=1), color=OURS, marker="o")
        axis.axhline(0, color="black", linewidth=0.8)
        mark_training(axis, data, setting)
        return bool(len(gains))

    return per_setting(data, (drawn, "test gamma", f"gain, {data.metric.unit}"))


# --- families of settings -------------------------------------------------------------------------

DEPTH, NOISE = "model.layers", "train_gamma"
MOST_LINES = 7  # of a panel


def families(data: Measured, field: str) -> list[list[str]]:
    """Settings that differ in one field of their run alone, by its value; two or more each."""
    alike: dict[str, dict[str, float]] = {}
    for name in data.entries:
        run = data.runs[name].to_json()
        for dotted in (*data.fields, field):
            section, _, last = dotted.rpartition(".")
            (run[section] if section else run).pop(last, None)
        alike.setdefault(repr(run), {})[name] = data.runs[name].value_of(field)
    several = [family for family in alike.values() if len(set(family.values())) > 1]
    return [sorted(family, key=lambda name: (family[name], name)) for family in several]


def by_depth(data: Measured) -> Figure | None:
    """Score by test gamma of networks of several depths, a panel an arm."""
    return _by_family(data, DEPTH, "layers")


def by_train_gamma(data: Measured) -> Figure | None:
    """Score by test gamma after training at several gammas, a panel an arm."""
    return _by_family(data, NOISE, "trained at")


def _by_family(data: Measured, field: str, title: str) -> Figure | None:
    measured = [
        [name for name in family if not scores(data, name).is_empty]
        for family in families(data, field)
    ]
    several = [_few(names) for names in measured if len(names) > 1]
    if not several:
        return None
    figure, panels = grid(2 * len(several))
    for row, names in enumerate(several):
        pair = panels[2 * row : 2 * row + 2]
        for axis, (arm, (arm_label, *_)) in zip(pair, ARMS.items(), strict=True):
            for number, name in enumerate(names):
                mean = scores(data, name).where(arm=arm).mean_by("severity")
                colour = shade(0.85 * number / (len(names) - 1))
                look: dict[str, Any] = {"color": colour, "marker": "os^Dv<>"[number % 7]}
                label = f"{title} {data.runs[name].value_of(field):g}"
                axis.plot(mean.index, mean.to_numpy(), label=label, **look)
            axis.set_title(f"{_pattern(names)}\n{arm_label}")
            axis.set_xlabel("test gamma")
            axis.set_ylabel(data.score_label)
        pair[1].sharey(pair[0])
        pair[0].autoscale(axis="y")
    legend(figure)
    return figure


def _few(names: list[str]) -> list[str]:
    """As many as can be told apart, from the first to the last."""
    if len(names) <= MOST_LINES:
        return names
    return [names[k * (len(names) - 1) // (MOST_LINES - 1)] for k in range(MOST_LINES)]


def _pattern(names: list[str]) -> str:
    """The common part of the names, with a star where they differ.

    >>> _pattern(["ped2-L3-g0.15", "ped2-L5-g0.15"])
    'ped2-L*-g0.15'
    """
    head = _shared(names)
    rest = [name[len(head) :] for name in names]
    tail = _shared([text[::-1] for text in rest])[::-1]
    return f"{head}*{tail}"


def _shared(names: list[str]) -> str:
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in same)
