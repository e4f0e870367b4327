"""Run a sweep to its end: the frame that every executor works in.

Lock, then read what the store holds, then train, with a display, until everything asked for is
final or somebody stops it. Running again is resuming.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Literal

from sweep.run.coordinator import Coordinator, OnProposal, OnRecord, RunSummary
from sweep.run.events import OnNews, of_end, standstill_watch
from sweep.run.progress import display_of
from sweep.run.signals import stop_on_request, stop_on_signals, stop_request
from sweep.study.advice import resume
from sweep.study.definition import Definition
from sweep.study.lock import driver_lock
from trainables.errors import InvalidValue, StoreError
from trainables.object_store import ObjectStore
from trainables.patient_store import PatientStore

Where = Literal["local", "cluster", "inline"]
PATIENCE_S = 60.0  # how long a writer waits for a disk that is full or away


def run_sweep(
    objects: ObjectStore,
    definition: Definition,
    *,
    where: Where = "local",
    workers: int | None = None,
    on_record: OnRecord | None = None,
    on_proposal: OnProposal | None = None,
    on_news: OnNews | None = None,
    display: bool = True,
    retry_failed: bool = False,
    patience_s: float = PATIENCE_S,
) -> RunSummary:
    """Train what is missing of a stored sweep and return what it came to.

    Args:
        objects: the storage root.
        definition: the stored definition, extensions included.
        where: ``local`` trains on a Ray cluster of this machine, ``cluster`` on the running one
            that it belongs to, ``inline`` in this process.
        workers: arms at a time; None: as many as the machine holds, or this sweep's share of the
            cluster. ``inline`` trains one at a time.
        on_record: told of arms' records as they grow; see Coordinator.
        on_proposal: told of proposals whose arms are all final.
        on_news: told of the first winner, of standstills, and how the run ended.
        display: show progress: live on a terminal, else one line per arm.
        retry_failed: train failed arms again.
        patience_s: how long writers wait for a store that cannot be written.

    Raises:
        AlreadyRunning: another driver works on this sweep.
        StoreError: the store could not be read at the start.
        Failure: there is no Ray.
        Misuse: there is no machine that can hold an arm.
    """
    if workers is not None and workers < 1:
        raise InvalidValue(f"workers must be at least 1, got {workers}.")
    patient = PatientStore(objects.root, patience_s=patience_s)
    with ExitStack() as stack:
        known = stop_request(patient, definition.name)
        beats = stack.enter_context(driver_lock(patient, definition.name))
        shown = display_of(definition, enabled=display)
        coordinator = Coordinator(
            patient,
            definition,
            on_record=on_record,
            on_proposal=on_proposal,
            on_final=shown.arm_ended,
            on_news=on_news,
            ask_ahead=where != "inline",
            again=resume(definition.name, objects.root, where=where, workers=workers),
        )
        stack.callback(coordinator.close)
        beats.watch(lambda: coordinator.waits_for, coordinator.lose_sweep)
        stack.enter_context(stop_on_request(coordinator, known=known))
        coordinator.start(retry_failed=retry_failed)
        stack.enter_context(shown.showing(coordinator))
        stack.enter_context(standstill_watch(coordinator))
        try:
            with stop_on_signals(coordinator):
                _train(coordinator, where, workers, patience_s)
        except KeyboardInterrupt:
            coordinator.stop("Ctrl-C")
        except StoreError as error:
            coordinator.store_trouble(str(error))
        summary = coordinator.summary()
        ended = of_end(summary)
        if ended is not None:
            coordinator.tell_news(ended)
        return summary


def _train(coordinator: Coordinator, where: Where, workers: int | None, patience_s: float) -> None:
    if where == "inline":
        from sweep.executors.inline import train_inline

        train_inline(coordinator)
    elif not coordinator.plan.is_done:
        from sweep.executors import tune  # imports Ray: a second nobody else pays

        train = tune.train_on_cluster if where == "cluster" else tune.train_on_local_ray
        train(coordinator, workers=workers, patience_s=patience_s)
