"""The paper on text: its best hyperparameters and its Table 4.

A number is the area under accuracy over test gammas 0 to 2: the grid is lost, but no shorter range
holds 1.874. A comparison is one pair of numbers, which is one setting of the search space
``text_classification_<model>``.

Some values of Table 2 ask for more descent than can exist. A calibrated classifier that is right
with probability a has a cross entropy of at least 2 ln 2 (1 - a), and a is at most what such models
reach on clean text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from search_spaces.effects.descent import half_of, least_alpha, twice
from search_spaces.paper.comparison import Comparison, comparisons
from search_spaces.paper.rows import setting
from search_spaces.space import Setting, Uniform

DATA_SETS = ("imdb", "mnli")
TRAIN_GAMMAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LARGEST_GAMMA = 2.0
LAYERS: dict[str, tuple[int, ...]] = {"ut": (3, 5, 7, 9), "distilbert": (12,), "roberta": (24,)}
# What each is taken from here, and how many blocks that has.
CHECKPOINTS: dict[str, str] = {
    "ut": "distilbert-base-uncased",  # its word embeddings
    "distilbert": "distilbert-base-uncased",
    "roberta": "roberta-large",  # of 24 layers, as the paper's
}
BLOCKS: dict[str, int] = {"distilbert": 6, "roberta": 24}
# Accuracy on clean text, about: DistilBERT in arXiv 1910.01108; on MNLI a bag of words, which UT is
# without positions, in arXiv 1704.05426. Nobody is better under noise.
CLEAN_ACCURACY: dict[tuple[str, str], float] = {
    ("distilbert", "imdb"): 0.93,
    ("distilbert", "mnli"): 0.82,
    ("ut", "mnli"): 0.65,
}


@dataclass(frozen=True)
class BestValues:
    """A row of Table 2: the best of five runs of a Bayesian search, read with a virtual layer 0.

    Two more columns, the dual learning rate and the resilience, lost their powers of ten. The row
    of RoBERTa is absent.
    """

    data: str
    model: str
    layers: int  # as printed
    train_gamma: float
    kept_fraction: float  # 1 - alpha
    reference_loss: float  # f0, in nats

    @property
    def alpha(self) -> float:
        """The fraction of its loss that each layer must remove, eq. (4)."""
        return round(1 - self.kept_fraction, 6)

    def demanded_loss(self, layers: int) -> float:
        """The cross entropy that the last of ``layers`` layers must reach: f0 (1 - alpha)^L."""
        return float(self.reference_loss * self.kept_fraction**layers)


BEST: dict[tuple[str, str], BestValues] = {
    (row.model, row.data): row
    for row in (
        BestValues("imdb", "distilbert", 12, 1.0, 0.774, 1.00),
        BestValues("mnli", "distilbert", 12, 1.0, 0.774, 1.00),
        BestValues("imdb", "ut", 3, 0.8, 0.900, 0.90),
        BestValues("mnli", "ut", 3, 0.0, 0.900, 0.90),
    )
}


def least_loss(accuracy: float) -> float:
    """The least cross entropy, in nats, of a calibrated classifier that is right so often.

    Its answers are either certain or one of two at even odds: of the second kind half are wrong and
    each costs ln 2, so 2 ln 2 (1 - accuracy). Whatever else it says costs more: the entropy of a
    forecast whose largest probability is p is at least 2 ln 2 (1 - p).

    >>> least_loss(1.0), round(least_loss(0.5), 3)
    (0.0, 0.693)
    """
    return 2 * math.log(2) * (1 - accuracy)


class TextComparison(Comparison):
    """Two numbers of Table 4: the area of the constrained and of the unconstrained model."""

    source = "arXiv 2601.17257v1, Table 4"
    measure = "area under accuracy over test gamma 0 to 2"
    key = "ood_auc"
    task = "text_classification"

    @property
    def setting(self) -> str:
        """The setting of ``space`` that trains this comparison; an encoder's depth is its own."""
        depth = f"-L{self.layers}" if self.model == "ut" else ""
        return f"{self.data}-{self.model}{depth}-g{self.train_gamma:g}"

    @property
    def trained_layers(self) -> int:
        """The number of layers of the checkpoint that is trained here."""
        return BLOCKS.get(self.model, self.layers)

    @property
    def demanded_loss(self) -> float | None:
        """The loss that Table 2 asks of the last layer trained here; None where it says nothing."""
        best = BEST.get((self.model, self.data))
        return None if best is None else best.demanded_loss(self.trained_layers)

    @property
    def asks_too_much(self) -> Literal["", "probably", "surely"]:
        """A mark where Table 2's alpha and f0 ask for more descent than can exist, else ''.

        Surely: for a model as accurate as on clean text. Probably: for one as accurate as the best
        mean accuracy over test gammas that Table 4 has of this model on these data.
        """
        demanded, key = self.demanded_loss, (self.model, self.data)
        if demanded is None:
            return ""
        if demanded < least_loss(CLEAN_ACCURACY.get(key, 1.0)):
            return "surely"
        return "probably" if demanded < least_loss(_best_mean_accuracy(*key)) else ""

    @property
    def doubts(self) -> tuple[str, ...]:
        """Caveats for whoever quotes the numbers; empty when none are known."""
        phrases = []
        best = BEST.get((self.model, self.data))
        mark = self.asks_too_much
        if mark:
            key = self.model, self.data
            accuracy = CLEAN_ACCURACY[key] if mark == "surely" else _best_mean_accuracy(*key)
            of_what = "accuracy on clean text" if mark == "surely" else "best mean accuracy here"
            phrases.append(
                f"{mark} infeasible by construction: asks for a final cross entropy of "
                f"{self.demanded_loss:.3f}; a calibrated model has at least "
                f"{least_loss(accuracy):.3f} at {accuracy:.3f}, the {of_what} of its kind"
            )
        if self.trained_layers != self.layers:
            demand = (
                "" if best is None else f", which asks for {best.demanded_loss(self.layers):.3f}"
            )
            checkpoint, blocks = CHECKPOINTS[self.model], self.trained_layers
            phrases.append(f"printed with {self.layers} layers{demand}; {checkpoint} has {blocks}")
        if best is None:
            phrases.append("its alpha and f0 are not reported")
        if (self.model, self.data) == ("roberta", "mnli"):
            phrases.append("omitted by its text, but printed")
        return tuple(phrases)


# model, layers, train gamma, then constrained and unconstrained on each of DATA_SETS
_TABLE_4 = (
    ("ut", 3, 0.0, 1.719, 1.707, 0.892, 0.887),
    ("ut", 3, 0.2, 1.719, 1.714, 0.902, 0.896),
    ("ut", 3, 0.4, 1.723, 1.720, 0.914, 0.909),
    ("ut", 3, 0.6, 1.731, 1.728, 0.921, 0.920),
    ("ut", 3, 0.8, 1.740, 1.735, 0.930, 0.926),
    ("ut", 3, 1.0, 1.736, 1.731, 0.935, 0.933),
    ("ut", 5, 0.0, 1.680, 1.680, 0.889, 0.882),
    ("ut", 5, 0.2, 1.686, 1.687, 0.902, 0.894),
    ("ut", 5, 0.4, 1.702, 1.706, 0.913, 0.909),
    ("ut", 5, 0.6, 1.714, 1.718, 0.924, 0.918),
    ("ut", 5, 0.8, 1.727, 1.729, 0.930, 0.927),
    ("ut", 5, 1.0, 1.739, 1.740, 0.933, 0.931),
    ("ut", 7, 0.0, 1.673, 1.672, 0.889, 0.885),
    ("ut", 7, 0.2, 1.679, 1.685, 0.901, 0.895),
    ("ut", 7, 0.4, 1.696, 1.695, 0.915, 0.911),
    ("ut", 7, 0.6, 1.712, 1.714, 0.922, 0.919),
    ("ut", 7, 0.8, 1.726, 1.724, 0.929, 0.925),
    ("ut", 7, 1.0, 1.736, 1.733, 0.932, 0.931),
    ("ut", 9, 0.0, 1.672, 1.670, 0.890, 0.885),
    ("ut", 9, 0.2, 1.680, 1.676, 0.902, 0.893),
    ("ut", 9, 0.4, 1.697, 1.693, 0.914, 0.909),
    ("ut", 9, 0.6, 1.711, 1.711, 0.923, 0.920),
    ("ut", 9, 0.8, 1.724, 1.724, 0.928, 0.929),
    ("ut", 9, 1.0, 1.734, 1.733, 0.932, 0.930),
    ("distilbert", 12, 0.0, 1.583, 1.608, 1.052, 1.064),
    ("distilbert", 12, 0.2, 1.592, 1.586, 1.091, 1.096),
    ("distilbert", 12, 0.4, 1.653, 1.602, 1.162, 1.153),
    ("distilbert", 12, 0.6, 1.677, 1.660, 1.253, 1.227),
    ("distilbert", 12, 0.8, 1.738, 1.704, 1.328, 1.322),
    ("distilbert", 12, 1.0, 1.789, 1.745, 1.408, 1.405),
    ("roberta", 24, 0.0, 1.797, 1.651, 1.532, 1.544),
    ("roberta", 24, 0.2, 1.789, 1.702, 1.570, 1.532),
    ("roberta", 24, 0.4, 1.785, 1.642, 1.621, 1.568),
    ("roberta", 24, 0.6, 1.778, 1.708, 1.668, 1.626),
    ("roberta", 24, 0.8, 1.828, 1.719, 1.742, 1.694),
    ("roberta", 24, 1.0, 1.874, 1.824, 1.783, 1.756),
)

COMPARISONS = comparisons(TextComparison, DATA_SETS, _TABLE_4)


def _best_mean_accuracy(model: str, data: str) -> float:
    """The best mean accuracy over test gammas of either model, at any depth and training noise."""
    areas = [
        max(c.constrained, c.unconstrained)
        for c in COMPARISONS
        if (c.model, c.data) == (model, data)
    ]
    return max(areas) / LARGEST_GAMMA


def text_settings(
    model: str,
    called: str,
    alphas: Mapping[str, Mapping[int, float]],
    *,
    names_depth: bool = True,
) -> tuple[Setting, ...]:
    """Settings of the comparisons of a model: every data set, depth and training noise.

    A winner must ask for half of the first proposal's descent, in logarithms: alpha is searched
    from there up to twice that descent.

    Args:
        model: as in ModelConfig.name.
        called: what it is called in the names of settings.
        alphas: the first proposal's alpha, by data set and number of layers.
        names_depth: whether settings say how many layers there are; else the checkpoint does.
    """
    return tuple(
        setting(
            data,
            model,
            layers if names_depth else None,
            gamma,
            called=called,
            alpha=alpha,
            least_descent=least,
            ranges={"constraint.alpha": Uniform(least_alpha(least, layers), twice(alpha))},
        )
        for data, by_depth in alphas.items()
        for layers, alpha in by_depth.items()
        for least in (half_of(alpha, layers),)
        for gamma in TRAIN_GAMMAS
    )
