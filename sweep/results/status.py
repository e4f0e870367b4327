"""Status of a sweep as JSON: what it does, how far it is, what became of its arms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from search_spaces.space import SearchSpace
from sweep.results.provenance import device_s
from sweep.results.sweep_view import ArmPlace, SettingView, SweepView
from sweep.study.selection import counted, winner_of
from trainables.plain import Json, finite
from trainables.records.arm_record import Status
from trainables.signs.early_signs import WENT

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
    wanted = len(arms) + missing * len(space.search_seeds)
    return {
        "state": state_of(view, is_running=is_running),
        "seconds_left": seconds_left(training, wanted - final),
        "arms": {
            "wanted": wanted,
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
            for is_past in (False, True)
            for a in arms
            for warning in a.warnings
            if warning.startswith(WENT) == is_past
        ],
        "failures": [
            {
                "signature": a.signature,
                "setting": a.setting,
                "status": status,
                "reason": a.end.reason,
                "trained_for": a.end.trained_for or None,
                "ended_ms": a.end.ended_ms or None,
            }
            for status in ENDED_EARLY
            for a in arms
            if a.end is not None and a.end.status == status
        ],
    }


def seconds_left(training: Sequence[ArmPlace], open_arms: int) -> float | None:
    """Estimate from the arms in training, as if the others were like these; None without a report.

    Args:
        training: arms that a driver trains now.
        open_arms: how many arms are not final, these included.
    """
    spent, whole = [], []
    for arm in training:
        if arm.record is not None and arm.record.reports and device_s(arm.record) > 0:
            spent.append(device_s(arm.record))
            done = arm.record.reports[-1].step / arm.record.config.steps
            whole.append(spent[-1] / done)
    if not spent:
        return None
    return max(0.0, open_arms * fmean(whole) - sum(spent)) / len(training)


def time_text(seconds: float) -> str:
    """Seconds for humans.

    >>> time_text(5), time_text(150), time_text(7300)
    ('5 s', '2 min 30 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _setting_status(setting: SettingView, space: SearchSpace) -> dict[str, Json]:
    winner = None if space.phase == "confirmation" else winner_of(setting.results)
    return {
        "setting": setting.setting.name,
        "proposals": setting.counts(space),
        "arms": {
            "wanted": (space.proposals_of(setting.setting) + 1) * len(space.search_seeds),
            "final": sum(arm.is_final for arm in setting.arms),
        },
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
