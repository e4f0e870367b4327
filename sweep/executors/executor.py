"""Choice of executor: a local Ray cluster, a running one, or this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainables.errors import InvalidValue

if TYPE_CHECKING:  # scipy and Optuna: a second that `sweep run --help` does not pay
    from search_spaces.space import SearchSpace
    from sweep.run.coordinator import Coordinator

Where = Literal["local", "cluster", "inline"]


@dataclass(frozen=True)
class Executor:
    """One place to train; ``run_sweep`` is given it.

    Raises:
        InvalidValue: fewer than one worker, arm together, or process; or several processes where
            there is no Ray, or for arms that one process is to train together.
    """

    # local: a Ray cluster of this machine alone; cluster: the running one that this machine belongs
    # to; inline: this process, one arm at a time
    where: Where = "local"
    workers: int | None = None  # arms at a time; None: what the machine holds, or a fair share
    fuse: int | None = None  # so many arms that a worker may train together; None: on a GPU as
    # many small ones as a stack has rows for, else each alone
    processes: int | None = None  # so many that train an arm together; None: one

    def __post_init__(self) -> None:
        for name, count in self._counts.items():
            if count is not None and count < 1:
                raise InvalidValue(f"{name} must be at least 1, got {count}.")
        if (self.processes or 1) > 1 and self.where == "inline":
            raise InvalidValue(
                f"processes must be 1 where arms train in this process (inline), got "
                f"{self.processes}: Ray starts the others. Train local or on a cluster."
            )
        if (self.processes or 1) > 1 and (self.fuse or 1) > 1:
            raise InvalidValue(
                f"processes and fuse exclude each other, got {self.processes} and {self.fuse}: "
                "several processes train one large network, fused arms are small ones."
            )

    @property
    def options(self) -> tuple[str, ...]:
        """Options of a command line for the same executor, but for the place."""
        given = ((f"--{n}", str(count)) for n, count in self._counts.items() if count is not None)
        return tuple(word for option in given for word in option)

    @property
    def _counts(self) -> dict[str, int | None]:
        return {"workers": self.workers, "fuse": self.fuse, "processes": self.processes}

    def train(self, coordinator: Coordinator) -> None:
        """Train what the coordinator hands out; Failure without Ray, Misuse without a machine."""
        one_alone = (self.processes or 1) > 1
        most = self.fuse or (1 if one_alone else arms_of_a_stack(coordinator.definition.space))
        if self.where == "inline":
            from sweep.executors.inline import train_inline

            train_inline(coordinator, most=most)
        elif not coordinator.is_over:
            from sweep.executors import tune  # imports Ray: a second nobody else pays

            train = tune.train_on_cluster if self.where == "cluster" else tune.train_on_local_ray
            train(coordinator, workers=self.workers, most=most, processes=self.processes or 1)


def arms_of_a_stack(space: SearchSpace) -> int:
    """Arms that a GPU trains in the time of one; 1 on a CPU, and where networks are large."""
    runs = [space.base.with_fields(setting.fields) for setting in space.settings]
    if not all(run.device == "cuda" for run in runs):
        return 1
    from sweep.cost.estimate import is_stacked  # torch
    from trainables.fused.update import ROWS

    return ROWS if all(map(is_stacked, runs)) else 1
