"""Table of anytime scores: both arms, stopped after so many layers. Pure.

A network whose layers are all read by one readout can be run in part. Its score after layer l is
the mean over the test gammas, and the area the mean of those over layers 1..L: what is to be had
where the depth that is run is not known before. Of RMSE, which is as the root of a loss, the score
follows from the losses by layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from sweep.render.table import Row, Table, number
from sweep.results.sweep_view import SettingView, SweepView
from trainables.records.arm_record import ArmRecord, Evaluation
from trainables.registry.task_facts import RMSE, Metric

AREA = "area"  # in the place of a layer


def anytime_table(view: SweepView) -> Table:
    """Every stop of both arms of every setting's winner or closest pair, means over the seeds."""
    metric = view.definition.space.base.facts.metric
    rows = [row for setting in view.settings for row in _rows(setting, metric)]
    shown = [
        ("setting", [row["setting"] for row in rows]),
        ("pair", [f"{r['proposal']}{' (winner)' * bool(r['winner'])}" for r in rows]),
        ("stop after", [str(row["layers"]) for row in rows]),
        *(
            (arm, [number(row[arm], ".3f") for row in rows])
            for arm in ("constrained", "unconstrained")
        ),
        ("gain", [number(row["gain"], "+.3f") for row in rows]),
    ]
    notes = [
        f"{metric.label} ({metric.unit}, {metric.direction}) of the prediction after so many "
        "layers, mean over the test gammas and the seeds; area: mean over layers 1..L.",
        "The unconstrained arm trains its readout on the last layer alone.",
    ]
    return Table("anytime", "Scores by the layers that are run", rows, shown, notes, texts=3)


def scores_by_layer(metric: Metric, found: Evaluation) -> list[float] | None:
    """Mean over the test gammas of the score after layers 0..L; None where it is not known."""
    rows = [_at_gamma(metric, found, gamma, score) for gamma, score in found.scores.items()]
    if not rows or any(row is None for row in rows):
        return None
    return [fmean(column) for column in zip(*(row for row in rows if row), strict=True)]


def _at_gamma(
    metric: Metric, found: Evaluation, gamma: str, score: float
) -> Sequence[float] | None:
    if found.layer_scores_by_gamma:
        return found.layer_scores_by_gamma.get(gamma)
    losses = found.layer_losses_by_gamma.get(gamma)
    if metric != RMSE or not losses or losses[-1] <= 0:
        return None
    return [score * math.sqrt(loss / losses[-1]) for loss in losses]


def _rows(setting: SettingView, metric: Metric) -> Iterator[Row]:
    shown = setting.chosen.shown
    if shown is None:
        return
    whole = [p for p in shown.pairs if p.unconstrained is not None]
    arms = [_mean([p.constrained for p in whole]), _mean([p.unconstrained for p in whole])]
    depths = {len(scores) for scores in arms if scores}
    if not depths:
        return
    stops = [*range(max(depths)), AREA]
    for stop in stops:
        constrained, plain = (_at(scores, stop) for scores in arms)
        known = [score for score in (constrained, plain) if score is not None]
        yield {
            "setting": setting.setting.name,
            "proposal": shown.number,
            "winner": setting.chosen.winner is not None,
            "layers": stop,
            "constrained": constrained,
            "unconstrained": plain,
            "gain": metric.gain(known[0], known[1]) if len(known) == len(arms) else None,
        }


def _mean(records: Sequence[ArmRecord | None]) -> list[float] | None:
    found = [
        scores_by_layer(r.config.facts.metric, r.evaluation)
        for r in records
        if r is not None and r.evaluation
    ]
    if len(found) < len(records) or not found or any(scores is None for scores in found):
        return None
    return [fmean(column) for column in zip(*(scores for scores in found if scores), strict=True)]


def _at(scores: Sequence[float] | None, stop: int | str) -> float | None:
    if not scores:
        return None
    return fmean(scores[1:]) if stop == AREA else scores[int(stop)]
