"""Groups of arms without Ray, and whether two stores hold the same of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.records import numbers
from trainables.arm_run import ArmRun
from trainables.config.arm import ArmConfig
from trainables.fused.group import ArmGroup
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def store_in(folder: Path) -> ArmStore:
    return ArmStore(ObjectStore(folder))


def group_of(configs: Sequence[ArmConfig], store: ArmStore) -> ArmGroup:
    return ArmGroup([ArmRun(config, store) for config in configs])


def finish(group: ArmGroup) -> None:
    while not group.is_final:
        group.advance()


def require_same(configs: Sequence[ArmConfig], one: ArmStore, other: ArmStore) -> None:
    """The same numbers and weights of every arm."""
    for signature in (config.signature() for config in configs):
        mine, theirs = one.record(signature), other.record(signature)
        assert mine is not None
        assert theirs is not None
        assert numbers(mine) == numbers(theirs)
        assert one.weights(signature) == other.weights(signature)
