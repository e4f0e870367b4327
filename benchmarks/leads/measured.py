"""Points of an arm on the plane of seen and unseen scores; higher is better.

An arm has one point, its own name's, by the mean scores of its record, or by those of the test clip
that it does worst on; or one for each depth that a tied network is run at ("lagrangian at 30").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from torch import nn

from benchmarks.leads.frontier import Point
from trainables.build import build_model, build_task, parameter_dtype
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import seen_gammas, unseen_gammas
from trainables.evaluation.measuring import measure
from trainables.layer_losses import introduce
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.unit_scores import at_gamma
from trainables.tasks.base import Task
from trainables.tasks.held_out_units import evenly
from trainables.training import from_bytes

DEPTHS = (5, 10, 20, 30)
DEPTH_WINDOWS = 24  # of the test split, evenly chosen; at every depth the same
Points = dict[str, Point]
ScoreAt = Callable[[float], float]  # the metric by test gamma


def point_of(config: ArmConfig, score_at: ScoreAt) -> Point:
    """Mean scores over the seen and over the unseen gammas."""
    sign = 1.0 if config.facts.metric.higher_is_better else -1.0

    def mean(gammas: list[float]) -> float:
        return sign * sum(score_at(g) for g in gammas) / len(gammas)

    return Point(mean(seen_gammas(config)), mean(unseen_gammas(config)))


def by_record(name: str, record: ArmRecord, runs: ArmStore) -> Points:
    """By the scores of the record, over the whole split."""
    assert record.evaluation is not None
    scores = record.evaluation.scores
    return {name: point_of(record.config, lambda gamma: scores[f"{gamma:.2f}"])}


def by_worst_clip(name: str, record: ArmRecord, runs: ArmStore) -> Points:
    """By the clip of the largest last-layer loss, at each gamma anew."""
    scores = runs.unit_scores(record.signature)
    assert scores is not None
    task = _task_of(record.config)
    clips = np.array([unit.rsplit(":", 1)[0] for unit in scores.units])

    def worst(gamma: float) -> float:
        losses_U = scores.losses_UF[at_gamma(gamma)][:, -1].astype(np.float64)
        return task.metric(max(float(losses_U[clips == clip].mean()) for clip in set(clips)))

    return {name: point_of(record.config, worst)}


def by_depth(name: str, record: ArmRecord, runs: ArmStore) -> Points:
    """By the scores of the network run at each of DEPTHS, with the dictionary that it has."""
    stored = f"leads/depths/{record.signature}.json"
    found: Json = runs.objects.get_json(stored)
    if found is None:
        found = _measured_at_depths(record, runs)
        runs.objects.put_json(stored, found)

    def at(depth: int, gamma: float) -> float:
        return float(found[f"{gamma:.2f}"][depth])

    return {f"{name} at {depth}": point_of(record.config, partial(at, depth)) for depth in DEPTHS}


def _measured_at_depths(record: ArmRecord, runs: ArmStore) -> Json:
    """The metric after every layer 0..max(DEPTHS), by test gamma."""
    config = record.config
    torch.set_num_threads(config.threads)
    task, weights = _task_of(config), runs.weights(record.signature)
    assert weights is not None, f"no weights of {record.signature} are kept"
    model = build_model(config, task).to(parameter_dtype(config))
    introduce(model, task)
    model.load_state_dict(from_bytes(weights, torch.device("cpu"))["model"])
    deepen(model, max(DEPTHS))
    task.test_units = evenly(task.test_units, DEPTH_WINDOWS)  # type: ignore[misc]
    return {
        f"{gamma:.2f}": measure(model, task, "test", gamma, 1).metrics(task)
        for gamma in config.test_gammas
    }


def deepen(model: nn.Module, layers: int) -> None:
    """Run a network whose layers share their parameters for so many layers."""
    dictionaries = model.dictionaries
    assert isinstance(dictionaries, nn.ParameterList | nn.ModuleList)
    assert len(dictionaries) == 1, "layers have parameters of their own"
    model.layers = layers  # type: ignore[assignment]


def _task_of(config: ArmConfig) -> Task:
    return build_task(config, torch.device("cpu"), parameter_dtype(config))


Measure = Callable[[str, ArmRecord, ArmStore], Points]
MEASURES: Mapping[str, Measure] = {
    "record": by_record,
    "worst clip": by_worst_clip,
    "depth": by_depth,
}
