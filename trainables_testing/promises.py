"""Promises of a contract: functions that raise BrokenContract where one is broken.

The contract suites of models, tasks and data sets are beside this file, one for what is built in
and for what other packages bring (docs/plugins.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from trainables.config.arm import ArmConfig, DataConfig

T = TypeVar("T", ArmConfig, DataConfig)


class BrokenContract(AssertionError):
    """A promise is not kept; the message says which, and by what."""


def require_kept(kept: bool, promise: str, got: object = None) -> None:
    """Raise BrokenContract, unless ``kept``."""
    if not kept:
        raise BrokenContract(promise + ("." if got is None else f", got {got}."))


def check(subject: str, promises: Sequence[Callable[[T], None]], given: T) -> None:
    """Ask every promise of ``given``; a broken one is told with the subject's name."""
    for promise in promises:
        try:
            promise(given)
        except BrokenContract as broken:
            raise BrokenContract(f"{subject}: {broken}") from None


def in_both_types(config: ArmConfig) -> list[ArmConfig]:
    """The constrained run in float32 and in bfloat16."""
    require_kept(config.constraint is not None, "contracts are checked on a constrained run")
    return [replace(config, dtype="float32"), replace(config, dtype="bfloat16")]
