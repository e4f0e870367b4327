"""Arm store: records and checkpoints by signature.

arms/<signature>/record.json            the final record, put once: reports with timestamps, outcome
arms/<signature>/progress.json          the record of an arm in training, put again at each report
arms/<signature>/checkpoint-<step>.pt   the two newest
arms/<signature>/record.json.damaged    one that could not be read, set aside; progress.json too
arms/<signature>/weights.pt             the last iterate of a finished arm, kept for winners
arms/<signature>/scores.npz             its held-out scores by unit and sample
arms/<signature>/attempts.json          how often one driver started this arm from one step
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection

from trainables.errors import DamagedObject, StoreError
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import at_once
from trainables.records.unit_scores import UnitScores

log = logging.getLogger(__name__)
FINAL, PROGRESS, CHECKPOINT = "record.json", "progress.json", "checkpoint-"


class ArmStore:
    """Records and checkpoints of arms below one storage root."""

    def __init__(self, objects: ObjectStore, *, driver: str = "", sweep: str = "") -> None:
        """Use ``objects`` as they are; several stores on one root do not disturb each other.

        ``driver`` is the run of a driver that starts arms here for ``sweep`` (``count_attempt``).
        """
        self.objects = objects
        self.driver = driver
        self.sweep = sweep

    def record(self, signature: str) -> ArmRecord | None:
        """The arm's final record, else that of its training, or None when it never reported.

        A damaged one is set aside with a warning: an arm without a record is trained again, from
        its checkpoint if there is one, and the checkpoint holds the record of its step.
        """
        return (
            self._read(signature, FINAL)
            or self._read(signature, PROGRESS)
            or self._read(signature, FINAL)  # which took the other's place meanwhile
        )

    def has_final(self, signature: str) -> bool:
        """True if the arm has a final record, which is not read."""
        return self.objects.exists(f"arms/{signature}/{FINAL}")

    def finals(self, signatures: Collection[str]) -> set[str]:
        """Signatures of these that ``has_final``, many looked up in parallel."""
        pairs = zip(signatures, at_once(self.has_final, signatures), strict=True)
        return {signature for signature, is_final in pairs if is_final}

    def put_record(self, record: ArmRecord) -> ArmRecord:
        """Write the record, unless a final one is there; return what the store holds now.

        A final one has a name of its own and is put once: a writer in training that was delayed
        after its look, however long, replaces nothing. Of two final writers the first one stays in
        a folder; on object storage they may cross between look and put (docs/decisions/0081). With
        it goes what only an arm in training needs; whoever meets it drops that too, since the
        writer of the record may have been killed in between.
        """
        signature = record.signature
        final = self._read(signature, FINAL)
        if final is None and not record.is_final:
            self.objects.put_json(f"arms/{signature}/{PROGRESS}", record.to_json())
            return record
        if final is None:
            final = self._put_final(record)
        self.drop_training(signature)
        return final

    def _put_final(self, record: ArmRecord) -> ArmRecord:
        content = json.dumps(record.to_json(), sort_keys=True, allow_nan=False).encode()
        stored = self.objects.put_once(f"arms/{record.signature}/{FINAL}", content)
        return record if stored == content else ArmRecord.from_json(json.loads(stored))

    def _read(self, signature: str, kind: str) -> ArmRecord | None:
        name = f"arms/{signature}/{kind}"
        try:
            return self.objects.get_value(name, ArmRecord.from_json)
        except DamagedObject:
            aside = self.objects.set_aside(name)
        if aside is not None:
            log.warning(
                "%s was damaged and is kept as %s; a run or resume of its sweep trains arm %s "
                "again", name, aside, signature,
            )  # fmt: skip
        return None

    def forget(self, signature: str) -> None:
        """Delete everything of one arm: the record first, which makes it an arm to be trained.

        Killed in between, this leaves what an arm in training has, from where it goes on.
        """
        self.objects.delete(f"arms/{signature}/{FINAL}")
        self.objects.delete_folder(f"arms/{signature}")

    def put_checkpoint(self, signature: str, step: int, content: bytes) -> None:
        """Write the checkpoint of ``step`` and delete those before it but the newest.

        Those of later steps, which only a damaged one is or one of a second writer, go when
        training has come past them.
        """
        written = f"{CHECKPOINT}{step:08d}.pt"
        # Two stay, and none goes before the new one is whole: the newest may turn out damaged.
        self.objects.put(f"arms/{signature}/{written}", content)
        before = [name for name in self._checkpoints(signature) if name < written]
        for name in before[:-1]:
            self.objects.delete(f"arms/{signature}/{name}")

    def newest_checkpoint(self, signature: str) -> tuple[int, bytes] | None:
        """(step, content) of the newest whole checkpoint, or None. A damaged one is passed over."""
        for name in reversed(self._checkpoints(signature)):
            try:
                content = self.objects.get(f"arms/{signature}/{name}")
            except DamagedObject:
                continue
            if content is not None:
                return int(name.removeprefix(CHECKPOINT).removesuffix(".pt")), content
        return None

    def put_weights(self, signature: str, content: bytes) -> None:
        """Keep the last iterate; the checkpoints go with the final record that follows."""
        self.objects.put(f"arms/{signature}/weights.pt", content)

    def weights(self, signature: str) -> bytes | None:
        """The last iterate of a finished arm, while it is kept."""
        return self.objects.get(f"arms/{signature}/weights.pt")

    def has_weights(self, signature: str) -> bool:
        """True if the last iterate is kept."""
        return "weights.pt" in self.objects.names(f"arms/{signature}")

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

    def drop_training(self, signature: str) -> None:
        """Delete what only an arm in training needs: its checkpoints, and its record so far."""
        for name in self.objects.names(f"arms/{signature}"):
            if name == PROGRESS or name.startswith(CHECKPOINT):
                self.objects.delete(f"arms/{signature}/{name}")
        self.objects.delete_links(f"arms/{signature}/{FINAL}")

    def drop_left_overs(self, signature: str) -> None:
        """Delete what killed writers of one arm left half-written."""
        self.objects.delete_left_overs(f"arms/{signature}")

    def count_attempt(self, signature: str, resumed_from: int) -> int:
        """Note a start at a checkpoint's step, or -1; return those since the last newer checkpoint.

        Starts by another driver do not count: an arm is to blame when its worker dies again and
        again under one driver, not when drivers are killed.
        """
        name = f"arms/{signature}/attempts.json"

        def counted(last: Json) -> int:
            counts = last["driver"] == self.driver and resumed_from <= last["resumed_from"]
            return int(last["starts"]) if counts else 0

        try:
            starts = 1 + (self.objects.get_value(name, counted) or 0)
        except StoreError:  # damaged, or of another version: the count begins anew
            starts = 1
        attempt = {"driver": self.driver, "resumed_from": resumed_from, "starts": starts}
        self.objects.put_json(name, attempt)
        return starts

    def take_back_attempt(self, signature: str) -> None:
        """The last start of an arm that was counted ended without a death: it counts no more."""
        name = f"arms/{signature}/attempts.json"
        attempt = self.objects.get_json(name)
        if attempt is not None:
            self.objects.put_json(name, {**attempt, "starts": max(0, attempt["starts"] - 1)})

    def _checkpoints(self, signature: str) -> list[str]:
        return [n for n in self.objects.names(f"arms/{signature}") if n.startswith(CHECKPOINT)]
