"""What is worth telling somebody who does not look: a sweep's end, its first winner, a standstill.

Made from what the coordinator knows; `sweep/run/notifications.py` delivers it. Nothing is stored:
news is told at most once per run of a driver, and the records are the truth.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sweep.study import advice

if TYPE_CHECKING:
    from sweep.run.coordinator import Coordinator, RunSummary
    from sweep.study.proposals import ProposalOutcome

Json = Any
Kind = Literal["finished", "failed", "stalled", "first_winner", "test"]

MARGIN_S = 300.0
LOOK_EVERY_S = 15.0
LONGEST_TEXT = 1000  # characters; a problem may carry a whole traceback


@dataclass(frozen=True)
class News:
    """One thing that happened to a sweep."""

    kind: Kind
    sweep: str
    text: str  # one or a few lines for people
    details: Mapping[str, Json] = field(default_factory=dict)  # the same for programs

    def __post_init__(self) -> None:
        """Keep the text short."""
        if len(self.text) > LONGEST_TEXT:
            object.__setattr__(self, "text", f"{self.text[: LONGEST_TEXT - 4]} ...")


OnNews = Callable[[News], None]


def of_first_winner(sweep: str, setting: str, outcome: ProposalOutcome) -> News:
    """The first proposal of the sweep that is a winner (``sweep/study/selection.py``)."""
    return News(
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


def of_stalled_arm(sweep: str, signature: str, setting: str, what: str) -> News:
    """An arm makes no progress; ``what`` says since when and what is done about it."""
    return News(
        "stalled",
        sweep,
        f"{sweep}: arm {signature} of {setting} makes no progress: {what}",
        {"arm": signature, "setting": setting},
    )


def of_end(summary: RunSummary) -> News | None:
    """How a run of a driver ended; None where somebody asked it to stop, and so knows."""
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
        return News(
            "finished", summary.sweep, f"{summary.sweep} is finished: {arms}; {shown}.", details
        )
    if summary.was_asked_to_stop:
        return None
    first = next(iter((*summary.problems, *summary.retired.values())), summary.stopped)
    state = "is finished, with problems" if summary.is_done else "ended before it was done"
    return News(
        "failed",
        summary.sweep,
        f"{summary.sweep} {state}: {arms}. {first} {summary.advice}",
        details,
    )


def of_error(sweep: str, error: BaseException, again: str) -> News:
    """A driver ended with an error instead of a summary; ``again`` is what continues it."""
    return News(
        "failed",
        sweep,
        f"{sweep} ended with an error: {error} `{again}` continues it.",
        {"error": type(error).__name__},
    )


def of_driver(sweep: str, what: str, storage: str) -> News:
    """A driver on a cluster is not started again; ``what`` says why."""
    logs, again = advice.command("logs", sweep, storage=storage), advice.resume(sweep, storage)
    text = f"the driver of {sweep} {what}. `{logs}` shows more, `{again}` continues it."
    return News("failed", sweep, text)


def of_storage(sweep: str, error: BaseException) -> News:
    """A sweep on a cluster waits until its storage can be written again."""
    text = f"{sweep} waits: {error} Its job goes on by itself once it can be written again."
    return News("stalled", sweep, text)


class Standstill:
    """Notices when no arm has reported or ended for ``after_s`` seconds, once each time.

    An arm that hangs has been dealt with by then (``sweep/executors/stalls.py``): what is left are
    sweeps whose workers do not come, and executors that cannot end an arm.
    """

    def __init__(self, coordinator: Coordinator, after_s: float | None = None) -> None:
        """``after_s``: by default a little longer than an arm may be silent."""
        self._coordinator = coordinator
        patience_s = coordinator.definition.space.stall_after_s
        self._after_s = patience_s + MARGIN_S if after_s is None else after_s
        self._told_of = 0.0  # the moment of progress after which a standstill was told

    def look(self, now: float) -> None:
        """Tell where there is something to tell. ``now`` is of the monotonic clock."""
        last, live = self._coordinator.progressed_at, len(self._coordinator.live)
        # On a cluster no arm is handed out while no machine holds one: then none is live, either.
        waits = live or not (self._coordinator.stopping or self._coordinator.plan.is_done)
        if not waits or now - last < self._after_s or self._told_of == last:
            return
        self._told_of = last
        sweep = self._coordinator.definition.name
        look = advice.command("status", sweep, storage=self._coordinator.objects.root)
        minutes = (now - last) / 60
        state = (
            f"{live} arms wait for workers, prepare their data, or hang"
            if live
            else "No arm is handed out: no machine has room for one"
        )
        self._coordinator.tell_news(
            News(
                "stalled",
                sweep,
                f"{sweep}: no arm has reported for {minutes:.0f} minutes. {state}: see "
                f"`{look}` and the log of its driver.",
                {"live_arms": live, "silent_s": round(now - last)},
            )
        )


@contextmanager
def standstill_watch(coordinator: Coordinator) -> Iterator[None]:
    """Look for a standstill, in a thread, while the block runs."""
    standstill, over = Standstill(coordinator), threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_EVERY_S):
            standstill.look(time.monotonic())

    thread = threading.Thread(target=watch, name="standstill", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
