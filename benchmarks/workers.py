"""Processes of benchmarks that train side by side."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context


@contextmanager
def spawned(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of so many new processes; where the block raises, nothing further is begun.

    A pool alone would first do all that it was given, for hours, and then say what failed.
    """
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
