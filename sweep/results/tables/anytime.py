"""Table of anytime scores: both arms, stopped after so many layers. Pure.

A network whose layers are all read by one readout can be run in part. Its score after layer l is
the mean over the test gammas, and the area the mean of those over layers 1..L: what is to be had
where the depth that is run is not known before. Of RMSE, which is as the root of a loss, the score
follows from the losses by layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from sweep.render.table import Column, Table, table_of
from sweep.results.sweep_view import SettingView, SweepView
from trainables.records.arm_record import ArmRecord
from trainables.records.evaluation import Evaluation
from trainables.registry.task_facts import Metric

AREA = "area"  # in the place of a layer


class Stop(NamedTuple):
    """Both arms of a setting's pair after so many layers."""

    setting: str
    proposal: int
    winner: bool
    layers: int | str
    constrained: float | None
    unconstrained: float | None
    gain: float | None


COLUMNS: Sequence[Column[Stop]] = (
    Column("setting", lambda stop: stop.setting),
    Column("pair", lambda stop: f"{stop.proposal}{' (winner)' * stop.winner}", name=""),
    Column("", lambda stop: stop.proposal, name="proposal"),
    Column("", lambda stop: stop.winner, name="winner"),
    Column("stop after", lambda stop: stop.layers, name="layers"),
    Column("constrained", lambda stop: stop.constrained, ".3f"),
    Column("unconstrained", lambda stop: stop.unconstrained, ".3f"),
    Column("gain", lambda stop: stop.gain, "+.3f"),
)


def anytime_table(view: SweepView) -> Table:
    """Every stop of both arms of every setting's winner or closest pair, means over the seeds."""
    metric = view.definition.space.base.facts.metric
    stops = [stop for setting in view.settings for stop in _stops(setting, metric)]
    notes = [
        f"{metric.label} ({metric.unit}, {metric.direction}) of the prediction after so many "
        "layers, mean over the test gammas and the seeds; area: mean over layers 1..L.",
        "The unconstrained arm trains its readout on the last layer alone.",
    ]
    return table_of("anytime", "Scores by the layers that are run", COLUMNS, stops, notes)


def scores_by_layer(measured: Evaluation) -> list[float]:
    """Mean over the test gammas of the score after layers 0..L; empty where it is not known."""
    rows = [measured.layer_scores(gamma) for gamma in measured.scores]
    return [fmean(column) for column in zip(*rows, strict=True)] if all(rows) else []


def _stops(setting: SettingView, metric: Metric) -> Iterator[Stop]:
    shown = setting.chosen.shown
    if shown is None:
        return
    pairs = [p for p in shown.pairs if p.unconstrained is not None]
    arms = [_mean([p.constrained for p in pairs]), _mean([p.unconstrained for p in pairs])]
    depths = {len(scores) for scores in arms if scores}
    for layers in (*range(max(depths)), AREA) if depths else ():
        ours, plain = (_score_after(scores, layers) for scores in arms)
        gain = None if ours is None or plain is None else metric.gain(ours, plain)
        winner = setting.chosen.winner is not None
        yield Stop(setting.setting.name, shown.number, winner, layers, ours, plain, gain)


def _mean(records: Sequence[ArmRecord | None]) -> list[float]:
    rows = [scores_by_layer(r.evaluation) if r and r.evaluation else [] for r in records]
    return [fmean(column) for column in zip(*rows, strict=True)] if all(rows) else []


def _score_after(scores: Sequence[float], stop: int | str) -> float | None:
    if not scores:
        return None
    return fmean(scores[1:]) if stop == AREA else scores[int(stop)]
