"""Arm records and checkpoints by signature: a sweep's state beside its definition and proposals.

arms/<signature>/record.json            reports with timestamps, outcome; never replaced once final
arms/<signature>/checkpoint-<step>.pt   the two newest
arms/<signature>/record.json.damaged    a record that could not be read, set aside
arms/<signature>/weights.pt             the last iterate of a finished arm, kept for winners
arms/<signature>/scores.npz             its held-out scores by unit and sample
arms/<signature>/attempts.json          how often one driver started this arm from one step
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace

from trainables.errors import DamagedObject, StoreError
from trainables.object_store import ObjectStore
from trainables.results import ArmRecord
from trainables.unit_scores import UnitScores

log = logging.getLogger(__name__)
KEPT_CHECKPOINTS = 2
MAX_DEATHS = 5  # starts by one driver without a newer checkpoint after which an arm is failed


@dataclass(frozen=True)
class _Attempt:
    """One start of an arm."""

    driver: str
    resumed_from: int  # the step of its checkpoint; -1: from scratch
    starts: int  # by this driver since the last newer checkpoint


class RunStore:
    """Records and checkpoints of arms below one storage root."""

    def __init__(self, objects: ObjectStore, *, driver: str = "") -> None:
        """Use ``objects`` as they are; several stores on one root do not disturb each other.

        Args:
            objects: the storage root.
            driver: the run of a driver that starts arms here; see ``count_attempt``.
        """
        self.objects = objects
        self.driver = driver

    def record(self, signature: str) -> ArmRecord | None:
        """The arm's record, or None when it never reported.

        A damaged one is set aside with a warning: an arm without a record is trained again, from
        its checkpoint if there is one, and the checkpoint holds the record of its step.
        """
        name = f"arms/{signature}/record.json"
        try:
            return self.objects.get_value(name, ArmRecord.from_json)
        except DamagedObject:
            aside = self.objects.set_aside(name)
        log.warning(
            "%s was damaged and is kept as %s; a run or resume of its sweep trains arm %s again",
            name, aside, signature,
        )  # fmt: skip
        return None

    def has_record(self, signature: str) -> bool:
        """Whether the arm has a record; it is not read."""
        return self.objects.exists(f"arms/{signature}/record.json")

    def put_record(self, record: ArmRecord) -> ArmRecord:
        """Write the record, unless a final one is there; return what the store holds now.

        With a final record the checkpoints go. Whoever meets one drops them too: the writer of the
        record may have been killed in between.
        """
        there = self.record(record.signature)
        if there is None or not there.is_final:
            self.objects.put_json(f"arms/{record.signature}/record.json", record.to_json())
            there = record
        if there.is_final:
            self.drop_checkpoints(record.signature)
        return there

    def forget(self, signature: str) -> None:
        """Delete everything of one arm: the record first, which makes it an arm to be trained.

        Killed in between, this leaves what an arm in training has, from where it goes on.
        """
        self.objects.delete(f"arms/{signature}/record.json")
        self.objects.delete_folder(f"arms/{signature}")

    def put_checkpoint(self, signature: str, step: int, content: bytes) -> None:
        """Write the checkpoint of ``step`` and delete all but the two newest."""
        self.objects.put(f"arms/{signature}/checkpoint-{step:08d}.pt", content)
        for name in self._checkpoints(signature)[:-KEPT_CHECKPOINTS]:
            self.objects.delete(f"arms/{signature}/{name}")

    def newest_checkpoint(self, signature: str) -> tuple[int, bytes] | None:
        """(step, content) of the newest whole checkpoint, or None. A damaged one is passed over."""
        for name in reversed(self._checkpoints(signature)):
            try:
                content = self.objects.get(f"arms/{signature}/{name}")
            except DamagedObject:
                continue
            if content is not None:
                return int(name.removeprefix("checkpoint-").removesuffix(".pt")), content
        return None

    def put_weights(self, signature: str, content: bytes) -> None:
        """Keep the last iterate; the checkpoints go with the final record that follows."""
        self.objects.put(f"arms/{signature}/weights.pt", content)

    def weights(self, signature: str) -> bytes | None:
        """The last iterate of a finished arm, while it is kept."""
        return self.objects.get(f"arms/{signature}/weights.pt")

    def drop_weights(self, signature: str) -> None:
        """Forget the last iterate; the record stays."""
        self.objects.delete(f"arms/{signature}/weights.pt")

    def put_unit_scores(self, signature: str, scores: UnitScores) -> None:
        """Keep the scores by unit and sample, before the final record that follows."""
        self.objects.put(f"arms/{signature}/scores.npz", scores.to_bytes())

    def unit_scores(self, signature: str) -> UnitScores | None:
        """Scores by unit and sample; of arms that ended before there were any, None."""
        content = self.objects.get(f"arms/{signature}/scores.npz")
        return None if content is None else UnitScores.from_bytes(content)

    def drop_checkpoints(self, signature: str) -> None:
        """Delete every checkpoint of one arm."""
        for name in self._checkpoints(signature):
            self.objects.delete(f"arms/{signature}/{name}")

    def drop_left_overs(self, signature: str) -> None:
        """Delete what killed writers of one arm left half-written."""
        self.objects.delete_left_overs(f"arms/{signature}")

    def count_attempt(self, signature: str, resumed_from: int) -> int:
        """Note a start at ``resumed_from``; return the starts since the last newer checkpoint.

        Starts by another driver do not count: an arm is to blame when its worker dies again and
        again under one driver, not when drivers are killed.
        """
        name = f"arms/{signature}/attempts.json"
        attempt = _Attempt(self.driver, resumed_from, 1)
        try:
            last = self.objects.get_value(name, lambda plain: _Attempt(**plain))
        except StoreError:  # damaged, or of another version: the count begins anew
            last = None
        if last and last.driver == self.driver and resumed_from <= last.resumed_from:
            attempt = replace(attempt, starts=last.starts + 1)
        self.objects.put_json(name, asdict(attempt))
        return attempt.starts

    def _checkpoints(self, signature: str) -> list[str]:
        return [n for n in self.objects.names(f"arms/{signature}") if n.startswith("checkpoint-")]
