"""Executor in this process: one arm after the other, without Ray, for debugging."""

from __future__ import annotations

import time

from sweep.run.coordinator import Coordinator
from trainables.errors import StoreError
from trainables.retries import RECORD_LOOK_S


def train_inline(coordinator: Coordinator) -> None:
    """Train every arm that the coordinator hands out. An error in our own code is raised."""
    from trainables.arm_run import ArmRun  # imports torch

    tolerance = coordinator.definition.space.tolerance
    while (arm := coordinator.next_arm()) is not None or coordinator.looks_for_ended:
        if arm is None:
            time.sleep(RECORD_LOOK_S)
            continue
        try:
            run = ArmRun(arm.config, coordinator.runs, tolerance=tolerance)
            while not run.record.is_final and not coordinator.stopping:
                record = run.advance()
                if record.reports:
                    coordinator.report(arm.signature, record.reports[-1])
        except StoreError as error:
            coordinator.unfinished(arm.signature)
            coordinator.store_trouble(str(error))
            continue
        if run.record.is_final:
            coordinator.finished(arm.signature)
        else:
            coordinator.unfinished(arm.signature)
