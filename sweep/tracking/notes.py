"""Notes on MLflow's pages of a sweep and of each arm, in Markdown. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sweep.glossary import TERMS, brief, sentence, two_codes
from sweep.render.markdown import to_grid
from sweep.study.advice import command
from sweep.study.selection import SettingResult
from trainables.plain import Json
from trainables.records.arm_record import WORST_MISSING_SHARE

if TYPE_CHECKING:
    from sweep.tracking.marks import SweepPages
    from sweep.tracking.rows import TrackedArm
    from trainables.records.evaluation import Evaluation

# Terms that the page explains.
_READ = ("pair", "proposal", "gain", "missing share", "seen", "unseen", "objective", "certificate")
SHOWN_SETTINGS = 40  # lines of the table on a sweep's page


def run_note(arm: TrackedArm) -> str:
    """Text of an arm's page: its condition, outcome and scores, and how to train it again.

    Of a long note MLflow shows about four lines until it is asked for more.
    """
    record = arm.record
    paragraphs = [_head(arm)]
    if record.evaluation is not None:
        paragraphs.append(_scores(arm, record.evaluation))
    if record.reason:
        paragraphs.append(f"**{record.status}**: {record.reason}")
    paragraphs += [f"* Seen in training: {warning}" for warning in record.warnings]
    if arm.verdict.codes:
        paragraphs.append(sentence(two_codes(arm.verdict.codes)))
    if not record.config.matched_capacity:
        paragraphs.append(sentence(brief("unmatched capacity")))
    paragraphs.append(
        "To train it again and compare, download the artifact `config.json` and run, with the "
        "sweep's --storage,\n\n"
        "    sweep run config.json --reproduce"
    )
    return "\n\n".join(paragraphs)


def _head(arm: TrackedArm) -> str:
    config = arm.record.config
    who = "plain training" if config.constraint is None else f"constrained, proposal {arm.proposal}"
    share = arm.pair.get(WORST_MISSING_SHARE, math.nan)
    missing = "" if math.isnan(share) else f" (worst missing share {share:+.2f})"
    if certificate := arm.verdict.certificate:
        missing += f", by 95 % bounds over {arm.verdict.certificate_counts}: {certificate}"
    values = f" {values_text(arm.searched)}." if arm.searched else ""
    return f"**{arm.setting}**, {who}, seed {config.seed}: **{arm.outcome}**{missing}.{values}"


def _scores(arm: TrackedArm, measured: Evaluation) -> str:
    """The metric at every test gamma, and behind it the gain over plain training.

    In one paragraph, for a table would be hidden.
    """
    metric = arm.record.config.facts.metric
    beside = " (gain over plain training)" if arm.gains else ""
    scores = [
        f"{gamma}: {score:.4g}" + (f" ({arm.gains[gamma]:+.3g})" if gamma in arm.gains else "")
        for gamma, score in measured.scores.items()
    ]
    return f"{metric.label}, {metric.direction}, by gamma{beside}: {', '.join(scores)}."


def sweep_note(pages: SweepPages, links: Mapping[str, str]) -> str:
    """Text of a sweep's page: its results, a description, how to read it, and where more is shown.

    Of a long note MLflow shows about four lines until it is asked for more.

    Args:
        pages: results of the sweep.
        links: addresses of the saved views by name.
    """
    definition, storage = pages.definition, pages.storage
    space, name = definition.space, definition.name
    metric = space.base.facts.metric
    what = space.summary or "pairs of a constrained and a plain training run"
    verbs = {
        "best": "the verdict on each setting",
        "report": "a page with figures, tables and provenance",
        "export": "tables as CSV, Markdown and LaTeX",
    }
    more = {verb: (name, "--out", "results") if verb == "export" else (name,) for verb in verbs}
    lines = [f"* `{command(v, *more[v], storage=storage)}`: {verbs[v]}" for v in verbs]
    return "\n\n".join(
        [
            *([f"**{' '.join(pages.findings)}**"] if pages.findings else []),
            *([] if space.phase == "confirmation" else [_summary(pages.settings, metric.label)]),
            f"**{name}**: {what.rstrip('.')}.",
            f"Views: {', '.join(f'[{view}]({link})' for view, link in links.items())}.",
            _reading(metric.label, metric.direction, space.tolerance),
            "\n".join(lines),
        ]
    )


def _reading(label: str, direction: str, tolerance: float) -> str:
    return "\n".join(
        [
            *(f"* *{name.capitalize()}*: {TERMS[name].brief}." for name in _READ),
            f"* Feasible: missing shares of at most {tolerance:.2f}. Scores: {label}, {direction}.",
            f"* The gain of a search's winner is {brief('selection-biased')} (`sweep confirm`).",
            "* Plain runs are grey; p0, p1, ... are proposals, s0, s1, ... seeds. The step of a "
            "curve is the layer, 100 x gamma, or 1000 x the severity of a shift.",
        ]
    )


def _summary(settings: Mapping[str, SettingResult], label: str) -> str:
    """One line a setting."""
    answer = (f"gain, mean {label}", "missing share", "feasible", "certificate", "objective")
    headers = ["setting", "shown", *answer, "searched"]
    rows = []
    for setting, chosen in list(settings.items())[:SHOWN_SETTINGS]:
        pair = chosen.shown
        if pair is None:
            rows.append([setting, f"none: {chosen.why}", *[""] * 6])
            continue
        is_winner = chosen.winner is not None
        rows.append(
            [
                setting,
                f"p{pair.number}, {'winner' if is_winner else 'closest, no winner'}",
                f"{pair.gain:+.3g}",
                f"{pair.worst_missing_share:+.2f}",
                "yes" if pair.outcome == "feasible" else "no",
                pair.certificate,
                f"{pair.objective:.4g}",
                values_text(pair.point),
            ]
        )
    left = len(settings) - SHOWN_SETTINGS
    return to_grid(headers, rows) + (
        f"\n\nAnd {left} more: `sweep best` shows them." if left > 0 else ""
    )


def values_text(point: Mapping[str, Json]) -> str:
    """Searched values in one line, by the last part of their names.

    >>> values_text({"constraint.alpha": 0.123456, "model.variant": "distance"})
    'alpha 0.1235, variant distance'
    """
    return ", ".join(
        f"{name.rpartition('.')[2]} {format(v, '.4g') if isinstance(v, float) else v}"
        for name, v in point.items()
    )
