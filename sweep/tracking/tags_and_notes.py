"""MLflow tags of arms and sweeps, among them the notes on their pages. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields

from sweep.glossary import TERMS, brief, sentence, two_codes
from sweep.render.markdown import to_grid
from sweep.study.advice import command
from sweep.study.selection import SettingResult, outcome_text
from sweep.tracking.marks import COLOUR, SweepPages, colour
from sweep.tracking.rows import (
    PairTags,
    TrackedArm,
    cut,
    final_values,
    flattened,
    last_step,
    report_metrics,
)
from trainables.plain import Json
from trainables.records.arm_record import WORST_MISSING_SHARE, Outcome, Status
from trainables.records.evaluation import Evaluation

# Characters; MLflow cuts at 8000 in silence, and a cut tag would be sent again and again.
LONGEST_TAG = 5000
NOTE = "mlflow.note.content"
NAMED_NON_FINITE = 5  # how many values the tag `non_finite` spells out
# What is sent of an arm. A run that holds something else, of an earlier version, is made anew.
LAYOUT, LAYOUT_VERSION = "layout", "4"

# Tags that an arm may have at one time and not at another, beside those of its environment.
_MAY_GO = (
    "proposal",
    "reason",
    "unconstrained_signature",
    "non_finite",
    *(tag.name for tag in fields(PairTags)),
)
# Terms that the page explains.
_READ = ("pair", "proposal", "gain", "missing share", "seen", "unseen", "objective", "certificate")
SHOWN_SETTINGS = 40  # lines of the table on a sweep's page

RUN_STATUS: Mapping[Status, str] = {
    "running": "RUNNING",
    "finished": "FINISHED",
    "diverged": "FAILED",
    "failed": "FAILED",
    "stopped": "KILLED",
}


def first_tags(arm: TrackedArm) -> dict[str, str]:
    """Tags that an arm's run is created with: its keys, and a colour that may change later."""
    return {
        "kind": "arm",
        "sweep": arm.sweep,
        "signature": arm.signature,
        LAYOUT: LAYOUT_VERSION,
        COLOUR: colour(arm.place, arm.proposal),
    }


def tags_of(arm: TrackedArm) -> dict[str, str]:
    """The arm's tags; only strings, nothing empty."""
    record = arm.record
    tags = {
        "kind": "arm",
        "sweep": arm.sweep,
        "setting": arm.setting,
        "proposal": "" if arm.proposal is None else str(arm.proposal),
        "seed": str(record.config.seed),
        "arm": record.config.arm,
        "phase": arm.phase,
        "signature": arm.signature,
        "outcome": arm.outcome,
        "status": record.status,
        "reason": record.reason,
        "unconstrained_signature": arm.unconstrained_signature or "",
        "matched_capacity": "" if record.config.matched_capacity else "no",
        **arm.verdict.to_json(),
        "non_finite": _non_finite(arm),
        NOTE: run_note(arm),
    }
    where = flattened(record.environment, "environment.")
    tags |= {name: value for name, value in where.items() if value != "null"}
    return {name: cut(value, LONGEST_TAG) for name, value in tags.items() if value}


def stale_tags(there: Mapping[str, str], tags: Mapping[str, str]) -> list[str]:
    """Names of a run's tags that ``tags_of`` once gave it and gives it no longer.

    >>> stale_tags({"reason": "nan", "synced_step": "3", "kind": "arm"}, {"kind": "arm"})
    ['reason']
    """
    ours = (name for name in there if name in _MAY_GO or name.startswith("environment."))
    return [name for name in ours if name not in tags]


def summary_tags(sweep: str, outcomes: Mapping[str, Mapping[Outcome, int]]) -> dict[str, str]:
    """Tags of a sweep's own run: how many arms ended how, by setting and in all."""
    total: Counter[Outcome] = Counter()
    for counts in outcomes.values():
        total.update(counts)
    lines = {setting: outcome_text(counts) for setting, counts in outcomes.items()}
    note = "\n".join(f"* {setting}: {line}" for setting, line in lines.items())
    tags = {"kind": "sweep", "sweep": sweep, "outcomes": outcome_text(total)}
    tags |= {f"outcomes.{setting}": line for setting, line in lines.items()}
    return tags | {NOTE: cut(f"Outcomes by setting\n\n{note}", LONGEST_TAG)}


def _non_finite(arm: TrackedArm) -> str:
    """The first values that are no numbers, by metric and step: '' when all are."""
    record = arm.record
    values = [(n, v, r.step) for r in record.reports for n, v in report_metrics(r).items()]
    if record.is_final:
        final = final_values(arm).items()
        values += [(name, value, last_step(record)) for name, value in final]
    texts = [f"{n} is {v} at step {s}" for n, v, s in values if not math.isfinite(v)]
    more = len(texts) - NAMED_NON_FINITE
    return "; ".join(texts[:NAMED_NON_FINITE] + ([f"and {more} more"] if more > 0 else []))


# --- notes ----------------------------------------------------------------------------------------


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
