"""Executor in this process: one arm after the other, without Ray, for debugging."""

from __future__ import annotations

import time

from sweep.executors.groups import next_group
from sweep.run.coordinator import Coordinator
from sweep.study.arms import Arm
from trainables.errors import StoreError
from trainables.retries import RECORD_LOOK_S


def train_inline(coordinator: Coordinator, *, most: int = 1) -> None:
    """Train every arm that the coordinator hands out, at most ``most`` of them together."""
    while (arms := next_group(coordinator, most=most)) or coordinator.awaits_records:
        if not arms:
            time.sleep(RECORD_LOOK_S)
            continue
        _train(coordinator, arms)


def _train(coordinator: Coordinator, arms: list[Arm]) -> None:
    from trainables.arm_run import ArmRun  # imports torch
    from trainables.fused.group import ArmGroup

    left = {arm.signature for arm in arms}
    tolerance = coordinator.definition.space.tolerance
    try:
        runs = [ArmRun(arm.config, coordinator.runs, tolerance=tolerance) for arm in arms]
        group, records = ArmGroup(runs), [run.record for run in runs]
        while True:
            for record in records:
                if record.is_final and record.signature in left:
                    left.remove(record.signature)
                    coordinator.finish_arm(record.signature)
                elif record.reports:
                    coordinator.record_report(record.signature, record.reports[-1])
            if group.is_final or coordinator.stopping:
                break
            records = group.advance()
    except StoreError as error:
        coordinator.stop_on_trouble(str(error))
    for signature in left:
        coordinator.give_up_arm(signature)
