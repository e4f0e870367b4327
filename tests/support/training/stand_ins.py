"""Stand-ins for a clock and for the board that drivers of one cluster share."""

from __future__ import annotations

from collections.abc import Iterator


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def looks(clock: Clock, until: float) -> Iterator[None]:
    """Let time go by as it does for a driver, which looks all the time; at least one look."""
    yield
    while clock.now < until:
        clock.now = min(clock.now + 0.25, until)
        yield


class DictBoard(dict[str, bytes]):
    """A board of this process."""

    def put(self, key: str, content: bytes) -> None:
        self[key] = content

    def read(self) -> dict[str, bytes]:
        return dict(self)

    def drop(self, key: str) -> None:
        self.pop(key, None)
