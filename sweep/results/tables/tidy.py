"""Tidy table: every number of the pairs shown, one a row. Pure.

Figures and tables of one's own start from it. One row per setting, arm, seed, metric, shift and
severity, layer. An empty cell is a column that does not apply: ``layer`` where a number is of the
model's output, ``shift`` and ``severity`` where it is of the whole range of gammas or of training,
``seed`` where the ``arm`` is a reference, which needs no training. ``shift`` is ``gaussian`` for
noise alone; its severity is the test gamma.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from sweep.render.table import Row
from sweep.results.aggregates import COSTS, area
from sweep.results.sweep_view import SettingView, SweepView
from sweep.results.tables.columns import GAUSSIAN
from sweep.study.feasibility import Judgement
from trainables.records.arm_record import ArmRecord, Evaluation, first_layer

Cell = tuple[str, str | None, float | None, int | None, float]  # the columns behind ``seed``
Judged = tuple[ArmRecord | None, Judgement | None]
COLUMNS = (
    "setting", "proposal", "arm", "seed", "metric", "shift", "severity", "layer", "value",
)  # fmt: skip


def tidy_rows(view: SweepView) -> Iterator[Row]:
    """Both arms of every setting's winner, or of its closest pair, on every seed; references.

    Of a setting without a finished pair the unconstrained arms that are there.
    """
    for setting in view.settings:
        for proposal, arm, seed, cells in _arms(setting):
            for cell in cells:
                values = (setting.setting.name, proposal, arm, seed, *cell)
                yield dict(zip(COLUMNS, values, strict=True))


def _arms(setting: SettingView) -> Iterator[tuple[int | None, str, int | None, Iterator[Cell]]]:
    shown = setting.chosen.shown
    if shown is None:
        judged: list[Judged] = [(a.record, None) for a in setting.arms if a.proposal is None]
    else:
        judged = []
        for pair in shown.pairs:
            judged.append((pair.constrained, pair.judgement))
            judged.append((pair.unconstrained, pair.unconstrained_judgement))
    number = None if shown is None else shown.number
    measured = [(r, j, r.evaluation) for r, j in judged if r and r.evaluation]
    for record, judgement, found in measured:
        yield number, record.config.arm, record.config.seed, _cells(record, found, judgement)
    for _, _, found in measured[:1]:
        for name in found.references:
            yield number, name, None, _reference_cells(measured[0][0], found, name)


def _cells(record: ArmRecord, found: Evaluation, judgement: Judgement | None) -> Iterator[Cell]:
    key, gamma = record.config.facts.metric.key, record.config.train_gamma
    for name in ("objective", "ood_mean", "ood_auc"):
        yield name, None, None, None, getattr(found, name)
    last = record.reports[-1].scalars if record.reports else {}
    yield from (
        (name, None, None, None, last[scalar]) for name, scalar in COSTS.items() if scalar in last
    )
    yield from _scores(key, {GAUSSIAN: found.scores, **found.shift_scores})

    by_gamma = {"loss": found.layer_losses_by_gamma, f"layer_{key}": found.layer_scores_by_gamma}
    for name, rows in by_gamma.items():  # draw 0
        for g, values in rows.items():
            yield from _by_layer(name, values, float(g))
    for shift, losses in found.shift_layer_losses.items():
        for severity, values in losses.items():
            yield from _by_layer("loss", values, float(severity), shift=shift)
    at_train_gamma: dict[str, Sequence[float]] = {  # all draws
        "held_out_loss": found.held_out_losses(),
        "training_loss": found.training_losses(),
        "probe_loss": found.probe_losses,
        f"probe_{key}": found.probe_scores,
        "multiplier": found.multipliers,
        "descent_share": found.descent_share,
        "hidden_norm": found.hidden_norms,
        "violation_noise": record.reports[-1].layers.get("violation_noise", ()),
    }
    if judgement is not None:
        at_train_gamma |= {
            "missing_share": judgement.held_out,
            "missing_share_training": judgement.training,
            "missing_share_relaxed": judgement.relaxed or (),
        }
    quantiles = list(zip(*found.descent_ratio_quantiles, strict=True))  # [quantile][layer]
    at_train_gamma |= {
        f"descent_ratio_q{100 * i // (len(quantiles) - 1):02d}": quantile
        for i, quantile in enumerate(quantiles)
    }
    layers = len(found.dev_losses[0])
    for name, of_layers in at_train_gamma.items():
        yield from _by_layer(name, of_layers, gamma, first=first_layer(layers, len(of_layers)))


def _scores(key: str, by_shift: Mapping[str, Mapping[str, float]]) -> Iterator[Cell]:
    for shift, scores in by_shift.items():
        yield from ((key, shift, float(s), None, score) for s, score in scores.items())


def _by_layer(
    name: str, values: Sequence[float], severity: float, *, shift: str = GAUSSIAN, first: int = 0
) -> Iterator[Cell]:
    """One cell a layer, from layer ``first`` on."""
    return ((name, shift, severity, layer, v) for layer, v in zip(itertools.count(first), values))


def _reference_cells(record: ArmRecord, found: Evaluation, name: str) -> Iterator[Cell]:
    key, scores = record.config.facts.metric.key, found.references[name]
    yield "ood_mean", None, None, None, sum(scores.values()) / len(scores)
    yield "ood_auc", None, None, None, area(scores)
    yield from _scores(key, {GAUSSIAN: scores, **found.shift_references.get(name, {})})
    if name in found.reference_losses:
        loss = found.reference_losses[name]
        yield "held_out_loss", GAUSSIAN, record.config.train_gamma, None, loss
