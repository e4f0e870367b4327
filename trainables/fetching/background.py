"""Fetch in a thread, for a caller that reports while it lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from trainables.fetching.fetched_folders import Tell


class Background:
    """A fetch in a thread, for a caller that must report while it lasts."""

    def __init__(self, action: Callable[[Tell], object]) -> None:
        """Start ``action`` in a thread, with a callback for its progress."""
        self._events: SimpleQueue[str | BaseException | None] = SimpleQueue()
        self._heard: str | BaseException | None = ""  # None: it is done
        # daemon: a fetch may take hours, and must not keep an ended worker alive
        self._thread = threading.Thread(target=self._run, args=(action,), daemon=True)
        self._thread.start()

    def event(self, every_s: float) -> str:
        """The progress, once it has changed and not before ``every_s``; empty: it is done.

        A fetch that comes no further brings no event: whoever waits for one sees it hang. Raises
        what ``action`` raised.
        """
        self._thread.join(every_s)  # most are found in the cache, in less
        before = self._heard
        while not self._events.empty() or (self._heard == before and isinstance(before, str)):
            self._heard = self._events.get()
        if isinstance(self._heard, BaseException):
            raise self._heard
        return self._heard or ""

    def _run(self, action: Callable[[Tell], object]) -> None:
        try:
            action(self._events.put)
            self._events.put(None)
        except BaseException as error:
            self._events.put(error)
