"""Searches of controls that are tuned before a confirmation trains them."""

from __future__ import annotations

from sweep.api import training
from sweep.confirmation.chosen import Wanted, points_of, tuning_of
from sweep.executors.executor import Executor
from sweep.results.sweep_view import SweepView, load_sweep
from sweep.run.budget import Budget
from sweep.study import advice
from sweep.study.advice import note
from sweep.study.registration import registered, resolved
from trainables.records.objects import ObjectStore


def tuned_searches(
    objects: ObjectStore,
    view: SweepView,
    wanted: Wanted,
    executor: Executor,
    budget: Budget,
    *,
    on_done: training.OnDone,
    accept_code: bool,
    may_train: bool,
) -> dict[str, SweepView] | None:
    """The finished searches of the controls that have something to tune; trained where missing.

    None, with a note, where one is missing and may not be trained now.
    """
    tuned = {}
    points = points_of(view, wanted)
    for control in wanted.controls:
        definition = tuning_of(view.definition, control, points)
        if definition is None:
            continue
        if not may_train and definition.name not in objects.names("sweeps"):
            note(
                f"no plan yet: {control} is tuned first, by the sweep {definition.name}, which is "
                "not there. Without --dry-run this command trains it; without that control "
                "--dry-run shows the plan."
            )
            return None
        there = registered(objects, resolved(definition, say=note), named=(), say=note)
        tuning = load_sweep(objects, there.name, "pairs")
        if not tuning.is_finished:
            if not may_train:
                again = advice.resume(there.name, objects.root)
                note(f"no plan yet: {control} is tuned first: `{again}`.")
                return None
            note(f"tunes {control} first, by as many proposals as {view.definition.name} had")
            code = training.train(
                objects, there, executor, on_done=on_done,
                accept_code=accept_code, budget=budget,
            )  # fmt: skip
            tuning = load_sweep(objects, there.name, "pairs")
            if code or not tuning.is_finished:  # its budget may be reached
                raise SystemExit(code)
        tuned[control] = tuning
    return tuned
