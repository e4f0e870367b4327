"""Table of results, in full (CSV) and in a short form. Pure.

The short form shows what a reader compares, with notes. What is infeasible is marked, never hidden.
No bold and no star: a search alone confirms nothing. What training or selection looked at (seen)
and what it did not (unseen) never share a column, but for the mean over all test gammas, which says
so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from search_spaces.space import SearchSpace
from sweep.glossary import brief
from sweep.render.table import NOTHING, YES_NO, Column, Row, Table, number, shown_of
from sweep.results.aggregates import ARMS
from sweep.results.summary import ArmSummary, Scored, SettingSummary, shift_mean
from sweep.results.tables.columns import (
    HEADED,
    SettingLine,
    config_of,
    form_of,
    measured_references,
    pair_words,
    reference_notes,
    seen_note,
    summary_notes,
    without_idle,
)
from sweep.results.verdict_text import (
    bias_text,
    gain_header,
    listed,
    verdict_legend,
    verdict_notes,
)
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import seen_gammas, unseen_gammas
from trainables.plain import Json
from trainables.registry.task_facts import Metric, reference_label, shift_references


@dataclass(frozen=True)
class Line(SettingLine):
    """A line of the short form: an arm, the gain, or a predictor that needs no training."""

    name: str
    values: Scored
    form: str  # of its numbers

    def number(self, value: float | None) -> str:
        """A number in the line's form."""
        return number(value, self.form)

    def verdict(self, text_of: Callable[[ArmSummary], str]) -> str:
        """A cell that only arms have."""
        return text_of(self.values) if isinstance(self.values, ArmSummary) else ""


COLUMNS: Sequence[Column[Line]] = (
    *HEADED[:2],
    Column("pair", lambda one: _searched_pair_text(one.summary)),
    Column("arm", lambda one: one.name),
    Column("mean {metric}", lambda one: one.number(one.values.mean_over_gammas)),
    Column("ood_auc", lambda one: one.number(one.values.ood_auc)),
    Column("seen", lambda one: one.number(one.values.seen_mean)),
    Column("unseen", lambda one: one.number(one.values.unseen_mean)),
    Column(
        "missing share", lambda one: one.verdict(lambda a: number(a.worst_missing_share, ".2f"))
    ),
    Column("certificate", lambda one: one.verdict(lambda a: a.certificate or NOTHING)),
    Column("units met", lambda one: one.verdict(lambda a: number(a.least_units_met, ".0%"))),
    Column(
        "feasible, beats trivial",
        lambda one: one.verdict(lambda a: f"{YES_NO[a.feasible]}, {YES_NO[a.beats_trivial]}"),
    ),
)


def results_table(space: SearchSpace, summaries: Sequence[SettingSummary]) -> Table:
    """Both arms of every setting's winner, or of its closest pair, beside the references."""
    facts = space.base.facts
    label = facts.metric.label
    lines = [line for summary in summaries for line in _lines(facts.metric, summary)]
    columns = [replace(column, header=column.header.format(metric=label)) for column in COLUMNS]
    seeds = len(space.search_seeds)
    notes = [
        f"mean {label}: the plain mean over all test gammas, seen and unseen, and over "
        f"{seeds} {space.phase} seed{'s' * (seeds > 1)}, on {space.base.measured_on} "
        f"{facts.samples}, in {facts.metric.unit}; {facts.metric.direction}.",
        f"ood_auc: the trapezoid area under {label} over test gamma.",
        seen_note(facts),
        *reference_notes(facts.metric),
        *verdict_legend(space.tolerance, (s.constrained for s in summaries)),
        f"{brief('gain')}{bias_text(summaries, facts.samples)}.",
        *(
            f"{s.setting}: no winner: {(s.why or '').rstrip('.')}."
            for s in summaries
            if not s.winner
        ),
        *verdict_notes(summaries),
        *summary_notes(summaries),
    ]
    rows = without_idle(space, [_results_row(config_of(space, s), s) for s in summaries])
    caption = "Constrained and unconstrained arms"
    return Table("results", caption, rows, shown_of(columns, lines), notes, texts=4, headed=3)


def _lines(metric: Metric, summary: SettingSummary) -> Iterator[Line]:
    for arm in ARMS:
        yield Line(summary, arm, summary.arm(arm), ".3f")
    yield Line(summary, gain_header([summary]), summary.gain, "+.3f")
    for name in metric.shown:
        yield Line(summary, reference_label(name), summary.reference(name), ".3f")


def _searched_pair_text(summary: SettingSummary) -> str:
    """The pair that is shown, and its place in the search."""
    words = [*pair_words(summary), *["at an edge"] * bool(summary.edges)]
    descent = summary.demanded_descent
    return ", ".join([*words, *([f"descent asked {descent:.2f}"] if descent else [])])


# --- rows -----------------------------------------------------------------------------------------


_OF_ARM: Mapping[str, Callable[[ArmSummary], Json]] = {  # by the column, behind the arm's name
    "ood_auc": lambda arm: arm.ood_auc,
    "objective": lambda arm: arm.objective,
    "held_out_loss": lambda arm: arm.held_out_loss,
    "feasible": lambda arm: arm.feasible,
    "beats_trivial": lambda arm: arm.beats_trivial,
    "worst_missing_share": lambda arm: arm.worst_missing_share,
    "worst_layer": lambda arm: arm.worst_layer,
    "first_layer": lambda arm: arm.first_layer,
    "missing_share_by_layer": lambda arm: listed(arm.missing_share),
    "missing_share_training_by_layer": lambda arm: listed(arm.missing_share_training),
    "missing_share_relaxed_by_layer": lambda arm: listed(arm.missing_share_relaxed),
    "certificate": lambda arm: arm.certificate,
    "certificate_units": lambda arm: arm.certificate_units,
    "certificate_cluster": lambda arm: arm.certificate_cluster,
    "certificate_held_out": lambda arm: arm.certificate_held_out,
    "missing_share_upper_by_layer": lambda arm: listed(arm.missing_share_upper),
    "missing_share_lower_by_layer": lambda arm: listed(arm.missing_share_lower),
    "missing_share_seeds_upper_by_layer": lambda arm: listed(arm.missing_share_seeds_upper),
    "units_met": lambda arm: arm.least_units_met,
    "units_met_by_layer": lambda arm: listed(arm.units_met),
    "counted_as_constant": lambda arm: arm.counted_as_constant,
    "signature": lambda arm: arm.signature,
    "train_seconds": lambda arm: arm.train_seconds,
    "eval_seconds": lambda arm: arm.eval_seconds,
    "peak_memory_mb": lambda arm: arm.peak_memory_mb,
}


def _results_row(config: ArmConfig, summary: SettingSummary) -> Row:
    row: Row = {
        "setting": summary.setting,
        "data": config.data.name,
        "model": config.model.name,
        "model_variant": config.model.variant,
        "layers": config.model.layers,
        "train_gamma": config.train_gamma,
        "form": form_of(config.constraint),
        "n_seeds": len(summary.search_seeds),
        **({"split": summary.split} if summary.split != "dev" else {}),
        "winner": summary.winner,
        "why": summary.why,
        "proposal": summary.proposal,
        "n_proposals_finished": summary.proposals.finished,
        **{f"n_{outcome}": count for outcome, count in summary.outcomes.items()},
        "not_binding": summary.not_binding,
        "matched_capacity": summary.matched_capacity,
        "codes": "; ".join(summary.codes),
        "selection_biased": summary.gain.selection_biased,
        "tolerance": summary.tolerance,
        "demanded_descent": summary.demanded_descent,
        "least_descent": summary.least_descent,
        "edges": "; ".join(summary.edges) or None,
    }
    metric = config.facts.metric
    mean = f"mean_{metric.key}"
    for name in ARMS:
        arm = summary.arm(name)
        row[f"{name}_{mean}"] = arm.mean_over_gammas
        row |= {f"{name}_{column}": value(arm) for column, value in _OF_ARM.items()}
        if metric.higher_is_better:  # else scores by layer follow from the losses
            row |= {
                f"{name}_loss_by_layer": listed(arm.layer_losses),
                f"{name}_{metric.key}_by_layer": listed(arm.layer_scores),
                f"{name}_probe_loss_by_layer": listed(arm.probe_losses),
                f"{name}_probe_{metric.key}_by_layer": listed(arm.probe_scores),
            }
    del row["unconstrained_missing_share_relaxed_by_layer"]  # without multipliers there is no slack
    measured = summary.constrained or summary.arm("unconstrained")
    row["ood_auc_range"] = listed(measured.ood_range)
    row["ood_auc_step"] = measured.ood_step
    row[f"gain_{mean}"] = summary.gain.mean_over_gammas
    row["gain_held_out_loss"] = summary.gain.held_out_loss
    row["gain_ood_auc"] = summary.gain.ood_auc
    references = measured_references(metric, [summary])
    for who in references:
        values = summary.reference(who)
        row[f"{who}_{mean}"] = values.mean_over_gammas
        row[f"{who}_ood_auc"] = values.ood_auc
        row[f"{who}_held_out_loss"] = values.held_out_loss
    row |= {
        "seen_gammas": listed(seen_gammas(config)),
        "unseen_gammas": listed(unseen_gammas(config)),
    }
    scored: dict[str, Scored] = {
        **{name: summary.arm(name) for name in ARMS},
        "gain": summary.gain,
        **{who: summary.reference(who) for who in references},
    }
    everywhere = (*ARMS, "gain", *shift_references(config.facts))
    for who, scores in scored.items():
        row[f"{who}_seen_{mean}"] = scores.seen_mean
        row[f"{who}_unseen_{mean}"] = scores.unseen_mean
        for shift in config.shifts if who in everywhere else ():
            row[f"{who}_unseen_{shift}_{mean}"] = shift_mean(scores, shift)
    return row
