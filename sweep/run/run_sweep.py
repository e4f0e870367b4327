"""Run of a sweep from lock to summary: the frame around every executor.

Lock, read what the store holds, then train, with a display, until all arms are final or somebody
stops it. Running again is resuming.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

from sweep.run.budget import NO_LIMIT, Budget, Spending, put_budget
from sweep.run.coordinator import Coordinator
from sweep.run.events import NOBODY, Observer, ended_event
from sweep.run.progress import pick_display
from sweep.run.signals import stop_on_request, stop_on_signals, stop_request
from sweep.run.summary import RunSummary
from sweep.run.watching import POLL_STANDSTILL_S, Standstill, polling
from sweep.study.advice import note, resume
from sweep.study.definition import Definition, load_definition
from sweep.study.lock import driver_lock
from sweep.study.requirements import folder_of
from trainables import retries
from trainables.errors import StoreError
from trainables.records.objects import ObjectStore
from trainables.records.retrying import RetryingStore


class Executor(Protocol):
    """The part of ``sweep/executors/executor.py`` that this module needs and may not import."""

    @property
    def where(self) -> str:
        """Name of the place where arms train."""

    @property
    def options(self) -> tuple[str, ...]:
        """Options of a command line for the same executor, but for the place."""

    def train(self, coordinator: Coordinator) -> None:
        """Train the arms that the coordinator hands out until it has no more, or is stopped."""


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
) -> RunSummary:
    """Train the arms of a stored sweep that are not final, and return how the run ended.

    ``definition`` is the stored one, extensions included. The display is live on a terminal, else
    one line per arm. ``accept_code`` takes arms that other code trained as they are; else they are
    refused.

    Raises:
        AlreadyRunning: another driver works on this sweep.
        StoreError: the store could not be read at the start.
        Failure: there is no Ray.
        Misuse: there is no machine that can hold an arm.
    """
    patient = RetryingStore(objects.root, patience_s=retries.STORE_PATIENCE_S)
    with ExitStack() as stack:
        # Before the lock: a `sweep stop` that comes while this driver starts is meant for it.
        known = stop_request(patient, definition.name)
        # The stack closes what follows in the opposite order: whatever watches the coordinator ends
        # before it is closed, and it stores its last verdicts while the lock is still held.
        beats = stack.enter_context(driver_lock(patient, definition.name))
        shown = pick_display(enabled=display)
        coordinator = Coordinator(
            patient,
            definition,
            observer=replace(observer, on_final=shown.show_final),
            ask_ahead=executor.where != "inline",
            resume_command=command_to_resume(objects, definition, executor, budget, accept_code),
            spending=Spending(patient, definition, budget),
            accept_code=accept_code,
        )
        stack.callback(coordinator.close)
        beats.watch(lambda: coordinator.waits_for, coordinator.lose_sweep)
        stack.enter_context(stop_on_request(coordinator, known=known))
        coordinator.start(retry_failed=retry_failed)
        if others := coordinator.codes.describe_others():
            note(others)
        stack.enter_context(shown.show(coordinator))
        standstill = Standstill(coordinator)
        stack.enter_context(polling(standstill.poll, POLL_STANDSTILL_S, "standstill"))
        try:
            with stop_on_signals(coordinator):
                executor.train(coordinator)
        except KeyboardInterrupt:
            coordinator.stop("Ctrl-C")
        except StoreError as error:
            coordinator.stop_on_trouble(str(error))
        if (reached := coordinator.budget_reached) and not coordinator.stopping:
            try:
                put_budget(patient, definition.name, budget, reached=reached)
                # Without the budget: it trains the rest.
                coordinator.resume_command = command_to_resume(
                    patient, definition, executor, accept_code=accept_code
                )
            except StoreError as error:
                coordinator.stop_on_trouble(str(error))
        summary = coordinator.summary()
        if (news := ended_event(summary)) is not None:
            coordinator.announce(news)
        return summary


def command_to_resume(
    objects: ObjectStore,
    definition: Definition,
    executor: Executor,
    budget: Budget = NO_LIMIT,
    accept_code: bool = False,
) -> str:
    """Command that continues this run, with this budget and the options that are not stored."""
    stored, now = load_definition(objects, definition.name).space, definition.space
    more = [*executor.options, *budget.options, *["--accept-code"] * accept_code]
    folder = folder_of(now)
    if folder is not None and folder != folder_of(stored):
        more += ["--data", folder]
    if now.stall_after_s != stored.stall_after_s:
        more += ["--stall-after", f"{now.stall_after_s:g}"]
    return resume(definition.name, objects.root, where=executor.where, more=more)
