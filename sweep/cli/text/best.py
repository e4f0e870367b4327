"""Text of `sweep best`: pairs in full, or one line a setting when there are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from search_spaces.settings import short_names
from sweep.cli.options import console
from sweep.glossary import TERMS, brief, model_text, point_text, sentence
from sweep.render.table import NOTHING, YES_NO, number
from sweep.render.terminal import Paragraph, TextTable, table
from sweep.results.aggregates import ARMS
from sweep.results.findings import answer
from sweep.results.summary import ArmSummary, Scored, SettingSummary, shift_mean
from sweep.results.tables.columns import reference_notes
from sweep.results.verdict_text import code_notes, missing_share_text, verdict_lines
from sweep.study.advice import counted
from sweep.study.selection import outcome_text
from trainables.config.test_conditions import FAMILIES
from trainables.registry.find_plugins import facts_of
from trainables.registry.task_facts import reference_label

FEW_SETTINGS = 4  # of more, each gets a line
GAIN = "gain"  # with a star where the pair was selected by it


def print_settings(
    out: Console,
    rows: Mapping[str, Mapping[str, str]],
    *,
    right: Sequence[str],
    unbroken: Sequence[str] = (),
) -> None:
    """A row for each setting; where many are a line each only without the words they share, so."""

    def named(names: Mapping[str, str]) -> TextTable:
        named_rows = [{"setting": names[setting], **row} for setting, row in rows.items()]
        return table(named_rows, right=right, unbroken=("setting", *unbroken))

    full, short = named({setting: setting for setting in rows}), short_names(list(rows))
    is_short = (
        len(rows) > FEW_SETTINGS and not full.fits(out.width) and named(short).fits(out.width)
    )
    out.print(named(short) if is_short else full)
    if is_short:
        setting, name = next(iter(short.items()))
        out.print(f"All names begin with {setting.removesuffix(name)}, which is left out here.")


def print_answer(entries: Sequence[SettingSummary]) -> None:
    """The findings of a sweep, in sentences."""
    console().print(Paragraph(answer(entries), style="bold"))


def print_overview(entries: Sequence[SettingSummary]) -> None:
    """A line for each setting that has a finished proposal, and a count of the others."""
    metric = facts_of(entries[0].task).metric
    judged = [entry for entry in entries if entry.proposals.finished]
    out = console()
    rows = {entry.setting: _overview_row(entry, metric.label) for entry in judged}
    if rows:
        print_settings(
            out, rows, right=(metric.label, "gain", "miss"), unbroken=("shown", "feasible")
        )
    if len(judged) < len(entries):
        left = counted(len(entries) - len(judged), "setting")
        out.print(f"Without a finished proposal: {left}.")
    for note in code_notes({entry.setting: entry.codes for entry in judged}):
        out.print(Paragraph(note, hanging=2))
    for term in (
        "shown: the winner, or where there is none the proposal that is closest to winning, by its "
        "number.",
        f"{metric.label}: of the constrained arm, mean over all test gammas, in {metric.unit}; "
        f"{metric.direction}. {brief('gain')}.",
        f"miss: missing share of the worst layer: {TERMS['missing share'].brief}; feasible up to "
        f"{entries[0].tolerance:+.2f}.",
        "feasible: of the proposals tried. --only SETTING or --full shows complete pairs.",
    ):
        out.print(Paragraph(term, hanging=2))


def _overview_row(entry: SettingSummary, label: str) -> dict[str, str]:
    ours, outcomes = entry.arm("constrained"), entry.outcomes
    kind = "winner" if entry.winner else "closest"
    return {
        "shown": NOTHING if entry.proposal is None else f"{kind} p{entry.proposal}",
        label: number(ours.mean_over_gammas, ".3f"),
        "gain": number(entry.gain.mean_over_gammas, "+.3f"),
        "miss": number(ours.worst_missing_share, "+.2f"),
        "feasible": f"{outcomes['feasible']} of {sum(outcomes.values())}",
    }


def print_best(entries: Sequence[SettingSummary], confirmed: str = "") -> None:
    """Print pairs in full, with what the numbers mean below.

    Args:
        entries: summaries of the settings of one sweep.
        confirmed: what says that its pairs were confirmed, and where; '' where they were not.
    """
    for entry in entries:
        _print_best(entry)
    out = console()
    for term in _legend(entries, confirmed):
        out.print(Paragraph(term, hanging=2))


def _legend(entries: Sequence[SettingSummary], confirmed: str) -> list[str]:
    """Legend of a pair's columns, a line each."""
    facts = facts_of(entries[0].task)
    metric = facts.metric
    starred = any(entry.gain.selection_biased for entry in entries)
    return [
        f"mean {metric.label}: over all test gammas, in {metric.unit}; {metric.direction}. "
        f"ood_auc: the area under {metric.label} over test gamma.",
        f"seen, unseen: means over test gammas. {sentence(brief('seen', 'unseen'))}",
        f"held-out loss: on {entries[0].split} {facts.samples} at train gamma.",
        missing_share_text(entries[0].tolerance, len(entries[0].search_seeds)),
        *reference_notes(metric),
        *[
            f"{GAIN}*: {brief('selection-biased').partition(', so')[0]}. {confirmed}"
            if confirmed
            else f"{GAIN}*: {brief('selection-biased')}."
        ]
        * starred,
    ]


def _print_best(entry: SettingSummary) -> None:
    out = console()
    model = model_text(entry.model, entry.model_variant)
    out.print(Paragraph(f"{entry.setting}, {model}", style="bold"))
    for line in _pair_lines(entry):
        out.print(Paragraph(line, 2))
    if entry.constrained or entry.unconstrained:
        for rows in filter(None, (_best_rows(entry), _shift_rows(entry))):
            out.print(table(rows, right=tuple(rows[0])[1:], unbroken=("",)))
        seconds = ", ".join(f"{number(entry.arm(a).train_seconds, '.0f')} s {a}" for a in ARMS)
        out.print(Paragraph(f"training: {seconds}", 2))
    for line in verdict_lines(entry):
        out.print(Paragraph(line, 2))
    if entry.not_binding:
        out.print(Paragraph(brief("not binding"), 2))
    if not entry.matched_capacity:
        out.print(Paragraph(brief("unmatched capacity"), 2))
    out.print()


def _pair_lines(entry: SettingSummary) -> list[str]:
    """Which pair is shown, what became of the other proposals, and what it was trained with."""
    seeds = len(entry.search_seeds)
    name = f" ({entry.point_name})" if entry.point_name else ""
    place = f"proposal {entry.proposal}{name} on {seeds} {entry.phase} seed{'s' * (seeds > 1)}"
    if entry.winner:
        lines = [f"winner: {place}"]
        if entry.lost:
            lines.append(f"the others: {outcome_text(entry.lost)}")
    else:
        lines = [f"no winner: {entry.why}"]
        if entry.proposals.finished:
            lines.append(f"all proposals: {outcome_text(entry.outcomes)}")
        if entry.proposal is not None:
            lines.append(f"shown, as the closest: {place}")
    if entry.point:
        lines.append(point_text(entry.point))
    return lines


def _best_rows(entry: SettingSummary) -> list[dict[str, str]]:
    """Who is compared, line by line: both arms, the gain, and what needs no training."""
    metric = facts_of(entry.task).metric
    rows = []
    for who, values in _compared(entry).items():
        form, of_loss = ("+.3f", "+.2g") if who.startswith(GAIN) else (".3f", ".3g")
        arm = values if isinstance(values, ArmSummary) else None
        row = {
            "": f"  {who}",
            f"mean\n{metric.label}": number(values.mean_over_gammas, form),
            "ood_auc": number(values.ood_auc, form),
            "seen": number(values.seen_mean, form),
            "unseen": number(values.unseen_mean, form),
            "held-out\nloss": number(values.held_out_loss, of_loss),
            "missing\nshare": number(arm.worst_missing_share, "+.2f") if arm else "",
            "feasible": YES_NO[arm.feasible] if arm else "",
        }
        rows.append(row)
    return rows


def _shift_rows(entry: SettingSummary) -> list[dict[str, str]]:
    """The same lines as ``_best_rows``, under shifts beside Gaussian noise; empty without any."""
    shown = entry.constrained or entry.arm("unconstrained")
    shifts = [shift for shift in FAMILIES if shift in shown.shifts]
    rows = []
    for who, values in _compared(entry).items():
        form = "+.3f" if who.startswith(GAIN) else ".3f"
        means = {shift: shift_mean(values, shift) for shift in shifts}
        if any(mean is not None for mean in means.values()):
            cells = {
                f"unseen\n{_short(shift)}": number(mean, form) for shift, mean in means.items()
            }
            rows.append({"": f"  {who}", **cells})
    return rows


def _compared(entry: SettingSummary) -> dict[str, Scored]:
    shown = facts_of(entry.task).metric.shown
    return {
        **{arm: entry.arm(arm) for arm in ARMS},
        GAIN + "*" * entry.gain.selection_biased: entry.gain,
        **{reference_label(name): entry.reference(name) for name in shown},
    }


def _short(shift: str) -> str:
    """A family's name in the width that a terminal leaves: salt+pepper, frame drop."""
    return shift.replace("_and_", "+").replace("_", " ")
