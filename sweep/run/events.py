"""Observers of a running sweep, and events that are worth a notification.

An event (the end, the first winner, trouble) is made from what the coordinator knows, and delivered
by `sweep/run/notifications.py`. Nothing is stored: news is passed on at most once per run of a
driver, and the records are the truth.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Literal

from sweep.study import advice
from trainables.plain import Json

if TYPE_CHECKING:
    from sweep.run.summary import RunSummary
    from sweep.study.arms import Arm, OnRecord
    from sweep.study.proposals import ProposalOutcome
    from sweep.study.selection import OnProposal
    from trainables.records.arm_record import ArmRecord

Kind = Literal["finished", "failed", "stalled", "first_winner", "test"]

log = logging.getLogger(__name__)

LONGEST_TEXT = 1000  # characters; a problem may carry a whole traceback


@dataclass(frozen=True)
class Event:
    """One thing that happened to a sweep."""

    kind: Kind
    sweep: str
    text: str  # one or a few lines for people
    details: Mapping[str, Json] = field(default_factory=dict)  # the same for programs
    may_resume: bool = False  # a failure after which a supervisor may start the driver again

    def __post_init__(self) -> None:
        if len(self.text) > LONGEST_TEXT:
            object.__setattr__(self, "text", f"{self.text[: LONGEST_TEXT - 4]} ...")


OnEvent = Callable[[Event], None]


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Observer:
    """Callbacks by which a running sweep is followed; what is not given is ignored."""

    on_record: OnRecord = _ignore  # an arm's stored record grew, or is final: it can be read
    on_proposal: OnProposal = _ignore  # all arms of a proposal are final; once per run
    on_final: Callable[[Arm, ArmRecord], None] = _ignore  # an arm ended in this run
    on_event: OnEvent = _ignore  # news for somebody who does not look; may come from a thread

    def guarded(self, problems: list[str]) -> Observer:
        """The same, which raises nothing: errors join the problems."""
        guards = {f.name: partial(_call, problems, getattr(self, f.name)) for f in fields(self)}
        return Observer(**guards)


NOBODY = Observer()


def _call(problems: list[str], listener: Callable[..., None], *args: object) -> None:
    try:
        listener(*args)
    except Exception as error:
        log.exception("a listener of the sweep failed")
        problem = f"{getattr(listener, '__qualname__', listener)}: {error}"
        if problem not in problems:
            problems.append(problem)


def first_winner_event(sweep: str, setting: str, outcome: ProposalOutcome) -> Event:
    """News of the sweep's first proposal that can win (``sweep/study/selection.py``)."""
    return Event(
        "first_winner",
        sweep,
        f"{sweep} has its first winner: proposal {outcome.number} of {setting}, objective "
        f"{outcome.objective:.4g}, worst missing share {outcome.worst_missing_share:.2f}.",
        {
            "setting": setting,
            "proposal": outcome.number,
            "objective": outcome.objective,
            "worst_missing_share": outcome.worst_missing_share,
        },
    )


def stalled_arm_event(sweep: str, signature: str, setting: str, what: str) -> Event:
    """News of an arm without progress; ``what`` says since when, and what is done about it."""
    return Event(
        "stalled",
        sweep,
        f"{sweep}: arm {signature} of {setting} makes no progress: {what}",
        {"arm": signature, "setting": setting},
    )


def ended_event(summary: RunSummary) -> Event | None:
    """News of how a driver's run ended; None where somebody asked it to stop, and so knows."""
    counts = {outcome: count for outcome, count in summary.outcomes.items() if count}
    details = {
        "outcomes": counts,
        "arms_done": summary.arms_done,
        "arms_total": summary.arms_total,
        "problems": len(summary.problems) + len(summary.retired),
        "is_done": summary.is_done,
    }
    arms = f"{summary.arms_done} of {summary.arms_total} arms are final"
    if summary.exit_code == 0:
        shown = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        text = summary.budget_line() or f"{summary.sweep} is finished: {arms}; {shown}."
        return Event("finished", summary.sweep, text, details)
    if summary.was_asked_to_stop:
        return None
    first = next(iter((*summary.problems, *summary.retired.values())), summary.stopped)
    state = "is finished, with problems" if summary.is_done else "ended before it was done"
    return Event(
        "failed",
        summary.sweep,
        f"{summary.sweep} {state}: {arms}. {first} {summary.advice}",
        details,
        may_resume=not summary.is_done,
    )


def error_event(sweep: str, error: BaseException, again: str) -> Event:
    """News of a driver that ended with an error; the command ``again`` continues the sweep."""
    return Event(
        "failed",
        sweep,
        f"{sweep} ended with an error: {error} `{again}` continues it.",
        {"error": type(error).__name__},
        may_resume=True,
    )


def driver_event(sweep: str, what: str, storage: str) -> Event:
    """News of a driver on a cluster that is not started again; ``what`` says why."""
    logs, again = advice.command("logs", sweep, storage=storage), advice.resume(sweep, storage)
    text = f"the driver of {sweep} {what}. `{logs}` shows more, `{again}` continues it."
    return Event("failed", sweep, text)


def storage_event(sweep: str, error: BaseException) -> Event:
    """News of a sweep on a cluster that waits until its storage can be written again."""
    text = f"{sweep} waits: {error} Its job continues once it can be written again."
    return Event("stalled", sweep, text)
