"""Live view of `status --watch`: bars of the sweep and its arms, best so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from search_spaces.settings import names_within
from sweep.results.status import ArmProgress, SettingStatus, SweepStatus, time_text
from sweep.run.budget import ArmHours, LastBudget
from sweep.study.lock import Driver
from sweep.study.selection import outcome_text

BAR = 16  # columns of a bar beside words
WORDS = 50  # columns that are kept for the text next to a setting's name and bar
SHOWN_ARMS = 8  # arms in training that are listed; more are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusAnswer(SweepStatus):
    """Output of ``sweep status --json``: a sweep's status, its driver, and the used hours."""

    driver: Driver | None
    storage: str
    budget: LastBudget | None
    spent: ArmHours
    failed_alike: str | None


def status_view(entry: StatusAnswer, width: int, height: int) -> RenderableType:
    """The current status, in as many lines as the terminal has.

    Args:
        entry: of a running sweep.
        width: of the terminal, in characters.
        height: of the terminal, in lines.
    """
    arms, settings, training = entry.arms, entry.settings, entry.in_training
    left = entry.seconds_left
    remaining = "" if left is None else f", about {time_text(left)} left"
    progress = Table.grid(expand=True)
    progress.add_row(_bar(arms.final, arms.wanted, None))
    by = "" if entry.driver is None else f", by {entry.driver}"
    parts: list[RenderableType] = [
        _line(f"{entry.name} is {entry.state}{by}", "bold"),
        _line(f"{arms.final} of {arms.wanted} arms final{remaining}"),
        progress,
    ]
    if entry.driver is not None and entry.driver.waits_for:
        parts.append(_line(f"waits for {entry.driver.waits_for}", "yellow"))
    names = names_within([one.setting for one in settings], width - BAR - WORDS)
    listed = training[:SHOWN_ARMS]
    most = max(2, height - len(parts) - len(listed) - 5)  # headings, counts, how to leave
    shown = _shown(settings, most)
    parts += [Text(), _settings(shown, names)]
    if len(shown) < len(settings):
        parts.append(_line(f"and {len(settings) - len(shown)} more settings"))
    if training:
        parts += [Text(), _arms(listed, names)]
    if len(listed) < len(training):
        parts.append(_line(f"and {len(training) - len(listed)} more arms in training"))
    parts.append(_line("Ctrl-C ends this view, not the sweep. Objective: lower is better.", "dim"))
    return Group(*parts)


def _line(text: str, style: str = "") -> Text:
    """Text on one line, cut where the terminal ends."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _bar(done: float, wanted: float, width: int | None) -> ProgressBar:
    return ProgressBar(total=max(wanted, 1), completed=done, width=width)


def _shown(settings: Sequence[SettingStatus], most: int) -> list[SettingStatus]:
    """Settings for that many lines; if there are more, those in progress come first."""
    if len(settings) <= most:
        return list(settings)
    order = sorted(settings, key=lambda one: one.arms.final in (0, one.arms.wanted))
    return order[: most - 1]


def _settings(settings: Sequence[SettingStatus], names: Mapping[str, str]) -> Table:
    """A line for each setting."""
    table = Table.grid(padding=(0, 2))
    for one in settings:
        arms = one.arms
        table.add_row(
            _line(names[one.setting]),
            _bar(arms.final, arms.wanted, BAR),
            _line(f"{arms.final}/{arms.wanted} arms"),
            _line(_best(one)),
        )
    return table


def _best(setting: SettingStatus) -> str:
    """The best proposal so far, or the outcomes of all."""
    if setting.winner is None:
        return f"no winner yet: {outcome_text(setting.outcomes)}"
    return f"best: p{setting.winner}, objective {setting.objective:.3f}"


def _arms(arms: Sequence[ArmProgress], names: Mapping[str, str]) -> Table:
    """A line for each arm in training, with its progress."""
    table = Table.grid(padding=(0, 2))
    for arm in arms:
        which = "plain" if arm.proposal is None else f"p{arm.proposal}"
        table.add_row(
            _line(f"{names.get(arm.setting, arm.setting)} {which} s{arm.seed}"),
            _bar(arm.step, arm.steps, BAR),
            _line(f"step {arm.step} of {arm.steps}"),
        )
    return table
