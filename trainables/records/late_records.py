"""Final records that storage shows late: looked for before an arm is given up.

NFS remembers for up to a minute that a file was not there, and not every gateway to object storage
shows at once what was put.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Generic, TypeVar

from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.retries import RECORD_LOOK_S, RECORD_SEEN_WITHIN_S

T = TypeVar("T")


class LateRecords(Generic[T]):
    """Arms that ended, until their final records are seen; ``T`` is what a caller knows them by."""

    def __init__(self, runs: ArmStore) -> None:
        self._runs = runs
        self._expected: dict[str, tuple[T, float, float]] = {}
        # ^ by signature: its key, when to look again, and when to give up, by the monotonic clock

    def __len__(self) -> int:
        return len(self._expected)

    def expect(self, signature: str, key: T) -> None:
        """Expect the final record that an arm's worker says it has put."""
        now = time.monotonic()
        self._expected[signature] = key, now, now + RECORD_SEEN_WITHIN_S

    def take_seen(self) -> Iterator[tuple[T, ArmRecord | None]]:
        """Yield records that are seen by now, and None for those that are looked for no longer.

        Raises StoreError when one cannot be read; it is expected no longer.
        """
        for signature, (key, look_at, give_up_at) in list(self._expected.items()):
            now = time.monotonic()
            if now < look_at:
                continue
            del self._expected[signature]
            if self._runs.objects.is_local:
                self._runs.objects.names(f"arms/{signature}")  # has NFS ask its server again
            record = self._runs.record(signature)
            if record is not None and record.is_final:
                yield key, record
            elif now >= give_up_at:
                yield key, None
            else:
                self._expected[signature] = key, now + RECORD_LOOK_S, give_up_at


def never_seen(signature: str, root: str) -> str:
    """Problem of an arm whose final record is looked for no longer."""
    return (
        f"arm {signature} ended, and its final record cannot be seen below {root} after "
        f"{RECORD_SEEN_WITHIN_S:.0f} s: a resume takes it as it is, or trains on from the last "
        "checkpoint."
    )
