"""Companies of an arm without Ray, and how far records lie apart."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from torch.distributed import Store  # type: ignore[attr-defined]

from tests.support.records import numbers
from trainables.code_version import training_version
from trainables.config.arm import ArmConfig
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.sharding.gang import (
    Gang,
    gathered,
    is_disconnect,
    leave,
    meeting_place,
    why_gone,
)
from trainables.sharding.order import PeerOrder
from trainables.sharding.peer import follow

HOST = "127.0.0.1"


class SpawnedCompany:
    """As ``Company`` asks; this process is the first one."""

    def __init__(self, store: ArmStore, count: int = 2) -> None:
        self.count = count
        self.peers: list[BaseProcess] = []
        self.root = store.objects.root
        self.code = training_version()
        self._place: Store | None = None

    def gather(self, config: ArmConfig, step: int) -> Gang:
        self._place = place = meeting_place(HOST, self.count)
        spawning = multiprocessing.get_context("spawn")
        for rank in range(1, self.count):
            order = PeerOrder(
                self.root,
                0.0,
                self.count,
                rank,
                self.told(config),
                step,
                HOST,
                place.port,
                self.code,
            )
            self.peers.append(spawning.Process(target=follow, args=(order,)))
            self.peers[-1].start()
        ends = [peer.sentinel for peer in self.peers]
        return gathered(place, self.count, config.device, lambda: bool(wait(ends, timeout=0.02)))

    def told(self, config: ArmConfig) -> Json:
        return config.to_json()

    def why_gone(self, error: BaseException) -> str:
        return why_gone(self._place) if self._place and is_disconnect(error) else ""

    def end(self) -> None:
        with suppress(RuntimeError):
            leave()
        for peer in self.peers:
            peer.kill()
            peer.join()
        self._place = None
        self.peers = []


@contextmanager
def company_of(store: ArmStore, count: int = 2) -> Iterator[SpawnedCompany]:
    company = SpawnedCompany(store, count)
    try:
        yield company
    finally:
        company.end()


def farthest(one: ArmRecord, other: ArmRecord) -> float:
    """The largest difference of two records' numbers, relative to the largest of their list.

    To a hundredth at least: shares and violations are differences of losses, and may be near 0. Of
    all reports, losses and scores. Everything that is no float must be equal, but for counts of
    descent ratios: one of them may lie on the edge of a bin.
    """

    def apart(a: Any, b: Any, scale: float = 0.01) -> float:
        if isinstance(a, float):
            return abs(a - b) / max(abs(a), scale)
        if isinstance(a, dict):
            assert a.keys() == b.keys()
            return max((apart(a[k], b[k]) for k in a if k != "descent_ratio_counts"), default=0.0)
        if isinstance(a, list):
            assert len(a) == len(b)
            scale = max([scale, *(abs(x) for x in a if isinstance(x, float))])
            return max((apart(x, y, scale) for x, y in zip(a, b, strict=True)), default=0.0)
        assert a == b
        return 0.0

    return apart(numbers(one), numbers(other))
