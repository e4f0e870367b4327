"""Table of seen and unseen shifts: every test condition in CSV, else blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from search_spaces.space import SearchSpace
from sweep.glossary import brief
from sweep.render.table import Column, Table, number, rows_of, shown_of
from sweep.results.aggregates import ARMS
from sweep.results.summary import NO_REFERENCE, ArmSummary, Reference, SettingSummary
from sweep.results.tables.columns import (
    GAUSSIAN,
    HEADED,
    SettingLine,
    config_of,
    measured_references,
    pair_columns,
    reference_notes,
    seen_note,
    summary_notes,
)
from sweep.results.verdict_text import bias_text, gain_header
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import (
    FAMILIES,
    gamma_key,
    seen_gammas,
    severity_key,
    unseen_gammas,
)
from trainables.registry.find_plugins import facts_of
from trainables.registry.task_facts import Metric, reference_label


@dataclass(frozen=True)
class Condition(SettingLine):
    """One test condition of a setting."""

    block: str  # seen or unseen
    shift: str
    severity: float

    def score(self, who: str) -> float | None:
        """The metric of an arm or of a reference under it, or the gain."""
        if who == "gain":
            ours, plain = map(self.score, ARMS)
            gain = facts_of(self.summary.task).metric.gain
            return None if ours is None or plain is None else gain(ours, plain)
        arms: dict[str, ArmSummary | Reference] = {arm: self.summary.arm(arm) for arm in ARMS}
        values = {**arms, **self.summary.references}.get(who, NO_REFERENCE)
        if self.shift == GAUSSIAN:
            return (values.scores or {}).get(gamma_key(self.severity))
        return values.shifts.get(self.shift, {}).get(severity_key(self.severity))


def shifts_table(space: SearchSpace, summaries: Sequence[SettingSummary]) -> Table:
    """Every test condition alone (CSV), and in blocks of a shift's seen or unseen severities.

    A block shows the mean over its severities, which have equal weight.
    """
    facts = space.base.facts
    blocks = [block for s in summaries for block in _blocks(config_of(space, s), s)]
    firsts = [block[0] for block in blocks]
    scores = _score_columns(facts.metric, summaries)
    units = {GAUSSIAN: facts.noise_unit} | {name: family.unit for name, family in FAMILIES.items()}
    columns: list[Column[Condition]] = [
        *pair_columns(space),
        Column("", lambda one: one.summary.not_binding, name="not_binding"),
        Column("", lambda one: one.summary.matched_capacity, name="matched_capacity"),
        Column("", lambda one: "; ".join(one.summary.codes), name="codes"),
        Column("", lambda one: one.summary.gain.selection_biased, name="selection_biased"),
        Column("block", lambda one: one.block),
        Column("", lambda one: one.shift, name="shift"),
        Column("", lambda one: one.severity, name="severity"),
        Column("", lambda one: units[one.shift], name="unit"),
    ]
    rows = rows_of([*columns, *scores], [one for block in blocks for one in block])
    shown = [
        *shown_of([*HEADED, *columns], firsts),
        ("shift", [_shift_text(block) for block in blocks]),
        *((c.header, [_mean_text(c, block) for block in blocks]) for c in scores if c.header),
    ]
    used = [s for s in FAMILIES if any(first.shift == s for first in firsts)]
    notes = [
        f"{facts.metric.label}: mean over the severities and the {space.phase} seeds, on "
        f"{space.base.measured_on} {facts.samples}, in {facts.metric.unit}; "
        f"{facts.metric.direction}.",
        seen_note(facts),
        f"{GAUSSIAN}: severities are test gammas, {facts.noise_unit}.",
        *(
            f"{s.replace('_', ' ')}: {', '.join(f'{v:g}' for v in FAMILIES[s].severities)}, "
            f"{FAMILIES[s].unit}."
            for s in used
        ),
    ]
    if used:
        identity = "; Identity is the disturbed input itself" * facts.has_identity
        notes.append(
            "shifts other than gaussian come on top of Gaussian noise at train gamma, and have "
            f"entered neither training nor selection{identity}."
        )
    notes += [
        *reference_notes(facts.metric),
        f"{brief('gain')}{bias_text(summaries, facts.samples)}.",
        *summary_notes(summaries),
    ]
    return Table("shifts", "Seen and unseen shifts", rows, shown, notes, texts=5, headed=3)


def _score_columns(metric: Metric, summaries: Sequence[SettingSummary]) -> list[Column[Condition]]:
    """Both arms, the gain, and the references that any setting has."""
    measured = (*ARMS, "gain", *measured_references(metric, summaries))
    headers = {arm: str(arm) for arm in ARMS} | {"gain": gain_header(summaries)}
    headers |= {name: reference_label(name) for name in metric.shown}

    def column(who: str) -> Column[Condition]:
        name = f"{who}_{metric.key}" * (who in measured)
        form = "+.3f" if who == "gain" else ".3f"
        return Column(headers.get(who, ""), lambda one: one.score(who), form, name)

    return [column(who) for who in (*ARMS, "gain", *metric.references)]


def _blocks(config: ArmConfig, summary: SettingSummary) -> Iterator[list[Condition]]:
    """The conditions of every shift and of what is seen of it."""
    for block, gammas in (("seen", seen_gammas(config)), ("unseen", unseen_gammas(config))):
        if gammas:
            yield [Condition(summary, block, GAUSSIAN, gamma) for gamma in gammas]
    for shift, family in FAMILIES.items():
        if shift in config.shifts:
            yield [Condition(summary, "unseen", shift, s) for s in family.severities]


def _mean_text(column: Column[Condition], block: Sequence[Condition]) -> str:
    """The mean over a block; a dash where a value is missing: absence is never left out."""
    values = [column.value(one) for one in block]
    return number(None if None in values else fmean(values), str(column.form))


def _shift_text(block: Sequence[Condition]) -> str:
    shift = block[0].shift.replace("_", " ")
    if shift != GAUSSIAN:
        return shift
    ends = dict.fromkeys((block[0].severity, block[-1].severity))
    return f"{shift} {' to '.join(map(gamma_key, ends))}"
