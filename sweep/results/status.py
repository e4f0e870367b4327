"""Status of a sweep as JSON: what it does, how far it is, what became of its arms."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from search_spaces.space import SearchSpace
from sweep.results.sweep_view import ArmPlace, SettingView, SweepView
from sweep.study.selection import counted, winner_of
from trainables.plain import Json, finite
from trainables.records.arm_record import Status

State = Literal["running", "stopped", "failed", "finished"]
ENDED_EARLY: tuple[Status, ...] = ("failed", "diverged", "stopped")  # what needs a user comes first


def state_of(view: SweepView, *, is_running: bool) -> State:
    """What a sweep does now, from its records; for every verb that says it."""
    if is_running:
        return "running"
    if not view.is_finished:
        return "stopped"
    outcomes = {result.outcome for setting in view.settings for result in setting.results}
    return "failed" if outcomes == {"failed"} else "finished"


def status_entry(view: SweepView, *, is_running: bool = False) -> dict[str, Json]:
    """How far a sweep is: arms by what became of them, settings by proposals, arms not yet final.

    Args:
        view: the sweep.
        is_running: whether a driver works on it: without one no arm is in training.
    """
    arms = view.arms.values()
    final = sum(arm.is_final for arm in arms)
    space = view.definition.space
    missing = sum(max(space.proposals_of(s.setting) - len(s.proposals), 0) for s in view.settings)
    begun = [a for a in arms if a.record is not None and not a.is_final]
    training, interrupted = (begun, []) if is_running else ([], begun)
    return {
        "state": state_of(view, is_running=is_running),
        "arms": {
            "wanted": len(arms) + missing * len(space.search_seeds),
            "final": final,
            "training": len(training),
            "interrupted": len(interrupted),
        },
        "statuses": dict(sorted(Counter(a.status for a in arms if a.status).items())),
        "settings": [finite(_setting_status(s, space)) for s in view.settings],
        "retired": dict(view.retired),
        "in_training": [finite(_progress(arm)) for arm in training],
        "interrupted": [finite(_progress(arm)) for arm in interrupted],
        "warnings": [
            {"signature": a.signature, "setting": a.setting, "warning": warning}
            for a in arms
            for warning in a.warnings
        ],
        "failures": [
            {
                "signature": a.signature,
                "setting": a.setting,
                "status": status,
                "reason": a.end.reason,
            }
            for status in ENDED_EARLY
            for a in arms
            if a.end is not None and a.end.status == status
        ],
    }


def _setting_status(setting: SettingView, space: SearchSpace) -> dict[str, Json]:
    winner = None if space.phase == "confirmation" else winner_of(setting.results)
    return {
        "setting": setting.setting.name,
        "proposals": setting.counts(space),
        "outcomes": counted(setting.results),
        "winner": None if winner is None else winner.number,
        "objective": None if winner is None else winner.objective,
    }


def _progress(arm: ArmPlace) -> dict[str, Json]:
    assert arm.record is not None
    last = arm.record.reports[-1] if arm.record.reports else None
    return {
        "signature": arm.signature,
        "setting": arm.setting,
        "proposal": arm.proposal,
        "seed": arm.record.config.seed,
        "step": 0 if last is None else last.step,
        "steps": arm.record.config.steps,
        "reported_ms": None if last is None else last.timestamp_ms,
    }
