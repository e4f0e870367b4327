"""Trials of arms as Tune makes them, in this process."""

from __future__ import annotations

from typing import Any

from trainables.config.arm import ArmConfig
from trainables.config.trial import TrialOrder
from trainables.records.objects import ObjectStore
from trainables.trial import ArmTrial


def trial_of(objects: ObjectStore, config: ArmConfig) -> ArmTrial:
    return ArmTrial(config=told(config, objects.root))


def told(config: ArmConfig, root: str, *others: ArmConfig, **more: Any) -> dict[str, Any]:
    """What Tune carries for an arm, or a group of them, on one CPU."""
    given = {"patience_s": 0, "bundle": {"CPU": 1.0}, **more}
    return TrialOrder(configs=[config, *others], root=root, **given).to_tune()
