"""Finished arms of texts written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from search_spaces.space import SearchSpace, Setting
from tests.support.records import evaluation
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig
from trainables.primal_dual.constraints import Scales
from trainables.records.arm_record import ArmRecord, Report

LOSSES = [1.0, 0.7, 0.5, 0.3]  # at alpha 0.2 and f0 = f_c = 1: every layer descends
TEXT = ArmConfig(
    task="text_classification",
    data=DataConfig(name="imdb"),
    model=ModelConfig(name="encoder", layers=3, checkpoint="some/encoder"),
    train_gamma=0.2,
    test_gammas=(0.0, 0.2, 0.4, 0.6, 0.8),
    steps=40,
    report_every=20,
    constraint=ConstraintConfig(
        alpha=0.2, reference="virtual_layer0", reference_unit="constant", reference_loss=1.0
    ),
)
SPACE = SearchSpace(name="texts", summary="", base=TEXT, settings=(Setting("one", {}),))


def finished(config: ArmConfig, losses: list[float], **fields: Any) -> ArmRecord:
    gammas = [f"{g:.2f}" for g in config.test_gammas]
    accuracies = {g: [0.5, 0.6, 0.7, 0.9 - 0.1 * k] for k, g in enumerate(gammas)}
    measured = replace(
        evaluation(losses),
        scales=Scales(constant_loss=1.0, identity_loss=1.0),
        scores={g: rows[-1] for g, rows in accuracies.items()},
        layer_scores_by_gamma=accuracies,
        layer_losses_by_gamma=dict.fromkeys(gammas, losses),
        references={"constant": dict.fromkeys(gammas, 0.5)},
        reference_losses={"constant": 1.0},
        ood_auc=0.56,
        objective=0.35,
        objective_gammas=[0.4, 0.6],
        probe_losses=[0.9, 0.6, 0.4, 0.3],
        probe_train_losses=[0.9, 0.5, 0.3, 0.2],
        probe_scores=[0.5, 0.7, 0.8, 0.9],
        multipliers=[] if config.constraint is None else [0.5] * 3,
        **fields,
    )
    reports = [Report(step=40, timestamp_ms=40_000, layers={"losses": losses})]
    return ArmRecord(
        signature=config.signature(),
        config=config,
        status="finished",
        ended_ms=50_000,
        reports=reports,
        evaluation=measured,
    )
