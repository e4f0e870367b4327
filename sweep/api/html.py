"""HTML of a sweep and of a setting, for a notebook's output. Pure.

Colours are the notebook's own, so that it reads in dark and light; there are no scripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from search_spaces.space import SearchSpace
from sweep.render.html import fill
from sweep.render.table import YES_NO, Columns, number
from sweep.results.findings import answer
from sweep.results.names import point_text
from sweep.results.summary import SettingSummary
from sweep.results.tables.results import results_table
from sweep.results.verdict_text import verdict_lines
from sweep.study.selection import outcome_text
from trainables.plain import Json
from trainables.registry.lookup import facts_of
from trainables.registry.task_facts import Metric

_TEMPLATE = Path(__file__).with_name("notebook.html.jinja")


def of_search(status: Mapping[str, Json], summaries: Sequence[SettingSummary]) -> str:
    """What a search came to: its state, its findings, a row a setting.

    Args:
        status: ``status_entry``, and of the sweep ``name`` and ``summary``.
        summaries: of its settings.
    """
    entries = [summary.to_json() for summary in summaries]
    unit = _unit(facts_of(entries[0]["task"]).metric)
    head = (_state(status), answer(summaries), *_biased(entries), unit)
    return _block(status["name"], str(status["summary"]), head, _settings(entries))


def of_confirmation(status: Mapping[str, Json], said: Iterable[str], table: Columns) -> str:
    """What a confirmation came to: its state, what was found in words, its table."""
    return _block(status["name"], str(status["summary"]), (_state(status), *said), table)


def of_setting(space: SearchSpace, summary: SettingSummary) -> str:
    """The pair that a setting shows: the verdict in words, both arms beside the references."""
    entry = summary.to_json()
    tried = entry["proposals"]
    counts = f"{tried['finished']} of {tried['wanted']} proposals finished"
    lines = [f"{pair_text(entry)}; {counts}: {outcome_text(entry['outcomes'])}."]
    lines += [f"Why: {entry['why']}."] if entry["why"] else []
    if entry["proposal"] is not None:
        lines += [point_text(entry["point"]), *verdict_lines(summary), *_biased([entry])]
    lines += [_unit(space.base.facts.metric)]
    table = results_table(space, [entry])
    return _block(entry["setting"], "", lines, table.shown[table.headed :])


def of_confirmed_setting(name: str, said: str, table: Columns) -> str:
    """One setting of a confirmation: what its test says, and the contrasts."""
    return _block(name, "", [said], table)


def pair_text(entry: Mapping[str, Json]) -> str:
    """Which pair a setting shows."""
    if entry["proposal"] is None:
        return "No pair yet"
    kind = "Winner" if entry["winner"] else "No winner; the closest"
    return f"{kind}: proposal {entry['proposal']}"


def _winner_text(entry: Mapping[str, Json]) -> str:
    if entry["proposal"] is None:
        return "no pair yet"
    return f"{'proposal' if entry['winner'] else 'none; closest:'} {entry['proposal']}"


def _state(status: Mapping[str, Json]) -> str:
    arms = status["arms"]
    return f"{str(status['state']).capitalize()}: {arms['final']} of {arms['wanted']} arms final."


def _unit(metric: Metric) -> str:
    seen = "seen: the test gammas that training or selection looked at; unseen: all others"
    return f"{metric.label} in {metric.unit}, mean over the seeds; {metric.direction}; {seen}."


def _biased(entries: Iterable[Mapping[str, Json]]) -> list[str]:
    biased = any(e["gain"].get("selection_biased") for e in entries if e["proposal"] is not None)
    return ["Selection-biased: no gain is a result before fresh seeds confirm it."] * biased


def _settings(entries: Sequence[Mapping[str, Json]]) -> Columns:
    def cells(arm: str, form: str, key: str) -> list[str]:
        return [number((entry[arm] or {}).get(key), form) for entry in entries]

    return [
        ("setting", [entry["setting"] for entry in entries]),
        ("winner", [_winner_text(entry) for entry in entries]),
        *(
            (
                f"{block}: {arm}",
                cells(arm, "+.3f" if arm == "gain" else ".3f", f"{block}_mean"),
            )
            for block in ("seen", "unseen")
            for arm in ("constrained", "unconstrained", "gain")
        ),
        ("missing share", cells("constrained", "+.2f", "worst_missing_share")),
        ("feasible", [YES_NO[(entry["constrained"] or {}).get("feasible")] for entry in entries]),
    ]


def _block(title: str, what: str, lines: Iterable[str], shown: Columns) -> str:
    return fill(_TEMPLATE, title=title, what=what, lines=lines, shown=shown)
