"""Group of arms that one process trains together, each to a record of its own.

Arms of one configuration and seed, which differ in their constraints alone: they share the data in
memory, the batches, and where the bits allow it the forward and backward pass (fused training).
Everything else stays an arm's own: record, checkpoints, early end, outcome. An arm that ends leaves
the others at work; one that resumes behind the others catches up first. What may have killed the
process before, or fails as a group, is trained one arm after the other, so that the arm at fault
fails alone.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from trainables.arm_run import ArmRun
from trainables.errors import Crowded, GpuLost
from trainables.evaluation.stacked import Row, StackedNetworks
from trainables.fused.agreement import may_fuse
from trainables.fused.training import FusedTraining
from trainables.memory import gpu_is_lost
from trainables.records.arm_record import ArmRecord

log = logging.getLogger(__name__)


class ArmGroup:
    """Several arms' runs, as ``ArmRun`` is of one; of a single arm it is just that."""

    def __init__(self, runs: Sequence[ArmRun]) -> None:
        """Take runs of one configuration but for the constraint, none of which has begun."""
        self.fuses = True  # until a company's bits forbid it, or a joint step fails
        self._runs = list(runs)
        self._one_by_one = len(runs) == 1
        self._fused: FusedTraining | None = None  # the company that is trained as one
        self._reported: set[str] = set()  # signatures of arms whose final records were returned

    @property
    def is_final(self) -> bool:
        """True once every arm is final."""
        return all(run.record.is_final for run in self._runs)

    def advance(self) -> list[ArmRecord]:
        """Train those that are farthest behind to their next report.

        Returns:
            Their records, and those of arms that have become final without a report.

        Raises StoreError, BadData, GpuShareTooSmall and GpuLost as ``ArmRun.advance``.
        """
        try:
            return self._news(self._advance())
        except Crowded as error:
            self._separate(str(error))
            return self._news(())

    def _advance(self) -> Collection[ArmRun]:
        """Train; those that came to a report."""
        ready = self._begun()
        waiting = [run for run in self._runs if not run.record.is_final]
        if self._one_by_one or not ready:
            for run in waiting[:1]:
                run.advance()
                if run.record.is_final:
                    run.let_go()  # the next one has the memory for itself
            return waiting[:1]
        behind = min(run.training.step for run in ready)
        together = [run for run in ready if run.training.step == behind]
        self._share(together)
        if not self._train(together):
            return ()
        for run, row in zip(together, self._rows(together), strict=True):
            run.settle(row)
            if run.record.is_final:
                run.let_go()
                self._fused = None  # which holds its network
                self._share(together)
        return together

    def _share(self, together: Collection[ArmRun]) -> None:
        """Share this process's time among these; final runs and the others hold nothing."""
        left = [run for run in together if not run.record.is_final]
        for run in self._runs:
            run.hold(1 / len(left) if run in left else 0.0)

    def _news(self, trained: Collection[ArmRun]) -> list[ArmRecord]:
        """Records of these, and of final arms that were not reported yet."""
        news = [
            run
            for run in self._runs
            if run in trained
            or (run.record.is_final and run.record.signature not in self._reported)
        ]
        self._reported |= {run.record.signature for run in news if run.record.is_final}
        return [run.record for run in news]

    def _begun(self) -> list[ArmRun]:
        """Begin the runs that can be trained; none where they are to be trained one by one."""
        ready: list[ArmRun] = []
        for run in self._runs:
            if self._one_by_one:
                return []
            run.has_neighbours = bool(ready)
            self._share([run])
            if run.begin(ready[0] if ready else None):
                ready.append(run)
                if run.has_died:
                    self._separate("its process died")
        if self._one_by_one:  # since the last of them
            return []
        for run in ready:
            run.has_neighbours = len(ready) > 1
        return ready

    def _train(self, together: list[ArmRun]) -> bool:
        """Take the steps to their next report; False where one failed as a group."""
        target = together[0].next_report
        try:
            fused = self._fused_now(together)
            for steps in [fused] if fused else together:
                steps.run_to(target)
        except Exception as error:
            if gpu_is_lost():  # their starts stay counted, so that the arm at fault fails alone
                raise GpuLost(f"The GPU of a group of arms was lost ({error}).") from error
            self._separate(f"{type(error).__name__}: {error}")
            return False
        return True

    def _fused_now(self, together: list[ArmRun]) -> FusedTraining | None:
        """These arms as one, where their bits allow it; tried once for every company."""
        trainings = [run.training for run in together]
        if not self.fuses or len(trainings) == 1:
            self._fused = None
        elif self._fused is None or self._fused.trainings != trainings:
            self.fuses = may_fuse(trainings)
            self._fused = FusedTraining(trainings) if self.fuses else None
            if not self.fuses:
                log.warning(
                    "arms of a group take their steps one after the other: as rows of one network "
                    "they would not be themselves"
                )
        return self._fused if self.fuses else None

    def _rows(self, together: Sequence[ArmRun]) -> Sequence[Row | None]:
        """Networks that were fused on a GPU, to be evaluated at once; else None each."""
        if self._fused is None or not self._fused.on_gpu:
            return [None] * len(together)
        task = together[0].task
        networks = StackedNetworks([run.training.evaluated for run in together], task)
        return [Row(networks, number) for number in range(len(together))]

    def _separate(self, why: str) -> None:
        """Go on from the last checkpoints, one arm after the other."""
        log.warning("arms of a group are trained one after the other: %s", why)
        self._one_by_one, self.fuses, self._fused = True, False, None
        for run in self._runs:
            run.has_neighbours = False
            run.hold(1.0)
            run.let_go()
