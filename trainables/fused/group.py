"""Group of arms that one process trains together, each to a record of its own.

Arms of one configuration and seed, which differ in their constraints alone: they share the data in
memory, the batches, and where the bits allow it the forward and backward pass (fused training).
Everything else stays an arm's own: record, checkpoints, early end, outcome. An arm that ends leaves
the others at work; one that resumes behind the others catches up first. What may have killed the
process before, or fails as a group, is trained one arm after the other, so that the arm at fault
fails alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainables.arm_run import ArmRun
from trainables.fused.training import FusedTraining
from trainables.records.arm_record import ArmRecord


class ArmGroup:
    """Several arms' runs, as ``ArmRun`` is of one; of a single arm it is just that."""

    def __init__(self, runs: Sequence[ArmRun], *, fuse: bool = True) -> None:
        """Take runs of one ``group_key``; nothing is loaded or trained yet.

        Args:
            runs: of the arms, none of which has begun.
            fuse: whether arms may share forward and backward passes, too.
        """
        self.fuses = fuse  # until a company's bits forbid it
        self._runs = list(runs)
        self._one_by_one = len(runs) == 1
        self._checked: tuple[str, ...] = ()  # signatures of which ``fuses`` was tried

    @property
    def is_final(self) -> bool:
        """Whether every arm is."""
        return all(run.record.is_final for run in self._runs)

    def advance(self) -> list[ArmRecord]:
        """Train those that are farthest behind to their next report; their records.

        Raises:
            StoreError, BadData, GpuShareTooSmall, GpuLost: as ``ArmRun.advance``.
        """
        ready = self._begun()
        waiting = [run for run in self._runs if not run.record.is_final]
        if not waiting:
            return [run.record for run in self._runs]
        if self._one_by_one:
            return [waiting[0].advance()]
        behind = min(run.training.step for run in ready)
        together = [run for run in ready if run.training.step == behind]
        if not self._train(together):
            self._separate()
            return []
        for run in together:
            run.settle()
            if run.record.is_final:
                run.let_go()
        return [run.record for run in together]

    def _begun(self) -> list[ArmRun]:
        """Those that can be trained, begun; none where they are to be trained one by one."""
        ready: list[ArmRun] = []
        for run in self._runs:
            if self._one_by_one:
                return []
            if run.begin(ready[0] if ready else None):
                ready.append(run)
                if run.has_died:
                    self._separate()
        return ready

    def _train(self, together: list[ArmRun]) -> bool:
        """Take the steps to their next report; whether that went well."""
        target = together[0].next_report
        try:
            if len(together) > 1 and self._fuses_now(together):
                FusedTraining([run.training for run in together]).run_to(target)
            else:
                for run in together:
                    run.training.run_to(target)
        except Exception:
            return False
        return True

    def _fuses_now(self, together: list[ArmRun]) -> bool:
        """Whether these arms' bits allow it; tried once for every company."""
        company = tuple(run.signature for run in together)
        if self.fuses and company != self._checked:
            self._checked = company
            self.fuses = FusedTraining([run.training for run in together]).same_bits()
        return self.fuses

    def _separate(self) -> None:
        """From the last checkpoints on, one arm after the other."""
        self._one_by_one = True
        for run in self._runs:
            run.let_go()
