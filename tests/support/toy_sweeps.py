"""A sweep called toy: a real coordinator plans it, and its arms get records written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from search_spaces.space import Sampler, SearchSpace, Setting, Uniform
from sweep.run.coordinator import Coordinator
from sweep.study.arms import Arm
from sweep.study.definition import Definition, put_definition
from tests.support.oracles import TINY
from tests.support.proposals import stored_proposals
from tests.support.records import ended, finished
from trainables.records.arm_record import ArmRecord
from trainables.records.objects import ObjectStore

LOSSES = [1.0, 0.7, 0.5, 0.3]  # feasible under small alphas, beats the trivial predictors
PLAIN = [1.0, 1.0, 1.0, 0.3]  # of an unconstrained arm that meets no constraint unasked
STEEP = [1.0, 0.35, 0.12, 0.04]  # feasible under every alpha


def definition(
    sampler: Sampler = "random",
    n_proposals: int = 3,
    seeds: tuple[int, ...] = (0, 1),
    n_settings: int = 2,
) -> Definition:
    space = SearchSpace(
        name="toy",
        summary="",
        base=TINY,
        settings=tuple(
            Setting(f"g{g}", {"train_gamma": 0.1 * g}) for g in range(1, 1 + n_settings)
        ),
        ranges={"constraint.alpha": Uniform(0.05, 0.6)},
        n_proposals=n_proposals,
        search_seeds=seeds,
        sampler=sampler,
    )
    return Definition("toy", space)


def started(objects: ObjectStore, asked: Definition, **options: Any) -> Coordinator:
    retry_failed = options.pop("retry_failed", False)
    coordinator = Coordinator(objects, asked, **options)
    coordinator.start(retry_failed=retry_failed)
    return coordinator


def train(
    coordinator: Coordinator,
    record_of: Callable[[Arm], ArmRecord] = lambda arm: finished(arm.config, LOSSES),
    limit: int = 1000,
) -> list[Arm]:
    """Stand in for an executor: every arm gets a record written by hand."""
    trained: list[Arm] = []
    while len(trained) < limit and (arm := coordinator.next_arm()) is not None:
        record = record_of(arm)
        coordinator.runs.put_record(record)
        if record.is_final:
            coordinator.finish_arm(arm.signature)
        else:
            coordinator.give_up_arm(arm.signature)
        trained.append(arm)
    return trained


def outcomes(objects: ObjectStore, asked: Definition) -> dict[str, Any]:
    return {
        setting.name: stored_proposals(objects, asked.name, setting.name)
        for setting in asked.space.settings
    }


def ends_where(
    picked: Callable[[Arm], bool], status: str, reason: str
) -> Callable[[Arm], ArmRecord]:
    """For ``train``: the arms that are picked end like this, all others finish."""

    def record_of(arm: Arm) -> ArmRecord:
        if picked(arm):
            return ended(arm.config, status, reason)
        return finished(arm.config, LOSSES)

    return record_of


def with_winners(arm: Arm) -> ArmRecord:
    """For ``train``: proposal 0 diverges, each later one is better, all of them feasible."""
    if arm.proposal == 0:
        stopped = ended(arm.config, "diverged", "the loss is not finite")
        return replace(stopped, started_ms=1_000, ended_ms=50_000)
    gammas = [f"{g:.2f}" for g in arm.config.test_gammas]
    bonus = 0.5 * (arm.proposal or 0)
    losses = PLAIN if arm.proposal is None else STEEP
    return finished(
        arm.config,
        losses,
        scores={g: 5.0 + 10 * float(g) - bonus for g in gammas},
        layer_losses_by_gamma=dict.fromkeys(gammas, losses),
        references={n: dict.fromkeys(gammas, 9.0) for n in ("identity", "constant", "wiener")},
        objective=-bonus,
    )


def trained_with_winners(objects: ObjectStore, n_proposals: int = 3) -> Definition:
    """The whole sweep, stored; the last proposal wins in every setting."""
    asked = definition(n_proposals=n_proposals)
    put_definition(objects, asked)
    train(started(objects, asked), with_winners)
    return asked
