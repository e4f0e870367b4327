"""Choice of executor: a local Ray cluster, a running one, or this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainables.errors import InvalidValue

if TYPE_CHECKING:  # Optuna, and a store: half a second that `sweep run --help` does not pay
    from sweep.run.coordinator import Coordinator
    from sweep.study.definition import Definition
    from trainables.records.objects import ObjectStore

Where = Literal["local", "cluster", "inline"]


@dataclass(frozen=True)
class Executor:
    """One place to train; ``run_sweep`` is given it.

    Raises:
        InvalidValue: fewer than one worker, or than one arm together.
    """

    # local: a Ray cluster of this machine alone; cluster: the running one that this machine belongs
    # to; inline: this process, one arm at a time
    where: Where = "local"
    workers: int | None = None  # arms at a time; None: what the machine holds, or a fair share
    fuse: int | None = None  # so many arms that a worker may train together; None: each alone

    def __post_init__(self) -> None:
        for name, count in (("workers", self.workers), ("fuse", self.fuse)):
            if count is not None and count < 1:
                raise InvalidValue(f"{name} must be at least 1, got {count}.")

    @contextmanager
    def early(self, definition: Definition, objects: ObjectStore) -> Iterator[None]:
        """Begin, beside the block, what training will wait for: a new sweep's own Ray cluster.

        Of a sweep that is there already nobody knows yet whether anything is left to train.

        Args:
            definition: what is to be trained; it need not be resolved.
            objects: the storage root.
        """
        from sweep.study.definition import definition_name
        from sweep.study.requirements import may_have_data

        is_new = not objects.exists(definition_name(definition.name))
        if self.where != "local" or not is_new or not may_have_data(definition.space):
            yield  # a folder that is not there is told at once
            return
        from sweep.executors.early_ray import early_ray, size_of  # imports Ray, as below
        from sweep.executors.resources import ResourceClasses

        classes = ResourceClasses(definition, lambda _: None)
        with early_ray(size_of(definition, classes, self.workers, self.fuse or 1)):
            yield

    def train(self, coordinator: Coordinator, patience_s: float) -> None:
        """Train what the coordinator hands out.

        Raises:
            Failure: there is no Ray.
            Misuse: there is no machine that can hold an arm.
        """
        most = self.fuse or 1
        if self.where == "inline":
            from sweep.executors.inline import train_inline

            train_inline(coordinator, most=most)
        elif not coordinator.is_over:
            from sweep.executors import tune  # imports Ray: a second nobody else pays

            train = tune.train_on_cluster if self.where == "cluster" else tune.train_on_local_ray
            train(coordinator, workers=self.workers, most=most, patience_s=patience_s)
