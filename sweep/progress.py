"""What a running sweep shows: a live view on a terminal, one line per finished arm elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweep.coordinator import Coordinator, LiveArm
from sweep.definition import Definition
from sweep.plan import Arm
from trainables.results import HELD_OUT_LOSS, REPORTED_MISSING_SHARE, ArmRecord

REFRESH_PER_S = 2.0
SHOWN_ARMS = 8  # running arms listed; more are counted


class Display:
    """Shows nothing; the two real displays extend it."""

    def arm_ended(self, arm: Arm, record: ArmRecord) -> None:
        """An arm of this run is final."""

    @contextmanager
    def showing(self, coordinator: Coordinator) -> Iterator[None]:
        """Show the sweep while the block runs."""
        yield


class PlainDisplay(Display):
    """One line per finished arm."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._coordinator: Coordinator | None = None

    def arm_ended(self, arm: Arm, record: ArmRecord) -> None:
        """Print the arm's line."""
        if self._coordinator is not None:
            done, total = self._coordinator.plan.arms_done, self._coordinator.plan.arms_total
            line = f"[{done}/{total}] {described(arm)}: {ended(record)}"
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def showing(self, coordinator: Coordinator) -> Iterator[None]:
        """Print lines while the block runs, and where it stands at its start."""
        self._coordinator = coordinator
        space = coordinator.definition.space
        self._console.print(
            f"{coordinator.definition.name}: settings {len(space.settings)}, proposals "
            f"{space.n_proposals}, search seeds {len(space.search_seeds)}; "
            f"{coordinator.plan.arms_done} of {coordinator.plan.arms_total} arms are done",
            highlight=False,
            soft_wrap=True,
        )
        yield


class LiveDisplay(Display):
    """Arms done, running, the best of every setting and the time left, in place."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def showing(self, coordinator: Coordinator) -> Iterator[None]:
        """Redraw while the block runs."""
        started = time.monotonic()
        live = Live(
            console=self._console,
            get_renderable=lambda: view(coordinator, time.monotonic() - started),
            refresh_per_second=REFRESH_PER_S,
        )
        with live:
            yield


def display_of(
    definition: Definition, *, enabled: bool = True, console: Console | None = None
) -> Display:
    """The display that suits where the output goes."""
    console = console or Console()
    if not enabled:
        return Display()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


def described(arm: Arm) -> str:
    """Which arm this is, in words."""
    what = "unconstrained" if arm.proposal is None else f"proposal {arm.proposal}"
    return f"{arm.setting} {what} seed {arm.config.seed}"


def ended(record: ArmRecord) -> str:
    """How an arm ended, with its last numbers."""
    seconds = (record.ended_ms - record.started_ms) / 1000
    text = f"{record.status} in {time_text(seconds)}"
    if record.reports:
        text += f", {numbers(record.reports[-1].scalars)}"
    return f"{text}; {record.reason}" if record.reason else text


def numbers(scalars: dict[str, float]) -> str:
    """The two numbers worth a glance: held-out loss, and the worst missing share if constrained."""
    shown = [f"held-out loss {scalars[HELD_OUT_LOSS]:.4f}"] if HELD_OUT_LOSS in scalars else []
    if REPORTED_MISSING_SHARE in scalars:
        shown.append(f"worst missing share {scalars[REPORTED_MISSING_SHARE]:+.2f}")
    return ", ".join(shown)


def seconds_left(coordinator: Coordinator) -> float | None:
    """Estimate from the arms that ended in this run; None before the first one did."""
    durations, live = coordinator.durations, list(coordinator.live.values())
    if not durations:
        return None
    mean = sum(durations) / len(durations)
    now = time.monotonic()
    left = coordinator.plan.arms_total - coordinator.plan.arms_done
    spent = sum(min(now - arm.since, mean) for arm in live)
    return max(0.0, left * mean - spent) / max(1, len(live))


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


def view(coordinator: Coordinator, elapsed_s: float) -> RenderableType:
    """The live view as it is right now."""
    plan = coordinator.plan
    left = seconds_left(coordinator)
    head = Table.grid(padding=(0, 1))
    remaining = "" if left is None else f", about {time_text(left)} left"
    head.add_row(
        Text(coordinator.definition.name, style="bold"),
        ProgressBar(total=max(plan.arms_total, 1), completed=plan.arms_done, width=30),
        f"{plan.arms_done} of {plan.arms_total} arms, {time_text(elapsed_s)}{remaining}",
    )
    parts: list[RenderableType] = [head, _running(list(coordinator.live.values()))]
    parts.append(_best(coordinator))
    parts += [Text(f"! {p}", style="red") for p in coordinator.problems[-3:]]
    if coordinator.stopping:
        parts.append(Text(f"stopping ({coordinator.stopping}): running arms end at their report"))
    return Group(*parts)


def _running(live: list[LiveArm]) -> Table:
    table = Table.grid(padding=(0, 2))
    for arm in live[:SHOWN_ARMS]:
        config = arm.arm.config
        step = 0 if arm.report is None else arm.report.step
        shown = "" if arm.report is None else numbers(arm.report.scalars)
        table.add_row("  running", described(arm.arm), f"{step}/{config.steps}", Text(shown))
    if len(live) > SHOWN_ARMS:
        table.add_row("", f"and {len(live) - SHOWN_ARMS} more")
    return table


def _best(coordinator: Coordinator) -> Table:
    table = Table.grid(padding=(0, 2))
    for setting in coordinator.definition.space.settings:
        table.add_row("  best", setting.name, Text(_best_of(coordinator, setting.name)))
    return table


def _best_of(coordinator: Coordinator, setting: str) -> str:
    best = coordinator.best(setting)
    text = "no winner yet"
    if best is not None:
        text = (
            f"proposal {best.number}: objective {best.objective:.4f}, "
            f"worst missing share {best.worst_missing_share:+.2f}"
        )
    else:
        with contextlib.suppress(ValueError):
            outcomes = list(coordinator.outcomes.get(setting, {}).values())
            closest = min(
                o.worst_missing_share
                for o in outcomes
                if o.worst_missing_share == o.worst_missing_share
            )
            text += f"; closest misses {closest:.2f} of the reduction asked"
    if setting in coordinator.retired:
        text += f" (retired: {coordinator.retired[setting]})"
    return text
