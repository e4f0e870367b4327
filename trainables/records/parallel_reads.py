"""Parallel reads of many small objects, since object storage is mostly latency."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from trainables.records.stored_files import CONNECTIONS

A = TypeVar("A")
B = TypeVar("B")
READERS = CONNECTIONS


def at_once(read: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """``read`` of every item, in their order; the first error is raised."""
    every = list(items)
    if len(every) < 2:
        return [read(item) for item in every]
    with ThreadPoolExecutor(min(READERS, len(every)), "read") as readers:
        return list(readers.map(read, every))


def few_at_once(read: Callable[[A], B], items: Sequence[A]) -> Iterator[tuple[A, B]]:
    """Every item with ``read`` of it, in their order, no more of them in memory than READERS."""
    for first in range(0, len(items), READERS):
        some = items[first : first + READERS]
        yield from zip(some, at_once(read, some), strict=True)
