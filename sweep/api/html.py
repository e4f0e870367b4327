"""HTML of a sweep and of a setting, for a notebook's output. Pure.

Colours are the notebook's own, so that it reads in dark and light; there are no scripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from search_spaces.space import SearchSpace
from sweep.glossary import brief, point_text, sentence
from sweep.render.html import fill
from sweep.render.table import YES_NO, Column, ShortForm, shown_of
from sweep.results.findings import answer
from sweep.results.status import SweepStatus
from sweep.results.summary import SettingSummary
from sweep.results.tables.results import results_table
from sweep.results.verdict_text import verdict_lines
from sweep.study.selection import outcome_text
from trainables.registry.find_plugins import facts_of
from trainables.registry.task_facts import Metric

_TEMPLATE = Path(__file__).with_name("notebook.html.jinja")


def of_search(status: SweepStatus, what: str, summaries: Sequence[SettingSummary]) -> str:
    """A search: its state, its findings, a row a setting."""
    lines = (
        _state(status),
        answer(summaries),
        *_biased(summaries),
        _unit(facts_of(summaries[0].task).metric),
    )
    shown = shown_of(COLUMNS, summaries)
    return _block(status.name, what, lines, shown)


def of_confirmation(
    status: SweepStatus, what: str, sentences: Iterable[str], table: ShortForm
) -> str:
    """A confirmation: its state, its findings in sentences, its table."""
    return _block(status.name, what, (_state(status), *sentences), table)


def of_setting(space: SearchSpace, summary: SettingSummary) -> str:
    """The pair that a setting shows: the verdict in words, both arms beside the references."""
    tried = summary.proposals
    counts = f"{tried.finished} of {tried.wanted} proposals finished"
    lines = [f"{pair_text(summary)}; {counts}: {outcome_text(summary.outcomes)}."]
    lines += [f"Why: {summary.why}."] if summary.why else []
    if summary.point is not None:
        lines += [point_text(summary.point), *verdict_lines(summary), *_biased([summary])]
    lines += [_unit(space.base.facts.metric)]
    table = results_table(space, [summary])
    return _block(summary.setting, "", lines, table.shown[table.headed :])


def of_confirmed_setting(name: str, sentence: str, table: ShortForm) -> str:
    """One setting of a confirmation: what its test says, and the contrasts."""
    return _block(name, "", [sentence], table)


def pair_text(summary: SettingSummary) -> str:
    """Which pair a setting shows."""
    if summary.proposal is None:
        return "No pair yet"
    kind = "Winner" if summary.winner else "No winner; the closest"
    return f"{kind}: proposal {summary.proposal}"


def _winner_text(summary: SettingSummary) -> str:
    if summary.proposal is None:
        return "no pair yet"
    return f"{'proposal' if summary.winner else 'none; closest:'} {summary.proposal}"


def _state(status: SweepStatus) -> str:
    arms = status.arms
    return f"{status.state.capitalize()}: {arms.final} of {arms.wanted} arms final."


def _unit(metric: Metric) -> str:
    terms = sentence(brief("seen", "unseen"))
    return (
        f"{metric.label} in {metric.unit}, mean over test gammas and seeds; {metric.direction}. "
        f"{terms}"
    )


def _biased(summaries: Iterable[SettingSummary]) -> list[str]:
    biased = any(s.gain.selection_biased for s in summaries if s.proposal is not None)
    return [sentence(brief("selection-biased"))] * biased


COLUMNS: Sequence[Column[SettingSummary]] = (
    Column("setting", lambda s: s.setting),
    Column("winner", _winner_text),
    Column("seen: constrained", lambda s: s.arm("constrained").seen_mean, ".3f"),
    Column("seen: unconstrained", lambda s: s.arm("unconstrained").seen_mean, ".3f"),
    Column("seen: gain", lambda s: s.gain.seen_mean, "+.3f"),
    Column("unseen: constrained", lambda s: s.arm("constrained").unseen_mean, ".3f"),
    Column("unseen: unconstrained", lambda s: s.arm("unconstrained").unseen_mean, ".3f"),
    Column("unseen: gain", lambda s: s.gain.unseen_mean, "+.3f"),
    Column("missing share", lambda s: s.arm("constrained").worst_missing_share, "+.2f"),
    Column("feasible", lambda s: YES_NO[s.arm("constrained").feasible]),
)


def _block(title: str, what: str, lines: Iterable[str], shown: ShortForm) -> str:
    return fill(_TEMPLATE, title=title, what=what, lines=lines, shown=shown)
