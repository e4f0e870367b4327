"""Periodic look, in a thread, while something else is done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def watching(look: Callable[[], bool | None], every_s: float, name: str) -> Iterator[None]:
    """Look every ``every_s`` seconds while the block runs, until a look is the last.

    Args:
        look: whether it was the last; what it raises ends the looks.
        every_s: before the first look, and between two.
        name: of the thread.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every_s) and not look():
            pass

    thread = threading.Thread(target=watch, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
