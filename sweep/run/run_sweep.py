"""Run of a sweep from lock to summary: the frame around every executor.

Lock, then read what the store holds, then train, with a display, until everything asked for is
final or somebody stops it. Running again is resuming.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

from sweep.run.budget import NO_LIMIT, Budget, Spending, put_budget
from sweep.run.coordinator import Coordinator
from sweep.run.events import NOBODY, Observer, ended_event
from sweep.run.progress import display_of
from sweep.run.signals import stop_on_request, stop_on_signals, stop_request
from sweep.run.summary import RunSummary
from sweep.run.watching import standstill_watch
from sweep.study.advice import note, resume
from sweep.study.definition import Definition, load_definition
from sweep.study.lock import driver_lock
from sweep.study.requirements import folder_of
from trainables.errors import StoreError
from trainables.records.objects import ObjectStore
from trainables.records.retrying import RetryingStore
from trainables.retries import STORE_PATIENCE_S


class Executor(Protocol):
    """Where arms train, and how many at a time."""

    @property
    def where(self) -> str:
        """Its name."""

    @property
    def options(self) -> tuple[str, ...]:
        """What a command line says for the same, but for the place."""

    def train(self, coordinator: Coordinator, patience_s: float) -> None:
        """Train what the coordinator hands out until it has no more, or is stopped."""


def run_sweep(
    objects: ObjectStore,
    definition: Definition,
    executor: Executor,
    *,
    observer: Observer = NOBODY,
    display: bool = True,
    retry_failed: bool = False,
    accept_code: bool = False,
    budget: Budget = NO_LIMIT,
    patience_s: float = STORE_PATIENCE_S,
) -> RunSummary:
    """Train what is missing of a stored sweep and return what it came to.

    Args:
        objects: the storage root.
        definition: the stored definition, extensions included.
        executor: where its arms train; ``sweep/executors/executor.py`` has them all.
        observer: follows the run, also its standstills and how it ended.
        display: show progress: live on a terminal, else one line per arm.
        retry_failed: train failed arms again.
        accept_code: take arms that other code trained as they are; else they are refused.
        budget: when to begin no more arms.
        patience_s: how long writers wait for a store that cannot be written.

    Raises:
        AlreadyRunning: another driver works on this sweep.
        StoreError: the store could not be read at the start.
        Failure: there is no Ray.
        Misuse: there is no machine that can hold an arm.
    """
    patient = RetryingStore(objects.root, patience_s=patience_s)
    with ExitStack() as stack:
        known = stop_request(patient, definition.name)
        beats = stack.enter_context(driver_lock(patient, definition.name))
        shown = display_of(definition, enabled=display)
        coordinator = Coordinator(
            patient,
            definition,
            observer=replace(observer, on_final=shown.arm_ended),
            ask_ahead=executor.where != "inline",
            resume_command=run_again(objects, definition, executor, budget, accept_code),
            spending=Spending(patient, definition, budget),
            accept_code=accept_code,
        )
        stack.callback(coordinator.close)
        beats.watch(lambda: coordinator.waits_for, coordinator.lose_sweep)
        stack.enter_context(stop_on_request(coordinator, known=known))
        coordinator.start(retry_failed=retry_failed)
        if told := coordinator.codes.told():
            note(told)
        stack.enter_context(shown.showing(coordinator))
        stack.enter_context(standstill_watch(coordinator))
        try:
            with stop_on_signals(coordinator):
                executor.train(coordinator, patience_s)
        except KeyboardInterrupt:
            coordinator.stop("Ctrl-C")
        except StoreError as error:
            coordinator.store_trouble(str(error))
        if (reached := coordinator.budget_reached) and not coordinator.stopping:
            try:
                put_budget(patient, definition.name, budget, reached=reached)
                coordinator.resume_command = run_again(
                    patient, definition, executor, accept_code=accept_code
                )  # the rest
            except StoreError as error:
                coordinator.store_trouble(str(error))
        summary = coordinator.summary()
        ended = ended_event(summary)
        if ended is not None:
            coordinator.tell_news(ended)
        return summary


def run_again(
    objects: ObjectStore,
    definition: Definition,
    executor: Executor,
    budget: Budget = NO_LIMIT,
    accept_code: bool = False,
) -> str:
    """The command that continues this run, under this budget, with what is not stored of it."""
    stored, now = load_definition(objects, definition.name).space, definition.space
    more = [*executor.options, *budget.options, *["--accept-code"] * accept_code]
    folder = folder_of(now)
    if folder is not None and folder != folder_of(stored):
        more += ["--data", folder]
    if now.stall_after_s != stored.stall_after_s:
        more += ["--stall-after", f"{now.stall_after_s:g}"]
    return resume(definition.name, objects.root, where=executor.where, more=more)
