"""Resource requests of an arm: CPU threads and a share of a GPU.

Few distinct requests in a sweep, since a worker is reused only for the same one. Ray keeps a worker
for the next arm of the same class; another class needs another process, which imports everything
again. So all arms of a sweep on CPUs are of one class, and those on GPUs of one, or of up to three
where their share follows from measured memory. Pure: no Ray, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sweep.study.arms import Arm
from sweep.study.definition import Definition
from trainables.errors import InvalidValue
from trainables.memory import CONTEXT_MB
from trainables.records.arm_record import TRAIN_PEAK_MEMORY_MB, ArmRecord

Machine = Mapping[str, float]  # its resources as Ray counts them: {"CPU": 8.0, "GPU": 2.0}
MEASURED_SHARES = (1 / 4, 1 / 2, 1.0)
HEADROOM = 1.25  # over the peak of training: evaluation and other arms may need more
ROUNDING = 1e-6  # of sums of places and shares


@dataclass(frozen=True)
class ResourceClass:
    """Class of arms that hold the same resources."""

    cpus: int
    gpus: float = 0.0  # of one GPU; 0: trains on CPUs
    processes: int = 1  # that train an arm together, each with as much as above

    @property
    def bundle(self) -> dict[str, float]:
        """Resources of one process, as Ray names them."""
        gpu = {"GPU": self.gpus} if self.gpus else {}
        return {"CPU": float(self.cpus), **gpu}

    def slots(self, machines: Sequence[Machine]) -> int:
        """Arms of this class that these machines hold at once.

        >>> ResourceClass(2, 0.25).slots([{"CPU": 48.0, "GPU": 4.0}, {"CPU": 8.0}, {}])
        16
        >>> ResourceClass(2, processes=3).slots([{"CPU": 4.0}, {"CPU": 4.0}])  # over both
        1
        """
        return sum(self._slots(machine) for machine in machines) // self.processes

    def __str__(self) -> str:
        several = f"{self.processes} processes of " if self.processes > 1 else ""
        return f"{several}{self.bundle}"

    def _slots(self, machine: Machine) -> int:
        # With ROUNDING: 1 / (1 / 93) is below 93, and no place may be lost to that.
        by_cpu = int(machine.get("CPU", 0.0) / self.cpus + ROUNDING)
        if not self.gpus:
            return by_cpu
        each = int(1 / self.gpus + ROUNDING)  # Ray never splits an arm over two GPUs
        return min(by_cpu, int(machine.get("GPU", 0.0) + ROUNDING) * each)


class ResourceClasses:
    """The class of every arm of one sweep."""

    def __init__(
        self,
        definition: Definition,
        record_of: Callable[[str], ArmRecord | None],
        *,
        processes: int = 1,
    ) -> None:
        """Take the sweep; InvalidValue where a batch has fewer samples than an arm has processes.

        ``record_of`` reads the stored record of a signature, once per setting.
        """
        space = definition.space
        runs = [space.run(s, {}, seed=space.search_seeds[0]) for s in space.settings]
        for run in runs:
            if (samples := run.batch_size // run.accumulate) < processes:
                raise InvalidValue(
                    f"processes must be at most {samples}, the samples of a batch (batch_size "
                    f"over accumulate), got {processes}: each trains on rows of its own."
                )
        self._cpus = max(run.threads for run in runs)
        self.on_gpu = any(run.device == "cuda" for run in runs)
        requested = space.gpus_per_arm if processes == 1 else 1.0  # NCCL refuses two on one GPU
        self._measured = requested == "measured"
        share = 1.0 if requested == "measured" else requested
        self.standard = ResourceClass(self._cpus, share if self.on_gpu else 0.0, processes)
        self._record_of = record_of
        self._shares: dict[str, float] = {}  # by setting, once measured
        self._alone: set[str] = set()  # signatures that outgrew their share

    def class_of(self, arm: Arm, baselines: Sequence[Arm]) -> ResourceClass:
        """The class of an arm; its setting's baselines are trained before it."""
        if arm.config.device == "cpu":
            return replace(self.standard, gpus=0.0)
        if arm.signature in self._alone:
            return replace(self.standard, gpus=1.0)
        if self._measured and arm.proposal is not None:
            return replace(self.standard, gpus=self._measured_share(arm.setting, baselines))
        return self.standard

    def pack(self, arms: int, gpus: int) -> None:
        """Lower the standard share until so many arms of one process fit on so many GPUs."""
        if self.standard.processes > 1:
            return
        share = 1 / math.ceil(arms / gpus)
        self.standard = replace(self.standard, gpus=min(self.standard.gpus, share))

    def give_whole_gpu(self, signature: str) -> None:
        """This arm needed more than its share: from now on it gets a GPU of its own."""
        self._alone.add(signature)

    def _measured_share(self, setting: str, baselines: Sequence[Arm]) -> float:
        if setting not in self._shares:
            share = next(filter(None, (self._share_of(arm) for arm in baselines)), None)
            if share is None:
                return 1.0  # not known yet
            self._shares[setting] = share
        return self._shares[setting]

    def _share_of(self, baseline: Arm) -> float | None:
        record = self._record_of(baseline.signature)
        if record is None or not record.reports:
            return None
        gpu_mb = record.environment.get("gpu_memory_mb")
        peak_mb = max(r.scalars.get(TRAIN_PEAK_MEMORY_MB, 0.0) for r in record.reports)
        return share_for(peak_mb, gpu_mb) if gpu_mb and peak_mb else None


def share_for(peak_mb: float, gpu_mb: float) -> float:
    """The smallest share of a GPU that holds an arm whose tensors took ``peak_mb``.

    >>> [share_for(peak_mb, 24_000) for peak_mb in (1_000, 4_000, 5_000, 20_000)]
    [0.25, 0.25, 0.5, 1.0]
    """
    needed = (HEADROOM * peak_mb + CONTEXT_MB) / gpu_mb
    return next((share for share in MEASURED_SHARES if share >= needed), 1.0)
