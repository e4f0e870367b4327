"""Figures of a sweep, for a paper's column and for the report.

Each is a function of ``Measured``. Many settings are drawn on several pages, each a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from sweep.glossary import DIRECTION, TERMS, capitalised
from sweep.report import confirmed, layers, scores, search, training
from sweep.report.measured import Measured
from sweep.report.style import head, style
from sweep.results.importance import FEWEST

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _each(data: Measured) -> list[list[str]]:
    """Every setting stands alone."""
    return [[name] for name in data.entries]


@dataclass(frozen=True)
class Drawing:
    """One figure: what it is called, what it shows in words, how it is drawn."""

    title: str
    caption: str
    draw: Callable[[Measured], Figure | None]  # None: this sweep has nothing to draw there
    a_page: int = 8  # so many of ``groups``: what a page of print has room for
    groups: Callable[[Measured], list[list[str]]] = _each  # settings that share a panel


_SEEDS = "Lines are means over seeds, bands go from the lowest to the highest seed."
_MARKS = (
    "Filled: feasible; hollow: infeasible; a cross: it ended early on some seed. Means are over "
    "the seeds that finished; a proposal without any is not drawn."
)
_NOISE = "The upright line is the noise of training."
FIGURES: Mapping[str, Drawing] = {
    "gains": Drawing(
        "Constrained against plain training",
        "Gain of the constrained network of each setting's winner (filled; hollow: the closest "
        "pair, where there is no winner) over plain training on the same seeds; above 0 it is "
        "better. A tick is a seed; shaded is what is too small to matter. Pairs that a search "
        "selected by their score look better than they are: `sweep confirm` tests them on fresh "
        "seeds.",
        scores.gains,
        a_page=30,
    ),
    "forest": Drawing(
        "Confirmed gains",
        "Gain over other training on fresh seeds and the test split, paired by seed, with "
        f"the interval of the plan; {DIRECTION}. A row without a "
        "setting is the control of the one above.",
        confirmed.forest,
        a_page=10,
    ),
    "search-gain": Drawing(
        "Gain in the search, and on fresh seeds",
        "The gain of each confirmed pair in the search, and on fresh seeds and the test split with "
        "its interval. Below the dashed line the search promised too much.",
        confirmed.search_gain,
        a_page=30,
    ),
    "scores": Drawing(
        "Score by test gamma",
        f"Each setting's pair, with predictors that need no training. {_SEEDS} {_NOISE}",
        scores.by_gamma,
    ),
    "gain-by-gamma": Drawing(
        "Gain by test gamma",
        f"{capitalised(TERMS['gain'].brief)}, "
        f"whichever way the metric goes. Grey: seeds; blue: their mean. {_NOISE}",
        scores.gain_by_gamma,
    ),
    "depth": Drawing(
        "Score by depth of the network",
        "Pairs of settings that differ in their number of layers alone, means over seeds; of more "
        f"than {scores.MOST_LINES} some. A star stands for what differs.",
        scores.by_depth,
        a_page=4,
        groups=partial(scores.families, field=scores.DEPTH),
    ),
    "train-gamma": Drawing(
        "Score by noise of training",
        "Pairs of settings that differ in train_gamma alone, means over seeds; of more than "
        f"{scores.MOST_LINES} some. A star stands for what differs.",
        scores.by_train_gamma,
        a_page=4,
        groups=partial(scores.families, field=scores.NOISE),
    ),
    "layers": Drawing(
        "Loss by layer",
        f"Held-out loss of the readout after every layer, at the noise of training. {_SEEDS} "
        "Dotted, for texts: a probe of each layer's own.",
        layers.losses,
    ),
    "anytime": Drawing(
        "Score where the network stops",
        "Score of the prediction after so many layers, means over seeds; the number at a line's "
        "end is its test gamma: the nearest to training, the last one, and one between.",
        layers.anytime,
    ),
    "ratios": Drawing(
        "Descent, layer by layer",
        "Loss after a layer over the loss before it, of single held-out samples: median, middle "
        "half and 5 to 95 %, quantiles averaged over seeds. Below 1 the layer improves the sample.",
        layers.ratios,
    ),
    "histogram": Drawing(
        "Descent, sample by sample",
        "The same ratios of all layers and seeds, counted in bins of 0.02, the last from 2 up; the "
        "median is read from them.",
        layers.histogram,
    ),
    "failure": Drawing(
        "An infeasible proposal",
        "The infeasible proposal of each setting that misses most of its constraint, with the "
        f"pair that is shown elsewhere. {_SEEDS} {_NOISE}",
        search.failure,
        a_page=4,
    ),
    "ablation": Drawing(
        "Score by alpha and dual learning rate",
        "Every finished proposal at three test gammas, whatever its verdict: mean, from the lowest "
        "to the highest seed; dashed: plain training. In a search the other searched values differ "
        "too, so that a trend is no effect of this one; lines join proposals that differ in "
        "nothing else.",
        search.ablation,
        a_page=4,
    ),
    "searched": Drawing(
        "What was searched",
        f"Objective of every proposal, mean over seeds, by each searched value; lower is better. "
        f"{_MARKS}",
        search.searched_values,
        a_page=3,
    ),
    "importance": Drawing(
        "What matters among the searched values",
        "Spearman's rank correlation of each searched value with the objective, over feasible "
        "proposals, and with the worst missing share, over all that finished: above 0 both grow "
        "with the value, and lower is better. How many there are stands above; fewer than "
        f"{FEWEST} are not drawn. Searched values vary together: it is no effect.",
        search.importance,
    ),
    "trade-off": Drawing(
        "In distribution against out of distribution",
        f"Every proposal's score on seen and unseen gammas, mean over seeds. {_MARKS} Square: "
        "plain training. Ring: the winner. A line joins the feasible proposals on the "
        "Pareto front of both scores, where there are two or more.",
        search.trade_off,
    ),
    "progress": Drawing(
        "Progress of the search",
        "Objective by proposal, in the order of the search; lower is better. A feasible proposal "
        f"that is not binding, beats no trivial predictor or asks for too little cannot win. "
        f"{_MARKS}",
        search.progress,
    ),
    "trajectories": Drawing(
        "Multipliers and layer weights over training",
        "The constrained network, at its reports, means over seeds; from the first layer, dark, "
        "to the last, bright. Weights are means over the steps between reports.",
        training.trajectories,
        a_page=4,
    ),
    "cost": Drawing(
        "Cost of both arms",
        "Seconds in training steps, mean over seeds, evaluation left out; arms that shared a "
        "machine slow each other down.",
        training.cost,
        a_page=30,
    ),
}


def drawing_of(key: str) -> Drawing:
    """The drawing of a key of ``draw``: one of ``FIGURES``, or a further page of it."""
    if key in FIGURES:
        return FIGURES[key]
    name, _, number = key.rpartition("-")
    first = FIGURES[name]
    return replace(first, title=f"{first.title}, page {number}")


def draw(data: Measured, names: Sequence[str] = tuple(FIGURES)) -> dict[str, Figure]:
    """The figures of these names that the sweep has anything for; page 2 of KEY is KEY-2."""
    figures: dict[str, Figure] = {}
    with style():
        for name in names:
            for number, (figure, shown) in enumerate(_pages(FIGURES[name], data), start=1):
                head(figure, shown.trained)
                figure.set_label(f"{data.sweep}: {FIGURES[name].title}; {shown.trained}")
                layout = figure.get_layout_engine()
                if layout is not None:
                    layout.execute(figure)  # as drawing it would, without the drawing
                figure.set_layout_engine("none")  # it stays as it was laid out, once
                figures[name if number == 1 else f"{name}-{number}"] = figure
    return figures


def _pages(drawing: Drawing, data: Measured) -> Iterator[tuple[Figure, Measured]]:
    """Every page, and what it shows."""
    groups = drawing.groups(data)
    for first in range(0, len(groups), drawing.a_page):
        names = [name for group in groups[first : first + drawing.a_page] for name in group]
        shown = replace(data, entries={name: data.entries[name] for name in names})
        figure = drawing.draw(shown)
        if figure is not None:
            yield figure, shown
