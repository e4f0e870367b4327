"""Progress display: a live view on a terminal, else one line per finished arm."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from search_spaces.settings import names_within
from sweep.results.status import time_text
from sweep.run.coordinator import Coordinator
from sweep.study import advice
from sweep.study.arms import Arm, LiveArm
from sweep.study.definition import Definition
from sweep.study.feasibility import judge
from sweep.study.selection import counted
from trainables.records.arm_record import REPORTED_LOSS, REPORTED_MISSING_SHARE, ArmRecord
from trainables.registry.task_facts import Metric

REFRESH_PER_S = 2.0
SHOWN_ARMS = 8  # running arms listed; more are counted
BAR = 12  # columns of an arm's bar, where they are free
NUMBERS = 70  # characters of the longest line of numbers, and of what stands around its name


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
            self._print(f"[{done}/{total}] {described(arm)}: {ended(record)}")

    @contextmanager
    def showing(self, coordinator: Coordinator) -> Iterator[None]:
        """Print lines while the block runs, and where it stands at its start."""
        self._coordinator = coordinator
        space = coordinator.definition.space
        tried = "listed point" if space.phase == "confirmation" else "proposal"
        self._print(
            f"{coordinator.definition.name}: "
            f"{advice.counted(len(space.settings), 'setting')}, at most "
            f"{advice.counted(max(map(space.proposals_of, space.settings)), tried)} each, "
            f"{advice.counted(len(space.search_seeds), f'{space.phase} seed')}; "
            f"{coordinator.plan.arms_done} of {coordinator.plan.arms_total} arms are done"
        )
        yield

    def _print(self, line: str) -> None:
        """A log whose disk is full loses lines, and no arms."""
        with suppress(OSError):
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class LiveDisplay(Display):
    """Arms done, running, the best of every setting and the time left, in place."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def showing(self, coordinator: Coordinator) -> Iterator[None]:
        """Redraw while the block runs."""
        started, is_over = time.monotonic(), False

        def shown() -> RenderableType:
            elapsed_s = time.monotonic() - started
            if is_over:  # what stays in the scroll-back is the summary
                return Group(*_head(coordinator, elapsed_s))
            return view(coordinator, elapsed_s, self._console.height, self._console.width)

        with Live(console=self._console, get_renderable=shown, refresh_per_second=REFRESH_PER_S):
            yield
            is_over = True


def display_of(definition: Definition, *, enabled: bool = True) -> Display:
    """The display that suits where the output goes."""
    console = Console()
    if not enabled:
        return Display()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


def described(arm: Arm) -> str:
    """Which arm this is, in words."""
    what = "unconstrained" if arm.proposal is None else f"proposal {arm.proposal}"
    return f"{arm.setting} {what} seed {arm.config.seed}"


def ended(record: ArmRecord) -> str:
    """How an arm ended, with its last numbers."""
    seconds = (record.ended_ms - record.started_ms - record.idle_ms) / 1000
    text = ", ".join([f"{record.status} in {time_text(seconds)}", *numbers(record)])
    return f"{text}; {record.reason}" if record.reason else text


def numbers(record: ArmRecord) -> list[str]:
    """The two numbers worth a glance: held-out loss, and the worst missing share if constrained.

    Of a finished arm those that tables and verdicts are made of: in the task's unit, over every
    noise draw. Of others those of the last report, which is of one draw and says so.
    """
    measured, constraint = record.evaluation, record.config.constraint
    if measured is not None:
        judged = None if constraint is None else judge([record], constraint)
        share = None if judged is None else max(judged.held_out)
        return _glance(measured.held_out_losses()[-1], share)
    scalars = record.reports[-1].scalars if record.reports else {}
    shown = _glance(scalars.get(REPORTED_LOSS), scalars.get(REPORTED_MISSING_SHARE))
    return [f"at its last report, of one noise draw: {shown[0]}", *shown[1:]] if shown else []


def _glance(loss: float | None, missing_share: float | None) -> list[str]:
    shown = [] if loss is None else [f"held-out loss {loss:.3g}"]
    return shown + ([] if missing_share is None else [f"worst missing share {missing_share:+.2f}"])


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


def view(
    coordinator: Coordinator, elapsed_s: float, height: int = 25, width: int = 80
) -> RenderableType:
    """The live view as it is right now: a line for each thing, however narrow the terminal is.

    The sweep as a whole comes first, and of its settings as many as the terminal has lines for.
    """
    settings = [setting.name for setting in coordinator.definition.space.settings]
    names = names_within(settings, width - NUMBERS)
    parts = _head(coordinator, elapsed_s)
    live = list(coordinator.live.values())
    room = max(map(len, names.values())) + NUMBERS + BAR + 2 <= width
    parts += (
        [_running(live, names, with_bars=room)] if live else []
    )  # a table without rows is an empty line
    retired = [
        f"{names[s]}: its search ended: {why}" for s, why in coordinator.search.retired.items()
    ]
    problems: list[RenderableType] = [
        Text(f"! {p}", style="red") for p in (*retired, *coordinator.problems[-3:])
    ]
    if coordinator.stopping:
        problems.append(
            Text(f"stopping ({coordinator.stopping}): running arms end at their report")
        )
    elif reached := coordinator.budget_reached:
        problems.append(_line(f"budget reached ({reached}): no new arm begins", "yellow"))
    taken = len(parts) + min(len(live), SHOWN_ARMS + 1) + len(problems)
    parts.append(_best(coordinator, names, most=max(2, height - taken - 2)))
    return Group(*parts, *problems)


def _head(coordinator: Coordinator, elapsed_s: float) -> list[RenderableType]:
    """What the whole sweep has come to, and what its numbers mean; it stays when the view ends."""
    plan = coordinator.plan
    left = seconds_left(coordinator)
    remaining = "" if left is None else f", about {time_text(left)} left"
    done = f"{plan.arms_done} of {plan.arms_total} arms, {time_text(elapsed_s)}{remaining}"
    settings = [s.name for s in coordinator.definition.space.settings]
    tolerance = coordinator.definition.space.tolerance
    bar = Table.grid(expand=True)
    bar.add_row(ProgressBar(total=max(plan.arms_total, 1), completed=plan.arms_done))
    lower = "objective: lower is better"
    winners = sum(coordinator.best(setting) is not None for setting in settings)
    every = [o for of in list(coordinator.outcomes.values()) for o in list(of.values())]
    counts = {name: count for name, count in counted(every).items() if count}
    proposals = ", ".join(f"{n} {name}" for name, n in counts.items()) or "none judged yet"
    return [
        _line(f"{coordinator.definition.name}: {done}", style="bold"),
        bar,
        _line(f"  {winners} of {len(settings)} settings have a winner; proposals: {proposals}"),
        _line(f"  gain: above 0 better; miss: feasible up to +{tolerance:.2f}; {lower}", "dim"),
    ]


def _line(text: str, style: str = "") -> Text:
    """Text on one line, cut where the terminal ends."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _lines() -> Table:
    return Table.grid(padding=(0, 2))


def _running(live: list[LiveArm], names: Mapping[str, str], *, with_bars: bool) -> Table:
    table = _lines()
    for arm in live[:SHOWN_ARMS]:
        config = arm.arm.config
        which = "plain" if arm.arm.proposal is None else f"p{arm.arm.proposal}"
        scalars = {} if arm.report is None else arm.report.scalars
        done = 0 if arm.report is None else arm.report.step
        name = _line(f"  {names[arm.arm.setting]} {which} s{config.seed}")
        bar = [ProgressBar(total=config.steps, completed=done, width=BAR)] * with_bars
        cells = [arm.fetching or f"{done}/{config.steps}"]
        if REPORTED_LOSS in scalars:
            cells.append(f"1 draw: loss {scalars[REPORTED_LOSS]:.3g}")
        if REPORTED_MISSING_SHARE in scalars:
            cells.append(f"miss {scalars[REPORTED_MISSING_SHARE]:+.2f}")
        table.add_row(name, *bar, *map(_line, cells))
    if len(live) > SHOWN_ARMS:
        table.add_row(_line(f"  and {len(live) - SHOWN_ARMS} more"))
    return table


def _best(coordinator: Coordinator, names: Mapping[str, str], *, most: int) -> Table:
    """The best of each setting; of more than ``most`` those that have something judged."""
    table = _lines()
    settings = [setting.name for setting in coordinator.definition.space.settings]
    shown = settings
    if len(settings) > most:
        shown = sorted(settings, key=lambda s: not coordinator.outcomes.get(s))[: most - 1]
    for setting in shown:
        table.add_row(_line(f"  best of {names[setting]}"), _line(_best_of(coordinator, setting)))
    if len(shown) < len(settings):
        table.add_row(_line(f"  and {len(settings) - len(shown)} more settings"))
    return table


def _best_of(coordinator: Coordinator, setting: str) -> str:
    best = coordinator.best(setting)
    if best is not None:
        metric = coordinator.definition.space.base.facts.metric
        return (
            f"p{best.number}: {_against_plain(best.gain, metric)}"
            f"miss {best.worst_missing_share:+.2f}, objective {best.objective:.3f}"
        )
    outcomes = list(coordinator.outcomes.get(setting, {}).values())
    shares = [o.worst_missing_share for o in outcomes if not math.isnan(o.worst_missing_share)]
    closest = f"; closest miss {min(shares):+.2f}" if shares else ""
    return f"no winner yet{closest}"


def _against_plain(gain: float, metric: Metric) -> str:
    """The gain over plain training; '' without one."""
    return "" if math.isnan(gain) else f"{metric.label} gain {gain:+.3f}; "
