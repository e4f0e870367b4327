"""Status of a sweep: what it does, how far it is, what became of its arms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from search_spaces.space import SearchSpace
from sweep.results.provenance import device_s
from sweep.results.summary import ProposalCounts
from sweep.results.sweep_view import ArmPlace, SettingView, SweepView
from sweep.study.selection import counted, winner_of
from trainables.plain import Plain, finite
from trainables.records.arm_record import Outcome, Status
from trainables.signs.early_signs import WENT

State = Literal["running", "stopped", "failed", "finished"]
ENDED_EARLY: tuple[Status, ...] = ("failed", "diverged", "stopped")  # what needs a user comes first


def state_of(view: SweepView, *, is_running: bool) -> State:
    """The present state of a sweep, from its records; for every verb that shows it."""
    if is_running:
        return "running"
    if not view.is_finished:
        return "stopped"
    outcomes = {result.outcome for setting in view.settings for result in setting.results}
    return "failed" if outcomes == {"failed"} else "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCounts(Plain):
    """How many arms a sweep wants, and what they do."""

    wanted: int
    final: int
    training: int
    interrupted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalArms(Plain):
    """How many arms a setting wants, and how many are final."""

    wanted: int
    final: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingStatus(Plain):
    """How far one setting is."""

    setting: str
    proposals: ProposalCounts
    arms: FinalArms
    outcomes: Mapping[Outcome, int]
    winner: int | None
    objective: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmProgress(Plain):
    """How far an arm is that is not final."""

    signature: str
    setting: str
    proposal: int | None
    seed: int
    step: int
    steps: int
    reported_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmWarning(Plain):
    """An early sign of a bad run."""

    signature: str
    setting: str
    warning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFailure(Plain):
    """An arm that ended early, and why."""

    signature: str
    setting: str
    status: Status
    reason: str
    trained_for: str | None = None
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStatus(Plain):
    """How far a sweep is: arms by what became of them, settings by proposals, arms not final."""

    name: str
    space: str
    state: State
    seconds_left: float | None
    arms: ArmCounts
    statuses: Mapping[Status, int]
    settings: Sequence[SettingStatus]
    retired: Mapping[str, str]  # by setting, why its search ended early
    in_training: Sequence[ArmProgress]
    interrupted: Sequence[ArmProgress]
    warnings: Sequence[ArmWarning]
    failures: Sequence[ArmFailure]


def status_of(view: SweepView, *, is_running: bool = False) -> SweepStatus:
    """How far a sweep is.

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
    return finite(
        SweepStatus(
            name=view.definition.name,
            space=space.name,
            state=state_of(view, is_running=is_running),
            seconds_left=seconds_left(training, wanted - final),
            arms=ArmCounts(
                wanted=wanted, final=final, training=len(training), interrupted=len(interrupted)
            ),
            statuses=dict(sorted(Counter(a.status for a in arms if a.status).items())),
            settings=[_setting_status(s, space) for s in view.settings],
            retired=view.retired,
            in_training=[_progress(arm) for arm in training],
            interrupted=[_progress(arm) for arm in interrupted],
            warnings=[
                ArmWarning(signature=a.signature, setting=a.setting, warning=warning)
                for is_past in (False, True)
                for a in arms
                for warning in a.warnings
                if warning.startswith(WENT) == is_past
            ],
            failures=[
                ArmFailure(
                    signature=a.signature,
                    setting=a.setting,
                    status=status,
                    reason=a.end.reason,
                    trained_for=a.end.trained_for or None,
                    ended_ms=a.end.ended_ms or None,
                )
                for status in ENDED_EARLY
                for a in arms
                if a.end is not None and a.end.status == status
            ],
        )
    )


def seconds_left(training: Sequence[ArmPlace], open_arms: int) -> float | None:
    """Estimate from the arms in training, as if the others were like these; None without a report.

    Args:
        training: arms that a driver trains now.
        open_arms: how many arms are not final, these included.
    """
    spent, estimates = [], []
    for arm in training:
        if arm.record is not None and arm.record.reports and device_s(arm.record) > 0:
            spent.append(device_s(arm.record))
            done = arm.record.reports[-1].step / arm.record.config.steps
            estimates.append(spent[-1] / done)
    if not spent:
        return None
    return max(0.0, open_arms * fmean(estimates) - sum(spent)) / len(training)


def time_text(seconds: float) -> str:
    """Seconds for humans.

    >>> time_text(5), time_text(150), time_text(7300)
    ('5 s', '2 min 30 s', '2 h 1 min')
    """
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60} min"


def _setting_status(setting: SettingView, space: SearchSpace) -> SettingStatus:
    winner = None if space.phase == "confirmation" else winner_of(setting.results)
    return SettingStatus(
        setting=setting.setting.name,
        proposals=setting.counts(space),
        arms=FinalArms(
            wanted=(space.proposals_of(setting.setting) + 1) * len(space.search_seeds),
            final=sum(arm.is_final for arm in setting.arms),
        ),
        outcomes=counted(setting.results),
        winner=None if winner is None else winner.number,
        objective=None if winner is None else winner.objective,
    )


def _progress(arm: ArmPlace) -> ArmProgress:
    assert arm.record is not None
    last = arm.record.reports[-1] if arm.record.reports else None
    return ArmProgress(
        signature=arm.signature,
        setting=arm.setting,
        proposal=arm.proposal,
        seed=arm.record.config.seed,
        step=0 if last is None else last.step,
        steps=arm.record.config.steps,
        reported_ms=None if last is None else last.timestamp_ms,
    )
