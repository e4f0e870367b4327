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

from search_spaces.effects.descent import largest_alpha
from search_spaces.settings import names_within
from sweep.results.status import time_text
from sweep.run.coordinator import Coordinator
from sweep.study import advice
from sweep.study.arms import Arm, LiveArm
from sweep.study.feasibility import judge, never_binds, plain_meets_up_to
from sweep.study.selection import counted
from trainables.records.arm_record import REPORTED_LOSS, REPORTED_MISSING_SHARE, ArmRecord

REFRESH_PER_S = 2.0
SHOWN_ARMS = 8  # running arms listed; more are counted
SHOWN_NOTES = 3  # settings that cannot have a winner, likewise
BAR = 12  # columns of an arm's bar, where they are free
NUMBERS = 70  # characters of the longest line of numbers, and of what stands around its name


class Display:
    """A display that shows nothing; the two real ones extend it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._coordinator: Coordinator | None = None
        self._plain: dict[str, ArmRecord] = {}  # unconstrained arms of this run, by signature
        self._notes: dict[str, str] = {}  # on settings that cannot have a winner

    def show_final(self, arm: Arm, record: ArmRecord) -> None:
        """Show that an arm of this run is final."""

    def _noted(self, arm: Arm, record: ArmRecord) -> list[str]:
        """New notes: on settings whose every constraint their plain arms meet, this the last."""
        if arm.proposal is not None or self._coordinator is None:
            return []
        self._plain[arm.signature] = record
        space, new = self._coordinator.definition.space, []
        for setting in space.settings:
            plain = [one.signature for one in self._coordinator.plan.baselines[setting.name]]
            if arm.signature in plain and self._plain.keys() >= set(plain):
                up_to = plain_meets_up_to(space, setting, [self._plain[s] for s in plain])
                if text := never_binds(up_to, largest_alpha(space, setting)):
                    self._notes[setting.name] = text
                    new.append(f"{setting.name}: {text}")
        return new

    @contextmanager
    def show(self, coordinator: Coordinator) -> Iterator[None]:
        """Show the sweep while the block runs."""
        yield


class PlainDisplay(Display):
    """A display of one line per finished arm."""

    def show_final(self, arm: Arm, record: ArmRecord) -> None:
        """Print the arm's line."""
        if self._coordinator is not None:
            done, total = self._coordinator.plan.arms_done, self._coordinator.plan.arms_total
            what = "unconstrained" if arm.proposal is None else f"proposal {arm.proposal}"
            name = f"{arm.setting} {what} seed {arm.config.seed}"
            self._print(f"[{done}/{total}] {name}: {end_text(record)}")
            for note in self._noted(arm, record):
                self._print(f"! {note}")

    @contextmanager
    def show(self, coordinator: Coordinator) -> Iterator[None]:
        """Print the state at the start, and lines while the block runs."""
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
        with suppress(OSError):  # a log whose disk is full loses lines, and no arms
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class LiveDisplay(Display):
    """A live display: arms done, running, the best of every setting, and the time left."""

    def show_final(self, arm: Arm, record: ArmRecord) -> None:
        """Note settings that cannot have a winner."""
        self._noted(arm, record)

    @contextmanager
    def show(self, coordinator: Coordinator) -> Iterator[None]:
        """Redraw while the block runs."""
        started, is_over = time.monotonic(), False
        self._coordinator = coordinator

        def draw() -> RenderableType:
            elapsed_s = time.monotonic() - started
            # A copy, as in ``view``.
            notes = [_line(f"! {name}: {text}", "yellow") for name, text in [*self._notes.items()]]
            if len(notes) > SHOWN_NOTES:
                more = f"! and {len(notes) - SHOWN_NOTES} more settings cannot have a winner"
                notes = [*notes[:SHOWN_NOTES], _line(more, "yellow")]
            if is_over:  # the summary alone stays in the scroll-back
                return Group(*_head(coordinator, elapsed_s), *notes)
            size = self._console.height - len(notes), self._console.width
            return Group(view(coordinator, elapsed_s, *size), *notes)

        with Live(console=self._console, get_renderable=draw, refresh_per_second=REFRESH_PER_S):
            yield
            is_over = True


def pick_display(*, enabled: bool) -> Display:
    """The display that suits where the output goes."""
    console = Console()
    if not enabled:
        return Display(console)
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


def end_text(record: ArmRecord) -> str:
    """Text on how an arm ended, with its last numbers."""
    seconds = (record.ended_ms - record.started_ms - record.idle_ms) / 1000
    text = ", ".join([f"{record.status} in {time_text(seconds)}", *_last_numbers(record)])
    return f"{text}; {record.reason}" if record.reason else text


def _last_numbers(record: ArmRecord) -> list[str]:
    """Held-out loss, and the worst missing share of a constrained arm.

    A finished arm has those of tables and verdicts: in the task's unit, over every noise draw.
    Others have those of the last report, which is over one draw.
    """
    measured, constraint, source = record.evaluation, record.config.constraint, ""
    scalars = record.reports[-1].scalars if record.reports else {}
    loss, share = scalars.get(REPORTED_LOSS), scalars.get(REPORTED_MISSING_SHARE)
    if measured is None:
        source = "at its last report, of one noise draw: "
    else:
        judged = None if constraint is None else judge([record], constraint)
        loss = measured.held_out_losses()[-1]
        share = None if judged is None else max(judged.held_out)
    shown = [] if loss is None else [f"held-out loss {loss:.3g}"]
    shown += [] if share is None else [f"worst missing share {share:+.2f}"]
    return [f"{source}{shown[0]}", *shown[1:]] if shown else []


def seconds_left(coordinator: Coordinator) -> float | None:
    """Estimate the time left from the arms that ended in this run; None before the first."""
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
    """Draw the live view: a line for each thing, however narrow the terminal is.

    The sweep as a whole comes first, and of its settings as many as the terminal has lines for.
    """
    settings = [setting.name for setting in coordinator.definition.space.settings]
    names = names_within(settings, width - NUMBERS)
    parts = _head(coordinator, elapsed_s)
    # A copy: rich draws in a thread of its own, while the driver's changes it.
    live = list(coordinator.live.values())
    has_room = max(map(len, names.values())) + NUMBERS + BAR + 2 <= width
    if live:  # a table without rows would be an empty line
        parts.append(_running(live, names, with_bars=has_room))
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
    """State of the sweep, and a legend of its numbers; these lines stay when the view ends."""
    plan = coordinator.plan
    left = seconds_left(coordinator)
    remaining = "" if left is None else f", about {time_text(left)} left"
    done = f"{plan.arms_done} of {plan.arms_total} arms, {time_text(elapsed_s)}{remaining}"
    settings = [s.name for s in coordinator.definition.space.settings]
    tolerance = coordinator.definition.space.tolerance
    bar = Table.grid(expand=True)
    bar.add_row(ProgressBar(total=max(plan.arms_total, 1), completed=plan.arms_done))
    lower = "objective: lower is better"
    winners = sum(coordinator.best_proposal(setting) is not None for setting in settings)
    counts = counted(coordinator.search.judged)
    proposals = ", ".join(f"{n} {name}" for name, n in counts.items() if n) or "none judged yet"
    return [
        _line(f"{coordinator.definition.name}: {done}", style="bold"),
        bar,
        _line(f"  {winners} of {len(settings)} settings have a winner; proposals: {proposals}"),
        _line(f"  gain: above 0 better; miss: feasible up to +{tolerance:.2f}; {lower}", "dim"),
    ]


def _line(text: str, style: str = "") -> Text:
    """Text on one line, cut where the terminal ends."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _running(live: list[LiveArm], names: Mapping[str, str], *, with_bars: bool) -> Table:
    table = Table.grid(padding=(0, 2))
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
    table = Table.grid(padding=(0, 2))
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
    best = coordinator.best_proposal(setting)
    if best is not None:
        metric = coordinator.definition.space.base.facts.metric
        gain = "" if math.isnan(best.gain) else f"{metric.label} gain {best.gain:+.3f}; "
        return (
            f"p{best.number}: {gain}miss {best.worst_missing_share:+.2f}, "
            f"objective {best.objective:.3f}"
        )
    outcomes = list(coordinator.outcomes.get(setting, {}).values())
    shares = [o.worst_missing_share for o in outcomes if not math.isnan(o.worst_missing_share)]
    closest = f"; closest miss {min(shares):+.2f}" if shares else ""
    return f"no winner yet{closest}"
