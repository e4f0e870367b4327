"""Page of a search: what was asked and found, how sure it is, all numbers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from search_spaces.space import SearchSpace
from sweep.confirmation.summary import ConfirmationSummary
from sweep.confirmation.words import sentences
from sweep.glossary import brief, point_text, sentence
from sweep.render.table import NOTHING, YES_NO, Column, ShortForm, Table, number, table_of
from sweep.report.pages.markup import (
    Commands,
    Pages,
    Paragraph,
    fill_page,
    open_first,
    provenance_of,
)
from sweep.results.findings import findings
from sweep.results.provenance import Manifest
from sweep.results.status import SweepStatus
from sweep.results.summary import ArmSummary, Gain, SettingSummary
from sweep.results.verdict_text import certified_over, gain_header, infeasible_seeds, verdict_lines
from sweep.study.selection import outcome_text
from trainables.plain import Json
from trainables.registry.find_plugins import facts_of

# For the template: a setting's name, which pair is shown, both arms, sentences, commands.
_Setting = tuple[str, str, ShortForm, list[str], Mapping[str, str]]


def page(
    status: SweepStatus,
    space: SearchSpace,
    omissions: Sequence[str],
    summaries: Sequence[SettingSummary],
    tables: Iterable[Table],
    pictures: Mapping[str, Pages],
    provenance: Manifest,
    commands: Commands,
    confirmed: Sequence[ConfirmationSummary],
) -> str:
    """The page as a text."""
    return fill_page(
        "search.html.jinja",
        name=status.name,
        what=space.summary,
        question="Does a network that must lower its loss layer by layer do better than plain "
        "training?",
        answer=findings(summaries),
        comparison=_overview(summaries),
        sure=[
            _tried(space, summaries),
            *_doubts(status, summaries),
            *omissions,
            *_confirmed(confirmed),
        ],
        following=commands.following,
        confirmations=[_confirmation(entry) for entry in confirmed],
        settings=[_setting(one, commands.by_setting.get(one.setting, {})) for one in summaries],
        pictures=open_first(pictures),
        tables=list(tables),
        ranges=_ranges(space, summaries),
        notes=_search_notes(status, space, summaries),
        failures=[f"{f.setting}, {f.signature}: {f.reason}" for f in status.failures],
        warnings=[f"{w.setting}, {w.signature}: {w.warning}" for w in status.warnings],
        again=commands.again,
        origin=provenance_of(provenance),
    )


# --- first screen ---------------------------------------------------------------------------------


def _tried(space: SearchSpace, summaries: Sequence[SettingSummary]) -> str:
    """How much was tried to answer the question."""
    seeds, count = len(space.search_seeds), len(summaries)
    wanted = sorted({summary.proposals.wanted for summary in summaries})
    tries = f"{wanted[0]} to {wanted[-1]}" if len(wanted) > 1 else f"{wanted[0]}" if wanted else "0"
    return (
        f"{count} setting{'s' * (count != 1)}, {tries} proposals each, every one on {seeds} "
        f"seed{'s' * (seeds != 1)} as a pair that differs in nothing but the constraint."
    )


def _doubts(status: SweepStatus, summaries: Sequence[SettingSummary]) -> Iterator[str | Paragraph]:
    """How far the sweep is, how sure its verdicts are, and what selection did to its numbers."""
    arms, state = status.arms, status.state.capitalize()
    ends = ", ".join(f"{count} {how}" for how, count in status.statuses.items())
    done = f"{arms.final} of {arms.wanted} arms are final{f' ({ends})' * bool(ends)}."
    yield Paragraph(done, strong=state)
    if status.state not in ("finished", "failed"):
        training = f", {arms.training} train now" * bool(arms.training)
        yield Paragraph(
            f"This page is of a sweep that is not at its end{training}: winners can still change.",
            is_warning=True,
        )
    winners = [summary for summary in summaries if summary.winner]
    pairs = [summary.arm("constrained") for summary in winners]
    sure = sum(arm.certificate == "feasible" for arm in pairs)
    if winners:
        others = "; of the others more units could turn the verdict" * (sure < len(winners))
        yield (
            f"{sure} of {len(winners)} winner{'s' * (len(winners) != 1)} "
            f"{'is' if sure == 1 else 'are'} certified feasible, by 95 % bounds over the held-out "
            f"units{certified_over(pairs)}{others}."
        )
    for winner in winners:
        if seeds := infeasible_seeds(winner):
            yield Paragraph(
                f"The winner of {winner.setting} is infeasible on {len(seeds)} of its "
                f"{len(winner.search_seeds)} seeds: the verdict is of their mean.",
                is_warning=True,
            )
    if any(summary.gain.selection_biased for summary in summaries):
        yield Paragraph(
            "Gains are of pairs that the search selected by these very scores: they "
            "flatter, and are no result before fresh seeds confirm them.",
            is_warning=True,
        )


def _confirmed(confirmed: Sequence[ConfirmationSummary]) -> Iterator[Paragraph]:
    if confirmed:
        names = ", ".join(entry.name for entry in confirmed)
        yield Paragraph("On fresh seeds and the test split:", link="#confirmed", linked=names)


def _confirmation(entry: ConfirmationSummary) -> tuple[str, list[str]]:
    counted = f"{entry.whole_seeds} of {len(entry.seeds.planned)} planned seeds count"
    departures = [f"Departs from the plan: {text}" for text in entry.deviations]
    return entry.name, [f"Plan {entry.plan}; {counted}.", *sentences(entry), *departures]


def _pair_text(summary: SettingSummary) -> str:
    if summary.proposal is None:
        return "none yet"
    return f"{'winner' if summary.winner else 'closest'}, proposal {summary.proposal}"


OVERVIEW: Sequence[Column[SettingSummary]] = (
    Column("setting", lambda s: s.setting),
    Column("gain, unseen", lambda s: s.gain.unseen_mean, "+.3f"),
    Column("feasible", lambda s: YES_NO[s.arm("constrained").feasible]),
    Column("certificate", lambda s: s.arm("constrained").certificate or NOTHING),
    Column("missing share", lambda s: s.arm("constrained").worst_missing_share, "+.2f"),
    Column("pair", _pair_text),
    Column("unseen, constrained", lambda s: s.arm("constrained").unseen_mean, ".3f"),
    Column("unseen, plain", lambda s: s.arm("unconstrained").unseen_mean, ".3f"),
    Column("gain, seen", lambda s: s.gain.seen_mean, "+.3f"),
)


def _overview(summaries: Sequence[SettingSummary]) -> Table:
    """A row a setting: its pair, both arms out of distribution, and whether it is feasible."""
    metrics = {facts_of(summary.task).metric for summary in summaries}
    notes = [
        f"Scores: {metric.label}, {metric.unit}, means over test gammas and seeds. "
        f"{sentence(brief('seen', 'unseen', 'gain'))}"
        for metric in metrics
    ]
    return table_of("overview", "Every setting's pair", OVERVIEW, summaries, notes)


# --- settings -------------------------------------------------------------------------------------


def _setting(summary: SettingSummary, commands: Mapping[str, str]) -> _Setting:
    tried = summary.proposals
    kind = "no pair yet"
    if summary.proposal is not None:
        kind = f"proposal {summary.proposal}"
        kind = f"winner: {kind}" if summary.winner else f"no winner; the closest is {kind}"
    lines = [
        f"{tried.finished} of {tried.wanted} proposals finished: {outcome_text(summary.outcomes)}."
        if tried.finished
        else f"None of {tried.wanted} proposals has finished."
    ]
    if summary.why:
        lines.append(f"Why there is no winner: {summary.why}.")
    if summary.winner and summary.lost:
        lines.append(f"Why the others lost: {outcome_text(summary.lost)}.")
    if summary.point:
        lines.append(f"Trained with {point_text(summary.point)}.")
    if summary.proposal is not None:
        lines += map(sentence, verdict_lines(summary))
    if summary.not_binding:
        lines.append(sentence(brief("not binding")))
    arms = _arms(summary) if summary.constrained or summary.unconstrained else []
    return summary.setting, kind, arms, lines, commands


def _arms(summary: SettingSummary) -> ShortForm:
    """Both arms and the gain."""
    label = facts_of(summary.task).metric.label
    heads = ["", f"seen {label}", f"unseen {label}", "held-out loss"]
    heads += ["missing share", "feasible", "signature of its first seed"]
    ours, plain = summary.arm("constrained"), summary.arm("unconstrained")
    rows = [
        [
            name,
            *_numbers(arm, ".3f", ".3g"),
            number(arm.worst_missing_share, "+.2f"),
            YES_NO[arm.feasible],
            arm.signature or NOTHING,
        ]
        for name, arm in (("constrained", ours), ("plain training", plain))
    ]
    rows.append([gain_header([summary]), *_numbers(summary.gain, "+.3f", "+.2g"), "", "", ""])
    return [(head, list(cells)) for head, cells in zip(heads, zip(*rows, strict=True), strict=True)]


def _numbers(values: ArmSummary | Gain, form: str, of_loss: str) -> list[str]:
    scores = [number(score, form) for score in (values.seen_mean, values.unseen_mean)]
    return [*scores, number(values.held_out_loss, of_loss)]


# --- search ---------------------------------------------------------------------------------------


def _ranges(space: SearchSpace, summaries: Sequence[SettingSummary]) -> Table:
    """Searched ranges, each with its settings."""
    named = {summary.setting for summary in summaries}
    ranges: dict[tuple[str, str], list[str]] = {}
    for setting in space.settings:
        if setting.name in named:
            for field, values in {**space.ranges, **setting.ranges}.items():
                described = short(field), _range(values.to_json())
                ranges.setdefault(described, []).append(setting.name)
    shown = [
        ("searched", [field for field, _ in ranges]),
        ("range", [values for _, values in ranges]),
        ("settings", ["all" if len(s) == len(named) else ", ".join(s) for s in ranges.values()]),
    ]
    return Table("searched", "What was searched", [], shown, [], texts=3)


def _search_notes(
    status: SweepStatus, space: SearchSpace, summaries: Sequence[SettingSummary]
) -> list[str]:
    """Sampler, seeds, outcomes of the proposals, and searches that ended early."""
    seeds = ", ".join(map(str, space.search_seeds))
    outcomes = Counter[str]()
    for summary in summaries:
        outcomes.update(summary.outcomes)
    return [
        f"Sampler {space.sampler}, seed {space.sampler_seed}; every proposal is trained on "
        f"seed{'s' * (len(space.search_seeds) != 1)} {seeds}; feasible up to a missing "
        f"share of {space.tolerance:g} in every layer.",
        f"Proposals by outcome: {outcome_text(outcomes)}.",
        *(f"{name}: its search ended early: {why}" for name, why in status.retired.items()),
    ]


def short(field: str) -> str:
    """A searched field without its section's name."""
    return field.removeprefix("constraint.")


def _range(values: Mapping[str, Json]) -> str:
    """A range of a definition in words.

    >>> _range({"log_uniform": [1e-05, 0.01]}), _range({"choice": [1, 2]})
    ('1e-05 to 0.01, logarithmic', '1 or 2')
    """
    ((kind, ends),) = values.items()
    if kind == "choice":
        return " or ".join(map(str, ends))
    how = {
        "log_uniform": ", logarithmic",
        "log_decay": ", as decay over the run, logarithmic",
        "log_reach": ", as reach over the run, logarithmic",
    }
    return f"{ends[0]:g} to {ends[1]:g}{how.get(kind, '')}"
