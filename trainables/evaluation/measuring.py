"""Passes of a network over held-out units: every layer's losses, scores, features.

Everything is measured in eval mode on keyed draws, the same for both arms, all proposals and all
seeds. Results stay on the device until the last batch. Networks that are rows of one (stacked.py)
are passed at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.datasets.by_split import SPLITS
from trainables.errors import InvalidValue, UnknownName
from trainables.evaluation.stacked import Row, StackedNetworks
from trainables.layer_losses import Outcomes, layer_outcomes
from trainables.probes import Split
from trainables.tasks.base import Batch, Task

Floats = NDArray[np.float64]

MOST_FEATURES = 2000  # rows that probes are fitted to: more take time, and say little more


@dataclass(frozen=True)
class Measured:
    """Losses of a split at one gamma or under one shift, in the task's unit, and its metric."""

    units: Floats  # [units, L + 1]: mean loss over the samples of a unit and over the draws
    scored: Floats  # [units, L + 1]: over the draws that are scored, the first one or more
    samples: Floats  # [L + 1, samples]: losses of draw 0
    scores: Floats  # [L + 1]: what the metric is of, mean over the samples and the scored draws
    sample_scores: Floats | None  # [samples]: the last layer's, over the scored draws, unit by unit
    # ^ None: scores are the losses
    sizes: list[int]  # samples per unit
    unchanged: float | None  # the metric of the input itself, where asked for and a prediction
    features: Split | None  # what a readout of texts saw of every layer, where asked for
    norms: Floats  # [L + 1]: RMS of what each loss is read off, mean over samples and draws

    @property
    def losses(self) -> Floats:
        """[L + 1]: mean over the units, of the scored draws."""
        means: Floats = self.scored.mean(axis=0)
        return means

    def metrics(self, task: Task) -> list[float]:
        """The metric of every layer's prediction, of the scored draws."""
        return [task.metric(float(score)) for score in self.scores]


def units_of(task: Task, split: str) -> tuple[str, ...]:
    """Names of the units of ``split`` that are evaluated. Asking for those of test opens it.

    Raises:
        UnknownName: there is no such split.
        InvalidValue: it has no unit.
    """
    if split not in SPLITS:
        raise UnknownName.among("split", split, SPLITS)
    if split == "test":
        names = task.test_units
    else:
        names = task.dev_units if split == "dev" else task.train_units
    if not names:
        raise InvalidValue(
            f"the {split} split must have a unit to evaluate on, got none: give it more data."
        )
    return names


@dataclass(frozen=True)
class _Seen:
    """A batch that was measured, without its tensors."""

    draw: int
    units: tuple[int, ...]
    samples: tuple[int, ...]
    rows: list[int]  # of its losses, norms and scores


class _Gathered:
    """Accumulates losses, norms and scores of batches, per unit and per sample."""

    def __init__(self, units: int) -> None:
        self.counts = np.zeros(units)
        self._sums = np.zeros(())
        self._losses: list[Floats] = []
        self._norms: list[Floats] = []
        self._scores: list[list[Floats]] = []  # by draw, as they were added
        self._numbers: list[list[int]] = []

    def add(
        self,
        batch: _Seen,
        losses: Floats,
        norms: Floats,
        scores: Floats | None = None,
        *,
        is_scored: bool,
    ) -> None:
        """Losses and norms [rows, B], and the scores beside them if they are something else.

        Losses count for their units; by sample they are kept of draw 0, scores of scored draws.
        """
        if not self._sums.shape:
            self._sums = np.zeros((len(self.counts), len(losses)))
        # add.at, since += with repeated indices would keep one sample of a unit.
        np.add.at(self._sums, list(batch.units), losses.T)
        np.add.at(self.counts, list(batch.units), 1.0)
        self._losses += [losses] if batch.draw == 0 else []
        self._norms.append(norms)
        if scores is None or not is_scored:
            return
        if len(self._scores) == batch.draw:
            self._scores.append([])
            self._numbers.append([])
        self._scores[batch.draw].append(scores)
        self._numbers[batch.draw] += batch.samples

    @property
    def by_unit(self) -> Floats:
        """Mean losses [units, rows]."""
        means: Floats = self._sums / self.counts[:, None]
        return means

    @property
    def losses(self) -> Floats:
        """[rows, samples], in the order of the batches."""
        return np.concatenate(self._losses, axis=1)

    @property
    def norms(self) -> Floats:
        """[rows]: mean over samples and draws."""
        means: Floats = np.concatenate(self._norms, axis=1).mean(axis=1)
        return means

    @property
    def scores(self) -> Floats | None:
        """[rows, samples], unit by unit, mean over the draws; None where they are the losses."""
        if not self._scores:
            return None
        drawn = []
        for parts, numbers in zip(self._scores, self._numbers, strict=True):
            scores = np.concatenate(parts, axis=1)
            drawn.append(scores[:, np.argsort(numbers)] if numbers else scores)
        return drawn[0] if len(drawn) == 1 else np.mean(drawn, axis=0)


@dataclass(frozen=True)
class _Passes:
    """Losses, norms, scores and features of all batches and draws of a split."""

    seen: list[_Seen]
    table: NDArray[np.float32 | np.float64]  # [K, rows, samples]
    features: Split | None  # of a network by itself
    has_input: bool  # the last row of losses is of the input itself

    def by_batch(self, row: int) -> Iterable[tuple[_Seen, list[Floats]]]:
        """Every batch with a network's losses, norms and, where they are something else, scores."""
        table: Floats = self.table[row].astype(np.float64)
        ends = np.cumsum([len(batch.units) for batch in self.seen])
        for batch, of_batch in zip(self.seen, np.split(table, ends[:-1], axis=1), strict=True):
            yield batch, np.split(of_batch, np.cumsum(batch.rows)[:-1])


def measure(
    model: nn.Module | Row,
    task: Task,
    split: str,
    gamma: float,
    draws: int,
    *,
    score_draws: int = 1,
    feature_draws: int = 0,
) -> Measured:
    """Every layer's loss on the units of ``split``, over ``draws`` keyed draws.

    Scores are of the first ``score_draws``, which may be more. Features are kept of the first
    ``feature_draws`` of them, where the model has any, and of no more draws once there are
    MOST_FEATURES rows.
    """
    held_out = partial(task.held_out, split, gamma)
    most = max(draws, score_draws)
    passes, row = _once(
        model,
        ("held out", split, gamma, most, feature_draws),
        lambda networks: _passed(networks, task, held_out, most, feature_draws),
    )
    return _measured(passes, row, task, split, draws, score_draws)


def measure_shifted(
    model: nn.Module | Row,
    task: Task,
    shift: str,
    severity: float,
    split: str = "dev",
    score_draws: int = 1,
) -> Measured:
    """Every layer's loss and metric under a shift of ``test_conditions.FAMILIES``."""
    shifted = partial(task.shifted, split, shift, severity)
    passes, row = _once(
        model,
        ("shifted", split, shift, severity, score_draws),
        lambda networks: _passed(networks, task, shifted, score_draws, 0, with_input=True),
    )
    return _measured(passes, row, task, split, score_draws, score_draws)


Networks = nn.Module | StackedNetworks


def _once(
    model: nn.Module | Row, key: Hashable, find: Callable[[Networks], _Passes]
) -> tuple[_Passes, int]:
    """The passes of a network, and its row of them."""
    if isinstance(model, Row):
        networks = model.networks
        return networks.once(key, model.number, lambda: find(networks)), model.number
    return find(model), 0


def _measured(
    passes: _Passes, row: int, task: Task, split: str, draws: int, score_draws: int
) -> Measured:
    names = units_of(task, split)
    gathered, sizes = _Gathered(len(names)), np.zeros(len(names))
    by_unit, scored = np.zeros(()), np.zeros(())
    for draw, of_draw in itertools.groupby(passes.by_batch(row), key=lambda part: part[0].draw):
        for batch, (losses, norms, *other) in of_draw:
            gathered.add(batch, losses, norms, *other, is_scored=draw < score_draws)
        if draw == 0:
            sizes = gathered.counts.copy()
        if draw == draws - 1:
            by_unit = gathered.by_unit
        if draw == score_draws - 1:
            scored = gathered.by_unit
    layers = slice(-1) if passes.has_input else slice(None)
    mean_F, scores = scored.mean(axis=0), gathered.scores
    return Measured(
        units=by_unit[:, layers],
        scored=scored[:, layers],
        samples=gathered.losses[layers],
        scores=mean_F[layers] if scores is None else scores.mean(axis=1),
        sample_scores=None if scores is None else scores[-1],
        sizes=sizes.astype(int).tolist(),
        unchanged=task.metric(float(mean_F[-1])) if passes.has_input else None,
        features=passes.features,
        norms=gathered.norms,
    )


@torch.no_grad()
def _passed(
    model: Networks,
    task: Task,
    batches_of: Callable[[int], Iterable[Batch]],
    draws: int,
    feature_draws: int,
    *,
    with_input: bool = False,
) -> _Passes:
    """Pass all draws through the networks; the results stay on the device until the last batch."""
    model.eval()  # until training goes on (Training.run_to)
    stacked = isinstance(model, StackedNetworks)
    outcomes_of: Callable[[Batch], Outcomes] = (
        model.outcomes
        if isinstance(model, StackedNetworks)
        else partial(layer_outcomes, model, task)
    )
    kept: list[tuple[Tensor, Tensor]] = []
    enough, unchanged = feature_draws, None
    tables, seen = list[Tensor](), list[_Seen]()
    for draw in range(draws):
        for batch in batches_of(draw):
            outcomes = outcomes_of(batch)
            losses = outcomes.losses
            if draw < enough and outcomes.features is not None:
                # a copy: a view of the states would keep all of their tokens
                kept.append((torch.stack([x.float() for x in outcomes.features]), batch.targets))
            if with_input and (unchanged := task.unchanged_losses(batch)) is not None:
                of_all = unchanged.expand(*losses.shape[:-2], 1, -1)
                losses = torch.cat([losses, of_all], dim=-2)
            parts = [losses, outcomes.norms]
            parts += [] if outcomes.scores is outcomes.losses else [outcomes.scores]
            tables.append(torch.cat(parts, dim=-2))
            seen.append(_Seen(draw, batch.units, batch.samples, [part.shape[-2] for part in parts]))
        if sum(len(labels) for _, labels in kept) >= MOST_FEATURES:
            enough = min(enough, draw + 1)
    # The one copy to the host: it waits for all passes at once.
    table = torch.cat(tables, dim=-1).cpu().numpy()
    return _Passes(
        seen,
        table if stacked else table[None],
        _joined(kept),
        unchanged is not None,
    )


def _joined(kept: list[tuple[Tensor, Tensor]]) -> Split | None:
    if not kept:
        return None
    features_FNH = torch.cat([features for features, _ in kept], dim=1)
    labels_N = torch.cat([labels for _, labels in kept])
    return Split(list(features_FNH.cpu().numpy()), labels_N.cpu().numpy())
