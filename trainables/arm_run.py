"""Training of one arm against the store, from wherever it stands to its record.

The inline executor and the Ray trainable are both a loop over ``ArmRun.advance``. Training failures
are outcomes in the record, never exceptions: an exception would cost an actor and be retried in
full. What is no fault of the arm raises: a store that cannot be written, since there is nowhere to
put an outcome, and data that this machine lacks, since any arm would fail here.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from trainables.begun_arm import BegunArm, built
from trainables.build import parameter_dtype
from trainables.config.arm import ArmConfig
from trainables.config.constraint import TOLERANCE
from trainables.environment import STACK_ROWS, environment, is_same_environment
from trainables.errors import (
    BadData,
    Crowded,
    GpuLost,
    GpuShareTooSmall,
    RankLost,
    StoreError,
    SweepError,
)
from trainables.evaluation.evaluate import evaluate
from trainables.evaluation.measuring import measure
from trainables.evaluation.stacked import Row
from trainables.layer_losses import require_every_layer
from trainables.memory import (
    exhausted,
    gpu_is_lost,
    hold_to_share,
    keep_freed_memory,
    peak_memory_mb,
    reset_peak_memory,
    why_cuda_does_not_start,
)
from trainables.plain import Json
from trainables.primal_dual.constraints import descent_constraints, missing_shares
from trainables.primal_dual.schedule import in_steps
from trainables.records import arm_record as results
from trainables.records.arm_record import ArmRecord, Report, Status
from trainables.records.arms import ArmStore
from trainables.registry.training_code import training_code
from trainables.retries import ARM_STARTS
from trainables.sharding.ranks import ALONE, Company
from trainables.signs.diagnosis import dual_warnings
from trainables.signs.early_signs import EarlySigns
from trainables.signs.failures import failure_text
from trainables.tasks.base import Task
from trainables.training import Training, from_bytes, to_bytes


class ArmRun:
    """One arm: ``record`` is what the store knows of it, ``advance`` goes to the next report."""

    def __init__(
        self,
        config: ArmConfig,
        store: ArmStore,
        *,
        gpu_share: float = 1.0,
        tolerance: float = TOLERANCE,
        company: Company | None = None,
    ) -> None:
        """Find out where the arm stands; nothing is loaded or trained yet.

        Args:
            config: what to train.
            store: where it stands, and where it goes.
            gpu_share: how much of its GPU's memory it may take, in (0, 1].
            tolerance: the missing share that its sweep still calls feasible. Above TOLERANCE the
                early signs keep to it; below, to TOLERANCE: what other sweeps call met ends no arm.
            company: other processes that train it with this one; None: it trains alone.
        """
        self.config = config
        self.store = store
        self.gpu_share = gpu_share
        self._company = company
        self._tolerance = max(tolerance, TOLERANCE)
        self.signature = config.signature()
        # Looked for first: where CUDA does not start, its name cannot be recorded either.
        self._no_gpu = why_cuda_does_not_start() if config.device == "cuda" else ""
        self.record = store.record(self.signature) or ArmRecord(
            signature=self.signature,
            config=config,
            started_ms=_now_ms(),
            environment={} if self._no_gpu else self._environment(),
        )
        if self.record.is_final:
            store.drop_training(self.signature)
        self.has_died = False  # in this driver's hands, since its last checkpoint; known once begun
        self.has_neighbours = False  # other arms are in the memory of this process
        self._part = 1.0  # of the process's place that is this arm's
        self._counted_ms = 0  # until when the record has what the arm held
        self._starts = 0  # from its last checkpoint, this one included
        self._was_counted = False  # this start of it; only a process that dies leaves it counted
        self._arm: BegunArm | None = None

    def advance(self) -> ArmRecord:
        """Train to the next report, store the checkpoint, then the record; a no-op once final.

        Every failure becomes the arm's outcome but five:

        Raises:
            StoreError: the store cannot be written, so there is nowhere to put an outcome.
            BadData: data or weights that were found when the sweep was defined are not here.
            GpuShareTooSmall: a share of a GPU was too small; a whole one may do.
            GpuLost: CUDA does not start on this machine, or this process has lost its GPU; after
                ARM_STARTS starts that is the arm's outcome, too.
            RankLost: another process of this arm died; its gang is to begin again.

        With ``has_neighbours`` a lack of memory raises Crowded.
        """
        if self.begin():
            with self._failures_are_outcomes():
                self.run_to(self.next_report)
        self.settle()
        return self.record

    def begin(self, like: ArmRun | None = None) -> bool:
        """Build the arm, where it is not yet; whether it is there to be trained.

        Task and references of ``like``, a run that has begun and differs in its constraint alone,
        are shared. Raises StoreError, BadData, GpuShareTooSmall and GpuLost as ``advance``.
        """
        if self._arm is None and not self.record.is_final:
            with self._failures_are_outcomes():
                self._arm = self._start(None if like is None else like._arm)
        return self._arm is not None and not self.record.is_final

    @property
    def training(self) -> Training:
        """Training of a run that has begun."""
        return self._begun.training

    @property
    def task(self) -> Task:
        """Task of a run that has begun."""
        return self._begun.task

    @property
    def _begun(self) -> BegunArm:
        assert self._arm is not None
        return self._arm

    def run_to(self, step: int) -> None:
        """Take the steps of a run that has begun, without company, until ``step`` are done."""
        self._begun.run_to(step)

    @property
    def next_report(self) -> int:
        """The step of the next report of a run that has begun."""
        every = self.config.report_every
        return min((self.training.step // every + 1) * every, self.config.steps)

    def settle(self, row: Row | None = None) -> None:
        """Report, and store what the arm came to, where it is trained. Raises as ``advance``.

        ``row`` is its network among those of others that are evaluated at once.
        """
        if self._arm is not None and not self.record.is_final:
            with self._failures_are_outcomes():
                self._settle(self._arm, row)

    def hold(self, part: float) -> None:
        """Set the fraction of this process's place that the arm holds from now on."""
        if self._arm is not None and not self.record.is_final:
            self._count_held(_now_ms())
        self._part = part

    def let_go(self) -> None:
        """Drop what is in memory; the run begins again from its last checkpoint.

        Its process lives, so that the start which brought it here is no death.
        """
        if self._was_counted and not self.record.is_final:
            self.store.take_back_attempt(self.signature)
        self._was_counted = False
        self._arm = None

    @contextmanager
    def _failures_are_outcomes(self) -> Iterator[None]:
        try:
            yield
        except (StoreError, BadData, GpuLost, RankLost):
            raise
        except SweepError as error:
            self._end("failed", str(error))
        except Exception as error:
            self._arm = None  # its memory is free for the next arm of this process
            self._end("failed", self._reason(error))

    def _reason(self, error: Exception) -> str:
        """Reason for the record why training failed, with advice where there is some.

        Raises Crowded where more memory may do, GpuShareTooSmall where more of the GPU may,
        RankLost where another process died, GpuLost where the GPU did.
        """
        if self._company is not None and (why := self._company.why_gone(error)):
            return why
        memory = exhausted(error)
        if memory is None and self.config.device == "cuda" and gpu_is_lost():
            return self._gpu_lost(f"The GPU of {socket.gethostname()} was lost ({error}).")
        if memory is not None and self.has_neighbours:
            raise Crowded(f"arm {self.signature}: {memory} memory ({error})") from None
        if memory == "GPU" and self.gpu_share < 1:
            raise GpuShareTooSmall(
                f"arm {self.signature} needs more than {self.gpu_share:g} of its GPU ({error})."
            ) from None
        return failure_text(error)

    def _settle(self, arm: BegunArm, row: Row | None) -> None:
        network = row or arm.network()
        if row is not None:
            arm.join()
        self.record.environment.pop(STACK_ROWS, None)
        if arm.stack_rows:
            self.record.environment[STACK_ROWS] = arm.stack_rows
        report = self._report(arm, network)
        self.record.reports.append(report)
        self._count_held(report.timestamp_ms)
        steps_per_epoch = arm.task.steps_per_epoch
        config = in_steps(self.config, steps_per_epoch)
        signs = EarlySigns(config, arm.task.scales, steps_per_epoch, self._tolerance)
        self.record.warnings = signs.noted(self.record.warnings, self.record.reports)
        last_loss = report.layers["losses"][-1]
        if not (math.isfinite(report.scalars[results.TRAIN_LOSS]) and math.isfinite(last_loss)):
            self._end(
                "diverged",
                f"the loss is {last_loss} at step {report.step}. Lower primal_lr or "
                "constraint.dual_lr.",
            )
        elif arm.training.step >= self.config.steps:
            self._finish(arm, network)
        elif why := signs.reason_to_stop(self.record.reports):
            self._end("stopped", why)
        else:
            state = arm.training.state_dict() | {
                "record": self.record.to_json(),
                "eval_seconds": arm.eval_seconds,
            }
            # The checkpoint first: it holds the record of its step, so that a kill in between loses
            # no report.
            self.store.put_checkpoint(self.signature, arm.training.step, to_bytes(state))
            self.record = self.store.put_record(self.record)

    def _start(self, like: BegunArm | None) -> BegunArm | None:
        """Build the arm, from its newest checkpoint if any; None when it died too often."""
        begun_ms = self._counted_ms = _now_ms()
        torch.set_num_threads(self.config.threads)  # sums over other parts have other bits
        device, dtype = torch.device(self.config.device), parameter_dtype(self.config)
        self.store.drop_left_overs(self.signature)
        checkpoint = self.store.newest_checkpoint(self.signature)
        # Counted before anything is built or loaded that may kill this process.
        self._starts = starts = self.store.count_attempt(
            self.signature, -1 if checkpoint is None else checkpoint[0]
        )
        self._was_counted = True
        self.has_died = starts > 1
        if starts > ARM_STARTS:
            self._end(
                "failed",
                f"its process died {ARM_STARTS} times without a newer checkpoint (out of memory?). "
                "To resume its sweep with --retry-failed trains it again.",
            )
            return None
        if self._no_gpu:
            why = self._gpu_lost(f"CUDA does not start on {socket.gethostname()} ({self._no_gpu}).")
            self._end("failed", why)
            return None
        if like is None:  # else its peak is the group's, and a collection takes .1 s
            reset_peak_memory(device)
        if device.type == "cpu":
            keep_freed_memory()
        hold_to_share(device, self.gpu_share)
        ranks = ALONE
        if self._company is not None:
            ranks = self._company.gather(self.config, -1 if checkpoint is None else checkpoint[0])
        shared = None if like is None else like.task
        task, training = built(self.config, device, dtype, ranks=ranks, shared=shared)
        arm = BegunArm(
            task,
            training,
            like.references if like else task.references(self.config.measured_on),
            device,
        )
        if checkpoint is not None:
            state = from_bytes(checkpoint[1], device)
            training.load_state_dict(state)
            arm.eval_seconds = state["eval_seconds"]
            # with the reports that belong to this checkpoint
            self.record = ArmRecord.from_json(state["record"])
            self.record.idle_ms += max(begun_ms - self.record.reports[-1].timestamp_ms, 0)
            here = self._environment()
            if not is_same_environment(self.record.environment, here):
                self.record.environment = {**here, "before": self.record.environment}
        else:  # anew; it may have waited for an arm of its group
            self.record.reports.clear()
            self.record.started_ms = begun_ms
            self.record.idle_ms = self.record.shared_ms = 0
        self.record.steps_per_epoch = task.steps_per_epoch
        self.record.parameters = sum(p.numel() for p in training.parameters)
        notes: tuple[str, ...] = getattr(task, "notes", ())  # a task of a package may have none
        self.record.warnings += [note for note in notes if note not in self.record.warnings]
        return arm

    def _environment(self) -> dict[str, Json]:
        processes = 1 if self._company is None else self._company.count
        config = self.config
        names = (config.task, config.model.name, config.data.name)
        return {
            **environment(config.device, processes),
            "training_code": training_code(*names, as_loaded=True),
            **({"sweep": self.store.sweep} if self.store.sweep else {}),
        }

    def _gpu_lost(self, what: str) -> str:
        """Raise GpuLost; after as many starts as an arm has that dies, why it ends."""
        what += " See `nvidia-smi` there, and restart or replace that machine."
        if self._starts < ARM_STARTS:
            raise GpuLost(what)
        again = "Then resume its sweep with --retry-failed."
        return f"{what} The arm was started {self._starts} times without a GPU that lasts. {again}"

    def _report(self, arm: BegunArm, network: nn.Module | Row) -> Report:
        scalars, layers = arm.training.measured()
        started = time.perf_counter()
        dev = measure(network, arm.task, "dev", self.config.train_gamma, 1)
        losses_F = dev.units.mean(axis=0)
        require_every_layer(self.config, len(losses_F))
        scalars[results.REPORTED_LOSS] = float(losses_F[-1])
        losses_F /= arm.task.scales.constant_loss
        arm.count_evaluation(started, network)
        scalars[results.EVAL_SECONDS] = arm.eval_seconds
        scalars[results.TRAIN_PEAK_MEMORY_MB] = peak_memory_mb(arm.device)
        layers["losses"] = losses_F.tolist()
        layers["hidden_norms"] = dev.norms.tolist()
        if dev.sample_scores is not None:
            layers["accuracies"] = dev.metrics(arm.task)
        if self.config.constraint is not None:
            constraints = descent_constraints(
                self.config.constraint, self.config.model.layers, arm.task.scales
            )
            shares_L = missing_shares(constraints, losses_F)
            layers["missing_shares"] = shares_L.tolist()
            scalars[results.REPORTED_MISSING_SHARE] = float(shares_L.max())
        return Report(
            step=arm.training.step, timestamp_ms=_now_ms(), scalars=scalars, layers=layers
        )

    def _finish(self, arm: BegunArm, network: nn.Module | Row) -> None:
        started = time.perf_counter()
        multipliers = self.record.reports[-1].layers.get("multipliers", [])
        model = arm.training.evaluated
        measured, scores = evaluate(
            self.config, arm.task, network, arm.references, multipliers, self.config.measured_on
        )
        arm.count_evaluation(started, network)
        self.record.reports[-1].scalars[results.EVAL_SECONDS] = arm.eval_seconds
        # Before the record: whoever finds a final record takes all that belongs to it for stored.
        self.store.put_unit_scores(self.signature, scores)
        self.store.put_weights(self.signature, to_bytes({"model": model.state_dict()}))
        self.record.evaluation = measured
        self._end("finished", "")

    def _end(self, status: Status, reason: str) -> None:
        if status in ("finished", "stopped"):
            config = in_steps(self.config, self.record.steps_per_epoch)
            self.record.warnings += dual_warnings(config, self.record.reports, self._tolerance)
        self.record.status = status
        self.record.reason = reason
        self.record.ended_ms = _now_ms()
        self._count_held(self.record.ended_ms)
        self.record = self.store.put_record(self.record)

    def _count_held(self, until_ms: int) -> None:
        """Count what others held of this arm's place since it was last counted, or it of others."""
        places = 1 if self._company is None else self._company.count
        others = 1 - places * self._part
        self.record.shared_ms += round(others * (until_ms - self._counted_ms))
        self._counted_ms = until_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
