"""Final evaluation of an arm: the numbers that tables and verdicts are made of."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from trainables.plain import StoredPlain
from trainables.primal_dual.constraints import Scales

# Of the per-sample descent ratios f_l / f_{l-1}: bins so many to 1, from 0 to 2, and from 2 up.
RATIO_BINS_TO_1 = 50


RATIO_BINS = 2 * RATIO_BINS_TO_1 + 1


@dataclass(frozen=True, kw_only=True)
class Answer(StoredPlain):
    """Answer of a network to one prompt, its own tokens disturbed as well."""

    prompt: str
    reference: str  # the data set's answer
    gamma: float  # noise on every token
    written: str


@dataclass(frozen=True, kw_only=True)
class Evaluation(StoredPlain):
    """The final measurement of one arm, on held-out data; losses in the task's own unit.

    Losses are kept per held-out unit (a window of T frames with all its patches; a review; a
    premise with all its hypotheses), averaged over the draws, so that feasibility can be judged
    later under any constraint: also a baseline's under that of the arm beside it.
    """

    scales: Scales
    dev_units: list[str]  # the held-out units: of ``split``
    dev_losses: list[list[float]]  # [units][L + 1], of ``split`` at train_gamma
    train_units: list[str]
    train_losses: list[list[float]]  # [units][L + 1], training units, fresh draws, eval mode
    scores: dict[str, float]  # metric by test gamma ("0.15"), dev
    layer_losses_by_gamma: dict[str, list[float]]  # [L + 1], dev: reported, never gated
    references: dict[str, dict[str, float]]  # identity, constant, wiener...: metric by test gamma
    reference_losses: dict[str, float]  # the same predictors' loss at train_gamma
    ood_auc: float  # trapezoid area under the metric over test_gammas
    objective: float  # what selection minimises (docs/results.md, Scores)
    objective_gammas: list[float]  # the test gammas that the objective looked at
    descent_ratio_quantiles: list[list[float]]  # [L][0, 5, ..., 100 %] of f_l / f_{l-1}, dev
    descent_fraction: list[float]  # [L] fraction of dev samples whose loss fell in that layer
    multipliers: list[float]  # final lambda_L; empty for the unconstrained arm
    # Under shifts beside Gaussian noise, by family and severity ("blur", "2.0"); dev, draw 0.
    # Reported, never selected by; empty where ``ArmConfig.shifts`` is.
    shift_scores: dict[str, dict[str, float]] = field(default_factory=dict)  # metric
    shift_layer_losses: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # [L + 1]
    # The metric of predictors that need no training: identity (the disturbed input), constant.
    shift_references: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    # The metric read off every layer, [L + 1] by test gamma and at train_gamma, dev; empty where it
    # follows from the losses. A cross entropy can fall by the scale of the logits alone.
    layer_scores_by_gamma: dict[str, list[float]] = field(default_factory=dict)
    # Of texts: what a linear classifier of each layer's own reaches on frozen features at
    # train_gamma (trainables/probes.py), [L + 1], mean over samples; empty elsewhere. The shared
    # readout's losses of an arm that never trained it on inner layers are no measure of these.
    probe_losses: list[float] = field(default_factory=list)  # dev, in the task's unit
    probe_train_losses: list[float] = field(default_factory=list)  # on what they were fitted to
    probe_scores: list[float] = field(default_factory=list)  # the metric, dev
    # The descent ratios counted, [L][RATIO_BINS], and their mean, [L]; empty in records of before
    # they were.
    descent_ratio_counts: list[list[int]] = field(default_factory=list)
    descent_ratio_mean: list[float] = field(default_factory=list)
    # Root mean square of what each layer's loss is read off, [L + 1], mean over the dev samples at
    # train_gamma: of texts the readout's features, elsewhere the prediction in the task's own unit.
    # Empty in records of before it was measured.
    hidden_norms: list[float] = field(default_factory=list)
    # Of decoders: what the network wrote after some held-out prompts; empty elsewhere.
    answers: list[Answer] = field(default_factory=list)
    # What is held out, here and wherever it says dev. A search knows no other; confirmation asks
    # for the test split.
    split: str = "dev"

    @property
    def constant_scores(self) -> dict[str, float]:
        """The metric of the best constant prediction, by test gamma."""
        return self.references["constant"]

    @property
    def mean_over_gammas(self) -> float:
        """Plain mean of the metric over the test gammas, which count alike: the tables' column."""
        return math.fsum(self.scores.values()) / len(self.scores)

    @property
    def gamma_range(self) -> tuple[float, float]:
        """The first and the last test gamma: what ``ood_auc`` is the area over."""
        gammas = sorted(map(float, self.scores))
        return gammas[0], gammas[-1]

    @property
    def gamma_step(self) -> float | None:
        """The distance of two test gammas; None where it is not one for all."""
        gammas = sorted(map(float, self.scores))
        steps = {round(b - a, 6) for a, b in itertools.pairwise(gammas)}
        return steps.pop() if len(steps) == 1 else None

    @property
    def root_factor(self) -> float | None:
        """c where the metric is c times the root of the mean loss at every gamma; else None."""
        losses = {gamma: by[-1] for gamma, by in self.layer_losses_by_gamma.items()}
        if not self.scores.keys() <= losses.keys():
            return None
        factors = [
            score / math.sqrt(losses[gamma])
            for gamma, score in self.scores.items()
            if losses[gamma] > 0
        ]
        # Of another metric the ratios differ by far more than the stored numbers are rounded.
        is_one = bool(factors) and max(factors) - min(factors) < 1e-6 * factors[0]
        return factors[0] if is_one else None

    def layer_scores(self, gamma: str) -> list[float]:
        """The metric of layers 0..L, each read as the network's output: of a test or train gamma.

        Empty where there are neither such scores nor losses that they follow from.
        """
        stored, factor = self.layer_scores_by_gamma.get(gamma), self.root_factor
        if stored or factor is None:
            return list(stored or ())
        # Of the scored draws where it is a test gamma: then the last one is its score.
        losses = self.layer_losses_by_gamma.get(gamma) or self.held_out_losses()
        return [factor * math.sqrt(loss) for loss in losses]

    def held_out_losses(self) -> list[float]:
        """Mean over the dev units, layers 0..L, in the task's own unit."""
        return _mean_rows(self.dev_losses)

    def training_losses(self) -> list[float]:
        """Mean over the training units on fresh draws, layers 0..L, in the task's own unit."""
        return _mean_rows(self.train_losses)


def _mean_rows(rows: list[list[float]]) -> list[float]:
    return [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]
