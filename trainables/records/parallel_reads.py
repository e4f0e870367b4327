"""Parallel reads of many small objects, since object storage is mostly latency."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")
READERS = 24  # pyarrow keeps 25 connections to S3


def at_once(read: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """``read`` of every item, in their order; the first error is raised."""
    every = list(items)
    if len(every) < 2:
        return [read(item) for item in every]
    with ThreadPoolExecutor(min(READERS, len(every)), "read") as readers:
        return list(readers.map(read, every))
